"""Leaders that deliver from a queue, on SQLite and PostgreSQL: one at a time, and a deposed one writes nothing."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial

import psycopg
import pytest
import trio
from hypothesis import HealthCheck, given, settings, strategies as st

from mqproto.edge.exactlyonce import Attempt, Entry
from mqproto.simulator.edges.history.history import DocumentHistory, FencedError, Leader, open_history
from tests.databases import Server
from tests.simulator.running import until

ORDERS = "trigger/orders"
opened = partial(open_history, clock=lambda: 0.0)
"""Open a history whose epochs begin at 1."""
numbers = itertools.count(1)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)
@given(data=st.data())
async def test_over_any_calls_of_two_the_last_epoch_alone_writes_and_none_comes_twice(
    history_url: str, data: st.DataObject
) -> None:
    scope = f"trigger/{next(numbers)}"
    async with opened(history_url) as first, opened(history_url) as second:
        both = (first, second)
        led = [0, 0]
        """For each of the two, the epoch that it believes in."""
        watched = [Leader(), Leader()]
        last, leads, documents = 0, False, itertools.count()
        for _ in range(data.draw(st.integers(1, 20), "steps")):
            which = data.draw(st.integers(0, 1), "who")
            history, epoch = both[which], led[which]
            act = data.draw(st.sampled_from(["lead", "follow", "watch", "beat", "write", "write", "resign"]))
            if act in ("lead", "follow"):
                instead = watched[which] if act == "follow" else None
                now = await history.who_leads(scope)
                is_free = not leads or (instead is not None and now[:4] == instead[:4])
                ticket = next(numbers)
                found = await history.lead(scope, "abc"[which], ticket, instead)
                assert (found.ticket == ticket) is is_free
                if is_free:
                    last, leads = last + 1, True
                    led[which] = last
                assert found.epoch == last
                continue
            if act == "watch":
                watched[which] = await history.who_leads(scope)
                continue
            if epoch == 0:
                continue
            acts = {
                "beat": partial(history.beat, scope, epoch),
                "write": partial(_written, history, scope, str(next(documents)), epoch),
                "resign": partial(history.resign, scope, epoch),
            }
            if epoch == last:
                await acts[act]()
                leads = leads and act != "resign"
            else:
                with pytest.raises(FencedError):
                    await acts[act]()


async def _written(history: DocumentHistory, scope: str, key: str, epoch: int) -> None:
    """Begin and finish a document; if that is refused, check that it is neither begun nor finished."""
    try:
        await history.begin(scope, key, "a", epoch)
        await history.finish(scope, key, Attempt.SUCCEEDED, b"", epoch)
        await history.note(scope, epoch, key.encode())
    except FencedError:
        assert (await history.look(scope, key)).entry is Entry.ABSENT
        with pytest.raises(FencedError):
            await history.finish(scope, key, Attempt.SUCCEEDED, b"", epoch)
        assert (await history.look(scope, key)).entry is Entry.ABSENT
        raise
    assert (await history.look(scope, key)).entry is Entry.COMPLETED
    assert (await history.who_leads(scope)).note == key.encode()


async def test_of_many_that_would_lead_one_does_and_a_lost_answer_is_asked_for_again(
    history_url: str,
) -> None:
    leaders = Counter[Leader]()
    async with opened(history_url) as first, opened(history_url) as second:

        async def lead(history: DocumentHistory, ticket: int) -> None:
            for _ in range(2):
                leaders[await history.lead(ORDERS, f"trigger-{ticket}", ticket)] += 1

        async with trio.open_nursery() as nursery:
            for number in range(1, 31):
                nursery.start_soon(lead, (first, second)[number % 2], number)
        assert len(leaders) == 1
        [leader] = leaders
        assert leader == await first.who_leads(ORDERS)
        assert leader.epoch == 1
        await first.note(ORDERS, 1, b"held")
        await first.resign(ORDERS, 1)
        assert await second.lead(ORDERS, "next", 99) == Leader(2, "next", 99, 0, b"held")


async def test_who_writes_while_another_takes_over_waits_for_that_and_writes_nothing(
    postgresql: Server,
) -> None:
    url = postgresql.new_schema()
    async with opened(url) as history:
        await history.lead(ORDERS, "old", 1)
        refused: list[FencedError] = []

        async def begin() -> None:
            try:
                await history.begin(ORDERS, "id", "old", epoch=1)
            except FencedError as error:
                refused.append(error)

        def waits() -> bool:
            with psycopg.connect(postgresql.url().replace("+psycopg", "")) as other:
                return bool(
                    other.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall()
                )

        async def is_over() -> bool:
            return await trio.to_thread.run_sync(waits) or not nursery.child_tasks

        with psycopg.connect(url.replace("+psycopg", "")) as taking_over:
            taking_over.execute("UPDATE document_history_leader SET epoch = 2")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(begin)
                await until(is_over)
                taking_over.commit()
        assert len(refused) == 1
        assert str(refused[0]) == "another trigger has taken over orders since epoch 1"
        assert (await history.look(ORDERS, "id")).entry is Entry.ABSENT


async def test_a_history_that_was_made_anew_has_later_epochs(new_sqlite_url: Callable[[], str]) -> None:
    """Nodes and consumers have seen the epochs of the earlier history."""
    now_s, epochs = 1_800_000_000.0, []
    for url in (new_sqlite_url(), new_sqlite_url()):
        async with open_history(url, clock=partial(float, now_s)) as history:
            for ticket in (1, 2, 3):
                leader = await history.lead(ORDERS, "trigger", ticket, await history.who_leads(ORDERS))
                epochs.append(leader.epoch)
        now_s += 60
    assert epochs == sorted({*epochs})
    assert len(epochs) == 6

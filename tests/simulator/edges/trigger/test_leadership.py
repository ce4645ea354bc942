"""Which trigger delivers from a queue: the leader as long as it reports, and the next trigger after the leader has been
silent for a lease.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from mqproto.base.errors import UsageError
from mqproto.simulator.base.log import node_log
from mqproto.simulator.edges.history.history import DocumentHistory, FencedError, open_history
from mqproto.simulator.edges.trigger.leadership import Leadership, alone, is_free
from tests.simulator.running import Log

SCOPE = "trigger/orders"
LEASE_S = 10.0
opened = partial(open_history, clock=lambda: 0.0)
"""Open a history whose epochs begin at 1."""


class Standing:
    """A trigger that wants to lead."""

    def __init__(self, history: DocumentHistory, name: str, *gone: str) -> None:
        self.leadership = Leadership(history, SCOPE, name, LEASE_S, lambda other: other in gone)
        self.log = Log()
        self.stands_by = trio.Event()

    async def lead(self) -> int:
        """Return the trigger's epoch, once it leads."""
        await self.leadership.begin(node_log(self.log, "desk"), self.stands_by.set)
        return self.leadership.epoch


async def test_a_leader_that_beats_is_left_alone_and_one_that_does_not_is_followed(
    idle_clock: trio.testing.MockClock, new_sqlite_url: Callable[[], str]
) -> None:
    url = new_sqlite_url()
    async with opened(url) as ours, opened(url) as theirs:
        first, second = Standing(ours, "first"), Standing(theirs, "second")
        assert await first.lead() == 1
        epochs = []

        async def follow() -> None:
            epochs.append(await second.lead())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            with trio.move_on_after(3 * LEASE_S):
                await first.leadership.keep()
            assert epochs == []
            assert second.stands_by.is_set()
            quiet_s = trio.current_time()
        assert epochs == [2]
        assert trio.current_time() - quiet_s >= LEASE_S / 2
        [line] = second.log.lines("standby")
        assert (line["leader"], line["epoch"]) == ("first", 1)
        with pytest.raises(FencedError):
            await first.leadership.keep()
        with pytest.raises(FencedError):
            await first.leadership.write(b"late")
        first.leadership = Leadership(ours, SCOPE, "first", LEASE_S, lambda other: other == "second")
        assert await first.lead() == 3


async def test_who_is_gone_for_certain_or_has_resigned_is_not_waited_for(
    history_url: str, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = float("inf")  # No time passes at all.
    async with opened(history_url) as history:
        assert await Standing(history, "killed").lead() == 1
        assert await Standing(history, "killed").lead() == 2, "its next life"
        second = Standing(history, "second", "killed")
        assert await second.lead() == 3
        await second.leadership.write(b"held")
        await second.leadership.end()
        third = Standing(history, "third")
        assert (await third.lead(), third.leadership.note) == (4, b"held")
        await second.leadership.end()
        assert (await history.who_leads(SCOPE)).name == "third"


async def test_a_process_that_was_stopped_asks_before_it_calls_anybody(
    history_url: str, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = float("inf")
    async with opened(history_url) as history:
        first = Standing(history, "first")
        await first.lead()
        await Standing(history, "second", "first").lead()
        await first.leadership.confirm()  # Within its lease nobody can have taken over who goes by that.
        autojump_clock.jump(LEASE_S)
        with pytest.raises(FencedError):
            await first.leadership.confirm()


async def test_without_a_history_one_leads_for_ever(autojump_clock: trio.testing.MockClock) -> None:
    leadership = Leadership()
    await leadership.begin(node_log(Log(), "desk"), lambda: None)
    with trio.move_on_after(10 * LEASE_S) as while_it_leads:
        await leadership.keep()
    await leadership.confirm(at_once=True)
    await leadership.end()
    assert while_it_leads.cancelled_caught
    assert leadership.epoch == 0


def test_of_one_name_there_is_one_process_and_others_see_whether_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.simulator.edges.trigger.leadership.LOCK_S", 0.01)
    path = tmp_path / "desk-trigger.lock"
    assert not is_free(path), "nobody knows"
    with alone(path):
        assert not is_free(path)
        with (
            pytest.raises(UsageError, match=r"^desk-trigger runs already: give this one another --name"),
            alone(path),
        ):
            pass
    assert is_free(path)
    with alone(path):
        pass

"""The document history on SQLite and PostgreSQL: against a model, and with many tasks, many processes, and processes
that are killed.

This is the history that step 2 of "Summary of Duplicate Detection Process for JMS Triggers" consults, including its
notes. In "Transactions in OSB. Reliable Messaging.", all servers share it to eliminate duplicates.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings, strategies as st
from sqlalchemy import Engine, event

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.edge.exactlyonce import ENTRY_AFTER, Attempt, Entry, Verdict, judge, retrieval_fails
from mqproto.simulator.edges.history.documents import GIVE_WAY, Answer, Call, Documents
from mqproto.simulator.edges.history.errors import HistoryError
from mqproto.simulator.edges.history.history import (
    KEY_LIMIT,
    NAME_LIMIT,
    OUTCOME_LIMIT_BYTES,
    DocumentHistory,
    Record,
    open_history,
)
from tests.simulator.forks import Fork, Forks

ORDERS = "trigger/orders"
ABSENT = Record(Entry.ABSENT, "", 0, b"")
KEEP_S = 100.0

numbers = itertools.count(1)
kinds = st.sampled_from(["trigger", "gateway"])
keys = st.sampled_from(["1", "2", "Ünïcode ✓ '; --"])
owners = st.sampled_from(["a", "b"])
attempts = st.sampled_from(Attempt)


@dataclass
class Model:
    """A model of the history's answers, with documents in memory."""

    now_s: float = 1_800_000_000.0
    records: dict[tuple[str, str], tuple[Record, float, int]] = field(default_factory=dict)
    """Each record, with the time when it changed and the number of the call that began it."""
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def expire(self) -> None:
        for (scope, key), (record, changed_s, number) in sorted(self.records.items()):
            if record.entry is Entry.STARTED or changed_s > self.now_s - KEEP_S:
                continue
            # Gateways come before triggers: what was delivered under an id is there still, and keeps it.
            delivered, delivered_s, _ = self.records.get(
                (scope.replace("gateway/", "trigger/"), key), (ABSENT, 0, 0)
            )
            last_s = self.now_s if delivered.entry is Entry.STARTED else delivered_s
            if last_s > self.now_s - KEEP_S:
                self.records[scope, key] = (record, last_s, number)
            else:
                del self.records[scope, key]

    def look(self, scope: str, key: str) -> Record:
        return self.records.get((scope, key), (ABSENT, 0, 0))[0]

    def begin(self, scope: str, key: str, owner: str, begun: dict[tuple[str, str], int]) -> Record:
        record = self.look(scope, key)
        if record.entry is Entry.ABSENT:
            number = begun[scope, key] = next(self.numbers)
            started = Record(Entry.STARTED, owner, record.attempts + 1, record.outcome)
            self.records[scope, key] = (started, self.now_s, number)
        return record

    def finish(
        self, scope: str, key: str, attempt: Attempt, outcome: bytes, begun: dict[tuple[str, str], int]
    ) -> None:
        entry, number = ENTRY_AFTER[attempt], begun.pop((scope, key), 0)
        old, _, holder = self.records.get((scope, key), (Record(Entry.ABSENT, "", 1, b""), 0, 0))
        if (scope, key) in self.records and old.entry not in GIVE_WAY[entry]:
            return
        if entry is Entry.ABSENT:
            if number in (0, holder) or (scope, key) not in self.records:
                self.records[scope, key] = (Record(entry, "", old.attempts, outcome), self.now_s, 0)
        else:
            self.records[scope, key] = (Record(entry, old.owner, old.attempts, outcome), self.now_s, 0)

    def reopen(self, scope: str, key: str) -> None:
        old, _, _ = self.records.get((scope, key), (ABSENT, 0, 0))
        if (scope, key) in self.records and old.entry is not Entry.COMPLETED:
            self.records[scope, key] = (ABSENT, self.now_s, 0)


# Each example has scopes of its own, so that one database serves them all. They take a tenth of a second each.
@pytest.mark.long
@settings(
    max_examples=max(20, settings().max_examples // 5),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
async def test_over_any_calls_of_two_gateways_and_restarts_it_says_what_a_model_says(
    history_url: str, data: st.DataObject
) -> None:
    model, number = Model(), next(numbers)
    async with AsyncExitStack() as open_ones:

        async def opened() -> DocumentHistory:
            history = open_history(history_url, keep_s=KEEP_S, clock=lambda: 0, passed_s=lambda: model.now_s)
            return await open_ones.enter_async_context(history)

        gateways = [await opened(), await opened()]
        begun: list[dict[tuple[str, str], int]] = [{}, {}]
        for _ in range(data.draw(st.integers(1, 20), "steps")):
            which = data.draw(st.integers(0, 1), "gateway")
            gateway, scope = gateways[which], f"{data.draw(kinds)}/{number}"
            key, owner = data.draw(keys), data.draw(owners)
            model.expire()
            match data.draw(
                st.sampled_from(["begin", "begin", "finish", "reopen", "started", "pass", "open"])
            ):
                case "begin":
                    expected = model.begin(scope, key, owner, begun[which])
                    assert await gateway.begin(scope, key, owner) == expected
                case "finish":
                    attempt, outcome = data.draw(attempts), data.draw(st.binary(max_size=9))
                    model.finish(scope, key, attempt, outcome, begun[which])
                    await gateway.finish(scope, key, attempt, outcome)
                case "reopen":
                    model.reopen(scope, key)
                    await gateway.reopen(scope, key)
                case "started":
                    assert await gateway.started_by(scope, owner) == sorted(
                        key
                        for (its_scope, key), (record, _, _) in model.records.items()
                        if its_scope == scope and (record.entry, record.owner) == (Entry.STARTED, owner)
                    )
                case "pass":
                    model.now_s += data.draw(st.sampled_from([10.0, KEEP_S / 2, KEEP_S]))
                case "open":
                    gateways[which], begun[which] = await opened(), {}
            model.expire()
            assert await gateway.look(scope, key) == model.look(scope, key)
        # What has expired may be there for a while.
        documents = Documents(history_url, KEEP_S, lambda: 0, lambda: model.now_s)
        found = [one for kind in ("trigger", "gateway") for one in documents.everything(f"{kind}/{number}")]
        documents.close()
        live = {(scope, key): record for scope, key, record in found if (scope, key) in model.records}
        assert live == {place: record for place, (record, _, _) in model.records.items()}


@pytest.mark.parametrize("has_resolver", [False, True])
@pytest.mark.parametrize(
    ("attempt", "verdict", "is_reported"),
    [
        (Attempt.SUCCEEDED, Verdict.DUPLICATE, False),
        (Attempt.FAILED_FOR_NOW, Verdict.NEW, False),
        (Attempt.FAILED_FOR_GOOD, Verdict.REJECTED, True),
    ],
)
async def test_notes_what_a_message_is_the_next_time_with_document_history(
    history_url: str, attempt: Attempt, verdict: Verdict, is_reported: bool, has_resolver: bool
) -> None:
    """Step 2: without an entry, a message is new. Later, this trigger and any that starts after it judge the message by
    how its processing ended.
    """
    async with open_history(history_url) as history:
        record = await history.begin(ORDERS, "id", "trigger")
        assert judge(1, record.entry, has_resolver=has_resolver) is Verdict.NEW
        await history.finish(ORDERS, "id", attempt, b"reason")
    async with open_history(history_url) as history:
        record = await history.begin(ORDERS, "id", "trigger")
    found = judge(2, record.entry, has_resolver=has_resolver)
    assert found is verdict
    assert retrieval_fails(2, 5, found) is is_reported
    assert record.attempts == 1
    assert record.outcome == b"reason"
    assert record.is_in_doubt is (verdict is Verdict.NEW), "new, and nobody knows"


async def test_step_2_what_started_and_did_not_complete_is_in_doubt(history_url: str) -> None:
    """Step 2: the processing status indicates that processing started but did not complete."""
    async with open_history(history_url) as history:
        await history.begin(ORDERS, "id", "trigger")
    async with open_history(history_url) as history:
        record = await history.begin(ORDERS, "id", "another")
        assert record == Record(Entry.STARTED, "trigger", 1, b"")
        assert judge(2, record.entry, has_resolver=False) is Verdict.IN_DOUBT
        assert await history.started_by(ORDERS, "trigger") == ["id"]


async def test_eliminating_duplicates_two_gateways_share_what_they_have_seen(history_url: str) -> None:
    """From "Eliminating Duplicates on OSB": one instance of a message arrives at one server, the second at another."""
    async with open_history(history_url) as first, open_history(history_url) as second:
        assert (await first.begin("gateway/orders", "invoice 17", "a")).entry is Entry.ABSENT
        await first.finish("gateway/orders", "invoice 17", Attempt.SUCCEEDED, b"its message id")
        found = await second.begin("gateway/orders", "invoice 17", "b")
        assert found == Record(Entry.COMPLETED, "a", 1, b"its message id")
        assert await second.begin("gateway/invoices", "invoice 17", "b") == ABSENT


async def test_of_many_that_begin_at_once_one_sees_that_it_is_absent(history_url: str) -> None:
    seen = Counter[Entry]()
    async with open_history(history_url) as first, open_history(history_url) as second:

        async def begin(history: DocumentHistory, owner: str) -> None:
            seen[(await history.begin(ORDERS, "id", owner)).entry] += 1

        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(begin, (first, second)[number % 2], str(number))
    assert seen == {Entry.ABSENT: 1, Entry.STARTED: 29}


async def test_what_all_ask_at_one_time_is_one_transaction(history_url: str) -> None:
    commits = 0

    def count(_: object) -> None:
        nonlocal commits
        commits += 1

    async with open_history(history_url) as history:
        event.listen(Engine, "commit", count)
        try:
            async with trio.open_nursery() as nursery:
                for number in range(1_000):
                    nursery.start_soon(history.begin, ORDERS, str(number), "a")
        finally:
            event.remove(Engine, "commit", count)
        assert len(await history.started_by(ORDERS, "a")) == 1_000
    assert commits <= 5  # Some 500 each, and what came before.


HISTORIES: Final = Forks("mqproto.simulator.edges.history.history")
BEGIN_ALL = """
import sys, trio
from mqproto.simulator.edges.history.history import open_history
async def main(url, owner):
    async with open_history(url) as history:
        async def begin(key):
            print(key, owner, (await history.begin("trigger/orders", key, owner)).entry, flush=True)
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(begin, str(number))
trio.run(main, *sys.argv[1:])
"""


async def test_of_several_processes_one_begins_each_document_and_a_new_database_is_made_once(
    history_url: str,
) -> None:
    said = dict[str, str]()

    async def begin(process: Fork, owner: str) -> None:
        said[owner] = (await process.stdout_until(None)).decode()
        assert await process.wait() == 0

    processes = {owner: await HISTORIES.start(BEGIN_ALL, history_url, owner) for owner in "abcd"}
    for process in processes.values():
        assert await process.stdout_until(1) == b"ready\n"
    async with trio.open_nursery() as nursery:
        for owner, process in processes.items():
            await process.stdin.send_all(b"\n")
            nursery.start_soon(begin, process, owner)
    began = Counter(
        line.split()[0] for text in said.values() for line in text.splitlines() if line.endswith("absent")
    )
    assert began == dict.fromkeys(map(str, range(300)), 1)


WORK = """
import itertools, sys, trio
from mqproto.edge.exactlyonce import Attempt
from mqproto.simulator.edges.history.history import open_history
async def main(url):
    async with open_history(url) as history:
        async def work(number):
            for turn in itertools.count():
                key = f"{number}-{turn}"
                await history.begin("trigger/orders", key, "trigger")
                print("started", key, flush=True)
                await history.finish("trigger/orders", key, Attempt.SUCCEEDED, key.encode())
                print("completed", key, flush=True)
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(work, number)
trio.run(main, sys.argv[1])
"""


async def killed_at_work(url: str, line_count: int) -> dict[str, str]:
    """Kill a process after it has printed `line_count` lines; return the last line that it printed about each key."""
    process = await HISTORIES.start(WORK, url)
    said = await process.stdout_until(line_count)
    process.kill()
    lines = (said + await process.stdout_until(None)).decode().splitlines(keepends=True)
    await process.wait()
    told = {}
    for line in lines:
        if line.endswith("\n"):
            entry, key = line.split()
            told[key] = entry
    return told


@pytest.mark.parametrize("line_count", [1, 333])
async def test_what_a_killed_process_was_told_is_there_and_what_it_left_open_is_found(
    history_url: str, line_count: int
) -> None:
    told = await killed_at_work(history_url, line_count)
    async with open_history(history_url) as history:
        left = await history.started_by(ORDERS, "trigger")
        for key, entry in told.items():
            record = await history.look(ORDERS, key)
            if entry == "completed":
                assert record == Record(Entry.COMPLETED, "trigger", 1, key.encode())
            else:
                assert record.entry in (Entry.STARTED, Entry.COMPLETED)
                assert (record.entry is Entry.STARTED) is (key in left)
        assert len(left) <= 20


async def test_entries_expire_by_age_and_what_was_started_does_not(history_url: str) -> None:
    now_s = 1_800_000_000.0
    async with open_history(history_url, keep_s=KEEP_S, clock=lambda: 0, passed_s=lambda: now_s) as history:
        for attempt in Attempt:
            await history.begin(ORDERS, attempt.name, "a")
            await history.finish(ORDERS, attempt.name, attempt)
        await history.begin(ORDERS, "started", "a")
        now_s += KEEP_S - 1
        for attempt in Attempt:
            record = await history.look(ORDERS, attempt.name)
            assert (record.entry, record.attempts) == (ENTRY_AFTER[attempt], 1)
        now_s += 11
        for attempt in Attempt:
            assert await history.begin(ORDERS, attempt.name, "b") == ABSENT
        assert await history.begin(ORDERS, "started", "b") == Record(Entry.STARTED, "a", 1, b"")


async def test_what_expires_goes_a_part_at_a_time(history_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqproto.simulator.edges.history.forgetting.FORGET_ROWS", 10)
    now_s = 1_800_000_000.0
    async with open_history(history_url, keep_s=KEEP_S, clock=lambda: 0, passed_s=lambda: now_s) as history:
        for number in range(25):
            await history.finish(ORDERS, str(number), Attempt.SUCCEEDED)
            now_s += 0.01
        now_s += 2 * KEEP_S
        left = []
        for number in (0, 24, 24, 24):
            left.append((await history.look(ORDERS, str(number))).entry)
        assert left == [Entry.ABSENT, Entry.COMPLETED, Entry.ABSENT, Entry.ABSENT]


async def test_keys_of_the_greatest_length_are_kept_in_whatever_script(history_url: str) -> None:
    # Four bytes each, and nothing in them that PostgreSQL could compress.
    dice, script = random.Random(7), range(0x10000, 0x110000)
    scope, key, owner = (
        "".join(map(chr, dice.choices(script, k=limit))) for limit in (NAME_LIMIT, KEY_LIMIT, NAME_LIMIT)
    )
    outcome = bytes(range(256)) * (OUTCOME_LIMIT_BYTES // 256)
    async with open_history(history_url) as history:
        assert await history.begin(scope, key, owner) == ABSENT
        assert await history.started_by(scope, owner) == [key]
        await history.finish(scope, key, Attempt.SUCCEEDED, outcome)
        assert await history.look(scope, key) == Record(Entry.COMPLETED, owner, 1, outcome)
        assert await history.look(scope, key[:-1]) == ABSENT


@pytest.mark.parametrize(
    ("scope", "key", "owner", "message"),
    [
        (ORDERS, "k" * 513, "a", "a key of 513 characters: 1 to 512 can be kept"),
        (ORDERS, "", "a", "a key of 0 characters: 1 to 512 can be kept"),
        ("s" * 161, "k", "a", "a scope of 161 characters: 1 to 160 can be kept"),
        (ORDERS, "k", "o" * 161, "an owner of 161 characters: 1 to 160 can be kept"),
        (ORDERS, "k\0", "a", r"a key 'k\x00': it has a character that is none, and cannot be kept"),
        (ORDERS, "\udc80", "a", r"a key '\udc80': it has a character that is none, and cannot be kept"),
    ],
)
async def test_what_cannot_be_kept_is_refused(
    new_sqlite_url: Callable[[], str], scope: str, key: str, owner: str, message: str
) -> None:
    async with open_history(new_sqlite_url()) as history:
        with pytest.raises(UsageError) as refused:
            await history.begin(scope, key, owner)
        assert str(refused.value) == message


async def test_an_outcome_of_any_length_is_not_kept(new_sqlite_url: Callable[[], str]) -> None:
    async with open_history(new_sqlite_url()) as history:
        with pytest.raises(UsageError, match="an outcome of 65,537 bytes: up to 65,536 can be kept"):
            await history.finish(ORDERS, "k", Attempt.SUCCEEDED, bytes(OUTCOME_LIMIT_BYTES + 1))


async def test_a_closed_history_says_so(new_sqlite_url: Callable[[], str]) -> None:
    async with open_history(new_sqlite_url()) as history:
        pass
    with pytest.raises(UsageError, match="the document history is closed"):
        await history.look(ORDERS, "k")


async def test_what_the_caller_raises_leaves_as_itself(new_sqlite_url: Callable[[], str]) -> None:
    with pytest.raises(KeyError):
        async with open_history(new_sqlite_url()):
            raise KeyError


async def test_who_began_and_did_not_hear_of_it_begins_once_more_and_it_is_the_same(
    history_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Documents, "carry_out_at_once", lambda self, calls: None)
    carry_out = Documents.carry_out
    async with open_history(history_url) as history, open_history(history_url) as other:
        with monkeypatch.context() as patched:
            patched.setattr(
                Documents,
                "carry_out",
                lambda self, calls: (carry_out(self, calls), [HistoryError("the line is dead")] * len(calls))[
                    1
                ],
            )
            with pytest.raises(HistoryError, match="the line is dead"):
                await history.begin(ORDERS, "id", "a")
        assert (await other.begin(ORDERS, "id", "a")).entry is Entry.STARTED
        assert await history.begin(ORDERS, "id", "a") == ABSENT
        assert (await history.begin(ORDERS, "id", "a")).entry is Entry.STARTED


async def test_who_gave_up_and_did_not_hear_of_it_gives_up_nothing_that_another_has_begun_since(
    history_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Documents, "carry_out_at_once", lambda self, calls: None)
    carry_out = Documents.carry_out
    async with open_history(history_url) as history, open_history(history_url) as other:
        await history.begin(ORDERS, "id", "a")
        with monkeypatch.context() as patched:
            patched.setattr(
                Documents,
                "carry_out",
                lambda self, calls: (carry_out(self, calls), [HistoryError("the line is dead")] * len(calls))[
                    1
                ],
            )
            with pytest.raises(HistoryError, match="the line is dead"):
                await history.finish(ORDERS, "id", Attempt.FAILED_FOR_NOW)
        assert await other.begin(ORDERS, "id", "b") == Record(Entry.ABSENT, "", 1, b"")
        await history.finish(ORDERS, "id", Attempt.FAILED_FOR_NOW)
        assert await other.look(ORDERS, "id") == Record(Entry.STARTED, "b", 2, b"")


async def test_who_is_patient_shares_the_transaction_of_the_next_one(
    history_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions: list[list[str]] = []
    carry_out = Documents._transaction

    def noted(self: Documents, calls: Sequence[Call], **options: bool) -> list[Answer]:
        transactions.append([type(call).__name__ for call in calls])
        return carry_out(self, calls, **options)

    monkeypatch.setattr(Documents, "_transaction", noted)
    async with open_history(history_url) as history:
        await history.begin(ORDERS, "id", "a")
        async with trio.open_nursery() as nursery:
            finish = partial(history.finish, ORDERS, "id", Attempt.SUCCEEDED, b"", patient=True)
            with monkeypatch.context() as patched:
                patched.setattr("mqproto.simulator.edges.history.history.COMPANY_S", 1_000.0)
                nursery.start_soon(finish)
                await trio.testing.wait_all_tasks_blocked()
            # Whoever asks after it hears how it ended.
            assert (await history.look(ORDERS, "id")).entry is Entry.COMPLETED
        # Without company it is not kept waiting for long.
        await history.finish(ORDERS, "other", Attempt.SUCCEEDED, patient=True)
    assert transactions == [["Begin"], ["Finish", "LookUp"], ["Finish"]]


async def test_a_call_that_is_given_up_leaves_the_history_idle(
    history_url: str, mock_clock: trio.testing.MockClock
) -> None:
    """An earlier version looped forever: it kept waking for a canceled call whose time had come."""
    async with open_history(history_url) as history:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(history.finish, ORDERS, "id", Attempt.SUCCEEDED, patient=True))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        mock_clock.jump(1)
        runnable = []
        for _ in range(40):
            await trio.lowlevel.checkpoint()
            runnable.append(trio.lowlevel.current_statistics().tasks_runnable)
        assert not any(runnable[10:])
        assert await history.look(ORDERS, "id") == ABSENT


async def test_who_is_cancelled_before_its_turn_has_begun_nothing(history_url: str) -> None:
    async with open_history(history_url) as history:
        with trio.CancelScope() as scope:
            scope.cancel()
            await history.begin(ORDERS, "id", "a")
        assert scope.cancelled_caught
        assert await history.look(ORDERS, "id") == ABSENT


async def test_who_is_cancelled_in_its_turn_begins_once_more_and_it_is_the_same(
    history_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Documents, "carry_out_at_once", lambda self, calls: None)
    carry_out, go_on = Documents.carry_out, threading.Event()

    def carry_out_later(self: Documents, calls: Sequence[Call]) -> list[Answer | MqprotoError]:
        go_on.wait()
        return carry_out(self, calls)

    monkeypatch.setattr(Documents, "carry_out", carry_out_later)
    async with open_history(history_url) as history, open_history(history_url) as other:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(history.begin, ORDERS, "id", "a")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        go_on.set()
        assert await history.look(ORDERS, "id") == Record(Entry.STARTED, "a", 1, b"")
        assert (await other.begin(ORDERS, "id", "a")).entry is Entry.STARTED
        assert await history.begin(ORDERS, "id", "a") == ABSENT

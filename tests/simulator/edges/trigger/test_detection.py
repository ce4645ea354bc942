"""When a consumer is called twice.

The three steps are tested with a document history, on SQLite and PostgreSQL, and without one. "Duplicate detection"
means the document "Summary of Duplicate Detection Process for JMS Triggers".
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from mqproto.edge.exactlyonce import Attempt, Entry, Verdict
from mqproto.simulator.edges.history.history import DocumentHistory, HistoryError, open_history
from mqproto.simulator.edges.trigger.callee import Call
from mqproto.simulator.edges.trigger.detection import REMEMBERED_LIMIT, Detection

NEW, DUPLICATE, IN_DOUBT, REJECTED = Verdict.NEW, Verdict.DUPLICATE, Verdict.IN_DOUBT, Verdict.REJECTED
SCOPE = "trigger/orders"


def call(delivery_count: int = 1, message: str = "GUID\\1", origin: str = "") -> Call:
    return Call(message=message, key=message, delivery_count=delivery_count, body=b"", origin=origin)


@pytest.fixture
async def history(history_url: str) -> AsyncIterator[DocumentHistory]:
    async with open_history(history_url) as history:
        yield history


@pytest.mark.parametrize(
    ("attempt", "verdict"),
    [
        (None, IN_DOUBT),
        (Attempt.SUCCEEDED, DUPLICATE),
        (Attempt.FAILED_FOR_NOW, NEW),
        (Attempt.FAILED_FOR_GOOD, REJECTED),
    ],
)
async def test_what_a_message_is_follows_from_what_was_recorded_of_it(
    history: DocumentHistory, attempt: Attempt | None, verdict: Verdict
) -> None:
    """Duplicate detection, step 2 and the first two notes: they also hold after the trigger has been started again."""
    first = Detection("orders", "trigger", history)
    assert (await first.judge(call())).verdict is NEW
    if attempt is not None:
        await first.record(call().key, attempt, "E1: no such account")
    found = await Detection("orders", "trigger", history).judge(call(2))
    assert found.verdict is verdict
    assert (found.reason == "") == (verdict is NEW)
    if verdict is REJECTED:
        assert found.reason == "E1: no such account"


@pytest.mark.parametrize("attempt", [Attempt.SUCCEEDED, Attempt.FAILED_FOR_GOOD])
async def test_an_id_that_its_gateway_has_forgotten_names_a_new_message(
    history: DocumentHistory, attempt: Attempt
) -> None:
    """The trigger's history has kept the id longer than the gateway's node."""
    detection = Detection("orders", "trigger", history)
    keep_s = 1_000.0

    def origin(now_s: float) -> str:
        return f"node.1 {now_s:.3f} {now_s - keep_s:.3f}"

    async def judged(origin: str) -> Verdict | None:
        return (await detection.judge(call(origin=origin))).verdict

    first, second = origin(1.0), origin(1.0 + keep_s)
    assert await judged(first) is NEW
    assert await judged(first) is not NEW
    await detection.record(call().key, attempt, "E1: no such account")
    for now_s in (1.0, 500.0, 980.0):
        assert await judged(origin(now_s)) is not NEW  # Whoever has doubled it.
    assert await judged(second) is NEW
    await detection.record(call().key, Attempt.SUCCEEDED)
    for each in (first, second, ""):
        assert await judged(each) is DUPLICATE


async def test_a_message_is_started_on_disk_before_anybody_is_called(history: DocumentHistory) -> None:
    await Detection("orders", "trigger-7", history).judge(call())
    record = await history.look(SCOPE, call().key)
    assert (record.entry, record.owner) == (Entry.STARTED, "trigger-7")


async def test_of_many_who_judge_one_message_at_a_time_one_finds_it_new(history: DocumentHistory) -> None:
    verdicts: list[Verdict | None] = []

    async def judge(number: int) -> None:
        verdicts.append((await Detection("orders", f"trigger-{number}", history).judge(call())).verdict)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(judge, number)
    assert sorted(map(str, verdicts)) == sorted([NEW, *[IN_DOUBT] * 19])


async def test_an_attempt_has_the_delivery_count_or_the_number_that_history_and_memory_know(
    history: DocumentHistory,
) -> None:
    """Duplicate detection, notes: the maximum applies to the delivery count."""
    detection = Detection("orders", "trigger", history)
    for delivery_count, attempt in ((1, 1), (2, 2), (-1, 3), (9, 9), (-1, 5)):
        assert (await detection.judge(call(delivery_count))).attempt == attempt
        await detection.record(call().key, Attempt.FAILED_FOR_NOW)
    later = Detection("orders", "trigger", history)
    assert (await later.judge(call(-1))).attempt == 6, "by the history alone"


async def test_what_was_handed_out_ahead_of_its_turn_and_came_back_is_attempted_for_the_first_time(
    history: DocumentHistory,
) -> None:
    """Otherwise a trigger that is killed would use up attempts of messages for which no consumer was called."""
    detection = Detection("orders", "trigger", history)
    assert (await detection.judge(call(3))).attempt == 1
    await detection.record(call().key, Attempt.FAILED_FOR_NOW)
    assert (await detection.judge(call(4))).attempt == 4


async def test_without_history_attempts_are_remembered_while_the_message_is_in_the_queue() -> None:
    detection = Detection("orders", "trigger", enabled=False)
    assert [(await detection.judge(call(-1))).attempt for _ in range(3)] == [1, 2, 3]
    detection.settled(call().message)
    assert (await detection.judge(call(-1))).attempt == 1
    for number in range(REMEMBERED_LIMIT + 1):
        await detection.judge(call(-1, message=str(number)))
    assert (await detection.judge(call(-1))).attempt == 1, "memory is bounded"


async def test_who_looks_for_no_duplicates_finds_every_delivery_new() -> None:
    detection = Detection("orders", "trigger", enabled=False)
    assert [(await detection.judge(call(count))).verdict for count in (1, 2, -1)] == [NEW] * 3


async def test_what_the_history_could_not_be_told_it_hears_before_anything_else(
    history: DocumentHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Duplicate detection, notes: a processed message does not become new because the database was away."""
    detection = Detection("orders", "trigger", history)
    await detection.judge(call())

    async def away(*arguments: object, **options: object) -> None:
        raise HistoryError("the database is away: start it")

    with monkeypatch.context() as broken:
        broken.setattr(history, "finish", away)
        await detection.record(call().key, Attempt.SUCCEEDED)
        assert not await detection.is_back()
        with pytest.raises(HistoryError):
            await detection.judge(call(2))
    assert await detection.is_back()
    assert (await history.look(SCOPE, call().key)).entry is Entry.COMPLETED
    assert (await detection.judge(call(3))).verdict is DUPLICATE


async def test_two_messages_of_one_key_are_not_in_hand_at_one_time() -> None:
    detection = Detection("orders", "trigger")
    order: list[str] = []

    async def hold(name: str) -> None:
        async with detection.alone("order-17"):
            order.append(f"{name} begins")
            await trio.testing.wait_all_tasks_blocked()
            order.append(f"{name} ends")

    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(hold, name)
    assert [line.split()[1] for line in order] == ["begins", "ends"] * 3

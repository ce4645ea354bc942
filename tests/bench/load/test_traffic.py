from __future__ import annotations

from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from mqproto.simulator.client import MessageId
from mqproto.simulator.rig.load.workload import orders
from mqproto.simulator.rig.proof import Committed, Sent, delays_ms, percentile
from mqproto.wire import Guid
from tests.bench.figures import BenchError
from tests.bench.load.traffic import (
    PACED_OUTSTANDING,
    Bodies,
    Traffic,
    alike,
    mixed,
    send_when_due,
    share_of,
)


@given(st.integers(0, 10_000), st.integers(1, 1_000))
def test_shares_are_as_equal_as_can_be_and_all_is_shared_out(count: int, places: int) -> None:
    shares = [share_of(count, places, place) for place in range(places)]
    assert sum(shares) == count
    assert max(shares) - min(shares) <= 1


class Message:
    def __init__(self, identifier: MessageId, label: str, body: bytes) -> None:
        self.id = identifier
        self.label = label
        self.body = body


class Node:
    """A node that takes messages, and hands them out immediately or spoils them."""

    def __init__(self, spoiled: str = "") -> None:
        self._spoiled = spoiled
        self._queues: dict[str, list[Message]] = {}
        self._ordinal = 0

    async def send_together(self, messages: list[tuple[str, Any]]) -> list[MessageId]:
        await trio.lowlevel.checkpoint()
        sent = []
        for path, draft in messages:
            self._ordinal += 1
            sent.append(MessageId(Guid(bytes(16)), self._ordinal))
            body = b"else" if self._spoiled == "altered" and self._ordinal == 3 else draft.body
            if self._spoiled != "lost" or self._ordinal != 3:
                queue = self._queues.setdefault(path.split("\\")[1], [])
                # A page that passes over a message that did not fit hands out the next one before it.
                place = -1 if self._spoiled == "passed over" and self._ordinal == 4 else len(queue)
                queue.insert(place, Message(sent[-1], draft.label, body))
                if self._spoiled == "twice" and self._ordinal == 3:
                    queue.append(queue[-1])
        return sent

    async def send_many(self, path: str, drafts: list[Any]) -> list[MessageId]:
        return await self.send_together([(path, draft) for draft in drafts])

    def transaction(self, queue: str, limit: int, timeout_s: float) -> Node._Transaction:
        return Node._Transaction(self._queues.setdefault(queue, []), limit, timeout_s)

    class _Transaction:
        def __init__(self, queue: list[Message], limit: int, timeout_s: float) -> None:
            self._queue = queue
            self._limit = limit
            self._timeout_s = timeout_s

        async def __aenter__(self) -> list[Message]:
            if not self._queue:
                await trio.sleep(self._timeout_s)
            taken, self._queue[:] = self._queue[: self._limit], self._queue[self._limit :]
            return taken

        async def __aexit__(self, *error: object) -> None:
            await trio.lowlevel.checkpoint()


def traffic_of(node: Node, queues: int, bodies: Bodies) -> Traffic:
    client = cast(Any, node)
    return Traffic(client, client, "node", [f"orders-{number}" for number in range(queues)], bodies)


@pytest.mark.parametrize("queues", [1, 3, 40])
async def test_every_message_to_each_queue_comes_and_is_checked(
    queues: int, autojump_clock: trio.testing.MockClock
) -> None:
    traffic = traffic_of(Node(), queues, alike(b"body"))
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(traffic.send_fast, 501)
            nursery.start_soon(traffic.receive, 501)
    traffic.check()
    assert traffic.unreceived == 0
    assert len(traffic.delays_ms) == len(traffic.arrivals_s) == 1_002


SPOILED = [
    ("lost", "1 messages lost"),
    ("altered", "1 messages altered"),
    ("twice", "1 messages delivered more than once"),
    ("passed over", "1 messages out of order"),
]


@pytest.mark.parametrize("sort", ["alike", "mixed"])
@pytest.mark.parametrize(("spoiled", "words"), SPOILED)
async def test_a_message_that_is_spoiled_on_its_way_is_found(
    spoiled: str, words: str, sort: str, autojump_clock: trio.testing.MockClock
) -> None:
    traffic = traffic_of(Node(spoiled), 1, alike(b"body") if sort == "alike" else mixed(orders(10)))
    await traffic.send_fast(10)
    with trio.move_on_after(5):
        await traffic.receive(10)
    with pytest.raises(BenchError, match=words):
        traffic.check()


async def test_traffic_of_which_not_all_was_accepted_is_not_in_order(
    autojump_clock: trio.testing.MockClock,
) -> None:
    traffic = traffic_of(Node(), 1, alike(b"body"))
    with trio.move_on_after(2.5):
        await traffic.send_paced(10, per_s=1)
    await traffic.receive(3)
    with pytest.raises(BenchError, match="of 10 messages 3 were sent"):
        traffic.check()


async def test_a_stall_is_in_the_delay_of_all_that_were_due_in_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The delay of each message that was due during a stall includes the stall.

    A test that starts each message's clock only when it is sent would see one slow message instead of many. That
    mistake is called coordinated omission.
    """
    per_s, stalled_from_s, stalled_to_s, count = 100, 1.0, 3.0, 1_000
    start_s = trio.current_time()
    sent: list[Sent] = []
    received: list[Committed] = []
    omitting_ms: list[float] = []

    async def send(due_s: list[float]) -> None:
        called_s = trio.current_time()
        if stalled_from_s <= called_s - start_s < stalled_to_s:
            await trio.sleep_until(start_s + stalled_to_s)
        now_s = trio.current_time()
        for at_s in due_s:
            sent.append(Sent(len(sent), b"", at_s))
            received.append(Committed(len(received), b"", now_s))
            omitting_ms.append(1_000 * (now_s - called_s))

    await send_when_due([start_s + number / per_s for number in range(count)], send)
    delays = delays_ms(sent, received)
    assert len(delays) == count
    held_up = [delay for delay in delays if delay > 1]
    # Of those that were due in the stall the first waited for all of it, the last hardly.
    assert len(held_up) == pytest.approx(per_s * (stalled_to_s - stalled_from_s), abs=2)
    assert max(delays) == pytest.approx(2_000, abs=20)
    assert percentile(delays, 90) == pytest.approx(1_000, abs=20)
    assert percentile(sorted(omitting_ms), 90) < 1, "the time since sending leaves most of the stall out"


async def test_what_is_due_is_sent_though_nothing_before_it_was_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answered = trio.Event()
    asked: list[float] = []

    async def send(due_s: list[float]) -> None:
        asked.extend(due_s)
        await answered.wait()

    due_s = [trio.current_time() + number for number in range(PACED_OUTSTANDING + 5)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_when_due, due_s, send)
        await trio.sleep_until(due_s[-1] + 1)
        assert asked == due_s[:PACED_OUTSTANDING]
        answered.set()
    assert asked == due_s

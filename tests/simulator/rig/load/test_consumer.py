from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from mqproto.simulator.client import Client, InDoubt, MessageId, NodeUnreachable, ReceivedMessage
from mqproto.simulator.rig.load.consumer import BATCH, Consumer
from mqproto.wire import Guid, encode_packet, user_message

SOURCE = Guid(b"s" * 16)


class Queue:
    """A node's queue, whose connection breaks at the commits with the given numbers."""

    def __init__(self, count: int, breaks: dict[int, str], repeats: bool = False) -> None:
        self.numbers = list(range(count))
        self.breaks = breaks
        self.repeats = repeats
        self.commit_count = 0
        self.drained = trio.Event()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Client]:
        if self.breaks.get(-1) == "down":
            del self.breaks[-1]
            raise NodeUnreachable("not running")
        yield self  # type: ignore[misc]

    @asynccontextmanager
    async def transaction(
        self, queue: str, limit: int = 1, timeout_s: float | None = None
    ) -> AsyncIterator[list[ReceivedMessage]]:
        assert (queue, limit) == ("orders", BATCH)
        await trio.lowlevel.checkpoint()
        batch = self.numbers[:limit]
        yield [received(number) for number in batch]
        if not batch:
            self.drained.set()
            await trio.sleep_forever()
        self.commit_count += 1
        fate = self.breaks.pop(self.commit_count, "")
        if fate != "lost":
            # A queue that hands out again what was committed is what a consumer must not hide.
            del self.numbers[: 0 if self.repeats and self.commit_count == 1 else limit]
        if fate:
            self.breaks[-1] = "down"
            raise InDoubt("it may have been carried out, or not")


def received(number: int) -> ReceivedMessage:
    record = user_message(
        source=SOURCE,
        destination_manager=SOURCE,
        destination=16,
        message_id=number,
        sent_time_s=0,
        body=bytes([number % 256]),
    )
    return ReceivedMessage(encode_packet(record))


async def consumed(queue: Queue) -> Consumer:
    consumer = Consumer(queue.connect, "orders")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run)
        await queue.drained.wait()
        nursery.cancel_scope.cancel()
    return consumer


def numbers(consumer: Consumer) -> list[int]:
    found = []
    for message in consumer.received:
        assert isinstance(message.message_id, MessageId)
        found.append(message.message_id.ordinal)
    return found


@pytest.mark.parametrize("last", [1, 3])
@pytest.mark.parametrize("fate", ["lost", "done"])
async def test_a_commit_in_doubt_is_resolved_by_the_message_that_comes_next(
    fate: str, last: int, autojump_clock: trio.testing.MockClock
) -> None:
    count = BATCH * 3
    consumer = await consumed(Queue(count, {last: fate}))
    assert numbers(consumer) == list(range(count))
    assert consumer.in_doubt_count == 1
    assert consumer.committed_in_doubt_count == (fate == "done")


async def test_doubt_upon_doubt_is_resolved_too(autojump_clock: trio.testing.MockClock) -> None:
    queue = Queue(BATCH * 4, {1: "lost", 2: "lost", 3: "done", 4: "done", 5: "lost"})
    consumer = await consumed(queue)
    assert numbers(consumer) == list(range(BATCH * 4))
    assert (consumer.in_doubt_count, consumer.committed_in_doubt_count) == (5, 2)


async def test_what_a_node_delivers_twice_is_not_hidden(autojump_clock: trio.testing.MockClock) -> None:
    consumer = await consumed(Queue(BATCH, {}, repeats=True))
    assert numbers(consumer) == list(range(BATCH)) * 2

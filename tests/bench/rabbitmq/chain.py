"""Messages through brokers of RabbitMQ: a durable queue at each of them, and a shovel from each to the next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import takewhile
from typing import Final

import trio
from pamqp import commands

from simulator.base.program.collector import seldom_collected
from tests.bench.figures import BenchError
from tests.bench.load import stretch
from tests.bench.load.row import THREE
from tests.bench.load.stretch import UNACKNOWLEDGED, Begin
from tests.bench.rabbitmq.brokers import CLASSIC, QUORUM, Broker, brokers_in_a_row
from tests.bench.rabbitmq.connection import Connection, connected
from tests.bench.rabbitmq.protocol import Confirmed, Delivered, Publisher, request

PREFETCHED: Final = commands.Basic.Qos(prefetch_count=UNACKNOWLEDGED)


class Stretch(stretch.Stretch):
    """A stretch of traffic, between two connections; the other arguments are those of any stretch."""

    def __init__(
        self,
        producer: Connection,
        consumer: Connection,
        queue: str,
        body_bytes: int,
        window: int,
        first: int = 0,
    ) -> None:
        super().__init__(body_bytes, window, first)
        self._producer = producer
        self._consumer = consumer
        self._publisher = Publisher(queue, body_bytes, producer.frame_bytes)
        self._unconfirmed: dict[int, None] = {}
        """The tags of messages, in their order. RabbitMQ counts from one what a channel publishes."""

    async def publish(self, numbers: range) -> None:
        """Send the messages with these numbers."""
        self._unconfirmed.update(dict.fromkeys(number + 1 for number in numbers))
        await self._producer.send(
            b"".join(self._publisher.published(self.body(number)) for number in numbers)
        )

    async def hear(self, count: int) -> None:
        """Take the confirmations of so many messages, in whatever order they come.

        Raises:
            BenchError: one of them is none, or is of another message than it should be.
        """
        while self.confirmed < self.first + count:
            confirmed = 0
            for event in await self._producer.receive():
                if not isinstance(event, Confirmed) or event.tag not in self._unconfirmed:
                    raise BenchError(f"RabbitMQ says {event}, and no such message waits for a confirmation")
                confirmed += self._leave(event)
            self.have_confirmed(confirmed)

    def _leave(self, confirmed: Confirmed) -> int:
        """How many messages one confirmation is of."""
        if not confirmed.also_before:
            del self._unconfirmed[confirmed.tag]
            return 1
        tags = list(takewhile(lambda tag: tag <= confirmed.tag, self._unconfirmed))
        for tag in tags:
            del self._unconfirmed[tag]
        return len(tags)

    async def receive(self, count: int) -> None:
        """Take and acknowledge so many messages; the last of what came together acknowledges all before it."""
        while len(self.received) < count:
            found = await self._consumer.receive()
            now_s = trio.current_time()
            for event in found:
                if not isinstance(event, Delivered):
                    raise BenchError(f"RabbitMQ confirms to a consumer: {event}")
                self.came(event.body, now_s)
            await self._consumer.send(request(commands.Basic.Ack(found[-1].tag, multiple=True)))
        # It has no answer to an acknowledgment, but does what it is told in order.
        await self._consumer.ask(PREFETCHED, commands.Basic.QosOk)


class Chain(stretch.Chain):
    """One queue of each broker, of one type.

    Args:
        brokers: by name, in their order.
        queue: CLASSIC or QUORUM.
    """

    def __init__(self, brokers: Mapping[str, Broker], queue: str) -> None:
        first, *_, last = list(brokers.values())
        syncs = (
            f"wal_sync_method {first.syncs}"
            if queue == QUORUM
            else "flushed before a confirmation without a setting for it"
        )
        super().__init__(brokers, f"{syncs}, shovels with on_confirm and {UNACKNOWLEDGED:,} messages")
        self.version = first.version
        self._ends = first.address, last.address
        self._queue = queue

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[Begin]:
        """A connection to the first broker and one to the last; their queues are empty and stay."""
        async with connected(self._ends[0]) as producer, connected(self._ends[1]) as consumer:
            declared = commands.Queue.Declare(
                queue=self._queue, durable=True, arguments={"x-queue-type": self._queue}
            )
            for end in (producer, consumer):
                await end.ask(declared, commands.Queue.DeclareOk)
            await producer.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
            await consumer.ask(PREFETCHED, commands.Basic.QosOk)
            await consumer.ask(commands.Basic.Consume(queue=self._queue), commands.Basic.ConsumeOk)
            yield lambda body_bytes, window, first: Stretch(
                producer, consumer, self._queue, body_bytes, window, first
            )


@asynccontextmanager
async def chains_of(server: str, names: Sequence[str] = THREE) -> AsyncIterator[dict[str, Chain]]:
    """The chains of brokers in a row by the type of their queues, for the block.

    Raises:
        NodeError: a broker does not start.
    """
    with seldom_collected():
        async with brokers_in_a_row(server, names) as brokers:
            yield {queue: Chain(brokers, queue) for queue in (CLASSIC, QUORUM)}

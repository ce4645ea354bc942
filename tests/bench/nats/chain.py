"""Messages through three servers of NATS JetStream: a stream at each of them, a mirror of the one before it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import trio

from simulator.base.program.collector import seldom_collected
from tests.bench.figures import BenchError
from tests.bench.load import stretch
from tests.bench.load.row import THREE
from tests.bench.load.stretch import UNACKNOWLEDGED, Begin
from tests.bench.nats.connection import Connection, connected
from tests.bench.nats.protocol import answer_of, published, subscribed
from tests.bench.nats.servers import Server, servers_in_a_row

SUBJECT: Final = b"orders"
DELIVERIES: Final = b"deliveries"


class Stretch(stretch.Stretch):
    """A stretch of traffic, between two connections; the other arguments are those of any stretch."""

    def __init__(
        self, producer: Connection, consumer: Connection, body_bytes: int, window: int, first: int = 0
    ) -> None:
        super().__init__(body_bytes, window, first)
        self._producer = producer
        self._consumer = consumer

    async def publish(self, numbers: range) -> None:
        """Send the messages with these numbers; each is confirmed by itself."""
        await self._producer.send(
            b"".join(
                published(SUBJECT, self.body(number), b"%b%d" % (self._producer.inbox, number))
                for number in numbers
            )
        )

    async def hear(self, count: int) -> None:
        """Take the confirmations of so many messages.

        Raises:
            BenchError: one of them is none, or is of another message than it should be.
        """
        while self.confirmed < self.first + count:
            found = await self._producer.receive()
            for message in found:
                answer, number = answer_of(message.payload), int(message.subject.rpartition(b".")[2])
                if answer.seq != number + 1 or answer.duplicate:
                    raise BenchError(f"NATS confirms message {number + 1:,} as number {answer.seq:,}")
            self.have_confirmed(len(found))

    async def receive(self, count: int) -> None:
        """Take and acknowledge so many messages; the last of what came together acknowledges all before it."""
        waiting = 0
        while len(self.received) < count or waiting:
            found = await self._consumer.receive()
            now_s = trio.current_time()
            last = b""
            for message in found:
                if message.subject != SUBJECT:
                    waiting -= 1
                    continue
                last = message.reply
                self.came(message.payload, now_s)
            if last:
                waiting += 1
                await self._consumer.send(published(last, b"+ACK", self._consumer.inbox + b"acknowledged"))


class Chain(stretch.Chain):
    """Servers of NATS that run; `chain_of` makes it."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        super().__init__(servers, servers[THREE[0]].flushes)
        self._addresses = {name: server.address for name, server in servers.items()}
        self._runs = 0

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[Begin]:
        """Connections to all servers, which have streams meanwhile."""
        self._runs += 1
        async with AsyncExitStack() as stack:
            ends = [
                await stack.enter_async_context(connected(address, f"{name}{self._runs}"))
                for name, address in self._addresses.items()
            ]
            await self._prepare(ends)
            yield lambda body_bytes, window, first: Stretch(ends[0], ends[-1], body_bytes, window, first)
            await self._clear(ends)

    async def _prepare(self, ends: Sequence[Connection]) -> None:
        """A stream at each server, and a consumer at the last."""
        before = ""
        for name, end in zip(self._addresses, ends, strict=True):
            stream: dict[str, Any] = {"name": name, "storage": "file"}
            if before:
                stream["mirror"] = {"name": before, "external": {"api": f"$JS.{before}.API", "deliver": ""}}
            else:
                stream["subjects"] = [SUBJECT.decode()]
            await end.ask(f"$JS.API.STREAM.CREATE.{name}", stream)
            before = name
        await ends[-1].send(subscribed(DELIVERIES, 2))
        config = {
            "durable_name": "consumer",
            "deliver_subject": DELIVERIES.decode(),
            "ack_policy": "all",
            "max_ack_pending": UNACKNOWLEDGED,
        }
        await ends[-1].ask(
            f"$JS.API.CONSUMER.DURABLE.CREATE.{before}.consumer", {"stream_name": before, "config": config}
        )

    async def _clear(self, ends: Sequence[Connection]) -> None:
        """No streams, so that each stretch finds the disk as the one before it did."""
        for name, end in reversed(list(zip(self._addresses, ends, strict=True))):
            await end.ask(f"$JS.API.STREAM.DELETE.{name}", {})


@asynccontextmanager
async def chain_of(server: str, *, flushed: bool) -> AsyncIterator[Chain]:
    """Three servers in a row, for the block.

    Raises:
        NodeError: one does not start.
    """
    with seldom_collected():
        async with servers_in_a_row(server, flushed=flushed) as servers:
            yield Chain(servers)

"""Messages through three servers of NATS JetStream: a stream at each of them, which is a mirror of the one before it.

A producer publishes to the first, with no more than a window of messages unconfirmed; a consumer takes them from the
third and acknowledges. Both are in this process, as the applications of our nodes are (load/row.py), and what comes is
checked as it is there.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import trio

from simulator.base.program.collector import seldom_collected
from simulator.bench.figures import BenchError
from simulator.bench.load.bodies import ALTERED, UNALTERED
from simulator.bench.load.row import CLIENT, THREE, Flow, difference, patience_s
from simulator.bench.load.traffic import check_delivery, send_when_due
from simulator.bench.nats.connection import Connection, connected
from simulator.bench.nats.protocol import answer_of, published, subscribed
from simulator.bench.nats.servers import Server, servers_in_a_row
from simulator.faults.proof import Received, Sent, delays_ms

SUBJECT: Final = b"orders"
DELIVERIES: Final = b"deliveries"
NUMBER_BYTES: Final = 8
"""A message's number, with which its body begins: NATS gives it no identifier of its own."""
UNACKNOWLEDGED: Final = 1_000
"""How many messages a consumer may have without an acknowledgment: the default of NATS."""


class Stretch:
    """A stretch of traffic: what was sent, and what came of it.

    Args:
        body_bytes: of each message; 8 at least.
        window: how many messages may be unconfirmed.
        first: how many messages the streams have had before.
    """

    def __init__(
        self, producer: Connection, consumer: Connection, body_bytes: int, window: int, first: int = 0
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._rest = bytes(max(0, body_bytes - NUMBER_BYTES))
        self._window = window
        self._first = self._asked = self._confirmed = first
        self._news = trio.Event()
        self.sent: list[Sent] = []
        self.received: list[Received] = []

    async def send_fast(self, count: int) -> None:
        """Publish whatever the window has room for, again and again."""
        end = self._first + count
        while self._asked < end:
            await self._until(lambda: self._asked - self._confirmed < self._window)
            room = self._window - (self._asked - self._confirmed)
            await self._publish([trio.current_time()] * min(room, end - self._asked))
        await self._until(lambda: self._confirmed == end)

    async def send_paced(self, count: int, per_s: float) -> None:
        """Publish `per_s` a second, each when it is due."""

        async def send(due_s: list[float]) -> None:
            await self._publish(due_s)
            last = self._asked
            await self._until(lambda: self._confirmed >= last)

        start_s = trio.current_time()
        await send_when_due([start_s + number / per_s for number in range(count)], send)

    async def _publish(self, due_s: Sequence[float]) -> None:
        first = self._asked
        self._asked += len(due_s)
        self.sent += [Sent(first + place, UNALTERED, at_s) for place, at_s in enumerate(due_s)]
        await self._producer.send(
            b"".join(
                published(
                    SUBJECT,
                    number.to_bytes(NUMBER_BYTES, "big") + self._rest,
                    b"%b%d" % (self._producer.inbox, number),
                )
                for number in range(first, self._asked)
            )
        )

    async def _until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            await self._news.wait()

    async def hear(self, count: int) -> None:
        """Take the confirmations of so many messages.

        Raises:
            BenchError: one of them is none, or is of another message than it should be.
        """
        while self._confirmed < self._first + count:
            for message in await self._producer.receive():
                answer, number = answer_of(message.payload), int(message.subject.rpartition(b".")[2])
                if answer.seq != number + 1 or answer.duplicate:
                    raise BenchError(f"NATS confirms message {number + 1:,} as number {answer.seq:,}")
                self._confirmed += 1
            self._news.set()
            self._news = trio.Event()

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
                last, body = message.reply, message.payload
                digest = UNALTERED if body[NUMBER_BYTES:] == self._rest else ALTERED
                number = int.from_bytes(body[:NUMBER_BYTES], "big")
                self.received.append(Received(number, digest, now_s))
            if last:
                waiting += 1
                await self._consumer.send(published(last, b"+ACK", self._consumer.inbox + b"acknowledged"))


class Chain:
    """Servers that run; `chain_of` makes it.

    flushes: what the servers say themselves of when they flush.
    """

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._servers = servers
        self._runs = 0
        self.flushes = servers[THREE[0]].flushes

    async def flood(self, count: int, body_bytes: int, window: int) -> Flow:
        """Send as fast as the first server confirms, and receive all of it.

        Raises:
            BenchError: a message was lost, came twice, out of order or altered, or it took too long.
        """

        async def send(stretch: Stretch) -> None:
            await stretch.send_fast(count)

        return await self._measured(count, body_bytes, window, send)

    async def pace(self, count: int, per_s: float, body_bytes: int) -> Flow:
        """Send `per_s` a second, however long each takes; as `flood` otherwise."""

        async def send(stretch: Stretch) -> None:
            await stretch.send_paced(count, per_s)

        return await self._measured(count, body_bytes, count, send, count / per_s)

    async def _measured(
        self,
        count: int,
        body_bytes: int,
        window: int,
        send: Callable[[Stretch], Awaitable[None]],
        takes_s: float = 0.0,
    ) -> Flow:
        async with AsyncExitStack() as stack:
            self._runs += 1
            ends = [
                await stack.enter_async_context(connected(server.address, f"{name}{self._runs}"))
                for name, server in self._servers.items()
            ]
            await self._prepare(ends)
            # A mirror takes a tenth of a second to ask for its first message, which is not of what is measured.
            early = Stretch(ends[0], ends[-1], body_bytes, window)
            await _passed(early, 1, early.send_fast(1), patience_s(1))
            stretch = Stretch(ends[0], ends[-1], body_bytes, window, first=1)
            before_s, start_s = self._cpu_s(), trio.current_time()
            in_time = await _passed(stretch, count, send(stretch), takes_s + patience_s(count))
            took_s, after_s = trio.current_time() - start_s, self._cpu_s()
            check_delivery(stretch.sent, stretch.received)
            if not in_time:
                raise BenchError(f"{count:,} messages took more than {patience_s(count):,.0f} s")
            await self._clear(ends)
        return Flow(
            messages=count,
            duration_s=took_s,
            settled_s=took_s,
            cpu_s={name: difference(before_s[name], after_s[name]) for name in before_s},
            flushes={},
            delays_ms=delays_ms(stretch.sent, stretch.received),
        )

    async def _prepare(self, ends: Sequence[Connection]) -> None:
        """A stream at each server, and a consumer at the last."""
        before = ""
        for name, end in zip(self._servers, ends, strict=True):
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
        for name, end in reversed(list(zip(self._servers, ends, strict=True))):
            await end.ask(f"$JS.API.STREAM.DELETE.{name}", {})

    def _cpu_s(self) -> dict[str, float | None]:
        return {**{name: one.cpu_s() for name, one in self._servers.items()}, CLIENT: time.process_time()}


async def _passed(stretch: Stretch, count: int, sending: Awaitable[None], within_s: float) -> bool:
    """Send, and take all confirmations and messages; whether that was done in time."""
    with trio.move_on_after(within_s) as patience:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stretch.hear, count)
            nursery.start_soon(stretch.receive, count)
            await sending
    return not patience.cancelled_caught


@asynccontextmanager
async def chain_of(server: str, *, flushed: bool) -> AsyncIterator[Chain]:
    """Three servers in a row, for the block.

    Raises:
        NodeError: one does not start.
    """
    with seldom_collected():
        async with servers_in_a_row(server, flushed=flushed) as servers:
            yield Chain(servers)

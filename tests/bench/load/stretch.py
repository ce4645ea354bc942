"""Messages through others' servers in a row: a producer at the first of them, and a consumer at the last.

The producer has no more than a window of messages unconfirmed. Both are in this process, as the applications of our
nodes are (load/row.py), and what comes is checked as it is there. Whose servers they are is said by a subclass of each
of the two classes here.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import trio

from simulator.faults.proof import Received, Sent, delays_ms
from tests.bench.figures import BenchError
from tests.bench.load.bodies import ALTERED, UNALTERED
from tests.bench.load.row import CLIENT, Flow, difference, patience_s
from tests.bench.load.traffic import check_delivery, send_when_due

NUMBER_BYTES: Final = 8
"""A message's number, with which its body begins: not all servers give it an identifier of their own."""
UNACKNOWLEDGED: Final = 1_000
"""How many messages a consumer may have without an acknowledgment: the default of NATS."""


class Stretch(ABC):
    """A stretch of traffic: what was sent, and what came of it.

    Args:
        body_bytes: of each message; 8 at least.
        window: how many messages may be unconfirmed.
        first: how many messages the servers have had before.
    """

    def __init__(self, body_bytes: int, window: int, first: int = 0) -> None:
        self.rest = bytes(max(0, body_bytes - NUMBER_BYTES))
        """What follows the number in each body."""
        self.first = first
        self.confirmed = first
        """How many messages have been confirmed since there were any."""
        self.sent: list[Sent] = []
        self.received: list[Received] = []
        self._window = window
        self._asked = first
        self._news = trio.Event()

    # What depends on the servers

    @abstractmethod
    async def publish(self, numbers: range) -> None:
        """Send the messages with these numbers."""

    @abstractmethod
    async def hear(self, count: int) -> None:
        """Take the confirmations of so many messages, and tell `have_confirmed`.

        Raises:
            BenchError: one of them is none, or is of another message than it should be.
        """

    @abstractmethod
    async def receive(self, count: int) -> None:
        """Take and acknowledge so many messages, and tell `came` of each."""

    # What does not

    async def send_fast(self, count: int) -> None:
        """Publish whatever the window has room for, again and again."""
        end = self.first + count
        while self._asked < end:
            await self._until(lambda: self._asked - self.confirmed < self._window)
            room = self._window - (self._asked - self.confirmed)
            await self._publish([trio.current_time()] * min(room, end - self._asked))
        await self._until(lambda: self.confirmed == end)

    async def send_paced(self, count: int, per_s: float) -> None:
        """Publish `per_s` a second, each when it is due."""

        async def send(due_s: list[float]) -> None:
            await self._publish(due_s)
            last = self._asked
            await self._until(lambda: self.confirmed >= last)

        start_s = trio.current_time()
        await send_when_due([start_s + number / per_s for number in range(count)], send)

    async def _publish(self, due_s: Sequence[float]) -> None:
        first = self._asked
        self._asked += len(due_s)
        self.sent += [Sent(first + place, UNALTERED, at_s) for place, at_s in enumerate(due_s)]
        await self.publish(range(first, self._asked))

    async def _until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            await self._news.wait()

    def body(self, number: int) -> bytes:
        """That of a message."""
        return number.to_bytes(NUMBER_BYTES, "big") + self.rest

    def have_confirmed(self, count: int) -> None:
        """So many messages more are confirmed."""
        self.confirmed += count
        self._news.set()
        self._news = trio.Event()

    def came(self, body: bytes, now_s: float) -> None:
        """The consumer has a message."""
        digest = UNALTERED if body[NUMBER_BYTES:] == self.rest else ALTERED
        self.received.append(Received(int.from_bytes(body[:NUMBER_BYTES], "big"), digest, now_s))

    async def passed(self, count: int, sending: Awaitable[None], within_s: float) -> bool:
        """Send, and take all confirmations and messages; whether that was done in time."""
        with trio.move_on_after(within_s) as patience:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.hear, count)
                nursery.start_soon(self.receive, count)
                await sending
        return not patience.cancelled_caught


class Runs(Protocol):
    """A server that runs."""

    def cpu_s(self) -> float | None:
        """User and system time it has taken so far, or None where the kernel does not tell."""


Begin = Callable[[int, int, int], Stretch]
"""Begins a stretch: with bodies of so many bytes, that window, and so many messages before it."""


class Chain(ABC):
    """Servers in a row that run.

    Args:
        servers: by name, in their order.
        flushes: when they flush, as far as they say it themselves.
    """

    def __init__(self, servers: Mapping[str, Runs], flushes: str) -> None:
        self._servers = servers
        self.flushes = flushes

    @abstractmethod
    def joined(self) -> AbstractAsyncContextManager[Begin]:
        """A producer at the first and a consumer at the last, for the block; nothing of it stays if all is well."""

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
        async with self.joined() as begin:
            # That servers find each other is not of what is measured: a mirror of NATS' takes a tenth of a second.
            early = begin(body_bytes, window, 0)
            if not await early.passed(1, early.send_fast(1), patience_s(1)):
                raise BenchError(f"a first message took more than {patience_s(1):,.0f} s")
            stretch = begin(body_bytes, window, 1)
            before_s, start_s = self._cpu_s(), trio.current_time()
            in_time = await stretch.passed(count, send(stretch), takes_s + patience_s(count))
            took_s, after_s = trio.current_time() - start_s, self._cpu_s()
            check_delivery(stretch.sent, stretch.received)
            if not in_time:
                raise BenchError(f"{count:,} messages took more than {patience_s(count):,.0f} s")
        return Flow(
            messages=count,
            duration_s=took_s,
            settled_s=took_s,
            cpu_s={name: difference(before_s[name], after_s[name]) for name in before_s},
            flushes={},
            delays_ms=delays_ms(stretch.sent, stretch.received),
        )

    def _cpu_s(self) -> dict[str, float | None]:
        return {**{name: one.cpu_s() for name, one in self._servers.items()}, CLIENT: time.process_time()}

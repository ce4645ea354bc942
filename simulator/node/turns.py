"""Paces a node: all feeders feed the core for a while, then one batch is carried out, and this repeats.

Only this module reads the time for the core.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from time import perf_counter
from typing import Final

import trio

from mqproto.base.moment import Moment
from mqproto.simulator.node.connection import READ_BYTES
from mqproto.wire import MAXIMUM_PACKET_SIZE
from mqproto.wire.buffer import SESSION_HEADER_SIZE

TURN_MESSAGES: Final = 500
TURN_BYTES: Final = 2**20
"""The size of a full batch, in bytes. It is chosen so that the loop never pauses for longer than about 15 ms."""
BATCH_BYTES: Final = TURN_BYTES + READ_BYTES + MAXIMUM_PACKET_SIZE + SESSION_HEADER_SIZE
"""The maximum number of bytes from neighbours in one batch. A nearly full batch takes one more read, which may complete
the largest packet. A store reserves this much room.
"""


class Clock:
    """Takes the uptime from trio's clock, which a test may control, and the date from the system's clock, which may
    jump.
    """

    def now(self) -> Moment:
        """Return this instant."""
        return Moment(uptime_ms=int(trio.current_time() * 1_000), utc_s=int(time.time()))

    def at(self, deadline_ms: int | None) -> float:
        """Return the time, on trio's clock, of a deadline of the core. Half a millisecond is added, so that rounding
        never wakes us early.
        """
        return math.inf if deadline_ms is None else deadline_ms / 1_000 + 0.0005


class Turn:
    """One batch. It begins when the previous one is taken."""

    def __init__(self) -> None:
        self.messages = self.size_bytes = 0
        self.byte_s = 0.0
        """The time, in seconds per byte, that it took to carry out the batch."""
        self.over = trio.Event()

    async def carried_out(self) -> None:
        """Wait until the batch has been carried out. If it already has been, there is no checkpoint."""
        if not self.over.is_set():
            await self.over.wait()


NO_TURN: Final = Turn()
"""A finished turn, for feeders that have fed nothing yet."""
NO_TURN.over.set()


class TurnFeed:
    """Joins the feeders of the core with the loop that carries out its decisions.

    A feeder waits for `room`, feeds, and calls `fed`, which returns when its batch has been carried out. So each feeder
    feeds at most once a turn, and a busy feeder does not keep the others waiting. A feeder that reads a socket calls
    `count`, waits for the next bytes, and only then waits for its turn, which is usually over by then. So the task
    wakes once for each read.
    """

    def __init__(self) -> None:
        self._next = Turn()
        self._now = self._next
        """The turn that is being carried out."""
        self._began_s = 0.0
        self._work = trio.Event()

    async def room(self) -> None:
        """Wait until the current turn accepts more. If it already does, there is no checkpoint.

        After a wait, there is no checkpoint between the last check and the return either.
        """
        while self._next.messages >= TURN_MESSAGES or self._next.size_bytes >= TURN_BYTES:
            await self._next.over.wait()

    async def fed(self, *, messages: int = 0, size_bytes: int = 0) -> float:
        """Record that something was fed, and wait until it has been carried out.

        Returns:
            The time spent on these bytes, in seconds, which is their share of the batch's time.
        """
        turn = self.count(messages=messages, size_bytes=size_bytes)
        await turn.over.wait()
        return size_bytes * turn.byte_s  # Others may have been carried out before we run again.

    def count(self, *, messages: int = 0, size_bytes: int = 0) -> Turn:
        """Record that something was fed. Return the turn that the caller has to wait for later."""
        turn = self._next
        turn.messages += messages
        turn.size_bytes += size_bytes
        self._work.set()
        return turn

    def wake(self) -> None:
        """Record that there is something to carry out."""
        self._work.set()

    # For the loop

    async def work(self) -> None:
        """Wait until there is something to carry out."""
        await self._work.wait()

    def begin(self) -> None:
        """Begin to carry out a batch. Whatever is fed from now on belongs to the next batch."""
        self._now, self._next = self._next, Turn()
        self._began_s = perf_counter()
        self._work = trio.Event()

    def end(self) -> None:
        """Record that the batch has been carried out."""
        self._now.byte_s = (perf_counter() - self._began_s) / max(1, self._now.size_bytes)
        self._now.over.set()


class Alarm:
    """Rings at a time that is usually postponed before it comes.

    Setting one of trio's deadlines for each wait would take as long as a small batch. So the alarm wakes at the
    earliest time that was set, and checks whether that time is still valid.

    Args:
        ring: called when the time has come.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._at_s = math.inf
        self._sleep = trio.CancelScope()

    def set(self, at_s: float) -> None:
        """Ring at this time on trio's clock, which replaces any earlier setting."""
        self._at_s = at_s
        if at_s < self._sleep.deadline:
            self._sleep.deadline = at_s

    async def run(self) -> None:
        """Ring whenever the set time has come, until this task is cancelled."""
        while True:
            with trio.CancelScope(deadline=self._at_s) as self._sleep:
                await trio.sleep_forever()
            if self._at_s <= trio.current_time():
                self._at_s = math.inf
                self._ring()

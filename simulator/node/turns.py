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
LARGE_BYTES: Final = 2**18
"""The size, in bytes, above which a posted message may keep others waiting for more than a millisecond."""
PAUSE: Final = 5
"""For how many times as long as a large posted message takes, the next one waits.

It costs about three times as much again when it is received, and moves from the log to the tables.
"""
OTHERS_S: Final = 0.1
"""For how long, in seconds, large posted messages leave time to others after these have fed something."""
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
    """One batch. It begins when the previous one is taken.

    Attributes:
        messages, size_bytes: what was fed, except for posted messages, which have room of their own.
        posted_bytes: the size of the posted messages.
    """

    def __init__(self) -> None:
        self.messages = self.size_bytes = self.posted_bytes = 0
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
        self.begun = 0
        """The number of turns that have begun."""
        self._others_s = -math.inf
        """When others than posted messages were carried out, on trio's clock."""
        self.large_from_s = -math.inf
        """When the next large posted message may be fed, on trio's clock."""

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

    def count_posted(self, size_bytes: int) -> Turn:
        """Record that a posted message was fed (`PostedRoom`). Return the turn that the caller has to wait for."""
        self._next.posted_bytes += size_bytes
        self._work.set()
        return self._next

    def wake(self) -> None:
        """Record that there is something to carry out."""
        self._work.set()

    async def another(self) -> None:
        """Wait until one more turn has been carried out, which may have nothing to do."""
        turn = self._next
        self._work.set()
        await turn.over.wait()

    # For the loop

    async def work(self) -> None:
        """Wait until there is something to carry out."""
        await self._work.wait()

    def begin(self) -> None:
        """Begin to carry out a batch. Whatever is fed from now on belongs to the next batch."""
        self._now, self._next = self._next, Turn()
        self.begun += 1
        self._began_s = perf_counter()
        self._work = trio.Event()

    def end(self) -> None:
        """Record that the batch has been carried out."""
        turn, passed_s = self._now, perf_counter() - self._began_s
        turn.byte_s = passed_s / max(1, turn.size_bytes + turn.posted_bytes)
        now_s = trio.current_time()
        if turn.size_bytes or turn.messages:
            self._others_s = now_s
        if turn.posted_bytes > LARGE_BYTES and now_s < self._others_s + OTHERS_S:
            self.large_from_s = now_s + PAUSE * turn.byte_s * turn.posted_bytes
        self._now.over.set()


class PostedRoom:
    """Lets posted messages into turns, in the order in which they come.

    A turn has as much room for them as for all others together, so the others wait no longer if a thousand producers
    wait, too. While others feed, large messages leave PAUSE times their own time to them.
    """

    def __init__(self, turns: TurnFeed) -> None:
        self._turns = turns
        self._lines = trio.StrictFIFOLock(), trio.StrictFIFOLock()
        """The lines of short and of large messages: who has a short one does not wait for the pauses of others."""
        self._taken_bytes = self._looked_at = 0

    async def take(self, size_bytes: int) -> None:
        """Wait until a turn has room for a message. If one already has, there is no checkpoint.

        After a wait, there is no checkpoint between the last check and the return either.
        """
        is_large = size_bytes > LARGE_BYTES
        line = self._lines[is_large]
        if line.locked() or not self._has_room(is_large):
            async with line:
                while not self._has_room(is_large):
                    if is_large:
                        await trio.sleep_until(self._turns.large_from_s)
                    await self._turns.another()
        self._taken_bytes += max(size_bytes, TURN_BYTES // TURN_MESSAGES)

    def _has_room(self, is_large: bool) -> bool:
        passed, self._looked_at = self._turns.begun - self._looked_at, self._turns.begun
        self._taken_bytes = max(0, self._taken_bytes - passed * TURN_BYTES)
        is_early = is_large and trio.current_time() < self._turns.large_from_s
        return self._taken_bytes < TURN_BYTES and not is_early


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

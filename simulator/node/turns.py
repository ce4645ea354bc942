"""The beat of a node: everybody feeds the core for a while, then one batch is carried out, and again."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Final

import trio

from mqproto.simulator.node.connection import READ_BYTES
from mqproto.wire import MAXIMUM_PACKET_SIZE
from mqproto.wire.buffer import SESSION_HEADER_SIZE

TURN_MESSAGES: Final = 500
TURN_BYTES: Final = 2**20
"""With so much a batch is full, so that the loop never stops for longer than some 15 ms."""
BATCH_BYTES: Final = TURN_BYTES + READ_BYTES + MAXIMUM_PACKET_SIZE + SESSION_HEADER_SIZE
"""What neighbours bring with one batch at most: one that is nearly full takes one read more, and that may be the end of
the largest packet. A store sets room aside for so much."""


class Turn:
    """One batch, from when the one before it is taken."""

    def __init__(self) -> None:
        self.messages = self.size_bytes = 0
        self.byte_s = 0.0
        """What each of its bytes has cost to carry out, in seconds."""
        self.over = trio.Event()

    async def carried_out(self) -> None:
        """Return when it has been carried out. If it has been, there is no checkpoint."""
        if not self.over.is_set():
            await self.over.wait()


NO_TURN: Final = Turn()
"""One that is over, for those who have fed nothing yet."""
NO_TURN.over.set()


class Turns:
    """Joins those who feed the core with the loop that carries out what it decides.

    A feeder waits for `room`, feeds, and calls `fed`, which returns when the batch with what it fed has been carried
    out. So each feeds at most once a turn, and a busy one does not keep the others waiting. One that reads a socket
    calls `count`, waits for the next bytes, and only then for its turn, which mostly is over by then: so it wakes once
    for each read.
    """

    def __init__(self) -> None:
        self._next = Turn()
        self._now = self._next
        """The one that is carried out."""
        self._began_s = 0.0
        self._work = trio.Event()

    async def room(self) -> None:
        """Return as soon as this turn takes in more. There is no checkpoint between that and the return."""
        while self._next.messages >= TURN_MESSAGES or self._next.size_bytes >= TURN_BYTES:
            await self._next.over.wait()

    async def fed(self, *, messages: int = 0, size_bytes: int = 0) -> float:
        """Something was fed; return when it has been carried out.

        Returns:
            How many seconds that took, in proportion to the bytes that the batch took in.
        """
        turn = self.count(messages=messages, size_bytes=size_bytes)
        await turn.over.wait()
        return size_bytes * turn.byte_s  # Others may have been carried out before we run again.

    def count(self, *, messages: int = 0, size_bytes: int = 0) -> Turn:
        """Something was fed by one who has more to do before it waits; the turn that carries it out."""
        turn = self._next
        turn.messages += messages
        turn.size_bytes += size_bytes
        self._work.set()
        return turn

    def wake(self) -> None:
        """There is something to carry out."""
        self._work.set()

    # For the loop

    async def work(self) -> None:
        """Wait until there is something to carry out."""
        await self._work.wait()

    def begin(self) -> None:
        """The loop takes a batch; what is fed from now on is for the next."""
        self._now, self._next = self._next, Turn()
        self._began_s = perf_counter()
        self._work = trio.Event()

    def end(self) -> None:
        """The batch has been carried out."""
        self._now.byte_s = (perf_counter() - self._began_s) / max(1, self._now.size_bytes)
        self._now.over.set()


class Alarm:
    """Rings at a time that is mostly put off before it comes.

    A loop that sets a deadline of trio's each time it waits takes as long for that as for a small batch. So the alarm
    wakes when it was to ring first, and sees whether that still holds.

    Args:
        ring: called when the time has come.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._at_s = math.inf
        self._sleep = trio.CancelScope()

    def set(self, at_s: float) -> None:
        """Ring at this time on trio's clock, and at no other."""
        self._at_s = at_s
        if at_s < self._sleep.deadline:
            self._sleep.deadline = at_s

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            with trio.CancelScope(deadline=self._at_s) as self._sleep:
                await trio.sleep_forever()
            if self._at_s <= trio.current_time():
                self._at_s = math.inf
                self._ring()

"""The deadlines of receives that wait for a message."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from heapq import heapify, heappop, heappush
from typing import Final

import trio

from mqproto.simulator.node.turns import Alarm

SPARE_DEADLINES: Final = 1_000
"""How many deadlines may be kept in excess of twice the number of waiting receives.

If there are more, the deadlines of ended receives are removed.
"""


class Patience:
    """The deadlines of all receives of a node.

    They share one alarm, because most receives get a message at once, and a task for each would take as long as the
    receive itself. The deadline of an ended receive wakes nobody, unless it is the earliest of all deadlines.

    Args:
        waiting: the numbers of the receives that have not ended.
        over: called with the number of a receive whose time is up.
    """

    def __init__(self, waiting: Collection[int], over: Callable[[int], None]) -> None:
        self._waiting = waiting
        self._over = over
        self._deadlines: list[tuple[float, int]] = []
        """A heap that includes the deadlines of receives that have ended."""
        self._alarm = Alarm(self._end)

    def expect(self, number: int, deadline_s: float) -> None:
        """Let a receive wait until the given time on trio's clock."""
        if len(self._deadlines) > 2 * len(self._waiting) + SPARE_DEADLINES:
            self._deadlines = [each for each in self._deadlines if each[1] in self._waiting]
            heapify(self._deadlines)
        heappush(self._deadlines, (deadline_s, number))
        self._set()

    async def run(self) -> None:
        """End receives whose time is up, until this task is cancelled."""
        await self._alarm.run()

    def _set(self) -> None:
        self._alarm.set(self._deadlines[0][0] if self._deadlines else math.inf)

    def _end(self) -> None:
        now_s = trio.current_time()
        while self._deadlines:
            deadline_s, number = self._deadlines[0]
            if number in self._waiting:
                if deadline_s > now_s:
                    break
                self._over(number)
            heappop(self._deadlines)
        self._set()

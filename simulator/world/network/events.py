"""An event heap, and a clock that jumps from one event to the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final

from mqproto.simulator.world.scenarios.scenario import START_UTC_S

LATER: Final = 1 << 48


class EventQueue:
    """Events in order of time. Those in the same millisecond are in the order in which they were added."""

    def __init__(self, begins_utc_s: int = START_UTC_S) -> None:
        self.begins_utc_s = begins_utc_s
        """The date that all clocks show at the beginning."""
        self.now_ms = 0
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._entered = 0

    def at(self, when_ms: int, act: Callable[..., object], *arguments: Any) -> None:
        """Add an event. If its time is in the past, it happens now."""
        self._entered += 1
        heapq.heappush(self._heap, (max(when_ms, self.now_ms), self._entered, act, arguments))

    def after_all(self, act: Callable[..., object], *arguments: Any) -> None:
        """Add an event that comes last in this millisecond, even after events that are added later."""
        self._entered += 1
        heapq.heappush(self._heap, (self.now_ms, self._entered + LATER, act, arguments))

    def forget_all(self) -> None:
        """Drop all events."""
        self._heap.clear()

    def run_until(self, end_ms: int) -> None:
        """Run all events that are due up to `end_ms`. Afterward, the clock shows that time."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= end_ms:
            self.now_ms, _, act, arguments = pop(heap)
            act(*arguments)
        self.now_ms = max(self.now_ms, end_ms)

"""A histogram of durations. Adding a duration costs less than a microsecond."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

BOUNDS_S: Final = (
    0.000_1,
    0.000_25,
    0.000_5,
    0.001,
    0.002_5,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
)
"""The upper bounds of the histogram's ranges, in seconds. They cover both disks that do not flush and very slow
ones.
"""


class Durations:
    """Counts durations by length."""

    def __init__(self, bounds_s: Sequence[float] = BOUNDS_S) -> None:
        self.total_s = 0.0
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)

    def add(self, duration_s: float, count: int = 1) -> None:
        """Add one duration, or add the same duration `count` times."""
        self.total_s += duration_s * count
        self._counts[bisect_left(self._bounds_s, duration_s)] += count

    @property
    def count(self) -> int:
        """The number of durations that were added."""
        return sum(self._counts)

    @property
    def within(self) -> list[tuple[float, int]]:
        """Return, for each bound in seconds, the number of durations up to that bound."""
        return [*zip(self._bounds_s, accumulate(self._counts), strict=False)]

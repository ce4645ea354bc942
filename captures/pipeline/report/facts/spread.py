"""Counts durations in buckets, so that any number of durations takes 4 KiB."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from typing import Final

STEPS: Final = 8
"""The number of buckets for each doubling; values read from the buckets are right to within 1/16."""


class Spread:
    """Durations in ns; durations below 0, which occur only if clocks disagree, count as 0.

    Each value from 0 to 15 has its own bucket; above these, each doubling has STEPS buckets.

    Attributes:
        count: the number of durations.
        least, most: the exact shortest and longest duration; 0 if there are none.

    Args:
        counts: the number of durations in each bucket, in ascending order.
    """

    def __init__(self, counts: Mapping[int, int] | None = None, least: int = 0, most: int = 0) -> None:
        self._counts = dict(counts or {})
        self.count = sum(self._counts.values())
        self.least = least
        self.most = most

    def quantile(self, share: float) -> int:
        """Return a quantile for a share from 0 to 1: the middle of its bucket, within `least` and `most`."""
        if share <= 0 or not self.count:
            return self.least
        if share >= 1:
            return self.most
        return min(max(self.middle(share), self.least), self.most)

    def middle(self, share: float) -> int:
        """Return the middle of the bucket that contains a quantile; 0 if there are no durations."""
        place = bisect_left([*accumulate(self._counts.values())], share * self.count)
        return middle([*self._counts][place]) if self.count else 0

    def bars(self) -> list[tuple[int, int, int]]:
        """Return the buckets from the first to the last that is not empty, each with its edges in ns and its count."""
        if not self.count:
            return []
        first, last = min(self._counts), max(self._counts)
        return [
            (edge(place), edge(place + 1), self._counts.get(place, 0)) for place in range(first, last + 1)
        ]

    def as_json(self) -> dict[str, int]:
        """Return the spread as JSON for programs."""
        shares = {"p50_ns": 0.5, "p95_ns": 0.95, "p99_ns": 0.99}
        return {
            "count": self.count,
            "least_ns": self.least,
            **{name: self.quantile(share) for name, share in shares.items()},
            "most_ns": self.most,
        }


def edge(place: int) -> int:
    """Return the lower edge of a bucket."""
    if place < 2 * STEPS:
        return place
    doublings = place // STEPS - 1
    return (place - doublings * STEPS) << doublings


def middle(place: int) -> int:
    """Return the middle of a bucket."""
    return (edge(place) + edge(place + 1) - 1) // 2

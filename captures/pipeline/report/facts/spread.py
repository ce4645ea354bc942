"""How long things took, counted in buckets: any number of them in 4 KiB."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

STEPS: Final = 8
"""Buckets for each doubling: what is read off is right within 1/16."""
BUCKETS: Final = 62 * STEPS


class Spread:
    """Durations in ns.

    Attributes:
        count: how many.
        least, most: exact, 0 if there are none.
    """

    def __init__(self) -> None:
        self.count = 0
        self.least = 0
        self.most = 0
        self._buckets = np.zeros(BUCKETS, dtype=np.int64)

    def add(self, durations_ns: Any) -> None:
        """Count some; those below 0, which only clocks that disagree make, as 0."""
        values = np.maximum(np.asarray(durations_ns, dtype=np.int64), 0)
        if not len(values):
            return
        least, most = int(values.min()), int(values.max())
        self.least = min(self.least, least) if self.count else least
        self.most = max(self.most, most)
        self.count += len(values)
        self._buckets += np.bincount(bucket(values), minlength=BUCKETS)

    def quantile(self, share: float) -> int:
        """What this share of all is below, from 0 to 1; the middle of a bucket, within `least` and `most`."""
        if share <= 0 or not self.count:
            return self.least
        if share >= 1:
            return self.most
        place = int(np.searchsorted(np.cumsum(self._buckets), share * self.count))
        return min(max(middle(place), self.least), self.most)

    def bars(self) -> list[tuple[int, int, int]]:
        """Buckets from the first that is not empty to the last: from and to in ns, and how many."""
        used = np.flatnonzero(self._buckets)
        if not len(used):
            return []
        return [
            (edge(place), edge(place + 1), int(self._buckets[place]))
            for place in range(int(used[0]), int(used[-1]) + 1)
        ]

    def as_json(self) -> dict[str, int]:
        """For programs."""
        shares = {"p50_ns": 0.5, "p95_ns": 0.95, "p99_ns": 0.99}
        return {
            "count": self.count,
            "least_ns": self.least,
            **{name: self.quantile(share) for name, share in shares.items()},
            "most_ns": self.most,
        }


def bucket(values: Any) -> Any:
    """In which buckets durations are, none of which may be below 0.

    0 to 15 are buckets of their own; above, each doubling has STEPS.
    """
    doublings = np.maximum(np.frexp(values.astype(np.float64))[1] - 4, 0)
    # A float may be rounded up to a power of two: then one more is shifted out, and it is the last bucket below.
    return doublings * STEPS + (values >> doublings)


def edge(place: int) -> int:
    """The least value of a bucket."""
    if place < 2 * STEPS:
        return place
    doublings = place // STEPS - 1
    return (place - doublings * STEPS) << doublings


def middle(place: int) -> int:
    """The middle of a bucket."""
    return (edge(place) + edge(place + 1) - 1) // 2

"""A set of numbers kept as ranges: the numbers of a sequence that came, or never will."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Ranges:
    """Numbers in as few ranges as there are gaps; at most `limit` of them, the lowest gaps being closed first."""

    def __init__(self, limit: int = 1_000) -> None:
        self._limit = limit
        self._first: list[int] = []
        self._last: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._first)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._first, number) - 1
        return at >= 0 and number <= self._last[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The ranges, lowest first, both ends included."""
        return zip(self._first, self._last, strict=True)

    @property
    def highest(self) -> int:
        """The highest number, or 0."""
        return self._last[-1] if self._last else 0

    def end_of(self, number: int) -> int:
        """The last number of the range that a number is in, or 0."""
        at = bisect_right(self._first, number) - 1
        return self._last[at] if at >= 0 and number <= self._last[at] else 0

    def add(self, first: int, last: int) -> None:
        """Add all numbers from `first` to `last`."""
        if self._last and self._first[-1] <= first <= self._last[-1] + 1:
            # Nearly always: the next number.
            self._last[-1] = max(self._last[-1], last)
            return
        low = bisect_left(self._last, first - 1)
        high = bisect_right(self._first, last + 1)
        if low < high:
            first, last = min(first, self._first[low]), max(last, self._last[high - 1])
        self._first[low:high] = [first]
        self._last[low:high] = [last]
        if len(self._first) > self._limit:
            self._last[0] = self._last.pop(1)
            del self._first[1]


def first_missing(sets: Iterable[Ranges], above: int, through: int) -> int | None:
    """The lowest number from `above` + 1 to `through` that is in none of the sets; None if there is none."""
    every = list(sets)
    due = above + 1
    while due <= through:
        last = max((ranges.end_of(due) for ranges in every), default=0)
        if last < due:
            return due
        due = last + 1
    return None

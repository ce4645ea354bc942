"""A set of numbers that is stored as ranges.

The numbers of a sequence come, go and expire in long runs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Ranges:
    """A set of integers, stored as one range for each unbroken run."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._last: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._first)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._first, number) - 1
        return at >= 0 and number <= self._last[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges, the lowest first, each as its first and last number."""
        return zip(self._first, self._last, strict=True)

    @property
    def range_count(self) -> int:
        """The number of ranges in the set, which determines how much memory and time the set takes."""
        return len(self._first)

    @property
    def highest(self) -> int:
        """The highest number in the set; 0 if the set is empty."""
        return self._last[-1] if self._last else 0

    def add(self, first: int, last: int) -> None:
        """Add all numbers from `first` to `last`; some of them may be in the set already."""
        if self._last and self._first[-1] <= first <= self._last[-1] + 1:
            # Nearly always: the next number.
            if last > self._last[-1]:
                self._last[-1] = last
            return
        low = bisect_left(self._last, first - 1)
        high = bisect_right(self._first, last + 1)
        if low < high:
            first, last = min(first, self._first[low]), max(last, self._last[high - 1])
        self._first[low:high] = [first]
        self._last[low:high] = [last]

    def before(self, number: int) -> int:
        """Return the highest number below this one that is not in the set."""
        at = bisect_left(self._first, number) - 1
        return self._first[at] - 1 if at >= 0 and self._last[at] >= number - 1 else number - 1

    def after(self, number: int) -> int:
        """Return the lowest number above this one that is not in the set."""
        at = bisect_right(self._first, number + 1) - 1
        return self._last[at] + 1 if at >= 0 and self._last[at] > number else number + 1

    def gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of numbers between `first` and `last` that are not in the set, the lowest first.

        Each is given by its first and last number.
        """
        for begins, ends in self:
            if begins > last:
                break
            if first < begins:
                yield first, begins - 1
            first = max(first, ends + 1)
        if first <= last:
            yield first, last

    def count_through(self, number: int) -> int:
        """Return how many members of the set are not greater than this number."""
        return sum(min(last, number) - first + 1 for first, last in self if first <= number)

    def drop_through(self, number: int) -> int:
        """Remove all numbers up to this one; return how many of them were in the set."""
        count = 0
        while self._first and self._first[0] <= number:
            last = min(self._last[0], number)
            count += last - self._first[0] + 1
            if last == self._last[0]:
                del self._first[0], self._last[0]
            else:
                self._first[0] = last + 1
        return count

    def clear(self) -> None:
        """Remove all numbers."""
        self._first.clear()
        self._last.clear()

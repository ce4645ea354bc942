"""The numbers of a sequence that no message has any more: ranges that the next message bridges.  3.1.7.1.3"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Holes:
    """A set of numbers, kept as ranges: a backlog that expires leaves long ones."""

    def __init__(self) -> None:
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

    def add(self, first: int, last: int) -> None:
        """Numbers that no message has from now on; none of them is in the set."""
        at = bisect_left(self._first, first)
        if at < len(self._first) and self._first[at] == last + 1:
            last = self._last[at]
            del self._first[at], self._last[at]
        if at and self._last[at - 1] == first - 1:
            self._last[at - 1] = last
        else:
            self._first.insert(at, first)
            self._last.insert(at, last)

    def before(self, number: int) -> int:
        """The highest number below this one that is not in the set."""
        at = bisect_left(self._first, number) - 1
        return self._first[at] - 1 if at >= 0 and self._last[at] >= number - 1 else number - 1

    def after(self, number: int) -> int:
        """The lowest number above this one that is not in the set."""
        at = bisect_right(self._first, number + 1) - 1
        return self._last[at] + 1 if at >= 0 and self._last[at] > number else number + 1

    def count_through(self, number: int) -> int:
        """How many numbers up to this one are in the set."""
        return sum(min(last, number) - first + 1 for first, last in self if first <= number)

    def drop_through(self, number: int) -> int:
        """Forget all numbers up to this one; how many of them were in the set."""
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
        """Forget all numbers."""
        self._first.clear()
        self._last.clear()

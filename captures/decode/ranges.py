"""The numbers of a sequence that have crossed a hop, or that never will.

The memory for them is limited, because anybody may have made the capture.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from mqproto.base.ranges import Ranges


class BoundedRanges(Ranges):
    """A set of at most `limit` ranges.

    A range beyond this limit closes the lowest gap, as if the numbers in that gap had been added.
    """

    def __init__(self, limit: int = 1_000) -> None:
        super().__init__()
        self._limit = limit

    def add(self, first: int, last: int) -> None:
        super().add(first, last)
        if len(self._first) > self._limit:
            (_, before), (after, _) = islice(self, 2)
            super().add(before + 1, after - 1)


def first_missing(sets: Iterable[Ranges], above: int, through: int) -> int | None:
    """Return the lowest number from `above` + 1 to `through` that none of the sets contains; None if they contain
    all.
    """
    every = list(sets)
    due = above + 1
    while due <= through:
        following = max((ranges.after(due - 1) for ranges in every), default=due)
        if following == due:
            return due
        due = following
    return None

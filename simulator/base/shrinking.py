"""The search for something smaller that still shows a fault, in worlds, conversations or packets.

The thing to make smaller is a value: a scenario, a packet, or a list of parts. A `Step` is a way to make it smaller. It
tries one candidate after another, and learns whether each of them still shows the fault. If one does, the step
continues from that candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeAlias, TypeVar

Thing = TypeVar("Thing")
Part = TypeVar("Part")
Search: TypeAlias = Generator[Thing, bool, None]
"""A generator that yields candidates, and is told whether each of them still shows the fault.

If one does, the search continues from that candidate.
"""
Step: TypeAlias = Callable[[Thing], Search[Thing]]


def shrinking(best: Thing, steps: Sequence[Step[Thing]], tries: int) -> Generator[Thing, bool, Thing]:
    """Run all steps in turn, again and again, until none of them helps or the tries are used up.

    Args:
        best: a value that shows the fault.
        tries: the maximum number of candidates to try.

    Returns:
        The smallest value found that still shows the fault.
    """
    progress = True
    while progress:
        progress = False
        for step in steps:
            search = step(best)
            candidate = next(search, None)
            while candidate is not None:
                if tries <= 0:
                    return best
                tries -= 1
                shows = yield candidate
                if shows:
                    best, progress = candidate, True
                try:
                    candidate = search.send(shows)
                except StopIteration:
                    candidate = None
    return best


def shrunk(best: Thing, steps: Sequence[Step[Thing]], shows: Callable[[Thing], bool], tries: int) -> Thing:
    """Return the smallest value found that still shows a fault.

    Args:
        shows: returns whether a candidate shows the fault; `best` is assumed to show it.
    """
    search = shrinking(best, steps, tries)
    try:
        candidate = next(search)
        while True:
            candidate = search.send(shows(candidate))
    except StopIteration as end:
        smallest: Thing = end.value
        return smallest


def anew(candidates: Callable[[Thing], Iterable[Thing]]) -> Step[Thing]:
    """Return a step that asks for a new list of candidates each time that a candidate still shows the fault."""

    def step(best: Thing) -> Search[Thing]:
        found = True
        while found:
            found = False
            for candidate in candidates(best):
                if (yield candidate):
                    best, found = candidate, True
                    break

    return step


def fewer(parts: tuple[Part, ...]) -> Search[tuple[Part, ...]]:
    """Leave out parts: first all of them, then halves, quarters, and so on, down to single parts.

    Repeat a size for as long as it helps. Start from the end, because later parts mostly depend on earlier ones.
    """
    size = len(parts)
    while size:
        begin, helped = len(parts), False
        while begin > 0:
            begin = max(begin - size, 0)
            candidate = parts[:begin] + parts[begin + size :]
            if (yield candidate):
                parts, helped = candidate, True
        if not helped or size > len(parts):
            size //= 2

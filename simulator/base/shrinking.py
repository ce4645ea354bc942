"""Smaller things that still show a fault: the one search of worlds, conversations and packets.

What is made smaller is a value: a scenario, a packet, some parts. A `Step` is a way to make it smaller: it tries one
candidate after the other, is told of each whether the fault still shows, and goes on from the smaller one if it does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeAlias, TypeVar

Thing = TypeVar("Thing")
Part = TypeVar("Part")
Search: TypeAlias = Generator[Thing, bool, None]
"""Candidates; each is answered with whether it still shows the fault, and is where it goes on from if it does."""
Step: TypeAlias = Callable[[Thing], Search[Thing]]


def shrinking(best: Thing, steps: Sequence[Step[Thing]], tries: int) -> Generator[Thing, bool, Thing]:
    """The search: all steps in turn, again and again, until none of them helps or there were enough tries.

    Args:
        best: what shows the fault.
        tries: how many candidates there are at most.

    Returns:
        The smallest that still shows it.
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
    """The smallest that still shows a fault.

    Args:
        shows: whether a candidate does; `best` is not asked about.
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
    """A step that asks for all candidates anew after each that still shows the fault."""

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
    """Parts left out: all, halves, quarters, down to single ones; a size again for as long as it helps.

    From the end, as what comes later mostly depends on what came before.
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

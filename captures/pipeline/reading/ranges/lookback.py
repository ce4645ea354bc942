"""How far back a pair of ends can be read again: the ranges it occurs in, and states to begin from."""

from __future__ import annotations

import pickle
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, Final

LIMIT_COUNT: Final = 1_024
"""Ranges that are remembered, up to twice as many: a stream keeps as many pieces to compare with."""


class Frozen:
    """A thing as it is now, whatever happens to it later."""

    __slots__ = ("_pickled", "_thing")

    def __init__(self, thing: Any) -> None:
        self._pickled: bytes | None = pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)
        self._thing: Any = None

    @property
    def thing(self) -> Any:
        """A new copy each time. A thing set by a run is kept as it is."""
        if self._pickled is None:
            self._pickled, self._thing = pickle.dumps(self._thing, pickle.HIGHEST_PROTOCOL), None
        return pickle.loads(self._pickled)

    @thing.setter
    def thing(self, thing: Any) -> None:
        self._pickled, self._thing = None, thing


@dataclass(slots=True)
class LookBack:
    """Ranges in order, and the state of the pair before some of them.

    The further back, the fewer states are kept: a walk back that doubles its steps finds one within twice the distance.

    states: each with the index in `places` of the range after it, in this order.
    """

    places: list[int] = field(default_factory=list)
    states: list[tuple[int, Frozen]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.places)

    def add(self, place: int, before: Frozen) -> None:
        """Add a range, and the state before it."""
        self.states.append((len(self.places), before))
        self.places.append(place)
        self._thin()
        if len(self.places) > 2 * LIMIT_COUNT:
            self._cut(len(self.places) - LIMIT_COUNT)

    def clear(self) -> None:
        """Forget everything before the next range."""
        self.places.clear()
        self.states.clear()

    def since(self, count: int) -> tuple[Frozen, list[int]]:
        """Return a state, and all ranges from there on: at least `count`, if there are.

        Args:
            count: at least 1; there is a range.
        """
        wanted = len(self.places) - count
        index, state = next((each for each in reversed(self.states) if each[0] <= wanted), self.states[0])
        return state, self.places[index:]

    def without(self, gone: Container[int]) -> None:
        """Forget the ranges that can no longer be read, and all before them."""
        first = next((index + 1 for index in reversed(range(len(self))) if self.places[index] in gone), 0)
        if first:
            self._cut(first, exactly=True)

    def _thin(self) -> None:
        """Drop a state if its earlier neighbour is at most twice as far back as its later one."""
        end = len(self.places)
        kept: list[tuple[int, Frozen]] = []
        for each in reversed(self.states):
            if len(kept) > 1 and end - each[0] <= 2 * (end - kept[-2][0]):
                kept[-1] = each
            else:
                kept.append(each)
        self.states = kept[::-1]

    def _cut(self, first: int, *, exactly: bool = False) -> None:
        """Forget ranges before the one with this index, as far as states allow; that one too, if it has no state."""
        known = [index for index, _ in self.states]
        earlier = [index for index in known if index <= first]
        if exactly or not earlier:
            start = next((index for index in known if index >= first), len(self.places))
        else:
            start = earlier[-1]
        del self.places[:start]
        self.states = [(index - start, state) for index, state in self.states if index >= start]

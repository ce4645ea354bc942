"""How far back a pair of ends can be read again: which ranges it occurs in, and states to begin from."""

from __future__ import annotations

import pickle
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, Final

LIMIT_COUNT: Final = 1_024
"""How many ranges at least are remembered, and at most twice as many: a stream keeps as many pieces to compare with."""


class Frozen:
    """A thing as it is now, however it changes later."""

    __slots__ = ("_pickled", "_thing")

    def __init__(self, thing: Any) -> None:
        self._pickled: bytes | None = pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)
        self._thing: Any = None

    @property
    def thing(self) -> Any:
        """It, made anew each time. What a run has kept is set, and is nobody else's."""
        if self._pickled is None:
            self._pickled, self._thing = pickle.dumps(self._thing, pickle.HIGHEST_PROTOCOL), None
        return pickle.loads(self._pickled)

    @thing.setter
    def thing(self, thing: Any) -> None:
        self._pickled, self._thing = None, thing


@dataclass(slots=True)
class LookBack:
    """Ranges in their order, and how the pair stood before some of them.

    The further back, the fewer states are kept: a walk back that doubles its steps finds one within twice the way.

    states: each with the index in `places` of the range that it stands before, in this order.
    """

    places: list[int] = field(default_factory=list)
    states: list[tuple[int, Frozen]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.places)

    def add(self, place: int, before: Frozen) -> None:
        """One range more, and the state before it."""
        self.states.append((len(self.places), before))
        self.places.append(place)
        self._thin()
        if len(self.places) > 2 * LIMIT_COUNT:
            self._cut(len(self.places) - LIMIT_COUNT)

    def clear(self) -> None:
        """Nothing before the next range is asked for."""
        self.places.clear()
        self.states.clear()

    def since(self, count: int) -> tuple[Frozen, list[int]]:
        """A state, and all ranges from there on: at least `count` of them, if there are.

        Args:
            count: from 1 on; there is a range.
        """
        wanted = len(self.places) - count
        index, state = next((each for each in reversed(self.states) if each[0] <= wanted), self.states[0])
        return state, self.places[index:]

    def without(self, gone: Container[int]) -> None:
        """Forget the ranges that cannot be read any more, and all before them."""
        first = next((index + 1 for index in reversed(range(len(self))) if self.places[index] in gone), 0)
        if first:
            self._cut(first, exactly=True)

    def _thin(self) -> None:
        """Drop the states that are no nearer to what is asked for than twice the way to their later neighbour."""
        end = len(self.places)
        kept: list[tuple[int, Frozen]] = []
        for each in reversed(self.states):
            if len(kept) > 1 and end - each[0] <= 2 * (end - kept[-2][0]):
                kept[-1] = each
            else:
                kept.append(each)
        self.states = kept[::-1]

    def _cut(self, first: int, *, exactly: bool = False) -> None:
        """Forget ranges before the one with this index, as far as a state allows; or that one too, if it has none."""
        known = [index for index, _ in self.states]
        earlier = [index for index in known if index <= first]
        if exactly or not earlier:
            start = next((index for index in known if index >= first), len(self.places))
        else:
            start = earlier[-1]
        del self.places[:start]
        self.states = [(index - start, state) for index, state in self.states if index >= start]

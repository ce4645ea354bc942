"""How long things took, and how many waited, over time: since when is it slow?"""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np

from mqproto.captures.pipeline.report.facts.facts import Captured, Course, Spell
from mqproto.captures.pipeline.report.facts.spread import BUCKETS, bucket, middle

STEPS: Final = 120
"""How many there are at most."""
MERGED: Final = 1 << 20
"""How many counts come together before they are merged."""
SLOW: Final = 10
"""A step is slow if half of what began in it took more than so many times as long as a quarter of all."""
SLOW_NS: Final = 10**7
"""Nor is anything slow that took less."""

SPELLS_SHOWN: Final = 5
"""So many slow times are named, the longest."""


class Steps(NamedTuple):
    """The time of the captures, in steps of equal length."""

    first_ns: int
    step_ns: int
    length: int

    def of(self, times_ns: Any) -> Any:
        """In which steps times are; what is outside is in the nearest."""
        return np.clip((times_ns - self.first_ns) // self.step_ns, 0, self.length - 1)


def steps_of(captured: Captured) -> Steps:
    """Steps that people can read, from the first frame to the last."""
    first_ns, last_ns = captured.first_ns or 0, captured.last_ns or 0
    step_ns = nice_step_ns((last_ns - first_ns) // STEPS + 1)
    begins_ns = first_ns // step_ns * step_ns
    return Steps(begins_ns, step_ns, (last_ns - begins_ns) // step_ns + 1)


def nice_step_ns(least_ns: int) -> int:
    """The next step above that people can read: 1, 2 or 5 of a decimal unit; above a second those of clocks."""
    second_ns = 10**9
    clocks = [each * second_ns for each in (1, 2, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 21_600, 86_400)]
    below = [each * 10**power for power in range(3, 9) for each in (1, 2, 5)]
    found = next((each for each in [*below, *clocks] if each >= least_ns), None)
    return found or -(-least_ns // clocks[-1]) * clocks[-1]


class Courses:
    """Durations and what waits, of some things, which are numbered from 0.

    Args:
        things: how many there are.
    """

    def __init__(self, steps: Steps, things: int) -> None:
        self._steps = steps
        self._codes = np.empty(0, dtype=np.int64)
        self._counts = np.empty(0, dtype=np.int64)
        self._new: list[tuple[Any, Any]] = []
        self._most = np.zeros((things, steps.length), dtype=np.int64)
        self._change = np.zeros((things, steps.length), dtype=np.int64)

    def took(self, things: Any, began_ns: Any, durations_ns: Any) -> None:
        """Count durations in the steps in which they began."""
        durations_ns = np.maximum(durations_ns, 0)
        step = self._steps.of(began_ns)
        np.maximum.at(self._most, (things, step), durations_ns)
        codes = (things * self._steps.length + step) * BUCKETS + bucket(durations_ns)
        self._new.append(np.unique(codes, return_counts=True))
        if sum(len(codes) for codes, _ in self._new) > MERGED:
            self._merge()

    def waited(self, things: Any, from_ns: Any, until_ns: Any, ended: Any) -> None:
        """Count what waited, and until when; what has not ended waits still."""
        np.add.at(self._change, (things, self._steps.of(from_ns)), 1)
        until = self._steps.of(np.maximum(from_ns, until_ns)[ended])
        np.add.at(self._change, (things[ended], until), -1)

    def of(self, thing: int) -> Course:
        """How it went with one of them."""
        self._merge()
        steps = self._steps
        low = thing * steps.length * BUCKETS
        first, last = np.searchsorted(self._codes, [low, low + steps.length * BUCKETS])
        step, place = np.divmod(self._codes[first:last] - low, BUCKETS)
        counts = self._counts[first:last]
        edges = np.searchsorted(step, np.arange(steps.length + 1)).tolist()
        found = Course(steps.first_ns, steps.step_ns)
        for number in range(steps.length):
            here = slice(edges[number], edges[number + 1])
            found.counts.append(int(counts[here].sum()))
            found.half_ns.append(_quantile(place[here], counts[here], 0.5))
            found.slow_ns.append(_quantile(place[here], counts[here], 0.95))
        found.most_ns = self._most[thing].tolist()
        found.waiting = np.cumsum(self._change[thing]).tolist()
        order = np.argsort(place, kind="stable")
        found.usual_ns = _quantile(place[order], counts[order], 0.25)
        found.spells = slow_spells(found)
        return found

    def _merge(self) -> None:
        if self._new:
            codes, inverse = np.unique(
                np.concatenate([self._codes, *(each for each, _ in self._new)]), return_inverse=True
            )
            counts = np.zeros(len(codes), dtype=np.int64)
            np.add.at(counts, inverse, np.concatenate([self._counts, *(each for _, each in self._new)]))
            self._codes, self._counts = codes, counts
            self._new.clear()


def _quantile(places: Any, counts: Any, share: float) -> int:
    """What this share is below; 0 of nothing."""
    if not len(counts):
        return 0
    return middle(int(places[np.searchsorted(np.cumsum(counts), share * counts.sum())]))


def slow_spells(course: Course) -> list[Spell]:
    """All times in which it was slow without a break, the longest first.

    Steps in which nothing began make no break, and do not count as slow.
    """
    level_ns = slow_level_ns(course)
    used = [step for step, count in enumerate(course.counts) if count]
    runs = [(slow, [*steps]) for slow, steps in groupby(used, lambda step: course.half_ns[step] > level_ns)]
    found = []
    for slow, steps in runs:
        until_ns = None if steps[-1] == used[-1] else course.begins_ns(steps[-1] + 1)
        if slow:
            spell = Spell(course.begins_ns(steps[0]), until_ns, sum(course.counts[step] for step in steps))
            found.append((steps[0] - steps[-1], spell))
    return [spell for _, spell in sorted(found, key=lambda each: each[0])]


def slow_level_ns(course: Course) -> int:
    """What takes longer is slow."""
    return max(SLOW * course.usual_ns, SLOW_NS)


def waiting_since_ns(course: Course) -> int | None:
    """Since when something has waited at the end of each step; None if nothing waits at the end."""
    empty = [step for step, count in enumerate(course.waiting) if count <= 0]
    if not course.waiting or (empty and empty[-1] + 1 == len(course.waiting)):
        return None
    return course.begins_ns(empty[-1] + 1 if empty else 0)

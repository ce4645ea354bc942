"""The possible offsets between two clocks: all straight lines that run between bounds from both sides.

When one clock shows `t`, the other shows `t + f(t)`. If an event is known to come before an event at the other clock,
it bounds f from one side. If it is known to come after such an event, it bounds f from the other side. Clocks run
steadily, so f is a straight line, no steeper than DRIFT_LIMIT_PPM. All lines between the bounds are possible: their
middle is the estimate of f, and the distance to the furthest line is its uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

DRIFT_LIMIT_PPM: Final = 500
"""The limit for a clock's drift. No clock is steered faster than this, and no free-running clock drifts more."""
SLACK_NS: Final = 1_000
"""The duration, in nanoseconds, by which a time written in microseconds may be too early."""
HULL_LIMIT: Final = 64
"""The number of bounds kept on each side. Leaving out others makes the estimate less exact, but it stays valid."""
BILLION: Final = 10**9

Point = tuple[int, int]
"""A time and the bound at that time, both in nanoseconds."""


class Ahead(NamedTuple):
    """How far a clock is ahead of a reference, at times on that clock.

    offset_ns: how far it is ahead at `at_ns`.
    drift_ppb: how much further ahead it gets per unit of time, in billionths.
    uncertainty_ns: the greatest error between the first and the last packet seen; None if unknown.
    packets: the number of packets compared.
    """

    offset_ns: int
    uncertainty_ns: int | None
    packets: int
    at_ns: int = 0
    drift_ppb: int = 0

    def of(self, time_ns: int) -> int:
        """Return how far the clock is ahead when it shows this time."""
        if not self.drift_ppb:
            return self.offset_ns
        return self.offset_ns + round((time_ns - self.at_ns) * (self.drift_ppb / BILLION))

    def behind(self, reference: Ahead) -> Ahead:
        """Return how far this clock is ahead of a third clock.

        Args:
            reference: how far this clock's own reference is ahead of the third clock.
        """
        drift, further = self.drift_ppb / BILLION, reference.drift_ppb / BILLION
        known = self.uncertainty_ns is not None and reference.uncertainty_ns is not None
        return Ahead(
            self.offset_ns + reference.of(self.at_ns - self.offset_ns),
            (self.uncertainty_ns or 0) + (reference.uncertainty_ns or 0) if known else None,
            self.packets,
            self.at_ns,
            round((drift + further * (1 - drift)) * BILLION),
        )


@dataclass(slots=True)
class Bounds:
    """Upper and lower bounds of a line, reduced to the points that matter.

    below: the upper bounds: points that the line passes below.
    above: the lower bounds: points that the line passes above.
    """

    below: list[Point] = field(default_factory=list)
    above: list[Point] = field(default_factory=list)

    def add(self, other: Bounds) -> None:
        """Add other bounds."""
        self.below = hull([*self.below, *other.below], lower=True)
        self.above = hull([*self.above, *other.above], lower=False)

    def values(self) -> Iterable[int]:
        """Return the values of all bounds."""
        return (value for _, value in (*self.below, *self.above))


def hull(points: Iterable[Point], *, lower: bool) -> list[Point]:
    """Return the lower or upper convex hull of points."""
    sign = 1 if lower else -1
    found: list[Point] = []
    for point in sorted(points, key=lambda point: (point[0], sign * point[1])):
        if found and found[-1][0] == point[0]:
            continue
        while len(found) > 1 and sign * _turn(found[-2], found[-1], point) <= 0:
            found.pop()
        found.append(point)
    if len(found) > HULL_LIMIT:
        step = (len(found) - 1) / (HULL_LIMIT - 1)
        found = [found[round(place * step)] for place in range(HULL_LIMIT)]
    return found


def _turn(one: Point, two: Point, three: Point) -> int:
    return (two[0] - one[0]) * (three[1] - one[1]) - (two[1] - one[1]) * (three[0] - one[0])


class Lines(NamedTuple):
    """All possible lines, given as a convex polygon whose coordinates are a line's values at two times.

    first_ns, last_ns: the two times.
    base_ns: the value that must be added to the polygon's coordinates.
    corners: the corners of the polygon.
    """

    first_ns: int
    last_ns: int
    base_ns: int
    corners: list[tuple[float, float]]

    def middle(self) -> tuple[float, float]:
        """Return the values of the line in the middle at both times; a line without slope is preferred."""
        level = [one + (other - one) * share for (one, other), share in self._level()]
        if level:
            return ((min(level) + max(level)) / 2,) * 2
        count = len(self.corners)
        return sum(one for one, _ in self.corners) / count, sum(other for _, other in self.corners) / count

    def _level(self) -> Iterable[tuple[tuple[float, float], float]]:
        """Yield the edges of the polygon where lines without slope cross its outline.

        Each comes as the values of its two corners at `first_ns`, and how far along the edge the crossing is, as a
        fraction.
        """
        for (p, q), (r, s) in pairwise([*self.corners, self.corners[0]]):
            rise, following = q - p, s - r
            if rise == 0:
                yield (p, r), 0.0
            elif rise * following < 0:
                yield (p, r), rise / (rise - following)

    def ahead(self, packets: int) -> tuple[Ahead, Ahead]:
        """Return how far the second clock is ahead of the first, and how far the first is ahead of the second."""
        one, other = self.middle()
        span = max(1, self.last_ns - self.first_ns)
        drift_ppb = round((other - one) / span * BILLION)
        # The drift is written in whole billionths.
        rest = span / BILLION + 2 if other != one else 1
        furthest = max(max(abs(p - one), abs(q - other)) for p, q in self.corners)
        offset_ns, uncertainty_ns = self.base_ns + round(one), math.ceil(furthest + rest)
        theirs = round(drift_ppb / (1 + drift_ppb / BILLION))
        return (
            Ahead(offset_ns, uncertainty_ns, packets, self.first_ns + offset_ns, theirs),
            Ahead(-offset_ns, uncertainty_ns, packets, self.first_ns, -drift_ppb),
        )


def lines_between(bounds: Bounds, first_ns: int, last_ns: int) -> Lines | None:
    """Return all lines between bounds; None if no line fits, or if one side has no bounds.

    Args:
        first_ns, last_ns: the beginning and the end of the time in which lines are compared.
    """
    if not bounds.below or not bounds.above:
        return None
    base_ns = bounds.below[0][1]
    span = max(1, last_ns - first_ns)
    steep = DRIFT_LIMIT_PPM / 1_000_000 * span
    far = max(abs(value - base_ns) for value in bounds.values()) + 2.0 * steep + SLACK_NS
    corners = [(-far, -far), (far, -far), (far, far), (-far, far)]
    corners = _clipped(_clipped(corners, -1, 1, steep), 1, -1, steep)
    for time_ns, value in bounds.below:
        share = (time_ns - first_ns) / span
        corners = _clipped(corners, 1 - share, share, value - base_ns + SLACK_NS)
    for time_ns, value in bounds.above:
        share = (time_ns - first_ns) / span
        corners = _clipped(corners, share - 1, -share, base_ns - value + SLACK_NS)
    return Lines(first_ns, last_ns, base_ns, corners) if corners else None


def _clipped(
    corners: Sequence[tuple[float, float]], a: float, b: float, most: float
) -> list[tuple[float, float]]:
    """Return the part of a polygon where a·p + b·q is at most `most`."""
    found: list[tuple[float, float]] = []
    if not corners:
        return found
    over = [a * p + b * q - most for p, q in corners]
    for place, (p, q) in enumerate(corners):
        following = (place + 1) % len(corners)
        if over[place] <= 0:
            found.append((p, q))
        if over[place] * over[following] < 0:
            share = over[place] / (over[place] - over[following])
            r, s = corners[following]
            found.append((p + (r - p) * share, q + (s - q) * share))
    return found

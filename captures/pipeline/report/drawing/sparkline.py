"""How it went over time, so small that it has room in a row of a table: drawn by hand, in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from mqproto.captures.pipeline.report.facts.facts import Course
from mqproto.captures.pipeline.report.facts.overtime import SPELLS_SHOWN, waiting_since_ns
from mqproto.captures.pipeline.report.facts.words import about, clock, counted, escaped

WIDTH: Final = 240
TOOK: Final = 38
"""How high what it took is drawn, from a logarithm; below it stands how many waited."""
WAITED: Final = 16
HEIGHT: Final = TOOK + WAITED + 4
LEAST_NS: Final = 1_000
DECADES: Final = 2
"""A range is never shorter than that: or small differences would look large."""


def sparkline(course: Course, waiting: str) -> str:
    """A picture, with what it says in words for those who do not see it.

    Args:
        waiting: what it means to wait: `not seen to end`.
    """
    said = "; ".join(spoken(course, waiting))
    most = max(max(course.slow_ns, default=0), LEAST_NS)
    least = min([ns for ns in course.half_ns if ns] or [most])
    low = math.log10(max(min(least, most / 10**DECADES), LEAST_NS))
    span = math.log10(most) - low or 1

    def height(ns: int) -> float:
        return TOOK - (TOOK - 2) * max(math.log10(max(ns, LEAST_NS)) - low, 0) / span

    slow, half = (
        _line([height(ns) if count else None for ns, count in zip(values, course.counts, strict=True)])
        for values in (course.slow_ns, course.half_ns)
    )
    paths = {"waiting": _area(course), "slow": slow, "half": half}
    drawn = "".join(f'<path class="{name}" d="{path}"/>' for name, path in paths.items())
    label = escaped(said, limit=None)
    return f'<svg class="course" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{drawn}</svg>'


def _across(place: float, steps: int) -> str:
    return f"{place * WIDTH / steps:.4g}"


def _line(heights: list[float | None]) -> str:
    """A line through all heights; it is broken where there is none."""
    parts = []
    is_down = False
    for step, height in enumerate(heights):
        if height is not None:
            parts.append(f"{'L' if is_down else 'M'}{_across(step + 0.5, len(heights))} {height:.4g}")
            if not is_down:
                parts.append("h.01")  # A point by itself is a line, too.
        is_down = height is not None
    return "".join(parts)


def _area(course: Course) -> str:
    most, steps = max([1, *course.waiting]), len(course.waiting)
    parts = [f"M0 {HEIGHT}"]
    before = 0
    for step, count in enumerate(course.waiting):
        if count != before:
            parts.append(f"H{_across(step, steps)}V{HEIGHT - WAITED * max(count, 0) / most:.4g}")
        before = count
    return f"{''.join(parts)}H{WIDTH}V{HEIGHT}Z"


def spoken(course: Course, waiting: str) -> Iterator[str]:
    """What its course says: since when it is slow, and since when something waits."""
    yield from slow_texts(course)
    if any(course.counts):
        step = max(range(len(course.counts)), key=lambda step: course.slow_ns[step])
        at = _at(course, course.begins_ns(step))
        yield f"slowest at {at}, where 95 % took {about(course.slow_ns[step])} at most"
    if any(count > 0 for count in course.waiting):
        yield waiting_text(course, waiting)


def slow_texts(course: Course) -> Iterator[str]:
    """`slow from 12:40:00 to 12:41:00: 230 messages; a connection was reset`; `slow since 12:40:00: ...`."""
    for spell in course.spells[:SPELLS_SHOWN]:
        until = "" if spell.until_ns is None else f" to {_at(course, spell.until_ns)}"
        said = [counted(spell.messages, "message")]
        said += ["a connection was reset"] * bool(spell.reset)
        said += [f"{name} had no connection in use for {about(ns)}" for name, ns in spell.without.items()]
        if spell.reset is False and not spell.without:
            said.append("no connection was reset or out of use")
        yield f"slow {'from' if until else 'since'} {_at(course, spell.from_ns)}{until}: {'; '.join(said)}"
    more = len(course.spells) - SPELLS_SHOWN
    if more > 0:
        yield f"and {counted(more, 'time')} more in which it was slow"


def waiting_text(course: Course, waiting: str) -> str:
    """`3 not seen to end since 12:40:00, at most 5 at 12:41:00`; nothing if none ever was."""
    most = max(course.waiting, default=0)
    if most <= 0:
        return ""
    peak = _at(course, course.begins_ns(course.waiting.index(most) + 1))
    since_ns = waiting_since_ns(course)
    if since_ns is None:
        return f"at most {most:,} {waiting}, at {peak}"
    last = course.waiting[-1]
    more = f", at most {most:,} at {peak}" if most > last else ""
    return f"{last:,} {waiting}, some at all times since {_at(course, since_ns)}{more}"


def _at(course: Course, time_ns: int) -> str:
    return clock(time_ns, course.first_ns)

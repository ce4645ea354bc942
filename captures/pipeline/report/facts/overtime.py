"""Delays and waiting messages over time, which show how long something has been slow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final, NamedTuple

from mqproto.base.words import counted
from mqproto.captures.pipeline.report.facts.facts import Captured, Course, Spell
from mqproto.captures.pipeline.report.facts.words import about, clock

STEPS: Final = 120
"""The maximum number of steps."""
SLOW: Final = 10
"""A step is slow if the median of its durations is more than this many times the lower quartile of all durations."""
SLOW_NS: Final = 10**7
"""Only durations above this number of nanoseconds can be slow."""

SPELLS_SHOWN: Final = 5
"""The number of slow times that are named, the longest first."""


class Steps(NamedTuple):
    """The time of the captures, in steps of equal length."""

    first_ns: int
    step_ns: int
    length: int


def steps_of(captured: Captured) -> Steps:
    """Return steps of a round length, from the first frame to the last."""
    first_ns, last_ns = captured.first_ns or 0, captured.last_ns or 0
    step_ns = nice_step_ns((last_ns - first_ns) // STEPS + 1)
    begins_ns = first_ns // step_ns * step_ns
    return Steps(begins_ns, step_ns, (last_ns - begins_ns) // step_ns + 1)


def nice_step_ns(least_ns: int) -> int:
    """Return the shortest round step that is long enough.

    Below a second, it is 1, 2 or 5 times a power of ten; from a second on, it is a round number of seconds, minutes,
    hours or days.
    """
    second_ns = 10**9
    clocks = [each * second_ns for each in (1, 2, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 21_600, 86_400)]
    below = [each * 10**power for power in range(3, 9) for each in (1, 2, 5)]
    found = next((each for each in [*below, *clocks] if each >= least_ns), None)
    return found or -(-least_ns // clocks[-1]) * clocks[-1]


def slow_spells(course: Course) -> list[Spell]:
    """Return all periods that were slow without interruption, the longest first.

    Steps in which nothing began neither interrupt such a period nor count as slow.
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
    """Return the duration above which something is slow."""
    return max(SLOW * course.usual_ns, SLOW_NS)


def waiting_since_ns(course: Course) -> int | None:
    """Return the time since which messages have been waiting at the end of every step.

    Return None if no messages wait at the end of the last step.
    """
    empty = [step for step, count in enumerate(course.waiting) if count <= 0]
    if not course.waiting or (empty and empty[-1] + 1 == len(course.waiting)):
        return None
    return course.begins_ns(empty[-1] + 1 if empty else 0)


def spoken(course: Course, waiting: str) -> Iterator[str]:
    """Yield a course in words: when it was slow, when it was slowest, and how many messages waited."""
    yield from slow_texts(course)
    if any(course.counts):
        step = max(range(len(course.counts)), key=lambda step: course.slow_ns[step])
        at = _at(course, course.begins_ns(step))
        yield f"slowest at {at}, where 95 % took {about(course.slow_ns[step])} at most"
    if any(count > 0 for count in course.waiting):
        yield waiting_text(course, waiting)


def slow_texts(course: Course, limit: int = SPELLS_SHOWN) -> Iterator[str]:
    """Yield texts such as `slow from 12:40:00 to 12:41:00: 230 messages; a connection was reset`.

    The text is `slow since 12:40:00: ...` if it is still slow.
    """
    for spell in course.spells[:limit]:
        until = "" if spell.until_ns is None else f" to {_at(course, spell.until_ns)}"
        said = [counted(spell.messages, "message"), *happened(spell)]
        yield f"slow {'from' if until else 'since'} {_at(course, spell.from_ns)}{until}: {'; '.join(said)}"
    more = len(course.spells) - limit
    if more > 0:
        yield f"and {counted(more, 'time')} more in which it was slow"


def happened(spell: Spell) -> Iterator[str]:
    """Yield what happened to connections during a spell."""
    if spell.reset:
        yield "a connection was reset"
    yield from (f"{name} had no connection in use for {about(ns)}" for name, ns in spell.without.items())
    if spell.reset is False and not spell.without:
        yield "no connection was reset or out of use"


def waiting_text(course: Course, waiting: str) -> str:
    """Return a text such as `3 waiting, some at all times since 12:40:00, at most 5 at 12:41:00`.

    The text is `at most 5 waiting, at 12:41:00` if none wait at the end. Return "" if no message ever waited.
    """
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

"""Draws facts as pictures in the colors of the page; each picture has a description in words.

Bars over time show packets of each sort, and bytes. Lines over time show delays to a queue or over a hop, and the
number of waiting messages. A histogram shows how long messages took from end to end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mqproto.captures.decode.views.words import duration
from mqproto.captures.drawing.charts import (
    WIDTH,
    Canvas,
    Tick,
    axes,
    boxes,
    label,
    line,
    marks,
    picture,
)
from mqproto.captures.drawing.shapes import SvgElement
from mqproto.captures.pipeline.report.facts.facts import (
    TO_DESTINATION,
    TO_ORDER_ACK,
    Course,
    Hop,
    Messages,
    Queue,
    Traffic,
)
from mqproto.captures.pipeline.report.facts.overtime import nice_step_ns, spoken
from mqproto.captures.pipeline.report.facts.spread import Spread
from mqproto.captures.pipeline.report.facts.words import about, harmless, size, when

COURSES_DRAWN: Final = 4
LEAST_NS: Final = 1_000
"""The shortest duration that is drawn as it is; shorter ones are drawn as this one.

0 has no place on a logarithmic axis.
"""
DECADES: Final = 2
"""The shortest length of a logarithmic axis, in decades: on a shorter one, small differences would look large."""
LEFT: Final = 68
"""The width of the axis labels, to the left of the drawing."""
ACROSS: Final = WIDTH - LEFT - 8
ROW: Final = Canvas(0, 2, 240, 36)
"""The place of a course in a table row, above its count of waiting messages."""
ROW_WAITING: Final = Canvas(0, 42, 240, 16)
TIMES_NS: Final = [
    *(10**power for power in range(3, 11)),
    *(60 * 10**9 * each for each in (1, 10, 60, 600, 1_440, 14_400, 144_000)),
]


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture, as a part of a page; its title says what it shows."""

    title: str
    svg: str


def traffic_figures(traffic: Traffic) -> Iterator[Figure]:
    """Yield two charts: packets of each sort over time, and bytes of all packets."""
    step = duration(traffic.step_ns)
    for sort, counts in traffic.packets.items():
        yield _bars(
            f"{sum(counts):,} {sort}", f"packets per {step}", counts, traffic, lambda count: f"{count:,}"
        )
    title = f"{size(sum(traffic.size_bytes))} in all packets"
    yield _bars(title, f"bytes per {step}", traffic.size_bytes, traffic, size)


def _bars(title: str, unit: str, counts: list[int], traffic: Traffic, text: Callable[[int], str]) -> Figure:
    most, steps = max(counts), len(counts)
    canvas = Canvas(LEFT, 24, ACROSS, 70)
    bars = [(step / steps, (step + 1) / steps, count / max(most, 1)) for step, count in enumerate(counts)]
    up = [Tick(each / max(most, 1), text(each)) for each in marks(most)]
    across, since = _clock(traffic.first_ns, steps * traffic.step_ns)
    said = f"{title}, over time: most, {text(most)} in {duration(traffic.step_ns)}, "
    said += f"{duration(counts.index(most) * traffic.step_ns)} after the first."
    inner = [*axes(canvas, across, up, since, unit), boxes(canvas, "bar", bars)]
    return Figure(title, picture("chart", WIDTH, 130, said, inner))


def _clock(first_ns: int, span_ns: int) -> tuple[list[Tick], str]:
    """Return marks for a time axis, at round offsets from a start time, and a caption that states the start time."""
    step_ns = nice_step_ns(span_ns // 5 + 1)
    places = range(0, span_ns + 1, step_ns)
    ticks = [Tick(place / span_ns, duration(place) if place else "0") for place in places]
    return ticks, f"time since {when(first_ns)} UTC"


class _Scale:
    """A logarithmic scale with room for some durations.

    at: returns the place of a duration, as a fraction of the scale.
    """

    def __init__(self, found_ns: Iterable[int]) -> None:
        used = [max(ns, LEAST_NS) for ns in found_ns] or [LEAST_NS]
        low, high = math.log10(min(used)) - 0.1, math.log10(max(used)) + 0.1
        lacks = max(0, DECADES - (high - low)) / 2
        self._low, self._span = low - lacks, high - low + 2 * lacks

    def at(self, ns: int) -> float:
        return (math.log10(max(ns, LEAST_NS)) - self._low) / self._span

    def ticks(self, limit: int) -> list[Tick]:
        """Return marks at round durations; only every second or third one if there are more than `limit`."""
        found = [Tick(self.at(ns), duration(ns)) for ns in TIMES_NS if 0 <= self.at(ns) <= 1]
        return found[:: -(-len(found) // limit)] if found else []


def latency_figures(messages: Messages) -> Iterator[Figure]:
    """Yield histograms of how long messages took from end to end."""
    for what, spread in ((TO_DESTINATION, messages.arrived), (TO_ORDER_ACK, messages.confirmed)):
        if spread.count:
            yield _histogram(what, spread)


def _histogram(what: str, spread: Spread) -> Figure:
    canvas = Canvas(LEFT, 24, ACROSS, 100)
    bars = spread.bars()
    most = max(count for *_, count in bars)
    scale = _Scale([spread.least, spread.most])
    shares = {share: about(spread.quantile(share)) for share in (0.5, 0.95, 0.99)}
    lines = []
    for row, (share, text) in enumerate(shares.items()):
        at = scale.at(spread.quantile(share))
        x, y = canvas.x(at), canvas.top + 12 + 16 * row
        lines.append(SvgElement("path", {"class": "share", "d": f"M{x:.4g} {canvas.top}V{canvas.y(0)}"}))
        is_left = at > 0.7
        lines.append(
            label(x - 5 if is_left else x + 5, y, f"{share:.0%}: {text}", "end" if is_left else "start")
        )
    drawn = [
        (scale.at(low_ns), max(scale.at(high_ns), scale.at(low_ns) + 0.01), count / most)
        for low_ns, high_ns, count in bars
    ]
    up = [Tick(each / most, f"{each:,}") for each in marks(most)]
    said = f"{spread.count:,} messages {what}: "
    said += ", ".join(f"{share:.0%} below {text}" for share, text in shares.items())
    inner = [
        *axes(canvas, scale.ticks(6), up, f"time from {what}", "messages"),
        boxes(canvas, "bar", drawn),
        *lines,
    ]
    svg = picture("chart", WIDTH, 160, f"{said}, at most {duration(spread.most)}.", inner)
    return Figure(f"{what[0].upper()}{what[1:]}, {spread.count:,} messages", svg)


def course_figures(rows: Sequence[Hop | Queue], waiting: str) -> Iterator[Figure]:
    """Yield a chart for each of the first hops or queues: delays, and the number of waiting messages, over time.

    Args:
        rows: the hops or queues, with those that are most worth a look first.
        waiting: the words for messages that wait, such as `waiting`.
    """
    courses = [(row.title, row.course) for row in rows if row.course is not None]
    shown = [(what, course) for what, course in courses if any(course.counts) or any(course.waiting)]
    for what, course in shown[:COURSES_DRAWN]:
        canvas, below = Canvas(LEFT, 24, ACROSS, 88), Canvas(LEFT, 130, ACROSS, 22)
        across, since = _clock(course.first_ns, len(course.counts) * course.step_ns)
        most = max([1, *course.waiting])
        key = [
            line(Canvas(0, 0, WIDTH, 14), style, [(at, 0.5), (at + 0.05, 0.5)])
            for style, at in (("half", 0.6), ("slow", 0.82))
        ]
        inner = [
            *axes(canvas, (), _scale(course).ticks(5), above="it took, of those begun in a step"),
            *key, label(WIDTH * 0.66, 11, "half"), label(WIDTH * 0.88, 11, "95 %"),
            *axes(below, across, [Tick(1, f"{most:,}")], since),
            label(LEFT, 127, f"how many were {waiting}"),
            *_drawn(course, canvas, below),
        ]  # fmt: skip
        said = harmless(f"{what}: {', '.join(spoken(course, waiting)) or 'nothing to tell'}.", limit=None)
        yield Figure(harmless(what), picture("chart", WIDTH, 188, said, inner))


def _scale(course: Course) -> _Scale:
    return _Scale(
        ns
        for values in (course.half_ns, course.slow_ns)
        for ns, count in zip(values, course.counts, strict=True)
        if count
    )


def _drawn(course: Course, canvas: Canvas, below: Canvas) -> Iterator[SvgElement]:
    scale, steps = _scale(course), len(course.counts)
    most = max([1, *course.waiting])
    yield boxes(
        below,
        "waiting",
        ((step / steps, (step + 1) / steps, count / most) for step, count in enumerate(course.waiting)),
    )
    for style, values in (("slow", course.slow_ns), ("half", course.half_ns)):
        heights = [scale.at(ns) if count else None for ns, count in zip(values, course.counts, strict=True)]
        yield line(canvas, style, (((step + 0.5) / steps, height) for step, height in enumerate(heights)))


def sparkline(course: Course, waiting: str) -> str:
    """Return a course as a picture small enough for a table row."""
    said = harmless("; ".join(spoken(course, waiting)), limit=None)
    return picture("course", 240, 60, said, _drawn(course, ROW, ROW_WAITING))

"""Costs as a picture: SVG, the same bytes for the same figures.

Both axes are logarithms, so what grows by the same factor looks the same everywhere, and a cost that is proportional
to something is a straight line.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from captures.drawing.shapes import document

WIDTH: Final = 380
HEIGHT: Final = 230
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 34, 34
"""Around the axes of a panel, for its words."""
COLUMNS: Final = 2
INK, FAINT, BLUE = "#1a1a1a", "#dddddd", "#00507a"
SPREAD: Final = 4
"""The cost axis spans at least this factor, so that what is nearly flat looks so."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One series.

    costs: by point, all runs.
    """

    title: str
    unit: str
    costs: Mapping[int, Sequence[float]]


@dataclass(frozen=True, slots=True)
class _Axis:
    """A range of values on a range of dots, by logarithms."""

    least: float
    most: float
    first: float
    last: float

    def at(self, value: float) -> float:
        share = math.log(value / self.least) / math.log(self.most / self.least)
        return self.first + share * (self.last - self.first)


def plotted(title: str, panels: Iterable[Panel]) -> str:
    """All of them, two in a row: medians joined by a line, and a bar from the least to the most at each point."""
    parts = list(panels)
    rows = math.ceil(len(parts) / COLUMNS)
    lines = [
        '<rect width="100%" height="100%" fill="white"/>',
        f'<g font-family="sans-serif" font-size="11" fill="{INK}">',
    ]
    for place, panel in enumerate(parts):
        x, y = place % COLUMNS * WIDTH, place // COLUMNS * HEIGHT
        lines += [f'<g transform="translate({x} {y})">', *_drawn(panel), "</g>"]
    lines.append("</g>")
    return "\n".join([*document(title, COLUMNS * WIDTH, rows * HEIGHT, lines), ""])


def _drawn(panel: Panel) -> Iterator[str]:
    points = sorted(panel.costs)
    across = _Axis(points[0] / 1.3, points[-1] * 1.3, LEFT, WIDTH - RIGHT)
    up = _Axis(*_range(panel), HEIGHT - BOTTOM, TOP)
    yield f'<text x="{LEFT}" y="16" font-weight="bold">{escape(panel.title)}, {escape(panel.unit)}</text>'
    for value in _ticks(up):
        y = up.at(value)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{FAINT}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.10g}</text>'
    for point in points:
        yield f'<text x="{across.at(point):.1f}" y="{HEIGHT - 14}" text-anchor="middle">{_short(point)}</text>'
    medians = {point: statistics.median(panel.costs[point]) for point in points}
    line = " ".join(f"{across.at(point):.1f},{up.at(cost):.1f}" for point, cost in medians.items())
    yield f'<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>'
    for point, median in medians.items():
        x, costs = across.at(point), panel.costs[point]
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{up.at(min(costs)):.1f}" y2="{up.at(max(costs)):.1f}"'
            f' stroke="{BLUE}"/>'
        )
        yield f'<circle cx="{x:.1f}" cy="{up.at(median):.1f}" r="3" fill="{BLUE}"/>'


def _range(panel: Panel) -> tuple[float, float]:
    """What the cost axis spans."""
    costs = [cost for runs in panel.costs.values() for cost in runs]
    least, most = min(costs), max(costs)
    wider = max(1.1, math.sqrt(SPREAD * least / most))
    return least / wider, most * wider


def _ticks(axis: _Axis) -> Iterator[float]:
    """1, 2, 5, 10, 20 and so on, as far as the axis goes; of many only the powers of ten."""
    first, last = math.floor(math.log10(axis.least)), math.ceil(math.log10(axis.most))
    for exponent in range(first, last + 1):
        for digit in (1, 2, 5) if last - first < 4 else (1,):
            if axis.least <= (value := digit * 10.0**exponent) <= axis.most:
                yield value


def _short(value: int) -> str:
    """A number of bytes or other things, in the room that an axis has."""
    for unit, size in (("Mi", 2**20), ("Ki", 2**10)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value}"

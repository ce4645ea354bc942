"""The route map: queue managers, and the hops between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.patches import FancyArrowPatch
from matplotlib.transforms import Bbox

from mqproto.captures.drawing.placing import Point, Sheet, along, bend, label_lines, placed
from mqproto.captures.pipeline.report.drawing.drawing import (
    BLUE,
    WIDTH_IN,
    Figure,
    drawn,
    enlarged,
    shortened,
)
from mqproto.captures.pipeline.report.facts.facts import Hop, Routes
from mqproto.captures.pipeline.report.facts.ranking import worth_a_look
from mqproto.captures.pipeline.report.facts.words import about, harmless, rate

NODES_DRAWN: Final = 14
HOPS_DRAWN: Final = 24
SHEET: Final = Sheet(width=WIDTH_IN, edge=0.3, side=2.2, row=1.1, dense_row=0.75, column=3.2)
"""In inches."""
INCH: Final = 72
ALONG: Final = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74)
"""Where along its arrow a text may stand, the best first."""
NEAR: Final = 6
OVER_BOXES: Final = 24


def drawn_hops(routes: Routes) -> list[Hop]:
    """Those that the map has: the slowest, and those that most messages crossed, as long as their ends are few."""
    between = [hop for hop in routes.hops if hop.from_key != hop.to_key]
    worth = worth_a_look(between, HOPS_DRAWN)
    ends: set[str] = set()
    found = []
    for hop in worth:
        both = ends | {hop.from_key, hop.to_key}
        if len(both) <= NODES_DRAWN:
            ends = both
            found.append(hop)
    return sorted(found, key=lambda hop: (-hop.messages, hop.first_ns, hop.from_key, hop.to_key))


def map_figure(routes: Routes) -> Figure | None:
    """Each hop with how many messages crossed it, how fast, and how long they waited, or how soon it was answered."""
    hops = drawn_hops(routes)
    if not hops:
        return None
    shown = {hop.from_key: hop.from_label for hop in hops} | {hop.to_key: hop.to_label for hop in hops}
    places, height_in = _places(hops)

    def draw(canvas: Any) -> None:
        axes = canvas.add_axes((0, 0, 1, 1))  # One unit is one inch.
        axes.set_axis_off()
        axes.set_xlim(0, WIDTH_IN)
        axes.set_ylim(0, height_in)
        boxes = {
            key: axes.text(
                *place, "\n".join(label_lines(shortened(shown[key]))),
                ha="center", va="center", fontsize=10, fontweight="bold", zorder=4,
                bbox={"boxstyle": "round,pad=0.7", "facecolor": "#eaf3f8", "edgecolor": BLUE, "linewidth": 1.5},
            )
            for key, place in places.items()
        }  # fmt: skip
        canvas.draw_without_rendering()  # Arrows end at boxes, whose size is known only now.
        patches = {key: box.get_bbox_patch() for key, box in boxes.items()}
        _draw_hops(axes, hops, places, patches)

    alt = "Route map: " + "; ".join(
        f"{harmless(hop.from_label)} to {harmless(hop.to_label)}, {', '.join(_said(hop))}" for hop in hops
    )
    return Figure("map", "Route map", alt + ".", drawn(draw, height_in, is_laid_out=False))


@dataclass(frozen=True, slots=True)
class _Arrow:
    """A hop on the map.

    curve: points of it, in dots.
    """

    hop: Hop
    start: Point
    end: Point
    bend: float
    curve: Any


def _arrows(hops: list[Hop], places: dict[str, Point]) -> Iterator[_Arrow]:
    pairs = {(hop.from_key, hop.to_key) for hop in hops}
    for hop in hops:
        start, end = places[hop.from_key], places[hop.to_key]
        bent = bend(start, end, places.values(), is_returned=(hop.to_key, hop.from_key) in pairs)
        points = [_point(start, end, bent, part) for part in np.linspace(0, 1, 41)]
        yield _Arrow(hop, start, end, bent, np.array(points) * INCH)


def _draw_hops(axes: Any, hops: list[Hop], places: dict[str, Point], patches: dict[str, Any]) -> None:
    """Arrows, and their texts where these touch no box and no other text."""
    arrows = list(_arrows(hops, places))
    most = max(hop.messages for hop in hops)
    for arrow in arrows:
        axes.add_patch(
            FancyArrowPatch(
                arrow.start, arrow.end, connectionstyle=f"arc3,rad={arrow.bend}", arrowstyle="-|>", mutation_scale=18,
                patchA=patches[arrow.hop.from_key], patchB=patches[arrow.hop.to_key],
                shrinkA=1, shrinkB=1, color=BLUE, linewidth=1 + 2 * arrow.hop.messages / most, zorder=2,
            )
        )  # fmt: skip
    taken = [patch.get_window_extent() for patch in patches.values()]
    for arrow in arrows:
        others = np.concatenate([np.empty((0, 2)), *(other.curve for other in arrows if other is not arrow)])
        box = _write_beside(axes, arrow, others, taken)
        if box is not None:
            taken.append(box)


def _write_beside(axes: Any, arrow: _Arrow, others: Any, taken: list[Any]) -> Any:
    """Write as much as there is room for beside an arrow; where there is none at all, nothing is written.

    Args:
        others: points of other arrows, in dots. A text had rather cover its own, lest it seems to speak of another.
        taken: boxes that it must not touch, in dots.

    Returns:
        The box of what was written, or None.
    """
    note = axes.annotate(
        "", arrow.start, xytext=(0, 0), textcoords="offset points", fontsize=9, zorder=3,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85},
    )  # fmt: skip
    for text in _texts(arrow.hop):
        note.set_text(text)
        size = note.get_window_extent()  # Measured once: it is slow.
        for apart in (NEAR, OVER_BOXES):
            free = []
            for rank, (point, away) in enumerate(_sides(arrow, apart)):
                box = _box(size, point, away)
                if _is_within(box, axes.bbox) and not any(box.overlaps(other) for other in taken):
                    covered = 2 * _count_in(box, others) + _count_in(box, arrow.curve)
                    free.append((covered, rank, point, away))
            if free:
                _, _, point, away = min(free)
                note.xy = point
                note.set_position(away)
                note.set_ha(("right", "center", "left")[1 + _sign(away[0])])
                note.set_va(("top", "center", "bottom")[1 + _sign(away[1])])
                return _box(size, point, away)
    note.remove()
    return None


def _count_in(box: Any, points: Any) -> int:
    inside = (points > (box.x0, box.y0)) & (points < (box.x1, box.y1))
    return int(inside.all(axis=1).sum())


def _box(size: Any, point: Point, away: tuple[int, int]) -> Any:
    """Where a text of that size is, if it stands so far away from a point."""
    left, bottom = (
        INCH * middle + apart + (_sign(apart) - 1) * length / 2
        for middle, apart, length in zip(point, away, (size.width, size.height), strict=True)
    )
    return enlarged(Bbox.from_bounds(left, bottom, size.width, size.height))


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _is_within(box: Any, frame: Any) -> bool:
    return bool(box.x0 >= frame.x0 and box.y0 >= frame.y0 and box.x1 <= frame.x1 and box.y1 <= frame.y1)


def _sides(arrow: _Arrow, apart: int) -> Iterator[tuple[Point, tuple[int, int]]]:
    """Points along an arrow, and how far from them a text may stand, in dots; the best first.

    Only an arrow from left to right has room further away than NEAR, over the boxes at its ends.
    """
    dx, dy = arrow.end[0] - arrow.start[0], arrow.end[1] - arrow.start[1]
    outward = math.copysign(1, arrow.bend)
    if not arrow.bend:  # Above a straight one, or to the right of it if it is steep.
        outward = math.copysign(1, dy if abs(dx) < abs(dy) else -dx)
    length = math.hypot(dx, dy)
    out = [round(0.8 * outward * each / length) for each in (dy, -dx)]
    if apart > NEAR and out[0] != 0:
        return
    for part in ALONG:
        point = _point(arrow.start, arrow.end, arrow.bend, part)
        for sign in (apart, -apart):
            yield point, (sign * out[0], sign * out[1])


def _places(hops: Sequence[Hop]) -> tuple[dict[str, Point], float]:
    """Where the middles of queue managers are, from the left and from the bottom, and how high it all is."""
    places, height_in = placed(hops, SHEET)
    return {key: (x, height_in - y) for key, (x, y) in places.items()}, height_in


def _point(start: Point, end: Point, bent: float, part: float) -> Point:
    """As `along`, with y upwards: there it bends to the other side."""
    return along(start, end, -bent, part)


def _said(hop: Hop) -> list[str]:
    said = [f"{hop.messages:,} messages" if hop.messages > 1 else "1 message"]
    speed = rate(hop.messages, hop.last_ns - hop.first_ns)
    if speed != "–":
        said.append(speed)
    if hop.waited.count:
        said.append(f"waited {about(hop.waited.quantile(0.5))}")
    elif hop.answered.count:
        said.append(f"answered in {about(hop.answered.quantile(0.5))}")
    return said


def _texts(hop: Hop) -> list[str]:
    """What an arrow may say, all of it first, then less."""
    said = _said(hop)
    flat = [", ".join(said[:2]), *said[2:]]
    return ["\n".join(flat), "\n".join(said), said[0], f"{hop.messages:,}"]

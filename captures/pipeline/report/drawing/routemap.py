"""The route map: queue managers, and the hops between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mqproto.base.words import counted
from mqproto.captures.drawing.charts import CHARACTER, LINE, label, picture
from mqproto.captures.drawing.placing import Point, Room, Sheet, along, bend, label_lines, placed
from mqproto.captures.drawing.shapes import SvgElement
from mqproto.captures.pipeline.report.drawing.figures import Figure
from mqproto.captures.pipeline.report.facts.facts import Hop, Routes, worth_a_look
from mqproto.captures.pipeline.report.facts.words import about, harmless, rate

NODES_DRAWN: Final = 14
HOPS_DRAWN: Final = 24
LABEL_LIMIT: Final = 28
SHEET: Final = Sheet(width=720, edge=24, side=150, row=86, dense_row=62, column=285)
PARTS: Final = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74)
"""The places along an arrow where a text may be put, the best first."""
NEAR: Final = 5
POINTS: Final = 40
"""The number of line segments in an arrow."""


@dataclass(frozen=True, slots=True)
class _Arrow:
    """A hop on the map: the points of its curve from one box to the other."""

    hop: Hop
    curve: Sequence[Point]


def drawn_hops(routes: Routes) -> list[Hop]:
    """Return the hops on the map: the slowest ones and those with the most messages.

    A hop is left out if it would bring too many queue managers onto the map.
    """
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
    """Draw each hop with its number of messages, its speed, and how long messages waited or answers took."""
    hops = drawn_hops(routes)
    if not hops:
        return None
    shown = {hop.from_key: hop.from_label for hop in hops} | {hop.to_key: hop.to_label for hop in hops}
    places, height = placed(hops, SHEET)
    lines = {key: label_lines(_shortened(shown[key])) for key in places}
    rooms = {
        key: Room(*place, CHARACTER * 1.1 * max(map(len, lines[key])) + 18, LINE * len(lines[key]) + 14)
        for key, place in places.items()
    }
    arrows = list(_arrows(hops, places, rooms))
    most = max(hop.messages for hop in hops)
    inner = [each for arrow in arrows for each in _arrow(arrow, 1 + 2 * arrow.hop.messages / most)]
    inner += [_node(rooms[key], lines[key]) for key in rooms]
    inner += _texts(arrows, [*rooms.values()], height)
    said = "; ".join(
        f"{harmless(hop.from_label)} to {harmless(hop.to_label)}, {', '.join(_said(hop))}" for hop in hops
    )
    return Figure("Route map", picture("map", SHEET.width, height, f"Route map: {said}.", inner))


def _node(room: Room, name: list[str]) -> SvgElement:
    corner = {"x": room.x - room.width / 2, "y": room.y - room.height / 2}
    box = SvgElement("rect", {**corner, "width": room.width, "height": room.height, "rx": 6})
    return SvgElement("g", {"class": "node"}, [box, *_lines(room, name)])


def _lines(room: Room, texts: list[str]) -> Iterator[SvgElement]:
    """Yield centered lines of text, one below the other."""
    top = room.y + 4 - LINE * (len(texts) - 1) / 2
    yield from (label(room.x, top + LINE * row, text, "middle") for row, text in enumerate(texts))


def _shortened(label: str) -> str:
    """Return a label, shortened to fit into a box."""
    shown = harmless(label)
    return shown if len(shown) <= LABEL_LIMIT else f"{shown[: LABEL_LIMIT - 1]}…"


def _arrows(hops: list[Hop], places: dict[str, Point], rooms: dict[str, Room]) -> Iterator[_Arrow]:
    pairs = {(hop.from_key, hop.to_key) for hop in hops}
    for hop in hops:
        start, end = places[hop.from_key], places[hop.to_key]
        bent = bend(start, end, places.values(), is_returned=(hop.to_key, hop.from_key) in pairs)
        points = [along(start, end, bent, part / POINTS) for part in range(POINTS + 1)]
        ends = rooms[hop.from_key], rooms[hop.to_key]
        yield _Arrow(hop, [point for point in points if not any(room.has(point) for room in ends)] or points)


def _arrow(arrow: _Arrow, width: float) -> Iterator[SvgElement]:
    (back_x, back_y), (x, y) = arrow.curve[-2:]
    way = "L".join(f"{x:.4g} {y:.4g}" for x, y in arrow.curve)
    yield SvgElement("path", {"class": "hop", "d": f"M{way}", "stroke-width": round(width, 1)})
    length = math.dist((back_x, back_y), (x, y)) or 1
    dx, dy = (x - back_x) / length, (y - back_y) / length
    wings = (f"{x - 9 * dx + side * dy:.4g} {y - 9 * dy - side * dx:.4g}" for side in (5, -5))
    yield SvgElement("path", {"class": "head", "d": f"M{x:.4g} {y:.4g}L{'L'.join(wings)}Z"})


def _texts(arrows: list[_Arrow], taken: list[Room], height: float) -> Iterator[SvgElement]:
    """Yield the texts of the arrows.

    Each arrow gets the longest text next to it that touches no box and no other text, or none if none fits. A text
    should cover its own arrow rather than others, because readers take it to describe what it covers.
    """
    for arrow in arrows:
        others = [point for other in arrows if other is not arrow for point in other.curve]
        for text in _variants(arrow.hop):
            wide, high = CHARACTER * max(map(len, text)), LINE * len(text)
            free = []
            for rank, (x, y) in enumerate(_spots(arrow, wide, high)):
                room = Room(x, y, wide + 4, high + 2)
                if room.is_within(SHEET.width, height) and not any(map(room.meets, taken)):
                    covered = 2 * sum(map(room.has, others)) + sum(map(room.has, arrow.curve))
                    free.append((covered, rank, room))
            if free:
                room = min(free)[-1]
                taken.append(room)
                yield from _lines(room, text)
                break


def _spots(arrow: _Arrow, wide: float, high: float) -> Iterator[Point]:
    """Yield possible centers of a text, next to points along an arrow, on either side."""
    last = len(arrow.curve) - 1
    (x, y), (to_x, to_y) = arrow.curve[0], arrow.curve[-1]
    length = math.dist((x, y), (to_x, to_y)) or 1
    nx, ny = (to_y - y) / length, (x - to_x) / length
    away = abs(nx) * wide / 2 + abs(ny) * high / 2 + NEAR
    for part in PARTS:
        x, y = arrow.curve[round(part * last)]
        yield from ((x + side * nx * away, y + side * ny * away) for side in (1, -1))


def _said(hop: Hop) -> list[str]:
    said = [counted(hop.messages, "message")]
    speed = rate(hop.messages, hop.last_ns - hop.first_ns)
    if speed != "–":
        said.append(speed)
    if hop.waited.count:
        said.append(f"waited {about(hop.waited.quantile(0.5))}")
    elif hop.answered.count:
        said.append(f"answered in {about(hop.answered.quantile(0.5))}")
    return said


def _variants(hop: Hop) -> list[list[str]]:
    """Return the possible texts for an arrow as lists of lines, the longest first."""
    said = _said(hop)
    return [[", ".join(said[:2]), *said[2:]], said, said[:1], [f"{hop.messages:,}"]]

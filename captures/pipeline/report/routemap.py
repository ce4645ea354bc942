"""The route map: queue managers, and the hops between them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from matplotlib.patches import FancyArrowPatch

from captures.pipeline.report.drawing import BLUE, WIDTH_IN, Figure, drawn, shortened
from captures.pipeline.report.facts import Hop, Routes
from captures.pipeline.report.routes import ranks
from captures.pipeline.report.words import about, harmless, rate

NODES_DRAWN: Final = 14
HOPS_DRAWN: Final = 24
HOPS_TOLD: Final = 8
"""Of more, if they are no chain, arrows say how many messages crossed, and the table below says the rest."""
COLUMNS: Final = 4
"""So many queue managers have room beside each other; a longer chain goes downwards."""
CHAINED: Final = 4
"""So many arrows meet at most at a queue manager of a chain with traffic both ways."""
ROW_IN: Final = 1.1
Place = tuple[float, float]


def map_figure(routes: Routes) -> Figure | None:
    """Each hop with how many messages crossed it, how fast, and how long they waited, or how soon it was answered."""
    shown: dict[str, str] = {}
    hops = [hop for hop in routes.hops if hop.from_key != hop.to_key][:HOPS_DRAWN]
    for hop in hops:
        for key, label in ((hop.from_key, hop.from_label), (hop.to_key, hop.to_label)):
            if key in shown or len(shown) < NODES_DRAWN:
                shown[key] = label
    hops = [hop for hop in hops if hop.from_key in shown and hop.to_key in shown]
    if not hops:
        return None
    places, height_in = _places(hops)
    degrees = Counter(key for hop in hops for key in (hop.from_key, hop.to_key))
    pairs = {(hop.from_key, hop.to_key) for hop in hops}
    most = max(hop.messages for hop in hops)

    def draw(canvas: Any) -> None:
        axes = canvas.add_axes((0, 0, 1, 1))  # One unit is one inch.
        axes.set_axis_off()
        axes.set_xlim(0, WIDTH_IN)
        axes.set_ylim(0, height_in)
        boxes = {
            key: axes.text(
                *place, shortened(shown[key]), ha="center", va="center", fontsize=10, fontweight="bold", zorder=4,
                bbox={"boxstyle": "round,pad=0.7", "facecolor": "#eaf3f8", "edgecolor": BLUE, "linewidth": 1.5},
            )
            for key, place in places.items()
        }  # fmt: skip
        canvas.draw_without_rendering()  # Arrows end at boxes, whose size is known only now.
        for hop in hops:
            start, end = places[hop.from_key], places[hop.to_key]
            bend = _bend(start, end, (hop.to_key, hop.from_key) in pairs, list(places.values()))
            axes.add_patch(
                FancyArrowPatch(
                    start, end, connectionstyle=f"arc3,rad={bend}", arrowstyle="-|>", mutation_scale=18,
                    patchA=boxes[hop.from_key].get_bbox_patch(), patchB=boxes[hop.to_key].get_bbox_patch(),
                    shrinkA=1, shrinkB=1, color=BLUE, linewidth=1 + 2 * hop.messages / most, zorder=2,
                )
            )  # fmt: skip
            middle, side = _beside(start, end, bend, _nearer(hop, degrees))
            text = _hop_text(hop)
            if len(hops) > HOPS_TOLD and not _is_chain(degrees):
                text = text.partition("\n")[0]
            axes.annotate(
                text, middle, xytext=(6 * side[0], 6 * side[1]),
                textcoords="offset points", ha=("right", "center", "left")[1 + side[0]],
                va=("top", "center", "bottom")[1 + side[1]], fontsize=9, zorder=3,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85},
            )  # fmt: skip

    alt = "Route map: " + "; ".join(
        f"{harmless(hop.from_label)} to {harmless(hop.to_label)}, {_hop_text(hop).replace(chr(10), ', ')}"
        for hop in hops
    )
    return Figure("map", "Route map", alt + ".", drawn(draw, height_in, is_laid_out=False))


def _places(hops: Sequence[Hop]) -> tuple[dict[str, Place], float]:
    """Where the middles of queue managers are, by their keys, and how high it all is; in inches.

    They go from left to right by the number of hops; those that are equally far stand below each other. Where this
    takes too many columns, they go downwards instead.
    """
    by_rank: dict[int, list[str]] = {}
    for key, rank in ranks(list(hops)).items():
        by_rank.setdefault(rank, []).append(key)
    abreast = max(map(len, by_rank.values()))
    is_across = len(by_rank) <= COLUMNS
    height_in = 0.3 + ROW_IN * (abreast if is_across else len(by_rank))
    along_in = min(3.2, (WIDTH_IN - 2.2) / max(len(by_rank) - 1, 1)) if is_across else ROW_IN
    beside_in = ROW_IN if is_across else min(3.2, (WIDTH_IN - 2.2) / max(abreast - 1, 1))
    places = {}
    for rank, keys in by_rank.items():
        for row, key in enumerate(sorted(keys)):
            along = (rank - (len(by_rank) - 1) / 2) * along_in
            beside = (row - (len(keys) - 1) / 2) * beside_in
            right, down = (along, beside) if is_across else (beside, along)
            places[key] = (WIDTH_IN / 2 + right, height_in / 2 - down)
    return places, height_in


def _bend(start: Place, end: Place, is_returned: bool, places: list[Place]) -> float:
    """How much an arrow bends: out of the way of one that comes back, and of queue managers between its ends."""
    length = math.dist(start, end)
    for place in places:
        if place not in (start, end) and math.dist(start, place) + math.dist(place, end) < length + 0.1:
            return 0.35
    return 0.14 if is_returned else 0.0


def _is_chain(degrees: Counter[str]) -> bool:
    """Whether there is room for texts beside all arrows."""
    return max(degrees.values()) <= CHAINED


def _nearer(hop: Hop, degrees: Counter[str]) -> float:
    """How far along its arrow a text stands: nearer to the end where fewer arrows meet, if somewhere many do."""
    if _is_chain(degrees):
        return 0.5
    start, end = degrees[hop.from_key], degrees[hop.to_key]
    return 0.5 if start == end else 0.62 if start > end else 0.38


def _beside(start: Place, end: Place, bend: float, along: float) -> tuple[Place, tuple[int, int]]:
    """A point of an arrow, so far along it, and on which side of it its text stands."""
    (x, y), (to_x, to_y) = start, end
    dx, dy = to_x - x, to_y - y
    away = 2 * along * (1 - along) * bend  # An arrow is a quadratic Bézier curve.
    middle = (x + along * dx + away * dy, y + along * dy - away * dx)
    if abs(dx) >= abs(dy):
        return middle, (0, -1 if bend and dx > 0 else 1)
    return middle, (-1 if bend and dy < 0 else 1, 0)


def _hop_text(hop: Hop) -> str:
    lines = [f"{hop.messages:,} messages" if hop.messages > 1 else "1 message"]
    speed = rate(hop.messages, hop.last_ns - hop.first_ns)
    if speed != "–":
        lines[0] += f", {speed}"
    if hop.waited.count:
        lines.append(f"waited {about(hop.waited.quantile(0.5))}")
    elif hop.answered.count:
        lines.append(f"answered in {about(hop.answered.quantile(0.5))}")
    return "\n".join(lines)

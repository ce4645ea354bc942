"""Facts as pictures: SVG, the same bytes for the same facts.

Colours are of Okabe and Ito, and differ in brightness as well; sorts differ in pattern or place too, so that nobody has
to tell colours apart. Text stays text: whatever reads the page aloud gets `Figure.alt` besides.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from captures.pipeline.report.facts import Hop, Routes, SequenceHop, Sequences, Traffic
from captures.pipeline.report.routes import ranks
from captures.pipeline.report.spread import Spread
from captures.pipeline.report.traffic import nice_step_ns
from captures.pipeline.report.words import about, duration, harmless, rate, when

INK: Final = "#1a1a1a"
FAINT: Final = "#767676"
BLUE, SKY, ORANGE, RED = "#00507a", "#56b4e9", "#e69f00", "#a83200"
SORTS: Final = {
    "messages": (BLUE, ""),
    "acknowledgments": (SKY, ""),
    "sessions and pings": (ORANGE, "//"),
    "malformed": (RED, "xx"),
}
WIDTH_IN: Final = 9.2
NODES_DRAWN: Final = 14
HOPS_DRAWN: Final = 24
HOPS_SPREAD: Final = 12
LABEL_LIMIT: Final = 28
GAPS_NAMED: Final = 6
STYLE: Final[Any] = {
    "svg.hashsalt": "mqproto",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    # A label with two $ in it is no formula.
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#dddddd",
    "hatch.linewidth": 0.6,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture.

    alt: what it shows, for those who do not see it.
    """

    name: str
    title: str
    alt: str
    svg: bytes


def drawn(draw: Callable[[Any], object], height_in: float) -> bytes:
    """What somebody draws on a canvas, as SVG."""
    out = io.BytesIO()
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()  # Nobody's matplotlibrc has a say.
        mpl.rcParams.update(STYLE)
        # Labels may have letters that the font which text is measured with lacks; a browser has others.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
        canvas = Canvas(figsize=(WIDTH_IN, height_in), layout="constrained")
        draw(canvas)
        canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def traffic_figure(traffic: Traffic) -> Figure:
    """Packets over time, and bytes below."""
    steps = len(traffic.size_bytes)
    step_s = traffic.step_ns / 10**9
    starts = [place * step_s for place in range(steps)]

    def draw(canvas: Any) -> None:
        packets, sizes = canvas.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        below = [0.0] * steps
        for sort, counts in traffic.packets.items():
            colour, hatch = SORTS[sort]
            packets.bar(
                starts, counts, step_s, bottom=below, align="edge", color=colour, hatch=hatch,
                edgecolor="white", linewidth=0.3, label=sort,
            )  # fmt: skip
            below = [sum(each) for each in zip(below, counts, strict=True)]
        packets.set_ylabel(f"packets per {duration(traffic.step_ns)}")
        packets.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, borderaxespad=0)
        sizes.bar(starts, [each / 1000 for each in traffic.size_bytes], step_s, align="edge", color=FAINT)
        sizes.set_ylabel("kB")
        sizes.set_xlabel(f"time since {when(traffic.first_ns)} UTC")
        sizes.set_xlim(0, steps * step_s)
        _clock(sizes, steps * step_s)
        for axes in (packets, sizes):
            axes.grid(axis="y")
            axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))

    totals = ", ".join(f"{sum(counts):,} {sort}" for sort, counts in traffic.packets.items())
    busiest = max(range(steps), key=lambda step: sum(counts[step] for counts in traffic.packets.values()))
    most = sum(counts[busiest] for counts in traffic.packets.values())
    alt = (
        f"Packets over time, in steps of {duration(traffic.step_ns)}: {totals}. "
        f"Most, {most:,}, came {duration(busiest * traffic.step_ns)} after the first."
    )
    return Figure("traffic", "Traffic over time", alt, drawn(draw, 3.6))


def _clock(axes: Any, span_s: float) -> None:
    """An axis of seconds since something, with marks where clocks have them."""
    step_s = nice_step_ns(round(span_s / 8 * 10**9)) / 10**9
    axes.xaxis.set_major_locator(MultipleLocator(step_s))
    axes.xaxis.set_major_formatter(FuncFormatter(_elapsed))


def _elapsed(seconds: float, _: object = None) -> str:
    return "0" if seconds == 0 else duration(round(seconds * 10**9))


def map_figure(routes: Routes) -> Figure | None:
    """Queue managers, and the hops between them with how many messages crossed, how fast, and how long they waited."""
    hops = routes.hops[:HOPS_DRAWN]
    shown: dict[str, str] = {}
    for hop in hops:
        for key, label in ((hop.from_key, hop.from_label), (hop.to_key, hop.to_label)):
            if key in shown or len(shown) < NODES_DRAWN:
                shown[key] = label
    hops = [hop for hop in hops if hop.from_key in shown and hop.to_key in shown]
    if not hops:
        return None
    place = _places(hops)
    height = max(abs(y) for _, y in place.values()) + 0.6
    pairs = {(hop.from_key, hop.to_key) for hop in hops}
    most = max(hop.messages for hop in hops)

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        axes.set_axis_off()
        boxes = {}
        for key, (x, y) in place.items():
            label = axes.text(
                x, y, _short(shown[key]), ha="center", va="center", fontsize=10, fontweight="bold",
                bbox={"boxstyle": "round,pad=0.7", "facecolor": "#eaf3f8", "edgecolor": BLUE, "linewidth": 1.5},
            )  # fmt: skip
            boxes[key] = label
        across = [x for x, _ in place.values()]
        axes.set_xlim(min(across) - 0.4, max(across) + 0.4)
        axes.set_ylim(-height, height)
        canvas.draw_without_rendering()  # Arrows end at boxes, whose size is known only now.
        for hop in hops:
            bend = 0.18 if (hop.to_key, hop.from_key) in pairs else 0.0
            (x, y), (to_x, to_y) = place[hop.from_key], place[hop.to_key]
            if abs(to_x - x) > 1.5 and not bend:
                bend = 0.3
            axes.add_patch(
                FancyArrowPatch(
                    (x, y), (to_x, to_y), connectionstyle=f"arc3,rad={bend}", arrowstyle="-|>",
                    patchA=boxes[hop.from_key].get_bbox_patch(), patchB=boxes[hop.to_key].get_bbox_patch(),
                    mutation_scale=18, shrinkA=1, shrinkB=1, color=BLUE, linewidth=1 + 2 * hop.messages / most,
                    zorder=2,
                )
            )  # fmt: skip
            dx, dy = to_x - x, to_y - y
            middle = ((x + to_x) / 2 + bend * dy / 2, (y + to_y) / 2 - bend * dx / 2)
            below = bend > 0 and dx > 0
            axes.annotate(
                _hop_text(hop), middle, xytext=(0, -6 if below else 6), textcoords="offset points",
                ha="center", va="top" if below else "bottom", fontsize=9,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85},
            )  # fmt: skip

    alt = "Route map: " + "; ".join(
        f"{harmless(hop.from_label)} to {harmless(hop.to_label)}, {_hop_text(hop).replace(chr(10), ', ')}"
        for hop in hops
    )
    return Figure("map", "Route map", alt + ".", drawn(draw, min(0.3 + 2 * height, 9)))


def _places(hops: Sequence[Hop]) -> dict[str, tuple[float, float]]:
    """From left to right by the number of hops; those that are equally far stand below each other."""
    columns: dict[int, list[str]] = {}
    for key, rank in ranks(list(hops)).items():
        columns.setdefault(rank, []).append(key)
    return {
        key: (float(rank), len(keys) / 2 - 0.5 - row)
        for rank, keys in columns.items()
        for row, key in enumerate(sorted(keys))
    }


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


def hops_figure(routes: Routes) -> Figure | None:
    """Of each hop, how long messages waited for it, and how long its receiver took to answer."""
    strips: list[tuple[str, str, Spread]] = []
    for hop in routes.hops[:HOPS_SPREAD]:
        name = f"{_short(hop.from_label)} → {_short(hop.to_label)}"
        for what, spread in (("waited before it", hop.waited), ("until answered", hop.answered)):
            if spread.count:
                strips.append((name, what, spread))
    if not strips:
        return None

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        for row, (_, what, spread) in enumerate(strips):
            colour = ORANGE if what.startswith("waited") else BLUE
            low, high = (max(spread.quantile(share), 1) for share in (0, 1))
            axes.plot([low, high], [row, row], color=colour, linewidth=1.2)
            low, high = (max(spread.quantile(share), 1) for share in (0.05, 0.95))
            axes.plot([low, high], [row, row], color=colour, linewidth=9, solid_capstyle="butt")
            middle = max(spread.quantile(0.5), 1)
            axes.plot([middle], [row], marker="D", color="white", markeredgecolor=INK, markersize=7)
            axes.annotate(
                about(spread.quantile(0.5)), (middle, row), xytext=(0, 8), textcoords="offset points",
                ha="center", va="bottom", fontsize=9,
            )  # fmt: skip
        axes.set_yticks(range(len(strips)), [f"{name}\n{what}" for name, what, _ in strips])
        axes.set_ylim(len(strips) - 0.4, -0.7)
        _log_time(axes)
        axes.set_xlabel("diamond: median · bar: from 5 % to 95 % · line: least to most")

    alt = "Delays by hop: " + "; ".join(
        f"{name} {what}: median {about(spread.quantile(0.5))}, 95 % below {about(spread.quantile(0.95))}, "
        f"at most {duration(spread.most)}"
        for name, what, spread in strips
    )
    return Figure("hops", "Delays by hop", alt + ".", drawn(draw, 1 + 0.52 * len(strips)))


def latency_figure(arrived: Spread, confirmed: Spread) -> Figure | None:
    """How long messages took from end to end."""
    panels = [
        (what, colour, spread)
        for what, colour, spread in (
            ("to the destination", BLUE, arrived),
            ("until the OrderAck", ORANGE, confirmed),
        )
        if spread.count
    ]
    if not panels:
        return None

    def draw(canvas: Any) -> None:
        grid = canvas.subplots(len(panels), 1, sharex=True, squeeze=False)
        for (axes,), (what, colour, spread) in zip(grid, panels, strict=True):
            for low, high, count in spread.bars():
                low = max(low, 1)
                axes.bar(
                    low,
                    count,
                    max(high - low, 1),
                    align="edge",
                    color=colour,
                    edgecolor="white",
                    linewidth=0.4,
                )
            for share, level in ((0.5, 0.98), (0.95, 0.8), (0.99, 0.62)):
                value = max(spread.quantile(share), 1)
                axes.axvline(value, color=INK, linewidth=1, linestyle=(0, (4, 2)))
                axes.annotate(
                    f"{share:.0%}: {about(value)}", (value, level), xycoords=("data", "axes fraction"),
                    xytext=(4, 0), textcoords="offset points", va="top", fontsize=9,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85},
                )  # fmt: skip
            axes.set_ylabel(f"messages\n{what}")
            axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            _log_time(axes)
            axes.grid(axis="y")
        grid[-1][0].set_xlabel("since a message was first seen")

    alt = "Latency from end to end: " + "; ".join(
        f"{spread.count:,} messages {what}: median {about(spread.quantile(0.5))}, "
        f"95 % below {about(spread.quantile(0.95))}, at most {duration(spread.most)}"
        for what, _, spread in panels
    )
    return Figure("latency", "Latency from end to end", alt + ".", drawn(draw, 0.6 + 1.6 * len(panels)))


def _log_time(axes: Any) -> None:
    """A logarithmic axis of durations in ns, never shorter than two decades: or a single value would fill it."""
    low, high = axes.get_xlim() if axes.get_xscale() == "log" else axes.dataLim.intervalx
    low, high = max(low, 1), max(high, 1)
    axes.set_xscale("log")
    if high < 100 * low:
        low, high = low / 10, high * 10
    axes.set_xlim(low / 1.5, high * 1.5)
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: duration(round(value)) if value >= 1 else "")
    )
    axes.xaxis.set_minor_formatter("")
    axes.grid(axis="x")


def sequences_figure(sequences: Sequences, captured_to_ns: int) -> Figure | None:
    """Sequences on each hop over time, and their gaps until these were filled."""
    shown = sequences.shown
    if not shown:
        return None
    began_ns = min(each.row["first_ns"] for each in shown)

    def seconds(time_ns: int) -> float:
        return float(time_ns - began_ns) / 10**9

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        end_s = max(seconds(captured_to_ns), *(seconds(each.row["last_ns"]) for each in shown), 1e-6)
        for row, each in enumerate(shown):
            first_s, last_s = seconds(each.row["first_ns"]), seconds(each.row["last_ns"])
            axes.plot([first_s, last_s], [row, row], color=BLUE, linewidth=3, marker="|", markersize=10)
            for gap in each.gaps:
                opened_s = seconds(gap["opened_ns"])
                is_open = gap["filled_ns"] is None
                width_s = max((end_s if is_open else seconds(gap["filled_ns"])) - opened_s, end_s / 400)
                axes.barh(
                    row, width_s, 0.5, left=opened_s, color="#fbe3d6" if not is_open else RED,
                    hatch="" if is_open else "///", edgecolor=RED, linewidth=1,
                )  # fmt: skip
            for gap in each.gaps[:GAPS_NAMED]:
                axes.annotate(
                    _gap_text(gap), (seconds(gap["opened_ns"]), row - 0.27), xytext=(0, 2),
                    textcoords="offset points", va="bottom", fontsize=9, color=RED,
                )  # fmt: skip
        axes.set_yticks(range(len(shown)), [_sequence_name(each) for each in shown], fontsize=9)
        axes.set_ylim(len(shown) - 0.4, -0.8)
        axes.set_xlim(-end_s / 100, end_s * 1.02)
        _clock(axes, end_s)
        axes.set_xlabel(f"time since {when(began_ns)} UTC")
        axes.grid(axis="x")

    said = "; ".join(f"{_sequence_name(each).replace(chr(10), ', ')}: {_gaps_text(each)}" for each in shown)
    alt = f"Transactional sequences over time, by hop: {said}."
    return Figure("sequences", "Sequences and their gaps", alt, drawn(draw, 0.9 + 0.55 * len(shown)))


def _sequence_name(each: SequenceHop) -> str:
    row = each.row
    numbers = f"{row['first_number']:,}–{row['last_number']:,}"
    return f"{_short(row['from_label'])} → {_short(row['to_label'])}\n{_short(row['sequence'])}, numbers {numbers}"


def _gap_text(gap: dict[str, Any]) -> str:
    first, last = gap["first_number"], gap["last_number"]
    numbers = f"{first:,}" if first == last else f"{first:,}–{last:,}"
    if gap["filled_ns"] is None:
        return f"{numbers} never came"
    return f"{numbers} for {duration(gap['filled_ns'] - gap['opened_ns'])}"


def _gaps_text(each: SequenceHop) -> str:
    return ", ".join(map(_gap_text, each.gaps[:GAPS_NAMED])) or "no gap"


def _short(label: str) -> str:
    shown = harmless(label)
    return shown if len(shown) <= LABEL_LIMIT else f"{shown[: LABEL_LIMIT - 1]}…"

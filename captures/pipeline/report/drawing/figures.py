"""Facts as pictures: traffic, delays, latency, sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from mqproto.captures.pipeline.report.drawing.drawing import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    RED,
    SKY,
    Figure,
    drawn,
    enlarged,
    shortened,
)
from mqproto.captures.pipeline.report.drawing.sparkline import spoken
from mqproto.captures.pipeline.report.facts.facts import Course, Routes, SequenceHop, Sequences, Traffic
from mqproto.captures.pipeline.report.facts.overtime import nice_step_ns
from mqproto.captures.pipeline.report.facts.ranking import slowest, worth_a_look
from mqproto.captures.pipeline.report.facts.spread import Spread
from mqproto.captures.pipeline.report.facts.words import (
    TO_DESTINATION,
    TO_ORDER_ACK,
    about,
    duration,
    harmless,
    when,
)

SORTS: Final = {
    "messages": (BLUE, ""),
    "acknowledgments": (SKY, ""),
    "sessions and pings": (ORANGE, "//"),
    "malformed": (RED, "xx"),
}
HOPS_SPREAD: Final = 8
COURSES_DRAWN: Final = 4
TITLE_LIMIT: Final = 64
GAPS_NAMED: Final = 6
LEAST_NS: Final = 1_000
"""What took less is drawn as this, since 0 has no place on a logarithmic axis."""


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


def hops_figure(routes: Routes) -> Figure | None:
    """Of each hop, how long messages waited for it, and how long its receiver took to answer."""
    strips: list[tuple[str, str, Spread]] = []
    for hop in slowest(worth_a_look(routes.hops, HOPS_SPREAD)):
        name = f"{shortened(hop.from_label)} → {shortened(hop.to_label)}"
        for what, spread in (("waited before it", hop.waited), ("until answered", hop.answered)):
            if spread.count:
                strips.append((name, what, spread))
    if not strips:
        return None

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        for row, (_, what, spread) in enumerate(strips):
            colour = ORANGE if what.startswith("waited") else BLUE
            low, high = (max(spread.quantile(share), LEAST_NS) for share in (0, 1))
            axes.plot([low, high], [row, row], color=colour, linewidth=1.2)
            low, high = (max(spread.quantile(share), LEAST_NS) for share in (0.05, 0.95))
            axes.plot([low, high], [row, row], color=colour, linewidth=9, solid_capstyle="butt")
            middle = max(spread.quantile(0.5), LEAST_NS)
            axes.plot([middle], [row], marker="D", color="white", markeredgecolor=INK, markersize=7)
            axes.annotate(
                about(spread.quantile(0.5)), (middle, row), xytext=(0, 8), textcoords="offset points",
                ha="center", va="bottom", fontsize=9,
            )  # fmt: skip
        axes.set_yticks(range(len(strips)), [f"{name}\n{what}" for name, what, _ in strips])
        axes.set_ylim(len(strips) - 0.4, -0.7)
        _log_time(axes, [spread for *_, spread in strips])
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
            (TO_DESTINATION, BLUE, arrived),
            (TO_ORDER_ACK, ORANGE, confirmed),
        )
        if spread.count
    ]
    if not panels:
        return None

    def draw(canvas: Any) -> None:
        grid = canvas.subplots(len(panels), 1, sharex=True, squeeze=False)
        for (axes,), (what, colour, spread) in zip(grid, panels, strict=True):
            for low_ns, high_ns, count in spread.bars():
                low = max(low_ns, LEAST_NS)
                high = max(high_ns, 1.1 * low)
                axes.bar(
                    low, count, high - low, align="edge", color=colour, edgecolor="white", linewidth=0.4
                )  # fmt: skip
            for share, level in ((0.5, 0.98), (0.95, 0.8), (0.99, 0.62)):
                value = max(spread.quantile(share), LEAST_NS)
                axes.axvline(value, color=INK, linewidth=1, linestyle=(0, (4, 2)))
                axes.annotate(
                    f"{share:.0%}: {about(value)}", (value, level), xycoords=("data", "axes fraction"),
                    xytext=(4, 0), textcoords="offset points", va="top", fontsize=9,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85},
                )  # fmt: skip
            axes.set_ylabel(f"messages\n{what}")
            axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            _log_time(axes, [spread for *_, spread in panels])
            axes.grid(axis="y")
        grid[-1][0].set_xlabel("since a message was first seen")

    alt = "Latency from end to end: " + "; ".join(
        f"{spread.count:,} messages {what}: median {about(spread.quantile(0.5))}, "
        f"95 % below {about(spread.quantile(0.95))}, at most {duration(spread.most)}"
        for what, _, spread in panels
    )
    return Figure("latency", "Latency from end to end", alt + ".", drawn(draw, 0.6 + 1.6 * len(panels)))


def _log_time(axes: Any, spreads: list[Spread]) -> None:
    """A logarithmic axis for all of them, never shorter than two decades: or a single value would fill it."""
    low: float = max(min(spread.least for spread in spreads), LEAST_NS)
    high: float = max(LEAST_NS, *(spread.most for spread in spreads))
    if high < 100 * low:
        low, high = low / 10, high * 10
    axes.set_xscale("log")
    axes.set_xlim(low / 1.5, high * 2.5)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(round(value))))
    axes.xaxis.set_minor_formatter("")
    axes.grid(axis="x")


def courses_figure(
    name: str, title: str, courses: Sequence[tuple[str, Course]], waiting: str
) -> Figure | None:
    """How long the first of some things took, and how many waited, over time.

    Args:
        courses: each with its name, those most worth a look first.
        waiting: what it means to wait.
    """
    shown = [(what, course) for what, course in courses if any(course.counts) or any(course.waiting)]
    shown = shown[:COURSES_DRAWN]
    if not shown:
        return None
    first_ns = shown[0][1].first_ns
    step_s = shown[0][1].step_ns / 10**9
    steps = len(shown[0][1].counts)

    def draw(canvas: Any) -> None:
        grid = canvas.subplots(len(shown), 1, sharex=True, squeeze=False)
        for (axes,), (what, course) in zip(grid, shown, strict=True):
            _draw_course(axes, course, step_s, waiting)
            axes.set_title(shortened(what, TITLE_LIMIT), loc="left", fontsize=10, fontweight="bold")
        grid[0][0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, borderaxespad=0)
        last = grid[-1][0]
        last.set_xlim(0, steps * step_s)
        last.set_xlabel(
            f"time since {when(first_ns)} UTC; grey: how many were {waiting} at the end of each step"
        )
        _clock(last, steps * step_s)

    said = "; ".join(
        f"{harmless(what)}: {', '.join(spoken(course, waiting)) or 'nothing to tell'}"
        for what, course in shown
    )
    return Figure(name, title, f"{title}. {said}.", drawn(draw, 0.6 + 1.35 * len(shown)))


def _draw_course(axes: Any, course: Course, step_s: float, waiting: str) -> None:
    steps = range(len(course.counts))
    behind = axes.twinx()
    axes.set_zorder(behind.get_zorder() + 1)
    axes.patch.set_visible(False)
    behind.fill_between(
        [step * step_s for step in range(len(course.counts) + 1)],
        [*course.waiting, course.waiting[-1]], step="post", color="#dddddd", linewidth=0,
    )  # fmt: skip
    behind.set_ylim(0, 1.15 * max([1, *course.waiting]))
    behind.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True))
    behind.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    behind.set_ylabel("waiting")
    for values, colour, label, width in (
        (course.slow_ns, ORANGE, "95 %", 2.4),
        (course.half_ns, BLUE, "half of them", 1.4),
    ):
        times = [(step + 0.5) * step_s for step in steps]
        heights = [
            max(ns, LEAST_NS) if count else float("nan")
            for ns, count in zip(values, course.counts, strict=True)
        ]
        axes.plot(times, heights, color=colour, linewidth=width, marker="o", markersize=width, label=label)
    used = [max(ns, LEAST_NS) for ns in (*course.half_ns, *course.slow_ns) if ns] or [LEAST_NS]
    low: float = min(used)
    high: float = max(used)
    if high < 100 * low:
        low, high = low / 10, high * 10
    axes.set_yscale("log")
    axes.set_ylim(low / 2, high * 3)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(round(value))))
    axes.yaxis.set_minor_formatter("")
    axes.grid(axis="y")


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
        axes.set_yticks(range(len(shown)), [_sequence_name(each) for each in shown], fontsize=9)
        axes.set_ylim(len(shown) - 0.4, -0.8)
        axes.set_xlim(-end_s / 100, end_s * 1.02)
        _clock(axes, end_s)
        axes.set_xlabel(f"time since {when(began_ns)} UTC")
        axes.grid(axis="x")
        canvas.draw_without_rendering()  # Only now is it known how much room there is for what is written above gaps.
        for row, each in enumerate(shown):
            starts = [(_gap_text(gap), seconds(gap["opened_ns"])) for gap in each.gaps[:GAPS_NAMED]]
            _write_above(axes, starts, row - 0.27)

    said = "; ".join(f"{_sequence_name(each).replace(chr(10), ', ')}: {_gaps_text(each)}" for each in shown)
    alt = f"Transactional sequences over time, by hop: {said}."
    return Figure("sequences", "Sequences and their gaps", alt, drawn(draw, 0.9 + 0.55 * len(shown)))


def _write_above(axes: Any, texts: list[tuple[str, float]], row: float) -> None:
    """Texts above their places in a row, but for those that have no room beside the ones before them."""
    taken: list[Any] = []
    for text, start in texts:
        note = axes.annotate(
            text, (start, row), xytext=(0, 2), textcoords="offset points", va="bottom", fontsize=9, color=RED
        )
        note.set_in_layout(False)
        if enlarged(note.get_window_extent()).x1 > axes.bbox.x1:
            note.set_ha("right")
        box = enlarged(note.get_window_extent())
        if box.x0 < axes.bbox.x0 or any(box.overlaps(other) for other in taken):
            note.remove()
        else:
            taken.append(box)


def _sequence_name(each: SequenceHop) -> str:
    row = each.row
    numbers = f"{row['first_number']:,}–{row['last_number']:,}"
    ends = f"{shortened(row['from_label'])} → {shortened(row['to_label'])}"
    return f"{ends}\n{shortened(row['sequence'])}, numbers {numbers}"


def _gap_text(gap: dict[str, Any]) -> str:
    first, last = gap["first_number"], gap["last_number"]
    numbers = f"{first:,}" if first == last else f"{first:,}–{last:,}"
    if gap["filled_ns"] is None:
        return f"{numbers} not seen to come"
    return f"{numbers} for {duration(gap['filled_ns'] - gap['opened_ns'])}"


def _gaps_text(each: SequenceHop) -> str:
    return ", ".join(map(_gap_text, each.gaps[:GAPS_NAMED])) or "no gap"

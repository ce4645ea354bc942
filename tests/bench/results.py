"""What the benchmarks of other parts measured, as figures: simulated worlds, and the analysis of captures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tests.bench.figures import Figure, Result, Wanted

if TYPE_CHECKING:
    from tests.bench.measures.analysis import AnalysisFigures, Pace
    from tests.bench.measures.worlds import WorldFigures

MEGABYTE: Final = 10**6


def of_worlds(worlds: WorldFigures) -> Result:
    """Simulated worlds, with and without faults."""
    wanted = Wanted(at_least=worlds.wanted_per_s)
    return Result(
        name="world",
        title=f"{worlds.nodes} nodes and {worlds.messages} messages, every invariant checked; "
        f"{worlds.worlds} worlds of each sort a round",
        figures=[
            Figure(
                f"with faults, {worlds.faults:.1f} each", "runs/s on a core", worlds.faulted_per_s, wanted
            ),
            Figure("without faults", "runs/s on a core", worlds.calm_per_s),
        ],
    )


def of_analysis(analysis: AnalysisFigures) -> Result:
    """Captures into tables."""
    figures = [
        _rate("source to header columns", analysis.source),
        _rate("table of packets", analysis.table),
        _rate("all tables", analysis.whole),
    ]
    for cost in analysis.costs:
        size = f"{cost.size_bytes / MEGABYTE:,.0f} MB"
        each = tuple(1e6 * round_s / cost.packets for round_s in cost.rounds_s)
        figures.append(Figure(f"{size}: all tables", "µs/packet", each))
        figures += (Figure(f"{size}: {stage}", "µs/packet", (us,)) for stage, us in cost.stages_us.items())
        figures.append(Figure(f"{size}: CPU", "µs/packet", _if_known(cost.cpu_us_per_packet)))
        figures += (
            Figure(f"{size}: most that {name} had resident", "MB", (peak / MEGABYTE,))
            for name, peak in cost.peak_bytes.items()
        )
        limit = Wanted(at_most=analysis.limit_bytes / MEGABYTE)
        taken = None if cost.executor_bytes is None else cost.executor_bytes / MEGABYTE
        figures.append(
            Figure(f"{size}: most that Spark's executor had resident", "MB", _if_known(taken), limit)
        )
    if analysis.flat_ratio is not None:
        wanted = Wanted(at_most=analysis.flat_wanted_ratio)
        figures.append(
            Figure("a packet, dearest / cheapest capture", "ratio", (analysis.flat_ratio,), wanted)
        )
    return Result(
        name="analysis",
        title=f"{analysis.packets:,} packets on {analysis.connections:,} connections, by Spark {analysis.spark} "
        f"on {analysis.master}",
        figures=figures,
        broken=["Spark's executor needed more memory than any may"] if analysis.over_limit else [],
    )


def _rate(name: str, pace: Pace) -> Figure:
    wanted = None if pace.wanted_per_s is None else Wanted(at_least=pace.wanted_per_s)
    return Figure(name, "packets/s", tuple(_rates(pace)), wanted)


def _rates(pace: Pace) -> Sequence[float]:
    return [pace.packets / round_s for round_s in pace.rounds_s]


def _if_known(value: float | None) -> tuple[float, ...]:
    return () if value is None else (value,)

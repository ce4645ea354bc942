from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench import results
from tests.bench.figures import Figure, Result
from tests.bench.measures.analysis import AnalysisFigures, Cost, Pace
from tests.bench.measures.worlds import WorldFigures

PACE = Pace(100, 50_000, [2.0, 1.0, 4.0], 2.0, 50.0, 25_000.0, 40)
COST = Cost(100, 50_000, [2.0, 1.0, 4.0], 20_000.0, {"reading packets": 9.0}, None, {"java": 10**9}, None)
ANALYSIS = AnalysisFigures(
    master="local[2]",
    spark="4.3.0",
    packets=100,
    size_bytes=50_000,
    connections=64,
    source=PACE,
    table=PACE,
    whole=PACE,
    costs=[COST],
)


def named(result: Result) -> dict[str, Figure]:
    return {figure.name: figure for figure in result.figures}


def test_worlds_are_judged_with_faults() -> None:
    worlds = WorldFigures(200, 100, 3, 2.5, calm_per_s=(400.0, 500.0), faulted_per_s=(310.0, 290.0))
    with_faults, without = results.of_worlds(worlds).figures
    assert (with_faults.values, with_faults.is_reached) == ((310.0, 290.0), True)
    assert (without.values, without.wanted) == ((400.0, 500.0), None)


def test_the_analysis_has_the_rate_of_each_round() -> None:
    result = results.of_analysis(ANALYSIS)
    table = named(result)["table of packets"]
    assert (table.values, table.is_reached) == ((50.0, 100.0, 25.0), True)
    assert named(result)["0 MB: all tables"].median == pytest.approx(20_000)
    assert named(result)["0 MB: CPU"].values == ()
    assert result.broken == []


def test_too_much_memory_is_broken_and_captures_of_several_sizes_are_compared() -> None:
    large = replace(COST, us_per_packet=30_000.0, executor_bytes=3 << 30)
    result = results.of_analysis(replace(ANALYSIS, costs=[COST, large]))
    assert result.broken
    assert named(result)["a packet, dearest / cheapest capture"].values == (1.5,)

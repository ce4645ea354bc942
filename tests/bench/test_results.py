from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench import results
from tests.bench.figures import Figure, Result
from tests.bench.measures.analysis import AnalysisFigures, Cost, Pace
from tests.bench.measures.codec import BY_HAND, GENERATED, INTERPRETED, CodecFigures
from tests.bench.measures.worlds import WorldFigures

PACE = Pace(100, 50_000, [2.0, 1.0, 4.0], 2.0, 50.0, 25_000.0, 40)
SHOWN = Pace(10, 5_000, [2.0, 2.0, 2.0], 2.0, 5.0, 2_500.0, None)
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
    tshark=None,
    tshark_ratio=None,
    costs=[COST],
)


def named(result: Result) -> dict[str, Figure]:
    return {figure.name: figure for figure in result.figures}


def test_the_codec_is_judged_by_code_written_by_hand_round_by_round() -> None:
    times: dict[str, dict[str, tuple[float, ...]]] = {
        "parse": {GENERATED: (1.1, 2.6, 9.0), BY_HAND: (1.0, 2.0, 9.0), INTERPRETED: (110.0, 260.0, 900.0)},
        "check": {GENERATED: (0.5, 0.5, 0.5)},
    }
    result = results.of_codec(CodecFigures({"private": 1_192}, 3, times, ["scapy is not installed"]))
    figures = named(result)
    assert figures["parse: generated / by hand"].values == (1.1, 1.3, 1.0)
    assert figures["parse: generated / by hand"].is_reached
    assert figures["parse: construct, interpreted / generated"].values == pytest.approx((100.0, 100.0, 100.0))
    assert figures["check: generated"].values == (0.5, 0.5, 0.5)
    assert result.notes == ["scapy is not installed"]


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
    assert any("apt-get install tshark" in note for note in result.notes)
    assert result.broken == []


def test_tshark_is_compared_round_by_round() -> None:
    figures = named(results.of_analysis(replace(ANALYSIS, tshark=SHOWN, tshark_ratio=10.0)))
    assert figures["table of packets / tshark"].values == (10.0, 20.0, 5.0)


def test_too_much_memory_is_broken_and_captures_of_several_sizes_are_compared() -> None:
    large = replace(COST, us_per_packet=30_000.0, executor_bytes=3 << 30)
    result = results.of_analysis(replace(ANALYSIS, costs=[COST, large]))
    assert result.broken
    assert named(result)["a packet, dearest / cheapest capture"].values == (1.5,)

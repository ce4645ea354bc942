from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from mqproto.captures.pipeline.engines.localengine import LocalEngine
from tests.bench.analyse import MEGABYTE, Analysis, Bench, Capture, check, costs_of, measure_by
from tests.bench.figures import BenchError, Options
from tests.bench.watch import Taken


async def test_all_is_measured_on_the_capture_that_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results cover the capture that was written.

    This uses the engine that needs no Spark. Another test covers the start of Spark.
    """
    monkeypatch.setattr(Bench, "source_s", lambda bench, capture: 0.5)
    with LocalEngine() as engine:
        bench = Bench(cast(Any, None), engine, tmp_path, connections=3)
        options = Options(rounds=1, megabytes=(1,), connections=3)
        result = await measure_by(bench, "nobody", options, lambda text: None)
    figures = {figure.name: figure.values for figure in result.figures}
    packets = int(result.title.partition(" ")[0].replace(",", ""))
    assert 1_000 < packets < 2_000
    [table], [whole] = figures["table of packets"], figures["all tables"]
    assert table > whole, "it is a part of it"
    assert figures["source to header columns"] == (packets / 0.5,)
    assert figures["1 MB: all tables"] == pytest.approx((1e6 / whole,))
    stages = [figures[f"1 MB: {stage}"][0] for stage in ("reading segments", "writing packets")]
    assert 0 < min(stages) < sum(stages) < 1e6 / whole
    assert result.broken == []
    assert os.listdir(tmp_path) == []


def test_no_figure_is_given_of_a_capture_that_was_not_read_whole_or_is_found_wrong() -> None:
    capture = Capture(Path(), 7, 5_000)
    check(7, capture, [])
    with pytest.raises(BenchError, match="of 7 packets 6 were read, and nothing was found wrong"):
        check(6, capture, [])
    with pytest.raises(BenchError, match="of 7 packets 7 were read, and gap was found wrong"):
        check(7, capture, [("client", "gap")])


def test_costs_are_those_of_a_packet_round_by_round() -> None:
    taken = Taken(cpu_s=3.0, peak_bytes=3 << 30)
    rounds = [Analysis(1.0, whole_s, {"reading segments": 1.0}, taken) for whole_s in (2.0, 4.0)]
    figures = {each.name: each for each in costs_of(Capture(Path(), 1_000_000, 724 * MEGABYTE), rounds)}
    assert figures["724 MB: all tables"].values == (2.0, 4.0)
    assert figures["724 MB: reading segments"].values == (1.0, 1.0)
    assert figures["724 MB: CPU"].values == (3.0, 3.0)
    assert figures["724 MB: most that Spark's executor had resident"].is_reached is False
    unknown = [Analysis(1.0, 2.0, {}, Taken(None, None))]
    assert [each.values for each in costs_of(Capture(Path(), 1, 1), unknown)][1:] == [(), ()]

"""`bench analyse` at small sizes: what it measures is there, and is that of the capture it has written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from captures.pipeline.engines.failures import JobError
from captures.pipeline.engines.progress import Progress
from simulator.cli.cli import DONE, FINDING, MISUSE
from tests.bench import command
from tests.bench.__main__ import run
from tests.bench.figures import BenchError
from tests.bench.measures import analysis, machine
from tests.bench.measures.analysis import AnalysisFigures, Cost, Pace, bench_analysis, measure
from tests.bench.measures.bulk import write_capture

pytestmark = pytest.mark.xdist_group("spark")

PACE = Pace(1_000, 724_000, [1.0, 4.0, 2.0], 2.0, 500.0, 362_000.0, 400)
COST = Cost(
    1_000,
    724_000,
    [1.0],
    20.0,
    {"looking for frames": 19.5},
    30.5,
    {"java": 700_000_000, "python": 300_000_000},
    1_300_000_000,
)
FIGURES = AnalysisFigures(
    master="local[2]",
    spark="4.3.0",
    packets=1_000,
    size_bytes=724_000,
    connections=64,
    source=PACE,
    table=PACE,
    whole=PACE,
    costs=[COST],
)


@pytest.mark.timeout(200)
def test_all_is_measured_on_the_capture_that_was_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "WARM_UP_PACKETS", 300)
    stages: list[str] = []

    def listen(progress: Progress) -> None:
        stages.append(progress.stage)

    figures = measure(spark, tmp_path, 2_000, rounds=1, connections=3, flat_mb=[1], listener=listen)

    written = write_capture(tmp_path / "again", 2_000, connections=3)
    assert (figures.packets, figures.size_bytes) == (written, (tmp_path / "again").stat().st_size)
    assert (figures.connections, figures.master, figures.spark) == (3, "local[2]", spark.version)
    for pace in (figures.source, figures.table, figures.whole):
        assert (pace.packets, pace.size_bytes) == (written, figures.size_bytes)
        assert len(pace.rounds_s) == 1
        assert pace.packets_per_s == pytest.approx(written / pace.median_s)
        assert pace.bytes_per_s == pytest.approx(figures.size_bytes / pace.median_s)
    for table_s, whole_s in zip(figures.table.rounds_s, figures.whole.rounds_s, strict=True):
        assert 0 < table_s < whole_s
    own, other = figures.costs
    for cost in (own, other):
        assert list(cost.stages_us)[:4] == [
            "looking for frames",
            "reading packets",
            "joining connections",
            "writing packets",
        ]
        assert set(cost.stages_us) < set(stages)
        assert 0.2 * cost.us_per_packet < sum(cost.stages_us.values()) < cost.us_per_packet
    assert (own.packets, own.rounds_s) == (written, figures.whole.rounds_s)
    assert own.us_per_packet == pytest.approx(1e6 / figures.whole.packets_per_s)
    assert other.size_bytes == pytest.approx(1_000_000, rel=0.1)
    assert len(other.rounds_s) == 1
    assert {"java", "python"} <= own.peak_bytes.keys()
    assert own.executor_bytes is not None
    assert own.executor_bytes < sum(own.peak_bytes.values()) * 10
    assert [path.name for path in tmp_path.iterdir()] == ["again"]


@pytest.mark.timeout(200)
def test_no_figure_is_given_of_a_capture_that_was_not_read_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_less(path: Path, packets: int, connections: int) -> int:
        return write_capture(path, packets, connections) + 1

    monkeypatch.setattr(analysis, "WARM_UP_PACKETS", 10)
    monkeypatch.setattr(analysis, "write_capture", write_less)
    with pytest.raises(BenchError, match="of 38 packets 37 were read, and nothing was found wrong"):
        measure(spark, tmp_path, 10, rounds=1, connections=1, flat_mb=[], listener=lambda progress: None)


@pytest.mark.parametrize("is_of_spark", [True, False])
def test_the_log_stays_only_if_an_error_names_it(
    is_of_spark: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def failing(master: str, *, log: Path, **_: object) -> Iterator[None]:
        log.write_text("what Spark has to say")
        raise JobError(f"Spark's log is {log}") if is_of_spark else BenchError("no figure")
        yield

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("captures.pipeline.engines.session.spark_session", failing)
    with pytest.raises(JobError if is_of_spark else BenchError) as error:
        bench_analysis(10)
    left = list(tmp_path.iterdir())
    assert len(left) == is_of_spark
    assert all(str(path) in str(error.value) for path in left)


@pytest.mark.parametrize(
    ("figures", "is_finding", "words"),
    [
        (FIGURES, False, ["1 MB: looking for frames", "64 connections", "19.5"]),
        (
            replace(FIGURES, costs=[COST, replace(COST, us_per_packet=25.0, peak_bytes={"java": 9_000_000})]),
            False,
            ["a packet, dearest / cheapest capture", "1.25"],
        ),
        (
            replace(FIGURES, costs=[COST, replace(COST, executor_bytes=2**31 + 1)]),
            True,
            ["broken: Spark's executor needed more memory than any may"],
        ),
        (
            replace(FIGURES, costs=[replace(COST, executor_bytes=None, cpu_us_per_packet=None)]),
            False,
            ["unknown"],
        ),
    ],
    ids=["all is well", "several sizes", "over the limit", "nothing known"],
)
def test_figures_are_shown_with_what_was_wanted_and_too_much_memory_is_a_finding(
    figures: AnalysisFigures,
    is_finding: bool,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[object] = []

    def measured(*arguments: object) -> AnalysisFigures:
        asked.extend(arguments[:4])
        return figures

    monkeypatch.setattr(machine, "FLUSHES", 1)
    monkeypatch.setattr(analysis, "bench_analysis", measured)
    typed = ["--packets", "9", "--rounds", "1", "--connections", "2", "--flat", "3", "--flat", "4"]
    assert run(["analyse", *typed]) == (FINDING if is_finding else DONE)
    assert asked == [9, 1, 2, [3, 4]]
    out = capsys.readouterr().out
    assert [word for word in words if word not in out] == []


def test_without_spark_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert run(["analyse"]) == MISUSE
    assert capsys.readouterr().err == "mqproto: pyspark is not installed: pip install 'mqproto[spark]'\n"

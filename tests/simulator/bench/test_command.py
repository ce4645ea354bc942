from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from simulator.bench import analysis, backlog, chain, command, shown
from simulator.bench.analysis import AnalysisFigures, Cost, Pace
from simulator.bench.backlog import BacklogFigures
from simulator.bench.chain import BenchError, ChainFigures, bench_chain, check_delivery
from simulator.bench.machine import machine
from simulator.cli import DONE, FINDING, run_command
from simulator.proof import Received, Sent


async def test_the_chain_is_measured_with_every_message_checked() -> None:
    figures = await bench_chain(messages=300, window=32, body_bytes=10, paced_messages=40, runs=3)
    assert len(figures.runs_messages_per_s) == 3
    assert min(figures.runs_messages_per_s) > 0
    assert figures.messages_per_s == statistics.median(figures.runs_messages_per_s)
    assert 0 < figures.p50_ms <= figures.p99_ms
    assert list(figures.cpu_s_per_1000) == ["destination", "intermediate", "sender", "client"]
    assert (figures.window, figures.body_bytes) == (32, 10)


SENT = [Sent(number, b"", 0.0) for number in range(3)]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([0, 2], "1 messages lost"),
        ([0, 1, 1, 2], "1 messages delivered more than once"),
        ([0, 2, 1], "1 messages out of order"),
        ([0, 1, 2, 3], "1 messages never sent"),
    ],
)
def test_no_figure_is_given_of_messages_that_did_not_arrive_as_they_should(
    numbers: list[int], words: str
) -> None:
    check_delivery(SENT, [Received(number, b"", 0.0) for number in range(3)], count=3)
    with pytest.raises(BenchError, match=words):
        check_delivery(SENT, [Received(number, b"", 0.0) for number in numbers], count=3)


def test_no_figure_is_given_if_fewer_messages_were_sent_than_asked_for() -> None:
    with pytest.raises(BenchError, match="of 4 messages 3 were sent"):
        check_delivery(SENT, [Received(number, b"", 0.0) for number in range(3)], count=4)


CHAIN = ChainFigures(
    messages=300,
    body_bytes=1_024,
    window=64,
    messages_per_s=2_000,
    runs_messages_per_s=[3_000, 1_000, 2_000],
    cpu_s_per_1000={"sender": 0.02, "client": None},
    paced_per_s=200,
    paced_messages=1_000,
    paced_cpu_s_per_1000={"sender": 0.5, "client": None},
    p50_ms=4,
    p99_ms=9,
    flush_ms=1,
)
BACKLOG = BacklogFigures(
    messages=100,
    body_bytes=1_024,
    window=64,
    accept_s=1,
    drain_s=1,
    messages_per_s=100,
    first_message_s=0.1,
    resent=0,
    resident_bytes={"sender": 5},
    peak_bytes={"sender": 7},
    limit_bytes=6,
)
PACE = Pace(70, 50_000, [1.0], 1.0, 70.0, 50_000.0, None)
ANALYSIS = AnalysisFigures(
    master="local[2]",
    spark="4.3.0",
    packets=70,
    size_bytes=50_000,
    connections=64,
    source=PACE,
    table=PACE,
    whole=PACE,
    tshark=None,
    tshark_ratio=None,
    costs=[Cost(70, 50_000, [1.0], 1e6 / 70, {"reading packets": 9.0}, None, {}, None)],
)


@pytest.mark.parametrize("as_json", [True, False])
def test_all_benchmarks_run_one_after_the_other_and_a_finding_of_one_is_a_finding(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []

    async def measured_chain(
        messages: int, window: int, body_bytes: int, paced: int, *, runs: int, profiles: Path | None
    ) -> ChainFigures:
        asked.append((messages, window, body_bytes, runs))
        return CHAIN

    async def measured_backlog(messages: int) -> BacklogFigures:
        asked.append(messages)
        return BACKLOG

    def measured_analysis(packets: int, *_: object) -> AnalysisFigures:
        asked.append(packets)
        return ANALYSIS

    monkeypatch.setattr(chain, "bench_chain", measured_chain)
    monkeypatch.setattr(backlog, "bench_backlog", measured_backlog)
    monkeypatch.setattr(analysis, "bench_analysis", measured_analysis)
    options = ["--rounds", "1", "-m", "300", "--runs", "5", "--backlog", "100", "--worlds", "2"]
    options += ["--packets", "70"]
    assert run_command(["bench", "all", *options, *(["--json"] if as_json else [])]) == FINDING
    assert asked == [(300, 64, 1_024, 5), 100, 70]
    out = capsys.readouterr().out
    if as_json:
        shown = json.loads(out)
        assert list(shown) == ["machine", "codec", "chain", "backlog", "world", "analysis"]
        assert shown["chain"]["runs_messages_per_s"] == [3_000, 1_000, 2_000]
        assert (shown["world"]["worlds"], shown["world"]["messages"], shown["world"]["nodes"]) == (2, 100, 3)
    else:
        assert "worlds of 3 nodes and 100 messages" in out
        assert "analysis of 70 packets" in out
        assert "3 runs of 300 messages: min 1,000, median 2,000, max 3,000" in out


def test_without_spark_the_analysis_is_left_out_with_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def nothing(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(chain, "bench_chain", nothing)
    monkeypatch.setattr(backlog, "bench_backlog", nothing)
    monkeypatch.setattr(shown, "figures_as_json", list)
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert run_command(["bench", "all", "--rounds", "1", "--worlds", "1", "--json"]) == DONE
    told = capsys.readouterr()
    assert json.loads(told.out) == ["machine", "codec", "chain", "backlog", "world"]
    assert "mqproto: the analysis is left out: pyspark is not installed" in told.err


@pytest.mark.parametrize("as_json", [True, False])
def test_figures_come_with_the_machine_they_were_taken_on(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["bench", "codec", "--rounds", "1", *(["--json"] if as_json else [])]) == DONE
    out = capsys.readouterr().out
    assert machine()["python"] in out
    assert machine()["sqlite"] in out
    if as_json:
        assert json.loads(out)["codec"]["rounds"] == 1

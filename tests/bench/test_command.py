from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from mqproto.base.errors import UsageError
from simulator.cli.cli import DONE, FINDING, MISUSE
from tests.bench import command
from tests.bench.__main__ import run
from tests.bench.figures import BenchError, Figure, Result, Wanted
from tests.bench.measures import machine

MEASURED = ["chain", "latency", "backlog", "outage", "growth", "edges", "codec", "world", "analysis"]
NAMES = MEASURED
SLOW = Result("chain", "slow", [Figure("rate", "1/s", (1.0,), Wanted(at_least=2))])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Any, ...]]:
    """What each benchmark was asked for; none of them is run."""
    monkeypatch.setattr(machine, "FLUSHES", 1)
    found: dict[str, tuple[Any, ...]] = {}

    def measured(name: str) -> Callable[..., Result]:
        def bench(*args: Any) -> Result:
            found[name] = args[:-1]
            args[-1](f"{name} is under way")
            return Result(name, f"title of {name}", [Figure("rate", "1/s", (1.0,), Wanted(at_least=2))])

        return bench

    for name in NAMES:
        monkeypatch.setattr(command, f"_{name}", measured(name))
    return found


@pytest.mark.parametrize("quick", [False, True])
def test_all_benchmarks_run_one_after_the_other_and_to_be_slow_is_no_finding(
    quick: bool, asked: dict[str, tuple[Any, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ["--quick"] if quick else []
    assert run(["all", "--out", str(out), *options]) == DONE
    assert list(asked) == NAMES
    assert asked["growth"] == (quick,)
    sizes = command.QUICK if quick else command.FULL
    assert asked["backlog"] == (sizes.backlog, 5)
    told = capsys.readouterr()
    assert "not reached" in told.out
    assert all(f"title of {name}" in told.out for name in NAMES)
    # In a pipe nothing is said of how far it is, but where it was written.
    assert told.err == f"mqproto: written to {out}\n"
    assert sorted(path.name for path in out.iterdir()) == ["bench.json", "bench.md"]


def test_nothing_is_written_unless_a_folder_is_named(
    asked: dict[str, tuple[Any, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["all", "--backlog", "1000000", "--json"]) == DONE
    assert list(tmp_path.iterdir()) == []
    assert asked["backlog"] == (1_000_000, 5)
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == ["machine", "benchmarks"]
    assert list(shown["benchmarks"]) == NAMES


def test_a_benchmark_that_fails_has_no_figures_and_the_others_are_measured_nonetheless(
    asked: dict[str, tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> Result:
        raise BenchError("of 3 messages: 1 messages lost")

    monkeypatch.setattr(command, "_chain", fails)
    assert run(["all", "--json"]) == FINDING
    found = json.loads(capsys.readouterr().out)["benchmarks"]
    assert found["chain"]["figures"] == []
    assert found["chain"]["broken"] == ["of 3 messages: 1 messages lost"]
    assert list(asked) == NAMES[1:]


LOST = BenchError("1 messages lost")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ExceptionGroup("", [LOST]), FINDING),
        (ExceptionGroup("", [ExceptionGroup("", [LOST, BenchError("another")])]), FINDING),
        (UsageError("no such thing"), MISUSE),
        (ExceptionGroup("", [UsageError("no such thing"), LOST]), MISUSE),
    ],
)
def test_errors_of_several_tasks_are_told_as_the_first_of_them(
    error: Exception,
    status: int,
    asked: dict[str, tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*_: object) -> Result:
        raise error

    monkeypatch.setattr(command, "_chain", fails)
    assert run(["chain", "--json"]) == status
    told = capsys.readouterr()
    if status == FINDING:
        assert json.loads(told.out)["benchmarks"]["chain"]["broken"] == ["1 messages lost"]
    else:
        assert told.err.startswith("mqproto: ")


def test_a_bug_is_not_taken_for_a_message_that_was_lost(
    asked: dict[str, tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> Result:
        raise ExceptionGroup("", [LOST, KeyError("a bug")])

    monkeypatch.setattr(command, "_chain", fails)
    assert run(["chain"]) == FINDING
    assert "a bug in mqproto" in capsys.readouterr().err


def test_what_is_broken_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(*_: object) -> Result:
        return Result("backlog", "many wait", [], broken=["sender had 300 MB resident"])

    monkeypatch.setattr(command, "_backlog", breaks)
    assert run(["backlog", "-m", "7"]) == FINDING
    assert "broken: sender had 300 MB resident" in capsys.readouterr().out


def test_what_one_of_several_refuses_does_not_cost_the_figures_of_the_others(
    asked: dict[str, tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(*_: object) -> Result:
        raise UsageError("the message is too large")

    monkeypatch.setattr(command, "_growth", refuses)
    assert run(["all", "--json"]) == FINDING
    assert json.loads(capsys.readouterr().out)["benchmarks"]["growth"]["broken"] == [
        "the message is too large"
    ]
    assert run(["growth"]) == MISUSE


def test_a_folder_that_cannot_be_had_is_refused_before_anything_is_measured(
    asked: dict[str, tuple[Any, ...]], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    assert run(["chain", "--out", str(tmp_path / "file")]) == MISUSE
    assert asked == {}


@pytest.mark.parametrize(
    ("missing", "name", "said"),
    [
        ("pyspark", "analysis", "the analysis is left out: pyspark is not installed"),
    ],
)
def test_a_benchmark_that_lacks_something_is_left_out_with_a_word(
    missing: str,
    name: str,
    said: str,
    asked: dict[str, tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda module: None if module == missing else find_spec(module))
    monkeypatch.setitem(sys.modules, missing, None)  # To import it fails.
    assert run(["all", "--json"]) == DONE
    told = capsys.readouterr()
    assert list(json.loads(told.out)["benchmarks"]) == [one for one in NAMES if one != name]
    assert f"mqproto: {said}" in told.err


def test_without_spark_the_analysis_alone_is_misuse(
    asked: dict[str, tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda module: None)
    assert run(["analyse"]) == MISUSE


@pytest.mark.parametrize(
    ("options", "name", "args"),
    [
        (["codec", "--rounds", "3"], "codec", (3,)),
        (["edges", "--quick"], "edges", (True, 5)),
        (
            ["chain", "-m", "7", "--window", "8", "--window", "9"],
            "chain",
            (7, [8, 9], 1_024, 5, None, [], []),
        ),
        (
            ["chain", "--encrypt", "--sign"],
            "chain",
            (20_000, (), 1_024, 5, None, ["encrypted", "signed"], []),
        ),
        (["chain", "--beside", "nats"], "chain", (20_000, (), 1_024, 5, None, [], ["nats"])),
        (["latency", "--beside", "nats", "--beside", "nats"], "latency", ((), 15, 5, ["nats"])),
        (["latency", "--rate", "50", "--seconds", "2", "--runs", "1"], "latency", ([50], 2.0, 1, [])),
        (["outage", "--kills", "3"], "outage", (3,)),
        (["growth", "--quick"], "growth", (True,)),
        (["world", "--worlds", "9"], "world", (9,)),
        (["analyse", "--packets", "70", "--flat", "10"], "analysis", (70, 5, 64, [10])),
    ],
)
def test_each_is_to_be_had_by_itself(
    options: list[str], name: str, args: tuple[Any, ...], asked: dict[str, tuple[Any, ...]]
) -> None:
    assert run([*options]) == DONE
    assert asked == {name: args}


@pytest.mark.parametrize("name", ["chain", "latency"])
def test_servers_that_nobody_knows_are_misuse(
    name: str, asked: dict[str, tuple[Any, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--beside", "kafka"]) == MISUSE
    assert capsys.readouterr().err == "mqproto: --beside kafka: it is one of nats\n"
    assert asked == {}

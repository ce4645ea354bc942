from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from mqproto.base.errors import UsageError
from tests.bench import __main__ as bench, machine
from tests.bench.figures import BenchError, Figure, Options, Result, Told

LOST = BenchError("of 3 messages: 1 messages lost")
asked: dict[str, Options] = {}


@pytest.fixture(autouse=True)
def _nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "FLUSHES", 1)
    monkeypatch.setattr(machine, "READS", 1)
    asked.clear()
    for name in bench.MEASURES:

        async def measure(options: Options, told: Told, name: str = name) -> Result:
            await trio.lowlevel.checkpoint()
            asked[name] = options
            return Result(f"title of {name}", [Figure("rate", "1/s", (1.0,), at_least=2)])

        monkeypatch.setitem(bench.MEASURES, name, measure)


def fails(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> None:
    async def measure(options: Options, told: Told) -> Result:
        await trio.lowlevel.checkpoint()
        raise error

    monkeypatch.setitem(bench.MEASURES, name, measure)


def test_all_are_measured_and_written_and_to_be_slow_is_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["--quick", "--out", str(tmp_path / "out")]) == 0
    assert list(asked) == list(bench.MEASURES)
    assert set(asked.values()) == {Options(rounds=bench.QUICK_ROUNDS, quick=True)}
    table = (tmp_path / "out" / "bench.md").read_text("utf-8")
    assert capsys.readouterr().out == f"{table}\n"
    assert "not reached" in table
    told = json.loads((tmp_path / "out" / "bench.json").read_text("utf-8"))
    assert list(told["benchmarks"]) == list(bench.MEASURES)


def test_what_is_typed_is_what_is_measured() -> None:
    typed = "chain --rounds 7 --window 8 --window 9 --protected --beside nats --messages 5"
    assert bench.main(typed.split()) == 0
    assert asked == {"chain": Options(7, False, 5, (8, 9), True, True)}
    assert bench.main(["analyse", "--mb", "100", "--mb", "10000", "--connections", "1"]) == 0
    assert asked["analyse"] == Options(megabytes=(100, 10_000), connections=1)


def test_one_that_fails_has_no_figures_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(monkeypatch, "chain", ExceptionGroup("", [ExceptionGroup("", [LOST, BenchError("another")])]))
    assert bench.main([]) == 1
    assert "**broken**: of 3 messages: 1 messages lost" in capsys.readouterr().out
    assert list(asked) == list(bench.MEASURES)[1:]


def test_what_cannot_be_measured_here_is_misuse(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(monkeypatch, "chain", UsageError("there is no nats-server here"))
    assert bench.main(["chain"]) == 2
    assert capsys.readouterr() == ("", "mqproto: there is no nats-server here\n")


def test_a_bug_is_not_taken_for_a_message_that_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    fails(monkeypatch, "chain", ExceptionGroup("", [LOST, KeyError("a bug")]))
    with pytest.raises(ExceptionGroup):
        bench.main(["chain"])

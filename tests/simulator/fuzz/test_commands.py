"""`mqproto fuzz` on the command line: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqproto.simulator.base.program.output import INTERRUPTED
from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE, run_command
from mqproto.simulator.fuzz.parser import fuzzer as fuzzing
from tests.conformance import ROOT
from tests.simulator.fuzz import planted

DOUBLED = f"{planted.__name__}:doubled"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_our_own_codec_is_the_target_unless_another_is_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["fuzz", "parser", "--count", "2000", "--seed", "3"]) == DONE
    printed = capsys.readouterr().out
    assert printed.startswith("mqproto.wire, seed 3: 2,000 packets in ")
    assert " a second of one core" in printed
    assert "construct agrees" in printed
    assert printed.endswith("no finding\n")
    assert not list(here.iterdir()), "a folder is made for a finding only"


def test_a_finding_is_printed_with_the_command_that_repeats_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["fuzz", "parser", "--target", DOUBLED, "--count", "12000", "--seed", "1", "--out", "found"]
    assert run_command(arguments) == FINDING
    [line] = [line for line in capsys.readouterr().out.splitlines() if "repeat with: " in line]
    repeat = line.partition("repeat with: mqproto ")[2].split()
    assert run_command(repeat) == FINDING
    assert "AccessViolation" in capsys.readouterr().out
    assert run_command([repeat[0], repeat[1], repeat[2].replace(".toml", ".bin")]) == FINDING
    capsys.readouterr()
    assert run_command([*repeat, "--json"]) == FINDING
    assert json.loads(capsys.readouterr().out)["seen"]["group"].startswith("AccessViolation")


@pytest.mark.parametrize("options", [["--out", "taken"], ["--corpus-out", "taken"], ["--loop"]])
def test_what_cannot_be_written_or_meant_is_said_before_the_run(
    here: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    (here / "taken").touch()
    assert run_command(["fuzz", "parser", "--seconds", "600", *options]) != DONE
    assert options[-1] in capsys.readouterr().err


def test_a_finding_that_is_mended_shows_no_more(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["fuzz", "parser", "--target", DOUBLED, "--count", "12000", "--seed", "1", "--json"]
    assert run_command(arguments) == FINDING
    report = json.loads(capsys.readouterr().out)
    assert report["packets"] == 12_000
    [finding] = report["findings"]
    monkeypatch.setattr(planted, "doubled", bytes)
    assert run_command(["fuzz", "repeat", finding["file"]]) == DONE
    assert capsys.readouterr().out.startswith("nothing wrong now; it was AccessViolation")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fuzz", "parser", "--target", "planted"], "module:function"),
        (["fuzz", "parser", "--expect", "Oops", "--target", "os:getcwd"], "Oops"),
        (["fuzz", "parser", "--corpus", "not-there"], "not-there"),
        (["fuzz", "repeat", "not-there"], "not-there"),
        (["fuzz", "repeat", str(ROOT / "pyproject.toml")], "not a finding"),
    ],
)
def test_misuse_is_one_line(
    arguments: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(arguments) == MISUSE
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out


def test_ctrl_c_prints_what_there_is(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(data: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fuzzing, "find_function", lambda target: interrupt)
    assert run_command(["fuzz", "parser", "--target", "any:any"]) == INTERRUPTED
    assert "1 packets" in capsys.readouterr().out

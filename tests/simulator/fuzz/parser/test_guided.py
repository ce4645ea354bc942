"""`--guided`, with a stand-in for atheris that calls as atheris does and returns as little as that."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from simulator.cli.cli import DONE, FINDING, MISUSE, run_command
from simulator.fuzz.parser.guided import fuzz_guided
from simulator.fuzz.parser.parser import OURS, Options, repeat
from tests.simulator.fuzz import planted

STAND_IN = textwrap.dedent("""
    import contextlib, os, pathlib, sys

    instrumented = []

    @contextlib.contextmanager
    def instrument_imports():
        yield

    def instrument_func(function):
        instrumented.append(function.__name__)
        return function

    def Setup(arguments, one_input, custom_mutator):
        global folder, call, mutator
        folder, call, mutator = pathlib.Path(arguments[1]), one_input, custom_mutator

    def Fuzz():
        if os.environ.get("STAND_IN_DIES"):
            os._exit(77)
        assert not instrumented or "read_UserMessage" in instrumented
        corpus = [path.read_bytes() for path in sorted(folder.iterdir())]
        seed = 0
        while True:
            seed += 1
            data = corpus[seed % len(corpus)]
            call(mutator(data, 4096, seed) if seed % 2 else data + b"?")
""")


@pytest.fixture
def atheris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "atheris.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("atheris")
@pytest.mark.pure("atheris sees which way the interpreter goes")
def test_all_single_mutations_come_first_and_then_what_the_guide_chooses() -> None:
    report = fuzz_guided(Options(target=OURS, seconds=60, packets=22_000))
    assert report.packets == 22_000
    assert report.findings.lines() == []
    assert report.kinds["guided"] > 100
    assert report.kinds["unmutated"] > 10
    assert report.rate > 0


@pytest.mark.usefixtures("atheris")
def test_a_finding_comes_home_from_the_process_that_made_it(tmp_path: Path) -> None:
    name = f"{planted.__name__}:doubled"
    report = fuzz_guided(Options(target=name, seconds=60, packets=25_000, folder=tmp_path / "found"))
    [finding] = report.findings.first.values()
    assert repeat(finding) == (finding.group, finding.detail)
    assert report.findings.counts[finding.group] > 1
    assert len(list((tmp_path / "found").iterdir())) == 2


@pytest.mark.usefixtures("atheris")
def test_a_target_that_is_none_is_misuse_there_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["fuzz", "parser", "--guided", "--target", "struct:no_such"]) == MISUSE
    assert "no_such" in capsys.readouterr().err


@pytest.mark.usefixtures("atheris")
def test_a_guide_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_DIES", "1")
    with pytest.raises(UsageError, match="status 77"):
        fuzz_guided(Options(target=f"{planted.__name__}:announced", seconds=60))


@pytest.mark.usefixtures("atheris")
def test_the_command_says_what_it_has_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name = f"{planted.__name__}:aligned"
    arguments = ["fuzz", "parser", "--guided", "--packets", "25000", "--seed", "1", "--out", str(tmp_path)]
    assert run_command([*arguments, "--target", name]) == FINDING
    assert "repeat with" in capsys.readouterr().out
    assert run_command([*arguments, "--target", f"{planted.__name__}:open_message"]) == DONE


def test_without_atheris_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "atheris", None)
    assert run_command(["fuzz", "parser", "--guided"]) == MISUSE
    assert "pip install atheris" in capsys.readouterr().err

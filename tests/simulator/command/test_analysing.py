"""The line that shows the progress of an analysis."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mqproto.captures.pipeline.engines.progress import Progress
from mqproto.simulator.command.analysing import ProgressLine


class Clock:
    """A clock that a test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress("starting Spark"), "starting Spark  8 s"),
        (Progress("reading", 0, 16), "reading  0 of 16  8 s"),
        (Progress("reading", 1, 1_600), "reading  1 of 1,600  8 s"),
    ],
)
def test_it_says_the_stage_and_for_how_long_it_has_gone_on(progress: Progress, line: str) -> None:
    clock = Clock()
    shown = ProgressLine(Console(file=io.StringIO()), clock)
    shown(Progress("what came before", 1, 1))
    clock.now_s += 1_000
    shown(progress)
    clock.now_s += 8
    assert shown.line() == line


def test_before_anything_is_known_it_is_empty() -> None:
    assert ProgressLine(Console(file=io.StringIO())).line() == ""


@pytest.mark.parametrize("width", [20, 80])
def test_on_a_terminal_it_is_one_line_however_narrow_and_is_gone_at_the_end(width: int) -> None:
    output = io.StringIO()
    shown = ProgressLine(Console(file=output, force_terminal=True, width=width), Clock())
    with shown.shown():
        shown(Progress("reading the records of all captures", 1, 2))
    drawn = output.getvalue()
    assert "reading the " in drawn
    assert drawn.count("\n") <= 1
    assert drawn.endswith("\x1b[1A\x1b[2K")


def test_in_a_pipe_it_says_nothing() -> None:
    output = io.StringIO()
    shown = ProgressLine(Console(file=output, force_terminal=False), Clock())
    with shown.shown():
        shown(Progress("reading", 1, 2))
    assert output.getvalue() == ""


def test_what_is_printed_meanwhile_goes_where_it_was_to_go(capsys: pytest.CaptureFixture[str]) -> None:
    """With `mqproto analyse --watch > file` on a terminal, for example, only the progress line goes to the terminal."""
    output = io.StringIO()
    with ProgressLine(Console(file=output, force_terminal=True, width=40), Clock()).shown():
        print("a batch")
    assert capsys.readouterr().out == "a batch\n"
    assert "a batch" not in output.getvalue()

"""Progress output for a user at a terminal; programs that read the output do not get it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from mqproto.simulator.base import screen
from tests.simulator.typed import in_process

ERASED = "\x1b[2K"
CURSOR = "\x1b[?25h"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return the text that a terminal receives from standard error."""
    sent = io.StringIO()
    console = Console(file=sent, force_terminal=True, width=60, highlight=False)
    monkeypatch.setattr(screen, "wide_console", lambda **options: console)
    return sent


def test_work_is_named_while_it_lasts_and_gone_at_the_end(terminal: io.StringIO) -> None:
    with screen.working("reading [tables]") as say:
        say("drawing [a page]")
    _, drawn, rest = terminal.getvalue().rpartition("drawing [a page]  0 s")
    assert drawn
    assert ERASED in rest
    assert CURSOR in rest


def test_nothing_is_left_behind_by_who_is_interrupted(terminal: io.StringIO) -> None:
    with pytest.raises(KeyboardInterrupt), screen.working("reading"):
        raise KeyboardInterrupt
    _, _, rest = terminal.getvalue().rpartition("reading  0 s")
    assert ERASED in rest
    assert CURSOR in rest


def test_a_pipe_hears_nothing_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    with screen.working("reading") as say:
        say("on")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["keys", "make", "sender", "--bits", "1024"], "making keys"),
        (["audit"], "reading the history, stores and logs"),
        (["failed", "list"], "reading stores, for what has failed"),
    ],
)
def test_long_work_says_on_a_terminal_what_it_does(
    command: list[str], words: str, terminal: io.StringIO, tmp_path: Path
) -> None:
    in_process(*command, "-d", tmp_path)
    drawn, _, rest = terminal.getvalue().rpartition(words)
    assert drawn
    assert ERASED in rest

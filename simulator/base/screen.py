"""Output for people. On a terminal, long tasks show their progress; in a pipe, only the result."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

PIPE_COLUMNS: Final = 200


def wide_console(*, stderr: bool = False, markup: bool = True) -> Console:
    """Return a console as wide as the terminal. A pipe counts as wide enough for all of our tables."""
    console = Console(highlight=False, stderr=stderr, markup=markup)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_COLUMNS
    return console


def plain_table(*headings: str) -> Table:
    """Return a table without lines. Its first column is for words, and the others are for numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    return table


@contextmanager
def working(words: str) -> Iterator[Callable[[str], None]]:
    """Show the current step, and how long it has taken, on a temporary line; show nothing in a pipe.

    This is for work that cannot report how much is left. Call the yielded function with a description of the next step,
    or with the progress of the current one.
    """
    console = wide_console(stderr=True, markup=False)
    began_s = time.monotonic()
    said = words

    def say(text: str) -> None:
        nonlocal said
        said = text

    def drawn() -> Text:
        return Text(f"{said}  {time.monotonic() - began_s:.0f} s", no_wrap=True, overflow="ellipsis")

    with redrawn(console, drawn):
        yield say


@contextmanager
def redrawn(console: Console, drawn: Callable[[], Text]) -> Iterator[None]:
    """Show a temporary line, which may change at any time, on a terminal; show nothing in a pipe."""
    if not console.is_terminal:
        yield
        return
    with Live(
        console=console,
        get_renderable=drawn,
        refresh_per_second=4,
        transient=True,
        # Other output goes above the line, unless standard output is redirected to a file.
        redirect_stdout=sys.stdout.isatty(),
    ):
        yield


class ProgressScreen:
    """The screen of a running command: a line or table that changes, and the lines above it, which stay."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = wide_console(stderr=quiet)
        self._live: Live | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show progress while the block runs, if this is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, refresh_per_second=8, transient=True) as self._live:
            yield
        self._live = None

    def say(self, text: str) -> None:
        """Print a line that stays, but only on a terminal."""
        if self._console.is_terminal:
            self._console.print(text, markup=False)

    def show(self, what: RenderableType) -> None:
        """Show a line or a table until the next one replaces it."""
        if self._live is not None:
            self._live.update(what)


def show_verdict(console: Console, broken: list[str], kept: str) -> None:
    """Print each broken promise; if none is broken, print `kept`."""
    for promise in broken:
        console.print("[bold red]broken:[/] ", end="")
        console.print(promise, markup=False)
    if not broken:
        console.print(f"[bold green]{kept}[/]")

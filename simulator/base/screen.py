"""What people see. On a terminal long work shows its progress; in a pipe it says nothing until it is done."""

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
    """The terminal as wide as it is; a pipe as wide as any of our tables, so that none is folded for a program."""
    console = Console(highlight=False, stderr=stderr, markup=markup)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_COLUMNS
    return console


def plain_table(*headings: str) -> Table:
    """A table without lines; the first column is words, the others are numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    return table


@contextmanager
def working(words: str) -> Iterator[Callable[[str], None]]:
    """Say what is being done, and for how long, on a line of the terminal that is gone at the end; nothing in a pipe.

    It is for work that cannot tell how much is left. Call what it yields with the words of the next step, or with how
    far this one has come.
    """
    console = wide_console(stderr=True, markup=False)
    began_s = time.monotonic()
    said = words

    def say(text: str) -> None:
        nonlocal said
        said = text

    def drawn() -> Text:
        return Text(f"{said}  {time.monotonic() - began_s:.0f} s", no_wrap=True, overflow="ellipsis")

    if not console.is_terminal:
        yield say
        return
    with Live(
        console=console,
        get_renderable=drawn,
        refresh_per_second=4,
        transient=True,
        # What is printed meanwhile goes above the line, but into a file if it was to go there.
        redirect_stdout=sys.stdout.isatty(),
    ):
        yield say


class ProgressScreen:
    """Nodes while they run: one line for each, and what happens to them above it."""

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
        """One line that stays; for the terminal only."""
        if self._console.is_terminal:
            self._console.print(text, markup=False)

    def show(self, what: RenderableType) -> None:
        """A line or a table that is replaced by the next."""
        if self._live is not None:
            self._live.update(what)


def show_verdict(console: Console, broken: list[str], kept: str) -> None:
    """The promises that were not kept, or that they were."""
    for promise in broken:
        console.print("[bold red]broken:[/] ", end="")
        console.print(promise, markup=False)
    if not broken:
        console.print(f"[bold green]{kept}[/]")

"""Shows the progress of a replay as a line on a terminal, and shows nothing in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

from mqproto.captures.answers import Answers
from mqproto.simulator.base.screen import wide_console


@contextmanager
def progress(live: Answers, count: int) -> Iterator[None]:
    """While the block runs, show how many of the messages have been sent."""
    console = wide_console(stderr=True)
    columns = (TextColumn("messages sent"), BarColumn(), MofNCompleteColumn())
    bar = _Bar(live, *columns, console=console, transient=True, disable=not console.is_terminal)
    bar.add_task("", total=count)
    with bar:
        yield


class _Bar(Progress):
    """A bar that reads its count whenever it is drawn."""

    def __init__(self, live: Answers, *columns: ProgressColumn, **options: Any) -> None:
        self._live = live
        super().__init__(*columns, **options)

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            task.completed = self._live.sent_count
        return super().get_renderables()

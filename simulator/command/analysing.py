"""Shows the progress of `mqproto analyse` on one line of a terminal.

In a pipe, nothing is printed before the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from mqproto.simulator.base.screen import redrawn, wide_console

if TYPE_CHECKING:
    from mqproto.captures.pipeline.engines.progress import Progress


class ProgressLine:
    """A line that is redrawn while a job runs, and removed at the job's end.

    Call it with each progress report.

    It is written to standard error, because the job's results may go to a file.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or wide_console(stderr=True, markup=False)
        self._clock = clock
        self._progress: Progress | None = None
        self._began_s = clock()

    def shown(self) -> AbstractContextManager[None]:
        """Draw the line while the block runs, if the output is a terminal."""
        return redrawn(self._console, self._drawn)

    def __call__(self, progress: Progress) -> None:
        if self._progress is None or progress.stage != self._progress.stage:
            self._began_s = self._clock()
        self._progress = progress

    def _drawn(self) -> Text:
        return Text(self.line(), no_wrap=True, overflow="ellipsis")

    def line(self) -> str:
        """Return the current line: the stage, how much of it is done, and its duration so far."""
        progress = self._progress
        if progress is None:
            return ""
        passed_s = self._clock() - self._began_s
        words = [progress.stage]
        if progress.total:
            words.append(f"{progress.done:,} of {progress.total:,}")
        return "  ".join([*words, f"{passed_s:.0f} s"])

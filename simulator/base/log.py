"""The log of a node. It has one line for each event that an operator may want to know about."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor


class LogLines(Protocol):
    """Where log lines are written: to a stream, or to a file that rotates."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...


class Together:
    """While a block runs, gathers the lines of a log. At its end, they are one write."""

    def __init__(self) -> None:
        self.lines: list[str] | None = None
        self.write: Callable[[str], object] = len

    def __enter__(self) -> None:
        self.lines = []

    def __exit__(self, *failed: object) -> None:
        lines, self.lines = self.lines, None
        if lines:
            self.write("".join(lines))


class _Forgiving:
    """Swallows write errors, such as those of a full disk.

    It counts the lost lines and reports their number with the next line.
    """

    def __init__(self, file: LogLines, together: Together) -> None:
        self._file = file
        self._write = _unbuffered(file)
        self._lost = 0
        self._together = together
        together.write = self.write

    def write(self, text: str, /) -> int:
        if self._together.lines is not None:
            self._together.lines.append(text)
            return len(text)
        lost = self._lost
        told = (
            "" if not lost else json.dumps({"event": "lines-lost", "level": "warning", "count": lost}) + "\n"
        )
        try:
            self._write(told + text)
        except OSError:
            self._lost += text.count("\n")
        else:
            self._lost -= lost
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


def _unbuffered(file: LogLines) -> Callable[[str], object]:
    """Return a function that either writes a line at once or drops it.

    Python tries to flush a buffer when the program ends. If that fails, the exit status is 120.
    """
    raw = getattr(getattr(file, "buffer", None), "raw", None)
    if raw is None:
        return file.write

    def write(text: str) -> None:
        left = memoryview(text.encode("utf-8", "backslashreplace"))
        while left:
            written_bytes = raw.write(left)
            if written_bytes is None:
                raise BlockingIOError(errno.EAGAIN, "nobody reads it")
            left = left[written_bytes:]

    return write


COMPLAINT: Final = "ended"
"""The event that is logged when a node cannot run, or can no longer run."""


def node_log(file: LogLines, node: str, together: Together | None = None) -> FilteringBoundLogger:
    """Return a log that writes one JSON object per line, or readable lines if it goes to a terminal.

    together: joins lines into one write, if the caller wants that.
    """
    renderer: Processor
    renderer = structlog.dev.ConsoleRenderer() if file.isatty() else structlog.processors.JSONRenderer()
    log = structlog.wrap_logger(
        structlog.WriteLogger(cast(TextIO, _Forgiving(file, together or Together()))),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(0),
    )
    bound: FilteringBoundLogger = log.bind(node=node)
    return bound

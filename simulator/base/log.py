"""The log of a node: one line for each thing that an operator may want to know."""

from __future__ import annotations

from typing import Protocol, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor


class Lines(Protocol):
    """Where lines go: a stream, or a file that rotates."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...


def node_log(file: Lines, node: str) -> FilteringBoundLogger:
    """A log that writes JSON, one object a line; for people if the file is a terminal."""
    renderer: Processor
    renderer = structlog.dev.ConsoleRenderer() if file.isatty() else structlog.processors.JSONRenderer()
    log = structlog.wrap_logger(
        structlog.WriteLogger(cast(TextIO, file)),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(0),
    )
    bound: FilteringBoundLogger = log.bind(node=node)
    return bound

"""How far a job is: a listener is told now and then. The listener draws it; nothing here writes to a terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one stage is.

    stage: what is being done, in words.
    done, total: ranges, or whatever the stage goes by; a total of 0 means that it is not known.
    packets, size_bytes: what has been read, since the stage began.
    """

    stage: str
    done: int = 0
    total: int = 0
    packets: int = 0
    size_bytes: int = 0


Listener = Callable[[Progress], None]
"""Called often, and not always from the same thread; it must not block."""


def nobody(progress: Progress) -> None:
    """The listener that does not care."""

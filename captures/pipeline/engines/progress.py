"""The progress of a job, reported now and then to a listener, which may draw it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one stage.

    stage: what is being done, in words.
    done, total: how many ranges, or other units that the stage counts, are done, and how many there are; a total of 0
        means that the total is unknown.
    """

    stage: str
    done: int = 0
    total: int = 0


Listener = Callable[[Progress], None]
"""A function that is called often, and not always from the same thread; it must not block."""


def nobody(progress: Progress) -> None:
    """Ignore progress."""

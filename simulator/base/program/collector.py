"""Less work for Python's collector, where much is kept and little of it is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ALLOCATIONS: Final = 100_000
"""After how many more objects than were freed the collector looks for cycles; by default, after 700."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """In this block the collector has little to do: queues, lists and worlds have few cycles.

    To look for some after each 700 allocations costs a tenth, and the more, the more is kept.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(ALLOCATIONS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()

"""Makes Python's garbage collector do less in programs that keep many objects and make little garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ALLOCATIONS: Final = 100_000
"""The collector looks for cycles when this many more objects have been made than freed.

Python's default is 700.
"""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Make the collector run rarely in this block.

    Queues, lists and worlds have few cycles. But a search after every 700 allocations takes a tenth of the running
    time, and more if there are more objects.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(ALLOCATIONS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()

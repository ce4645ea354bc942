"""Processes that work for another process. They end when it does, no matter how it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading


def begin() -> None:
    """Start a process of a pool. It leaves Ctrl-C to its parent, and ends when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="the end of its parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

"""The processor time and resident memory of processes that this process has started, as Linux reports them."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from mqproto.simulator.base.processes import PROC, cpu_s_of, memory_of

INTERVAL_S: Final = 0.25
GROWTH: Final = 1.05
"""The growth of resident memory, as a ratio, after which shared pages are counted again.

The kernel has to go through all pages to count them.
"""


class Taken(NamedTuple):
    """The costs of processes while they were watched; None if the kernel does not report them.

    peak_bytes: the most memory that all of them had resident at one time. Pages that several of them share are counted
        once.
    """

    cpu_s: float | None
    peak_bytes: int | None


def parent_in(stat: str) -> int:
    """Return the parent of a process, from /proc/PID/stat.  man 5 proc

    The process's name there may contain spaces and parentheses.
    """
    return int(stat.rpartition(") ")[2].split()[1])


def started_by(pid: int, proc: Path = PROC) -> list[int]:
    """Return the processes that a process has started, those that these have started, and so on."""
    below: dict[int, list[int]] = {}
    for file in proc.glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = parent_in(file.read_text("utf-8", "replace"))
            below.setdefault(parent, []).append(int(file.parent.name))
    found, waiting = [], [pid]
    while waiting:
        children = below.pop(waiting.pop(), [])
        found += children
        waiting += children
    return found


def _share_of(pid: int) -> int:
    """Return a process's resident memory, with shared pages divided among their users; 0 if it is gone."""
    with suppress(OSError):
        text = (PROC / str(pid) / "smaps_rollup").read_text("ascii")
        found = re.search(r"^Pss:\s*(\d+) kB$", text, re.MULTILINE)
        return 1_024 * int(found[1]) if found else 0
    return 0


class Watch:
    """Looks at the processes every quarter of a second, until the end of the block.

    with Watch() as watch:
        ...
    print(watch.taken())
    """

    def __init__(self) -> None:
        self._cpu_s: dict[int, float] = {}
        self._resident_bytes = self._peak_bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._look()
        self._before_s = sum(self._cpu_s.values())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def taken(self) -> Taken:
        """Return the costs. Call this after the block has ended."""
        # What has ended is counted as it was last seen: not all parents wait for their children, as the kernel's own
        # sums need it.
        if not self._peak_bytes:
            return Taken(None, None)
        return Taken(sum(self._cpu_s.values()) - self._before_s, self._peak_bytes)

    def _keep_looking(self) -> None:
        while not self._over.wait(INTERVAL_S):
            self._look()

    def _look(self) -> None:
        started = started_by(os.getpid())
        self._cpu_s |= {pid: cpu_s for pid in started if (cpu_s := cpu_s_of(pid)) is not None}
        resident_bytes = sum(memory_of(pid).resident_bytes or 0 for pid in started)
        if resident_bytes > GROWTH * self._resident_bytes:
            self._resident_bytes = resident_bytes
            self._peak_bytes = max(self._peak_bytes, sum(map(_share_of, started)))

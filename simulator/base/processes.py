"""What processes take: resident memory and processor time, as /proc has them. Elsewhere nothing is known."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
INTERVAL_S: Final = 0.25
GROWTH: Final = 1.05
"""After what growth of resident memory shared pages are sorted out, for which the kernel goes through all pages."""
SCHEDULED: Final = 2
"""In the number of a process's clock: what the scheduler gave it, user and system time."""
RESET_PEAK: Final = "5"
"""Written to /proc/PID/clear_refs, this makes the peak what is resident now.  man 5 proc"""


class Memory(NamedTuple):
    """Resident memory of a process, now and at its most; None where the kernel does not tell."""

    resident_bytes: int | None
    peak_bytes: int | None


class Process(NamedTuple):
    """A process that runs.

    cpu_s: user and system time, of this process alone.
    """

    pid: int
    parent: int
    name: str
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Taken:
    """What processes took while they were watched.

    cpu_s: of all together; None where the kernel does not tell.
    peak_bytes: by name, of the one that had most resident.
    all_bytes: the most that all had at a time, pages that several share counted once.
    """

    cpu_s: float | None
    peak_bytes: dict[str, int]
    all_bytes: int | None


def memory_of(pid: int) -> Memory:
    """The resident memory of a process, from /proc; on a system without it both are None."""
    try:
        text = (PROC / str(pid) / "status").read_text("utf-8", "replace")
    except OSError:
        return Memory(None, None)
    return memory_in(text)


def memory_in(status: str) -> Memory:
    """The two lines of /proc/PID/status that tell of resident memory; what it calls kB is 1,024 bytes."""
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s*(\d+) kB$", status, re.MULTILINE))
    resident, peak = (1_024 * int(found[name]) if name in found else None for name in ("VmRSS", "VmHWM"))
    return Memory(resident, peak)


def share_of(pid: int) -> int | None:
    """The resident memory of a process where each page that several share is divided among them; None as for others."""
    with suppress(OSError):
        found = re.search(
            r"^Pss:\s*(\d+) kB$", (PROC / str(pid) / "smaps_rollup").read_text("ascii"), re.MULTILINE
        )
        return 1_024 * int(found[1]) if found else None
    return None


def process_in(stat: str) -> Process:
    """What /proc/PID/stat tells.  man 5 proc"""
    # A name may have spaces and parentheses in it, and ends with the last parenthesis.
    pid, _, rest = stat.partition(" (")
    name, _, numbers = rest.rpartition(") ")
    fields = numbers.split()
    ticks = int(fields[11]) + int(fields[12])  # utime, stime
    return Process(int(pid), int(fields[1]), name, ticks / os.sysconf("SC_CLK_TCK"))


def process_of(pid: int) -> Process | None:
    """A process, if it still is; None as for others."""
    with suppress(OSError):
        return process_in((PROC / str(pid) / "stat").read_text("utf-8", "replace"))
    return None


def cpu_s_of(pid: int) -> float | None:
    """User and system time of a process so far, without those that it started; None as for others.

    On Linux to the microsecond, by the clock that each process has (man 3 clock_getcpuclockid); /proc has 10 ms.
    """
    with suppress(AttributeError, OSError):
        return time.clock_gettime(~pid << 3 | SCHEDULED)
    process = process_of(pid)
    return None if process is None else process.cpu_s


def started_by(pid: int) -> list[Process]:
    """The processes that one has started, those that these have started, and so on."""
    below: dict[int, list[Process]] = {}
    for process in _running():
        below.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [pid]
    while waiting:
        children = below.pop(waiting.pop(), [])
        found += children
        waiting += [child.pid for child in children]
    return found


def _running() -> Iterator[Process]:
    for folder in PROC.glob("[0-9]*"):
        if (process := process_of(int(folder.name))) is not None:
            yield process


class Watch:
    """Looks every quarter of a second at what all processes take that this one has started.

    The kernel keeps the peak of each, so a short one is not missed, unless its process ends before the next look. Those
    that do nothing meanwhile are not counted, except as parents of others.

    with Watch() as watch:
        ...
    print(watch.taken())
    """

    def __init__(self) -> None:
        self._before_s: dict[int, float] = {}
        self._cpu_s: dict[int, float] = {}
        self._peak_bytes: dict[str, int] = {}
        self._all_bytes: int | None = None
        self._resident_bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        processes = started_by(os.getpid())
        for process in processes:
            with suppress(OSError):
                (PROC / str(process.pid) / "clear_refs").write_text(RESET_PEAK)
        self._before_s = {process.pid: process.cpu_s for process in processes}
        self._cpu_s = dict(self._before_s)
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def taken(self) -> Taken:
        """What was seen, once the block has ended."""
        # What has ended is counted as it was last seen: not all parents wait for their children, as the kernel's own
        # sums need it.
        cpu_s = sum(self._cpu_s.values()) - sum(self._before_s.values())
        return Taken(cpu_s if self._peak_bytes else None, self._peak_bytes, self._all_bytes)

    def _keep_looking(self) -> None:
        while not self._over.wait(INTERVAL_S):
            self._look()

    def _look(self) -> None:
        processes = started_by(os.getpid())
        self._cpu_s |= {process.pid: process.cpu_s for process in processes}
        busy = self._busy(processes)
        resident_bytes = 0
        for process in busy:
            memory = memory_of(process.pid)
            resident_bytes += memory.resident_bytes or 0
            if memory.peak_bytes is not None:
                peak_bytes = max(self._peak_bytes.get(process.name, 0), memory.peak_bytes)
                self._peak_bytes[process.name] = peak_bytes
        if resident_bytes > GROWTH * self._resident_bytes:
            self._resident_bytes = resident_bytes
            shares = [share_of(process.pid) for process in busy]
            self._all_bytes = max(self._all_bytes or 0, sum(share or 0 for share in shares))

    def _busy(self, processes: list[Process]) -> list[Process]:
        """Those that have done something since the beginning, and their parents."""
        by_pid = {process.pid: process for process in processes}
        busy: dict[int, Process] = {}
        for process in processes:
            if process.cpu_s != self._before_s.get(process.pid):
                above: Process | None = process
                while above is not None and above.pid not in busy:
                    busy[above.pid] = above
                    above = by_pid.get(above.parent)
        return list(busy.values())

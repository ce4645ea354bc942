"""Resident memory and processor time of processes, from /proc; unknown on systems without it."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
SCHEDULED: Final = 2
"""The part of a clock's number that selects user and system time, as counted by the scheduler."""
RESET_PEAK: Final = "5"
"""The text that resets the peak to the current resident size when written to /proc/PID/clear_refs.  man 5 proc"""


class Memory(NamedTuple):
    """Resident memory of a process, current and peak; None if the kernel does not report it."""

    resident_bytes: int | None
    peak_bytes: int | None


def memory_of(pid: int) -> Memory:
    """Return the resident memory of a process, from /proc; both None on a system without it."""
    try:
        text = (PROC / str(pid) / "status").read_text("utf-8", "replace")
    except OSError:
        return Memory(None, None)
    return memory_in(text)


def memory_in(status: str) -> Memory:
    """Return the resident memory that /proc/PID/status states; its kB is 1,024 bytes."""
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s*(\d+) kB$", status, re.MULTILINE))
    resident, peak = (1_024 * int(found[name]) if name in found else None for name in ("VmRSS", "VmHWM"))
    return Memory(resident, peak)


def cpu_s_of(pid: int) -> float | None:
    """Return a process's user and system time, without its children; None if the kernel does not report it.

    On Linux this is exact to the microsecond: each process has a clock (man 3 clock_getcpuclockid).
    """
    with suppress(AttributeError, OSError):
        return time.clock_gettime(~pid << 3 | SCHEDULED)
    return None

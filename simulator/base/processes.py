"""What processes take: resident memory and processor time, as /proc has them. Elsewhere nothing is known."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
SCHEDULED: Final = 2
"""In the number of a process's clock: what the scheduler gave it, user and system time."""
RESET_PEAK: Final = "5"
"""Written to /proc/PID/clear_refs, this makes the peak what is resident now.  man 5 proc"""


class Memory(NamedTuple):
    """Resident memory of a process, now and at its most; None where the kernel does not tell."""

    resident_bytes: int | None
    peak_bytes: int | None


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


def cpu_s_of(pid: int) -> float | None:
    """User and system time of a process so far, without those that it started; None where the kernel does not tell.

    On Linux to the microsecond, by the clock that each process has (man 3 clock_getcpuclockid).
    """
    with suppress(AttributeError, OSError):
        return time.clock_gettime(~pid << 3 | SCHEDULED)
    return None

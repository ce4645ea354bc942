"""The resident memory and processor time of processes, from /proc; unknown on systems without /proc."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
SCHEDULED: Final = 2
"""The bits of a clock ID that select user and system time, as measured by the scheduler."""
RESET_PEAK: Final = "5"
"""What to write to /proc/PID/clear_refs to reset the peak to the current resident size.  man 5 proc"""


class Memory(NamedTuple):
    """The resident memory of a process, current and peak. Each is None if the kernel does not report it."""

    resident_bytes: int | None
    peak_bytes: int | None


def memory_of(pid: int) -> Memory:
    """Return the resident memory of a process, from /proc. Both values are None on a system without it."""
    try:
        text = (PROC / str(pid) / "status").read_text("utf-8", "replace")
    except OSError:
        return Memory(None, None)
    return memory_in(text)


def memory_in(status: str) -> Memory:
    """Return the resident memory according to the text of /proc/PID/status, where a kB is 1,024 bytes."""
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s*(\d+) kB$", status, re.MULTILINE))
    resident, peak = (1_024 * int(found[name]) if name in found else None for name in ("VmRSS", "VmHWM"))
    return Memory(resident, peak)


def cpu_s_of(pid: int) -> float | None:
    """Return a process's user and system time, without that of its children; None if it is not reported.

    On Linux, this is exact to the microsecond: each process has a clock (man 3 clock_getcpuclockid).
    """
    with suppress(AttributeError, OSError):
        return time.clock_gettime(~pid << 3 | SCHEDULED)
    return None

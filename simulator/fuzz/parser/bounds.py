"""Limits on the time and the memory that a parser may take for one packet.

Neither limit costs anything per packet. A timer checks now and then whether the fuzzer is still at the same packet, and
the system refuses memory beyond the limit.
"""

from __future__ import annotations

import gc
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

WAITING: Final = 10
"""How many times its limit of processor time a packet may take by the clock: a parser may wait for ever."""
_STATM: Final = Path("/proc/self/statm")


class TookTooLong(BaseException):
    """The parser took too long. This is not an Exception, because a parser that catches every Exception must not catch
    it."""


class Watch:
    """Stops a parser that takes too long.

    Args:
        limit_s: the limit in seconds of processor time, so that a busy machine does not cause findings. By the clock,
            a packet may take WAITING times as long.

    packets: the number of packets so far, which the caller increments for each packet.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.packets = 0
        self._at = -1
        self._since_s = self._since_clock_s = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the parser while the block runs. The block must run in the main thread."""
        before = [(number, signal.signal(number, self._look)) for number in (signal.SIGPROF, signal.SIGALRM)]
        tick_s = self.limit_s / 32
        gc.freeze()  # A collection counts as the packet's time: keep it from visiting all older objects.
        signal.setitimer(signal.ITIMER_PROF, tick_s, tick_s)
        signal.setitimer(signal.ITIMER_REAL, WAITING * tick_s, WAITING * tick_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            gc.unfreeze()
            for number, handler in before:
                signal.signal(number, handler)

    def _look(self, _signal: int, _frame: FrameType | None) -> None:
        now_s, clock_s = time.process_time(), time.monotonic()
        if self.packets != self._at:
            self._at, self._since_s, self._since_clock_s = self.packets, now_s, clock_s
        elif now_s - self._since_s >= self.limit_s:
            self._at = -1
            raise TookTooLong(f"over {self.limit_s:g} s of processor time for one packet")
        elif clock_s - self._since_clock_s >= WAITING * self.limit_s:
            self._at = -1
            raise TookTooLong(f"over {WAITING * self.limit_s:g} s for one packet: it waits for something")


@contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """Allow this much memory, in bytes, beyond the memory in use now. An allocation beyond the limit raises
    MemoryError.

    A nested block replaces the limit, whether its own is higher or lower. This works only on Linux; other systems get
    no limit.
    """
    if not _STATM.exists():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = int(_STATM.read_text().split()[0]) * resource.getpagesize() + more_bytes
    resource.setrlimit(
        resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

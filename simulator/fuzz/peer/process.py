"""The peer's process, if it runs on this machine: whether it is alive, and how much memory it uses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.simulator.fuzz.peer.conduct import Fault, PeerFailure

MB: Final = 2**20


class Process:
    """A process, identified by its number.

    Args:
        growth_mb: the number of MB by which its memory may grow.

    Raises:
        UsageError: there is no such process.
    """

    def __init__(self, pid: int, growth_mb: float) -> None:
        self.pid = pid
        self.growth_mb = growth_mb
        self._said = False
        if not self.lives:
            raise UsageError(f"--pid {pid}: there is no such process")
        self.first_mb = self.last_mb = self._resident_mb()

    def check(self) -> Fault | None:
        """Return a fault if the process has ended or grown too much. Growth is reported once."""
        if not self.lives:
            return Fault(PeerFailure.CRASHES, "its process has ended", f"process {self.pid}")
        self.last_mb = self._resident_mb()
        if self.last_mb - self.first_mb > self.growth_mb and not self._said:
            self._said = True
            grown = f"from {self.first_mb:,.0f} to {self.last_mb:,.0f} MB"
            return Fault(PeerFailure.GROWS, f"it holds over {self.growth_mb:,.0f} MB more than before", grown)
        return None

    @property
    def lives(self) -> bool:
        """Whether the process is still running."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        status = Path(f"/proc/{self.pid}/stat")
        # A zombie has ended, but its parent has not read its status.
        return not status.exists() or status.read_text("utf-8").rpartition(") ")[2][:1] != "Z"

    def _resident_mb(self) -> float:
        """Return the process's resident memory in MB, or 0 if the system does not report it. Only Linux reports it."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text("utf-8").split()[1])
        except (OSError, IndexError, ValueError):
            return 0.0
        return pages * os.sysconf("SC_PAGE_SIZE") / MB

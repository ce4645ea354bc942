"""Whether the disk has the room that the quota of a store promises, at the start and while the node runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

LOOK_S: Final = 60.0
"""How often the file system is asked."""
GROWTH_S: Final = 600.0
"""Over how long growth is measured, at least."""


def free_bytes(folder: Path) -> int:
    """What this user may still write there."""
    return shutil.disk_usage(folder).free


class Room:
    """Compares what a store may still grow by with what is free; says so when the answer changes.

    Args:
        free: how many bytes the file system has left.
    """

    def __init__(self, quota_bytes: int, free: Callable[[], int]) -> None:
        self._quota_bytes = quota_bytes
        self._free = free
        self._looked_s = -LOOK_S
        self._is_short = False
        self._before: tuple[float, int] | None = None
        """A time, and the size of the store then."""
        self._bytes_per_s = 0.0

    def look(self, stored_bytes: int, now_s: float) -> tuple[str, dict[str, Any]] | None:
        """A line for the log, if there is something new; asks the file system once a minute."""
        if now_s - self._looked_s < LOOK_S:
            return None
        self._looked_s = now_s
        if self._before is None:
            self._before = now_s, stored_bytes
        elif now_s - self._before[0] >= GROWTH_S:
            self._bytes_per_s = (stored_bytes - self._before[1]) / (now_s - self._before[0])
            self._before = now_s, stored_bytes
        try:
            free = self._free()
        except OSError:
            return None  # A file system that cannot tell is no reason to end.
        is_short = self._quota_bytes - stored_bytes > free
        if is_short == self._is_short:
            return None
        self._is_short = is_short
        facts: dict[str, Any] = {
            "quota_bytes": self._quota_bytes,
            "stored_bytes": stored_bytes,
            "free_bytes": free,
        }
        if not is_short:
            return "room-enough", facts
        if self._bytes_per_s > 0:
            facts["lasts_s"] = round(free / self._bytes_per_s)
        advice = "the disk is full before the quota is: make room, or set quota_bytes to what is free"
        return "room-short", {**facts, "advice": advice}

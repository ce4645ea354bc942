"""Checks, at the start and while the node runs, whether the disk has the room that a store's quota promises.

It also reports a full disk; simulator/storage/reserve.py explains how a node then continues.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mqproto.manager.queuemanager import QueueManager
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.tables import SEQUENCES_KEPT

LOOK_S: Final = 60.0
"""The time, in seconds, between two questions to the file system."""
TRY_S: Final = 1.0
"""The time, in seconds, between two attempts to restore a missing reserve."""
GROWTH_S: Final = 600.0
"""The minimum time, in seconds, over which growth is measured."""


def free_bytes(folder: Path) -> int:
    """Return how many more bytes this user may write to the file system of this folder."""
    return shutil.disk_usage(folder).free


Line = tuple[str, dict[str, Any]]
"""The name of a log line, and its facts."""


def found_for(size_bytes: int, core: QueueManager, store: Store) -> bool:
    """Find room for messages from an application, in addition to the next batch; return whether there is room."""
    needed_bytes = core.added_bytes + size_bytes
    found = store.make_room(needed_bytes)
    room_bytes = store.room_bytes
    core.has_room(None if room_bytes is None else max(room_bytes, needed_bytes if found else 0))
    return found


class Fullness:
    """Restores a store's reserve as soon as there is room. Reports when the reserve is used and when it is available
    again.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.room_bytes = store.room_bytes
        """The number of bytes that a batch may add, as the store reported at the last look."""
        self._tried_s = 0.0
        self._is_full = False

    def look(self, now_s: float) -> Line | None:
        """Return a line for the log, if there is any news. Once a second, try to restore the reserve.

        Raises:
            StoreError: the disk fails.
        """
        store = self._store
        if store.lacks_room and now_s - self._tried_s >= TRY_S:
            self._tried_s = now_s
            store.make_room()
        self.room_bytes = store.room_bytes
        if forgotten := store.take_forgotten():
            return "strangers-forgotten", {"sequences": forgotten, "kept": SEQUENCES_KEPT}
        is_full = self.room_bytes == 0
        if is_full == self._is_full:
            return None
        self._is_full = is_full
        facts = {"stored_bytes": store.size_bytes}
        if not is_full:
            return "disk-has-room", facts
        advice = (
            "nothing is taken in that has to be on disk, what waits is delivered and sent from a reserve: make room, "
            "or receive or purge"
        )
        return "disk-full", {**facts, "advice": advice}


class Room:
    """Compares the free room with the amount by which a store may still grow, and reports changes.

    Args:
        free: returns the number of bytes that the file system has left.

    Attributes:
        lasts_s: how long the store can keep growing at its rate, until the disk or the quota is full; None if the store
            does not grow, or has not been watched for long enough.
        free_bytes: the free bytes at the last check; None if the file system did not report them.
    """

    def __init__(self, quota_bytes: int, free: Callable[[], int]) -> None:
        self.lasts_s: int | None = None
        self.free_bytes: int | None = None
        self._quota_bytes = quota_bytes
        self._free = free
        self._looked_s = -LOOK_S
        self._is_short = False
        self._before: tuple[float, int] | None = None
        """A time, and the size of the store at that time."""
        self._bytes_per_s = 0.0

    def look(self, stored_bytes: int, now_s: float) -> Line | None:
        """Return a line for the log, if there is any news. The file system is asked once a minute."""
        if now_s - self._looked_s < LOOK_S:
            return None
        self._looked_s = now_s
        if self._before is None:
            self._before = now_s, stored_bytes
        elif now_s - self._before[0] >= GROWTH_S:
            self._bytes_per_s = (stored_bytes - self._before[1]) / (now_s - self._before[0])
            self._before = now_s, stored_bytes
        try:
            free = self.free_bytes = self._free()
        except OSError:
            self.free_bytes = None
            return None  # The node need not end because a file system cannot tell.
        left = min(free, self._quota_bytes - stored_bytes)
        self.lasts_s = round(max(0, left) / self._bytes_per_s) if self._bytes_per_s > 0 else None
        is_short = left == free
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
        if self.lasts_s is not None:
            facts["lasts_s"] = self.lasts_s
        advice = "the disk is full before the quota is: make room, or set quota_bytes to what is free"
        return "room-short", {**facts, "advice": advice}

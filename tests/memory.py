"""Folders in memory, for tests: none of these tests depends on how long a flush takes, or whether it happens."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Final

MEMORY: Final = "/dev/shm"
ROOM_BYTES: Final = 2 << 30
"""The room that tests need, in bytes: more than all of them together write."""


def memory() -> str | None:
    """Return a place for folders in memory, if this machine has one with enough room."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES:
        return MEMORY
    return None


def memory_folder() -> tempfile.TemporaryDirectory[str]:
    """Provide a new folder, in memory if possible."""
    return tempfile.TemporaryDirectory(dir=memory())

"""Folders in memory, for tests: none of them asks how long a flush takes, or whether it was one."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Final

MEMORY: Final = "/dev/shm"
ROOM_BYTES: Final = 2 << 30
"""More than all tests write together."""


def memory() -> str | None:
    """Where a folder is in memory, if this machine has such a place and room in it."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES:
        return MEMORY
    return None


def memory_folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder, in memory where that can be had."""
    return tempfile.TemporaryDirectory(dir=memory())

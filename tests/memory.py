"""Folders in memory, for tests that do not depend on how long a flush takes, or whether it happens at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Final

MEMORY: Final = "/dev/shm"
ROOM_BYTES: Final = 2 << 30
"""The room that tests need, in bytes: more than all of them together write."""


def memory() -> str | None:
    """Return a place for folders in memory; None if this machine has none with enough room."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES:
        return MEMORY
    return None


def memory_folder() -> tempfile.TemporaryDirectory[str]:
    """Provide a new folder, in memory if possible."""
    return tempfile.TemporaryDirectory(dir=memory())

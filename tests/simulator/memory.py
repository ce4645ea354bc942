"""Folders in memory, for stores of which nobody asks how long a flush takes, or whether it was one."""

from __future__ import annotations

import os
import tempfile
from typing import Final

MEMORY: Final = "/dev/shm"


def memory_folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder, in memory where that can be had."""
    return tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None)

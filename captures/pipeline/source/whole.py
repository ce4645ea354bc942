"""Writes files so that each is complete or absent, even if a task that writes it fails or runs twice."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Yield a file to write in the block; if the block ends well, it replaces `target`. Missing folders are made.

    The file to write has a unique name, so that two runs of one task at the same time do not write into one file.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)

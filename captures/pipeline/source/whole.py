"""Writes files so that each is complete or absent, even if a task that writes it fails or runs twice."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Yield a file to write to in the block; if the block ends without an error, it replaces `target`.

    Missing folders are created. The file to write to has a unique name, so that two simultaneous runs of one task do
    not write to the same file.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)

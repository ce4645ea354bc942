"""Files that are there as a whole or not at all, whoever writes them, and however often."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A file to write in the block; when that ends well, it takes the place of `target`. Its folder is made.

    It has a name of its own, so that a task that is carried out twice at a time does not write into the other's.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)

"""Files that only their owner may read, with bearer tokens, headers or signing secrets."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from mqproto.base.errors import UsageError

LIMIT_BYTES: Final = 2**20


def read_secret(path: Path, what: str) -> str:
    """Return the content of a file that only its owner may read.

    Args:
        what: words for the content, such as `the tokens`.

    Raises:
        UsageError: the file cannot be read, others can read it, or it is not text of a reasonable size.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise UsageError(f"{path}: others can read {what} (mode {mode:o}); chmod 600 it")
            data = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a file with {what}") from None
    if len(data) > LIMIT_BYTES:
        raise UsageError(f"{path}: more than {LIMIT_BYTES:,} bytes; name a file with {what}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: this is not text in UTF-8; name a file with {what}") from None

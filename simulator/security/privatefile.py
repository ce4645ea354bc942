"""Files with a secret of the node's: private keys, PINs."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from mqproto.base.errors import UsageError

LIMIT_BYTES: Final = 2**20
"""The most that is read of a file; a key pair of 16,384 bits takes some 13 kB."""


def read_private(path: Path, what: str = "the key") -> bytes:
    """A file with a secret.

    Args:
        what: it is, in words.

    Raises:
        UsageError: others can read it.
    """
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise UsageError(f"{path}: others can read {what} (mode {mode:o}): chmod 600 it")
        return file.read(LIMIT_BYTES)

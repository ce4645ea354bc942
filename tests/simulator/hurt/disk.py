"""A disk that fails on cue: `disk.c`, preloaded into the processes of a trial, and the orders that these processes
share.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import subprocess
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

COMPILERS: Final = ("cc", "gcc", "clang")
ORDERS: Final = Struct("<7i2048s")
FIELDS: Final = Struct("<7i")
VARIABLE: Final = "MQPROTO_HURT_DISK"
WRITES, GROWTH, FLUSHES, NAMES = 1, 2, 4, 8
KILL: Final = 0


class Trouble(NamedTuple):
    """A way in which the disk fails.

    kinds: the calls that are counted.
    error: the errno with which they fail; KILL kills the process at the call.
    lasting: whether all later calls fail as well, or only one.
    """

    kinds: int
    error: int
    lasting: bool


TROUBLES: Final = {
    "disk full": Trouble(GROWTH | NAMES, errno.ENOSPC, lasting=True),
    "disk full, nothing is written in place": Trouble(WRITES | GROWTH | NAMES, errno.ENOSPC, lasting=True),
    "EIO at a write": Trouble(WRITES | GROWTH | NAMES, errno.EIO, lasting=False),
    "EIO at all writes": Trouble(WRITES | GROWTH | NAMES, errno.EIO, lasting=True),
    "EIO at a flush": Trouble(FLUSHES, errno.EIO, lasting=False),
    "EIO at all flushes": Trouble(FLUSHES, errno.EIO, lasting=True),
    "read-only remount": Trouble(WRITES | GROWTH | FLUSHES | NAMES, errno.EROFS, lasting=True),
}
DEATH: Final = Trouble(WRITES | GROWTH | FLUSHES | NAMES, KILL, lasting=True)
"""A SIGKILL between two calls that write, or within one of them after it has written whole pages of the file."""
COUNTED: Final = 2**30
"""More calls than any trial makes: all calls pass, and are counted."""


def compiler() -> str | None:
    """Return a compiler for disk.c, if there is one."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def compiled(folder: Path) -> Path:
    """Return the library, compiled into this folder.

    Raises:
        subprocess.CalledProcessError: the compiler refuses.
    """
    library, program = folder / "disk.so", compiler()
    assert program is not None
    source = Path(__file__).with_name("disk.c")
    subprocess.run([program, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    return library


class FailingDisk:
    """The orders that all processes of one worker share, in a file that an environment variable names."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(mmap.PAGESIZE))
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._page = mmap.mmap(file, ORDERS.size)
        os.close(file)

    def arm(self, begins: Path, trouble: Trouble, passing: int) -> None:
        """From now on, count the calls that change files whose paths begin with `begins`.

        The first `passing` of these calls succeed; then the trouble begins.
        """
        self._page[: ORDERS.size] = ORDERS.pack(
            1, trouble.kinds, passing, trouble.error, trouble.lasting, 0, 0, os.fsencode(begins)
        )

    def disarm(self) -> tuple[int, int]:
        """Let the disk work again; return how many calls were counted, and how many of them failed."""
        *_, calls, failures = FIELDS.unpack_from(self._page)
        self._page[: FIELDS.size] = FIELDS.pack(0, 0, 0, 0, 0, calls, failures)
        return calls, failures

"""A private log file that rotates by size: NAME.log, with the older files NAME.log.1 to NAME.log.4."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final

from mqproto.base.errors import UsageError

LIMIT_BYTES: Final = 16 * 2**20
OLDER: Final = 4
PRIVATE: Final = 0o600
STDERR: Final = 2
DEVICES: Final = ("/dev/std", "/dev/fd/", "/proc/")


def private(path: str, flags: int) -> int:
    """Open a new or existing file, and make it private to its owner. This is an opener for `open`.

    A device keeps its mode: otherwise root would take /dev/null away from everybody else.
    """
    file = os.open(path, flags, PRIVATE)
    if is_regular(file):
        os.fchmod(file, PRIVATE)
    return file


def unlinked(path: str, flags: int) -> int:
    """Open a file as `private` does, but without following symbolic links. This is an opener for logs.

    A link planted in the log's folder could make us write to any of our files. A link such as /dev/stdout is followed.
    """
    is_device = path.startswith(DEVICES)
    try:
        return private(path, flags if is_device else flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "it is a symbolic link, and a log follows none"
        raise


def is_regular(file: int) -> bool:
    """Return whether the descriptor is that of a regular file, and not of a device."""
    return stat.S_ISREG(os.fstat(file).st_mode)


def appended(path: Path) -> BinaryIO:
    """Open a private file for appending."""
    return open(path, "ab", opener=unlinked)


def written(path: Path, text: str) -> None:
    """Write a whole private file."""
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)


class LogFile(io.TextIOBase):
    """A log file that takes whole lines. If standard error is also this file, each rotation redirects it.

    A write error, such as that of a full disk, is swallowed. The lost lines are counted, and reported once there is
    room. Each line is one write to the file. The handler in `logging` takes five times as long, because it makes a
    record and checks the file twice before each write.
    """

    _file: int | None = None

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._lost = 0
        self._torn = b""
        """The newline that has to end a partly written line; usually empty."""
        self._file = self._open()
        self._rotates = is_regular(self._file)

    def write(self, text: str) -> int:
        """Write one or more lines, including their newlines."""
        lost = self._lost
        told = {"event": "lines-lost", "level": "warning", "count": lost}
        lines = f"{json.dumps(told)}\n{text}" if lost else text
        try:
            self._append(self._torn + lines.encode("utf-8", "backslashreplace"))
        except OSError:
            self._lost += text.count("\n")
        else:
            self._lost -= lost
        return len(text)

    def _append(self, data: bytes) -> None:
        if self._file is None:
            self._file = self._open()
        if self._rotates:
            size_bytes = os.lseek(self._file, 0, os.SEEK_END)  # Others may write to it as well.
            if size_bytes and size_bytes + len(data) > self._limit_bytes:
                self._rotate()
        written_bytes = 0
        try:
            while written_bytes < len(data):
                written_bytes += os.write(self._file, data[written_bytes:])
        finally:
            if written_bytes:
                self._torn = b"" if written_bytes == len(data) else b"\n"

    def _rotate(self) -> None:
        """Start a new file, and keep the last OLDER files under other names."""
        names = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, OLDER + 1))]
        for older, newer in pairwise(reversed(names)):
            with suppress(FileNotFoundError):
                newer.replace(older)
        file, self._file = self._file, None
        assert file is not None
        try:
            moves_along = os.path.sameopenfile(file, STDERR)
        finally:
            os.close(file)
        self._file = self._open()
        if moves_along:
            os.dup2(self._file, STDERR)

    def _open(self) -> int:
        return unlinked(str(self._path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    def sync(self) -> None:
        """Flush the written lines to disk.

        Raises:
            OSError: the lines could not be flushed.
        """
        if self._file is not None:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file. This also works if the file could not be opened; in that case, the finalizer calls this
        method.
        """
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
        super().close()


@contextmanager
def open_log(path: Path | None) -> Iterator[LogFile | None]:
    """Yield the log at `path`, or None if `path` is None.

    Raises:
        UsageError: the file cannot be opened.
    """
    if path is None:
        yield None
        return
    try:
        file = LogFile(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be opened ({error.strerror}): name another file for the log"
        ) from None
    with file:
        yield file

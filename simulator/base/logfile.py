"""A log file that nobody else can read, and that rotates by size: NAME.log, and before it NAME.log.1 to NAME.log.4."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import BinaryIO, Final

from mqproto.base.errors import UsageError

LIMIT_BYTES: Final = 16 * 2**20
OLDER: Final = 4
PRIVATE: Final = 0o600
STDERR: Final = 2


def private(path: str, flags: int) -> int:
    """An opener for `open`: the file is for its owner alone, also if it was there and was not."""
    file = os.open(path, flags, PRIVATE)
    os.fchmod(file, PRIVATE)
    return file


def appended(path: Path) -> BinaryIO:
    """A file of ours, to add to."""
    return open(path, "ab", opener=private)


def written(path: Path, text: str) -> None:
    """Write a whole file of ours."""
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)


class LogFile(io.TextIOBase):
    """Whole lines go in. If the standard error output is this file, too, it moves along when that rotates.

    A line that cannot be written, as on a full disk, ends nobody: it is counted, and told of when there is room.
    """

    _handler: _Rotating | None = None

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._handler = _Rotating(path, limit_bytes)

    def write(self, text: str) -> int:
        """One line or several, with their ends."""
        assert self._handler is not None
        self._handler.emit(logging.makeLogRecord({"msg": text.removesuffix("\n")}))
        return len(text)

    def sync(self) -> None:
        """Have on disk what was written.

        Raises:
            OSError: it is not.
        """
        if self._handler is not None and self._handler.stream is not None:
            os.fsync(self._handler.stream.fileno())

    def close(self) -> None:
        """Nothing more comes. One whose file could not be had is closed as well when it goes."""
        if self._handler is not None:
            self._handler.close()
        super().close()


@contextmanager
def open_log(path: Path | None) -> Iterator[LogFile | None]:
    """The log in a file, or None for none.

    Raises:
        UsageError: the file cannot be had.
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


class _Rotating(RotatingFileHandler):
    def __init__(self, path: Path, limit_bytes: int) -> None:
        self._lost = 0
        super().__init__(path, maxBytes=limit_bytes, backupCount=OLDER, encoding="utf-8")

    def _open(self) -> io.TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=private)

    def doRollover(self) -> None:  # noqa: N802
        moves_along = self.stream is not None and os.path.sameopenfile(self.stream.fileno(), STDERR)
        super().doRollover()
        if moves_along and self.stream is not None:
            os.dup2(self.stream.fileno(), STDERR)

    def emit(self, record: logging.LogRecord) -> None:
        lost = self._lost
        if lost:
            line = json.dumps({"event": "lines-lost", "level": "warning", "count": lost})
            super().emit(logging.makeLogRecord({"msg": line}))
            if self._lost > lost:
                return  # It is counted above, and stands for this line as well.
            self._lost = 0
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        self._lost += 1
        # Half a line may be in its buffer, and would come out with the next.
        with suppress(OSError):
            if self.stream is not None:
                self.stream.close()
        self.stream = None

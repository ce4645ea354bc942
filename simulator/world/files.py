"""The files of one simulated node: what was flushed lasts, and of the rest a crash leaves what the dice say.

When a process is killed its system lives on, so all that was written is there, but for the write that it died in. When
the power goes, each sector of 512 bytes that was not flushed may hold what it held before or what was written, a name
that came or went may have done so or not until its folder is flushed, and of SQLite's transactions that were not
flushed the first few may be there. The tables are SQLite's own, in memory; what it asks for is what it gets.
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
from pathlib import Path
from typing import Any, Final

from simulator.storage.files import Lock

SECTOR_BYTES: Final = 512
FILLERS: Final = (b"\0", b"\xa5")
"""What stands where a file has grown and nothing was written: nothing, or what the disk held there before."""


class SimulatedFile:
    """A file of the log.

    Attributes:
        data: as a running system sees it.
    """

    def __init__(self, files: SimulatedFiles) -> None:
        self.data = bytearray()
        self._files = files
        self._unflushed: list[tuple[int, bytes, bytes]] = []
        """Since the last flush: where was written, all that stood there and behind it before, and what was written."""

    def write(self, offset: int, parts: list[bytes]) -> None:
        data = b"".join(parts)
        room_bytes = self._files.room_for(self)
        self._change(offset, data if room_bytes is None else data[:room_bytes])
        if room_bytes is not None and len(data) > room_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def truncate(self, size_bytes: int) -> None:
        self._change(size_bytes, b"")

    def flush(self) -> None:
        self._files.flush(self)

    def close(self) -> None:
        """Nothing is kept for it."""

    def _change(self, offset: int, data: bytes) -> None:
        """What is written ends the file: the log is only added to, or cut."""
        self._files.release()
        assert offset <= len(self.data), "the log has no holes"
        self._unflushed.append((offset, bytes(self.data[offset:]), data))
        del self.data[offset:]
        self.data += data

    # What becomes of it

    def is_flushed(self) -> None:
        """All of it is on disk."""
        self._unflushed.clear()

    def forget_last_write(self, dice: random.Random) -> None:
        """The process died in its last write, or before it: the system has only a part of that."""
        offset, before, data = self._unflushed.pop()
        del self.data[offset:]
        self.data += data[: dice.randrange(len(data))] if dice.randrange(2) else before

    def lose_power(self, dice: random.Random, *, last_is_torn: bool) -> None:
        """Each sector that was not flushed is old or new; of the last write all are new, or one is old."""
        changes, self._unflushed = self._unflushed, []
        for offset, before, _ in reversed(changes):
            del self.data[offset:]
            self.data += before
        for number, (offset, _, data) in enumerate(changes, 1):
            if not data:
                if dice.randrange(2):
                    del self.data[offset:]
                continue
            sectors = range(offset // SECTOR_BYTES, (offset + len(data) - 1) // SECTOR_BYTES + 1)
            new = {sector for sector in sectors if dice.randrange(2)}
            if number == len(changes):
                new = new - {dice.choice(sectors)} if last_is_torn else set(sectors)
            self._write_sectors(offset, data, new, dice.choice(FILLERS))

    def _write_sectors(self, offset: int, data: bytes, sectors: set[int], filler: bytes) -> None:
        for sector in sorted(sectors):
            first = max(offset, sector * SECTOR_BYTES)
            content = data[first - offset : (sector + 1) * SECTOR_BYTES - offset]
            self.data += filler * (first - len(self.data))
            self.data[first : first + len(content)] = content


class SimulatedConnection(sqlite3.Connection):
    """SQLite's file of the tables. It tells the files of each transaction, and whether it was to be flushed."""

    files: SimulatedFiles
    flushes = True

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement.startswith("PRAGMA synchronous"):
            self.flushes = "FULL" in statement
        found = super().execute(statement, *values)
        if statement == "COMMIT":
            self.files.committed(self)
        return found

    def executescript(self, script: str) -> sqlite3.Cursor:
        found = super().executescript(script)
        self.files.committed(self)
        return found

    def close(self) -> None:
        """SQLite brings its log to the file, and flushes that."""
        self.files.disconnected(self)
        super().close()


class SimulatedFiles:
    """One folder, with one store.

    Args:
        loses_power: whether that can happen; if not, what it would leave need not be kept.

    Attributes:
        room_bytes: what the files of the log may take; None for a disk that never fills up.
        holds_flush: whether a flush lasts: it is done at `release`, or with the next write.
    """

    def __init__(self, dice: random.Random, *, loses_power: bool) -> None:
        self.room_bytes: int | None = None
        self.holds_flush = False
        self._dice = dice
        self._loses_power = loses_power
        self._files: dict[str, SimulatedFile] = {}
        self._names: list[tuple[str, SimulatedFile | None]] = []
        """Names that came or went since the folder was flushed."""
        self._flushed_names: dict[str, SimulatedFile] = {}
        self._flushing: SimulatedFile | None = None
        self._db: SimulatedConnection | None = None
        self._tables = b""
        """The file of the tables, as SQLite has last flushed it, or as it was when it was closed."""
        self._unflushed_tables: list[bytes] = []
        """The same after each transaction since then."""
        self._is_locked = False

    @property
    def size_bytes(self) -> int:
        """What the files of the log take."""
        return sum(len(file.data) for file in self._files.values())

    def room_for(self, file: SimulatedFile) -> int | None:
        """How many bytes more can be written; None for any number."""
        return None if self.room_bytes is None else max(0, self.room_bytes - self.size_bytes)

    # What a store asks for

    def names(self, folder: Path) -> list[str]:
        return list(self._files)

    def create(self, path: Path) -> SimulatedFile:
        assert path.name not in self._files, f"{path.name} is there already"
        self.release()
        file = self._files[path.name] = SimulatedFile(self)
        self._names.append((path.name, file))
        return file

    def read(self, path: Path) -> bytes:
        return bytes(self._files[path.name].data)

    def remove(self, path: Path) -> None:
        self.release()
        del self._files[path.name]
        self._names.append((path.name, None))

    def flush_folder(self, folder: Path) -> None:
        self.release()
        self._flushed_names = dict(self._files)
        self._names.clear()

    def connect(self, path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(":memory:", isolation_level=None, factory=SimulatedConnection)
        db.files = self
        if self._tables:
            db.deserialize(self._tables)
        self._db = db
        return db

    def keep_log(self, db: sqlite3.Connection) -> bool:
        return True  # A transaction of SQLite's in memory is undone wholly as well.

    def lock(self, path: Path) -> Lock:
        assert not self._is_locked, "a node runs twice"
        self._is_locked = True
        return _Held(self)

    def unlock(self) -> None:
        """The lock is given free."""
        self._is_locked = False

    # Flushes

    def flush(self, file: SimulatedFile) -> None:
        """A file is flushed, now or when the flush has lasted long enough."""
        self.release()
        if self.holds_flush:
            self._flushing = file
        else:
            file.is_flushed()

    def release(self) -> None:
        """The flush that lasts is done."""
        if self._flushing is not None:
            self._flushing.is_flushed()
            self._flushing = None

    def committed(self, db: SimulatedConnection) -> None:
        """A transaction of SQLite's has ended."""
        if self._loses_power:
            image = db.serialize()
            if db.flushes:
                self._tables = image
                self._unflushed_tables.clear()
            else:
                self._unflushed_tables.append(image)

    def disconnected(self, db: SimulatedConnection) -> None:
        """The store has closed the tables."""
        if db is self._db:
            self._tables = db.serialize()
            self._unflushed_tables.clear()
            self._db = None

    # The end of a process

    def crash(self, *, kept: bool, power_lost: bool) -> None:
        """The process ends, and with it perhaps the power.

        Args:
            kept: whether the write whose flush lasts is on disk wholly; if not, it is not.
        """
        db, self._db = self._db, None
        if db is not None:
            if db.in_transaction:
                db.rollback()
            left = [self._tables, *self._unflushed_tables] if power_lost else [db.serialize()]
            self._tables = self._dice.choice(left)
            self._unflushed_tables.clear()
            db.close()
        flushing, self._flushing = self._flushing, None
        if power_lost:
            self._lose_names()
            for file in self._files.values():
                file.lose_power(self._dice, last_is_torn=not kept)
        elif flushing is not None and not kept:
            flushing.forget_last_write(self._dice)
        if not power_lost and flushing is not None and kept:
            flushing.is_flushed()
        self._is_locked = False
        self.holds_flush = False

    def _lose_names(self) -> None:
        names = self._flushed_names
        for name, file in self._names:
            if self._dice.randrange(2):
                if file is None:
                    names.pop(name, None)
                else:
                    names[name] = file
        self._files, self._flushed_names = dict(names), names
        self._names.clear()


class _Held:
    def __init__(self, files: SimulatedFiles) -> None:
        self._files = files

    def close(self) -> None:
        self._files.unlock()

"""The files of one simulated node. Flushed data lasts, and dice decide which other data survives a crash.

When a process is killed, its operating system continues. So everything that the process wrote is there, except the
write during which it died. When the power fails, each unflushed sector of 512 bytes may be old or new. Until a folder
is flushed, its changes may be lost: new names may be missing, and removed names may be back. Any number of SQLite's
unflushed transactions may be there, beginning with the first. The tables are a database that SQLite keeps in memory,
and everything that SQLite requests is granted.

Each change of a file or of the folder, each flush and each SQLite transaction is a step. A process can die within any
of them: before it begins, in the middle, or when it is done.
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from mqproto.simulator.storage.files import NO_FILE, FileIdentity, Lock

SECTOR_BYTES: Final = 512
FILLERS: Final = (b"\0", b"\xa5")
"""The possible contents of a part of a file that was added but not written: zeros, or earlier data on the disk."""
FULL: Final = "full disk"
KILLED: Final = "killed"
POWER_LOST: Final = "power lost"
DISK_FAILS: Final = "disk fails"
DEATHS: Final = (KILLED, POWER_LOST, DISK_FAILS)


class Death(NamedTuple):
    """The way in which a process dies while it uses its disk.

    steps: the number of steps that it completes before the step in which it dies.
    how: one of the ways in DEATHS. A failing disk reports an error, and the process must then end itself.
    """

    steps: int
    how: str

    @classmethod
    def of(cls, value: int) -> Self:
        """Return the death that the `value` of a fault encodes."""
        steps, how = divmod(value, len(DEATHS))
        return cls(steps, DEATHS[how])


class DiedError(BaseException):
    """The process has died within a step. Nothing that it does afterward reaches its disk."""

    def __init__(self, *, power_lost: bool) -> None:
        super().__init__(POWER_LOST if power_lost else KILLED)
        self.power_lost = power_lost


class SimulatedFile:
    """A file of the log.

    Attributes:
        data: the contents that a running system sees.
    """

    def __init__(self, files: SimulatedFiles) -> None:
        self.data = bytearray()
        self._files = files
        self._unflushed: list[tuple[int, bytes | bytearray, bytes]] = []
        """The writes since the last flush: the offset, the old data, and the new data of each."""
        self._flushed_bytes = 0
        """The file's length, in bytes, at the last flush."""

    def write(self, offset: int, parts: list[bytes]) -> None:
        data, files = b"".join(parts), self._files
        size = len(data)
        assert offset + size <= len(self.data), "there is no room for it"
        if files.holds_flush and files.waits(self, offset, data):
            return
        done = files.step(size)
        if done != size:
            data = data[: _up_to_a_sector(offset, done, size)]
        if data:
            self.change(offset, data)
        files.stepped()

    def allocate(self, size_bytes: int) -> None:
        assert not self.data, "it has room already"
        files = self._files
        room_bytes = files.room_for()
        if room_bytes is not None and size_bytes > room_bytes:
            files.trouble = FULL
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if files.step():
            self.data = bytearray(size_bytes)
        files.stepped()

    def flush(self) -> None:
        if self._files.step():
            self._files.flush(self)
        self._files.stepped()

    def close(self) -> None:
        """Do nothing, because there is nothing to release."""

    def change(self, offset: int, data: bytes) -> None:
        """Write data without flushing it."""
        end = offset + len(data)
        self._unflushed.append((offset, self.data[offset:end], data))
        self.data[offset:end] = data

    # What becomes of it

    def is_flushed(self) -> None:
        """Record that the whole file is on disk."""
        self._unflushed.clear()
        self._flushed_bytes = len(self.data)

    def forget_last_write(self, dice: random.Random) -> None:
        """Undo all or part of the last write. The process died during it or before it."""
        offset, before, data = self._unflushed.pop()
        written = (
            _up_to_a_sector(offset, dice.randrange(len(data) or 1), len(data)) if dice.randrange(2) else 0
        )
        self.data[offset + written : offset + len(data)] = before[written:]

    def lose_power(self, dice: random.Random, *, kept: bool | None) -> None:
        """Keep unflushed data or lose it, or decide this separately for each sector.

        Args:
            kept: True if all sectors of the last write are new; False if at least one is old; None if both are
                possible.
        """
        changes, self._unflushed = self._unflushed, []
        if len(self.data) > self._flushed_bytes:
            # The file was being made.
            self.data = bytearray(dice.choice(FILLERS) * dice.choice((0, len(self.data))))
            return
        for offset, before, _ in reversed(changes):
            self.data[offset : offset + len(before)] = before
        left = dice.choice((0, 50, 50, 100))
        for number, (offset, _, data) in enumerate(changes, 1):
            sectors = range(offset // SECTOR_BYTES, (offset + len(data) - 1) // SECTOR_BYTES + 1)
            new = {sector for sector in sectors if dice.randrange(100) < left}
            if number == len(changes) and kept is not None:
                new = set(sectors) if kept else new - {dice.choice(sectors)}
            for sector in sorted(new):
                first = max(offset, sector * SECTOR_BYTES)
                content = data[first - offset : (sector + 1) * SECTOR_BYTES - offset]
                self.data[first : first + len(content)] = content


def _up_to_a_sector(offset: int, written: int, size: int) -> int:
    """Return how many bytes of an interrupted write have reached the operating system.

    They end at the end of a sector, unless the write was completed.
    """
    end = (offset + written) // SECTOR_BYTES * SECTOR_BYTES
    return size if written == size else max(0, end - offset)


class SimulatedConnection(sqlite3.Connection):
    """The file of the tables, as SQLite sees it.

    It reports each transaction to the files, and says whether the transaction had to be flushed.
    """

    files: SimulatedFiles
    flushes = True

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement == "COMMIT":
            return self._commit(super().execute, statement)
        if statement.startswith("PRAGMA synchronous"):
            self.flushes = "FULL" in statement
        return super().execute(statement, *values)

    def executescript(self, script: str) -> sqlite3.Cursor:
        """Make the tables of a new store. All new stores have the same file, so it is made only once."""
        return self._commit(self._begin_with, script)

    def _begin_with(self, script: str) -> sqlite3.Cursor:
        [(page_bytes,)] = super().execute("PRAGMA page_size")
        self.deserialize(_made_by(script, page_bytes))
        return self.cursor()

    def _commit(self, run: Callable[[str], sqlite3.Cursor], statement: str) -> sqlite3.Cursor:
        """Commit a transaction completely or not at all, even if the process ends meanwhile."""
        files = self.files
        if files.room_bytes is not None and not files.room_for():
            files.trouble = FULL
            raise _sqlite_error(sqlite3.SQLITE_FULL, "database or disk is full")
        try:
            found = self.cursor()
            if files.step():
                found = run(statement)
                files.committed(self)
            files.stepped()
        except OSError as error:
            raise _sqlite_error(sqlite3.SQLITE_IOERR, "disk I/O error") from error
        return found

    def close(self) -> None:
        """Close the file in an orderly way. SQLite moves its log into the file, and flushes the file."""
        if self.files.death is None:
            self.files.disconnected(self)
            super().close()

    def is_gone(self) -> bytes:
        """End the connection because the process has ended. Return the file as of its last whole transaction."""
        if self.in_transaction:
            self.rollback()
        image = self.image()
        super().close()
        return image

    def image(self) -> bytes:
        """Return the contents of the file; they are empty if nothing was written yet."""
        [(page_count,)] = super().execute("PRAGMA page_count")
        return self.serialize() if page_count else b""


@cache
def _made_by(script: str, page_bytes: int) -> bytes:
    """Return the contents of the file that a script makes from scratch."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute(f"PRAGMA page_size = {page_bytes}")
    db.executescript(script)
    image = db.serialize()
    db.close()
    return image


def _sqlite_error(code: int, text: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


class StoreCopy(NamedTuple):
    """A copy of a store: the file of its tables, and the other files next to it, keyed by name."""

    tables: bytes
    others: dict[str, bytes]


class SimulatedFiles:
    """One folder, with one store.

    Args:
        loses_power: whether the power can fail. If not, unflushed data need not be tracked.

    Attributes:
        room_bytes: the number of bytes that the files of the log may take; None for a disk that never fills up.
        holds_flush: whether a flush takes time. It is then completed by `release`, or with the next step.
        death: how the process has died. If it has, the caller must call `crash`.
        trouble: why the disk last refused something: FULL or DISK_FAILS. It is empty if nothing has been refused since
            this was cleared.
    """

    def __init__(self, dice: random.Random, *, loses_power: bool) -> None:
        self.room_bytes: int | None = None
        self.holds_flush = False
        self.flush_ms = 0
        """The time, in milliseconds, that each flush takes."""
        self.death: DiedError | None = None
        self.trouble = ""
        self._planned: Death | None = None
        self._steps = 0
        """The number of steps since the death was planned."""
        self._is_last = False
        """Whether the process dies in the current step."""
        self._dice = dice
        self._loses_power = loses_power
        self._files: dict[str, SimulatedFile] = {}
        self._names: list[tuple[str, str, SimulatedFile | None]] = []
        """The changes of names since the folder was last flushed, each as (old name, new name, file).

        The old name is empty for a new file. For a removed file, the new name is empty and the file is None.
        """
        self._flushed_names: dict[str, SimulatedFile] = {}
        self._flushing: SimulatedFile | None = None
        self._after_flush: list[tuple[SimulatedFile, int, bytes]] = []
        """The writes to other files that wait for the current flush to finish."""
        self._db: SimulatedConnection | None = None
        self._tables = b""
        """The contents of the file of the tables, as the system sees it, while no process has it open."""
        self._tables_name = ""
        self._inode = 0
        """The inode of the file of the tables. It changes when the file is new or replaced."""
        self._flushed_tables = b""
        self._unflushed_tables: list[bytes] = []
        """The contents of the file of the tables after each transaction since it was last flushed."""
        self._is_locked = False

    @property
    def size_bytes(self) -> int:
        """The total size of the log's files, in bytes."""
        return sum(len(file.data) for file in self._files.values())

    def room_for(self) -> int | None:
        """Return the number of bytes that can still be written; None if there is no limit."""
        return None if self.room_bytes is None else max(0, self.room_bytes - self.size_bytes)

    # Steps

    def dies_by(self, death: Death | None) -> None:
        """Plan the death of the process, counting steps from now. With None, the process does not die."""
        self._planned, self._steps = death, 0

    def step(self, size: int = 1) -> int:
        """Begin a step on the disk; `stepped` ends it. Return how much of the step's `size` to carry out.

        The result is `size`, except in the step in which the process dies.
        """
        if self.death is not None:
            raise self.death
        if self._flushing is not None:
            self.release()
        if self._planned is None:
            return size
        self._steps += 1
        if self._steps <= self._planned.steps:
            return size
        self._is_last = True
        return self._dice.choice((0, self._dice.randrange(size + 1), size))

    def stepped(self) -> None:
        """End a step, of which as much was done as `step` allowed.

        Raises:
            DiedError: the process has died within the step.
            OSError: the disk has failed.
        """
        if not self._is_last:
            return
        assert self._planned is not None
        how, self._planned, self._is_last = self._planned.how, None, False
        if how == DISK_FAILS:
            self.trouble = DISK_FAILS
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.death = DiedError(power_lost=how == POWER_LOST)
        raise self.death

    # What a store asks for

    def names(self, folder: Path) -> list[str]:
        return list(self._files)

    def create(self, path: Path) -> SimulatedFile:
        assert path.name not in self._files, f"{path.name} is there already"
        file = SimulatedFile(self)
        if self.step():
            self._files[path.name] = file
            self._names.append(("", path.name, file))
        self.stepped()
        return file

    def read(self, path: Path) -> bytes:
        return bytes(self._files[path.name].data)

    def open(self, path: Path) -> SimulatedFile:
        return self._files[path.name]

    def identity(self, path: Path) -> FileIdentity:
        is_there = self._db is not None or bool(self._tables)
        return FileIdentity(1, self._inode) if path.name == self._tables_name and is_there else NO_FILE

    def changed_s(self, path: Path) -> int:
        return 0

    def machine(self) -> str:
        return ""

    def rename(self, path: Path, new: Path) -> None:
        if self.step():
            self._files[new.name] = self._files.pop(path.name)
            self._names.append((path.name, new.name, self._files[new.name]))
        self.stepped()

    def remove(self, path: Path) -> None:
        if self.step():
            del self._files[path.name]
            self._names.append((path.name, "", None))
        self.stepped()

    def flush_folder(self, folder: Path) -> None:
        if self.step():
            self._flushed_names = dict(self._files)
            self._names.clear()
        self.stepped()

    def head(self, path: Path, size_bytes: int) -> bytes:
        file = self._files.get(path.name)
        return bytes(file.data[:size_bytes]) if file is not None else b""

    def connect(self, path: Path, begins: bytes = b"") -> sqlite3.Connection:
        db = sqlite3.connect(":memory:", isolation_level=None, factory=SimulatedConnection)
        db.files = self
        if self._tables:
            db.deserialize(self._tables)
        else:
            self._inode += 1
        self._db, self._tables_name = db, path.name
        return db

    def let_go(self, db: sqlite3.Connection, path: Path) -> None:
        db.close()

    def keep_log(self, db: sqlite3.Connection) -> bool:
        return True  # SQLite undoes a transaction in memory completely as well.

    def keep_room(self, path: Path) -> None:
        """Do nothing, because SQLite's log is in memory."""

    def lock(self, path: Path) -> Lock:
        assert not self._is_locked, "a node runs twice"
        self._is_locked = True
        return _Held(self)

    def is_locked(self, path: Path) -> bool:
        return self._is_locked

    def unlock(self) -> None:
        """Release the lock."""
        self._is_locked = False

    # Flushes

    def flush(self, file: SimulatedFile) -> None:
        """Flush a file. If `holds_flush` is set, the flush is completed later."""
        if self.holds_flush:
            self._flushing = file
        else:
            file.is_flushed()

    def waits(self, file: SimulatedFile, offset: int, data: bytes) -> bool:
        """Return whether a write has to wait for the flush of another file.

        This may only be called while `holds_flush` is set.
        """
        if self._flushing in (None, file):
            return False
        self._after_flush.append((file, offset, data))
        return True

    def release(self) -> None:
        """Finish the current flush, and make the writes that waited for it."""
        if self._flushing is not None:
            self._flushing.is_flushed()
            self._flushing = None
            for file, offset, data in self._after_flush:
                file.change(offset, data)
            self._after_flush.clear()

    def committed(self, db: SimulatedConnection) -> None:
        """Record that an SQLite transaction has ended."""
        if self._loses_power:
            image = db.image()
            if db.flushes:
                self._are_flushed(image)
            else:
                self._unflushed_tables.append(image)

    def disconnected(self, db: SimulatedConnection) -> None:
        """Record that the store has closed the tables."""
        if db is self._db:
            self._tables = db.image()
            self._are_flushed(self._tables)
            self._db = None

    def _are_flushed(self, tables: bytes) -> None:
        self._flushed_tables = tables
        self._unflushed_tables.clear()

    # The end of a process

    def crash(self, *, kept: bool | None, power_lost: bool) -> None:
        """End the process; the power may fail as well.

        Args:
            kept: whether the write that was being flushed is completely on disk; None if both are possible.
        """
        db, self._db = self._db, None
        if db is not None:
            self._tables = db.is_gone()
        flushing, self._flushing = self._flushing, None
        self._after_flush.clear()
        if power_lost:
            assert self._loses_power, "what it would leave was not kept"
            self._tables = self._dice.choice([self._flushed_tables, *self._unflushed_tables])
            self._are_flushed(self._tables)
            self._lose_names()
            for file in self._files.values():
                file.lose_power(self._dice, kept=kept)
        elif flushing is not None and kept is False:
            flushing.forget_last_write(self._dice)
        self._is_locked = False
        self.holds_flush = False
        self.death = None
        self.trouble = ""

    # What operators do to a store that nobody has open

    def copied(self) -> StoreCopy:
        """Return a copy of the store: the tables and the files that belong to it, but not the file of its life."""
        assert self._db is None, "a node has it open"
        mine = {name: bytes(file.data) for name, file in self._files.items() if self._is_of_store(name)}
        return StoreCopy(self._tables, mine)

    def hurt(self, key: int) -> bytes:
        """Flip one bit of a message in the tables. Return the message's packet.

        The result is empty if the message is not there.
        """
        assert self._db is None, "a node has it open"
        db = sqlite3.connect(":memory:")
        db.deserialize(self._tables)
        found = (
            db.execute("SELECT packet FROM message WHERE key = ?", (key,)).fetchone()
            if self._tables
            else None
        )
        packet = bytearray(found[0] if found else b"")
        if packet:
            packet[self._dice.randrange(len(packet))] ^= 1 << self._dice.randrange(8)
            with db:
                db.execute("UPDATE message SET packet = ? WHERE key = ?", (bytes(packet), key))
            self._tables = db.serialize()
            self._are_flushed(self._tables)
        db.close()
        return bytes(packet)

    def put_back(self, copy: StoreCopy | None) -> None:
        """Replace the store with a copy. If the copy is None, move the store away.

        The file of the store's life stays as it is.
        """
        assert self._db is None, "a node has it open"
        for name in filter(self._is_of_store, list(self._files)):
            del self._files[name]
        self._tables = copy.tables if copy is not None else b""
        self._inode += 1
        for name, data in copy.others.items() if copy is not None else ():
            file = self._files[name] = SimulatedFile(self)
            file.data = bytearray(data)
        # The operator makes sure that it is on disk.
        self._are_flushed(self._tables)
        for file in self._files.values():
            file.is_flushed()
        self._flushed_names = dict(self._files)
        self._names.clear()

    def _is_of_store(self, name: str) -> bool:
        return name.startswith(f"{self._tables_name}-")

    def leave(self) -> None:
        """Free SQLite's memory, because the world has ended, and its files are no longer needed."""
        db, self._db = self._db, None
        if db is not None:
            sqlite3.Connection.close(db)

    def _lose_names(self) -> None:
        names = self._flushed_names
        for old, new, file in self._names:
            if self._dice.randrange(2):
                names.pop(old, None)
                if file is not None:
                    names[new] = file
        self._files, self._flushed_names = dict(names), names
        self._names.clear()


class _Held:
    def __init__(self, files: SimulatedFiles) -> None:
        self._files = files

    def close(self) -> None:
        self._files.unlock()

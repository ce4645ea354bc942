"""A store's interface to the operating system: the files of its log, and SQLite for its tables.

`SystemFiles` are the real files. A simulated world has files that lose unflushed data when the power fails.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from mqproto.simulator.base.storeerrors import StoreError, primary_code

FULL_FLUSH: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
"""The request that makes macOS flush data to the disk itself; None on other systems."""
MACHINE_ID: Final = Path("/etc/machine-id")
"""The file with the machine's identifier. In most containers, this file is missing or empty."""
BUSY_S: Final = 1.0
"""The time, in seconds, that another program's write to the file may hold us up when we open it."""
LOCK_WAIT_S: Final = 0.05
"""The time, in seconds, that one attempt to lock waits for another program, which may only be checking the lock."""
LOOKS: Final = 200
"""The maximum number of attempts to lock, while other programs check the lock. Each check takes as long as a few SQLite
statements.
"""


PAGE_BYTES: Final = 8_192
"""The size of a page of the tables, in bytes."""
LOG_ROOM_BYTES: Final = 2 << 20
"""The size, in bytes, that SQLite's own log has from the beginning."""
LOG_HEADER_BYTES: Final = 32
"""The size, in bytes, of the header of SQLite's own log. SQLite reads the header only if something follows it."""


class WritableFile(Protocol):
    """A file that is open for writing. Every method may raise OSError."""

    def write(self, offset: int, parts: list[bytes]) -> None:
        """Write all parts, one after the other."""

    def allocate(self, size_bytes: int) -> None:
        """Give the empty file this size. It is filled with zeros, so that there is room for later writes within this
        size.
        """

    def flush(self) -> None:
        """Flush all writes to disk before this returns."""

    def close(self) -> None:
        """Close the file and leave it where it is."""


DRAFT: Final = "-new"
"""The suffix of the name of a file that is not complete yet."""


def made(files: Files, path: Path, size_bytes: int, begins: bytes) -> WritableFile:
    """Make a file of this size that begins with these bytes, followed by zeros.

    It replaces any file with this name. When this returns, the file is on disk under its name. The name appears only
    once the file is complete. So a file that begins with other bytes, or is shorter, is known to be damaged.

    Raises:
        OSError: the file cannot be made, and nothing is left of it; an earlier file with this name may still exist.
    """
    draft = path.with_name(f"{path.name}{DRAFT}")
    ours = {draft.name, path.name}.difference(files.names(path.parent))
    file = files.create(draft)
    try:
        file.allocate(size_bytes)
        file.write(0, [begins])
        file.flush()
        files.rename(draft, path)
        files.flush_folder(path.parent)
    except BaseException:
        file.close()
        for name in ours.intersection(files.names(path.parent)):
            files.remove(path.with_name(name))
        raise
    return file


class Lock(Protocol):
    """A lock that is held until it is closed, or the process ends."""

    def close(self) -> None:
        """Release the lock."""


class FileIdentity(NamedTuple):
    """Identifies a file independently of its name. A copy is a different file.

    device: the number that the operating system gives to the file's file system, which is valid until the next restart.
    inode: the file's number in that file system; 0 if there is no file.
    """

    device: int
    inode: int


NO_FILE: Final = FileIdentity(0, 0)


class Files(Protocol):
    """A store's access to files, by path. Methods for the log may raise OSError, and methods for the tables may raise
    sqlite3.Error.
    """

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder."""

    def create(self, path: Path) -> WritableFile:
        """Create a file that does not exist."""

    def open(self, path: Path) -> WritableFile:
        """Open a file that exists."""

    def rename(self, path: Path, new: Path) -> None:
        """Rename a file. It replaces any file that already has the new name."""

    def identity(self, path: Path) -> FileIdentity:
        """Return the identity of the file with this name, or NO_FILE if there is no such file."""

    def changed_s(self, path: Path) -> int:
        """Return the time, in UTC, of the last write to a file; 0 if unknown."""

    def machine(self) -> str:
        """Return an identifier of this machine, of at most 32 letters; empty if the machine has none."""

    def read(self, path: Path) -> bytes:
        """Return the contents of a file."""

    def remove(self, path: Path) -> None:
        """Remove a file."""

    def flush_folder(self, folder: Path) -> None:
        """Flush the names in a folder to disk before this returns."""

    def head(self, path: Path, size_bytes: int) -> bytes:
        """Return the first bytes of a file, or no bytes if it does not exist."""

    def connect(self, path: Path, begins: bytes = b"") -> sqlite3.Connection:
        """Open the file of the tables, which is made if it does not exist.

        Args:
            begins: the header to write into SQLite's own log if there are tables but no such log. Without it, SQLite
                writes one.
        """

    def let_go(self, db: sqlite3.Connection, path: Path) -> None:
        """Close the tables without SQLite's last step, in which SQLite moves its log into them."""

    def keep_log(self, db: sqlite3.Connection) -> bool:
        """Make SQLite write a log of its own, so that each transaction is complete or absent. Return whether it can."""

    def keep_room(self, path: Path) -> None:
        """Reserve room for SQLite's log. While the tables are closed, the room is kept for the next log."""

    def lock(self, path: Path) -> Lock:
        """Acquire the lock of a store. The lock's file, next to the store, stays empty.

        Raises:
            StoreError: another store is open on the file, here or in another process.
        """

    def is_locked(self, path: Path) -> bool:
        """Return whether a store is open on the file, or whether this cannot be checked. The check does not block a
        node that is starting.
        """


class SystemFile:
    """A file of the operating system."""

    def __init__(self, file: int) -> None:
        self._file = file

    def write(self, offset: int, parts: list[bytes]) -> None:
        """Write all parts. The system usually takes them all at once."""
        written = os.pwritev(self._file, parts, offset)
        if written < sum(map(len, parts)):
            rest = memoryview(b"".join(parts))
            while written < len(rest):
                written += os.pwrite(self._file, rest[written:], offset + written)

    def allocate(self, size_bytes: int) -> None:
        try:
            os.posix_fallocate(self._file, 0, size_bytes)
        except (AttributeError, OSError) as error:
            if getattr(error, "errno", None) not in (None, errno.EOPNOTSUPP, errno.EINVAL):
                raise
            self.write(0, [bytes(size_bytes)])

    def flush(self) -> None:
        if FULL_FLUSH is not None:
            fcntl.fcntl(self._file, FULL_FLUSH)
        else:
            os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


class SystemFiles:
    """The operating system's files."""

    def names(self, folder: Path) -> list[str]:
        return os.listdir(folder)

    def create(self, path: Path) -> SystemFile:
        return SystemFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def open(self, path: Path) -> SystemFile:
        return SystemFile(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def rename(self, path: Path, new: Path) -> None:
        path.rename(new)

    def identity(self, path: Path) -> FileIdentity:
        try:
            found = path.stat()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
                return NO_FILE
            raise
        return FileIdentity(found.st_dev, found.st_ino)

    def changed_s(self, path: Path) -> int:
        return int(path.stat().st_mtime)

    def machine(self) -> str:
        try:
            known = MACHINE_ID.read_bytes().strip()
        except OSError:
            return ""
        # Its manual page asks that nothing shows it to others.
        return hashlib.blake2b(known, digest_size=16, key=b"mqproto").hexdigest() if known else ""

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def remove(self, path: Path) -> None:
        path.unlink()

    def flush_folder(self, folder: Path) -> None:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def head(self, path: Path, size_bytes: int) -> bytes:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(file, size_bytes, 0)
        finally:
            os.close(file)

    def connect(self, path: Path, begins: bytes = b"") -> sqlite3.Connection:
        log, room = _log_and_room(path)
        if room.exists() and not log.exists():
            with suppress(OSError):
                room.rename(log)
                self.flush_folder(path.parent)
        self._begin_log(path, begins)
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        try:
            db.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            # Other errors come again, where they are explained.
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHMSIZE:
                # There is no room for what connections share. One alone needs no file for it.
                db.close()
                self._begin_log(path, begins)
                db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
                db.execute("PRAGMA locking_mode = EXCLUSIVE").close()
        return db

    def _begin_log(self, path: Path, header: bytes) -> None:
        """Begin SQLite's log with this header, if there is no log. A full disk may not have room for one."""
        log, _ = _log_and_room(path)
        if not header or not path.exists() or any(self.head(log, LOG_HEADER_BYTES)):
            return
        try:
            is_new = not log.exists()
            file = os.open(log, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, header.ljust(2 * LOG_HEADER_BYTES, b"\0"), 0)
            finally:
                os.close(file)
            if is_new:  # No power loss brings back the one that SQLite removed.
                self.flush_folder(path.parent)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def let_go(self, db: sqlite3.Connection, path: Path) -> None:
        # A connection that only reads, and is closed last, does nothing to the tables.
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as last:
            with suppress(sqlite3.Error, UnicodeDecodeError):
                last.execute("SELECT 1 FROM sqlite_master").fetchone()
            db.close()

    def keep_log(self, db: sqlite3.Connection) -> bool:
        with closing(db.execute("PRAGMA journal_mode = WAL")) as found:
            return bool(found.fetchone() == ("wal",))

    def keep_room(self, path: Path) -> None:
        log, room = _log_and_room(path)
        # Not every file system can do this, and the tables can do without.
        with suppress(OSError, AttributeError):
            if not log.exists():
                if not room.exists():
                    made(self, room, LOG_ROOM_BYTES, b"").close()
                return
            file = os.open(log, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.posix_fallocate(file, 0, LOG_ROOM_BYTES)
            finally:
                os.close(file)

    def lock(self, path: Path) -> sqlite3.Connection:
        file = f"{path.resolve()}-lock"
        for _ in range(LOOKS):
            try:
                try:
                    return _locked(file)
                except sqlite3.DatabaseError as error:
                    if primary_code(error) not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                        raise
                    # Something has written into it. SQLite looks at that only when nobody else holds it.
                    os.truncate(file, 0)
                    return _locked(file)
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY:
                    raise
                # Programs that only look share the lock, and may have been stopped meanwhile.
                if self.is_locked(path):
                    raise StoreError(f"{path}: another node has it open: stop that one first") from error
        raise StoreError(f"{path}: another program keeps it open: stop that program first")

    def is_locked(self, path: Path) -> bool:
        file = Path(f"{path.resolve()}-lock")
        if not file.exists():
            return False
        try:
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=0)) as lock:
                lock.execute("SELECT 1 FROM sqlite_master").close()
        except sqlite3.Error as error:
            return primary_code(error) not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
        return False


def _locked(file: str) -> sqlite3.Connection:
    lock = sqlite3.connect(file, timeout=LOCK_WAIT_S, isolation_level=None)
    try:
        # Nothing is written, so there is nothing to undo: a file for that would find no room on a full disk.
        lock.execute("PRAGMA journal_mode = MEMORY").close()
        lock.execute("BEGIN EXCLUSIVE")
    except BaseException:
        lock.close()
        raise
    return lock


def _log_and_room(path: Path) -> tuple[Path, Path]:
    """Return the path of SQLite's own log, and the path of the file that keeps room for it while there is no log."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-wal-room")


SYSTEM_FILES: Final = SystemFiles()

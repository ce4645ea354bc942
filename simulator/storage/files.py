"""What a store asks of the system: the files of its log, and SQLite on that of its tables.

`SystemFiles` are the real ones. A simulated world has others, which lose with the power what was not flushed.
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
"""macOS flushes to the disk itself only if that is asked for by name."""
MACHINE_ID: Final = Path("/etc/machine-id")
"""Containers mostly have none, or an empty one."""
BUSY_S: Final = 1.0
"""How long another program's write to the file may hold us up when we open it."""
LOCK_WAIT_S: Final = 0.05
"""How long somebody who only looks at a lock is waited for, before it is looked whether a node holds it."""
LOOKS: Final = 200
"""How often; each look takes some statements of SQLite."""


PAGE_BYTES: Final = 8_192
"""How long a page of the tables is."""
LOG_ROOM_BYTES: Final = 2 << 20
"""What SQLite's own log has from the start."""
LOG_HEADER_BYTES: Final = 32
"""How long the header of SQLite's own log is. It reads one only if something follows."""


class LogFile(Protocol):
    """A file that is open for writing. Every method may raise OSError."""

    def write(self, offset: int, parts: list[bytes]) -> None:
        """Write all parts, one after the other."""

    def allocate(self, size_bytes: int) -> None:
        """The file, which is empty, gets this size. It holds zeros, and there is room for whatever is written there."""

    def flush(self) -> None:
        """What was written is on disk when this returns."""

    def close(self) -> None:
        """Leave the file where it is."""


DRAFT: Final = "-new"
"""Ends the name of a file that is not whole yet."""


def made(files: Files, path: Path, size_bytes: int, begins: bytes) -> LogFile:
    """A new file of this size that begins so and goes on with zeros. One of this name that is there is gone then.

    It is on disk with its name when this returns, and its name is there only if all of it is: whoever finds a file that
    does not begin so, or is shorter, knows that it was damaged.

    Raises:
        OSError: it cannot be made, and is not there; one that was there may be there still.
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
    """It is held until it is closed, or the process ends."""

    def close(self) -> None:
        """Give it free."""


class FileIdentity(NamedTuple):
    """Which file it is, whatever its name: one that was copied is another.

    device: the file system, as its system calls it until it is started again.
    inode: its number there; 0 if there is no file.
    """

    device: int
    inode: int


NO_FILE: Final = FileIdentity(0, 0)


class Files(Protocol):
    """Files by their paths. Those of the log may raise OSError, those of the tables sqlite3.Error."""

    def names(self, folder: Path) -> list[str]:
        """The names in a folder."""

    def create(self, path: Path) -> LogFile:
        """A file that was not there."""

    def open(self, path: Path) -> LogFile:
        """A file that is there."""

    def rename(self, path: Path, new: Path) -> None:
        """A file gets another name; one that had it is gone."""

    def identity(self, path: Path) -> FileIdentity:
        """Which file has this name; NO_FILE if none has."""

    def changed_s(self, path: Path) -> int:
        """When something was last written to a file, UTC; 0 if that is not known."""

    def machine(self) -> str:
        """What tells this machine from others, in at most 32 letters; empty if nothing does."""

    def read(self, path: Path) -> bytes:
        """All that is in a file."""

    def remove(self, path: Path) -> None:
        """A file goes."""

    def flush_folder(self, folder: Path) -> None:
        """The names in a folder are on disk when this returns."""

    def head(self, path: Path, size_bytes: int) -> bytes:
        """The first bytes of a file; none if it is not there."""

    def connect(self, path: Path, begins: bytes = b"") -> sqlite3.Connection:
        """Open the file of the tables; it is made if it is not there.

        Args:
            begins: the header of SQLite's own log, if there are tables and no such log. Without it SQLite writes one.
        """

    def let_go(self, db: sqlite3.Connection, path: Path) -> None:
        """Close the tables without what SQLite does at the end, which is to bring its log to them."""

    def keep_log(self, db: sqlite3.Connection) -> bool:
        """Have SQLite write a log of its own, so that a transaction is there wholly or not; whether it can."""

    def keep_room(self, path: Path) -> None:
        """SQLite's log gets room, or, if the tables are closed, room is set aside for the next one."""

    def lock(self, path: Path) -> Lock:
        """Hold the lock of a store; the file beside it stays empty.

        Raises:
            StoreError: another store is open on the file, here or in another process.
        """

    def is_locked(self, path: Path) -> bool:
        """Whether a store is open on the file, or cannot be looked at. It keeps nobody from opening one."""


class SystemFile:
    """A file of the operating system's."""

    def __init__(self, file: int) -> None:
        self._file = file

    def write(self, offset: int, parts: list[bytes]) -> None:
        """Mostly the system takes all parts in one go."""
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
        """SQLite's log begins so, if there is none. On a full disk without room set aside it may not."""
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
        # Who only reads and closes the tables last does nothing to them.
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as last:
            with suppress(sqlite3.Error, UnicodeDecodeError):
                last.execute("SELECT 1 FROM sqlite_master").fetchone()
            db.close()

    def keep_log(self, db: sqlite3.Connection) -> bool:
        with closing(db.execute("PRAGMA journal_mode = WAL")) as found:
            return bool(found.fetchone() == ("wal",))

    def keep_room(self, path: Path) -> None:
        log, room = _log_and_room(path)
        # It is not to be had on each file system, and the tables can do without.
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
                # Who looks shares the lock with others who do, and may have been stopped meanwhile.
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
    """SQLite's own log, and what is put in its place where there is none."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-wal-room")


SYSTEM_FILES: Final = SystemFiles()

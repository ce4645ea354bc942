"""The journal of an invoker's numbered operations, on disk.

If a process dies, the next one continues from the journal. It is one SQLite file, plus its `-wal` file. It contains the
invoker's name, its node, the last number, and each operation with an unknown outcome. An operation is recorded before
it is sent. Operations with a tag stay, with their outcomes, until they are forgotten; only their owner knows what a tag
means. Only one process at a time may open a journal.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from mqproto.base.errors import UsageError
from mqproto.edge.operations import IDENTIFIERS, Pending
from mqproto.simulator.base.logfile import private
from mqproto.simulator.base.storeerrors import ADVICE, StoreError, explained
from mqproto.simulator.node import control
from mqproto.simulator.node.control import ControlFrame, Operation

APPLICATION_ID: Final = int.from_bytes(b"mqpj")
HEAD_BYTES: Final = 32
"""The size, in bytes, of the header of SQLite's log. The header changes whenever the log is restarted."""
ATTEMPTS: Final = 100
LAYOUT: Final = 2
FOREIGN: Final = "it is not a client's journal: name another file"
JOURNAL_ADVICE: Final = {
    **ADVICE,
    sqlite3.SQLITE_FULL: "the disk is full: make room, then do the same again; nothing is lost, nothing comes twice",
    sqlite3.SQLITE_IOERR: "the disk fails: look to it, then do the same again; nothing is lost, nothing comes twice",
    sqlite3.SQLITE_NOTADB: FOREIGN,
    sqlite3.SQLITE_CORRUPT: "it is damaged: put back a copy; without one, look in the queue for what was sent",
    sqlite3.SQLITE_BUSY: "another client has it open: end that one first",
}
SCHEMA: Final = """
CREATE TABLE invoker (name BLOB NOT NULL, node BLOB, following INTEGER NOT NULL, birth BLOB NOT NULL DEFAULT x'');
CREATE TABLE operation (
    number INTEGER PRIMARY KEY, operation INTEGER NOT NULL, parameter BLOB, tag BLOB NOT NULL,
    answer INTEGER, outcome BLOB
);
CREATE INDEX operation_tag ON operation (tag) WHERE tag != x'';
"""


class Operated(NamedTuple):
    """An operation with a tag, and its outcome."""

    number: int
    operation: Operation
    tag: bytes
    answer: ControlFrame

    def result(self) -> Any:
        """Return the result of the operation.

        Raises:
            UsageError, FormatNameError, RolledBack: the operation was not carried out.
            InDoubt: nobody can tell whether it was carried out.
        """
        return control.result(self.operation, self.answer)


class Journal:
    """The journal of one invoker. `opened` makes it. `begin` may be called from another thread."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path = path
        self._db = db
        self._ended: list[tuple[int | None, bytes | None, int]] = []
        self._forgotten: list[tuple[bytes]] = []
        self._lock = threading.Lock()
        self._numbers: dict[int, int] = {}
        """The numbers of the operations without an outcome, keyed by identifier."""
        self._birth: bytes
        [(self.invoker, self._node, self._following, self._birth)] = db.execute(
            "SELECT name, node, following, birth FROM invoker"
        ).fetchall()

    def state(self) -> tuple[int, list[Pending]]:
        """Return the next identifier and the operations without an outcome, in the form that `Invoker` takes."""
        rows = self._db.execute(
            "SELECT number, operation, parameter FROM operation WHERE answer IS NULL ORDER BY number"
        ).fetchall()
        self._numbers = {number % IDENTIFIERS: number for number, _, _ in rows}
        pending = [
            Pending(number % IDENTIFIERS, operation, parameter) for number, operation, parameter in rows
        ]
        return self._following % IDENTIFIERS, pending

    @property
    def birth(self) -> bytes:
        """The `birth` in the node's last Hello to this invoker; empty if the node was never asked."""
        return self._birth

    def belongs_to(
        self,
        node: bytes,
        name: str,
        birth: bytes = b"",
        doubtful: Mapping[int, ControlFrame] | None = None,
    ) -> None:
        """Bind the journal to a node, because the identifiers in it mean something only to that node.

        Also record the invoker's birth, which the node has given.

        Args:
            doubtful: the outcomes of operations that were sent before the node gave this birth, keyed by identifier.

        Raises:
            UsageError: the journal belongs to another node.
            StoreError: the journal cannot be written; nothing has changed.
        """
        if self._node not in (None, node):
            raise UsageError(
                f"{self.path} is the journal of a client of another node than {name}: name another file"
            )
        doubtful = doubtful or {}
        with self._lock, explained(self.path, JOURNAL_ADVICE):
            if (self._node, self._birth) == (node, birth) and not doubtful:
                return
            # After the new birth the node takes operations without an outcome for new: write all outcomes with it.
            ended = self._ended + [
                (answer.operation, answer.payload, self._numbers[identifier])
                for identifier, answer in doubtful.items()
            ]
            with self._transaction():
                self._write_ended(ended, self._forgotten)
                self._db.execute("UPDATE invoker SET node = ?, birth = ?", (node, birth))
            self._node, self._birth = node, birth
            self._ended.clear()
            self._forgotten.clear()
            for identifier in doubtful:
                del self._numbers[identifier]

    def begin(self, rows: Sequence[tuple[int, int, bytes, bytes]]) -> None:
        """Record operations, each as (identifier, operation, parameter, tag).

        They are on disk when this returns.

        Raises:
            StoreError: the operations could not be written.
        """
        with self._lock, explained(self.path, JOURNAL_ADVICE):
            ended, forgotten = self._ended.copy(), self._forgotten.copy()
            following, numbers = self._following, dict[int, int]()
            with self._transaction():
                self._write_ended(ended, forgotten)
                for identifier, operation, parameter, tag in rows:
                    number = following + (identifier - following) % IDENTIFIERS
                    self._db.execute(
                        "INSERT INTO operation (number, operation, parameter, tag) VALUES (?, ?, ?, ?)",
                        (number, operation, parameter, tag),
                    )
                    numbers[identifier] = number
                    following = number + 1
                self._db.execute("UPDATE invoker SET following = ?", (following,))
            # Only what is on disk counts; more may have ended meanwhile.
            self._numbers |= numbers
            self._following = following
            del self._ended[: len(ended)]
            del self._forgotten[: len(forgotten)]

    def end(self, identifier: int, answer: ControlFrame) -> None:
        """Record the outcome of an operation.

        The next commit writes it to disk; until then, only the node has it.
        """
        self._ended.append((answer.operation, answer.payload, self._numbers.pop(identifier)))

    def withdraw(self, identifier: int) -> None:
        """Withdraw the newest operation, which was never sent. The next operation reuses its identifier."""
        number = self._numbers.pop(identifier)
        assert number == self._following - 1, "those after it are withdrawn first"
        self._following = number
        self._ended.append((None, None, number))

    def operated(self) -> Iterator[Operated]:
        """Yield all operations with a tag and an outcome, in the order in which they began."""
        self.flush()
        rows = self._db.execute(
            "SELECT number, operation, tag, answer, outcome FROM operation"
            " WHERE answer IS NOT NULL ORDER BY number"
        )
        for number, operation, tag, answer, outcome in rows:
            yield Operated(number, Operation(operation), tag, ControlFrame(answer, 0, outcome))

    def forget(self, tags: Iterable[bytes]) -> None:
        """Forget the outcomes of the operations with these tags. They are deleted with the next commit."""
        self._forgotten += ((tag,) for tag in tags)

    def flush(self) -> None:
        """Write everything that waits for the next commit.

        Raises:
            StoreError: it cannot be written.
        """
        if self._ended or self._forgotten:
            self.begin([])

    def _write_ended(
        self, ended: list[tuple[int | None, bytes | None, int]], forgotten: list[tuple[bytes]]
    ) -> None:
        gone = [(number,) for answer, _, number in ended if answer is None]
        self._db.executemany("DELETE FROM operation WHERE number = ?", gone)
        known = [row for row in ended if row[0] is not None]
        self._db.executemany(
            "DELETE FROM operation WHERE number = ? AND tag = x''", [(row[2],) for row in known]
        )
        self._db.executemany(
            "UPDATE operation SET answer = ?, outcome = ?, parameter = NULL WHERE number = ?", known
        )
        self._db.executemany("DELETE FROM operation WHERE tag = ? AND answer IS NOT NULL", forgotten)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # A full disk is found by the commit more often than not, and some errors roll back by themselves.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


@contextmanager
def opened(path: Path) -> Iterator[Journal]:
    """Yield the journal in a file, which is made if it does not exist.

    Raises:
        StoreError: the file cannot be opened, is not a journal, or is in use by another process.
    """
    with ExitStack() as held:
        with explained(path, JOURNAL_ADVICE):
            # SQLite would make the file by the umask. It reports by itself what it cannot open.
            with suppress(OSError):
                os.close(private(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
            db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            held.enter_context(closing(db))
            _set_up(path, db)
        journal = Journal(path, db)
        yield journal
        journal.flush()


def _set_up(path: Path, db: sqlite3.Connection) -> None:
    # The lock is the operating system's, and stays until the connection or the process ends.
    db.execute("PRAGMA locking_mode = EXCLUSIVE").close()
    db.execute("PRAGMA synchronous = FULL").close()
    db.execute("PRAGMA fullfsync = ON").close()
    # This is the default in some builds of SQLite only.
    db.execute("PRAGMA secure_delete = ON").close()
    db.execute("BEGIN EXCLUSIVE")
    [(application_id,)] = db.execute("PRAGMA application_id").fetchall()
    [(layout,)] = db.execute("PRAGMA user_version").fetchall()
    is_new = not (application_id or layout or db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall())
    if is_new:
        for statement in SCHEMA.split(";")[:-1]:
            db.execute(statement)
        db.execute("INSERT INTO invoker (name, following) VALUES (?, 0)", (uuid4().bytes,))
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {LAYOUT}")
    elif application_id != APPLICATION_ID:
        raise StoreError(f"{path}: {FOREIGN}")
    elif layout != LAYOUT:
        raise StoreError(
            f"{path}: it has layout {layout}, and this mqproto knows {LAYOUT}: use the mqproto that wrote it"
        )
    db.execute("COMMIT")
    # A commit is then one flush instead of four. First the file must be known to be ours.
    db.execute("PRAGMA journal_mode = WAL").close()

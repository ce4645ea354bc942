"""The tables of a node's store: one SQLite file, one connection.

A transaction is on disk at its end only if it is `flushed`. Otherwise a power loss may undo it and all later ones.
While that is possible, the log has the same data.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from mqproto.base.errors import UsageError
from mqproto.simulator.base.storeerrors import ADVICE, LifeFullError, StoreError, finds_no_room, primary_code
from mqproto.simulator.storage.checksums import (
    MESSAGE_COLUMNS,
    row_checksum,
    whole_rows,
)
from mqproto.simulator.storage.files import LOG_HEADER_BYTES, PAGE_BYTES, Files
from mqproto.simulator.storage.posted import PostedTable
from mqproto.simulator.storage.recent import RecentRows, RecentStates
from mqproto.simulator.storage.segments import explained_file
from mqproto.simulator.storage.tables import (
    ADDED,
    APPLICATION_ID,
    BEFORE,
    FORGET_SEQUENCES,
    GIVE_UP_NAME,
    LAYOUT,
    REPLACE_IDENTIFIER,
    SCHEMA,
    SEQUENCES_KEPT,
    UPSERT_COUNTER,
    UPSERT_INCOMING,
    UPSERT_OUTCOME,
    UPSERT_OUTGOING,
    UPSERT_QUEUE,
    MessageTable,
    see_that_all_is_there,
)
from mqproto.simulator.storage.witnesses.life import NOWHERE, Home
from mqproto.simulator.storage.witnesses.sqlitelog import (
    Salts,
    found_salts,
    header_of,
    log_path,
    see_that_it_belongs,
)
from mqproto.simulator.storage.witnesses.witness import Said, said_by_witness, witness_path
from mqproto.turn.effects import (
    HurtPacket,
    IdentifierRow,
    IncomingRow,
    MessageRow,
    QueueKind,
    QueueRow,
    ReadSequences,
)
from mqproto.wire.guid import Guid, guid_text

DICE: Final = random.SystemRandom()
CHECKPOINT_PAGES: Final = 500
MOST_PAGES: Final = 2**30
PRAGMAS: Final = (
    f"page_size = {PAGE_BYTES}",
    # macOS flushes to the disk itself only if that is asked for by name.
    "fullfsync = ON",
    "checkpoint_fullfsync = ON",
    # 4 MiB of SQLite's own log, then its pages move to their places in the file: often, so it never takes long.
    f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
    "cache_size = -16384",
    # Some builds wipe what is deleted, with zeros; that costs a tenth, and the log has the bytes anyway (write_anew).
    "secure_delete = OFF",
    # Rows that a REPLACE removes are counted as well.
    "recursive_triggers = ON",
    # Data to undo a statement is kept in memory: other disks may be full, too.
    "temp_store = MEMORY",
)
SOURCE_BYTE: Final = 17
"""The offset of the source in a packet: SourceQueueManager, after the BaseHeader.  [MS-MQMQ] 2.2.19.2"""
BUSY_RUNNING_MS: Final = 10
"""The time, in milliseconds, that another program's write may hold us up while the node runs. Our own write can wait,
but the neighbours cannot.
"""


class Mark(NamedTuple):
    """The place where the log begins.

    segment: the first segment whose records the tables lack, or may lack; it may not exist yet.
    record: the number of that segment's first record.
    is_begun: whether that segment was begun, so that it must exist.
    """

    segment: int
    record: int
    is_begun: bool


BEGINNING: Final = Mark(1, 1, is_begun=False)
"""The place where the log of a new store begins."""


def made_mark(segment: int, record: int, is_begun: int) -> Mark:
    """Make a mark from its columns."""
    return Mark(segment, record, bool(is_begun))


def made_queue(queue: int, kind: str, name: str, priority: int, on_hold: int) -> QueueRow:
    """Make a queue from its columns."""
    return QueueRow(queue, QueueKind(kind), name, priority, bool(on_hold))


def made_counter(name: str, value: int) -> tuple[str, int]:
    """Make a counter from its columns."""
    return name, value


def whole_nodes(rows: Iterable[Any]) -> list[tuple[Guid, Home]]:
    """From each row that was read, return the node that owns the tables, and the place of the tables.

    Raises:
        DamageError: a row differs from the row that was written.
    """
    return [(guid, Home(*home)) for guid, *home in whole_rows("node", rows, lambda *columns: columns)]


class StoreTables:
    """The tables of one queue manager's store. The caller has the store's lock.

    Args:
        path: the file, which is made if it does not exist.
        node: the queue manager's GUID. A file that belongs to another node is refused.
        files: the operating system's files, or simulated ones.

    Attributes:
        home: the place of the tables, according to the tables themselves.
        log_salts: the salts of SQLite's log when it was last read.

    Raises:
        StoreError, sqlite3.Error: the file cannot be opened, or belongs to another node.
    """

    def __init__(self, files: Files, path: Path, node: Guid) -> None:
        self.path = path
        self._files = files
        self._node = node
        self.forgotten_count = 0
        """The number of strangers' sequences that were forgotten because there were too many."""
        self._may_grow = True
        self._found_hurt: list[int] = []
        """The keys of messages that were found damaged at the start."""
        witness = self._found_witness()
        self._log_path = log_path(path)
        with explained_file(self._log_path):
            self._log_header = files.head(self._log_path, LOG_HEADER_BYTES)
            see_that_it_belongs(path, self._log_header, witness and witness.salts)
            self._had_log = any(self._log_header)
            known = witness.salts if witness is not None else Salts.some(DICE)
            self.log_salts = found_salts(self._log_header) or known
            self.db = files.connect(path, header_of(self.log_salts.next(DICE), PAGE_BYTES))
            self.db.text_factory = _as_text
        try:
            self._set_up(node, witness)
            self.messages = MessageTable(self.db)
            self.posted = PostedTable(self.db)
            self.look_at_log()
        except BaseException:
            self.leave()
            raise

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    def leave(self) -> None:
        """Close the file of a store that does not start. An old log may be damaged, so it is kept out of the tables."""
        if self._had_log:
            self._files.let_go(self.db, self.path)
        else:
            self.db.close()

    # Room

    def set_room_aside(self, size_bytes: int) -> None:
        """Keep this many bytes in free pages of the file, if the disk has room. The tables use them once the disk is
        full.
        """
        [(page_bytes,)], [(free_count,)] = self._rows("PRAGMA page_size"), self._rows("PRAGMA freelist_count")
        if free_count * page_bytes >= size_bytes:
            return
        try:
            self.db.execute("DROP TABLE IF EXISTS set_aside").close()
            with self.transaction(flushed=False):
                self.db.execute("CREATE TABLE set_aside (pages BLOB)").close()
                self.db.execute("INSERT INTO set_aside VALUES (zeroblob(?))", (size_bytes,)).close()
            # Only then are they in the file; freed pages are not written there.
            self._rows("PRAGMA wal_checkpoint(PASSIVE)")
            with self.transaction(flushed=False):
                self.db.execute("DROP TABLE set_aside").close()
        except sqlite3.Error as error:
            if not finds_no_room(error):
                raise

    def let_grow(self, may_grow: bool) -> None:
        """Set whether the file may grow. If it may not, a transaction that needs more pages than the file has is
        undone.

        SQLite's log must fit into the file; otherwise that log could never be completed.
        """
        if may_grow == self._may_grow:
            return
        self._may_grow = may_grow
        if not may_grow:
            with suppress(sqlite3.Error):
                self._rows("PRAGMA wal_checkpoint(PASSIVE)")
        [(page_count,)] = self._rows("PRAGMA page_count")
        self._rows(f"PRAGMA max_page_count = {MOST_PAGES if may_grow else page_count}")
        self._rows(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES if may_grow else CHECKPOINT_PAGES // 8}")

    # Writing

    @contextmanager
    def transaction(self, *, flushed: bool) -> Iterator[None]:
        """Commit all writes of the block, or none if the block raises an exception.

        Args:
            flushed: whether the transaction, and all earlier ones, are on disk when it ends.

        Raises:
            sqlite3.Error: none of the writes took effect.
            StoreError: SQLite's log cannot be read; all of the writes took effect.
        """
        # With NORMAL, SQLite flushes its log only before a checkpoint. With FULL, also after a commit: all of that
        # log, so what earlier commits have put there too.
        self.db.execute(f"PRAGMA synchronous = {'FULL' if flushed else 'NORMAL'}").close()
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise
        self.look_at_log()

    def take_over(self, recent: RecentRows, mark: Mark) -> None:
        """Write the log's recent rows to the tables on disk, so that the log can begin again. Some rows may be there
        already.

        Raises:
            sqlite3.Error: nothing has changed.
        """
        with self.transaction(flushed=True):
            self._put_all(recent)
            self.put_mark(mark)

    @contextmanager
    def seen_with(self, recent: RecentRows) -> Iterator[None]:
        """While the block runs, keep the rows in memory, where only this connection sees them. Nothing goes to the
        disk, which may be full.

        Raises:
            sqlite3.Error: the tables cannot be read.
        """
        last_keys, may_grow = dict(self.messages.last_keys), self._may_grow
        self.let_grow(True)
        self.db.execute("PRAGMA cache_spill = OFF").close()
        self.db.execute("BEGIN IMMEDIATE")
        try:
            self._put_all(recent)
            yield
        finally:
            self.messages.last_keys = last_keys
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            self.db.execute("PRAGMA cache_spill = ON").close()
            self.let_grow(may_grow)

    def _put_all(self, recent: RecentRows) -> None:
        messages = self.messages
        messages.recount(self._found_hurt)
        rows = recent.messages.rows
        there = messages.those_there(rows)
        # A message that is damaged here, and whole in the log, comes from there.
        hurt = messages.hurt_among(key for key in there if not isinstance(rows[key].packet, HurtPacket))
        messages.remove({key: size for key in hurt for key, size in messages.sizes(key, key).items()})
        there = sorted(set(there).difference(hurt))
        self.put_queues(recent.states.queues.values())
        # Messages that are gone make room for those that come, if the file cannot grow.
        messages.remove(recent.gone)
        messages.insert([rows[key] for key in sorted(rows.keys() - set(there))])
        messages.make_lasting(recent.lasting)
        messages.mark([key for key in rows.keys() - set(there) if isinstance(rows[key].packet, HurtPacket)])
        messages.make_lasting(key for key in there if rows[key].expires_s is None)
        self.put_identifiers(list(recent.states.identifiers.values()), recent.states.forgotten_identifiers)
        posted = recent.states.posted
        self.posted.put(list(posted.rows.values()), list(posted.changes.values()))
        self.put_states(recent.states)

    def set_aside(self, keys: Iterable[int], copies: dict[int, MessageRow]) -> None:
        """Copy those of these messages that are damaged into the quarantine, unchanged.

        Until they are removed, their rows still count as messages, but cannot be used for anything else.

        Args:
            copies: undamaged copies in the log, keyed by the messages' keys; a message with such a copy is restored
                from it instead.
        """
        if hurt := self.messages.hurt_among(keys):
            with self.transaction(flushed=True):
                self.messages.recount(hurt)
                for key in copies.keys() & set(hurt):
                    self.messages.remove(self.messages.sizes(key, key))
                    self.messages.insert([copies[key]])
                self.messages.mark([key for key in hurt if key not in copies])

    def set_aside_found(self) -> None:
        """Set aside the damaged messages that were found at the start, once the log has been read and the counts are
        right."""
        self.set_aside(self._found_hurt, {})

    def put_queues(self, rows: Iterable[QueueRow]) -> None:
        """Write queues that are new or renamed. A queue may take a name that another queue has given up."""
        if rows := list(rows):
            self.db.executemany(GIVE_UP_NAME, ((row.queue, row.name) for row in rows))
            self.db.executemany(UPSERT_QUEUE, _with_checksums(rows))

    def put_identifiers(self, rows: list[IdentifierRow], forgotten: list[tuple[Guid, int, int]]) -> None:
        """Forget the identifiers in these ranges of a source's ordinals; then write these rows."""
        if forgotten:
            self.db.executemany(
                "DELETE FROM message_id WHERE source = ? AND ordinal BETWEEN ? AND ?", forgotten
            )
        if rows:
            self.db.executemany(REPLACE_IDENTIFIER, _with_checksums(rows))

    def put_states(self, states: RecentStates) -> None:
        """Write all rows except those of queues, identifiers and posted messages. Kinds without rows are skipped,
        because each statement takes time.
        """
        run_many = self.db.executemany
        if states.outgoing:
            run_many(UPSERT_OUTGOING, _with_checksums(states.outgoing.values()))
        if states.incoming:
            absent = [name for name, row in states.incoming.items() if row is None]
            run_many("DELETE FROM incoming_sequence WHERE source = ? AND queue = ?", absent)
            run_many(UPSERT_INCOMING, _with_checksums(filter(None, states.incoming.values())))
            self._forget_sequences()
        if states.counters:
            run_many(UPSERT_COUNTER, _with_checksums(states.counters.items()))
        if states.forgotten_invokers:
            run_many("DELETE FROM outcome WHERE invoker = ?", [(each,) for each in states.forgotten_invokers])
        if states.outcomes:
            gone = [name for name, row in states.outcomes.items() if row is None]
            run_many("DELETE FROM outcome WHERE invoker = ? AND identifier = ?", gone)
            kept = (row for row in states.outcomes.values() if row is not None)
            run_many(UPSERT_OUTCOME, _with_checksums(kept))

    def _forget_sequences(self) -> None:
        """If there are too many incoming sequences, forget some of those that have given up their places.

        Sequences of the host that has the most are forgotten first.
        """
        [(count,)] = self._rows("SELECT row_count FROM total WHERE name = 'incoming_sequence'")
        if count > SEQUENCES_KEPT:
            self.forgotten_count += self.db.execute(
                FORGET_SEQUENCES, (count - SEQUENCES_KEPT * 15 // 16,)
            ).rowcount

    def put_home(self, home: Home) -> None:
        """Record that the tables are at this place from now on."""
        self.db.execute(
            "UPDATE node SET machine = ?, path = ?, inode = ?, checksum = ?",
            (*home, row_checksum((self._node, *home))),
        )
        self.home = home

    def put_mark(self, mark: Mark) -> None:
        """Record the place where the log begins from now on."""
        self.db.execute(
            "UPDATE log SET segment = ?, record = ?, is_begun = ?, checksum = ?", (*mark, row_checksum(mark))
        )

    # Reading

    def mark(self) -> Mark:
        """The place where the log begins."""
        [mark] = whole_rows("log", self._rows("SELECT * FROM log"), made_mark)
        return mark

    def counters(self) -> dict[str, int]:
        """Return the counters, keyed by name."""
        return dict(whole_rows("counter", self._rows("SELECT * FROM counter"), made_counter))

    def own_message_ids(self) -> Iterator[int]:
        """Yield the MessageIDs of all messages that this queue manager has sent. Each message is examined."""
        found = f"SELECT message_id FROM message WHERE substr(packet, {SOURCE_BYTE}, 16) = ?"
        found += " AND typeof(message_id) = 'integer'"
        for (message_id,) in self.db.execute(found, (self._node,)):
            yield message_id

    def size_bytes(self) -> int:
        """The total size of all messages in bytes, without SQLite's overhead."""
        [(size_bytes,)] = self._rows("SELECT coalesce(sum(size_bytes), 0) FROM queue")
        assert isinstance(size_bytes, int)
        return size_bytes

    def counts(self, kind: QueueKind) -> dict[int, int]:
        """Return the number of messages in each queue of this kind."""
        return dict(self._rows("SELECT queue, message_count FROM queue WHERE kind = ?", (kind,)))

    def queues(self) -> list[QueueRow]:
        """Return all queues that were declared."""
        rows = self._rows("SELECT queue, kind, name, priority, on_hold, checksum FROM queue ORDER BY queue")
        return list(whole_rows("queue", rows, made_queue))

    def sequences(self, read: ReadSequences) -> list[IncomingRow]:
        """Return the incoming sequences that `read` asks for."""
        found = "SELECT * FROM incoming_sequence WHERE source = ? AND queue BETWEEN ? AND ? LIMIT 1024"
        return list(whole_rows("incoming_sequence", self.db.execute(found, read).fetchall(), IncomingRow))

    # Opening

    def _set_up(self, node: Guid, witness: Said | None) -> None:
        """Choose how SQLite writes the file. Make the tables in a new file; otherwise check that the file is a store,
        that it is complete, and that it belongs to this node.
        """
        [(application_id,)] = self._rows("PRAGMA application_id")
        [(layout,)] = self._rows("PRAGMA user_version")
        is_new = not (application_id or layout or self._rows("SELECT 1 FROM sqlite_master LIMIT 1"))
        if not is_new and application_id != APPLICATION_ID:
            raise StoreError(f"{self.path}: {ADVICE[sqlite3.SQLITE_NOTADB]}")
        if not is_new and layout not in (LAYOUT, BEFORE):
            raise StoreError(
                f"{self.path}: it has layout {layout}, and this mqproto knows {LAYOUT}: use the mqproto that wrote it"
            )
        if is_new and witness is not None and witness.record:
            raise StoreError(
                f"{self.path}: it is missing, and {witness_path(self.path).name} knows of {witness.record} records: put"
                " it back beside that"
            )
        try:
            self._choose_how_it_is_written()
            if is_new:
                self._make_tables(node)
            else:
                self._found_hurt = see_that_all_is_there(self.db, with_posted=False)
                if layout == BEFORE:
                    self._upgrade()
        except sqlite3.Error as error:
            if is_new and finds_no_room(error):
                raise LifeFullError(self.path) from error
            raise
        [(owner, self.home)] = whole_nodes(self._rows("SELECT * FROM node"))
        if owner != node:
            raise StoreError(
                f"{self.path}: it belongs to {guid_text(owner)}, not to {guid_text(node)}: name another file"
            )

    def _choose_how_it_is_written(self) -> None:
        for pragma in PRAGMAS:
            self.db.execute(f"PRAGMA {pragma}").close()
        if not self._files.keep_log(self.db):
            raise StoreError(f"{self.path}: its file system holds no write-ahead log: choose a local disk")

    def _make_tables(self, node: Guid) -> None:
        self.db.execute("PRAGMA synchronous = FULL").close()
        nobody = (node, *NOWHERE)
        mark = ", ".join(map(str, map(int, (*BEGINNING, row_checksum(BEGINNING)))))
        self.db.executescript(
            f"BEGIN; {SCHEMA} INSERT INTO node VALUES (x'{node.hex()}', '', '', 0, {row_checksum(nobody)});"
            f"INSERT INTO log VALUES ({mark});"
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {LAYOUT}; COMMIT;"
        )

    def _upgrade(self) -> None:
        """Add the tables that a store of the layout before lacks. That layout's programs refuse it from then on."""
        self.db.execute("PRAGMA synchronous = FULL").close()
        self.db.executescript(f"BEGIN IMMEDIATE; {ADDED} PRAGMA user_version = {LAYOUT}; COMMIT;")

    def _found_witness(self) -> Said | None:
        """Return the contents of the log's witness, or None if it is not next to the tables."""
        path = witness_path(self.path)
        with explained_file(path):
            there = path.name in self._files.names(path.parent)
            return said_by_witness(path, self._files.read(path), self._node) if there else None

    def look_at_log(self) -> None:
        """Read the salts of SQLite's current log."""
        with explained_file(self._log_path):
            header = self._files.head(self._log_path, LOG_HEADER_BYTES)
        if header != self._log_header:
            self._log_header, self.log_salts = header, found_salts(header) or self.log_salts

    def _rows(self, statement: str, values: tuple[int | str, ...] = ()) -> list[Any]:
        return self.db.execute(statement, values).fetchall()


def _as_text(data: bytes) -> str:
    """Decode text. Bytes that are not text are damaged, which the checksum will show."""
    return data.decode(errors="surrogateescape")


def _with_checksums(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*row, row_checksum(row)) for row in rows]


def messages_of(files: Files, path: Path, message_id: int) -> tuple[sqlite3.Connection, sqlite3.Cursor]:
    """Read the columns of the messages with this MessageID from the current tables. The connection is for the caller's
    own thread.

    Raises:
        UsageError: only one connection may read the tables at the moment.
    """
    db = files.connect(path)
    try:
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM log").fetchall()
        found = f"SELECT {MESSAGE_COLUMNS} FROM message WHERE message_id = ?"
        return db, db.execute(found, (message_id,))
    except BaseException as error:
        db.close()
        if isinstance(error, sqlite3.OperationalError) and primary_code(error) == sqlite3.SQLITE_BUSY:
            raise UsageError(
                "messages cannot be looked for by their identifiers just now: the node was started on a full disk, or"
                " another program has its store open: ask for the queue"
            ) from error
        raise


def write_anew(db: sqlite3.Connection) -> None:
    """Rewrite the tables' files so that they no longer contain any deleted data.

    Raises:
        sqlite3.Error: the tables cannot be rewritten now; nothing has changed.
    """
    # On the disk of the tables or another, but not in memory, where a long queue has no room.
    db.execute("PRAGMA temp_store = FILE").close()
    db.execute("VACUUM").close()
    [(is_busy, _, _)] = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if is_busy:
        raise sqlite3.OperationalError("another program reads it")

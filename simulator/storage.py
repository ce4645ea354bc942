"""A node's disk: one SQLite file, one connection, one writer.

The node commits the `Writes` of each batch in one transaction with one flush, in its own thread, and reads pages
of queues back. While a store is open, `NAME-lock` beside it is locked: a second node is refused at once, and
`sqlite3` may look on. The lock is the operating system's, so it goes with the process, however that ends.

    sqlite3 a.sqlite "select * from waiting"

Every error is a `StoreError` of one line that says what to do. Nothing here repairs or deletes a file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import groupby, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from mqproto.configuration import Settings
from mqproto.effects import (
    POSITION_BITS,
    FinalAckKept,
    IdentifierRow,
    IncomingRow,
    MessageRow,
    OutcomeRow,
    OutgoingRow,
    QueueKind,
    ReadExpired,
    ReadPage,
    StoredQueue,
    StoredState,
    Writes,
    message_key,
)
from mqproto.wire.guid import Guid, guid_text
from simulator.storeerrors import ADVICE, StoreError, explained, is_undone_after, primary_code, sound
from simulator.tables import (
    APPLICATION_ID,
    INSERT_MESSAGE,
    LAST_POSITION,
    LAYOUT,
    REPLACE_IDENTIFIER,
    SCHEMA,
    UPSERT_COUNTER,
    UPSERT_INCOMING,
    UPSERT_OUTCOME,
    UPSERT_OUTGOING,
    UPSERT_QUEUE,
    keys_of,
)

PRAGMAS: Final = (
    "page_size = 8192",
    "synchronous = FULL",
    # macOS flushes to the disk itself only if asked in so many words.
    "fullfsync = ON",
    "checkpoint_fullfsync = ON",
    # 32 MiB of log, then its pages move to their places in the file, within a commit that takes longer for it.
    "wal_autocheckpoint = 4000",
    "cache_size = -16384",
    # Some builds wipe what is deleted, with zeros; that costs a tenth, and the log has the bytes anyway.
    "secure_delete = OFF",
)
BUSY_S: Final = 1.0
"""How long another program's write to the file may hold us up."""


class Store:
    """The store of one queue manager.

    Args:
        path: the file; it is made if it is not there, its folder is not.
        node: the queue manager's GUID. A file that belongs to another is refused.
        remove_duplicate_size: how many identifiers of messages that came are kept.

    Raises:
        StoreError: the file cannot be had, or is not this node's.
    """

    def __init__(
        self, path: Path, node: Guid, remove_duplicate_size: int = Settings().remove_duplicate_size
    ) -> None:
        self.path = path
        self._remove_duplicate_size = remove_duplicate_size
        self._untrimmed = 0
        self._usable = True
        self.size_bytes = 0
        """What all messages take, without what SQLite needs for them."""
        with explained(self.path), ExitStack() as undo:
            self._lock = undo.enter_context(closing(_locked(path)))
            self._db = undo.enter_context(
                closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None))
            )
            self._set_up(node)
            [(self.size_bytes,)] = self._rows("SELECT coalesce(sum(size_bytes), 0) FROM queue")
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the file free. What was committed is on disk already."""
        self._db.close()
        self._lock.close()

    def load(self) -> StoredState:
        """All that the node must know to start, oldest first; of the messages only the held ones.

        Raises:
            StoreError: the file cannot be read, or what is in it does not fit together.
        """
        with explained(self.path), sound(self.path):
            queues = [self._stored_queue(*row) for row in self._rows("SELECT * FROM queue ORDER BY queue")]
            resident = [
                row
                for queue in queues
                if queue.kind in (QueueKind.HELD, QueueKind.ORDER)
                for row in self._rows(
                    "SELECT key, packet FROM message WHERE key BETWEEN ? AND ? ORDER BY key",
                    keys_of(queue.queue),
                )
            ]
            newest_first = self._rows(
                "SELECT source, ordinal, time_stamp_s FROM message_id ORDER BY arrival DESC LIMIT ?",
                (self._remove_duplicate_size,),
            )
            return StoredState(
                queues=queues,
                resident=resident,
                gaps=[
                    gap for queue in queues if queue.kind is QueueKind.SEQUENCE for gap in self._gaps(queue)
                ],
                outgoing=[OutgoingRow(*row) for row in self._rows("SELECT * FROM outgoing_sequence")],
                incoming=[IncomingRow(*row) for row in self._rows("SELECT * FROM incoming_sequence")],
                identifiers=[IdentifierRow(*row) for row in reversed(newest_first)],
                counters=dict(self._rows("SELECT name, value FROM counter")),
                outcomes=[
                    OutcomeRow(invoker, identifier, outcome, bool(lasting), performed_s)
                    for invoker, identifier, outcome, lasting, performed_s in self._rows(
                        "SELECT * FROM outcome ORDER BY performed_s"
                    )
                ],
            )

    def read(self, page: ReadPage | ReadExpired) -> list[tuple[int, bytes, bool]]:
        """The messages that are asked for, as (position, packet, final_ack), or with their key for those that expire.

        Raises:
            StoreError: the file cannot be read.
        """
        if isinstance(page, ReadExpired):
            with explained(self.path):
                return [
                    (key, packet, bool(final_ack))
                    for key, packet, final_ack in self._rows(
                        "SELECT key, packet, final_ack FROM message WHERE expires_s IS NOT NULL"
                        " ORDER BY expires_s, key LIMIT ?",
                        (page.limit_messages,),
                    )
                ]
        rows: list[tuple[int, bytes, bool]] = []
        size_bytes = 0
        _, last = keys_of(page.queue)
        with explained(self.path):
            found = self._db.execute(
                "SELECT key, packet, final_ack FROM message WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
                (message_key(page.queue, page.after) + 1, last, max(1, page.limit_messages)),
            )
            for key, packet, final_ack in found:
                size_bytes += len(packet)
                if rows and size_bytes > page.limit_bytes:
                    break
                rows.append((key & LAST_POSITION, packet, bool(final_ack)))
            found.close()
        return rows

    def unread(self) -> dict[str, int]:
        """By the name of a sequence, how many of its messages wait for their FinalAck.

        Raises:
            StoreError: the file cannot be read.
        """
        with explained(self.path):
            found = "SELECT name, message_count FROM queue WHERE kind = 'final' AND message_count > 0"
            return dict(self._db.execute(found).fetchall())

    def find(self, message_id: int) -> list[tuple[int, bytes]]:
        """Key and packet of the messages with this MessageID.

        It looks at all that was committed, which may take seconds: call it in a thread of its own.

        Raises:
            StoreError: the file cannot be read.
        """
        with explained(self.path), closing(sqlite3.connect(self.path, timeout=BUSY_S)) as db:
            found = db.execute(
                "SELECT key, packet FROM message WHERE message_id = ? ORDER BY key", (message_id,)
            )
            return found.fetchall()

    def commit(self, writes: Writes) -> None:
        """Put all of it on disk, in one transaction with one flush.

        Raises:
            StoreError: nothing of it is there. The store goes on after a full or busy disk; after anything worse
                it refuses each further commit, and who opens it anew finds this batch wholly there or not at all.
        """
        if not self._usable:
            raise StoreError(
                f"{self.path}: it failed before: start the node again; nothing acknowledged is lost"
            )
        with explained(self.path):
            size_bytes = self.size_bytes
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._apply(writes)
                self._db.execute("COMMIT")
            except BaseException as error:
                self.size_bytes = size_bytes
                self._roll_back(error)
                raise

    def _roll_back(self, error: BaseException) -> None:
        self._usable = False  # until the rollback has not failed as well
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._usable = is_undone_after(error)

    def _apply(self, writes: Writes) -> None:
        """Carry out the fields of `writes` in their order, and keep each queue's count and size in step."""
        run_many = self._db.executemany
        tally = _Tally()
        if writes.queues:
            run_many(UPSERT_QUEUE, writes.queues)
        if writes.messages:
            run_many(INSERT_MESSAGE, writes.messages)
            tally.add_messages(writes.messages)
        for final in writes.finals:
            self._keep_for_final_ack(final, tally)
        for old, new, expires_s in writes.moves:
            self._move(old, new, expires_s, tally)
        for first, last in joined(writes.removals):
            self._remove(first, last, tally)
        if writes.lasting:
            run_many("UPDATE message SET expires_s = NULL WHERE key = ?", [(key,) for key in writes.lasting])
        self._write_tally(tally)
        if writes.outgoing:
            run_many(UPSERT_OUTGOING, writes.outgoing.values())
        if writes.incoming:
            run_many(UPSERT_INCOMING, writes.incoming.values())
        if writes.identifiers:
            run_many(REPLACE_IDENTIFIER, writes.identifiers)
            self._trim_identifiers(len(writes.identifiers))
        if writes.identifiers_before_s is not None:
            self._db.execute("DELETE FROM message_id WHERE time_stamp_s < ?", (writes.identifiers_before_s,))
        if writes.counters:
            run_many(UPSERT_COUNTER, writes.counters.items())
        if writes.forgotten_invokers:
            run_many("DELETE FROM outcome WHERE invoker = ?", [(each,) for each in writes.forgotten_invokers])
        if writes.outcomes:
            gone = [key for key, row in writes.outcomes.items() if row is None]
            run_many("DELETE FROM outcome WHERE invoker = ? AND identifier = ?", gone)
            run_many(UPSERT_OUTCOME, [row for row in writes.outcomes.values() if row is not None])

    def _keep_for_final_ack(self, final: FinalAckKept, tally: _Tally) -> None:
        chosen = "key BETWEEN ? AND ? AND final_ack"
        keys = (final.first, final.last)
        [(count, size_bytes)] = self._rows(
            f"SELECT count(*), sum(length(packet)) FROM message WHERE {chosen}", keys
        )
        if count:
            kept = message_key(final.final_queue, 0)
            self._db.execute(
                f"UPDATE message SET key = ? | message_id, expires_s = NULL WHERE {chosen}", (kept, *keys)
            )
            tally.add(final.first, -count, -size_bytes, -count)
            tally.add(kept, count, size_bytes, count)

    def _move(self, old: int, new: int, expires_s: int | None, tally: _Tally) -> None:
        found = self._rows("SELECT length(packet), final_ack FROM message WHERE key = ?", (old,))
        assert found, f"message {old:#x} is to move to {new:#x}, but is not in the store"
        [(size_bytes, final_ack)] = found
        self._db.execute("UPDATE message SET key = ?, expires_s = ? WHERE key = ?", (new, expires_s, old))
        tally.add(old, -1, -size_bytes, -final_ack)
        tally.add(new, 1, size_bytes, final_ack)

    def _remove(self, first: int, last: int, tally: _Tally) -> None:
        assert first >> POSITION_BITS == last >> POSITION_BITS, (
            f"{first:#x} to {last:#x} is not within one queue"
        )
        chosen = "key BETWEEN ? AND ?"
        [(count, size_bytes, final_ack_count)] = self._rows(
            f"SELECT count(*), sum(length(packet)), sum(final_ack) FROM message WHERE {chosen}", (first, last)
        )
        if count:
            self._db.execute(f"DELETE FROM message WHERE {chosen}", (first, last))
            tally.add(first, -count, -size_bytes, -final_ack_count)

    def _write_tally(self, tally: _Tally) -> None:
        for queue, changes in tally.items():
            self.size_bytes += changes[1]
            done = self._db.execute(
                "UPDATE queue SET message_count = message_count + ?, size_bytes = size_bytes + ?,"
                " final_ack_count = final_ack_count + ? WHERE queue = ?",
                (*changes, queue),
            )
            assert done.rowcount == 1, f"queue {queue} has messages, but was never declared"

    def _trim_identifiers(self, added: int) -> None:
        """Forget all but the newest identifiers, once a quarter too many has come, for counting them takes time."""
        self._untrimmed += added
        if self._untrimmed > self._remove_duplicate_size // 4:
            self._untrimmed = 0
            self._db.execute(
                "DELETE FROM message_id WHERE arrival <="
                " (SELECT arrival FROM message_id ORDER BY arrival DESC LIMIT 1 OFFSET ?)",
                (self._remove_duplicate_size,),
            )

    def _stored_queue(
        self,
        queue: int,
        kind: str,
        name: str,
        priority: int,
        on_hold: int,
        message_count: int,
        size_bytes: int,
        final_ack_count: int,
    ) -> StoredQueue:
        chosen = "SELECT key FROM message WHERE key BETWEEN ? AND ? ORDER BY key"
        [(first, last)] = self._rows(
            f"SELECT ({chosen} LIMIT 1), ({chosen} DESC LIMIT 1)", keys_of(queue) * 2
        )
        assert (first is None) == (message_count == 0), (
            f"queue {queue} counts {message_count} messages, the first being {first}"
        )
        first, last = ((first or 0) & LAST_POSITION, (last or 0) & LAST_POSITION)
        return StoredQueue(
            queue,
            QueueKind(kind),
            name,
            priority,
            bool(on_hold),
            message_count,
            size_bytes,
            first,
            last,
            final_ack_count,
        )

    def _gaps(self, queue: StoredQueue) -> Iterator[tuple[int, int]]:
        """The ranges of keys between a queue's first and last that have no message; mostly there are none."""
        if queue.message_count < queue.last - queue.first + 1:
            keys = self._db.execute(
                "SELECT key FROM message WHERE key BETWEEN ? AND ? ORDER BY key", keys_of(queue.queue)
            )
            for (before,), (after,) in pairwise(keys):
                if before + 1 < after:
                    yield before + 1, after - 1

    def _set_up(self, node: Guid) -> None:
        """Make the tables in a new file, or see that the file is this node's; then choose how it is written."""
        [(application_id,)] = self._rows("PRAGMA application_id")
        [(layout,)] = self._rows("PRAGMA user_version")
        is_new = not (application_id or layout or self._rows("SELECT 1 FROM sqlite_master LIMIT 1"))
        if not is_new and application_id != APPLICATION_ID:
            raise StoreError(f"{self.path}: {ADVICE[sqlite3.SQLITE_NOTADB]}")
        if not is_new and layout != LAYOUT:
            raise StoreError(
                f"{self.path}: it has layout {layout}, and this mqproto knows {LAYOUT}: use the mqproto that wrote it"
            )
        for pragma in PRAGMAS:
            self._db.execute(f"PRAGMA {pragma}").close()
        [(mode,)] = self._rows("PRAGMA journal_mode = WAL")
        if mode != "wal":
            raise StoreError(f"{self.path}: its file system holds no write-ahead log: choose a local disk")
        if is_new:
            self._db.executescript(
                f"BEGIN; {SCHEMA} INSERT INTO node VALUES (x'{node.hex()}');"
                f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {LAYOUT}; COMMIT;"
            )
        [(owner,)] = self._rows("SELECT guid FROM node")
        if owner != node:
            raise StoreError(
                f"{self.path}: it belongs to {guid_text(owner)}, not to {guid_text(node)}: name another file"
            )

    def _rows(self, statement: str, values: tuple[int, ...] = ()) -> list[Any]:
        return self._db.execute(statement, values).fetchall()


class _Tally(dict[int, list[int]]):
    """By how much a transaction changes each queue: its count, size and count of final acknowledgments."""

    def add_messages(self, messages: list[MessageRow]) -> None:
        """What comes in; most of it, at one node, goes to one queue."""
        for queue, rows in groupby(messages, lambda row: row[0] >> POSITION_BITS):
            sizes, finals = zip(
                *((len(packet), final_ack) for _, packet, _, final_ack, _ in rows), strict=True
            )
            self.add(message_key(queue, 0), len(sizes), sum(sizes), sum(finals))

    def add(self, key: int, count: int, size_bytes: int, final_ack_count: int) -> None:
        changes = self.setdefault(key >> POSITION_BITS, [0, 0, 0])
        changes[0] += count
        changes[1] += size_bytes
        changes[2] += final_ack_count


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same keys in as few ranges as can be, none of them over two queues."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1 and first >> POSITION_BITS == result[-1][1] >> POSITION_BITS:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result


def _locked(path: Path) -> sqlite3.Connection:
    """Hold the lock of a store until the connection is closed; the file beside it stays empty.

    Raises:
        StoreError: another store is open on the file, here or in another process.
    """
    lock = sqlite3.connect(f"{path.resolve()}-lock", timeout=0, isolation_level=None)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        lock.close()
        if primary_code(error) == sqlite3.SQLITE_BUSY:
            raise StoreError(f"{path}: another node has it open: stop that one first") from error
        raise
    return lock

"""Stores of layout 4: they had no checksums, and their log no witness."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from mqproto.simulator.base.storeerrors import DamageError
from mqproto.simulator.storage.checksums import message_checksum, row_checksum
from mqproto.simulator.storage.files import Files
from mqproto.simulator.storage.records import decoded
from mqproto.simulator.storage.segments import (
    MAGIC,
    NUMBER,
    FoundSegment,
    SegmentName,
    another_nodes,
    damaged,
    explained_file,
    segments_of,
)
from mqproto.simulator.storage.tables import LAYOUT, SCHEMA
from mqproto.simulator.storage.witnesses.sqlitelog import Salts
from mqproto.simulator.storage.witnesses.witness import Said, StoreWitness, witness_path
from mqproto.turn.effects import Writes
from mqproto.wire.guid import Guid

EARLIER_LAYOUT: Final = 4
EARLIER_VERSION: Final = 1
"""The version of the segments of a log."""
COLUMNS: Final = {
    "node": "guid",
    "log": "segment, record, is_begun",
    "queue": "queue, kind, name, priority, on_hold, message_count, size_bytes, final_ack_count",
    "message": "key, packet, message_id, final_ack, expires_s",
    "outgoing_sequence": (
        "queue, manager, time_stamp, ordinal, base, next_number, last_ack, saved_through, sent_ceiling"
    ),
    "incoming_sequence": "source, queue, time_stamp, ordinal, number, reject_count, last_access_s, reply_host",
    "message_id": "arrival, source, ordinal, time_stamp_s",
    "counter": "name, value",
    "outcome": "invoker, identifier, outcome, lasting, performed_s",
}
"""The columns of each table, in their order."""
ADDED: Final = {"outgoing_sequence": "renumbered_through"}
"""A further column of a table, which is 0."""
VIEWS: Final = ("waiting", "messages", "outgoing", "incoming")
BOOLEANS: Final = ("is_begun", "on_hold", "lasting")
"""Columns that count for a checksum as truth values, and not as numbers."""

HEADER: Final = Struct("<8sI16sQQ8sI")
"""Magic, version, the node's GUID, the segment's number, that of its first record, the salt; the checksum of these."""
HEAD: Final = Struct("<8sII")
"""The head of a record: the salt, how many bytes follow, their checksum."""


def upgrade(files: Files, store: Path, db: sqlite3.Connection, salts: Salts) -> None:
    """Give the tables their checksums, in one transaction, and the log its witness before that.

    Args:
        salts: the salts of SQLite's log.

    Raises:
        DamageError: they are not tables of layout 4.
        StoreError: the disk fails.
        sqlite3.Error: the tables are as they were.
    """
    [(trouble,), *_] = db.execute("PRAGMA integrity_check(1)").fetchall()
    if trouble != "ok":
        raise DamageError(" ".join(str(trouble).split()))
    for table, columns in COLUMNS.items():
        found = ", ".join(name for _, name, *_ in db.execute(f"PRAGMA table_info({table})"))
        if found != columns:
            raise DamageError(f"table {table} is not that of layout {EARLIER_LAYOUT}")
    [(node,)] = db.execute("SELECT guid FROM node")
    [(segment, record, is_begun)] = db.execute("SELECT segment, record, is_begun FROM log")
    with explained_file(store.parent):
        if witness_path(store).name not in files.names(store.parent):
            StoreWitness.create(files, store, Guid(node), Said(record - 1, salts)).close()
        for name in segments_of(files, store)[-1:]:
            # Its process died when it was about to be made: it has no header and no record.
            if len(files.read(name.path)) <= HEADER.size and not (name.number == segment and is_begun):
                files.remove(name.path)
    db.create_function("row_checksum", -1, _row_checksum)
    db.create_function("message_checksum", -1, _message_checksum)
    old = [f"DROP VIEW {view};" for view in VIEWS]
    old += [f"ALTER TABLE {table} RENAME TO earlier_{table};" for table in COLUMNS]
    new = [_copied(table, columns) for table, columns in COLUMNS.items()]
    db.execute("PRAGMA synchronous = FULL").close()
    try:
        db.executescript(
            f"BEGIN IMMEDIATE; {''.join(old)} DROP INDEX message_expiry; {SCHEMA} {''.join(new)}"
            "UPDATE queue SET message_checksums = (SELECT coalesce(sum(checksum), 0) FROM message"
            " WHERE key BETWEEN queue << 40 AND (queue + 1 << 40) - 1);"
            f"PRAGMA user_version = {LAYOUT}; COMMIT;"
        )
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _copied(table: str, columns: str) -> str:
    """SQL that fills a table from its earlier form."""
    if table == "node":
        return (
            "INSERT INTO node SELECT guid, '', '', 0, row_checksum('0, 0, 0, 0', guid, '', '', 0) FROM earlier_node;"
            " DROP TABLE earlier_node;"
        )
    if table == "message":
        checksum = f"message_checksum({columns})"
    else:
        covered = [
            name
            for name in columns.split(", ")
            if not name.endswith(("_count", "_bytes")) or table != "queue"
        ]
        covered = [f"{name} <> 0" if name in BOOLEANS else name for name in covered if name != "arrival"]
        covered += ["0"] * (table in ADDED)
        truths = ", ".join(str(int(name.endswith(" <> 0"))) for name in covered)
        checksum = f"row_checksum('{truths}', {', '.join(covered)})"
    return (
        f"INSERT INTO {table} ({columns}, checksum) SELECT {columns}, {checksum} FROM earlier_{table};"
        f" DROP TABLE earlier_{table};"
    )


def _row_checksum(truths: str, *columns: object) -> int:
    pairs = zip(truths.split(", "), columns, strict=True)
    return row_checksum(bool(column) if truth == "1" else column for truth, column in pairs)


def _message_checksum(key: int, packet: bytes, message_id: int, final_ack: int, expires_s: int | None) -> int:
    return message_checksum(key, packet, message_id, bool(final_ack), expires_s)


class EarlierSegment(FoundSegment):
    """A segment of a log of layout 4, read by its own rules."""

    def _read_header(self, name: SegmentName, node: Guid) -> None:
        fields = HEADER.unpack(self._data[: HEADER.size].ljust(HEADER.size, b"\0"))
        magic, version, owner, number, self.first_record, self._salt, checksum = fields
        expected = zlib.crc32(HEADER.pack(*fields[:-1], 0))
        if (magic, version, checksum) != (MAGIC, EARLIER_VERSION, expected):
            raise damaged(self.path, "its header does not fit its checksum")
        if owner != node:
            raise another_nodes(self.path, Guid(owner), node)
        if number != name.number:
            raise damaged(self.path, f"it is segment {number} under another's name")

    def records(self, *, is_last: bool, acknowledged: int) -> Iterator[Writes]:
        """Yield its transactions, in order; in the last segment, without one that was half written.

        Raises:
            StoreError: it is damaged.
        """
        data, number, at = memoryview(self._data), self.first_record, HEADER.size
        while at < len(data):
            body = self._body(data, at)
            if body is None:
                following = self._data.find(self._salt, at + 1)
                while following >= 0 and self._body(data, following) is None:
                    following = self._data.find(self._salt, following + 1)
                if not is_last or following >= 0:
                    raise damaged(self.path, f"record {number} at byte {at} is broken")
                self.torn = f"record {number} in {self.path.name} at byte {at:,} is half written"
                return
            [stands] = NUMBER.unpack_from(body)
            if stands != number:
                raise damaged(self.path, f"record {stands} is in the place of {number}")
            try:
                writes, _ = decoded(body[NUMBER.size :], None)
            except ValueError as error:
                raise damaged(self.path, f"record {number} at byte {at}: {error}") from error
            yield writes
            number += 1
            at += HEAD.size + len(body)

    def _body(self, data: memoryview, at: int) -> memoryview | None:
        """The bytes behind the head of a record; None if there is no record, or not all of it."""
        if at + HEAD.size + NUMBER.size > len(data):
            return None
        salt, size, checksum = HEAD.unpack_from(data, at)
        body = data[at + HEAD.size : at + HEAD.size + size]
        if salt != self._salt or not NUMBER.size <= size == len(body) or zlib.crc32(body) != checksum:
            return None
        return body


def found_segment(files: Files, name: SegmentName, node: Guid) -> FoundSegment:
    """Return a segment that was there when the store was opened.

    Raises:
        StoreError: it cannot be read, is damaged, or is another node's.
    """
    with explained_file(name.path):
        data = files.read(name.path)
    is_earlier = data[len(MAGIC) : len(MAGIC) + 4] == EARLIER_VERSION.to_bytes(4, "little")
    return (EarlierSegment if is_earlier else FoundSegment)(name, node, data)

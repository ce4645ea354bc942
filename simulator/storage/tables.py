"""The tables of a node's store, and the statements that fill them.

The high bits of a message's key are the queue's number. So the messages of a queue are one range of the table, and are
removed together. The queue's row has their counts and sizes, so no messages are read when a file is opened. The views,
which are for people, show names instead of numbers, and GUIDs as text. `waiting` lists the waiting messages once the
node has stopped. While the node runs, new messages are only in its log.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Generator, Iterable
from contextlib import closing
from functools import cache
from itertools import groupby
from typing import Any, Final

from mqproto.simulator.base.storeerrors import DamageError
from mqproto.simulator.storage.checksums import (
    MESSAGE_COLUMNS,
    SET_ASIDE,
    message_as_read,
    message_checksum,
    message_columns,
    packets_as_read,
)
from mqproto.simulator.storage.posted import POSTED_SCHEMA, see_that_names_fit
from mqproto.simulator.storage.recent import Size, runs
from mqproto.turn.effects import (
    LAST_POSITION,
    POSITION_BITS,
    HurtPacket,
    IncomingRow,
    MessageRow,
    OutcomeRow,
    OutgoingRow,
    QueueRow,
    message_key,
)

APPLICATION_ID: Final = int.from_bytes(b"mqpr")
LAYOUT: Final = 7
"""The version number of this layout, which is the file's user_version.

It grows with each change of SCHEMA.
"""
BEFORE: Final = 6
"""The layout before, which had no posted messages. A store that has it gets the new tables when its node starts."""


def _guid(column: str) -> str:
    """Return SQL for the usual text of a GUID, whose first three groups are little-endian.  [MS-DTYP] 2.3.4.2"""
    pairs = ((4, 3, 2, 1), (6, 5), (8, 7), (9, 10), (11, 12, 13, 14, 15, 16))
    groups = (" || ".join(f"substr(hex({column}), {2 * pair - 1}, 2)" for pair in group) for group in pairs)
    return " || '-' || ".join(groups)


COUNTED: Final = ("queue", "outgoing_sequence", "incoming_sequence", "message_id", "counter", "outcome")
"""The tables that have a row in `total`, apart from `posted`. Messages are counted in the rows of their queues."""
POSTED: Final = "posted"
"""The table that has a row in `total` as well, and is not read when a store is opened."""


def _counting(table: str) -> str:
    """Return SQL that updates a table's row in `total` whenever the table changes."""

    def trigger(event: str, count: str, added: str) -> str:
        return (
            f"CREATE TRIGGER {table}_{event.lower()} AFTER {event} ON {table} BEGIN UPDATE total"
            f" SET row_count = row_count + {count}, checksums = checksums + {added} WHERE name = '{table}'; END;\n"
        )

    return (
        trigger("INSERT", "1", "new.checksum")
        + trigger("DELETE", "-1", "-old.checksum")
        + trigger("UPDATE", "0", "new.checksum - old.checksum")
        + f"INSERT INTO total VALUES ('{table}', 0, 0);\n"
    )


SCHEMA_BEFORE: Final = f"""
-- Whose it is, and where it lives: on which machine, under which path, and as which file.
CREATE TABLE node (
    guid BLOB PRIMARY KEY, machine TEXT NOT NULL, path TEXT NOT NULL, inode INTEGER NOT NULL, checksum INTEGER NOT NULL
) WITHOUT ROWID;
-- The first segment of the log that is not here yet, and the number of its first record; whether it was begun.
CREATE TABLE log (
    segment INTEGER NOT NULL, record INTEGER NOT NULL, is_begun INTEGER NOT NULL, checksum INTEGER NOT NULL
);
-- How many rows a table has, and the sum of their checksums: what is lost as a whole is missed.
CREATE TABLE total (name TEXT PRIMARY KEY, row_count INTEGER NOT NULL, checksums INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE queue (
    queue INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL,
    priority INTEGER NOT NULL, on_hold INTEGER NOT NULL,
    message_count INTEGER NOT NULL DEFAULT 0,
    size_bytes INTEGER NOT NULL DEFAULT 0,
    final_ack_count INTEGER NOT NULL DEFAULT 0,
    message_checksums INTEGER NOT NULL DEFAULT 0, -- their sum
    checksum INTEGER NOT NULL -- of what was declared: the counts are compared with the messages
);
-- To one destination several sequences may lead, which wait for each other.
CREATE UNIQUE INDEX queue_name ON queue (kind, name, priority) WHERE kind <> 'sequence';
CREATE TABLE message (
    key INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, message_id INTEGER NOT NULL, final_ack INTEGER NOT NULL,
    expires_s INTEGER, packet BLOB NOT NULL -- last, because a long one stands in pages of its own
);
CREATE INDEX message_expiry ON message (expires_s) WHERE expires_s IS NOT NULL;
CREATE TABLE outgoing_sequence (
    queue INTEGER PRIMARY KEY, manager BLOB NOT NULL, time_stamp INTEGER NOT NULL, ordinal INTEGER NOT NULL,
    base INTEGER NOT NULL, next_number INTEGER NOT NULL, last_ack INTEGER NOT NULL, saved_through INTEGER NOT NULL,
    sent_ceiling INTEGER NOT NULL, renumbered_through INTEGER NOT NULL DEFAULT 0, checksum INTEGER NOT NULL
);
CREATE TABLE incoming_sequence (
    source BLOB NOT NULL, queue INTEGER NOT NULL, time_stamp INTEGER NOT NULL, ordinal INTEGER NOT NULL,
    number INTEGER NOT NULL, reject_count INTEGER NOT NULL, last_access_s INTEGER NOT NULL, reply_host TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (source, queue)
) WITHOUT ROWID;
CREATE TABLE message_id (
    arrival INTEGER PRIMARY KEY, source BLOB NOT NULL, ordinal INTEGER NOT NULL, time_stamp_s INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (source, ordinal)
);
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE outcome (
    invoker BLOB NOT NULL, identifier INTEGER NOT NULL, outcome BLOB NOT NULL, lasting INTEGER NOT NULL,
    performed_s INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (invoker, identifier)
) WITHOUT ROWID;

{"".join(map(_counting, COUNTED))}
CREATE VIEW waiting AS
    SELECT queue, kind, name, priority, message_count AS messages, size_bytes AS bytes
    FROM queue WHERE message_count > 0;
CREATE VIEW messages AS
    SELECT queue.kind, queue.name, key & {LAST_POSITION} AS position, message_id, length(packet) AS bytes, packet
    FROM queue JOIN message ON key BETWEEN queue << {POSITION_BITS} AND queue << {POSITION_BITS} | {LAST_POSITION};
CREATE VIEW outgoing AS
    SELECT name AS destination, {_guid("manager")} AS queue_manager, time_stamp, ordinal,
        next_number, last_ack
    FROM outgoing_sequence JOIN queue USING (queue);
CREATE VIEW incoming AS
    SELECT {_guid("source")} AS source, name AS queue, time_stamp, ordinal, number, reject_count,
        datetime(last_access_s, 'unixepoch') AS last_access
    FROM incoming_sequence JOIN queue USING (queue);
"""
ADDED: Final = POSTED_SCHEMA + _counting(POSTED)
SCHEMA: Final = SCHEMA_BEFORE + ADDED
"""What was added comes last, so that everything before it is on the same pages of a new file (care/header.py)."""


def _upsert(table: str, fields: tuple[str, ...], key: str) -> str:
    """Return SQL that inserts rows with their checksums. If a row exists, its named columns are replaced."""
    columns = (*fields, "checksum")
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        f" ON CONFLICT ({key}) DO UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in columns)}"
    )


UPSERT_QUEUE: Final = _upsert("queue", QueueRow._fields, "queue")
GIVE_UP_NAME: Final = "UPDATE queue SET name = char(1) || queue WHERE queue = ? AND name <> ?"
"""The statement that gives a queue a temporary name until it gets its new one."""
UPSERT_OUTGOING: Final = _upsert("outgoing_sequence", OutgoingRow._fields, "queue")
UPSERT_INCOMING: Final = _upsert("incoming_sequence", IncomingRow._fields, "source, queue")
SEQUENCES_KEPT: Final = 1_000_000
"""The maximum number of incoming sequences.

When there are many, nearly all are from strangers, and are not in memory.
"""
FORGET_SEQUENCES: Final = """
DELETE FROM incoming_sequence WHERE (source, queue) IN (SELECT source, queue FROM (
    SELECT *, row_number() OVER (PARTITION BY reply_host ORDER BY last_access_s DESC) AS place
    FROM incoming_sequence WHERE queue < 0
) ORDER BY place DESC, last_access_s LIMIT ?)"""
"""The statement that deletes a given number of strangers' sequences, none of which is in memory.

It deletes the oldest ones first, from the hosts that have the most.
"""
UPSERT_COUNTER: Final = _upsert("counter", ("name", "value"), "name")
UPSERT_OUTCOME: Final = _upsert("outcome", OutcomeRow._fields, "invoker, identifier")
INSERT_MESSAGE: Final = f"INSERT INTO message ({MESSAGE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
QUARANTINE: Final = (
    "CREATE TABLE IF NOT EXISTS quarantine (key, packet, message_id, final_ack, expires_s, checksum)"
)
"""The statement that makes the table for damaged messages.

Their rows are kept unchanged, whatever they contain.
"""
INTO_QUARANTINE: Final = (
    f"INSERT INTO quarantine SELECT {MESSAGE_COLUMNS} FROM message WHERE key = ?"
    f" AND checksum IS NOT {SET_ASIDE}"
)
MARK_MESSAGE: Final = (
    "UPDATE message SET packet = CAST(packet AS BLOB), message_id = CAST(message_id AS INTEGER), final_ack = 0,"
    f" expires_s = NULL, checksum = {SET_ASIDE} WHERE key = ?"
)
RECOUNT_QUEUE: Final = (
    "UPDATE queue SET (size_bytes, final_ack_count, message_checksums) = (SELECT coalesce(sum(length(packet)), 0),"
    " coalesce(sum(final_ack), 0), coalesce(sum(checksum), 0) FROM message WHERE key BETWEEN ? AND ?) WHERE queue = ?"
)
REPLACE_IDENTIFIER: Final = (
    "REPLACE INTO message_id (source, ordinal, time_stamp_s, checksum) VALUES (?, ?, ?, ?)"
)
"""The statement that stores an identifier, whether it is new or already known.

A known identifier gets a new row with the highest `arrival`, because it has just arrived again.
"""


def keys_of(queue: int) -> tuple[int, int]:
    """Return the first and the last possible key in a queue."""
    return message_key(queue, 0), message_key(queue, LAST_POSITION)


MESSAGES_FOUND: Final = (
    "count(*), coalesce(sum(length(packet)), 0), coalesce(sum(final_ack), 0), coalesce(sum(checksum), 0)"
)
MESSAGES_COUNTED: Final = "message_count, size_bytes, final_ack_count, message_checksums"


class MessageTable:
    """The messages of all queues. Their counts and sizes are in the rows of the table `queue`.

    last_keys: for each queue, an upper limit for the keys of its messages here; -1 if it is empty.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._come_since: dict[int, int] = {}
        """The number of messages added to each queue since it was last read to its end and found complete."""
        self.last_keys = {
            queue: self._last_key(queue) for (queue,) in db.execute("SELECT queue FROM queue").fetchall()
        }

    # Writing

    def those_there(self, keys: Iterable[int]) -> list[int]:
        """Return those of these keys whose messages are here, in order."""
        return [
            key
            for first, last in runs(sorted(key for key in keys if self.may_have(key)))
            for key in self.sizes(first, last)
        ]

    def insert(self, rows: list[MessageRow]) -> None:
        """Add messages that are not here yet."""
        if not rows:
            return
        full = message_columns(rows)
        self._db.executemany(INSERT_MESSAGE, full)
        for queue, added in groupby(full, lambda row: row[0] >> POSITION_BITS):
            keys, packets, _, final_acks, _, checksums = zip(*added, strict=True)
            self._count(queue, len(keys), sum(map(len, packets)), sum(final_acks), sum(checksums))
            self.last_keys[queue] = max(self.last_keys.get(queue, 0), *keys)
            if queue in self._come_since:
                self._come_since[queue] += len(keys)

    def remove(self, sizes: dict[int, Size]) -> None:
        """Remove messages that are here.

        Args:
            sizes: the messages' sizes, keyed by the messages' keys.

        Raises:
            DamageError: not all of them are here.
        """
        if not sizes:
            return
        keys = sorted(sizes)
        removed = self._db.executemany("DELETE FROM message WHERE key BETWEEN ? AND ?", runs(keys)).rowcount
        if removed != len(keys):
            raise DamageError(f"of {len(keys)} messages that were there {removed} can be removed")
        for queue, gone in groupby(keys, lambda key: key >> POSITION_BITS):
            sizes_bytes, final_acks, checksums = zip(*map(sizes.__getitem__, gone), strict=True)
            self._count(queue, -len(sizes_bytes), -sum(sizes_bytes), -sum(final_acks), -sum(checksums))

    def make_lasting(self, keys: Iterable[int]) -> None:
        """Make these messages never expire; messages that are not here are skipped."""
        found = f"SELECT {MESSAGE_COLUMNS} FROM message WHERE key = ? AND expires_s IS NOT NULL"
        for key in keys:
            for columns in self._db.execute(found, (key,)).fetchall():
                row, before = message_as_read(*columns)._replace(expires_s=None), columns[-1]
                if isinstance(row.packet, HurtPacket):
                    continue  # Its reader will see to it.
                after = message_checksum(*row[:5])
                self._db.execute(
                    "UPDATE message SET expires_s = NULL, checksum = ? WHERE key = ?", (after, key)
                )
                self._count(key >> POSITION_BITS, 0, 0, 0, after - before)

    def mark(self, keys: list[int]) -> None:
        """Copy these damaged messages unchanged into the quarantine, and mark them here as damaged."""
        if keys:
            self._db.execute(QUARANTINE).close()
            chosen = [(key,) for key in keys]
            self._db.executemany(INTO_QUARANTINE, chosen)
            self._db.executemany(MARK_MESSAGE, chosen)
            self.recount(keys)

    def recount(self, keys: Iterable[int]) -> None:
        """Compute again the totals of the queues that hold these messages.

        Before this, only the message counts of these queues are right.
        """
        for queue in {key >> POSITION_BITS for key in keys}:
            self._db.execute(RECOUNT_QUEUE, (*keys_of(queue), queue)).close()

    def _count(self, queue: int, count: int, size_bytes: int, final_ack_count: int, checksums: int) -> None:
        self._db.execute(
            "UPDATE queue SET message_count = message_count + ?, size_bytes = size_bytes + ?,"
            " final_ack_count = final_ack_count + ?, message_checksums = message_checksums + ? WHERE queue = ?",
            (count, size_bytes, final_ack_count, checksums, queue),
        )

    # Reading

    def may_have(self, first: int) -> bool:
        """Return whether a message with this key, or with a higher key of the same queue, may be here.

        This does not read any file.
        """
        return first <= self.last_keys.get(first >> POSITION_BITS, -1)

    def sizes(self, first: int, last: int) -> dict[int, Size]:
        """Return the sizes of the messages with keys from first to last, without their packets."""
        found = "SELECT key, length(packet), final_ack, checksum FROM message WHERE key BETWEEN ? AND ?"
        return {row[0]: row[1:] for row in self._db.execute(found, (first, last))}

    def hurt_among(self, keys: Iterable[int]) -> list[int]:
        """Return those of these keys whose messages are damaged, in order."""
        ranges = runs(sorted(keys))
        rows = [row for first, last in ranges for row in self.between(first, last)]
        return [row.key for row in rows if isinstance(row.packet, HurtPacket)]

    def between(self, first: int, last: int, *, finals: bool = False) -> list[MessageRow]:
        """Return the messages with keys from first to last, in order.

        With `finals`, return only those with `final_ack`.
        """
        chosen = f"WHERE key BETWEEN ? AND ? {'AND final_ack ' * finals}ORDER BY key"
        found = self._db.execute(f"SELECT {MESSAGE_COLUMNS} FROM message {chosen}", (first, last))
        return [message_as_read(*columns) for columns in found]

    def waiting(self, first: int, last: int, gone: Container[int]) -> Generator[tuple[int, bytes, bool]]:
        """Yield the messages with keys from first to last, in order, reading them one by one.

        The caller closes the iterator.

        Args:
            gone: the keys of messages to leave out.
        """
        found = f"SELECT {MESSAGE_COLUMNS} FROM message WHERE key BETWEEN ? AND ? ORDER BY key"
        with closing(self._db.execute(found, (first, last))) as cursor:
            yield from packets_as_read(cursor, gone)
        self._see_that_none_is_missing(first >> POSITION_BITS)

    def _see_that_none_is_missing(self, queue: int) -> None:
        """Check that a queue that was read to its end has all its messages.

        The longer a queue, the longer the check takes, and a growing queue is read to its end again and again. So a
        queue is checked again only when at least half of its messages are new.
        """
        come = self._come_since.get(queue)
        if come is not None:
            found = self._db.execute("SELECT message_count FROM queue WHERE queue = ?", (queue,))
            [(count,)] = found.fetchall() or [(0,)]
            if 2 * come < count or not come:
                return
        see_that_all_messages_are_there(self._db, queue)
        self._come_since[queue] = 0

    def expiring(self) -> Generator[tuple[int, int]]:
        """Yield (`expires_s`, key) of each message that can expire, in order. The caller closes the iterator."""
        with closing(
            self._db.execute(
                "SELECT expires_s, key FROM message WHERE expires_s IS NOT NULL ORDER BY expires_s, key"
            )
        ) as found:
            yield from found

    def _last_key(self, queue: int) -> int:
        """Return the highest key of a queue; -1 if it is empty."""
        found = self._db.execute("SELECT max(key) FROM message WHERE key BETWEEN ? AND ?", keys_of(queue))
        [(last,)] = found.fetchall()
        return -1 if last is None else int(last)


def see_that_all_messages_are_there(db: sqlite3.Connection, queue: int) -> list[int]:
    """Check the messages of one queue. If their number is right, return the keys of the damaged ones.

    Raises:
        DamageError: a message is missing, or there is one that the node did not write.
        sqlite3.Error: the messages cannot be read.
    """
    found = db.execute(
        f"SELECT {MESSAGES_FOUND} FROM message WHERE key BETWEEN ? AND ?", keys_of(queue)
    ).fetchone()
    counts = db.execute(f"SELECT {MESSAGES_COUNTED} FROM queue WHERE queue = ?", (queue,)).fetchone()
    found, counts = list(found), list(counts or (0, 0, 0, 0))
    if found == counts:
        return []
    chosen = f"SELECT {MESSAGE_COLUMNS} FROM message WHERE key BETWEEN ? AND ?"
    rows = (message_as_read(*columns) for columns in db.execute(chosen, keys_of(queue)))
    hurt = [row.key for row in rows if isinstance(row.packet, HurtPacket)] if found[0] == counts[0] else []
    if not hurt:
        raise DamageError(told_of(f"queue {queue}", "messages", found, counts))
    return hurt


def told_of(where: str, what: str, found: Any, counted: Any) -> str:
    """Return the text of the error about a wrong count.

    The lists `found` and `counted` both begin with the number of rows, and end with the sum of their checksums.
    """
    if counted is None:
        return f"{where} is not counted"
    if found[0] == counted[0]:
        return f"{where} has {found[0]} {what}, and they are not those that it had"
    return f"{where} has {found[0]} {what}, and had {counted[0]}"


# Whether all is there

SCHEMA_OF: Final = "SELECT type, name, tbl_name, sql FROM sqlite_master"


def see_that_all_is_there(db: sqlite3.Connection, *, with_posted: bool = True) -> list[int]:
    """Compare the tables with SQLite's counts, the counts of the queues, and the totals. This reads everything except
    the contents of long packets.

    Args:
        with_posted: whether to read the posted messages as well. There may be millions, and a node that starts has
            others waiting. SQLite then checks the tables one by one, and not the list of free pages.

    Returns:
        The keys of damaged messages. Damage in a long packet is not noticed.

    Raises:
        DamageError: a row is missing, or there is a row that the node did not write.
        sqlite3.Error: the tables cannot be read.
    """
    found = {tuple(row) for row in db.execute(SCHEMA_OF)}
    [(layout,)] = db.execute("PRAGMA user_version").fetchall()
    known = _schema(layout)
    has_posted = layout != BEFORE
    triggers = {row for row in found if row[0] == "trigger"}
    if not known <= found or not triggers <= known:
        names = ", ".join(sorted({str(row[1]) for row in known - found | triggers - known}))
        raise DamageError(f"its tables are not those of a store: {names}")
    tables = sorted(row[1] for row in known if row[0] == "table" and row[1] != POSTED)
    for which in ["1"] if with_posted or not has_posted else tables:
        [(trouble,), *_] = db.execute(f"PRAGMA integrity_check({which})").fetchall()
        if trouble != "ok":
            raise DamageError(" ".join(str(trouble).split()))
    for (name,) in db.execute("SELECT name FROM total").fetchall():
        if name not in (*COUNTED, POSTED):
            raise DamageError(f"its totals have a table {name!r}")
    if has_posted and with_posted:
        see_that_names_fit(db)
    for table in (*COUNTED, *[POSTED] * (has_posted and with_posted)):
        there = db.execute(f"SELECT count(*), coalesce(sum(checksum), 0) FROM {table}").fetchone()
        total = db.execute("SELECT row_count, checksums FROM total WHERE name = ?", (table,)).fetchone()
        if there != total:
            raise DamageError(told_of(f"table {table}", "rows", there, total))
    before, hurt = -1, list[int]()
    for (queue,) in db.execute("SELECT queue FROM queue ORDER BY queue").fetchall():
        first, last = keys_of(queue)
        _see_that_none_lies_between(db, before + 1, first - 1)
        hurt += see_that_all_messages_are_there(db, queue)
        before = last
    _see_that_none_lies_between(db, before + 1, 2**63 - 1)
    return hurt


def _see_that_none_lies_between(db: sqlite3.Connection, first: int, last: int) -> None:
    """Check that there are no messages whose queues were never declared."""
    if (
        first <= last
        and db.execute("SELECT 1 FROM message WHERE key BETWEEN ? AND ?", (first, last)).fetchone()
    ):
        raise DamageError("there are messages of a queue that was never declared")


@cache
def _schema(layout: int) -> frozenset[tuple[Any, ...]]:
    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA_BEFORE if layout == BEFORE else SCHEMA)
    found = frozenset(tuple(row) for row in db.execute(SCHEMA_OF))
    db.close()
    return found

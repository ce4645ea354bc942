"""The table of posted messages, which a repetition is compared with.

A row's key is the MessageID, so new rows come in order, and an acknowledgment finds its row. The ids of producers come
in no order, and millions are kept. So their index has only 8 bytes of a hash of each; the row that it finds is compared
with the id itself. No row is read when a store is opened: `store check` reads them.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from mqproto.simulator.base.storeerrors import DamageError
from mqproto.simulator.storage.checksums import row_checksum, whole_rows
from mqproto.simulator.storage.recent import changed
from mqproto.turn.effects import PostedChange, PostedRow

DAY_S: Final = 86_400
KEEP_S: Final = 30 * DAY_S
"""How long a row is kept after its last change, by default, in seconds in which the node ran."""
COLUMNS: Final = ", ".join((*PostedRow._fields, "checksum"))
POSTED_SCHEMA: Final = """
-- Messages that came over HTTP. `name` is a part of a hash of queue and key; it is NULL if there is no key.
CREATE TABLE posted (
    message_id INTEGER PRIMARY KEY, queue TEXT NOT NULL, key TEXT NOT NULL, fingerprint BLOB NOT NULL,
    about BLOB NOT NULL, changed_s INTEGER NOT NULL, message_class INTEGER NOT NULL, ended_s INTEGER NOT NULL,
    owed INTEGER NOT NULL, name INTEGER, checksum INTEGER NOT NULL -- of all but the name
);
CREATE INDEX posted_name ON posted (name) WHERE name IS NOT NULL;
CREATE INDEX posted_age ON posted (changed_s);
CREATE INDEX posted_owed ON posted (message_id) WHERE owed;
"""
REPLACE: Final = (
    f"REPLACE INTO posted ({COLUMNS}, name) VALUES ({', '.join('?' * (len(PostedRow._fields) + 2))})"
)
FORGET: Final = (
    "DELETE FROM posted WHERE message_id IN"
    " (SELECT message_id FROM posted WHERE changed_s <= ? ORDER BY changed_s LIMIT ?)"
)


def name_of(queue: str, key: str) -> int | None:
    """Return the number by which the table finds an id; None for an empty key."""
    if not key:
        return None
    digest = hashlib.blake2b(f"{queue}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


class PostedTable:
    """The posted messages that the tables have."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def put(self, rows: list[PostedRow], changes: list[PostedChange]) -> None:
        """Write rows; then change rows that are there. A change is dropped if its row was forgotten, or is damaged
        and stays so.
        """
        if rows:
            self._db.executemany(REPLACE, map(_columns, rows))
        for change in changes:
            with suppress(DamageError):
                if (row := self.numbered(change.message_id)) is not None:
                    self._db.execute(REPLACE, _columns(changed(row, change))).close()

    def numbered(self, message_id: int) -> PostedRow | None:
        """Return the row of the message with this MessageID; None if there is none.

        Raises:
            DamageError: it differs from the row that was written.
        """
        rows = list(self._rows("WHERE message_id = ?", message_id))
        return rows[0] if rows else None

    def named(self, queue: str, key: str) -> PostedRow | None:
        """Return the newest row with this id; None if there is none.

        Raises:
            DamageError: a row that may have this id differs from the row that was written.
        """
        rows = self._rows("WHERE name = ? ORDER BY changed_s DESC", name_of(queue, key))
        return next((row for row in rows if (row.queue, row.key) == (queue, key)), None)

    def owed(self) -> list[PostedRow]:
        """Return the rows of which a shared database has yet to be told.

        Raises:
            DamageError: one of them differs from the row that was written.
        """
        found = self._db.execute(f"SELECT {COLUMNS} FROM posted WHERE owed ORDER BY message_id").fetchall()
        return list(whole_rows("posted", found, made_posted))

    def forget(self, since_s: int, limit: int) -> int:
        """Delete rows that have not changed since then, at most `limit`, the oldest first. Return their number."""
        return self._db.execute(FORGET, (since_s, limit)).rowcount

    def _rows(self, chosen: str, value: int | None) -> Iterator[PostedRow]:
        found = self._db.execute(f"SELECT {COLUMNS} FROM posted {chosen}", (value,)).fetchall()
        return whole_rows("posted", found, made_posted)


def made_posted(*columns: Any) -> PostedRow:
    """Make a row from its columns."""
    return PostedRow(*columns)._replace(owed=bool(columns[-1]))


def _columns(row: PostedRow) -> tuple[Any, ...]:
    return (*row[:-1], int(row.owed), row_checksum(row), name_of(row.queue, row.key))


def see_that_names_fit(db: sqlite3.Connection) -> None:
    """Check that each row can be found by its id.

    Raises:
        DamageError: one cannot.
    """
    for message_id, queue, key, name in db.execute("SELECT message_id, queue, key, name FROM posted"):
        if name != name_of(queue, key):
            raise DamageError(f"in table posted the row of {message_id} has the name of another id")

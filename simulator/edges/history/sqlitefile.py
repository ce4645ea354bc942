"""An SQLite file that stays open. The statements that each message needs go directly to the driver.

Returning a connection to SQLAlchemy takes as long as writing a row, and letting it begin and end a transaction takes
several times as long. So transactions begin and end here. SQLAlchemy, which carries out the rare statements, joins the
current transaction (databases.py). A server is used only through SQLAlchemy, because there the network takes most of
the time.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from sqlalchemy import Connection, Engine, Insert
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from mqproto.simulator.base.storeerrors import finds_no_room
from mqproto.simulator.edges.history.databases import BEGIN, driver_of, wait_at_most

ROOM_BYTES: Final = 1 << 20
FILL: Final = (
    f"CREATE TABLE IF NOT EXISTS document_history_room AS SELECT zeroblob({ROOM_BYTES});"
    "DROP TABLE IF EXISTS document_history_room; PRAGMA wal_checkpoint"
)


class SqliteFile:
    """The file of one history.

    Args:
        engine: connects to the file.
        change: the statement that changes documents.
    """

    def __init__(self, engine: Engine, change: Insert) -> None:
        self._engine = engine
        compiled = change.compile(dialect=sqlite.dialect())
        self._sql = str(compiled)
        self._names = list(compiled.positiontup or ())
        self._constants = compiled.params
        self._db: Connection | None = None
        self._driver: sqlite3.Connection | None = None
        self._wait_s: float | None = None

    @contextmanager
    def transaction(self, wait_s: float) -> Iterator[Connection]:
        """Run the block in a transaction that may write from the start.

        Args:
            wait_s: the number of seconds for which another program may block us.
        """
        try:
            db, driver = self._opened()
            if wait_s != self._wait_s:
                wait_at_most(driver, wait_s)
                self._wait_s = wait_s
            driver.execute(BEGIN)
            yield db
            if db.in_transaction():
                db.commit()  # The same, and SQLAlchemy hears of it.
            else:
                driver.commit()
        except BaseException as error:
            self.hang_up()
            if isinstance(error, sqlite3.Error):
                raise DBAPIError(None, None, error) from error
            raise

    def change(self, rows: Iterable[dict[str, object]]) -> Iterator[tuple[str, str, int, bytes]]:
        """Change these documents in a transaction; yield the rows that the statement returns."""
        assert self._driver is not None, "a transaction has begun"
        for row in rows:
            known = self._constants | row
            yield from self._driver.execute(self._sql, [known[name] for name in self._names]).fetchall()

    def keep_room(self, path: str) -> None:
        """Have free pages in the file, and a log as long, for the day on which the disk is full: both are reused."""
        _, driver = self._opened()
        with suppress(sqlite3.Error):  # It is full, or another program writes: perhaps the next time.
            [free_pages] = driver.execute("PRAGMA freelist_count").fetchone()  # Of 4,096 bytes each.
            if free_pages < ROOM_BYTES // 8_192 and shutil.disk_usage(path).free > 4 * ROOM_BYTES:
                driver.executescript(FILL).close()

    def begins_anew(self, error: DBAPIError) -> bool:
        """Return whether the disk was full. If so, copy the log to the tables, so that its room can be used again."""
        if is_full := error.orig is not None and finds_no_room(error.orig):
            with suppress(sqlite3.Error):
                self._opened()[1].execute("PRAGMA wal_checkpoint").close()
        return is_full

    def hang_up(self) -> None:
        """Close the connection; a transaction that has not been committed is undone."""
        db, self._db, self._driver, self._wait_s = self._db, None, None, None
        if db is not None:
            db.close()

    def _opened(self) -> tuple[Connection, sqlite3.Connection]:
        if self._db is None or self._driver is None:
            self._db = self._engine.connect()
            self._driver = driver_of(self._db)
        return self._db, self._driver

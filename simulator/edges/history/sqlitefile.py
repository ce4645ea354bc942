"""An SQLite file that stays open, and is asked by its driver for what each message needs.

To give a connection back takes as long as to write a row, and SQLAlchemy's way to begin and end a transaction several
times as long. So transactions are begun and ended here; SQLAlchemy, which has the rare statements, joins the one that
there is (databases.py). A server is asked by SQLAlchemy alone: there the way to it is what takes time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, Insert
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from mqproto.simulator.edges.history.databases import BEGIN, driver_of, wait_at_most


class SqliteFile:
    """The file of one history.

    Args:
        engine: connects to it.
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
        """As a writer from the start.

        Args:
            wait_s: how long another program may hold us up.
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
        """Change these documents, within a transaction; what the statement returns of each."""
        assert self._driver is not None, "a transaction has begun"
        for row in rows:
            known = self._constants | row
            yield from self._driver.execute(self._sql, [known[name] for name in self._names]).fetchall()

    def hang_up(self) -> None:
        """Give the connection back; what has begun and is not committed is as if it had not been."""
        db, self._db, self._driver, self._wait_s = self._db, None, None, None
        if db is not None:
            db.close()

    def _opened(self) -> tuple[Connection, sqlite3.Connection]:
        if self._db is None or self._driver is None:
            self._db = self._engine.connect()
            self._driver = driver_of(self._db)
        return self._db, self._driver

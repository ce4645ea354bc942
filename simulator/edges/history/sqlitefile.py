"""An SQLite file that stays open. The statements that each message needs go directly to the driver.

Returning a connection to SQLAlchemy takes as long as writing a row, and letting it begin and end a transaction takes
several times as long. So transactions begin and end here. SQLAlchemy, which carries out the rare statements, joins the
current transaction (databases.py). A server is used only through SQLAlchemy, because there the network takes most of
the time.
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

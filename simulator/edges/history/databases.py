"""Opens SQLite and PostgreSQL by URL: commits are on disk, and the loss of a server is noticed soon.

`sqlite:///history.sqlite` is a file in the current folder, and `sqlite:////var/lib/history.sqlite` is a file anywhere.
`postgresql+psycopg://user@host/database` is a server, which several machines may share. Options of libpq follow a
question mark: `?sslmode=verify-full`, or `?host=/run/postgresql` for a socket. A password may be in the URL, but other
users of the machine can see it there while a command runs; libpq's `~/.pgpass` is better.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, make_url, select
from sqlalchemy.exc import ArgumentError

from mqproto.base.errors import UsageError
from mqproto.simulator.edges.history.errors import SQLITE_ADVICE, HistoryError

BUSY_S: Final = 10
"""The maximum number of seconds that another program may block us, or a server's statement may take."""
CONNECT_S: Final = 5
BEGIN: Final = "BEGIN IMMEDIATE"
"""The statement that begins a transaction as a writer.

A transaction that begins as a reader may fail when it writes.
"""
APPLICATION_ID: Final = int.from_bytes(b"mqdh")
"""The number that marks an SQLite file as a document history."""
PRAGMAS: Final = (
    "synchronous = FULL",
    # macOS flushes to the disk itself only if that is asked for by name.
    "fullfsync = ON",
    "checkpoint_fullfsync = ON",
)
OPTIONS: Final = {
    "application_name": "mqproto",
    "client_encoding": "utf8",
    "connect_timeout": CONNECT_S,
    # A server that went away without a word is missed after some 10 s, by default after two hours.
    "tcp_user_timeout": BUSY_S * 1_000,
    "keepalives_idle": BUSY_S // 2,
    "keepalives_interval": BUSY_S // 5,
    "keepalives_count": 3,
}
"""The options of libpq that apply if the URL does not set them."""
SETTINGS: Final = (
    f"SET statement_timeout = '{BUSY_S}s'",
    f"SET lock_timeout = '{BUSY_S}s'",
    f"SET idle_in_transaction_session_timeout = '{BUSY_S}s'",
    # The server's administrator may ask for more than the server's own disk, not for less.
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
)


def parsed(text: str) -> URL:
    """Return the URL that a text stands for. Its database is of a supported kind.

    Raises:
        UsageError: the text is not a URL of such a database.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # The text may hold a password, and a mistyped one is shown by nobody.
        raise UsageError(f"no URL of a database: it is {_FORMS}") from None
    if url.drivername in ("sqlite", "sqlite+pysqlite"):
        if url.database in (None, "", ":memory:") or url.query or url.host:
            raise UsageError("an SQLite history is a file on this machine: sqlite:///PATH")
        return url
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    raise UsageError(f"no document history is kept in {url.drivername}: its URL is {_FORMS}")


_FORMS: Final = "sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE"


def name_of(url: URL) -> str:
    """Return the name that errors use for a database: its file, or its URL without a password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    where = {name: value for name, value in url.query.items() if name in ("host", "port")}
    return url.set(query=where).render_as_string(hide_password=True).replace("%2F", "/")


def address_of(url: URL) -> str:
    """Return the URL of this database without a password, in a form that is valid in any folder."""
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{Path(url.database or '').absolute()}"
    query = {name: value for name, value in url.query.items() if "password" not in name}
    return url._replace(password=None).set(query=query).render_as_string().replace("%2F", "/")


def claim(db: Connection) -> None:
    """Mark a database as mqproto's.

    If several programs want to make its tables at the same time, only one makes them.
    """
    if db.dialect.name == "sqlite":
        db.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
    else:
        db.execute(select(func.pg_advisory_xact_lock(APPLICATION_ID)))


def engine_for(url: URL, *, only_reads: bool = False) -> Engine:
    """Return an engine with at most one connection, which is made when needed, and again after a loss.

    Raises:
        UsageError: the package for PostgreSQL is missing.
    """
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url, only_reads=only_reads)
    try:
        engine = create_engine(
            url,
            pool_size=1,
            max_overflow=0,
            hide_parameters=True,
            isolation_level="READ COMMITTED",
            connect_args={name: value for name, value in OPTIONS.items() if name not in url.query},
        )
    except ModuleNotFoundError as error:
        raise UsageError("PostgreSQL needs psycopg: pip install 'mqproto[postgresql]'") from error

    @event.listens_for(engine, "connect")
    def set_up(db: Any, _: object) -> None:
        db.autocommit = True
        for setting in SETTINGS:
            db.execute(setting)
        db.autocommit = False

    return engine


def _sqlite_engine(url: URL, *, only_reads: bool) -> Engine:
    engine = create_engine(
        url,
        **({"creator": partial(_opened_to_read, Path(url.database or ""))} if only_reads else {}),
        pool_size=1,
        max_overflow=0,
        hide_parameters=True,
        # Transactions are begun below, and not by the sqlite3 module, which begins none before a query.
        connect_args={"timeout": BUSY_S, "isolation_level": None},
    )

    @event.listens_for(engine, "connect")
    def set_up(db: sqlite3.Connection, _: object) -> None:
        """Check that the file is new or a history of mqproto, then choose how it is written."""
        # In this order, since somebody may make the tables right now, and the two in one transaction.
        has_tables = bool(db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall())
        [(application_id,)] = db.execute("PRAGMA application_id").fetchall()
        if application_id != APPLICATION_ID and (has_tables or application_id):
            raise HistoryError(f"{name_of(url)}: {SQLITE_ADVICE[sqlite3.SQLITE_NOTADB]}")
        if only_reads:
            return
        [(mode,)] = db.execute("PRAGMA journal_mode = WAL").fetchall()
        if mode != "wal":
            raise HistoryError(
                f"{name_of(url)}: its file system holds no write-ahead log: choose a local disk"
            )
        for pragma in PRAGMAS:
            db.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(db: Connection) -> None:
        """Begin a transaction, or join one that has already begun (sqlitefile.py)."""
        driver = driver_of(db)
        if not driver.in_transaction:
            wait_at_most(driver, BUSY_S)
            db.exec_driver_sql(BEGIN)

    return engine


def _opened_to_read(path: Path) -> sqlite3.Connection:
    """Open a file without writing to it. Where no log can be made and none is, nobody else writes to it either."""
    if not path.exists():
        raise HistoryError(f"{path}: no document history is there: name another file or database")
    log = Path(f"{path}-wal")
    for mode in ("mode=rw", "immutable=1"):
        file = f"{path.absolute().as_uri()}?{mode}"
        db = sqlite3.connect(file, BUSY_S, check_same_thread=False, uri=True)
        try:
            db.executescript("PRAGMA query_only = ON; SELECT 1 FROM sqlite_master;").close()
            break
        except sqlite3.DatabaseError:
            if mode == "immutable=1" or (log.exists() and log.stat().st_size):
                db.close()
                raise
    return db


def driver_of(db: Connection) -> sqlite3.Connection:
    """Return the sqlite3 connection behind an SQLAlchemy connection."""
    driver = db.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def wait_at_most(driver: sqlite3.Connection, wait_s: float) -> None:
    """Set how long another program may block a connection."""
    driver.execute(f"PRAGMA busy_timeout = {round(1_000 * wait_s)}").close()

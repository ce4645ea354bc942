"""The errors of a document history.

Each error is one line that says what to do, and never shows a password.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import DataError, DBAPIError

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.simulator.base.storeerrors import primary_code


class HistoryError(MqprotoError):
    """The database is not available, or cannot be written. The text is one line and says what to do.

    The error is transient: the call may or may not have taken effect, and may be repeated.
    """


GONE: Final = "its tables are gone: restore them, or start again and they are made anew, empty"
_READ_ONLY: Final = "it is read-only: let this user write to the file and its folder"
SQLITE_ADVICE: Final = {
    sqlite3.SQLITE_ERROR: GONE,  # Our statements are few and tested: what is wrong is what they speak of.
    sqlite3.SQLITE_FULL: "the disk is full: make room; nothing acknowledged is lost",
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: is its folder there, and may this user write to it?",
    sqlite3.SQLITE_NOTADB: "it is not a document history: name another file",
    sqlite3.SQLITE_CORRUPT: "it is damaged: put back a copy",
    sqlite3.SQLITE_BUSY: "another program keeps it locked: let that end",
}
"""The advice for SQLite's errors, keyed by primary result code.

Any other code means that the disk itself has failed.
"""
POSTGRESQL_ADVICE: Final = {
    "25006": "it is read-only: name the server that takes writes, and a user who may write",
    "3F000": "no schema to make its tables in: create one, or name it in the search_path",
    "40P01": "another program locks its rows in an order of its own: let that end",
    "42501": "this user may not do that: grant it the tables, and CREATE where they are to be made",
    "42P01": GONE,
    "53100": "the server's disk is full: make room; nothing acknowledged is lost",
    "53300": "the server has no connection left: let it have more, or stop other programs",
    "55P03": "another program keeps its tables locked: let that end",
    "57014": "it took too long: another program keeps its rows locked, or the server is overloaded",
    "57P01": "the server is stopping: start it again",
    "57P03": "the server is starting or stopping: wait for it",
}
"""The advice for PostgreSQL's errors, keyed by SQLSTATE (PostgreSQL's documentation, appendix A).

Other errors are shown in the server's own words.
"""


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn a database's error into a HistoryError of one line.

    Args:
        name: the name that errors use for the database.

    Raises:
        HistoryError: the database reported an error.
        UsageError: the database can never store one of the values.
    """
    try:
        yield
    except DBAPIError as error:
        if isinstance(error, DataError):
            raise UsageError(f"{name}: it cannot keep this: {first_line(error)}") from error
        raise HistoryError(f"{name}: {advice(error)}") from error


def advice(error: DBAPIError) -> str:
    """Return advice for an error of SQLite or PostgreSQL."""
    code = primary_code(error.orig) if error.orig is not None else None
    if code is not None:
        return SQLITE_ADVICE.get(code, f"its disk fails ({first_line(error)}): look to it")
    state = getattr(error.orig, "sqlstate", None)
    if state is None:
        return f"no connection ({first_line(error)}): see that the server runs, and that the URL is right"
    return POSTGRESQL_ADVICE.get(state, f"the server fails ({first_line(error)}): look to it")


def first_line(error: DBAPIError) -> str:
    """Return the database's own message, without the statement and its values."""
    lines = str(error.orig).strip().splitlines()
    return lines[0].strip() if lines else type(error.orig).__name__

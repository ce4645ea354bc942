"""Errors of a node's disk. The text of each error is one line that says what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mqproto.base.errors import MqprotoError


class StoreError(MqprotoError):
    """The store cannot be opened or written. The text is one line, and says what to do."""


class DiskFullError(StoreError):
    """The disk has no room for a write. Nothing was written, and the write may be tried again."""


class LifeFullError(DiskFullError):
    """The store must begin a new life, or was moved, and the disk has no room to record that."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path}: a life of the store must begin, or it was moved, and the disk is full: make room, then"
            " start the node again; nothing acknowledged is lost"
        )


class DamageError(Exception):
    """The store did not return the data that was written.

    The text describes the damage, but contains neither the path nor advice.
    """


def repair_advice(store: Path) -> str:
    """Return the advice for a damaged store."""
    return f"`mqproto store repair {store}` sets aside what is hurt and keeps the rest"


def damaged_store(store: Path, what: object) -> StoreError:
    """Return the error for a store whose tables do not contain the data that was written."""
    said = " ".join(str(what).split())
    said = said if len(said) <= LONGEST else f"{said[:LONGEST]}..."
    return StoreError(f"{store}: it is damaged ({said}): {repair_advice(store)}")


LONGEST: Final = 300
"""The maximum number of characters to show of SQLite's message about a damaged file.

The message may quote whole statements.
"""
_READ_ONLY: Final = "it is read-only: let this user write to the file and its folder"
ADVICE: Final = {
    sqlite3.SQLITE_FULL: "the disk is full: make room, then start the node again; nothing acknowledged is lost",
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: is its folder there, and may this user write to it?",
    sqlite3.SQLITE_NOTADB: "it is not a store of a node: name another file",
    sqlite3.SQLITE_BUSY: "another program is writing to it: let that end, then start the node again",
}
"""Advice, keyed by SQLite's primary result code.

If a code has no advice here, SQLITE_CORRUPT means that the store is damaged, and any other code means that the disk has
failed.
"""

POSTPONED_AFTER: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY})
"""SQLite's codes after which a transaction is known to be undone, and may succeed later."""


def finds_no_room(error: BaseException) -> bool:
    """Return whether an error was caused by a full disk."""
    return isinstance(error, DiskFullError) or primary_code(error) == sqlite3.SQLITE_FULL


def primary_code(error: BaseException) -> int | None:
    """Return SQLite's primary result code, without the higher bits; None if it is not an error of SQLite."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def explain(path: Path, error: BaseException, advice: Mapping[int, str] = ADVICE) -> None:
    """Raise the StoreError for an error that SQLite reported about a file.

    If only a bug of ours can cause the error, raise an AssertionError, or return.

    advice: what to do, keyed by SQLite's primary result code.
    """
    if isinstance(error, DamageError):
        raise damaged_store(path, error) from error
    if isinstance(error, sqlite3.IntegrityError):
        raise AssertionError(f"{path}: the core wrote what cannot be: {error}") from error
    code = primary_code(error)
    if code is None and isinstance(error, sqlite3.OperationalError):
        raise damaged_store(path, str(error).partition(" with text ")[0]) from error  # It is no text.
    if code is None:
        return
    if code == sqlite3.SQLITE_CORRUPT and code not in advice:
        raise damaged_store(path, error) from error
    trouble = f"the disk fails ({error}): look to it, then start the node again"
    worse = DiskFullError if code == sqlite3.SQLITE_FULL else StoreError
    raise worse(f"{path}: {advice.get(code, trouble)}") from error


@contextmanager
def explained(path: Path, advice: Mapping[int, str] = ADVICE) -> Iterator[None]:
    """Let `explain` turn SQLite's errors about a file into StoreErrors.

    An error for which `explain` returns is raised unchanged. A commit calls `explain` itself, for speed.

    advice: what to do, keyed by SQLite's primary result code.
    """
    try:
        yield
    except (DamageError, sqlite3.Error) as error:
        explain(path, error, advice)
        raise


@contextmanager
def sound(path: Path) -> Iterator[None]:
    """Report errors as damage if they come from contents of a store that make no sense.

    Another program must have written such contents.
    """
    try:
        yield
    except (AssertionError, TypeError, ValueError, sqlite3.OperationalError) as error:
        if isinstance(error, sqlite3.OperationalError) and primary_code(error) != sqlite3.SQLITE_ERROR:
            raise
        raise damaged_store(path, error) from error

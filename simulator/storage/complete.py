"""Checks that the tables are complete, by comparing rows, pages and indexes with the stored counts."""

from __future__ import annotations

import sqlite3
from functools import cache
from typing import Any, Final

from mqproto.simulator.base.storeerrors import DamageError
from mqproto.simulator.storage.posted import see_that_names_fit
from mqproto.simulator.storage.tables import (
    BEFORE,
    COUNTED,
    POSTED,
    SCHEMA,
    SCHEMA_BEFORE,
    keys_of,
    see_that_all_messages_are_there,
    told_of,
)

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

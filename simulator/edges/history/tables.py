"""The tables of a document history.

    sqlite3 history.sqlite "select * from document_history where entry = 'started'"

documents.py changes the documents, and forgetting.py deletes them. leaders.py decides which trigger delivers from a
queue, and outbox.py keeps the reports to send.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Double,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError

from mqproto.simulator.edges.history.errors import GONE, HistoryError, explained

LAYOUT: Final = 3
MOVED: Final = 99
"""The layout number of a history that was moved away or is not yet complete (moving.py).

Older versions refuse it.
"""
KEEP_S: Final = 30 * 24 * 3_600.0
"""The number of seconds for which a new history keeps its entries."""
LIFE_BYTES: Final = 8
BEGINS_S: Final = 1.0
"""The value, in seconds, at which a history's own time begins (forgetting.py)."""
NEW: Final[dict[str, Any]] = {
    "keep_s": KEEP_S,
    "since_s": 0.0,
    "forgotten": 0,
    "forgotten_s": 0.0,
    "now_s": BEGINS_S,
    "lives_before": "",
    "lacks": "",
}
"""The row of `layouts` in a new history."""

STARTED: Final = text("entry = 'started'")
NOT_STARTED: Final = text("entry <> 'started'")
"""The condition that the indexes have. A database uses them only for queries with the same condition."""

metadata = MetaData()
layouts = Table(
    "document_history_layout",
    metadata,
    Column("layout", Integer, nullable=False),
    Column("keep_s", Double, nullable=False),
    Column("since_s", Double, nullable=False),
    Column("forgotten", BigInteger, nullable=False),
    Column("forgotten_s", Double, nullable=False),
    Column("now_s", Double, nullable=False),
    Column("life", Text, nullable=False, default=lambda: token_hex(LIFE_BYTES)),
    Column("lives_before", Text, nullable=False),
    Column("lacks", Text, nullable=False),
)
"""The table with the one row about the history as a whole.

keep_s: how long ended documents are kept.
now_s: the history's own time.
since_s: the history's own time at which ids began to start with producers' names; 0 if they always did.
forgotten: the number of forgotten messages that gateways had accepted.
forgotten_s: the Unix time of the most recent change to any of these messages.
life: the random name that the history has in gateways' journals (lives.py).
lives_before: the lives that the history continues, separated by spaces.
lacks: a description of the missing ids, made when an operator accepted that they are lost.
"""
documents = Table(
    "document_history",
    metadata,
    Column("scope", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("entry", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("ticket", BigInteger, nullable=False),
    Column("changed_s", Double, nullable=False),
    Column("aged_s", Double, nullable=False),
    Column("outcome", LargeBinary, nullable=False),
    Column("origin", Text, nullable=False),
    PrimaryKeyConstraint("scope", "key"),
    CheckConstraint("entry IN ('absent', 'started', 'completed', 'failed')"),
    Index("document_history_started", "owner", "scope", sqlite_where=STARTED, postgresql_where=STARTED),
    Index("document_history_age", "aged_s", sqlite_where=NOT_STARTED, postgresql_where=NOT_STARTED),
    sqlite_with_rowid=False,
)
"""The table of documents.

attempts: the number of times that the document was begun.
ticket: the ticket of the last caller.
changed_s: the Unix time of the last change, for display.
aged_s: the history's own time at the last change.
origin: the origin in the message's envelope (lives.py).
"""

leaders = Table(
    "document_history_leader",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("leader", Text, nullable=False),
    Column("ticket", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("note", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
"""The table of leaders.

leader: the leader's name; empty after a resignation.
ticket: the ticket of the leader's process.
beat: a number that increases while the leader is alive.
note: data for the leader's successors.
"""

hooks = Table(
    "document_history_hook",
    metadata,
    Column("id", Text, primary_key=True),
    Column("sender", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_s", Double, nullable=False),
    Column("changed_s", Double, nullable=False),
    Column("aged_s", Double, nullable=False),
    CheckConstraint("state IN ('armed', 'due', 'told', 'given up')"),
    Index("document_history_hook_due", "sender", "state", "due_s"),
    sqlite_with_rowid=False,
)
"""The table of reports.

body: the report; while armed, the facts that are known so far.
due_s: the time of the next attempt, by the history's own time.
"""

moves = Table(
    "document_history_move",
    MetaData(),
    Column("id", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("is_target", Integer, nullable=False),
    Column("part", Integer, nullable=False),
    Column("scope", Text, nullable=False),
    Column("key", Text, nullable=False),
)
"""The table of moves. It exists during a move, and after that remains in the old place.

source, target: the URLs of the two databases.
is_target: whether the move is to this database.
part, scope, key: the place of the last copied row.
"""
changed = Table(
    "document_history_changed",
    moves.metadata,
    Column("number", Integer, primary_key=True),
    Column("scope", Text, nullable=False),
    Column("key", Text, nullable=False),
    Index("document_history_changed_row", "scope", "key"),
)
"""The table of rows that were changed during the copy. A hook has no scope."""


def elsewhere(db: Connection, name: str) -> str | None:
    """Return the error text for a history that was moved or is incomplete; None for a usable one."""
    if not inspect(db).has_table(layouts.name) or db.execute(select(layouts.c.layout)).scalar() != MOVED:
        return None
    source, target, is_target = db.execute(select(moves.c.source, moves.c.target, moves.c.is_target)).one()
    if is_target:
        command = shlex.join(["mqproto", "store", "copy", source, target])
        return f"{name}: not all of the history is here yet: {command} goes on with it"
    return f"{name}: the history was moved to {target}: name that"


@contextmanager
def located(name: str, engine: Engine) -> Iterator[None]:
    """Do the same as `explained`. If the tables are gone, report where the history was moved.

    Raises:
        HistoryError: the database reported an error, or the history was moved.
        UsageError: the database can never store one of the values.
    """
    try:
        with explained(name):
            yield
    except HistoryError as error:
        trouble = None
        if GONE in str(error):
            with suppress(DBAPIError, HistoryError), engine.connect() as db:
                trouble = elsewhere(db, name)
        raise HistoryError(trouble or str(error)) from error


def migrate(db: Connection) -> None:
    """Convert the tables of layout 2 to the current layout.

    In layout 2, ids aged by the programs' clocks. After the conversion, all ids count as new.
    """
    values = {**NEW, "life": token_hex(LIFE_BYTES), "lives_before": "earlier"}
    for name in ("now_s", "life", "lives_before", "lacks"):
        _add(db, layouts, name, values[name])
    for table in (documents, hooks):
        _add(db, table, "aged_s", BEGINS_S)
    _add(db, documents, "origin", "")
    db.execute(update(hooks).values(due_s=BEGINS_S))
    [age] = (index for index in documents.indexes if index.name == "document_history_age")
    age.drop(db)
    age.create(db)
    knew_earlier = db.execute(select(layouts.c.since_s)).scalar_one() > 0
    db.execute(update(layouts).values(layout=LAYOUT, since_s=BEGINS_S if knew_earlier else 0.0))


def _add(db: Connection, table: Table, name: str, value: float | str) -> None:
    kind = table.c[name].type.compile(db.dialect)
    db.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {name} {kind} NOT NULL DEFAULT {value!r}")

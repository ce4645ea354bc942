"""The tables of a document history.

    sqlite3 history.sqlite "select * from document_history where entry = 'started'"

documents.py changes the documents, forgetting.py deletes them, leaders.py says who delivers from a queue, outbox.py
what somebody is to be told.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
    update,
)

LAYOUT: Final = 2
KEEP_S: Final = 30 * 24 * 3_600.0
"""How long a new history remembers."""
NEW: Final = {"keep_s": KEEP_S, "since_s": 0.0, "forgotten": 0, "forgotten_s": 0.0}
"""What `layouts` says of a new one."""

STARTED: Final = text("entry = 'started'")
NOT_STARTED: Final = text("entry <> 'started'")
"""As the indexes have it: a database takes one only for a query that says the same."""

metadata = MetaData()
layouts = Table(
    "document_history_layout",
    metadata,
    Column("layout", Integer, nullable=False),
    Column("keep_s", Double, nullable=False),
    Column("since_s", Double, nullable=False),
    Column("forgotten", BigInteger, nullable=False),
    Column("forgotten_s", Double, nullable=False),
)
"""keep_s: how long what has ended is remembered; since_s: since when the layout is this, in Unix time, 0 for always.

forgotten: how many messages gateways had accepted whose ids are not remembered any more; forgotten_s: when the last of
them had changed.
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
    Column("outcome", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "key"),
    CheckConstraint("entry IN ('absent', 'started', 'completed', 'failed')"),
    Index("document_history_started", "owner", "scope", sqlite_where=STARTED, postgresql_where=STARTED),
    Index("document_history_age", "changed_s", sqlite_where=NOT_STARTED, postgresql_where=NOT_STARTED),
    sqlite_with_rowid=False,
)
"""attempts: how often it was begun; ticket: by whom last; changed_s: when the entry changed, in Unix time."""

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
"""leader: empty after one that has resigned; ticket: of its process; beat: goes up while it lives; note: its own."""

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
    CheckConstraint("state IN ('armed', 'due', 'told', 'given up')"),
    Index("document_history_hook_due", "sender", "state", "due_s"),
    sqlite_with_rowid=False,
)
"""body: what is told; while it is armed, what is known of it already. due_s: of the next attempt, in Unix time."""


def migrate(db: Connection, now_s: float) -> None:
    """From layout 1, where ids had no producers' names before them, and all was kept for 30 days."""
    for name, value in NEW.items():
        kind = layouts.c[name].type.compile(db.dialect)
        db.exec_driver_sql(f"ALTER TABLE {layouts.name} ADD COLUMN {name} {kind} NOT NULL DEFAULT {value!r}")
    db.execute(update(layouts).values(layout=LAYOUT, since_s=now_s))

"""Moves a history to another database, SQLite or PostgreSQL, while programs use it.

    here                                              there
    database triggers note changes                    layout MOVED: no program opens it
        ──── all rows, in batches, each with the place up to which it goes ────►
        ──── what has changed since then ────►
    nobody else reads or writes
        ──── the rest ────►
    tables renamed, layout MOVED: no program continues
                                                      this layout: programs open it

If the moving program is killed, the same command continues the move. The database itself notes changes and deletions,
so programs of all versions are covered. A program whose tables are renamed fails in the middle of its work, and that
work is undone. So no program continues in the old place.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Table,
    and_,
    delete,
    exists,
    func,
    insert,
    inspect,
    literal,
    not_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.base.storeerrors import primary_code
from mqproto.simulator.edges.history.databases import (
    BEGIN,
    address_of,
    claim,
    driver_of,
    engine_for,
    name_of,
    parsed,
    wait_at_most,
)
from mqproto.simulator.edges.history.documents import Documents
from mqproto.simulator.edges.history.errors import HistoryError, explained
from mqproto.simulator.edges.history.forgetting import same_scope
from mqproto.simulator.edges.history.tables import (
    LAYOUT,
    MOVED,
    NEW,
    changed,
    documents,
    elsewhere,
    hooks,
    layouts,
    leaders,
    located,
    metadata,
    moves,
)

BATCH: Final = 1_000
"""The number of rows that are copied at a time."""
PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.001
NAMED: Final = 3
FILE_NAME: Final = "history.sqlite"
"""The name of the file into which a history on a server is backed up."""
DEEDS: Final = {"INSERT": "NEW", "UPDATE": "NEW", "DELETE": "OLD"}
PARTS: Final = (documents, hooks)
"""The tables that are copied in batches. The few leaders are copied at the end."""

BEGINNING: Final = {"part": 0, "scope": "", "key": ""}
TWICE: Final = "another `mqproto store copy` of this history runs: let that end"

_Place: TypeAlias = tuple[str, str]
"""The place of a row: the scope and key of a document, or an empty text and the id of a hook."""


class Checkup(NamedTuple):
    """What a history contains.

    documents: the number of documents, keyed by scope and entry.
    findings: the damage in the history's file, as SQLite reports it.
    moves_to: the target of a move that is under way or was killed; empty if there is none.
    """

    name: str
    documents: dict[tuple[str, str], int]
    keep_s: float
    findings: list[str]
    moves_to: str


class Moved(NamedTuple):
    """The old and the new place of a history, and the number of documents and hooks in the new place."""

    source: str
    target: str
    documents: int
    hooks: int


class _Database:
    """One of the two databases of a move."""

    def __init__(self, url: str, *, only_reads: bool = False) -> None:
        where = parsed(url)
        self.name, self.address = name_of(where), address_of(where)
        self.path = Path(where.database or "") if where.get_backend_name() == "sqlite" else None
        self._engine = engine_for(where, only_reads=only_reads)
        self._one_moment = {} if self.path else {"isolation_level": "REPEATABLE READ"}

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def begun(self) -> Iterator[Connection]:
        """Begin a transaction that may write."""
        with located(self.name, self._engine), self._engine.connect() as db:
            if self.path is not None:
                _begin(driver_of(db))
            with db.begin():
                yield db

    @contextmanager
    def read(self, *, wherever: bool = False) -> Iterator[Connection]:
        """Yield a connection that reads an existing history as of one moment, without blocking anybody.

        Raises:
            HistoryError: there is no history, or it was moved elsewhere.
        """
        is_there = self.path is None or self.path.exists()
        with located(self.name, self._engine):
            if is_there:
                with self._engine.connect().execution_options(**self._one_moment) as db:
                    if self.path is not None:
                        driver_of(db).execute("BEGIN").close()  # Which SQLAlchemy's joins.
                    else:
                        _wait(db)
                    trouble = elsewhere(db, self.name)
                    if trouble is not None and not wherever:
                        raise HistoryError(trouble)
                    if inspect(db).has_table(layouts.name):
                        yield db
                        return
        raise HistoryError(f"{self.name}: no document history is there: name another file or database")


def _begin(driver: sqlite3.Connection) -> None:
    """Begin a transaction as a writer, even if other programs write with hardly a pause.

    SQLite's own waits between its attempts become too long for this.
    """
    wait_at_most(driver, 0)
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            driver.execute(BEGIN).close()
            return
        except sqlite3.Error as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise DBAPIError(None, None, error) from error
        time.sleep(PAUSE_S)


def inventory(url: str) -> Checkup:
    """Check a history and count its documents, without blocking anybody.

    Raises:
        UsageError: the text is not a URL of a database.
        HistoryError: the history does not exist, cannot be read, or was moved elsewhere.
    """
    with closing(_Database(url, only_reads=True)) as here, here.read() as db:
        counted = select(documents.c.scope, documents.c.entry, func.count()).group_by(
            documents.c.scope, documents.c.entry
        )
        findings = [] if here.path is None else _findings(driver_of(db))
        if findings:
            return Checkup(here.name, {}, NEW["keep_s"], findings, "")
        counts = {(scope, entry): count for scope, entry, count in db.execute(counted)}
        layout = db.exec_driver_sql(f"SELECT * FROM {layouts.name}").mappings().one()
        move = _move(db)
        return Checkup(
            here.name, counts, layout.get("keep_s", NEW["keep_s"]), [], move.target if move else ""
        )


def back_up(url: str, target: Path) -> Path:
    """Copy a history, as it is at one moment, into an SQLite file. The file is written completely or not at all.

    Args:
        target: the .sqlite file of the copy, or a folder for a file of the same name. The folder is made if necessary.

    Raises:
        UsageError: the text is not a URL of a database.
        HistoryError: the history does not exist, is damaged, or was moved elsewhere; or the copy already exists or
            cannot be written.
    """
    with closing(_Database(url, only_reads=True)) as here, here.read() as db:
        if target.suffix != ".sqlite":
            target /= here.path.name if here.path else FILE_NAME
        if target.exists():
            raise HistoryError(f"{target}: it is there already: name another file or folder for the backup")
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
                draft = Path(folder) / target.name
                os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
                if here.path:
                    _copy_file(driver_of(db), draft, target)
                else:
                    _copy_rows(db, draft)
                os.link(draft, target)
            folder_at = os.open(target.parent, os.O_RDONLY)
            os.fsync(folder_at)
            os.close(folder_at)
        except OSError as error:
            raise HistoryError(
                f"{target}: it cannot be written ({error.strerror}): make room, or name another folder"
            ) from error
        return target


def _copy_rows(db: Connection, draft: Path) -> None:
    with closing(_Database(f"sqlite:///{draft}")) as there, there.begun() as other:
        claim(other)
        metadata.create_all(other)
        own = dict(db.execute(select(layouts)).mappings().one())
        other.execute(insert(layouts).values(own))
        _put(other, leaders, [dict(row) for row in db.execute(select(leaders)).mappings()])
        for table in PARTS:
            place = ("", "")
            while rows := _page(db, table, place):
                _put(other, table, rows)
                place = _place(table, rows[-1])


def _copy_file(driver: sqlite3.Connection, draft: Path, target: Path) -> None:
    with explained(str(target)), closing(sqlite3.connect(draft)) as copy:
        try:
            driver.backup(copy)
            if findings := _findings(copy):
                raise HistoryError(f"the history is hurt, so there is no backup of it ({findings[0]})")
        except sqlite3.Error as error:
            raise DBAPIError(None, None, error) from error


def _findings(driver: sqlite3.Connection) -> list[str]:
    try:
        return [line for (line,) in driver.execute("PRAGMA integrity_check") if line != "ok"]
    except sqlite3.DatabaseError as error:
        return [str(error)]


def copy(source: str, target: str) -> Moved:
    """Move a history to another database that does not have one yet.

    Raises:
        UsageError: a text is not a URL of a database.
        HistoryError: a database is not available, the source has already been moved, or the target has a history.
    """
    with closing(_Database(source)) as here, closing(_Database(target)) as there:
        identifier, is_moved = _agree(source, here, there)
        if not is_moved:
            _bring(here, there, identifier)
            left = inf
            while True:
                with here.begun() as db:
                    noted = db.execute(select(func.count()).select_from(changed)).scalar_one()
                    if noted <= BATCH or noted >= left:
                        break  # Programs may write faster than we do: then they have to wait.
                    _bring_changes(db, there, identifier)
                left = noted
            with here.begun() as db:
                _fence(db)
                while _bring_changes(db, there, identifier):
                    pass
                with there.begun() as other:
                    _bring_rest(db, other, there.name)
                _withdraw(db)
        with there.begun() as db:
            db.execute(update(layouts).values(layout=LAYOUT))
            db.execute(delete(moves))
            return Moved(here.address, there.address, **_counts(db))


def _move(db: Connection) -> Row[Any] | None:
    """Return the move in which a database takes part; None if it takes part in none."""
    return db.execute(select(moves)).one_or_none() if inspect(db).has_table(moves.name) else None


def _agree(source: str, here: _Database, there: _Database) -> tuple[str, bool]:
    """Agree on the identifier of this move in both databases. Return it, and whether only the last step is missing.

    Both databases have the identifier on disk before the first row is copied.
    """
    with here.read(wherever=True) as db:
        move, trouble = _move(db), elsewhere(db, here.name)
    if trouble is None:
        Documents(source, None).close()  # One of an earlier layout becomes one of this.
    elif move is None or move.is_target:
        raise HistoryError(trouble)
    with there.begun() as db:
        if inspect(db).has_table(layouts.name):
            theirs = _move(db)
            if theirs is None or move is None or theirs.id != move.id or not theirs.is_target:
                raise HistoryError(trouble or _refusal(db, here, there.name))
            return move.id, trouble is not None
    if trouble is not None:
        raise HistoryError(trouble)
    is_watched, identifier = move is not None, token_hex(16)
    addresses = {"source": here.address, "target": there.address}
    row = {"id": identifier, **addresses, **BEGINNING}
    with here.begun() as db:
        if not is_watched:
            moves.metadata.create_all(db)
            if here.path is None:
                db.exec_driver_sql(
                    f"GRANT SELECT ON {moves.name} TO PUBLIC"
                )  # They are to hear where it went.
            _watch(db)
        db.execute(delete(moves))
        db.execute(insert(moves).values(is_target=0, **row))
    with there.begun() as db:
        claim(db)
        if inspect(db).has_table(layouts.name):
            raise HistoryError(f"{there.name}: somebody has made a history in it just now: stop that program")
        metadata.create_all(db)
        moves.create(db)
        db.execute(insert(layouts).values(layout=MOVED, **NEW))
        db.execute(insert(moves).values(is_target=1, **row))
    return identifier, False


def _refusal(db: Connection, here: _Database, name: str) -> str:
    """Return the reason why a database that already has a history cannot take another one."""
    if trouble := elsewhere(db, name):
        return trouble
    both, count, place = list[str](), 0, ("", "")
    while found := _page(db, documents, place):
        place, count = _place(documents, found[-1]), count + len(found)
        is_done = documents.c.entry == Entry.COMPLETED
        places = [_place(documents, row) for row in found if row["entry"] == Entry.COMPLETED]
        with here.read() as ours:
            for wanted in same_scope(places):
                keys = ours.execute(select(documents.c.scope, documents.c.key).where(wanted, is_done))
                both += [f"{scope} {key}" for scope, key in keys]
    named = f"{', '.join(both[:NAMED])}{', ...' * (len(both) > NAMED)}"
    doubled = f", of which {len(both):,} are completed in both ({named})" if both else ""
    return f"{name}: it has {count:,} documents of its own{doubled}: name a database that has no history"


def _bring(here: _Database, there: _Database, identifier: str) -> None:
    """Copy in batches the rows that have not changed since the move began.

    Store the place of the last row with each batch.
    """
    columns = moves.c.id, moves.c.part, moves.c.scope, moves.c.key
    with there.begun() as db:
        at = dict(db.execute(select(*columns)).mappings().one())
    while at["part"] < len(PARTS):
        table = PARTS[at["part"]]
        with here.read() as db:
            rows = _page(db, table, (at["scope"], at["key"]), not_(_is_noted(table)))
        after = at | BEGINNING | {"part": at["part"] + 1}
        if len(rows) == BATCH:
            scope, key = _place(table, rows[-1])
            after = at | {"scope": scope, "key": key}
        with there.begun() as db:
            _put(db, table, rows)
            is_ours = and_(*(column == at[column.name] for column in columns), moves.c.id == identifier)
            if not db.execute(update(moves).where(is_ours).values(after)).rowcount:
                raise HistoryError(TWICE)
        at = after


def _bring_changes(db: Connection, there: _Database, identifier: str) -> int:
    """Copy some of the changed rows, and return their number.

    The note about each change is deleted once its row is copied.
    """
    if db.execute(select(moves.c.id).with_for_update()).scalar_one() != identifier:
        raise HistoryError(TWICE)
    noted = db.execute(select(changed).order_by(changed.c.number).limit(BATCH)).all()
    if not noted:
        return 0
    places = {(row.scope, row.key) for row in noted}
    with there.begun() as other:
        for table in PARTS:
            mine = {place for place in places if bool(place[0]) == (table is documents)}
            is_one_of = same_scope(mine) if table is documents else [hooks.c.id.in_([key for _, key in mine])]
            rows = [
                dict(row)
                for wanted in is_one_of
                for row in db.execute(select(table).where(wanted)).mappings()
            ]
            _put(other, table, rows)
            for place in mine - {_place(table, row) for row in rows}:
                keys = table.primary_key.columns
                is_it = and_(
                    *(column == text for column, text in zip(keys, place[-len(keys) :], strict=True))
                )
                other.execute(delete(table).where(is_it))
    db.execute(delete(changed).where(changed.c.number.in_([row.number for row in noted])))
    return len(noted)


def _bring_rest(db: Connection, other: Connection, name: str) -> None:
    """Copy the few rows that programs change all the time.

    After that, either the move is complete or nothing has changed.
    """
    _put(other, leaders, [dict(row) for row in db.execute(select(leaders)).mappings()])
    own = dict(db.execute(select(layouts)).mappings().one())
    other.execute(update(layouts).values(own | {"layout": MOVED}))
    if _counts(db) != _counts(other):
        raise HistoryError(f"{name}: it has not all that it should have: delete it, and copy anew")


def _page(
    db: Connection, table: Table, after: _Place, *conditions: ColumnElement[bool]
) -> list[dict[str, Any]]:
    """Return the next rows in the order of their keys, which does not depend on the database's collation."""
    keys = table.primary_key.columns
    is_later = tuple_(*keys) > tuple_(*map(literal, after[-len(keys) :]))
    found = select(table).where(is_later, *conditions).order_by(*keys).limit(BATCH)
    return [dict(row) for row in db.execute(found).mappings()]


def _is_noted(table: Table) -> ColumnElement[bool]:
    scope, key = (table.c.scope, table.c.key) if table is documents else (literal(""), table.c.id)
    return exists().where(changed.c.scope == scope, changed.c.key == key)


def _place(table: Table, row: Mapping[str, Any]) -> _Place:
    return (row["scope"], row["key"]) if table is documents else ("", row["id"])


def _put(db: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as they are, and replace rows with the same keys."""
    if rows:
        insertion = sqlite.insert(table) if db.dialect.name == "sqlite" else postgresql.insert(table)
        changes = {
            column.name: insertion.excluded[column.name] for column in table.columns if not column.primary_key
        }
        keys = list(table.primary_key.columns)
        db.execute(insertion.on_conflict_do_update(index_elements=keys, set_=changes), rows)


def _counts(db: Connection) -> dict[str, int]:
    return {
        name: db.execute(select(func.count()).select_from(table)).scalar_one()
        for name, table in (("documents", documents), ("hooks", hooks))
    }


def _watch(db: Connection) -> None:
    """Make the database note all rows that any program changes from now on."""
    for table in PARTS:
        row = "{0}.scope, {0}.key" if table is documents else "'', {0}.id"
        note = f"INSERT INTO {changed.name} (scope, key) VALUES"
        if db.dialect.name == "sqlite":
            for deed, which in DEEDS.items():
                db.exec_driver_sql(
                    f"CREATE TRIGGER {table.name}_{deed} AFTER {deed} ON {table.name} "
                    f"BEGIN {note} ({row.format(which)}); END"
                )
            continue
        # As the user who copies: those who write documents need not be allowed to write notes.
        db.exec_driver_sql(
            f"CREATE FUNCTION {table.name}_noted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
            f"SET search_path FROM CURRENT AS $$ BEGIN IF TG_OP = 'DELETE' THEN {note} ({row.format('OLD')}); "
            f"ELSE {note} ({row.format('NEW')}); END IF; RETURN NULL; END $$"
        )
        db.exec_driver_sql(
            f"CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON {table.name} "
            f"FOR EACH ROW EXECUTE FUNCTION {table.name}_noted()"
        )


def _fence(db: Connection, mode: str = "ACCESS EXCLUSIVE") -> None:
    """Lock the tables against changes by others.

    On PostgreSQL, the default mode also locks them against reads.
    """
    claim(db)
    if db.dialect.name != "sqlite":
        _wait(db)
        # In the order in which documents.py has them, so that nobody waits in a circle.
        tables = f"{leaders.name}, {documents.name}, {hooks.name}"
        db.exec_driver_sql(f"LOCK TABLE {tables} IN {mode} MODE")


def _wait(db: Connection) -> None:
    """Keep the server from ending this transaction while it is idle."""
    db.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")


def _withdraw(db: Connection) -> None:
    """Stop all programs from using the history in this place; its tables are kept under other names."""
    for table in PARTS:
        if db.dialect.name != "sqlite":
            db.exec_driver_sql(f"DROP FUNCTION {table.name}_noted CASCADE")
        else:
            for deed in DEEDS:
                db.exec_driver_sql(f"DROP TRIGGER {table.name}_{deed}")
    changed.drop(db)
    for table in (*PARTS, leaders):
        for index in table.indexes:
            index.drop(db)  # Else a mqproto of before fails to make its own, and not by the layout.
        db.exec_driver_sql(f"ALTER TABLE {table.name} RENAME TO {table.name}_moved")
    db.execute(update(layouts).values(layout=MOVED))

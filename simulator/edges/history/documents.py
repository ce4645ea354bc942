"""The documents of a history, and the only statement that changes them.

A row is a document: the state of a message, under an identifier that stays the same over all its retries. Simultaneous
calls share one transaction with one flush. One statement changes all their documents, in the order of their keys, so
two processes that use the same database never deadlock. All of this blocks, so history.py calls it in a thread.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    Insert,
    and_,
    case,
    insert,
    literal_column,
    not_,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.base.storeerrors import primary_code
from mqproto.simulator.edges.history.databases import (
    BUSY_S,
    address_of,
    claim,
    driver_of,
    engine_for,
    name_of,
    parsed,
)
from mqproto.simulator.edges.history.errors import HistoryError, explained
from mqproto.simulator.edges.history.forgetting import DateWatch, OwnTime, forget, passed_s, same_scope
from mqproto.simulator.edges.history.leaders import Election, FencedError, Leader, everyone, fenced, held
from mqproto.simulator.edges.history.lives import HistorySeen, see_that_it_lacks_none
from mqproto.simulator.edges.history.outbox import Hook, OutboxWork, Posting, Tell, expire, posted
from mqproto.simulator.edges.history.sqlitefile import SqliteFile
from mqproto.simulator.edges.history.tables import (
    KEEP_S,
    LAYOUT,
    NEW,
    STARTED,
    documents,
    elsewhere,
    layouts,
    located,
    metadata,
    migrate,
)

EXPIRE_EVERY_S: Final = 10.0
"""The minimum number of seconds until old documents are deleted again, once none are left.

While some are left, each transaction deletes more of them.
"""
BUSY_PAUSE_S: Final = 0.02

CONSTANTS: Final[dict[Entry, ColumnElement[str]]] = {entry: literal_column(f"'{entry}'") for entry in Entry}
"""The values that are literals in the statement.

When they were parameters, which are filled in for each row, they took half of the statement's time.
"""


class Record(NamedTuple):
    """What the history knows about a document.

    owner: the name of the gateway or trigger that started it.
    attempts: the number of times that the document was begun, which is known even for an ABSENT document.
    outcome: the outcome that `finish` stored last. After FAILED_FOR_NOW, it is the doubt and, if the trigger gave up
        the message, a second line that says why.
    origin: as in `Begin`.
    """

    entry: Entry
    owner: str
    attempts: int
    outcome: bytes
    origin: str = ""

    @property
    def is_in_doubt(self) -> bool:
        """Whether it is unknown if the message was processed."""
        return self.entry is Entry.STARTED or (self.entry is Entry.ABSENT and bool(self.doubt))

    @property
    def doubt(self) -> str:
        """Why its message may have been processed, while it is ABSENT or STARTED; empty for no reason."""
        return self.outcome.decode("utf-8", "replace").partition("\n")[0]


@dataclass(frozen=True, slots=True, eq=False)
class Begin:
    """Start a document if it is absent.

    ticket: a number, not 0, that is unique to this call. If the answer is lost, the call is repeated with the same
        number.
    epoch: the epoch of the leader that makes the call (leaders.py); 0 without a leader.
    origin: the origin of the document's message (lives.py); empty if unknown.
    """

    scope: str
    key: str
    owner: str
    ticket: int
    epoch: int = 0
    origin: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Finish:
    """Record how a document ended.

    ticket: the ticket with which the document was begun; 0 if unknown. A document that another caller began is never
        made absent.
    epoch: as in `Begin`.
    """

    scope: str
    key: str
    ticket: int
    entry: Entry
    outcome: bytes
    epoch: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class LookUp:
    """Look up a document."""

    scope: str
    key: str


@dataclass(frozen=True, slots=True, eq=False)
class StartedBy:
    """Ask for the documents that an owner has started but not yet finished."""

    scope: str
    owner: str


@dataclass(frozen=True, slots=True, eq=False)
class Reopen:
    """Make a started or failed document absent, and forget its attempts.

    origin: if not empty, a completed document is reopened, too, if its message has this origin.
    """

    scope: str
    key: str
    origin: str = ""


Insertion: TypeAlias = sqlite.Insert | postgresql.Insert
Change: TypeAlias = Begin | Finish
Call: TypeAlias = Change | LookUp | StartedBy | Reopen | Election | Posting
Answer: TypeAlias = Record | list[str] | Leader | Hook | OutboxWork | FencedError | None
"""The possible answers to a call.

Begin and LookUp get a Record, StartedBy a list, BecomeLeader and WhoLeads a Leader, Find a Hook or None, and Due an
OutboxWork. A former leader gets a FencedError; all other calls get None.
"""

UNKNOWN: Final = Record(Entry.ABSENT, "", 0, b"")
GIVE_WAY: Final = {
    Entry.STARTED: (Entry.ABSENT,),
    Entry.ABSENT: (Entry.STARTED,),
    Entry.FAILED: (Entry.ABSENT, Entry.STARTED),
    Entry.COMPLETED: (Entry.ABSENT, Entry.STARTED, Entry.FAILED),
}
"""The earlier entries that each new entry replaces.

A completed document keeps its entry and its first outcome.
"""


class Documents:
    """The documents of one database.

    Args:
        url: see databases.py.
        keep_s: how long all users of the history keep an entry after its last change; None for the history's own
            setting. A started document is kept until it ends.
        clock: returns the time in seconds since 1970, which is used only for display.
        passed_s: returns the number of seconds that have passed.
        warn: called with a warning if the clock is wrong.
        seen: what a gateway's node has last seen of its history; None without a gateway.
        only_reads: whether nothing is written; the disk may be full or read-only.

    Raises:
        UsageError: `url` is not such a URL.
        HistoryError: the database is not available, belongs to another program or another version of mqproto, or lacks
            ids of this gateway.
    """

    def __init__(
        self,
        url: str,
        keep_s: float | None,
        clock: Callable[[], float] = time.time,
        passed_s: Callable[[], float] = passed_s,
        warn: Callable[[str], None] = lambda trouble: None,
        seen: HistorySeen | None = None,
        *,
        only_reads: bool = False,
    ) -> None:
        where = parsed(url)
        self._only_reads = only_reads
        self._address = address_of(where)
        self._life, self._known = "", seen
        self.name = name_of(where)
        """The name that errors use for the database."""
        self._chosen_s = keep_s
        self.keep_s = KEEP_S
        """How long ended documents are kept."""
        self._clock = clock
        self._passed_s = passed_s
        self._own_time = OwnTime(passed_s)
        self._dates = DateWatch(clock, passed_s, warn)
        self._expire_at_s = passed_s()
        self._engine = engine_for(where, only_reads=only_reads)
        self.is_here = self._engine.dialect.name == "sqlite"
        """Whether the database is a file on this machine, not a server.

        A file's transactions take little longer than its flushes.
        """
        self._change = change_statement(
            sqlite.insert(documents) if self.is_here else postgresql.insert(documents)
        )
        self._file = SqliteFile(self._engine, self._change) if self.is_here else None
        try:
            with explained(self.name):
                self._set_up()
        except BaseException:
            self._engine.dispose()
            raise

    def close(self) -> None:
        """Release the database. Everything that was acknowledged is already on disk."""
        with suppress(DBAPIError, HistoryError):
            with self._begun(at_once=False) as db:
                if db.execute(select(layouts.c.layout)).scalar_one() != LAYOUT or self._only_reads:
                    raise HistoryError("its time goes on where it was moved to, or with who writes")
                self._own_time.look(db, every_s=0)
                self._own_time.move(db)
            self._own_time.kept()
        self._hang_up()
        self._engine.dispose()

    @property
    def seen(self) -> HistorySeen:
        """Return the facts about the history that the store of a gateway's node is to keep."""
        return HistorySeen(self._life, self._own_time.seen_s)

    def everything(
        self, scope: str, keys: Collection[str] = (), about: str = ""
    ) -> Iterator[tuple[str, str, Record]]:
        """Yield all documents in scopes with this prefix, as (scope, key, record), in any order.

        They may change while they are read.

        Args:
            keys: only documents with one of these keys; empty for all.
            about: only documents whose key is this text, with or without a producer's name, or whose outcome contains
                it.

        Raises:
            HistoryError: the database cannot be read.
        """
        table = documents.c
        columns = table.scope, table.key, table.entry, table.owner, table.attempts, table.outcome
        found = select(*columns).where(table.scope.startswith(scope, autoescape=True))
        if keys:
            found = found.where(table.key.in_(keys))
        if about:
            said = json.dumps(about).encode()
            is_in = "instr(outcome, :said) > 0" if self.is_here else "position(:said in outcome) > 0"
            named = table.key.endswith(f"/{about}", autoescape=True)
            found = found.where(or_(table.key == about, named, text(is_in).bindparams(said=said)))
        with self._read() as db:
            for place, key, entry, owner, attempts, outcome in db.execute(
                found.execution_options(yield_per=1_000)
            ):
                yield place, key, Record(Entry(entry), owner, attempts, outcome)

    def leaders(self, scope: str) -> list[tuple[str, Leader]]:
        """Return the leaders of all scopes with this prefix.

        Raises:
            HistoryError: the database cannot be read.
        """
        with self._read() as db:
            return everyone(db, scope)

    def looked(self, calls: Sequence[LookUp]) -> list[Record]:
        """Return the records of these documents without writing anything.

        Raises:
            HistoryError: the database cannot be read.
        """
        with self._read() as db:
            return [*self._looked(db, calls).values()]

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        """Yield a connection in a read transaction that neither blocks writers nor is blocked by them.

        Raises:
            HistoryError: the database cannot be read.
        """
        self._hang_up()
        with located(self.name, self._engine), self._engine.connect() as db:
            if self.is_here:
                driver_of(db).execute("BEGIN").close()  # Which SQLAlchemy's joins.
            yield db

    def carry_out(self, calls: Sequence[Call]) -> list[Answer | MqprotoError]:
        """Carry out all calls, and return the answer or the error of each.

        Their changes are on disk when this returns.

        The calls count as simultaneous, so they may be carried out in any order.
        """
        try:
            with located(self.name, self._engine):
                return [*self._carried_out(calls)]
        except UsageError as error:
            # One of them holds what this database cannot keep. The others do not suffer for it.
            if len(calls) == 1:
                return [error]
            return [answer for call in calls for answer in self.carry_out([call])]
        except HistoryError as error:
            self._hang_up()
            self._engine.dispose()  # Whatever state the connection is in, the next call has a new one.
            return [error] * len(calls)

    def carry_out_at_once(self, calls: Sequence[Call]) -> list[Answer | MqprotoError] | None:
        """Do the same as `carry_out` if that takes no longer than a flush of this machine's disk.

        Return None if it may take longer, or if it failed. The calls can then be repeated without harm.
        """
        if not self.is_here:
            return None
        try:
            return [*self._transaction(calls, at_once=True)]
        except (DBAPIError, HistoryError):
            return None

    def _carried_out(self, calls: Sequence[Call]) -> list[Answer]:
        try:
            return self._transaction(calls)
        except DBAPIError as error:
            if self._file is not None and self._file.begins_anew(error):
                if len(calls) > 1:  # Room that is too small for all of them may do for one after the other.
                    return [answer for call in calls for answer in self._carried_out([call])]
            elif not error.connection_invalidated:
                raise
        # The connection is gone, perhaps since long ago. Whether the transaction was committed or not, the same calls
        # do no harm when they are carried out again: by its ticket each knows what it did itself.
        return self._transaction(calls)

    def _begun(self, *, at_once: bool) -> AbstractContextManager[Connection]:
        if self._file is None:
            return self._engine.begin()
        return self._file.transaction(0.0 if at_once else BUSY_S)

    def _hang_up(self) -> None:
        if self._file is not None:
            self._file.hang_up()

    def _transaction(self, calls: Sequence[Call], *, at_once: bool = False) -> list[Answer]:
        self._expire(at_once=at_once)
        answers: dict[Call, Answer] = {}
        with self._begun(at_once=at_once) as db:
            now_s = self._own_time.look(db)
            self._dates.look()
            # Leaders come first: no two processes wait for each other in a circle, and who is none writes nothing.
            elections = (call for call in calls if isinstance(call, Election))
            for election in sorted(elections, key=lambda call: call.scope):
                answers[election] = held(db, election, self._clock())
            changes = [call for call in calls if isinstance(call, Begin | Finish)]
            led = [call for call in calls if isinstance(call, Begin | Finish | Tell)]
            refused = fenced(db, ((call.scope, call.epoch) for call in led))
            for one in led:
                if (one.scope, one.epoch) in refused:
                    answers[one] = refused[one.scope, one.epoch]
            for call in calls:
                if isinstance(call, Reopen):
                    self._reopen(db, call, now_s)
            for together in rounds(change for change in changes if change not in answers):
                answers |= self._changed(db, together, now_s)
            asked = [call for call in calls if isinstance(call, Begin | LookUp) and call not in answers]
            answers |= self._looked(db, asked)
            answers |= {call: self._started_by(db, call) for call in calls if isinstance(call, StartedBy)}
            for call in calls:
                if isinstance(call, Posting) and call not in answers:
                    answers[call] = posted(db, call, now_s, self._clock())
            self._own_time.move(db)
        return [answers.get(call) for call in calls]

    def _changed(self, db: Connection, calls: Sequence[Change], now_s: float) -> dict[Call, Answer]:
        """Carry out changes to different documents. Return the answers for the documents that were begun."""
        date_s = self._clock()
        rows = [_row(call, now_s, date_s) for call in calls]
        changed = db.execute(self._change, rows) if self._file is None else self._file.change(rows)
        begun = {
            (scope, key): Record(Entry.ABSENT, "", count - 1, outcome)
            for scope, key, count, outcome in changed
        }
        return {
            call: begun[call.scope, call.key]
            for call in calls
            if isinstance(call, Begin) and (call.scope, call.key) in begun
        }

    def _looked(self, db: Connection, calls: Sequence[Begin | LookUp]) -> dict[Call, Record]:
        table, records = documents.c, {}
        for wanted in same_scope((call.scope, call.key) for call in calls):
            found = db.execute(
                select(
                    table.scope,
                    table.key,
                    table.entry,
                    table.owner,
                    table.attempts,
                    table.outcome,
                    table.origin,
                ).where(wanted)
            )
            for scope, key, entry, *rest in found:
                records[scope, key] = Record(Entry(entry), *rest)
        return {call: records.get((call.scope, call.key), UNKNOWN) for call in calls}

    def _reopen(self, db: Connection, call: Reopen, now_s: float) -> None:
        table = documents.c
        is_open = table.entry != CONSTANTS[Entry.COMPLETED]
        if call.origin:
            is_open = or_(is_open, table.origin == call.origin)
        here = and_(table.scope == call.scope, table.key == call.key, is_open)
        changes = {"entry": Entry.ABSENT.value, "owner": "", "attempts": 0, "ticket": 0, "outcome": b""}
        changed = {"changed_s": self._clock(), "aged_s": now_s}
        db.execute(update(documents).where(here).values(**changed, **changes))

    def _started_by(self, db: Connection, call: StartedBy) -> list[str]:
        table = documents.c
        keys = select(table.key).where(STARTED, table.owner == call.owner, table.scope == call.scope)
        return sorted(db.execute(keys).scalars())

    def _expire(self, *, at_once: bool) -> None:
        """From time to time, delete documents that are too old, but only a limited number each time.

        This is a separate transaction, and skips rows that others have locked, so it blocks nobody.
        """
        if self._passed_s() < self._expire_at_s:
            return
        with self._begun(at_once=at_once) as db:
            now_s = self._own_time.look(db)
            self.keep_s = db.execute(select(layouts.c.keep_s)).scalar() or self.keep_s
            is_all = forget(db, self.keep_s, now_s)
            expire(db, now_s - self.keep_s)
            self._own_time.move(db)
        if self._file is not None:
            self._file.keep_room(self.name)
        if is_all:
            self._expire_at_s = self._passed_s() + EXPIRE_EVERY_S

    def forgotten(self) -> tuple[int, float]:
        """Return how many accepted messages of gateways were forgotten, and the time of the most recent change to any
        of them.

        Raises:
            HistoryError: the database cannot be read.
        """
        with self._read() as db:
            count, last_s = db.execute(select(layouts.c.forgotten, layouts.c.forgotten_s)).one()
        return count, last_s

    def _set_up(self) -> None:
        """Make the tables if there are none, and check that they have the current layout."""
        deadline_s = time.monotonic() + BUSY_S
        while True:
            try:
                with self._read() if self._only_reads else self._engine.begin() as db:
                    self._check_layout(db)
                    return
            except DBAPIError as error:
                # When several processes open a new file at once, SQLite sends all but one away without a wait.
                is_busy = error.orig is not None and primary_code(error.orig) == sqlite3.SQLITE_BUSY
                is_full = self._file is not None and self._file.begins_anew(error)
                if not (is_busy or is_full) or time.monotonic() > deadline_s:
                    raise
                deadline_s = 0.0 if is_full else deadline_s  # Whether it begins anew shows at once.
            time.sleep(BUSY_PAUSE_S)

    def _check_layout(self, db: Connection) -> None:
        if not self._only_reads:
            claim(db)
        if trouble := elsewhere(db, self.name):
            raise HistoryError(trouble)
        if not self._only_reads:
            metadata.create_all(db)
        found = db.execute(select(layouts.c.layout)).scalars().all()
        if self._only_reads and found == [2]:
            raise HistoryError(
                f"{self.name}: an older mqproto made it: a gateway or trigger renews it: start one"
            )
        if not found:
            db.execute(insert(layouts).values(layout=LAYOUT, **NEW))
        elif found == [2]:
            migrate(db)
        elif found != [LAYOUT]:
            raise HistoryError(
                f"{self.name}: it has layout {found[0]}, and this mqproto knows {LAYOUT}: use the mqproto that made it"
            )
        self._life = db.execute(select(layouts.c.life)).scalar_one()
        if self._known is not None:
            see_that_it_lacks_none(db, self._known, self._address)
        if self._chosen_s is not None:
            db.execute(update(layouts).values(keep_s=self._chosen_s))
        self.keep_s = db.execute(select(layouts.c.keep_s)).scalar_one()
        self._own_time.look(db, every_s=0)
        if not self._only_reads:
            self._own_time.move(db)
        self._dates.compare(db)


def change_statement(insertion: Insertion) -> Insert:
    """Return a statement that inserts each row, or replaces the existing entry if the new one may do so.

    The statement returns the scope, key, attempts and outcome of each row that it inserts or changes. A document that
    is begun keeps its outcome.
    """
    old, new = documents.c, insertion.excluded
    is_begun, is_absent = new.entry == CONSTANTS[Entry.STARTED], new.entry == CONSTANTS[Entry.ABSENT]
    gives_way = or_(
        *(
            and_(new.entry == CONSTANTS[after], or_(*(old.entry == CONSTANTS[before] for before in entries)))
            for after, entries in GIVE_WAY.items()
        )
    )
    is_theirs = and_(is_absent, new.ticket != 0, new.ticket != old.ticket)
    is_repeated = and_(is_begun, old.entry == CONSTANTS[Entry.STARTED], new.ticket == old.ticket)
    changes = {
        "entry": new.entry,
        "owner": case((is_begun, new.owner), (is_absent, ""), else_=old.owner),
        "attempts": old.attempts + case((and_(is_begun, old.entry == CONSTANTS[Entry.ABSENT]), 1), else_=0),
        "ticket": new.ticket,
        "changed_s": new.changed_s,
        "aged_s": new.aged_s,
        "outcome": case((is_begun, old.outcome), else_=new.outcome),
        "origin": case((is_begun, new.origin), else_=old.origin),
    }
    return insertion.on_conflict_do_update(
        index_elements=[old.scope, old.key],
        set_=changes,
        where=or_(and_(gives_way, not_(is_theirs)), is_repeated),
    ).returning(old.scope, old.key, old.attempts, old.outcome)


def rounds(calls: Iterator[Change]) -> Iterator[list[Change]]:
    """Yield the changes in rounds.

    In each round, each document occurs at most once, and keys are in order.

    If one change ends a document and another begins it, the one that ends it comes first. So if the document cannot be
    begun, the caller learns the reason.
    """
    left = sorted(calls, key=lambda call: (call.scope, call.key, isinstance(call, Begin)))
    while left:
        first = {(call.scope, call.key): call for call in reversed(left)}
        yield [*reversed(first.values())]
        left = [call for call in left if first[call.scope, call.key] is not call]


def _row(call: Change, now_s: float, date_s: float) -> dict[str, object]:
    """Return the row that a change inserts if there is no document yet."""
    return {
        "scope": call.scope,
        "key": call.key,
        "entry": (Entry.STARTED if isinstance(call, Begin) else call.entry).value,
        "owner": call.owner if isinstance(call, Begin) else "",
        "attempts": 1,
        "ticket": call.ticket,
        "changed_s": date_s,
        "aged_s": now_s,
        "outcome": b"" if isinstance(call, Begin) else call.outcome,
        "origin": call.origin if isinstance(call, Begin) else "",
    }

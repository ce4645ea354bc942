"""What is too old is forgotten: an id that comes again afterwards is a new one. How many ids were, is kept.

How old something is, only the history's own time says: the seconds in which some program had it open. A clock that is
wrong, or jumps, forgets nothing, and what nobody has open ages not at all.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, case, delete, func, select, update

from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.edges.history.errors import HistoryError
from mqproto.simulator.edges.history.tables import BEGINS_S, NOT_STARTED, documents, layouts

FORGET_ROWS: Final = 1_000
"""How many at a time."""
GATEWAY: Final = "gateway/"
TRIGGER: Final = "trigger/"
"""What the scopes begin with of ids that came by HTTP, and of what was delivered under the same ids."""

MOVED_EVERY_S: Final = 1.0
"""How often the history hears how far its time has come."""
LEAP_S: Final = 600.0
"""By more it is never moved at once, as a machine's clock may leap when it is resumed."""

TOLERANCE_S: Final = 60.0
HARMLESS: Final = "no id is forgotten by that, but see that it is right, as people read dates"

_Place = tuple[str, str]


def passed_s() -> float:
    """The seconds that have passed since the machine was started, also while it slept; no date is in it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class OwnTime:
    """The time of a history, as one of the programs knows it that have it open.

    Each moves it on by what has passed since it did so last, so two that do so at once do not count twice.

    Args:
        passed_s: counts the seconds that pass, from anywhere.
    """

    def __init__(self, passed_s: Callable[[], float]) -> None:
        self._passed_s = passed_s
        self._now_s, self._at_s = BEGINS_S, passed_s()
        self._is_moved = False
        self.seen_s = 0.0
        """How far the database has it for certain."""

    @property
    def now_s(self) -> float:
        """What it is now."""
        return self._now_s + min(self._passed_s() - self._at_s, LEAP_S)

    def look(self, db: Connection, *, every_s: float = MOVED_EVERY_S) -> float:
        """What it is now, by all who have moved it, if the last look was so long ago. `move` has to follow.

        Raises:
            HistoryError: it has gone back.
        """
        if self._passed_s() - self._at_s >= every_s:
            theirs_s = db.execute(select(layouts.c.now_s)).scalar_one()
            if theirs_s < self.seen_s:
                raise HistoryError("the history was put back while it was used: start this program again")
            self.seen_s = theirs_s
            self._now_s, self._at_s = max(self.now_s, theirs_s), self._passed_s()
            self._is_moved = True
        return self.now_s

    def move(self, db: Connection) -> None:
        """Keep how far it has come: at the end of a transaction, as all who want to wait for each other here."""
        if self._is_moved:
            is_behind = layouts.c.now_s < self._now_s
            db.execute(update(layouts).where(is_behind).values(now_s=self._now_s))
            self._is_moved = False

    def kept(self) -> None:
        """The transaction of the last move has been committed."""
        self.seen_s = self._now_s


class DateWatch:
    """Looks whether a clock may be trusted: dates are shown, and nothing depends on them.

    Args:
        clock: Unix time.
        passed_s: as of OwnTime.
        warn: is told in one line what is wrong.
    """

    def __init__(
        self, clock: Callable[[], float], passed_s: Callable[[], float], warn: Callable[[str], None]
    ) -> None:
        self._clock, self._passed_s, self._warn = clock, passed_s, warn
        self._ahead_s = clock() - passed_s()

    def look(self) -> None:
        """Has it been set since the last look?"""
        moved_s = self._clock() - self._passed_s() - self._ahead_s
        if abs(moved_s) > TOLERANCE_S:
            self._ahead_s += moved_s
            self._warn(f"the clock was set, by {moved_s:+,.0f} s: {HARMLESS}")

    def compare(self, db: Connection) -> None:
        """Is it behind what the history has, or not what its server has?"""
        off_s = min(0.0, self._clock() - newest_s(db))
        if db.dialect.name != "sqlite":
            server_s = float(db.execute(select(func.extract("epoch", func.now()))).scalar_one())
            off_s = max(off_s, self._clock() - server_s, key=abs)
        if abs(off_s) > TOLERANCE_S:
            self._warn(f"the clock is {off_s:+,.0f} s off what the document history has: {HARMLESS}")


def newest_s(db: Connection) -> float:
    """The date of what ended last, in Unix time; 0 if nothing has."""
    newest = select(documents.c.changed_s).where(NOT_STARTED).order_by(documents.c.aged_s.desc()).limit(1)
    return db.execute(newest).scalar() or 0.0


def forget(db: Connection, keep_s: float, now_s: float) -> bool:
    """Delete what has not changed for so long, and not too much of it; whether that was all.

    What others have locked is left out, so it holds up nobody.
    """
    table, since_s = documents.c, now_s - keep_s
    oldest = (
        select(table.scope, table.key, table.entry, table.changed_s)
        .where(NOT_STARTED, table.aged_s <= since_s)
        .order_by(table.aged_s)
        .limit(FORGET_ROWS)
        .with_for_update(skip_locked=True)
    )
    found = {(scope, key): (entry, changed_s) for scope, key, entry, changed_s in db.execute(oldest)}
    delivered = _delivered_later(db, found, since_s, now_s)
    for (scope, key), aged_s in delivered.items():
        here = and_(table.scope == scope, table.key == key)
        db.execute(update(documents).where(here).values(aged_s=aged_s))
    gone = found.keys() - delivered.keys()
    for these in same_scope(gone):
        db.execute(delete(documents).where(these))
    accepted = [
        place for place in gone if place[0].startswith(GATEWAY) and found[place][0] == Entry.COMPLETED
    ]
    _count(db, [found[place][1] for place in accepted])
    return len(found) < FORGET_ROWS


def _delivered_later(
    db: Connection, found: Iterable[_Place], since_s: float, now_s: float
) -> dict[_Place, float]:
    """Of these ids, those under which something was delivered that is not forgotten yet, and when that was.

    An id is remembered as long as that: else its producer could use it again, and the message would be taken for one
    that was delivered.
    """
    delivered_as = {
        (TRIGGER + scope.removeprefix(GATEWAY), key): (scope, key)
        for scope, key in found
        if scope.startswith(GATEWAY)
    }
    table, later = documents.c, {}
    for wanted in same_scope(delivered_as):
        rows = db.execute(select(table.scope, table.key, table.entry, table.aged_s).where(wanted))
        for scope, key, entry, aged_s in rows:
            if entry == Entry.STARTED or aged_s > since_s:
                later[delivered_as[scope, key]] = now_s if entry == Entry.STARTED else aged_s
    return later


def _count(db: Connection, changed_s: Collection[float]) -> None:
    """Keep how many were forgotten that gateways had accepted."""
    if changed_s:
        last_s = max(changed_s)
        newest = case((layouts.c.forgotten_s > last_s, layouts.c.forgotten_s), else_=last_s)
        db.execute(update(layouts).values(forgotten=layouts.c.forgotten + len(changed_s), forgotten_s=newest))


def same_scope(places: Iterable[_Place]) -> Iterator[ColumnElement[bool]]:
    """Conditions, one for each scope, that find these documents by the index; SQLite takes none for a list of pairs."""
    keys_of = defaultdict[str, set[str]](set)
    for scope, key in places:
        keys_of[scope].add(key)
    for scope, keys in keys_of.items():
        yield and_(documents.c.scope == scope, documents.c.key.in_(keys))

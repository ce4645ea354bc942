"""Forgets old documents.

An id that is used again after that counts as new. The number of forgotten ids is kept.

Age is measured only by the history's own time: the seconds in which some program had it open. So a wrong or jumping
clock never makes it forget anything, and a history that nobody has open does not age.
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
"""The maximum number of documents that are forgotten at a time."""
GATEWAY: Final = "gateway/"
TRIGGER: Final = "trigger/"
"""The prefixes of scopes: one for ids that arrived over HTTP, and one for deliveries under the same ids."""

MOVED_EVERY_S: Final = 1.0
"""After this many seconds, a program's next transaction updates the history's own time.

The time is in the database. A program also updates it when it opens or closes the history.
"""
LEAP_S: Final = 600.0
"""The maximum number of seconds that one update adds. A machine's clock may leap when the machine is resumed."""

TOLERANCE_S: Final = 60.0
HARMLESS: Final = "no id is forgotten by that, but see that it is right, as people read dates"

_Place = tuple[str, str]


def passed_s() -> float:
    """Return the number of seconds since the machine started, including sleep.

    The date has no influence on it.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class OwnTime:
    """A history's own time, as seen by one of the programs that have the history open.

    Each program adds only the time since the last update, by whichever program, so that no time is counted twice.

    Args:
        passed_s: returns the number of seconds that have passed since any starting point.
    """

    def __init__(self, passed_s: Callable[[], float]) -> None:
        self._passed_s = passed_s
        self._now_s, self._at_s = BEGINS_S, passed_s()
        self._is_moved = False
        self.seen_s = 0.0
        """The latest time that is certain to be in the database."""

    @property
    def now_s(self) -> float:
        """Return the current time of the history's own clock."""
        return self._now_s + min(self._passed_s() - self._at_s, LEAP_S)

    def look(self, db: Connection, *, every_s: float = MOVED_EVERY_S) -> float:
        """Return the history's own time.

        If the last look was at least `every_s` ago, read it from the database first. After such a read, `move` must be
        called.

        Raises:
            HistoryError: the time has gone backward.
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
        """Write the current time.

        Do this at the end of a transaction, because all writers wait for each other at this row.
        """
        if self._is_moved:
            is_behind = layouts.c.now_s < self._now_s
            db.execute(update(layouts).where(is_behind).values(now_s=self._now_s))
            self._is_moved = False

    def kept(self) -> None:
        """Record that the transaction of the last `move` has been committed."""
        self.seen_s = self._now_s


class DateWatch:
    """Checks whether a clock can be trusted. Nothing depends on dates; they are only shown.

    Args:
        clock: returns Unix time.
        passed_s: as in OwnTime.
        warn: called with one line that says what is wrong.
    """

    def __init__(
        self, clock: Callable[[], float], passed_s: Callable[[], float], warn: Callable[[str], None]
    ) -> None:
        self._clock, self._passed_s, self._warn = clock, passed_s, warn
        self._ahead_s = clock() - passed_s()

    def look(self) -> None:
        """Warn if the clock has been set since the last look."""
        moved_s = self._clock() - self._passed_s() - self._ahead_s
        if abs(moved_s) > TOLERANCE_S:
            self._ahead_s += moved_s
            self._warn(f"the clock was set, by {moved_s:+,.0f} s: {HARMLESS}")

    def compare(self, db: Connection) -> None:
        """Warn if the clock is behind the dates in the history, or differs from the server's clock."""
        off_s = min(0.0, self._clock() - newest_s(db))
        if db.dialect.name != "sqlite":
            server_s = float(db.execute(select(func.extract("epoch", func.now()))).scalar_one())
            off_s = max(off_s, self._clock() - server_s, key=abs)
        if abs(off_s) > TOLERANCE_S:
            self._warn(f"the clock is {off_s:+,.0f} s off what the document history has: {HARMLESS}")


def newest_s(db: Connection) -> float:
    """Return the date on which a document last ended, in Unix time; 0 if none has ended."""
    newest = select(documents.c.changed_s).where(NOT_STARTED).order_by(documents.c.aged_s.desc()).limit(1)
    return db.execute(newest).scalar() or 0.0


def forget(db: Connection, keep_s: float, now_s: float) -> bool:
    """Delete a limited number of documents that have not changed for `keep_s`.

    Return whether none of these are left.

    Rows that others have locked are skipped, so this blocks nobody.
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
    """Return those ids whose deliveries are not yet forgotten, with the times of the deliveries.

    An id is kept as long as its delivery. Otherwise a producer could use it again, and the new message would count as
    already delivered.
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
    """Update the count of forgotten messages that gateways had accepted."""
    if changed_s:
        last_s = max(changed_s)
        newest = case((layouts.c.forgotten_s > last_s, layouts.c.forgotten_s), else_=last_s)
        db.execute(update(layouts).values(forgotten=layouts.c.forgotten + len(changed_s), forgotten_s=newest))


def same_scope(places: Iterable[_Place]) -> Iterator[ColumnElement[bool]]:
    """Yield conditions, one for each scope, that let the database use its index to find these documents.

    SQLite does not use an index for conditions on pairs.
    """
    keys_of = defaultdict[str, set[str]](set)
    for scope, key in places:
        keys_of[scope].add(key)
    for scope, keys in keys_of.items():
        yield and_(documents.c.scope == scope, documents.c.key.in_(keys))

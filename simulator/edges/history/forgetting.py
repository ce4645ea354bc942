"""What is too old is forgotten: an id that comes again afterwards is a new one. How many ids were, is kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, case, delete, select, update

from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.edges.history.tables import NOT_STARTED, documents, layouts

FORGET_ROWS: Final = 1_000
"""How many at a time."""
GATEWAY: Final = "gateway/"
TRIGGER: Final = "trigger/"
"""What the scopes begin with of ids that came by HTTP, and of what was delivered under the same ids."""

_Place = tuple[str, str]


def forget(db: Connection, keep_s: float, now_s: float) -> bool:
    """Delete what has not changed for so long, and not too much of it; whether that was all.

    What others have locked is left out, so it holds up nobody.
    """
    table, since_s = documents.c, now_s - keep_s
    oldest = (
        select(table.scope, table.key, table.entry, table.changed_s)
        .where(NOT_STARTED, table.changed_s <= since_s)
        .order_by(table.changed_s)
        .limit(FORGET_ROWS)
        .with_for_update(skip_locked=True)
    )
    found = {(scope, key): (entry, changed_s) for scope, key, entry, changed_s in db.execute(oldest)}
    delivered = _delivered_later(db, found, since_s, now_s)
    for (scope, key), changed_s in delivered.items():
        here = and_(table.scope == scope, table.key == key)
        db.execute(update(documents).where(here).values(changed_s=changed_s))
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

    An id is remembered as long as that: else its producer could use it anew, and the message would be taken for one
    that was delivered.
    """
    delivered_as = {
        (TRIGGER + scope.removeprefix(GATEWAY), key): (scope, key)
        for scope, key in found
        if scope.startswith(GATEWAY)
    }
    table, later = documents.c, {}
    for wanted in same_scope(delivered_as):
        rows = db.execute(select(table.scope, table.key, table.entry, table.changed_s).where(wanted))
        for scope, key, entry, changed_s in rows:
            if entry == Entry.STARTED or changed_s > since_s:
                later[delivered_as[scope, key]] = now_s if entry == Entry.STARTED else changed_s
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

"""Chooses the leader among the triggers of one queue; the others stand by.

The epoch is a fencing token: it increases with each new leader. A leader writes only in transactions that check that
its epoch is still the latest. So a leader that was stopped or cut off can no longer write once another has taken over.
An epoch is at least the Unix time, in seconds, at which it began. So nodes and consumers that know earlier epochs can
trust even the epochs of a new history.

Clocks are never compared. A leader regularly increases a number, its beat. A standby watches the beat by its own clock,
and takes over if the beat has not changed for long enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sqlalchemy import Connection, and_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from mqproto.base.errors import MqprotoError
from mqproto.simulator.edges.history.databases import driver_of
from mqproto.simulator.edges.history.tables import leaders


class FencedError(MqprotoError):
    """Another program is the leader, or was the leader in the meantime. Nothing was written."""


class Leader(NamedTuple):
    """The leader of a queue. The name is empty after a resignation, and before the first leader.

    ticket: a number that distinguishes one process from others of the same name.
    note: data that a leader keeps for its successors.
    """

    epoch: int = 0
    name: str = ""
    ticket: int = 0
    beat: int = 0
    note: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class BecomeLeader:
    """Become the leader if there is none; the answer is the current leader.

    instead: a leader to replace if it still leads with the same beat.
    """

    scope: str
    name: str
    ticket: int
    instead: Leader | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LeaderSays:
    """Show that the leader is alive, store a note for its successors, or resign.

    After a resignation, successors need not wait.

    note: the note to store; None for no note. With a note, nothing else is done: this does not show that the leader is
        alive, and `resigns` is ignored.
    """

    scope: str
    epoch: int
    note: bytes | None = None
    resigns: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class WhoLeads:
    """Ask who the leader is."""

    scope: str


Election: TypeAlias = BecomeLeader | LeaderSays | WhoLeads


def held(db: Connection, call: Election, now_s: float) -> Leader | FencedError | None:
    """Carry out a call about leaders, with `now_s` as the current time, and return its answer.

    A call that only the leader may make is answered with None, or with FencedError if anybody else makes it.
    """
    match call:
        case WhoLeads():
            return _leader(db, call.scope)
        case BecomeLeader():
            return _lead(db, call, int(now_s))
        case LeaderSays(note=None):
            changes: dict[str, object] = {
                "beat": leaders.c.beat + 1,
                **({"leader": ""} if call.resigns else {}),
            }
        case LeaderSays():
            changes = {"note": call.note}
    is_leader = and_(leaders.c.scope == call.scope, leaders.c.epoch == call.epoch)
    changed = db.execute(update(leaders).where(is_leader).values(changes))
    return None if changed.rowcount else _fenced(call.scope, call.epoch)


def fenced(db: Connection, calls: Iterable[tuple[str, int]]) -> dict[tuple[str, int], FencedError]:
    """Return an error for each pair of a scope and an epoch in `calls` if that epoch has ended.

    The other epochs cannot end before the transaction ends.
    """
    asked = {call for call in calls if call[1]}
    if not asked:
        return {}
    if db.dialect.name == "sqlite":
        # Once for each transaction; nobody else writes meanwhile. To SQLAlchemy it would be a tenth of what that takes.
        scopes = [scope for scope, _ in asked]
        marks = ", ".join("?" * len(scopes))
        sql = f"SELECT scope, epoch FROM {leaders.name} WHERE scope IN ({marks})"
        rows = driver_of(db).execute(sql, scopes).fetchall()
        return {call: _fenced(*call) for call in asked - set(rows)}
    found = (
        select(leaders.c.scope, leaders.c.epoch)
        .where(leaders.c.scope.in_({scope for scope, _ in asked}))
        .order_by(leaders.c.scope)
        .with_for_update(read=True)
    )
    now = {(scope, epoch) for scope, epoch in db.execute(found)}
    return {call: _fenced(*call) for call in asked - now}


def everyone(db: Connection, scope: str) -> list[tuple[str, Leader]]:
    """Return the leaders of all scopes with this prefix, in the order of the scopes."""
    table = leaders.c
    columns = table.scope, table.epoch, table.leader, table.ticket, table.beat, table.note
    found = select(*columns).where(table.scope.startswith(scope, autoescape=True)).order_by(table.scope)
    return [(place, Leader(*facts)) for place, *facts in db.execute(found)]


def _fenced(scope: str, epoch: int) -> FencedError:
    queue = scope.partition("/")[2] or scope
    return FencedError(f"another trigger has taken over {queue} since epoch {epoch}")


def _leader(db: Connection, scope: str, *, locks: bool = False) -> Leader:
    table = leaders.c
    found = select(table.epoch, table.leader, table.ticket, table.beat, table.note).where(
        table.scope == scope
    )
    row = db.execute(found.with_for_update() if locks else found).one_or_none()
    return Leader(*row) if row is not None else Leader()


def _lead(db: Connection, call: BecomeLeader, now_s: int) -> Leader:
    insertion = sqlite.insert(leaders) if db.dialect.name == "sqlite" else postgresql.insert(leaders)
    nobody = {"scope": call.scope, "epoch": 0, "leader": "", "ticket": 0, "beat": 0, "note": b""}
    # Of several that come first at one moment, one makes the line, and the others wait for it here.
    db.execute(insertion.values(nobody).on_conflict_do_nothing())
    old = _leader(db, call.scope, locks=True)
    if old.ticket == call.ticket and old.name:
        return old  # It was asked before, and the answer was lost.
    is_meant = call.instead is not None and (old.epoch, old.beat) == (call.instead.epoch, call.instead.beat)
    if old.name and not is_meant:
        return old
    new = Leader(max(old.epoch + 1, now_s), call.name, call.ticket, 0, old.note)
    changes = {"epoch": new.epoch, "leader": new.name, "ticket": new.ticket, "beat": new.beat}
    db.execute(update(leaders).where(leaders.c.scope == call.scope).values(changes))
    return new

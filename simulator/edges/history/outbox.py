"""The outbox of hooks: reports to URLs, which are kept until the URLs have answered.

    due ──── the URL has answered ────► told
     │
     └──── the URL never does ────► given up

Delivered and abandoned reports are kept as long as documents are. So each end is reported only once, even if several
programs notice it. Gateways of before had reports whose ends were not known yet, which are `armed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from mqproto.simulator.edges.history.tables import hooks


class State(StrEnum):
    """The state of a report."""

    ARMED = "armed"
    DUE = "due"
    TOLD = "told"
    GIVEN_UP = "given up"


class Hook(NamedTuple):
    """A report to a URL.

    id: identifies the end that is reported, and is the same in each attempt.
    sender: the program that sends the report or, if only a leader may send it, that leader's scope (leaders.py).
    body: the content of the report.
    """

    id: str
    sender: str
    url: str
    body: bytes
    attempts: int = 0
    state: str = State.DUE


class OutboxWork(NamedTuple):
    """What a sender has to do.

    due: the reports to send now.
    wait_s: the time until the next report is due; None if none is waiting.
    """

    due: list[Hook]
    wait_s: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Find:
    """Ask for the report about the end of a message."""

    id: str


@dataclass(frozen=True, slots=True, eq=False)
class Tell:
    """Report the end of a message. The report of an end is made only once and is never changed.

    epoch: the epoch of the leader that reports; 0 for none.
    """

    hook: Hook
    epoch: int = 0

    @property
    def scope(self) -> str:
        """The leader's scope."""
        return self.hook.sender


@dataclass(frozen=True, slots=True, eq=False)
class Due:
    """Ask for the reports that are due."""

    sender: str
    limit: int


@dataclass(frozen=True, slots=True, eq=False)
class Attempted:
    """Record an attempt to deliver a report.

    has_heard: whether the report was delivered.
    again_s: the number of seconds until the next attempt; None if there will be none.
    """

    id: str
    has_heard: bool
    again_s: float | None = None


Posting: TypeAlias = Find | Tell | Due | Attempted

OVER: Final = (State.TOLD, State.GIVEN_UP)


def posted(db: Connection, call: Posting, now_s: float, date_s: float) -> Hook | OutboxWork | None:
    """Carry out a call.

    Args:
        now_s: the history's own time.
        date_s: Unix time, which is used only for display.
    """
    changed = {"changed_s": date_s, "aged_s": now_s}
    match call:
        case Find(identifier):
            return next((Hook(*row) for row in db.execute(_found(hooks.c.id == identifier))), None)
        case Tell(hook):
            _tell(db, hook, now_s, changed)
        case Due(sender, limit):
            waits = and_(hooks.c.sender == sender, hooks.c.state == State.DUE)
            due = _found(waits, hooks.c.due_s <= now_s).order_by(hooks.c.due_s).limit(limit)
            later = select(func.min(hooks.c.due_s)).where(waits, hooks.c.due_s > now_s)
            due_s = db.execute(later).scalar_one()
            wait_s = None if due_s is None else due_s - now_s
            return OutboxWork([Hook(*row) for row in db.execute(due)], wait_s)
        case Attempted():
            _attempted(db, call, now_s, changed)
    return None


def expire(db: Connection, before_s: float) -> None:
    """Forget old reports, except those that are still due."""
    is_over = or_(*(hooks.c.state == state for state in (*OVER, State.ARMED)))
    db.execute(delete(hooks).where(is_over, hooks.c.aged_s <= before_s))


def _found(*conditions: ColumnElement[bool]) -> Select[str, str, str, bytes, int, str]:
    table = hooks.c
    return select(table.id, table.sender, table.url, table.body, table.attempts, table.state).where(
        *conditions
    )


def _tell(db: Connection, hook: Hook, now_s: float, changed: dict[str, float]) -> None:
    insertion = sqlite.insert(hooks) if db.dialect.name == "sqlite" else postgresql.insert(hooks)
    row = {**hook._asdict(), "state": str(hook.state), "due_s": now_s, **changed}
    db.execute(insertion.values(row).on_conflict_do_nothing())


def _attempted(db: Connection, call: Attempted, now_s: float, changed: dict[str, float]) -> None:
    changes: dict[str, object] = {"attempts": hooks.c.attempts + 1, **changed}
    if call.again_s is not None:
        changes["due_s"] = now_s + call.again_s
    else:
        changes |= {"state": (State.TOLD if call.has_heard else State.GIVEN_UP).value}
    db.execute(update(hooks).where(hooks.c.id == call.id, hooks.c.state == State.DUE).values(changes))

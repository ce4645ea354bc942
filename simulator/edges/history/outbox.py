"""What somebody is to be told by a URL of his, kept until he has heard it: the outbox of hooks.

    armed ──── its end is known ────► due ──── he has answered ────► told
                                       │
                                       └──── he never does ────► given up

What has its end at once is due from the beginning. What was told or given up is kept as long as documents are, so that
the same end is told of once, whoever comes across it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from mqproto.simulator.edges.history.tables import hooks


class State(StrEnum):
    """What becomes of one."""

    ARMED = "armed"
    DUE = "due"
    TOLD = "told"
    GIVEN_UP = "given up"


class Hook(NamedTuple):
    """What one is to be told.

    id: names the end, and is the same at each attempt.
    body: what is told; of one that is armed, what is known already.
    """

    id: str
    url: str
    body: bytes
    attempts: int = 0


class Outbox(NamedTuple):
    """What a sender has to do.

    next_s: when there is more, in Unix time; None if nothing waits.
    """

    due: list[Hook]
    next_s: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """Somebody is to be told when the end is known."""

    sender: str
    hook: Hook


@dataclass(frozen=True, slots=True, eq=False)
class Armed:
    """Ask who is to be told of an end."""

    id: str


@dataclass(frozen=True, slots=True, eq=False)
class Tell:
    """The end is known. One that was told of is not told of again.

    scope, epoch: of the leader that says so (leaders.py); epoch 0 for none.
    """

    sender: str
    hook: Hook
    scope: str = ""
    epoch: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Due:
    """Ask what is to be told now."""

    sender: str
    limit: int


@dataclass(frozen=True, slots=True, eq=False)
class Attempted:
    """It was attempted.

    due_s: when it is to be attempted again; None if it is over.
    """

    id: str
    has_heard: bool
    due_s: float | None = None


Posting: TypeAlias = Arm | Armed | Tell | Due | Attempted

OVER: Final = (State.TOLD, State.GIVEN_UP)


def posted(db: Connection, call: Posting, now_s: float) -> Hook | Outbox | None:
    """Carry out a call."""
    match call:
        case Arm(sender, hook):
            _insert(db, sender, hook, State.ARMED, now_s)
        case Armed(identifier):
            found = db.execute(_found(hooks.c.id == identifier, hooks.c.state == State.ARMED))
            return next((Hook(*row) for row in found.all()), None)
        case Tell(sender, hook):
            _insert(db, sender, hook, State.DUE, now_s)
            is_armed = and_(hooks.c.id == hook.id, hooks.c.state == State.ARMED)
            changes = {"state": State.DUE.value, "body": hook.body, "due_s": now_s, "changed_s": now_s}
            db.execute(update(hooks).where(is_armed).values(changes))
        case Due(sender, limit):
            waits = and_(hooks.c.sender == sender, hooks.c.state == State.DUE)
            due = _found(waits, hooks.c.due_s <= now_s).order_by(hooks.c.due_s).limit(limit)
            later = select(func.min(hooks.c.due_s)).where(waits, hooks.c.due_s > now_s)
            return Outbox([Hook(*row) for row in db.execute(due).all()], db.execute(later).scalar_one())
        case Attempted():
            _attempted(db, call, now_s)
    return None


def expire(db: Connection, before_s: float) -> None:
    """Forget what is over, and what never came to an end."""
    is_over = or_(*(hooks.c.state == state for state in (*OVER, State.ARMED)))
    db.execute(delete(hooks).where(is_over, hooks.c.changed_s <= before_s))


def _found(*conditions: ColumnElement[bool]) -> Select[str, str, bytes, int]:
    return select(hooks.c.id, hooks.c.url, hooks.c.body, hooks.c.attempts).where(*conditions)


def _insert(db: Connection, sender: str, hook: Hook, state: State, now_s: float) -> None:
    insertion = sqlite.insert(hooks) if db.dialect.name == "sqlite" else postgresql.insert(hooks)
    row = {
        "id": hook.id,
        "sender": sender,
        "state": state.value,
        "url": hook.url,
        "body": hook.body,
        "attempts": 0,
        "due_s": now_s,
        "changed_s": now_s,
    }
    db.execute(insertion.values(row).on_conflict_do_nothing())


def _attempted(db: Connection, call: Attempted, now_s: float) -> None:
    changes: dict[str, object] = {"attempts": hooks.c.attempts + 1, "changed_s": now_s}
    if call.due_s is not None:
        changes["due_s"] = call.due_s
    else:
        changes |= {"state": (State.TOLD if call.has_heard else State.GIVEN_UP).value, "body": b""}
    db.execute(update(hooks).where(hooks.c.id == call.id, hooks.c.state == State.DUE).values(changes))

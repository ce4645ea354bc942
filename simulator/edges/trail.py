"""The outcome of a message that a gateway has accepted, by its row and by what the history of the triggers says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from mqproto.edge.custody import RECEIVED, RESOLVED, RESOLVED_BY, Ended, Evidence, State, lives_of
from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.edges.history.documents import UNKNOWN, Record
from mqproto.turn.effects import PostedRow
from mqproto.wire import MessageClass


class Lived(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, rename={"message_class": "class"}):
    """The report about one life of a message.

    message: the message's identifier in that life; empty while it is under way, or if it was not recorded.
    message_class: the class of the acknowledgment that ended the life.
    ended: when the life ended, UTC.
    attempts: the number of times that the message's consumer was called.
    reason: the consumer's answer.
    """

    state: State
    message: str = ""
    message_class: str = ""
    ended: datetime | None = None
    attempts: int = 0
    reason: str = ""

    @classmethod
    def of(cls, life: Ended) -> Lived:
        """Return the report for a life."""
        said = life._asdict()
        ended_s = said.pop("ended_s")
        return cls(**said, ended=None if ended_s is None else datetime.fromtimestamp(ended_s, UTC))


class Trail(Lived, frozen=True, omit_defaults=True):
    """The report about a message: its current life, and its earlier lives.

    After each earlier life, the message was sent again.

    id: the producer's id.
    before: the earlier lives.
    failure: `business error` or `retrieval failure` if the message failed at a trigger.
    copy_in: the queue that has the trigger's copy of the message.

    Only a trigger knows `failure` and `copy_in`; they are in its reports (telling.py), but not in answers to GET.
    """

    id: str
    queue: str
    before: list[Lived] = []
    failure: str = ""
    copy_in: str = ""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The history's record of an accepted message.

    admin_queue: the producer's own administration queue, which gets the acknowledgments instead of the gateway.
    """

    id: str
    fingerprint: str
    admin_queue: str = ""


class Confirmation(msgspec.Struct, frozen=True):
    """The history's record of an acknowledgment.

    time_s: the Unix time at which the acknowledgment was written by the queue manager at which the message's life
        ended.
    """

    message_class: str
    time_s: int


class Life(msgspec.Struct, frozen=True, omit_defaults=True):
    """The history's record of a life that ended because an operator sent the message again.

    state, attempts, reason: those of the message at the end of this life.
    again: the message's new identifier; empty until it is known.
    """

    state: State
    attempts: int = 0
    reason: str = ""
    again: str = ""


ENDS: Final = "ends"
"""The scope, in the history, of Confirmations.

The keys are the identifiers of messages (gateway/confirmations.py).
"""
OUTCOMES: Final = msgspec.json.Decoder(Outcome)
CONFIRMATIONS: Final = msgspec.json.Decoder(Confirmation)
LIVES: Final = "lives"
"""The scope, in the history, of Lives. The keys are the identifiers that the messages had in these lives."""
LIFE: Final = msgspec.json.Decoder(Life)
BEFORE: Final = "before"
"""The scope, in the history, of the identifiers that messages had in their lives before.

The keys are the identifiers of the lives after them.
"""
LIVES_LIMIT: Final = 100
"""The maximum number of a message's lives that are followed."""


async def trail_of(
    row: PostedRow,
    message: str,
    look: Callable[[str, str], Awaitable[Record]],
    end_of: Callable[[str], PostedRow | None],
    *,
    of: str = "",
) -> Trail:
    """Return the trail of a posted message.

    Args:
        message: its identifier.
        look: returns what the history of the triggers has under a scope and a key.
        end_of: returns the row with the end of a message, given its identifier.
        of: the identifier of the last life to report; by default, that of the current life.
    """
    known = Evidence(row.queue, row.key, [message])
    for name in known.names:
        lived(known, name, await look(LIVES, name))
    called_as = await look(f"trigger/{row.queue}", row.key) if row.key else UNKNOWN
    if not called_as.attempts:  # A message with an extension of its own goes without the producer's id.
        called_as = await look(f"trigger/{row.queue}", known.names[-1])
    if called_as.attempts and known.names[-1] in known.lives:
        known.sent_again("")
    called(known, called_as)
    for name in filter(None, known.names):
        end = row if name == message else end_of(name)
        if end is not None and end.message_class:
            known.ends[name], known.ended_s[name] = MessageClass(end.message_class).name, end.ended_s
        ended(known, name, await look(ENDS, name))  # An operator may have resolved it.
    *before, now = map(Lived.of, lives_of(known))
    if of in known.names[:-1]:
        at = known.names.index(of)
        before, now = before[:at], before[at]
    return Trail(row.key, row.queue, before, **msgspec.structs.asdict(now))


# What records of the history say


def called(known: Evidence, record: Record) -> None:
    """Add the trigger's record of a message to the evidence about the message."""
    known.told = record.entry is not Entry.ABSENT or b"\n" in record.outcome
    known.owner, known.attempts = record.owner, record.attempts
    known.said = record.outcome.decode("utf-8", "replace")
    if record.entry in (Entry.ABSENT, Entry.STARTED):
        known.said = record.doubt if record.entry is Entry.STARTED else known.said.rpartition("\n")[2]
    known.attempted |= record.attempts > 0
    known.processed |= record.entry is Entry.COMPLETED
    known.resolved |= known.said.startswith(RESOLVED_BY)
    known.started = record.entry is Entry.STARTED
    known.in_doubt = record.is_in_doubt or (not record.attempts and known.in_doubt)


def ended(known: Evidence, name: str, record: Record) -> None:
    """Add the confirmation for one of a message's lives to the evidence about the message.

    `name` is the identifier of that life.
    """
    if record.outcome:
        end = CONFIRMATIONS.decode(record.outcome)
        known.ends[name], known.ended_s[name] = end.message_class, end.time_s
        known.resolved |= end.message_class == RESOLVED
    elif record.entry is Entry.COMPLETED:
        known.ends.setdefault(name, RECEIVED)


def lived(known: Evidence, name: str, record: Record) -> None:
    """Add to the evidence the record of a life that ended when the message was sent again, and the new identifier."""
    if not record.outcome:
        return
    life = LIFE.decode(record.outcome)
    known.lives[name] = Ended(name, life.state, attempts=life.attempts, reason=life.reason)
    if not life.again:
        known.in_doubt = life.state is State.IN_DOUBT
    elif life.again not in known.names and len(known.names) < LIVES_LIMIT:
        known.sent_again(life.again)

"""What has become of a message that a gateway has accepted, as far as its document history tells."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from mqproto.edge.custody import RECEIVED, RESOLVED, RESOLVED_BY, Ended, Evidence, State, lives_of
from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.edges.history.documents import Record

if TYPE_CHECKING:
    from mqproto.simulator.edges.history.history import DocumentHistory


class Lived(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, rename={"message_class": "class"}):
    """The report about one life of a message.

    message: its identifier as a message; empty while it is under way, or if nobody has written down that of this life.
    message_class: that of the acknowledgment with which it ended.
    ended: when that was, UTC.
    attempts: how often its consumer was called.
    reason: what the consumer said.
    """

    state: State
    message: str = ""
    message_class: str = ""
    ended: datetime | None = None
    attempts: int = 0
    reason: str = ""

    @classmethod
    def of(cls, life: Ended) -> Lived:
        """The same for programs."""
        said = life._asdict()
        ended_s = said.pop("ended_s")
        return cls(**said, ended=None if ended_s is None else datetime.fromtimestamp(ended_s, UTC))


class Trail(Lived, frozen=True, omit_defaults=True):
    """What is told about a message: of the life that it has, and of those before, after each of which it was sent
    again.

    id: the producer's.
    failure: of one that failed at a trigger, `business error` or `retrieval failure`.
    copy_in: the queue that has the trigger's copy of it.

    What a trigger alone knows, `failure` and `copy_in`, is in what it has told (telling.py), and in no answer to GET.
    """

    id: str
    queue: str
    before: list[Lived] = []
    failure: str = ""
    copy_in: str = ""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The history's record of an accepted message.

    admin_queue: the producer's own, which hears how it ends in place of the gateway.
    """

    id: str
    fingerprint: str
    admin_queue: str = ""


class Confirmation(msgspec.Struct, frozen=True):
    """The history's record of an acknowledgment.

    time_s: when the queue manager wrote it that ended the message, in Unix time.
    """

    message_class: str
    time_s: int


class Life(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the history keeps of a life that ended as an operator sent the message once more: how it was before.

    again: its identifier since; empty until that is known.
    """

    state: State
    attempts: int = 0
    reason: str = ""
    again: str = ""


ENDS: Final = "ends"
"""The scope of the history that has a Confirmation, by the identifier of a message (gateway/confirmations.py)."""
OWN_QUEUES: Final = "own-queues"
"""The scope of the history that has the queues to which gateways' confirmations come, by their format names: started,
so that they are kept, and nobody finishes them."""
OUTCOMES: Final = msgspec.json.Decoder(Outcome)
CONFIRMATIONS: Final = msgspec.json.Decoder(Confirmation)
LIVES: Final = "lives"
"""The scope of the history that has a Life, by the identifier of that life."""
LIFE: Final = msgspec.json.Decoder(Life)
LIVES_LIMIT: Final = 100
"""After so many we look no further."""


async def trail_of(history: DocumentHistory, queue: str, key: str, *, of: str = "") -> Trail | None:
    r"""What has become of a message; None if none with this id was accepted.

    Args:
        queue: such as `destination\orders`.
        key: the producer's id.
        of: the identifier of the life that is told about, whatever came later; by default of the one that it has.

    Raises:
        HistoryError: the history is not available.
    """
    message = of
    if not of:
        accepted = await history.look(f"gateway/{queue}", key)
        match accepted.entry:
            case Entry.ABSENT | Entry.FAILED:
                return None
            case Entry.STARTED:
                return Trail(key, queue, state=State.UNDER_WAY)
        message = OUTCOMES.decode(accepted.outcome).id
    known = Evidence(queue, key, [message])
    for name in known.names:
        lived(known, name, await history.look(LIVES, name))
    called_as = await history.look(f"trigger/{queue}", key)
    if not called_as.attempts:  # A message with an extension of its own goes without the producer's id.
        called_as = await history.look(f"trigger/{queue}", known.names[-1])
    if called_as.attempts and known.names[-1] in known.lives:
        known.sent_again("")
    called(known, called_as)
    for name in filter(None, known.names):
        ended(known, name, await history.look(ENDS, name))
    *before, now = map(Lived.of, lives_of(known))
    told = [*before, now][0 if of else -1]
    return Trail(key, queue, [] if of else before, **msgspec.structs.asdict(told))


# What records of the history say


def called(known: Evidence, record: Record) -> None:
    """What its trigger has written."""
    known.told = record.entry is not Entry.ABSENT
    known.owner, known.attempts = record.owner, record.attempts
    known.said = record.outcome.decode("utf-8", "replace")
    known.attempted |= record.attempts > 0
    known.processed |= record.entry is Entry.COMPLETED
    known.resolved |= known.said.startswith(RESOLVED_BY)
    known.started = record.entry is Entry.STARTED
    known.in_doubt = record.is_in_doubt or (not record.attempts and known.in_doubt)


def ended(known: Evidence, name: str, record: Record) -> None:
    """What the confirmation of one of its lives has said, by the identifier of that life."""
    if record.outcome:
        end = CONFIRMATIONS.decode(record.outcome)
        known.ends[name], known.ended_s[name] = end.message_class, end.time_s
        known.resolved |= end.message_class == RESOLVED
    elif record.entry is Entry.COMPLETED:
        known.ends.setdefault(name, RECEIVED)


def lived(known: Evidence, name: str, record: Record) -> None:
    """What was kept of one of its lives as it was sent once more, and the name that it has since."""
    if not record.outcome:
        return
    life = LIFE.decode(record.outcome)
    known.lives[name] = Ended(name, life.state, attempts=life.attempts, reason=life.reason)
    if not life.again:
        known.in_doubt = life.state is State.IN_DOUBT
    elif life.again not in known.names and len(known.names) < LIVES_LIMIT:
        known.sent_again(life.again)

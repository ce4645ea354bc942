"""What has become of a message that a gateway has accepted, as far as its document history tells."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.edges.gateway.confirmations import ENDS, Confirmation
from mqproto.simulator.edges.history.history import Record


class State(StrEnum):
    """Who has it."""

    UNDER_WAY = "under-way"
    """The gateway: it is being handed to the node."""
    ACCEPTED = "accepted"
    """A queue manager: it is on its way, or in its queue."""
    BEING_PROCESSED = "being-processed"
    """A trigger: its consumer was called, and nobody has heard an answer yet."""
    PROCESSED = "processed"
    """Its consumer: it has answered that all is well."""
    FAILED = "failed"
    """The trigger's error queue."""
    IN_DOUBT = "in-doubt"
    """The trigger's in-doubt queue, or its error queue: it may have been processed."""
    RECEIVED = "received"
    """A program that has taken it out of its queue."""
    DEAD_LETTER = "dead-letter"
    """The dead-letter queue of the node that it was handed to; `class` says why."""


class Trail(msgspec.Struct, frozen=True, omit_defaults=True, rename={"message_class": "class"}):
    """What is told of a message.

    id: the producer's.
    message: its identifier as a message; empty while it is under way.
    message_class: that of the acknowledgment with which it ended.
    ended: when that was, UTC.
    attempts: how often its consumer was called.
    reason: what the consumer said.
    """

    id: str
    queue: str
    state: State
    message: str = ""
    message_class: str = ""
    ended: datetime | None = None
    attempts: int = 0
    reason: str = ""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the history keeps of a message that was accepted.

    admin_queue: the producer's own, which hears how it ends in place of the gateway.
    """

    id: str
    fingerprint: str
    admin_queue: str = ""


class Looking(Protocol):
    """What is needed of `mqproto.simulator.edges.history.history.DocumentHistory`."""

    async def look(self, scope: str, key: str) -> Record: ...


OUTCOMES: Final = msgspec.json.Decoder(Outcome)
CONFIRMATIONS: Final = msgspec.json.Decoder(Confirmation)


async def trail_of(history: Looking, queue: str, key: str) -> Trail | None:
    r"""What has become of a message; None if none with this id was accepted.

    Args:
        queue: such as `destination\orders`.
        key: the producer's id.

    Raises:
        HistoryError: the history cannot be had.
    """
    accepted = await history.look(f"gateway/{queue}", key)
    match accepted.entry:
        case Entry.ABSENT | Entry.FAILED:
            return None
        case Entry.STARTED:
            return Trail(key, queue, State.UNDER_WAY)
    message = OUTCOMES.decode(accepted.outcome).id
    end = await history.look(ENDS, message)
    called = await history.look(f"trigger/{queue}", key)
    if not called.attempts:  # A message with an extension of its own goes without the producer's id.
        called = await history.look(f"trigger/{queue}", message)
    confirmation = CONFIRMATIONS.decode(end.outcome) if end.outcome else None
    return Trail(
        key,
        queue,
        state_of(end.entry, called),
        message,
        confirmation.message_class if confirmation else "",
        datetime.fromtimestamp(confirmation.time_s, UTC) if confirmation else None,
        called.attempts,
        called.outcome.decode("utf-8", "replace"),
    )


def state_of(end: Entry, called: Record) -> State:
    """What it is by its end and by what its trigger says."""
    if called.entry is Entry.COMPLETED:
        return State.PROCESSED
    match end:
        case Entry.FAILED:
            return State.DEAD_LETTER
        case Entry.COMPLETED if called.entry is Entry.STARTED:
            return State.IN_DOUBT
        case Entry.COMPLETED:
            # What was attempted and has left its queue has an entry only if its consumer has said yes or no.
            return State.FAILED if called.attempts else State.RECEIVED
    return State.BEING_PROCESSED if called.entry is Entry.STARTED else State.ACCEPTED

"""Who has a message, by all that is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mqproto.turn.effects import QueueKind
from simulator.edges.failed.failures import LETTERS
from simulator.edges.gateway.confirmations import RECEIVED
from simulator.edges.trigger.judgment import IN_DOUBT


class End(StrEnum):
    """Who has it: one of these, or nobody."""

    PROCESSED = "processed"
    """Its consumer has said that all is well."""
    IN_ERROR_QUEUE = "in an error queue"
    IN_IN_DOUBT_QUEUE = "in an in-doubt queue"
    RESOLVED = "resolved by an operator"
    COPY_TAKEN = "taken from an error queue or an in-doubt queue"
    """Somebody has it who looks after these."""
    RECEIVED = "received"
    """A program has taken it out of its queue, and is no trigger."""
    DEAD_LETTER = "a dead letter"
    LETTER_TAKEN = "a dead letter that was taken"
    """Somebody has it who looks after these, or it was sent once more under another identifier."""
    IN_ITS_QUEUE = "in its queue"
    BEING_PROCESSED = "being processed"
    ON_ITS_WAY = "on its way"
    HEARD_ELSEWHERE = "ended, as its producer's own administration queue was told"
    """No store has it, and it left no dead letter here."""
    FORGOTTEN = "answered longer ago than the history keeps ids"
    """Its gateway's log has it alone. What became of it is not known any more."""
    UNACCOUNTED = "unaccounted for"


NOT_OVER: Final = frozenset({End.IN_ITS_QUEUE, End.BEING_PROCESSED, End.ON_ITS_WAY})
"""Of these more will be heard."""


@dataclass(slots=True)
class Evidence:
    r"""All that is known of one message.

    queue, key: where it was handed in, such as `destination\orders`, and the producer's id; empty for none.
    heard_elsewhere: whether its producer has it told how it ends.
    is_old: whether it was answered longer ago than the history keeps ids, which does not know it any more.
    resolved: whether an operator has said that it is settled.
    processed, attempted, started: what a trigger says: its consumer has accepted it; was called; has not answered.
    copied: why a copy of it is in a queue of some store: what an error queue has.
    confirmed: the class of the acknowledgment with which its way ended.
    has_letter, waits, on_its_way: whether some store has it as a dead letter, in its queue, or to be sent.
    """

    queue: str = ""
    key: str = ""
    heard_elsewhere: bool = False
    is_old: bool = False
    resolved: bool = False
    processed: bool = False
    attempted: bool = False
    started: bool = False
    copied: str = ""
    confirmed: str = ""
    has_letter: bool = False
    waits: bool = False
    on_its_way: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether it was a dead letter, or was attempted: then another message may be it, sent once more."""
        return self.attempted or self.confirmed not in ("", RECEIVED)

    def found(self, kind: QueueKind | None, queue: str) -> None:
        """Some store has it."""
        if kind is not QueueKind.LOCAL:
            self.on_its_way |= kind is not QueueKind.ORDER
        elif queue in LETTERS:
            self.has_letter = True
        elif not queue.endswith(";journal"):
            self.waits = True


def end_of(known: Evidence) -> End:
    """Who has the message: what came last decides, as a store may have what was acknowledged since."""
    if known.resolved:
        return End.RESOLVED
    if known.processed:
        return End.PROCESSED
    if known.copied:
        return End.IN_IN_DOUBT_QUEUE if known.copied == IN_DOUBT else End.IN_ERROR_QUEUE
    if known.has_letter:
        return End.DEAD_LETTER
    if known.confirmed == RECEIVED and not known.attempted:
        return End.RECEIVED
    if known.waits:
        return End.BEING_PROCESSED if known.started else End.IN_ITS_QUEUE
    if known.on_its_way:
        return End.ON_ITS_WAY
    if known.confirmed:
        return End.COPY_TAKEN if known.confirmed == RECEIVED else End.LETTER_TAKEN
    if known.heard_elsewhere:
        return End.HEARD_ELSEWHERE
    return End.FORGOTTEN if known.is_old else End.UNACCOUNTED

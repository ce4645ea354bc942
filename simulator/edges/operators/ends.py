"""Who has a message, by all that is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from mqproto.queues.localqueue import DEAD_LETTERS, JOURNAL_SUFFIX
from mqproto.simulator.edges.gateway.confirmations import RECEIVED
from mqproto.simulator.edges.operators.deeds import Deed
from mqproto.simulator.edges.trigger.judgment import IN_DOUBT
from mqproto.turn.effects import QueueKind


class End(StrEnum):
    """Who has it: one of these, or nobody."""

    PROCESSED = "processed"
    """Its consumer has said that all is well."""
    IN_ERROR_QUEUE = "in an error queue"
    IN_IN_DOUBT_QUEUE = "in an in-doubt queue"
    RESOLVED = "resolved by an operator"
    ERASED = "erased by an operator"
    """It had failed, and its body is gone by `mqproto failed erase`."""
    COPY_TAKEN = "taken from an error queue or an in-doubt queue"
    """By somebody who looks after these: its node has written down when, and how."""
    RECEIVED = "received"
    """A program has taken it out of its queue, and is no trigger."""
    DEAD_LETTER = "a dead letter"
    LETTER_TAKEN = "a dead letter that was taken"
    """The same of a dead-letter queue."""
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


class Removal(NamedTuple):
    """It had failed, and what the system had of it has left its queue: a line of a node's log.

    copy: the identifier of the copy, or of the dead letter.
    reason: the class of what was done with it.
    again: what the message is called since, if the node has sent it once more in the same moment.
    """

    copy: str
    reason: str
    again: str = ""


@dataclass(slots=True)
class Evidence:
    r"""All that is known of one message.

    queue, key: where it was handed in, such as `destination\orders`, and the producer's id; empty for none.
    names: what it is called and was before, the last last: each time that it is sent once more it has a new identifier.
    heard_elsewhere: whether its producer has it told how it ends.
    is_old: whether it was answered longer ago than the history keeps ids, which does not know it any more.
    resolved: whether an operator has said that it is settled.
    processed, attempted, started: what a trigger says: its consumer has accepted it; was called; has not answered.
    copied: why a copy of it is in a queue of some store: what an error queue has.
    ends: by its names, the class of the acknowledgment with which its way ended.
    has_letter, waits, on_its_way: whether some store has it as a dead letter, in its queue, or to be sent.
    retained: whether its sender has it still, and knows that its destination has it.
    destination_is_here: whether the store was read in which it is then.
    removals, deeds: what was taken away that had failed; and what operators did, by what its name was there.
    """

    queue: str = ""
    key: str = ""
    names: list[str] = field(default_factory=list)
    heard_elsewhere: bool = False
    is_old: bool = False
    resolved: bool = False
    processed: bool = False
    attempted: bool = False
    started: bool = False
    copied: str = ""
    ends: dict[str, str] = field(default_factory=dict)
    has_letter: bool = False
    waits: bool = False
    on_its_way: bool = False
    retained: bool = False
    destination_is_here: bool = True
    removals: list[Removal] = field(default_factory=list)
    deeds: dict[str, Deed] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """The node at which it is to arrive."""
        return self.queue.partition("\\")[0]

    @property
    def confirmed(self) -> str:
        """The class with which its way ended, under the name that it has; empty if it goes on or nobody has said."""
        return self.ends.get(self.names[-1], "")

    @property
    def has_ended(self) -> bool:
        """Whether it was a dead letter, or was attempted: then another message may be it, sent once more."""
        return self.attempted or bool(self.removals) or any(end != RECEIVED for end in self.ends.values())

    @property
    def taken(self) -> Removal | None:
        """The removal after which it was not sent once more; None if there is none."""
        if not self.removals:
            return None
        last = self.removals[-1]
        goes_on = last.again or self.deeds.get(last.copy) in (Deed.RETRIED, Deed.SENT_AGAIN)
        return None if goes_on else last

    def sent_again(self, name: str) -> None:
        """It has another identifier from now on."""
        self.names.append(name)
        self.attempted = False

    def found(self, kind: QueueKind | None, queue: str) -> None:
        """Some store has it."""
        if kind is QueueKind.FINAL:
            self.retained = True
        elif kind is not QueueKind.LOCAL:
            self.on_its_way |= kind is not QueueKind.ORDER
        elif queue in DEAD_LETTERS:
            self.has_letter = True
        elif not queue.endswith(JOURNAL_SUFFIX):
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
    taken = known.taken
    if known.confirmed == RECEIVED and not known.attempted and taken is None:
        return End.RECEIVED
    if known.waits:
        return End.BEING_PROCESSED if known.started else End.IN_ITS_QUEUE
    # What its sender retains is its destination's, until the sender hears of its end: that may be on its way.
    if known.on_its_way or (known.retained and (known.confirmed or not known.destination_is_here)):
        return End.ON_ITS_WAY
    if taken is not None:
        by_operator: dict[Deed | None, End] = {Deed.RESOLVED: End.RESOLVED, Deed.ERASED: End.ERASED}
        is_letter = taken.copy in known.names
        return by_operator.get(known.deeds.get(taken.copy), End.LETTER_TAKEN if is_letter else End.COPY_TAKEN)
    if known.heard_elsewhere:
        return End.HEARD_ELSEWHERE
    return End.FORGOTTEN if known.is_old else End.UNACCOUNTED

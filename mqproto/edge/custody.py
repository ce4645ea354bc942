"""The owner and the outcome of a message.

This module defines the words for them, and the only function that chooses one. `Evidence` is gathered from the
available stores, document history, journals and logs. A gateway has only the history, so it uses coarser words
(`State`) than an audit (`End`). Each end corresponds to one state.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from mqproto.queues.localqueue import JOURNAL_SUFFIX
from mqproto.turn.effects import QueueKind

BUSINESS_ERROR: Final = "business error"
RETRIEVAL_FAILURE: Final = "retrieval failure"
IN_DOUBT: Final = "in doubt"
"""The mark on copies in the error queue whose message may have been processed."""
RECEIVED: Final = "ACK_RECEIVE"
RESOLVED: Final = "RESOLVED"
"""The text that replaces a message class after an operator has settled a dead letter for good (`mqproto failed
resolve`).
"""
RESOLVED_BY: Final = "resolved by an operator"
"""The prefix of the outcome in the history of a message that an operator settled by hand."""


class State(StrEnum):
    """The state of a message as its producer sees it."""

    ACCEPTED = "accepted"
    """A queue manager has the message: it is on its way, or in its queue."""
    BEING_PROCESSED = "being-processed"
    """A trigger has called the message's consumer, which has not answered yet."""
    PROCESSED = "processed"
    """The message's consumer has answered that it processed the message."""
    FAILED = "failed"
    """The message went to the trigger's error queue."""
    IN_DOUBT = "in-doubt"
    """The message may have been processed. It went to the trigger's in-doubt or error queue; or, if its lifetime ended
    after a call that got no answer, to the dead-letter queue.
    """
    RECEIVED = "received"
    """A program has received the message from its queue."""
    DEAD_LETTER = "dead-letter"
    """The message went to the dead-letter queue of the node where it was sent; `class` says why."""
    RESOLVED = "resolved"
    """The message had failed, and an operator has marked it as settled."""


class End(StrEnum):
    """The owner or the outcome of a message."""

    PROCESSED = "processed"
    """The message's consumer has answered that it processed the message."""
    IN_ERROR_QUEUE = "in an error queue"
    IN_IN_DOUBT_QUEUE = "in an in-doubt queue"
    RESOLVED = "resolved by an operator"
    ERASED = "erased by an operator"
    """The message had failed, and `mqproto failed erase` has deleted its body."""
    COPY_TAKEN = "taken from an error queue or an in-doubt queue"
    """An operator took the copy from the error queue or in-doubt queue; the node of that queue has logged when
    and how.
    """
    RECEIVED = "received"
    """A program that is not a trigger has received the message from its queue."""
    DEAD_LETTER = "a dead letter"
    LETTER_IN_DOUBT = "a dead letter in doubt"
    """The message's lifetime ended, or an operator ended the message, after a call that its consumer did not answer."""
    LETTER_TAKEN = "a dead letter that was taken"
    """An operator took the dead letter from its queue; its node has logged when and how."""
    IN_ITS_QUEUE = "in its queue"
    BEING_PROCESSED = "being processed"
    ON_ITS_WAY = "on its way"
    HEARD_ELSEWHERE = "ended, as its producer's own administration queue was told"
    """No store has the message, and it left no dead letter here; its producer uses an administration queue of its
    own.
    """
    FORGOTTEN = "answered longer ago than the history keeps ids"
    """Only the message's gateway still knows it, from its log. The outcome is no longer known."""
    UNACCOUNTED = "unaccounted for"


NOT_OVER: Final = frozenset({End.IN_ITS_QUEUE, End.BEING_PROCESSED, End.ON_ITS_WAY})
"""The ends that are not final."""
STATES: Final = {
    End.PROCESSED: State.PROCESSED,
    End.IN_ERROR_QUEUE: State.FAILED,
    End.IN_IN_DOUBT_QUEUE: State.IN_DOUBT,
    End.RESOLVED: State.RESOLVED,
    End.RECEIVED: State.RECEIVED,
    End.DEAD_LETTER: State.DEAD_LETTER,
    End.LETTER_IN_DOUBT: State.IN_DOUBT,
    End.BEING_PROCESSED: State.BEING_PROCESSED,
    End.IN_ITS_QUEUE: State.ACCEPTED,
    End.ON_ITS_WAY: State.ACCEPTED,
}
"""The state that corresponds to each end, except for those ends whose state depends on what happened before."""


class Deed(StrEnum):
    """An operator's action on a message that failed."""

    RETRIED = "retried"
    """The message is about to be sent again."""
    SENT_AGAIN = "sent-again"
    """The message was sent again, and its new identifier is known."""
    NOT_RETRIED = "not-retried"
    """The message could not be sent again, and is still in its queue."""
    RESOLVED = "resolved"
    ERASED = "erased"


class Removal(NamedTuple):
    """The removal of a failed message from its queue, as logged by a node.

    copy: the identifier of the copy, or of the dead letter.
    reason: the class that says what was done with it.
    again: the message's new identifier, if the node sent the message again at the same time.
    """

    copy: str
    reason: str
    again: str = ""


class Ended(NamedTuple):
    """The outcome of one life of a message; a new life begins each time that the message is sent again.

    message: the message's identifier in that life; empty if it was not recorded.
    message_class: the class of the acknowledgment with which the life ended.
    ended_s: the time at which it ended, in Unix time.
    attempts: the number of calls of the message's consumer.
    reason: what the consumer answered.
    """

    message: str
    state: State
    message_class: str = ""
    ended_s: int | None = None
    attempts: int = 0
    reason: str = ""


@dataclass(slots=True)
class Evidence:
    r"""All that is known about one message.

    queue: the queue that it was submitted for, such as `destination\orders`; empty if there is none.
    key: the producer's id; empty if there is none.
    names: its identifiers, the present one last; it gets a new one each time that it is sent again.
    promised: whether a gateway has answered 200.
    heard_elsewhere: whether its producer learns its outcome in another way.
    is_old: whether the history does not know it, and it was accepted so long ago that the history no longer keeps its
        id.
    resolved: whether an operator has marked it as settled.
    processed: whether, according to a trigger, its consumer accepted it.
    attempted: whether, according to a trigger, its consumer was called.
    started: whether, according to a trigger, its consumer has not answered yet.
    in_doubt: whether, according to a trigger, its consumer left a call unanswered, even if it answered other calls.
    told: whether the trigger's record is in the document history, and not only in a log.
    owner: the trigger that called its consumer.
    attempts: the number of these calls.
    said: the consumer's answer.
    copied: the reason why a copy of it is in a queue of some store, such as an error queue.
    ends: by identifier, the class of the acknowledgment with which its journey ended.
    ended_s: by identifier, the time of that end.
    lives: by identifier, the entry that the history kept when it was sent again.
    has_letter, waits, on_its_way: whether some store has it as a dead letter, in its queue, or to be sent.
    where: in these cases, the queue that has it, such as `destination\orders-errors`, or the node that will send it.
    retained: whether its sender still has it, and knows that its destination has it.
    destination_is_here: whether the destination's store was read. If so, the message would have been found there.
    removals: the removals of its failed copies.
    deeds: operators' actions, by the identifier of the copy.
    """

    queue: str = ""
    key: str = ""
    names: list[str] = field(default_factory=list)
    promised: bool = True
    heard_elsewhere: bool = False
    is_old: bool = False
    resolved: bool = False
    processed: bool = False
    attempted: bool = False
    started: bool = False
    in_doubt: bool = False
    told: bool = False
    owner: str = ""
    attempts: int = 0
    said: str = ""
    copied: str = ""
    ends: dict[str, str] = field(default_factory=dict)
    ended_s: dict[str, int] = field(default_factory=dict)
    lives: dict[str, Ended] = field(default_factory=dict)
    has_letter: bool = False
    waits: bool = False
    on_its_way: bool = False
    where: str = ""
    retained: bool = False
    destination_is_here: bool = True
    removals: list[Removal] = field(default_factory=list)
    deeds: dict[str, Deed] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """The node of the message's destination."""
        return self.queue.partition("\\")[0]

    @property
    def confirmed(self) -> str:
        """The class with which the message's journey ended, under its present identifier.

        It is empty if the journey has not ended, or if the class is unknown.
        """
        return self.ends.get(self.names[-1], "")

    @property
    def has_ended(self) -> bool:
        """Whether the message became a dead letter, or an attempt was made to process it.

        If so, it may have been sent again as another message.
        """
        return self.attempted or bool(self.removals) or any(end != RECEIVED for end in self.ends.values())

    @property
    def taken(self) -> Removal | None:
        """The last removal of the message; None if there was none, or if the message was sent again after it."""
        if not self.removals:
            return None
        last = self.removals[-1]
        goes_on = last.again or self.deeds.get(last.copy) in (Deed.RETRIED, Deed.SENT_AGAIN)
        return None if goes_on else last

    def sent_again(self, name: str) -> None:
        """Record that the message was sent again. Its new identifier, `name`, is empty as long as it is unknown."""
        self.names.append(name)
        self.attempted = False

    def found(self, kind: QueueKind | None, node: str, queue: str, *, is_letter: bool = False) -> None:
        """Record that a store has the message in this queue."""
        if kind is QueueKind.FINAL:
            self.retained = True
        elif kind is not QueueKind.LOCAL:
            self.on_its_way |= kind is not QueueKind.ORDER
            self.where = self.where or node
        elif not queue.endswith(JOURNAL_SUFFIX):
            self.has_letter |= is_letter
            self.waits |= not is_letter
            self.where = f"{node}\\{queue}"


def is_called(name: str, key: str, names: Collection[str]) -> bool:
    """Whether a name refers to this message.

    It may be an identifier, or the producer's id with or without the producer's name.
    """
    return name in names or (name != "" and name in (key, key.partition("/")[2]))


def end_of(known: Evidence) -> End:
    """Return the owner or the outcome of a message.

    The last event decides, because a store may still have a message that was acknowledged.
    """
    if known.resolved:
        return End.RESOLVED
    if known.processed:
        return End.PROCESSED
    if known.copied:
        return End.IN_IN_DOUBT_QUEUE if known.copied == IN_DOUBT else End.IN_ERROR_QUEUE
    if known.has_letter:
        return End.LETTER_IN_DOUBT if known.in_doubt else End.DEAD_LETTER
    taken = known.taken
    if known.confirmed == RECEIVED and not known.attempted and taken is None:
        return End.RECEIVED
    if known.waits:
        return End.BEING_PROCESSED if known.started else End.IN_ITS_QUEUE
    # Its sender may retain a message that its destination has; word of its end may be on its way.
    if known.on_its_way or (known.retained and (known.confirmed or not known.destination_is_here)):
        return End.ON_ITS_WAY
    if taken is not None:
        by_operator: dict[Deed | None, End] = {Deed.RESOLVED: End.RESOLVED, Deed.ERASED: End.ERASED}
        is_letter = taken.copy in known.names
        return by_operator.get(known.deeds.get(taken.copy), End.LETTER_TAKEN if is_letter else End.COPY_TAKEN)
    if known.heard_elsewhere:
        return End.HEARD_ELSEWHERE
    return End.FORGOTTEN if known.is_old else End.UNACCOUNTED


def state_of(known: Evidence) -> State:
    """Return the state that a producer sees.

    If no store has the message, its state follows from the history's last entry.

    If a trigger has no history, a producer learns only that the trigger received the message, as it would of any other
    program.
    """
    if known.confirmed == RECEIVED and not (known.told or known.resolved):
        return State.RECEIVED
    if (state := STATES.get(end_of(known))) is not None:
        return state
    if known.confirmed not in ("", RECEIVED):
        return State.IN_DOUBT if known.in_doubt else State.DEAD_LETTER
    if known.confirmed:
        # A message that was attempted and left its queue has an entry only if its consumer said yes or no.
        return State.IN_DOUBT if known.started else State.FAILED
    return State.BEING_PROCESSED if known.started else State.ACCEPTED


def lives_of(known: Evidence) -> list[Ended]:
    """Return the outcome of each life of the message; the present life comes last."""
    lives = []
    for name in known.names[:-1]:
        ended = known.ends.get(name, RECEIVED)
        state = State.FAILED if ended == RECEIVED else State.DEAD_LETTER
        lives.append(known.lives.get(name) or Ended(name, state))
    name = known.names[-1]
    # A message that is to be sent again, and is still here, is as it was.
    lives.append(known.lives.get(name) or Ended(name, state_of(known), "", None, known.attempts, known.said))
    return [
        one._replace(message_class=known.ends.get(one.message, ""), ended_s=known.ended_s.get(one.message))
        for one in lives
    ]


OWNERS: Final = {
    End.PROCESSED: "its consumer",
    End.RESOLVED: "an operator",
    End.ERASED: "an operator",
    End.COPY_TAKEN: "whoever took it",
    End.LETTER_TAKEN: "whoever took it",
    End.RECEIVED: "the program that received it",
    End.HEARD_ELSEWHERE: "its producer",
    End.FORGOTTEN: "nobody knows who",
    End.UNACCOUNTED: "nobody",
}
"""The owner of a message that is in no store, according to its end."""


def owner_of(known: Evidence) -> str:
    """Return the owner of a message: a queue, a node, a trigger or a person."""
    end = end_of(known)
    if end is End.BEING_PROCESSED:
        return known.owner
    return OWNERS.get(end) or known.where or f"a node on its way to {known.queue}"


def reason_of(known: Evidence) -> str:
    """Return the reason why the message is where it is; empty if its place says enough."""
    end = end_of(known)
    if end is End.IN_ERROR_QUEUE:
        return known.copied
    if end is End.COPY_TAKEN:
        return known.removals[-1].reason
    return known.confirmed if end in (End.DEAD_LETTER, End.LETTER_IN_DOUBT, End.LETTER_TAKEN) else ""

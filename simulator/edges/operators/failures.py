"""Failed messages and the reasons for failure, from error, in-doubt and dead-letter queues."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from mqproto.edge.custody import IN_DOUBT, End, is_called
from mqproto.formatname.wire import destination_from_wire
from mqproto.messages.drafts import is_letter
from mqproto.queues.localqueue import DEAD_LETTERS
from mqproto.simulator.client import MessageId, ReceivedMessage
from mqproto.simulator.client.envelope import Envelope, FailureNote
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.directory import known_as


@dataclass(frozen=True, slots=True)
class FailedMessage:
    r"""A message that has failed.

    id: the message's identifier, `GUID\ordinal`; a copy has another identifier, a dead letter has the same.
    key: the producer's id for it; empty for none.
    node, where: the node and the queue that have it now.
    queue: the queue that it was in or that it was sent to, such as `destination\orders`.
    failure: `business error`, `retrieval failure`, `in doubt`, or the class of a dead letter.
    reason: the consumer's answer, in one line; for a dead letter in doubt, the cause of the doubt and the letter's
        class.
    attempts: the number of times that it was attempted.
    label, body_bytes: the label of the message, and the size of its body.
    since: the time, in UTC, at which it failed or, for a dead letter whose time of failure is unknown, was sent.
    lies_as: the identifier of the copy or dead letter in the queue.
    packet_bytes: the size of that copy or dead letter.
    """

    id: str
    key: str
    node: str
    where: str
    queue: str
    failure: str
    reason: str
    attempts: int
    label: str
    body_bytes: int
    since: datetime
    lies_as: MessageId
    packet_bytes: int

    @classmethod
    def of(cls, note: FailureNote, node: str, where: str, message: ReceivedMessage) -> FailedMessage:
        """Return the failure that is described by a message in a node's queue and the note about that message."""
        return cls(
            note.message,
            Envelope.of(message.extension).producer_key,
            node,
            where,
            note.queue,
            note.failure,
            note.reason,
            note.attempts,
            message.label,
            len(message.body),
            message.sent_time,
            message.id,
            len(message.packet),
        )

    @property
    def is_letter(self) -> bool:
        """Whether it is a dead letter rather than a trigger's copy."""
        return self.where in DEAD_LETTERS or self.id == str(self.lies_as)

    @property
    def end(self) -> End:
        """How the message ended, which says who has it now."""
        if self.is_letter:
            return End.LETTER_IN_DOUBT if self.failure == IN_DOUBT else End.DEAD_LETTER
        return End.IN_IN_DOUBT_QUEUE if self.failure == IN_DOUBT else End.IN_ERROR_QUEUE

    def is_called(self, name: str) -> bool:
        """Return whether `name` is one of the message's names."""
        return is_called(name, self.key, [self.id])

    @property
    def place(self) -> str:
        r"""The queue that has the copy or dead letter, such as `destination\orders-errors`."""
        return f"{self.node}\\{self.where}"

    @property
    def called(self) -> tuple[str, str]:
        """The scope and key under which the history has the trigger's document about the message."""
        return f"trigger/{self.queue}", self.key or self.id

    def as_json(self) -> dict[str, Any]:
        """Return the failure as values for programs."""
        return {
            "message": self.id,
            "key": self.key,
            "end": self.end,
            "lies_in": self.place,
            "queue": self.queue,
            "failure": self.failure,
            "reason": self.reason,
            "attempts": self.attempts,
            "label": self.label,
            "since": self.since.isoformat(),
            "body_bytes": self.body_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFilter:
    """Selects the failures that meet all of these conditions.

    names: identifiers of messages, or producers' ids; None for any message.
    queue: the queue that they were in; empty for any.
    reason: a part of the text `failure: reason`, ignoring case.
    since, until: the range of times in which they failed, UTC; None for any time.
    in_doubt: whether to select only messages that may have been processed.
    """

    names: Collection[str] | None = None
    queue: str = ""
    reason: str = ""
    since: datetime | None = None
    until: datetime | None = None
    in_doubt: bool = False

    def has(self, failure: FailedMessage) -> bool:
        """Return whether the filter selects a failure."""
        why = f"{failure.failure}: {failure.reason}"
        return (
            (self.names is None or any(map(failure.is_called, self.names)))
            and self.queue.casefold()
            in ("", failure.queue.casefold(), failure.queue.rpartition("\\")[2].casefold())
            and self.reason.casefold() in why.casefold()
            and (self.since is None or failure.since >= self.since)
            and (self.until is None or failure.since < self.until)
            and (failure.failure == IN_DOUBT or not self.in_doubt)
        )


def failure_in(topology: Topology, node: str, where: str, message: ReceivedMessage) -> FailedMessage | None:
    """Return the failure that a dead letter or copy in a node's queue describes; None for other messages."""
    note: FailureNote | None
    if where in DEAD_LETTERS or is_letter(message.packet):
        queue = destination_of(topology, message)
        note = FailureNote(failure=message.message_class, message=str(message.id), queue=queue)
    else:
        note = note_of(topology, node, where, message)
    return None if note is None else FailedMessage.of(note, node, where, message)


def destination_of(topology: Topology, message: ReceivedMessage) -> str:
    r"""Return a message's destination, such as `destination\orders`; empty if it cannot be determined."""
    user = message.record.user
    name = destination_from_wire(user.destination_type, user.destination_queue, user.queue_manager_address)
    return known_as(topology, str(name)) if name is not None else ""


def note_of(topology: Topology, node: str, where: str, message: ReceivedMessage) -> FailureNote | None:
    """Return the trigger's note in a copy; None if the message is not a trigger's copy.

    Anybody who may send to a queue can forge such a note. So the copy must come from the node of the queue that the
    note names, must have the original's identifier as its correlation id, and must be in another queue.
    """
    note = FailureNote.of(message.extension)
    if note is None or str(message.correlation) != note.message:
        return None
    # Triggers of 0.5 left the node out, as they had their error queues beside them.
    queue = note.queue if "\\" in note.queue else f"{node}\\{note.queue}"
    of_node = topology.nodes.get(queue.partition("\\")[0])
    if of_node is None or message.source != of_node.guid or queue == f"{node}\\{where}":
        return None
    return msgspec.structs.replace(note, queue=queue)


def lies_as(failures: Iterable[FailedMessage]) -> list[MessageId]:
    """Return the identifiers of the copies and dead letters in the queues."""
    return [failure.lies_as for failure in failures]

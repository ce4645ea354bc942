"""Failed messages and their reasons, from error queues, in-doubt queues and dead-letter queues."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from mqproto.edge.custody import IN_DOUBT, End, is_called
from mqproto.formatname.wire import destination_from_wire
from mqproto.messages.kept import is_letter
from mqproto.queues.localqueue import DEAD_LETTERS
from mqproto.simulator.client import MessageId, ReceivedMessage
from mqproto.simulator.client.envelope import Envelope, FailureNote
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.directory import known_as


@dataclass(frozen=True, slots=True)
class FailedMessage:
    r"""A message that has failed.

    id: the message's identifier, `GUID\ordinal`; a copy of it has another one, and a dead letter this.
    key: the producer's id of it; empty for none.
    node, where: the node and the queue that have it now.
    queue: where it was, or was going, such as `destination\orders`.
    failure: `business error`, `retrieval failure`, `in doubt`, or the class of a dead letter.
    reason: what the consumer said, in one line; of a dead letter in doubt, why it is, and its class.
    attempts: how often it was attempted.
    label, body_bytes: as of the message.
    since: when it failed, UTC; of a dead letter of which nobody knows, when it was sent.
    lies_as: the identifier of the copy, or of the letter.
    packet_bytes: how long that is.
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
        """What lies in a queue of a node, and what is noted of it."""
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
        """Whether it is a dead letter, and not the copy that a trigger has made."""
        return self.where in DEAD_LETTERS or self.id == str(self.lies_as)

    @property
    def end(self) -> End:
        """Who has it."""
        if self.is_letter:
            return End.LETTER_IN_DOUBT if self.failure == IN_DOUBT else End.DEAD_LETTER
        return End.IN_IN_DOUBT_QUEUE if self.failure == IN_DOUBT else End.IN_ERROR_QUEUE

    def is_called(self, name: str) -> bool:
        """Whether it is meant by this name."""
        return is_called(name, self.key, [self.id])

    @property
    def place(self) -> str:
        r"""The queue that has it, such as `destination\orders-errors`."""
        return f"{self.node}\\{self.where}"

    @property
    def called(self) -> tuple[str, str]:
        """The scope and key under which the history has what its trigger says about it."""
        return f"trigger/{self.queue}", self.key or self.id

    def as_json(self) -> dict[str, Any]:
        """For programs."""
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
    """Which failures are meant: those for which all of this holds.

    names: identifiers of messages, or producers' ids; None for any.
    queue: where they were; empty for any.
    reason: a part of `failure: reason`, in any case.
    since, until: when they failed, UTC; None for any time.
    in_doubt: those alone that may have been processed.
    """

    names: Collection[str] | None = None
    queue: str = ""
    reason: str = ""
    since: datetime | None = None
    until: datetime | None = None
    in_doubt: bool = False

    def has(self, failure: FailedMessage) -> bool:
        """Whether a failure is meant."""
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
    """What has failed, by the dead letter or the copy that lies in a queue of a node; None if it is neither."""
    note: FailureNote | None
    if where in DEAD_LETTERS or is_letter(message.packet):
        queue = destination_of(topology, message)
        note = FailureNote(failure=message.message_class, message=str(message.id), queue=queue)
    else:
        note = note_of(topology, node, where, message)
    return None if note is None else FailedMessage.of(note, node, where, message)


def destination_of(topology: Topology, message: ReceivedMessage) -> str:
    r"""Where a message was sent, such as `destination\orders`; empty if its name says nothing."""
    user = message.record.user
    name = destination_from_wire(user.destination_type, user.destination_queue, user.queue_manager_address)
    return known_as(topology, str(name)) if name is not None else ""


def note_of(topology: Topology, node: str, where: str, message: ReceivedMessage) -> FailureNote | None:
    """Why a trigger has put a copy into a queue of a node; None if it is not a copy of a trigger's.

    Whoever may send to a queue can write such a note into a message. So it has to come from the node whose queue it
    names, to name the message that it is about once more as its correlation id, and to lie in another queue.
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
    """The identifiers of what lies in the queues."""
    return [failure.lies_as for failure in failures]

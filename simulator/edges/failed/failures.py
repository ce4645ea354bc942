"""Which messages have failed, and why: what error queues, in-doubt queues and dead-letter queues have on disk."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from mqproto.base.errors import WireFormatError
from mqproto.formatname.wire import destination_from_wire
from mqproto.turn.effects import QueueKind
from simulator.client import MessageId, ReceivedMessage
from simulator.client.envelope import Envelope, FailureNote
from simulator.storage.care import salvaged
from simulator.storage.care.export import exported
from simulator.storage.files import SYSTEM_FILES
from simulator.topology import Topology, places
from simulator.topology.directory import known_as
from simulator.topology.places import Place

LETTERS: Final = ("system$;deadxact", "system$;deadletter")
"""The dead-letter queues of a node."""


@dataclass(frozen=True, slots=True)
class Failure:
    r"""A message that has failed.

    id: the message's identifier, `GUID\ordinal`; a copy of it has another one, and a dead letter this.
    node, where: the node and the queue that have it now.
    queue: where it was, or was going, such as `destination\orders`.
    failure: `business error`, `retrieval failure`, `in doubt`, or the class of a dead letter.
    reason: what the consumer said, in one line.
    attempts: how often it was attempted; 0 for a dead letter.
    found: the copy, or the letter.
    """

    id: str
    key: str
    node: str
    where: str
    queue: str
    failure: str
    reason: str
    attempts: int
    found: ReceivedMessage

    @property
    def is_letter(self) -> bool:
        """Whether it is a dead letter, and not the copy that a trigger has made."""
        return self.where in LETTERS

    @property
    def since(self) -> datetime:
        """When the copy was made, or the message that is a dead letter was sent, UTC."""
        return self.found.sent_time

    @property
    def place(self) -> str:
        r"""The queue that has it, such as `destination\orders-errors`."""
        return f"{self.node}\\{self.where}"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "message": self.id,
            "key": self.key,
            "lies_in": self.place,
            "queue": self.queue,
            "failure": self.failure,
            "reason": self.reason,
            "attempts": self.attempts,
            "label": self.found.label,
            "since": self.since.isoformat(),
            "body_bytes": len(self.found.body),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which failures are meant: those for which all of this holds.

    names: identifiers of messages, or producers' ids; None for any.
    queue: where they were; empty for any.
    reason: a part of `failure: reason`, in any case.
    since, until: when they failed, UTC; None for any time.
    """

    names: Collection[str] | None = None
    queue: str = ""
    reason: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def has(self, failure: Failure) -> bool:
        """Whether a failure is meant."""
        why = f"{failure.failure}: {failure.reason}"
        return (
            (self.names is None or not {failure.id, failure.key}.isdisjoint(self.names))
            and self.queue.casefold()
            in ("", failure.queue.casefold(), failure.queue.rpartition("\\")[2].casefold())
            and self.reason.casefold() in why.casefold()
            and (self.since is None or failure.since >= self.since)
            and (self.until is None or failure.since < self.until)
        )


class Found:
    """What a look into the stores has found.

    failures: in the order of their queues.
    not_whole: what of the stores cannot be read, a line each.
    not_here: nodes whose stores are elsewhere.
    """

    def __init__(self, failures: list[Failure], not_whole: list[str], not_here: list[str]) -> None:
        self.failures = failures
        self.not_whole = not_whole
        self.not_here = not_here


def found_in(place: Place) -> Found:
    """All that has failed, from the stores in a folder; nodes may run.

    Raises:
        StoreError: a store cannot be read at all.
    """
    failures: list[Failure] = []
    not_whole: list[str] = []
    not_here: list[str] = []
    for name in place.topology.nodes:
        path = places.store_path(place.directory, name)
        if not path.is_file():
            not_here.append(name)
            continue
        with closing(salvaged(SYSTEM_FILES, path)) as store:
            not_whole += store.findings
            for message in exported(store):
                if message.kind is not QueueKind.LOCAL:
                    continue
                try:
                    failures += _failure(place.topology, name, message.queue, ReceivedMessage(message.packet))
                except WireFormatError as error:
                    not_whole.append(f"{path}: a packet in {message.queue}: {error}")
    return Found(failures, not_whole, not_here)


def _failure(topology: Topology, node: str, where: str, message: ReceivedMessage) -> Iterator[Failure]:
    envelope = Envelope.of(message.extension)
    if where in LETTERS:
        user = message.record.user
        name = destination_from_wire(
            user.destination_type, user.destination_queue, user.queue_manager_address
        )
        queue = known_as(topology, str(name)) if name is not None else ""
        yield Failure(
            str(message.id), envelope.producer_key, node, where, queue, message.message_class, "", 0, message
        )
    elif (note := FailureNote.of(message.extension)) is not None:
        yield Failure(
            note.message,
            envelope.producer_key,
            node,
            where,
            note.queue,
            note.failure,
            note.reason,
            note.attempts,
            message,
        )


def lies_as(failures: Iterable[Failure]) -> list[MessageId]:
    """The identifiers of what lies in the queues."""
    return [failure.found.id for failure in failures]

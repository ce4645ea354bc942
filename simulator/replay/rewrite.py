"""Changes the fields that must differ when a captured part is played again, and counts the changes.

A live peer may have had these very messages, so each gets a new MessageID and each sequence a newer TxSequenceID;
otherwise the peer would drop them as duplicates ([MS-MQQB] 3.1.5.8.1, 3.1.5.8.6).

Everything from one queue manager to one queue becomes one sequence, whose numbers begin with 1 and have no gaps, even
if the capture has only parts of it. A sender begins a new sequence only when all messages of the last one have been
acknowledged ([MS-MQQB] 3.1.5.6), and the peer may acknowledge them later than in the capture. Messages that were sent
out of order are again sent out of order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, TypeAlias

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.captures.answers import Identity, Place
from mqproto.captures.script import Script
from mqproto.formatname import (
    DirectName,
    MultipleElementName,
    PathName,
    PrivateName,
    SingleName,
    direct_name,
    parse_queue_name,
)
from mqproto.formatname.wire import destination_from_wire, destination_to_wire
from mqproto.wire import (
    NULL_GUID,
    Guid,
    PrivateQueueFormatName,
    QueueName,
    TxSequenceId,
    UserMessage,
    guid_text,
)

Stream: TypeAlias = tuple[Guid, str]
"""A captured sender, and the queue that its messages now go to."""


@dataclass(slots=True)
class RewrittenField:
    """A rewritten field: the number of messages in which it was rewritten, and an example."""

    count: int
    old: str
    new: str


class Changes(dict[str, RewrittenField]):
    """The rewritten fields, keyed by their dotted names."""

    def note(self, name: str, old: object, new: object) -> None:
        """Note a field whose value differs from the captured one; ignore a value that does not differ."""
        if old == new:
            return
        change = self.get(name)
        if change is None:
            self[name] = RewrittenField(1, _shown(old), _shown(new))
        else:
            change.count += 1


def _shown(value: object) -> str:
    match value:
        case bytes():
            return guid_text(Guid(value))
        case TxSequenceId(time_stamp=time_stamp, ordinal=ordinal):
            return f"{time_stamp}/{ordinal}"
        case _:
            return str(value)


class QueueMap(NamedTuple):
    """One option `--map FROM=TO`, by which messages for one queue go to another."""

    old: SingleName
    new: SingleName


def read_map(text: str) -> QueueMap:
    r"""Read `FROM=TO`; both are format names in any spelling, or path names.

    A name may contain `=` as well, so the first `=` with a valid name on both sides counts.

    Raises:
        UsageError: the text does not have this form.
    """
    for place, letter in enumerate(text):
        if letter == "=":
            with suppress(FormatNameError):
                return QueueMap(_queue(text[:place]), _queue(text[place + 1 :]))
    raise UsageError(
        rf"--map {text!r} is not a FROM=TO of two queues; write PRIVATE=GUID\00000010=DIRECT=OS:server\private$\q"
    )


def _queue(text: str) -> SingleName:
    """Read the name of a single queue to which a message can go."""
    name = parse_queue_name(text)
    if isinstance(name, PathName):
        name = direct_name(name)
    destination_to_wire(name)
    assert not isinstance(name, MultipleElementName), "one message cannot go to several"
    return name


@dataclass(frozen=True, slots=True)
class _Planned:
    """A rewritten message, without the fields that depend on the peer."""

    identity: Identity
    place: Place | None
    previous: int
    destination: SingleName | None


class Rewriter:
    """Rewrites the messages of a script.

    Args:
        sources: the replacements of captured queue managers; other queue managers stay as they are.
        maps: the maps of queues; if several apply to a message, the first one counts.
        first_message_id: the MessageID of the first message; those of the other messages follow it.
        newest: an identifier higher than every TxSequenceID that the peer may have had from these queue managers.
        is_alone: whether each message is a transaction of its own.

    Raises:
        UsageError: two queues are mapped to one, and both have transactional messages from one sender.
    """

    def __init__(
        self,
        script: Script,
        *,
        sources: Mapping[Guid, Guid],
        maps: Sequence[QueueMap] = (),
        first_message_id: int,
        newest: TxSequenceId,
        is_alone: bool = False,
    ) -> None:
        self.changes = Changes()
        self.broken_signature_count = 0
        self._script = script
        self._is_alone = is_alone
        self._sources = sources
        self._maps = {key_of(each.old): each.new for each in reversed(maps)}
        self._plans = self._planned(first_message_id, newest)
        self._ids = count(first_message_id + len(self._plans))

    def identity(self, number: int) -> Identity:
        """Return the new identity of a message of the script."""
        return self._plans[number].identity

    def place(self, number: int) -> Place | None:
        """Return the new place of a message in its sequence, if it is transactional."""
        return self._plans[number].place

    def next_message_id(self) -> int:
        """Return a MessageID for something that is not a message of the script."""
        return next(self._ids) % 2**32

    def rewritten(self, number: int, peer: Guid, now_s: int) -> UserMessage:
        """Return a message in the form in which it has to be sent to the queue manager `peer` now."""
        message, plan, note = self._script.message(number), self._plans[number], self.changes.note
        user = message.user
        source, message_id = plan.identity
        note("user.source_queue_manager", user.source_queue_manager, source)
        note("user.message_id", user.message_id, message_id)
        note("user.sent_time_s", user.sent_time_s, now_s)
        user.source_queue_manager, user.message_id, user.sent_time_s = source, message_id, now_s
        self._send_elsewhere(message, plan.destination, peer)
        user.admin_queue = self._moved("user.admin_queue", user.admin_queue, peer)
        user.response_queue = self._moved("user.response_queue", user.response_queue, peer)
        header = message.transaction
        if header is not None:
            assert plan.place is not None
            identifier, place = plan.place
            note("transaction.tx_sequence_id", header.tx_sequence_id, identifier)
            note("transaction.tx_sequence_number", header.tx_sequence_number, place)
            note("transaction.previous_tx_sequence_number", header.previous_tx_sequence_number, plan.previous)
            header.tx_sequence_id, header.tx_sequence_number = identifier, place
            header.previous_tx_sequence_number = plan.previous
            if self._is_alone:
                note("transaction.first", header.first, True)
                note("transaction.last", header.last, True)
                header.first = header.last = True
        if message.security is not None and message.security.signature:
            self.broken_signature_count += 1
        return message

    def _send_elsewhere(self, message: UserMessage, destination: SingleName | None, peer: Guid) -> None:
        user, note = message.user, self.changes.note
        old_manager, old_queue = user.queue_manager_address, destination_of(message)
        if old_manager == self._script.peer_manager:
            user.queue_manager_address = peer
        if destination is not None:
            user.destination_type, user.destination_queue = destination_to_wire(destination)
            user.destination_padding = b""
            match destination:
                case PrivateName(manager=manager):
                    user.queue_manager_address = manager
                case DirectName():
                    user.queue_manager_address = NULL_GUID
                case _ if old_manager == NULL_GUID:
                    user.queue_manager_address = peer
            note("user.destination_queue", str(old_queue), str(destination))
        note("user.queue_manager_address", old_manager, user.queue_manager_address)

    def _moved(self, field: str, queue: QueueName, peer: Guid) -> QueueName:
        """Return a queue name in which a captured queue manager's GUID is replaced."""
        if not isinstance(queue, PrivateQueueFormatName):
            return queue
        old = queue.source_queue_manager
        new = peer if old == self._script.peer_manager else self._sources.get(old, old)
        self.changes.note(field, old, new)
        return PrivateQueueFormatName(new, queue.private_queue_identifier)

    # The plan

    def _planned(self, first_message_id: int, newest: TxSequenceId) -> list[_Planned]:
        messages = self._script.messages
        names = [destination_of(self._script.message(number)) for number in range(len(messages))]
        destinations = [self._maps.get(key_of(name)) for name in names]
        streams = [
            (message.identity[0], key_of(new or old))
            for message, new, old in zip(messages, destinations, names, strict=True)
        ]
        ranks = self._ranks(streams, [key_of(name) for name in names])
        identifiers = {
            stream: TxSequenceId(time_stamp=newest.time_stamp, ordinal=newest.ordinal + count)
            for count, stream in enumerate(ranks, 1)
        }
        plans = []
        for number, (message, stream) in enumerate(zip(messages, streams, strict=True)):
            source = message.identity[0]
            identity = (self._sources.get(source, source), (first_message_id + number) % 2**32)
            place = None
            if message.place is not None:
                place = (identifiers[stream], ranks[stream][message.place])
            plans.append(_Planned(identity, place, place[1] - 1 if place else 0, destinations[number]))
        return plans

    def _ranks(self, streams: Sequence[Stream], origins: Sequence[str]) -> dict[Stream, dict[Place, int]]:
        """Return the new number of each captured place, keyed by the stream and then by the place.

        `origins` are the queues to which the messages went.
        """
        places: dict[Stream, set[Place]] = {}
        origin_of: dict[Stream, str] = {}
        for message, stream, origin in zip(self._script.messages, streams, origins, strict=True):
            if message.place is None:
                continue
            # Two streams in one would make each other's messages old.  [MS-MQDMPR] 3.1.1.5
            if origin_of.setdefault(stream, origin) != origin:
                raise UsageError(
                    f"two queues with transactional messages would become one, {stream[1]}: map one of them"
                )
            places.setdefault(stream, set()).add(message.place)
        return {
            stream: {place: rank for rank, place in enumerate(sorted(found), 1)}
            for stream, found in places.items()
        }


def destination_of(message: UserMessage) -> SingleName | None:
    """Return the queue to which a message goes; None if the queue does not have a name."""
    user = message.user
    try:
        return destination_from_wire(
            user.destination_type, user.destination_queue, user.queue_manager_address
        )
    except FormatNameError:
        return None


def key_of(name: SingleName | None) -> str:
    """Return a key for a name. Names that differ only in case have the same key."""
    return str(name).casefold()

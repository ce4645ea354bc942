"""What applications hand in.  [MS-MQQB] 3.1.7.11, 3.1.7.1.3"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mqproto.configuration import Settings
from mqproto.copies import list_bytes, list_of_all
from mqproto.destinations import Destination
from mqproto.endings import Ending, Place
from mqproto.errors import FormatNameError, QuotaExceeded, UsageError
from mqproto.expiration import Expiration
from mqproto.formatname import DirectName, PrivateName, PublicName, parse_format_name
from mqproto.localqueue import LocalQueue
from mqproto.localqueues import LocalQueues
from mqproto.moment import Moment
from mqproto.outbound import TRANSACTION_LIMIT, Outbound
from mqproto.pending import PendingWrites
from mqproto.transfer.incoming import FINAL_ACK, asks_final_ack
from mqproto.waypoints import OFF, Waypoints
from mqproto.wire import (
    INFINITE,
    MessageClass,
    PrivateQueueFormatName,
    QueueName,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    encode_packet,
    user_message,
)
from mqproto.wire.glance import reach_deadline_s, receive_deadline_s
from mqproto.wire.guid import Guid
from mqproto.wire.properties import MessagePropertiesHeader

LABEL_LIMIT: Final = 249
"""Characters of a label, without the NUL that ends it.  [MS-MQMQ] 2.2.19.3"""
PACKET_LIMIT_BYTES: Final = 0x00400000
HEADROOM_BYTES: Final = 2_048
"""Room for all headers of a message that we send, so that the size of its body tells whether it fits."""
NAME_ROOM: Final = 300
"""The longest name of an administration or response queue, in characters; two of them fit the headroom."""

FIRST: Final = TransactionHeader.first.mask
LAST: Final = TransactionHeader.last.mask
ACKNOWLEDGE_ARRIVAL: Final = MessagePropertiesHeader.acknowledge_arrival.mask
ACKNOWLEDGE_RECEIPT: Final = MessagePropertiesHeader.acknowledge_receipt.mask
REPORT_NO_ARRIVAL: Final = MessagePropertiesHeader.report_no_arrival.mask
REPORT_NO_RECEIPT: Final = MessagePropertiesHeader.report_no_receipt.mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message as an application writes it.

    admin_queue, response_queue: format names; empty for none.
    acknowledgments: what the administration queue hears of: ACKNOWLEDGE_ARRIVAL and the three beside it.
    trace_queue: the format name of the public queue that report messages go to; empty for none.
    destinations: the format names of all queues that get a copy, which each copy lists; empty if there is one.
        `mqproto.copies.copies` sets it.
    """

    body: bytes
    label: str = ""
    transactional: bool = False
    recoverable: bool = False
    priority: int = 3
    extension: bytes = b""
    body_type: int = 0
    application_tag: int = 0
    correlation_id: bytes = bytes(20)
    time_to_reach_queue_s: int = INFINITE
    time_to_be_received_s: int = INFINITE
    journal_negative: bool = False
    journal_positive: bool = False
    final_ack: bool = False
    admin_queue: str = ""
    response_queue: str = ""
    acknowledgments: int = 0
    trace_queue: str = ""
    destinations: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """What of a packet its application decides, about."""
        listed = list_bytes(self.destinations) if self.destinations else 0
        return len(self.body) + len(self.extension) + listed

    def check(self, *, names: bool = True) -> None:
        """See that a packet can carry it.

        names: whether its queues go by their format names already, and are looked at.

        Raises:
            UsageError: names what is too long, and the limit.
        """
        room = PACKET_LIMIT_BYTES - HEADROOM_BYTES
        if self.size_bytes > room:
            raise UsageError(
                f"body{', list of destinations' if self.destinations else ''} and extension have "
                f"{self.size_bytes:,} bytes; a message carries at most {room:,}"
            )
        if self.label:
            if len(self.label.encode("utf-16-le", "surrogatepass")) > 2 * LABEL_LIMIT:
                raise UsageError(f"the label has {len(self.label)} characters; at most {LABEL_LIMIT} fit")
            if "\0" in self.label:
                raise UsageError("the label has a NUL character, which would end it")
        if not 0 <= self.priority <= 7:
            raise UsageError(f"priority {self.priority}: must be 0 to 7")
        if len(self.correlation_id) != 20:
            raise UsageError(f"the correlation id has {len(self.correlation_id)} bytes, must have 20")
        for what, seconds in (
            ("time_to_reach_queue_s", self.time_to_reach_queue_s),
            ("time_to_be_received_s", self.time_to_be_received_s),
        ):
            if not 0 <= seconds <= INFINITE:
                raise UsageError(f"{what} is {seconds}: must be 0 to {INFINITE}, which is for ever")
        for what, number in (("body_type", self.body_type), ("application_tag", self.application_tag)):
            if not 0 <= number <= 0xFFFFFFFF:
                raise UsageError(f"{what} is {number}: must be 0 to {0xFFFFFFFF}")
        if not 0 <= self.acknowledgments <= 0xF:
            raise UsageError(f"acknowledgments is {self.acknowledgments:#x}: four bits there are")
        if self.acknowledgments and not self.admin_queue:
            raise UsageError("acknowledgments are asked for and no admin_queue: name one")
        if not names:
            return
        if self.trace_queue and not isinstance(queue_name(self.trace_queue), bytes):
            raise UsageError(f"trace_queue is {self.trace_queue}: reports go to a public queue, PUBLIC=GUID")
        if self.admin_queue or self.response_queue:
            queue_name(self.admin_queue)
            queue_name(self.response_queue)
        if self.destinations:
            list_of_all(self.destinations)


@lru_cache(maxsize=1_000)
def queue_name(text: str) -> QueueName:
    """A format name as a UserHeader's AdminQueue or ResponseQueue; None for the empty text.

    Raises:
        UsageError: no acknowledgment and no answer can go to such a name.
    """
    if not text:
        return None
    try:
        name = parse_format_name(text)
    except FormatNameError as error:
        raise UsageError(str(error)) from None
    if len(text) > NAME_ROOM:
        raise UsageError(f"{text[:40]}... has {len(text)} characters; at most {NAME_ROOM} fit")
    match name:
        case PrivateName(journal=False):
            return PrivateQueueFormatName(name.manager, name.identifier)
        case PublicName(journal=False):
            return name.guid
        case DirectName(read_only=False):
            return name.wire_text
    raise UsageError(f"{text}: name one public, private or direct queue")


def _guid_of(public: str) -> Guid | None:
    guid = queue_name(public)
    return guid if isinstance(guid, bytes) else None


def number_in(header: TransactionHeader, identifier: TxSequenceId, number: int, previous: int) -> None:
    """Give a message its place in its sequence.  [MS-MQMQ] 2.2.20.5"""
    header.tx_sequence_id = identifier
    header.tx_sequence_number = number
    header.previous_tx_sequence_number = previous


class Sending:
    """Applications' messages on their way into the queues."""

    def __init__(
        self,
        identity: Guid,
        settings: Settings,
        writes: PendingWrites,
        endings: list[Ending],
        outbound: Outbound,
        queues: LocalQueues,
        expiration: Expiration,
        waypoints: Waypoints = OFF,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._writes = writes
        self._endings = endings
        self._outbound = outbound
        self._queues = queues
        self._expiration = expiration
        self._waypoints = waypoints
        self.stored_bytes = 0
        """What the store held when the last batch was committed, and what was handed in since."""

    def enqueue(
        self, messages: Sequence[tuple[Destination, Draft]], now: Moment, *, together: bool = True
    ) -> list[int]:
        """Number messages, build their packets once, and put them where they wait.

        together: whether those of them that are transactional are one transaction, or one each.

        Raises:
            UsageError: one of them cannot be sent like this; nothing has changed.
        """
        if len(messages) > TRANSACTION_LIMIT:
            raise UsageError(f"{len(messages):,} messages at once; at most {TRANSACTION_LIMIT:,} are taken")
        stored_bytes = express_bytes = 0
        here_bytes: dict[LocalQueue, int] = {}
        for destination, draft in messages:
            size_bytes = self._check(destination, draft, here_bytes)
            if draft.recoverable or draft.transactional:
                stored_bytes += size_bytes
            else:
                express_bytes += size_bytes
        if self.stored_bytes + stored_bytes + express_bytes > self._settings.quota_bytes:
            raise QuotaExceeded(
                f"the store would hold more than quota_bytes = {self._settings.quota_bytes:,}: receive or purge "
                "something first"
            )
        self.stored_bytes += stored_bytes
        transactional = [number for number, (_, draft) in enumerate(messages) if draft.transactional]
        ordinals = [self._outbound.next_message_id() for _ in messages]
        for number, (destination, draft) in enumerate(messages):
            header = None
            if draft.transactional:
                first, last = (transactional[0], transactional[-1]) if together else (number, number)
                # The transaction's identifier is unique at this node, as MessageIDs are.
                header = TransactionHeader(
                    flags=FIRST * (number == first)
                    | LAST * (number == last)
                    | FINAL_ACK * draft.final_ack
                    | (ordinals[first] & 0xFFFFF) << TransactionHeader.identifier.first
                )
            self._send(destination, draft, header, ordinals[number], now)
        return ordinals

    def _check(self, destination: Destination, draft: Draft, here_bytes: dict[LocalQueue, int]) -> int:
        """See that a message can be sent; its size in bytes, about.

        here_bytes: what the messages before it take in queues of ours; this one is added.
        """
        draft.check()
        if destination.manager is None and destination.host is None:
            raise UsageError(f"{destination.name} names neither a queue manager nor a host")
        size_bytes = draft.size_bytes
        if destination.manager == self._identity:
            queue = self._here(destination)
            if queue.declaration.transactional != draft.transactional:
                kind = "transactional" if queue.declaration.transactional else "not transactional"
                raise UsageError(f"queue {queue.name} is {kind}; send it such messages only")
            here_bytes[queue] = here_bytes.get(queue, 0) + size_bytes
            if not queue.has_room(here_bytes[queue] + HEADROOM_BYTES):
                raise QuotaExceeded(
                    f"queue {queue.name} is full: its quota is {queue.declaration.quota_bytes:,} bytes"
                )
        elif draft.transactional and self._outbound.is_full(destination.name):
            raise QuotaExceeded(
                f"the sequence to {destination.name} has used up its numbers: wait until its messages are acknowledged"
            )
        return size_bytes

    def _here(self, destination: Destination) -> LocalQueue:
        queue = self._queues.addressed(destination.queue)
        if queue is None:
            raise UsageError(f"no queue {destination.queue!r} here")
        return queue

    def _send(
        self,
        destination: Destination,
        draft: Draft,
        header: TransactionHeader | None,
        message_id: int,
        now: Moment,
    ) -> None:
        if destination.manager == self._identity:
            self._deliver_here(destination, draft, header, message_id, now)
        elif header is not None:
            self._send_transactional(destination, draft, header, message_id, now)
        else:
            packet = encode_packet(self._message(destination, draft, message_id, None, now))
            self._waypoints.accepted(packet, destination.name)
            queue = self._outbound.towards(destination, draft.priority)
            expires_s = reach_deadline_s(packet)
            self._outbound.put(queue, packet, message_id, recoverable=draft.recoverable, expires_s=expires_s)
            self._expiration.expect(expires_s, now)

    def _send_transactional(
        self, destination: Destination, draft: Draft, header: TransactionHeader, message_id: int, now: Moment
    ) -> None:
        sequence = self._outbound.sequence_to(destination.name, destination.manager, destination.host, now)
        number_in(header, *sequence.number_next())
        message = self._message(destination, draft, message_id, header, now)
        final_ack = asks_final_ack(message)
        if final_ack:
            self._outbound.final_queue_of(sequence)
            sequence.final_asked = True
        packet = encode_packet(message)
        self._waypoints.accepted(packet, destination.name)
        expires_s = reach_deadline_s(packet)
        self._outbound.put(
            sequence, packet, message_id, recoverable=True, final_ack=final_ack, expires_s=expires_s
        )
        self._expiration.expect(expires_s, now)
        self._writes.changed(sequence, urgent=True)

    def _deliver_here(
        self,
        destination: Destination,
        draft: Draft,
        header: TransactionHeader | None,
        message_id: int,
        now: Moment,
    ) -> None:
        """The destination is ours: no session, no sequence, straight into the queue."""
        if header is not None:
            number_in(header, TxSequenceId(ordinal=1, time_stamp=0), max(message_id, 1), 0)
        message = self._message(destination, draft, message_id, header, now)
        packet = encode_packet(message)
        self._waypoints.accepted(packet, destination.name)
        expires_s = receive_deadline_s(packet)
        queue = self._here(destination)
        queue.insert(
            packet,
            message_id,
            self._writes,
            priority=message.base.priority,
            recoverable=message.user.recoverable,
            expires_s=expires_s,
        )
        self._queues.stir(queue)
        self._expiration.expect(expires_s, now)
        if draft.acknowledgments or (draft.journal_positive and not draft.transactional):
            self._endings.append(Ending(packet, MessageClass.ACK_REACH_QUEUE, Place.AT_DESTINATION))

    def _message(
        self,
        destination: Destination,
        draft: Draft,
        message_id: int,
        header: TransactionHeader | None,
        now: Moment,
    ) -> UserMessage:
        return user_message(
            source=self._identity,
            destination_manager=destination.address,
            destination=destination.queue,
            message_id=message_id,
            sent_time_s=now.utc_s,
            body=draft.body,
            label=draft.label,
            recoverable=draft.recoverable,
            transaction=header,
            priority=0 if header is not None else draft.priority,
            time_to_reach_queue_s=draft.time_to_reach_queue_s,
            time_to_be_received_s=draft.time_to_be_received_s,
            extension=draft.extension,
            body_type=draft.body_type,
            application_tag=draft.application_tag,
            correlation_id=draft.correlation_id,
            journal_negative=draft.journal_negative,
            journal_positive=draft.journal_positive,
            admin_queue=queue_name(draft.admin_queue),
            response_queue=queue_name(draft.response_queue),
            acknowledgments=draft.acknowledgments,
            trace_queue=_guid_of(draft.trace_queue),
            multi_queue_format=list_of_all(draft.destinations),
        )

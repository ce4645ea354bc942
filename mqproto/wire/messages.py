"""Makes UserMessages, including OrderAcks and FinalAcks, from a sender's data, and tells these acknowledgments from all
other messages.

[MS-MQMQ] 2.2.20, [MS-MQQB] 2.2.4, 2.2.5, 3.1.5.1.1, 3.1.7.11
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.wire.classes import MessageClass
from mqproto.wire.codec import encode_packet
from mqproto.wire.generated import (
    build_final_ack_body,
    build_order_ack_body,
    properties_offset,
    read_final_ack_body,
    read_order_ack_body,
)
from mqproto.wire.guid import NULL_GUID, Guid
from mqproto.wire.layouts.acknowledgment import (
    BODY_SIZE,
    FinalAckBody,
    OrderAckBody,
    final_ack_body,
    order_ack_body,
)
from mqproto.wire.layouts.base import DEFAULT_PRIORITY, INFINITE, BaseHeader
from mqproto.wire.layouts.debug import PUBLIC_TRACE_QUEUE, DebugHeader
from mqproto.wire.layouts.multiqueue import MultiQueueFormatHeader
from mqproto.wire.layouts.properties import MessagePropertiesHeader, message_properties_header
from mqproto.wire.layouts.security import SID, SecurityHeader
from mqproto.wire.layouts.transaction import TransactionHeader
from mqproto.wire.layouts.user import (
    DIRECT,
    NO_QUEUE,
    PRIVATE_ELSEWHERE,
    PRIVATE_ON_DESTINATION,
    PRIVATE_ON_SOURCE,
    PUBLIC,
    PrivateQueueFormatName,
    QueueName,
    UserHeader,
)
from mqproto.wire.packets import UserMessage, user_message_packet
from mqproto.wire.schema.layout import Anywhere, Base, MisuseError, ParseError, found
from mqproto.wire.schema.record import Record
from mqproto.wire.schema.refused import REFUSALS
from mqproto.wire.schema.stream import PacketStream

_PROPERTIES: Final = UserHeader.has_properties.mask
_DESTINATION_TYPE: Final = UserHeader.destination_type.first
_RECOVERABLE: Final = UserHeader.recoverable.mask
_TRANSACTIONAL: Final = UserHeader.has_transaction.mask | UserHeader.recoverable.mask
_JOURNAL_NEGATIVE: Final = UserHeader.journal_negative.mask
_JOURNAL_POSITIVE: Final = UserHeader.journal_positive.mask
_MULTI_QUEUE_FORMAT: Final = UserHeader.has_multi_queue_format.mask
_SECURITY: Final = UserHeader.has_security.mask
_SENDER_ID_TYPE: Final = SecurityHeader.sender_id_type.first
_DEBUG: Final = BaseHeader.debug_header.mask
_DESTINATION: Final = UserHeader.destination_type.mask
_TO_PRIVATE: Final = PRIVATE_ON_DESTINATION << _DESTINATION_TYPE
ORDER_QUEUE: Final = 4  # the identifier of the private queue order_queue$
POSTED_QUEUE: Final = 15  # where acknowledgments of posted messages come: an address that no queue has
ORDER_QUEUE_PATH: Final = "\\PRIVATE$\\order_queue$"
LABEL: Final = "QM Ordering Ack"
FIRST_FINAL_CLASS: Final = 0x4000
FINAL_ACK: Final = TransactionHeader.final_ack.mask
JOURNALS: Final = UserHeader.journal_negative.mask | UserHeader.journal_positive.mask


def user_message(
    *,
    source: Guid,
    destination_manager: Guid,
    destination: int | Guid | str,
    message_id: int,
    sent_time_s: int,
    body: bytes,
    label: str = "",
    recoverable: bool = False,
    transaction: TransactionHeader | None = None,
    priority: int | None = None,
    time_to_reach_queue_s: int = INFINITE,
    time_to_be_received_s: int = INFINITE,
    extension: bytes = b"",
    body_type: int = 0,
    application_tag: int = 0,
    correlation_id: bytes = bytes(20),
    message_class: int = 0,
    journal_negative: bool = False,
    journal_positive: bool = False,
    admin_queue: QueueName = None,
    response_queue: QueueName = None,
    acknowledgments: int = 0,
    trace_queue: Guid | None = None,
    sender_id: bytes = b"",
    multi_queue_format: MultiQueueFormatHeader | None = None,
) -> UserMessage:
    """Return a message as its sender first sends it, without a SessionHeader.  [MS-MQMQ] 2.2.20

    Args:
        source: the queue manager that sends it first.
        destination_manager: the queue manager that hosts the queue. For a direct name, the null GUID is used,
            regardless of this argument.
        destination: the identifier of a private queue there, a public queue's GUID, or a direct name without `DIRECT=`,
            such as `TCP:10.0.0.1\\\\private$\\\\orders`.
        message_id: a number that is unique at the source.
        sent_time_s: seconds since 1970, UTC.
        label: up to 249 characters; empty for none.
        recoverable: whether it survives restarts; a transactional message always does.
        priority: 0 to 7; by default 3. A transactional message must have 0, which is its default.
        admin_queue, response_queue: a number means a private queue at the source.
        acknowledgments: MessagePropertiesHeader.Flags, which ask for administration acknowledgments.
        trace_queue: the public queue for report messages from each node on the way.
        sender_id: the sender's SID, which is not verified; empty for none.
        multi_queue_format: the list of all queues that get a copy of the message.
    """
    if priority is None:
        priority = 0 if transaction is not None else DEFAULT_PRIORITY
    if not 0 <= priority <= 7:
        raise UsageError(f"priority is {priority}, must be 0 to 7  [MS-MQMQ] 2.2.19.1")
    # Set one word once: this runs for every message that is sent, and setting a bit by name costs half a microsecond.
    flags = _PROPERTIES | _queue_type(destination, PRIVATE_ON_DESTINATION) << _DESTINATION_TYPE
    if transaction is not None:
        flags |= _TRANSACTIONAL
    elif recoverable:
        flags |= _RECOVERABLE
    if journal_negative:
        flags |= _JOURNAL_NEGATIVE
    if journal_positive:
        flags |= _JOURNAL_POSITIVE
    if multi_queue_format is not None:
        flags |= _MULTI_QUEUE_FORMAT
    security = None
    if sender_id:
        flags |= _SECURITY
        # AI stays clear, as in the message of [MS-MQQB] 4.1.7.
        security = SecurityHeader(flags=SID << _SENDER_ID_TYPE, sender_id=sender_id)
    user = UserHeader(
        source_queue_manager=source,
        queue_manager_address=NULL_GUID if isinstance(destination, str) else destination_manager,
        time_to_be_received_s=time_to_be_received_s,
        sent_time_s=sent_time_s,
        message_id=message_id,
        flags=flags,
        destination_queue=destination,
    )
    if admin_queue is not None:
        user.admin_queue, user.admin_type = _nearest_name(admin_queue, source, destination_manager)
    if response_queue is not None:
        user.response_queue, user.response_type = _nearest_name(response_queue, source, destination_manager)
    base = BaseHeader(flags=priority, time_to_reach_queue_s=time_to_reach_queue_s)
    debug = None
    if trace_queue is not None:
        base.trace = base.debug_header = True
        debug = DebugHeader(flags=PUBLIC_TRACE_QUEUE, queue_identifier=trace_queue)
    return UserMessage(
        base=base,
        debug=debug,
        user=user,
        transaction=transaction,
        security=security,
        properties=MessagePropertiesHeader(
            flags=acknowledgments,
            message_class=message_class,
            correlation_id=correlation_id,
            body_type=body_type,
            application_tag=application_tag,
            allocation_body_size=len(body),
            label=label or None,
            extension_data=extension,
            message_body=body,
        ),
        multi_queue_format=multi_queue_format,
    )


def _queue_type(name: QueueName, private: int) -> int:
    """Return the type bits for a name.

    private: the bits for a private queue's identifier.
    """
    match name:
        case None:
            return NO_QUEUE
        case int():
            return private
        case str():
            return DIRECT
        case PrivateQueueFormatName():
            return PRIVATE_ELSEWHERE
        case _:
            return PUBLIC


def _nearest_name(name: QueueName, source: Guid, destination: Guid) -> tuple[QueueName, int]:
    """Return a name in its shortest form, and its type bits.  [MS-MQMQ] 2.2.19.2

    For a private queue at either end, its identifier is enough.
    """
    if isinstance(name, PrivateQueueFormatName):
        if name.source_queue_manager == source:
            return name.private_queue_identifier, PRIVATE_ON_SOURCE
        if name.source_queue_manager == destination:
            return name.private_queue_identifier, PRIVATE_ON_DESTINATION
    return name, _queue_type(name, PRIVATE_ON_SOURCE)


def acknowledgment_in(message: UserMessage) -> OrderAckBody | FinalAckBody | None:
    """Return the body of an OrderAck or a FinalAck; None for any other UserMessage.  [MS-MQQB] 3.1.5.1.1

    In an acknowledgment, all bits of BaseHeader.Flags should be 0, but we accept some that are set. Any UserMessage may
    have a SessionHeader, reserved bits are ignored on receipt, and the kind of a message does not depend on its
    priority ([MS-MQMQ] 2.2.19.1). A message with DH set is another kind of packet, because acknowledgments have no
    DebugHeader.
    """
    properties = message.properties
    message_class = properties.message_class
    if message_class != MessageClass.ORDER_ACK and message_class < FIRST_FINAL_CLASS:
        return None
    if properties.label != LABEL or len(properties.message_body) != BODY_SIZE:
        return None
    if message.base.flags & _DEBUG or not addresses_order_queue(message):
        return None
    if message_class == MessageClass.ORDER_ACK:
        return read_order_ack_body(properties.message_body)
    return read_final_ack_body(properties.message_body)


def asks_final_ack(message: UserMessage) -> bool:
    """Return whether the sender waits for a FinalAck.  2.2.5, 3.1.7.2.2"""
    transaction = message.transaction
    return transaction is not None and bool(transaction.flags & FINAL_ACK or message.user.flags & JOURNALS)


def addresses_order_queue(message: UserMessage) -> bool:
    """Return whether the destination is an order queue, by identifier or direct name.  [MS-MQQB] 2.2.4"""
    queue = message.user.destination_queue
    if message.user.flags & _DESTINATION == _TO_PRIVATE:
        return queue == ORDER_QUEUE
    return isinstance(queue, str) and queue.lower().endswith(ORDER_QUEUE_PATH.lower())


@dataclass(slots=True, kw_only=True)
class EndToEndAck:
    """The fields that OrderAcks and FinalAcks share: source, destination, and the acknowledged messages.

    source: the queue manager that acknowledges.
    destination_manager: the first sender's queue manager; NULL_GUID for a direct name.
    destination: ORDER_QUEUE, or a direct name that ends with ORDER_QUEUE_PATH.
    message_id: unique at its source.
    sent_time_s: seconds since 1970, UTC.
    """

    source: Guid
    destination_manager: Guid
    destination: int | str
    message_id: int
    sent_time_s: int
    message_class: int
    body: OrderAckBody | FinalAckBody

    definition: ClassVar[AcknowledgmentPacket[Any]]

    def message(self) -> UserMessage:
        """Return the acknowledgment as a UserMessage.

        DM stays 0, as 2.2.4 says, although 3.1.7.17 asks for Recoverable.

        Raises:
            UsageError: a value breaks a rule of the specification.
        """
        is_final = isinstance(self.body, FinalAckBody)
        try:
            body = build_final_ack_body(self.body) if is_final else build_order_ack_body(self.body)
        except REFUSALS:
            body = self.definition.body.encode(self.body)
        return user_message(
            source=self.source,
            destination_manager=self.destination_manager,
            destination=self.destination,
            message_id=self.message_id,
            sent_time_s=self.sent_time_s,
            body=body,
            label=LABEL,
            recoverable=is_final,
            priority=0,
            message_class=self.message_class,
        )

    def build(self) -> bytes:
        """Return the packet. Raise UsageError as `message` does, or if the result is not this kind of packet."""
        return self.definition.build(self)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return the acknowledgment that a whole packet contains.

        For the other fields of the packet, use `definition`.

        Raises:
            WireFormatError: the bytes are not a packet, or are another kind of packet.
        """
        record: Self = cls.definition.decode(data)
        return record


@dataclass(slots=True, kw_only=True)
class OrderAck(EndToEndAck):
    """A whole OrderAck: the destination has all messages up to a number on its disk.  [MS-MQQB] 2.2.4"""

    message_class: int = MessageClass.ORDER_ACK
    body: OrderAckBody


@dataclass(slots=True, kw_only=True)
class FinalAck(EndToEndAck):
    """A whole FinalAck: a message was received (ACK_RECEIVE), or refused (a NACK class).  [MS-MQQB] 2.2.5"""

    body: FinalAckBody


A = TypeVar("A", OrderAck, FinalAck)


class AcknowledgmentPacket(Anywhere, Base, Generic[A]):
    """A UserMessage whose body is that of an acknowledgment: all its headers, and the fields of the body."""

    def __init__(self, kind: type[A], body: Record[Any], classes: str) -> None:
        super().__init__(user_message_packet)
        self.kind: type[A] = kind
        self.body = body
        self.limit = f"{classes}, with the label, the body and an order queue of an acknowledgment"

    def _read(self, stream: Any, context: Any, path: str) -> Any:
        fields = user_message_packet._read(stream, context, path)
        self._judge(user_message_packet.typed(fields))
        fields.properties.message_body = self.body.parse(fields.properties.message_body)
        return fields

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        return super()._build(obj.message() if isinstance(obj, self.kind) else obj, stream, context, path)

    def _write(self, fields: Any, stream: PacketStream, context: Any, path: str) -> Any:
        if isinstance(body := found(fields, "properties", "message_body"), dict):
            fields["properties"]["message_body"] = self.body.build(body)
        user_message_packet._write(fields, stream, context, path)
        try:
            self._judge(user_message_packet.decode(stream.getvalue()))
        except WireFormatError as error:
            raise MisuseError(str(error)) from None
        return fields

    def _judge(self, message: UserMessage) -> OrderAckBody | FinalAckBody:
        """Return the body of an acknowledgment of this kind; refuse any other message."""
        body = acknowledgment_in(message)
        if body is None or type(body) is not self.body.kind:
            at = properties_offset(encode_packet(message)) + message_properties_header.offset_of(
                "message_class"
            )
            message_class, section = message.properties.message_class, self.body.layout.section[:-2]
            raise ParseError("properties.message_class", at, message_class, self.limit, section)
        return body

    def decode(self, data: bytes) -> A:
        """Return the record of one whole packet.

        Raises:
            WireFormatError: the bytes do not form a packet, or form another kind of packet.
        """
        message = user_message_packet.decode(data)
        body: Any = self._judge(message)
        user: Any = message.user  # Its destination_queue is a number or a direct name.
        return self.kind(
            source=user.source_queue_manager,
            destination_manager=user.queue_manager_address,
            destination=user.destination_queue,
            message_id=user.message_id,
            sent_time_s=user.sent_time_s,
            message_class=message.properties.message_class,
            body=body,
        )


order_ack_packet = AcknowledgmentPacket(OrderAck, order_ack_body, "0xff")
final_ack_packet = AcknowledgmentPacket(FinalAck, final_ack_body, "0x4000 or above")
OrderAck.definition, FinalAck.definition = order_ack_packet, final_ack_packet

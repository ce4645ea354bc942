"""OrderAck and FinalAck: UserMessages to the order queue of a message's first sender.

[MS-MQQB] 2.2.4, 2.2.5, 3.1.5.1.1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from mqproto.base.errors import WireFormatError
from mqproto.wire.classes import MessageClass
from mqproto.wire.codec import encode_packet
from mqproto.wire.generated import (
    build_final_ack_body,
    build_order_ack_body,
    properties_offset,
    read_final_ack_body,
    read_order_ack_body,
)
from mqproto.wire.guid import Guid
from mqproto.wire.layouts.acknowledgment import (
    BODY_SIZE,
    FinalAckBody,
    OrderAckBody,
    final_ack_body,
    order_ack_body,
)
from mqproto.wire.layouts.properties import message_properties_header
from mqproto.wire.layouts.transaction import TransactionHeader
from mqproto.wire.layouts.user import PRIVATE_ON_DESTINATION, UserHeader
from mqproto.wire.messages import user_message
from mqproto.wire.packets import UserMessage, user_message_packet
from mqproto.wire.schema.layout import Anywhere, Base, MisuseError, ParseError, found
from mqproto.wire.schema.record import Record
from mqproto.wire.schema.refused import REFUSALS
from mqproto.wire.schema.stream import PacketStream

ORDER_QUEUE: Final = 4  # the identifier of the private queue order_queue$
ORDER_QUEUE_PATH: Final = "\\PRIVATE$\\order_queue$"
LABEL: Final = "QM Ordering Ack"
FIRST_FINAL_CLASS: Final = 0x4000
FINAL_ACK: Final = TransactionHeader.final_ack.mask
JOURNALS: Final = UserHeader.journal_negative.mask | UserHeader.journal_positive.mask


def acknowledgment_in(message: UserMessage) -> OrderAckBody | FinalAckBody | None:
    """Return the body of an OrderAck or a FinalAck; None for any other UserMessage.  [MS-MQQB] 3.1.5.1.1

    All bits of BaseHeader.Flags should be 0 there, but we accept a few that are set. Any UserMessage may have a
    SessionHeader, reserved bits are ignored on receipt, and a priority does not tell the kind of a message ([MS-MQMQ]
    2.2.19.1). A message with DH set is another kind of packet, because acknowledgments have no DebugHeader.
    """
    properties = message.properties
    message_class = properties.message_class
    if message_class != MessageClass.ORDER_ACK and message_class < FIRST_FINAL_CLASS:
        return None
    if properties.label != LABEL or len(properties.message_body) != BODY_SIZE:
        return None
    if message.base.debug_header or not addresses_order_queue(message):
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
    if message.user.destination_type == PRIVATE_ON_DESTINATION:
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
        """Return the packet. Raise UsageError as `message` does, or if it is not this kind of packet."""
        return self.definition.build(self)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return the acknowledgment in one whole packet. Its `definition` shows what else the packet contains.

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

"""OrderAck and FinalAck: UserMessages to the first sender's order queue.  [MS-MQQB] 2.2.4, 2.2.5, 3.1.5.1.1"""

from __future__ import annotations

from typing import Any, Final

from mqproto.wire.classes import MessageClass
from mqproto.wire.generated import (
    build_final_ack_body,
    build_order_ack_body,
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
from mqproto.wire.layouts.transaction import TransactionHeader
from mqproto.wire.layouts.user import PRIVATE_ON_DESTINATION, UserHeader
from mqproto.wire.messages import user_message
from mqproto.wire.packets import UserMessage
from mqproto.wire.schema.record import Record
from mqproto.wire.schema.refused import REFUSALS

ORDER_QUEUE: Final = 4  # the identifier of the private queue order_queue$
ORDER_QUEUE_PATH: Final = "\\PRIVATE$\\order_queue$"
LABEL: Final = "QM Ordering Ack"
FIRST_FINAL_CLASS: Final = 0x4000
FINAL_ACK: Final = TransactionHeader.final_ack.mask
JOURNALS: Final = UserHeader.journal_negative.mask | UserHeader.journal_positive.mask


def acknowledgment_in(message: UserMessage) -> OrderAckBody | FinalAckBody | None:
    """What a UserMessage acknowledges if it is an OrderAck or a FinalAck, else None.  [MS-MQQB] 3.1.5.1.1

    All bits of BaseHeader.Flags are to be 0 there. Some are let pass: a SessionHeader may ride on any UserMessage,
    reserved bits are ignored on receipt, and a priority does not say what a message is ([MS-MQMQ] 2.2.19.1). With DH it
    is another packet, as acknowledgments have no DebugHeader.
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
    """Whether the sender waits for a FinalAck.  2.2.5, 3.1.7.2.2"""
    transaction = message.transaction
    return transaction is not None and bool(transaction.flags & FINAL_ACK or message.user.flags & JOURNALS)


def _built(body: OrderAckBody | FinalAckBody) -> bytes:
    """The bytes of a body; what it may not hold is refused in construct's words."""
    is_order = isinstance(body, OrderAckBody)
    try:
        return build_order_ack_body(body) if is_order else build_final_ack_body(body)
    except REFUSALS:
        record: Record[Any] = order_ack_body if is_order else final_ack_body
        return record.encode(body)


def addresses_order_queue(message: UserMessage) -> bool:
    """Whether the destination is an order queue, by its identifier or by a direct name.  [MS-MQQB] 2.2.4"""
    queue = message.user.destination_queue
    if message.user.destination_type == PRIVATE_ON_DESTINATION:
        return queue == ORDER_QUEUE
    return isinstance(queue, str) and queue.lower().endswith(ORDER_QUEUE_PATH.lower())


def order_ack(
    *,
    source: Guid,
    destination_manager: Guid,
    destination: int | str,
    message_id: int,
    sent_time_s: int,
    body: OrderAckBody,
) -> UserMessage:
    """An OrderAck. DM stays 0, as 2.2.4 says; 3.1.7.17 asks for Recoverable.  [MS-MQQB] 2.2.4, 3.1.7.17

    Args:
        source: the queue manager that acknowledges.
        destination_manager: the first sender's; NULL_GUID for a direct name.
        destination: ORDER_QUEUE, or a direct name that ends with ORDER_QUEUE_PATH.
    """
    return user_message(
        source=source,
        destination_manager=destination_manager,
        destination=destination,
        message_id=message_id,
        sent_time_s=sent_time_s,
        body=_built(body),
        label=LABEL,
        priority=0,
        message_class=MessageClass.ORDER_ACK,
    )


def final_ack(
    *,
    source: Guid,
    destination_manager: Guid,
    destination: int | str,
    message_id: int,
    sent_time_s: int,
    message_class: int,
    body: FinalAckBody,
) -> UserMessage:
    """A FinalAck: ACK_RECEIVE, or the NACK class that says why not.  [MS-MQQB] 2.2.5, 3.1.7.17

    Args: as for `order_ack`.
    """
    return user_message(
        source=source,
        destination_manager=destination_manager,
        destination=destination,
        message_id=message_id,
        sent_time_s=sent_time_s,
        body=_built(body),
        label=LABEL,
        recoverable=True,
        priority=0,
        message_class=message_class,
    )

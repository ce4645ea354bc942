"""Makes OrderAcks and FinalAcks.  2.2.4, 2.2.5, 3.1.7.17"""

from __future__ import annotations

from mqproto.base.moment import Moment
from mqproto.turn.endings import ReplyTo
from mqproto.wire import NULL_GUID, FinalAck, FinalAckBody, OrderAck, OrderAckBody, TxSequenceId, UserMessage
from mqproto.wire.acknowledgment import ORDER_QUEUE
from mqproto.wire.guid import Guid


def reply_to_sender(message: UserMessage, peer: str) -> ReplyTo:
    """Return where to send a message's acknowledgments.

    That is a direct name if the message came by one; otherwise it is its sender's GUID.
    """
    user = message.user
    return ReplyTo(user.source_queue_manager, peer if isinstance(user.destination_queue, str) else None)


def order_queue_of(reply_to: ReplyTo) -> tuple[Guid, int | str]:
    """Return QueueManagerAddress and DestinationQueue for the order queue of a message's sender.  3.1.7.17

    The sender is the original one (3.1.1.6.2), and not the neighbour that RemoteQMGuid would name.
    """
    if reply_to.direct_host is not None:
        return NULL_GUID, rf"TCP:{reply_to.direct_host}\PRIVATE$\order_queue$"
    return reply_to.manager, ORDER_QUEUE


def make_order_ack(
    reply_to: ReplyTo, place: tuple[TxSequenceId, int], identity: Guid, message_id: int, now: Moment
) -> UserMessage:
    """Make an OrderAck: it says that all messages of a sequence up to a number are on our disk.  2.2.4

    The number 0 means that none of them is.
    """
    identifier, number = place
    manager, destination = order_queue_of(reply_to)
    return OrderAck(
        source=identity,
        destination_manager=manager,
        destination=destination,
        message_id=message_id,
        sent_time_s=now.utc_s,
        body=OrderAckBody(
            tx_sequence_id=identifier,
            tx_sequence_number=number,
            tx_previous_sequence_number=max(0, number - 1),
        ),
    ).message()


def make_final_ack(
    message: UserMessage, message_class: int, reply_to: ReplyTo, identity: Guid, message_id: int, now: Moment
) -> UserMessage:
    """Make a FinalAck, which reports the end of one transactional message.  2.2.5"""
    assert message.transaction is not None
    manager, destination = order_queue_of(reply_to)
    return FinalAck(
        source=identity,
        destination_manager=manager,
        destination=destination,
        message_id=message_id,
        sent_time_s=now.utc_s,
        message_class=message_class,
        body=FinalAckBody(
            tx_sequence_id=message.transaction.tx_sequence_id,
            tx_sequence_number=message.transaction.tx_sequence_number,
            tx_previous_sequence_number=message.transaction.previous_tx_sequence_number,
            source_guid=message.user.source_queue_manager,
            message_id=message.user.message_id,
        ),
    ).message()

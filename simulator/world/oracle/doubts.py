"""The rules for dead letters in doubt. Their messages were sent, may have arrived, and were given up.

A message is given up when it has expired, or when it has to be sent again but can no longer be encrypted. It is also
given up when its next hop refuses it, or when a queue manager reports that it ended on its way, although only a copy
ended there.

For a time, a message may be a dead letter and also have arrived or been received. In the end, only one of these is
true.
"""

from __future__ import annotations

from mqproto.simulator.world.network.glimpse import identity_of
from mqproto.simulator.world.oracle.ledger import NOT_THERE, Ledger
from mqproto.simulator.world.oracle.watched import WatchedNode
from mqproto.simulator.world.scenarios.traffic import Message
from mqproto.transfer.doubts import IN_DOUBT_NAME
from mqproto.turn.effects import QueueKind, QueueRow
from mqproto.wire import MessageClass


def is_in_doubt(node: WatchedNode, message: Message, message_class: int | None) -> bool:
    """Return whether a node's dead letter of this class leaves open whether its message has arrived."""
    if (
        node.name != message.burst.source
        or not message.kind.transactional
        or message.identity not in node.left
    ):
        return False
    if message_class == MessageClass.NACK_REACH_QUEUE_TIMEOUT:
        return node.settings.follows_figures or message_class in message.lost_copies
    if message_class == MessageClass.NACK_DELETED:
        return not node.has_purged  # An operator who purged wants it to be gone.
    return message_class in (MessageClass.NACK_HOP_COUNT_EXCEEDED, MessageClass.NACK_BAD_ENCRYPTION)


def is_list_of_doubts(queue: QueueRow) -> bool:
    """Return whether a queue of the store is a list of dead letters in doubt.

    Such a queue has one row for each of them, and no messages.
    """
    return queue.kind is QueueKind.ORDER and queue.name.startswith(IN_DOUBT_NAME)


def is_let_go(ledger: Ledger, node: WatchedNode, message: Message) -> bool:
    """Return whether a message leaves its sequence at its source because it has expired and does not ask for a dead
    letter.
    """
    deadline_s = ledger.reach_deadline_s(message)
    return (
        message.burst.source == node.name
        and not message.kind.dead_lettered
        and not (message.arrivals or message.refusals)
        and deadline_s is not None
        and ledger.latest_utc_s(node) > deadline_s
    )


def was_let_go(ledger: Ledger, packet: bytes) -> bool:
    """Return whether the source of a message that is held behind a gap is done with the message.

    One reason is that the source has given up the message. The other is that the source was told that there was no such
    queue, and a late copy arrived when the queue existed again. The next message of the sequence will release the held
    one.
    """
    message = ledger.messages.get(identity_of(packet))
    return message is not None and (
        message.in_doubt
        or message.let_go
        or message.was_not_encrypted
        or not NOT_THERE.isdisjoint(message.told)
    )


def recalled_for_a_reason(node: WatchedNode, message: Message) -> str | None:
    """A dead letter leaves its queue by itself only for a reason.

    Its message has arrived, or the destination has reported that it refused the message.
    """
    if message.is_unsure or message.arrivals or message.refusals:
        return None
    return (
        f"{node.name} has let go of the dead letter of {message}, which has neither arrived nor been refused"
    )


def letter_is_true(message: Message) -> str | None:
    """At rest, no received message is a dead letter.

    The dead letter of a refused message says why the message was refused. If a message asks for no FinalAck, its
    destination may not have reported the outcome. If the queue was missing for one copy of the message and present for
    the next, the destination has reported both outcomes. The source goes by the first report, whichever it is.
    """
    classes = {message_class for node, message_class in message.letters if node == message.burst.source}
    if (
        not message.in_doubt
        or message.is_unsure
        or message.was_hurt
        or (message.deleted and MessageClass.NACK_DELETED in classes)
    ):
        return None
    if message.receipts and classes - set(message.refusals) and message.kind.asks_final_ack:
        return f"{message} was received and is a dead letter, in doubt, and its destination has said so"
    if message.refusals and not message.receipts and not classes & set(message.refusals):
        return f"{message} was refused with {message.refusals}, and its dead letter tells {classes}"
    return None

"""What must hold of dead letters in doubt: of messages that were sent, may have arrived, and were over at their source.

For a time one may be a dead letter and have arrived, or been received, as well. In the end one of both is true.
"""

from __future__ import annotations

from mqproto.base.configuration import FIGURE_9
from mqproto.transfer.doubts import IN_DOUBT_NAME
from mqproto.turn.effects import QueueKind, QueueRow
from mqproto.wire import MessageClass
from simulator.world.network.glimpse import identity_of
from simulator.world.oracle.ledger import Ledger
from simulator.world.oracle.watched import WatchedNode
from simulator.world.scenarios.traffic import Message


def is_in_doubt(node: WatchedNode, message: Message, message_class: int | None) -> bool:
    """Whether a dead letter of this class at a node leaves open whether the message has arrived."""
    return (
        node.settings.expire_sent == FIGURE_9
        and message_class == MessageClass.NACK_REACH_QUEUE_TIMEOUT
        and node.name == message.burst.source
        and message.kind.transactional
        and message.identity in node.left
    )


def is_list_of_doubts(queue: QueueRow) -> bool:
    """Whether a queue of the store has one row for each letter in doubt, and no messages."""
    return queue.kind is QueueKind.ORDER and queue.name == IN_DOUBT_NAME


def was_let_go(ledger: Ledger, packet: bytes) -> bool:
    """Whether a message that is held behind a gap is over at its source: the next of its sequence would bring it on."""
    message = ledger.messages.get(identity_of(packet))
    return message is not None and message.in_doubt


def recalled_for_a_reason(node: WatchedNode, message: Message) -> str | None:
    """A dead letter leaves unasked only if its message has arrived, or its destination has said that it refused it."""
    if message.is_unsure or message.arrivals or message.refusals:
        return None
    return (
        f"{node.name} has let go of the dead letter of {message}, which has neither arrived nor been refused"
    )


def letter_is_true(message: Message) -> str | None:
    """When all is at rest, what was received is no dead letter, and the letter of what was refused tells why."""
    classes = {message_class for _, message_class in message.letters}
    if not message.in_doubt or message.is_unsure or MessageClass.NACK_DELETED in classes:
        return None
    if message.receipts and classes:
        return f"{message} was received and is a dead letter, in doubt, and its destination has said so"
    if message.refusals and not classes & set(message.refusals):
        return f"{message} was refused with {message.refusals}, and its dead letter tells {classes}"
    return None

"""The consequences of a message's end, as a table: who gets a FinalAck, and where the message is kept.

Three things matter: how the message ended, whether this queue manager sent it, and whether it is transactional. Bits in
the message say whether its sender wants what the table allows. The table has no administration acknowledgments:
wherever a message ends, they are sent if the message's four bits for them say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from mqproto.queues.localqueue import SystemQueue
from mqproto.wire import MessageClass

IN_QUEUE_BIT: Final = 0x4000
"""The bit that is set in the class of a message that ended after it had reached its queue.  [MS-MQMQ] 2.2.18.1.6"""


DISREGARDED: Final = frozenset(
    {
        MessageClass.NACK_BAD_DST_Q,
        MessageClass.NACK_BAD_ENCRYPTION,
        MessageClass.NACK_BAD_SIGNATURE,
        MessageClass.NACK_ACCESS_DENIED,
        MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
    }
)
"""Classes of messages that a destination disregards.  3.1.5.8.2, 3.1.5.8.3

By default it tells no administration queue, because an answer would inform strangers (5.1). The sender of a
transactional message still gets a FinalAck.
"""


class End(Enum):
    """How a message ended. Its class gives the details."""

    REACHED = auto()
    """The message is in its destination queue, or the next hop has it, which is enough for its sender."""
    RECEIVED = auto()
    """An application has received the message."""
    KEPT_OUT = auto()
    """The message ended before it reached its queue."""
    NOT_TAKEN = auto()
    """The destination cannot use the message, or does not believe it.

    It has no such queue, no key to decrypt the body, or no proof of the sender.
    """
    TAKEN_OUT = auto()
    """The message was in its queue, and left the queue without being received."""


def end_of(message_class: int) -> End:
    """Return how a message with this class ended.  [MS-MQMQ] 2.2.18.1.6"""
    if message_class == MessageClass.ACK_REACH_QUEUE:
        return End.REACHED
    if message_class == MessageClass.ACK_RECEIVE:
        return End.RECEIVED
    if message_class in DISREGARDED:
        return End.NOT_TAKEN
    return End.TAKEN_OUT if message_class & IN_QUEUE_BIT else End.KEPT_OUT


class FinalAckRule(Enum):
    """When a FinalAck tells the sender's queue manager about a message.  [MS-MQQB] 3.1.7.2.2"""

    NEVER = auto()
    IF_ASKED = auto()
    """A FinalAck is sent if the message has the FinalAck bit or one of the two journal bits set."""
    ALWAYS = auto()


class Consequence(NamedTuple):
    """One cell of the table.

    kept: the queue that gets a copy: the journal if JP is set in the message, or a dead-letter queue if JN is set.
    """

    final_ack: FinalAckRule = FinalAckRule.NEVER
    kept: SystemQueue | None = None


NOTHING: Final = Consequence()
JOURNAL: Final = Consequence(kept=SystemQueue.JOURNAL)
DEADLETTER: Final = Consequence(kept=SystemQueue.DEADLETTER)
DEADXACT: Final = Consequence(kept=SystemQueue.DEADXACT)

OURS, OTHERS = True, False
TRANSACTIONAL, PLAIN = True, False
CONSEQUENCES: Final[Mapping[tuple[End, bool, bool], Consequence]] = {
    # A transactional message is journaled once it was received, any other when the next hop has it.
    (End.REACHED, OURS, PLAIN): JOURNAL,
    (End.REACHED, OURS, TRANSACTIONAL): NOTHING,
    (End.REACHED, OTHERS, PLAIN): NOTHING,
    (End.REACHED, OTHERS, TRANSACTIONAL): NOTHING,
    (End.RECEIVED, OURS, PLAIN): NOTHING,
    (End.RECEIVED, OURS, TRANSACTIONAL): JOURNAL,
    (End.RECEIVED, OTHERS, PLAIN): NOTHING,
    (End.RECEIVED, OTHERS, TRANSACTIONAL): Consequence(FinalAckRule.IF_ASKED),
    # A message is a dead letter where it ended; a transactional one, at its sender, which is told.
    (End.KEPT_OUT, OURS, PLAIN): DEADLETTER,
    (End.KEPT_OUT, OURS, TRANSACTIONAL): DEADXACT,
    (End.KEPT_OUT, OTHERS, PLAIN): DEADLETTER,
    (End.KEPT_OUT, OTHERS, TRANSACTIONAL): Consequence(FinalAckRule.ALWAYS),
    # A destination disregards a message that it cannot use: only the source keeps a copy, if it is told.
    (End.NOT_TAKEN, OURS, PLAIN): DEADLETTER,
    (End.NOT_TAKEN, OURS, TRANSACTIONAL): DEADXACT,
    (End.NOT_TAKEN, OTHERS, PLAIN): NOTHING,
    (End.NOT_TAKEN, OTHERS, TRANSACTIONAL): Consequence(FinalAckRule.ALWAYS),
    (End.TAKEN_OUT, OURS, PLAIN): DEADLETTER,
    (End.TAKEN_OUT, OURS, TRANSACTIONAL): DEADXACT,
    (End.TAKEN_OUT, OTHERS, PLAIN): DEADLETTER,
    (End.TAKEN_OUT, OTHERS, TRANSACTIONAL): Consequence(FinalAckRule.IF_ASKED),
}
"""The consequences, by the message's end, whether we sent it, and whether it is transactional.

[MS-MQQB] 3.1.5.8.2, 3.1.5.8.3, 3.1.7.2
"""

"""The classes of messages.  [MS-MQMQ] 2.2.18.1.6"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class MessageClass(IntEnum):
    """The class of a message: an application's message, a positive acknowledgment, or a kind of refusal.

    The names are those of the specification without MQMSG_CLASS_. MessagePropertiesHeader.message_class stays a plain
    int, because applications may set classes of their own.
    """

    NORMAL = 0x0000
    REPORT = 0x0001
    ACK_REACH_QUEUE = 0x0002
    ORDER_ACK = 0x00FF
    ACK_RECEIVE = 0x4000
    NACK_BAD_DST_Q = 0x8000
    NACK_DELETED = 0x8001
    NACK_REACH_QUEUE_TIMEOUT = 0x8002
    NACK_Q_EXCEED_QUOTA = 0x8003
    NACK_ACCESS_DENIED = 0x8004
    NACK_HOP_COUNT_EXCEEDED = 0x8005
    NACK_BAD_SIGNATURE = 0x8006
    NACK_BAD_ENCRYPTION = 0x8007
    NACK_NOT_TRANSACTIONAL_Q = 0x8009
    NACK_NOT_TRANSACTIONAL_MSG = 0x800A
    NACK_UNSUPPORTED_CRYPTO_PROVIDER = 0x800B
    NACK_Q_DELETED = 0xC000
    NACK_Q_PURGED = 0xC001
    NACK_RECEIVE_TIMEOUT = 0xC002
    NACK_RECEIVE_REJECTED = 0xC004


REFUSALS: Final = {
    MessageClass.NACK_BAD_DST_Q: "its queue does not exist",
    MessageClass.NACK_DELETED: "it was deleted on its way",
    MessageClass.NACK_REACH_QUEUE_TIMEOUT: "it did not reach its queue in time",
    MessageClass.NACK_Q_EXCEED_QUOTA: "its queue was full",
    MessageClass.NACK_ACCESS_DENIED: "its sender may not send to the queue",
    MessageClass.NACK_HOP_COUNT_EXCEEDED: "it passed too many queue managers, or one of them could not pass it on",
    MessageClass.NACK_BAD_SIGNATURE: "its signature was wrong",
    MessageClass.NACK_BAD_ENCRYPTION: "it could not be decrypted",
    MessageClass.NACK_NOT_TRANSACTIONAL_Q: "it was transactional and its queue is not",
    MessageClass.NACK_NOT_TRANSACTIONAL_MSG: "its queue is transactional and it was not",
    MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER: "it was encrypted in a way that its destination does not know",
    MessageClass.NACK_Q_DELETED: "its queue was deleted before it was received",
    MessageClass.NACK_Q_PURGED: "its queue was purged before it was received",
    MessageClass.NACK_RECEIVE_TIMEOUT: "nobody received it in time",
    MessageClass.NACK_RECEIVE_REJECTED: "an application rejected it",
}
"""Why a message was refused or became a dead letter, in words, by its class."""

"""The packets of a session as records.  [MS-MQQB] 2.2, [MS-MQMQ] 2.2.18 to 2.2.20

`codec.py` turns them into bytes and back. Queues are named by their format names ([MS-MQMQ] 2.1):
`DIRECT=TCP:127.0.0.2\\orders`, `PRIVATE=guid\\a`, `PUBLIC=guid`. An empty string means no queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

NULL: Final = UUID(int=0)
ENDLESS: Final = 0xFFFFFFFF
"""A time to live that never ends."""

ORDER_QUEUE: Final = 4
"""The PrivateQueueIdentifier of order_queue$.  [MS-MQQB] 2.2.4"""
ORDER_QUEUE_NAME: Final = r"PRIVATE$\order_queue$"
ORDERING: Final = "QM Ordering Ack"
"""The label of each OrderAck and FinalAck."""


class MalformedError(Exception):
    """The bytes do not form a packet, so the session closes.  [MS-MQQB] 3.1.5.1.3"""


class Class:
    """Message classes.  [MS-MQMQ] 2.2.18.1.6"""

    NORMAL = 0x0000
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


# MessagePropertiesHeader.Flags, [MS-MQMQ] 2.2.19.3
PA, PR, NA, NR = 1, 2, 4, 8


# SecurityHeader.Flags, [MS-MQMQ] 2.2.20.6; ST is in the lowest four bits, AS in bits 8 to 11.
SID, MANAGER, AU, EB, DE, AI = 1, 2, 1 << 4, 1 << 5, 1 << 6, 1 << 7

# PrivacyLevel, EncryptionAlgorithm and HashAlgorithm, [MS-MQMQ] 2.2.19.3
BASE_PRIVACY, ENHANCED_PRIVACY, ADVANCED_PRIVACY = 1, 3, 5
RC2, RC4, AES_128, AES_192, AES_256 = 0x6602, 0x6801, 0x660E, 0x660F, 0x6610
MD2, MD4, MD5, SHA_1, SHA_256, SHA_512 = 0x8001, 0x8002, 0x8003, 0x8004, 0x800C, 0x800E

# Kinds of signatures, by AS of a message that has one.  [MS-MQQB] 3.1.5.8.3
SIGNED_10, SIGNED_20, SIGNED_30 = 1, 3, 5


class TxSequenceId(NamedTuple):
    """Identifies one sequence; identifiers compare like 64-bit numbers.  [MS-MQMQ] 2.2.18.1.2"""

    time_stamp: int
    ordinal: int


NO_SEQUENCE: Final = TxSequenceId(0, 0)


@dataclass
class Ping:
    """A Ping request or response; nothing in it shows which of the two it is.  [MS-MQQB] 2.2.7"""

    cookie: int
    guid: UUID
    refused: bool = False
    rc: bool = False


@dataclass
class EstablishConnection:
    """[MS-MQQB] 2.2.3; a response is filled with 0x5A."""

    client: UUID
    server: UUID
    time_stamp: int
    pinged: bool = False
    """Whether SE is 0, which means that a Ping Request was sent."""
    refused: bool = False
    response: bool = False


@dataclass
class ConnectionParameters:
    """[MS-MQQB] 2.2.2; times in milliseconds."""

    recoverable_ack_timeout: int
    ack_timeout: int
    window_size: int
    refused: bool = False


@dataclass
class SessionHeader:
    """The acknowledgments that a SessionAck consists of, or that a message carries.  [MS-MQMQ] 2.2.20.4"""

    ack_sequence_number: int
    recoverable_ack_number: int
    recoverable_ack_flags: int
    user_message_number: int
    recoverable_number: int
    window_size: int = 64


@dataclass
class SessionAck:
    """[MS-MQQB] 2.2.6"""

    header: SessionHeader


@dataclass
class Transaction:
    """[MS-MQMQ] 2.2.20.5; by default, the message is both the first and the last one of its transaction."""

    sequence: TxSequenceId
    number: int
    previous: int
    final_ack: bool = False
    first: bool = True
    last: bool = True
    identifier: int = 0


@dataclass
class Security:
    """[MS-MQMQ] 2.2.20.6; by default only a SID, with AI clear, as in frame 7 of [MS-MQQB] 4.1."""

    sender: bytes = b""
    """A SID, or the GUID of a queue manager."""
    flags: int = SID
    key: bytes = b""
    """EncryptionKey: a SIMPLEBLOB."""
    signature: bytes = b""
    certificate: bytes = b""
    provider: bytes = b""
    """ProviderInfo."""

    @property
    def encrypted(self) -> bool:
        return bool(self.flags & EB)

    @property
    def signed_as(self) -> int:
        """AS: the kind of signature that was verified, as set by a receiver; 0 if there is none."""
        return self.flags >> 8 & 15


@dataclass
class OrderBody:
    """The body of an OrderAck or a FinalAck; in a FinalAck, it also names the message.  [MS-MQQB] 2.2.4.1, 2.2.5.1"""

    sequence: TxSequenceId
    number: int
    previous: int
    source: UUID = NULL
    message_id: int = 0


@dataclass
class UserMessage:
    """[MS-MQMQ] 2.2.20; OrderAck, FinalAck and administration acknowledgments also have this form."""

    source: UUID
    address: UUID
    """The destination queue manager; null if the destination is a direct name."""
    destination: str
    body: bytes = b""
    label: str = ""
    message_id: int = 0
    message_class: int = Class.NORMAL
    priority: int = 3
    recoverable: bool = False
    acknowledge: int = 0
    """Any combination of PA, PR, NA and NR."""
    admin: str = ""
    response: str = ""
    time_to_reach_queue: int = ENDLESS
    time_to_be_received: int = ENDLESS
    sent_time: int = 0
    hops: int = 0
    dead_letter: bool = False
    journal: bool = False
    transaction: Transaction | None = None
    session: SessionHeader | None = None
    correlation: bytes = bytes(20)
    body_type: int = 0
    tag: int = 0
    allocated: int = 0
    privacy: int = 0
    hash_algorithm: int = 0x8004
    encryption_algorithm: int = 0x6801
    extension: bytes = b""
    connector: bytes = b""
    """ConnectorType: a GUID in the form that it has in the packet."""
    security: Security | None = None
    destinations: list[str] = field(default_factory=list)
    """All queues to which a copy was sent, from a MultiQueueFormatHeader."""
    list_signature: bytes = b""
    """The signature next to the list of destinations."""
    judged: int | None = None
    """The result of checking the message's protection: 0, a class, or None if it has not been checked yet.

    This is not in the packet.
    """
    neighbour: UUID = NULL
    """The neighbour that brought the message; the next attribute is that neighbour's address. Neither is in the
    packet.
    """
    neighbour_address: str = ""

    @property
    def orders(self) -> bool:
        """Whether this is an OrderAck or a FinalAck.  [MS-MQQB] 3.1.5.1.1"""
        return self.label == ORDERING and (
            self.message_class == Class.ORDER_ACK or self.message_class >= Class.ACK_RECEIVE
        )


Packet = EstablishConnection | ConnectionParameters | SessionAck | UserMessage

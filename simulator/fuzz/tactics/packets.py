"""The packets of a hostile peer: handshakes, messages of every kind, and acknowledgments.

Each packet is valid by itself. The packets contain marks where each case puts its own values. So each packet is made,
and its mutations are planned, only once, which allows hundreds of cases per second. Simulated worlds fill in all values
and leave no marks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from mqproto.turn.guard import CIPHERS
from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    FinalAck,
    FinalAckBody,
    FormatNameList,
    Guid,
    MessageClass,
    MqfAddressHeader,
    MqfFormatNameElement,
    MultiQueueFormatHeader,
    OrderAck,
    OrderAckBody,
    PrivateQueueFormatName,
    SecurityHeader,
    SimpleBlob,
    SoapHeader,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    encode_packet,
    establish_connection,
    inspect_packet,
    simple_blob,
    user_message,
)
from mqproto.wire.layouts.security import QUEUE_MANAGER
from mqproto.wire.messages import ORDER_QUEUE

WINDOW: Final = 64
LIVES_S: Final = 300
"""The TimeToBeReceived of our messages, in seconds, which keeps the peer's queues from filling up."""
ASKS_ALL: Final = 0x0F
"""The flags that request all acknowledgments, of arrival and of receipt, positive and negative."""

# Marks: bytes that do not occur in packets by chance.
IDENTITY: Final = Guid(bytes.fromhex("6d71fa2257e94c0e9b1df0a5c3d82e41"))
PRESENTED: Final = Guid(bytes.fromhex("6d71fa2257e94c0e9b1df0a5c3d82e42"))
SENT_S: Final = 0xE1A3_57F2
NUMBER: Final = 0xD7B4_96C1
"""The mark for a number that differs from packet to packet."""
SEQUENCE: Final = 0xD7B4_96C2
"""The mark for a number that all packets of a case share."""
WORD: Final = struct.Struct("<I")
SENT_MARK, NUMBER_MARK, SEQUENCE_MARK = map(WORD.pack, (SENT_S, NUMBER, SEQUENCE))

SAYINGS: Final = {
    "nothing": b"",
    "HTTP": b"GET / HTTP/1.1\r\nHost: queue\r\n\r\n",
    "TLS": bytes.fromhex("160301006e0100006a0303") + bytes(100),
    "zeros": bytes(600),
    "ones": b"\xff" * 600,
    "the signature alone": b"LIOR" * 150,
}
"""Bytes that are not MSMQ, keyed by what they are."""


class LastSent(NamedTuple):
    """A transactional message that a queue manager has sent, or may have sent."""

    identifier: TxSequenceId
    number: int
    previous: int
    message_id: int


@lru_cache(maxsize=64)
def connection_request(
    client: Guid = PRESENTED, server: Guid = NULL_GUID, *, time_stamp_ms: int = 1_000
) -> bytes:
    """Return an EstablishConnection."""
    return encode_packet(establish_connection(client=client, server=server, time_stamp_ms=time_stamp_ms))


@lru_cache(maxsize=1)
def proposal() -> bytes:
    """Return ConnectionParameters."""
    return encode_packet(
        ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=WINDOW)
    )


def a_message(queue: str | int, **changes: Any) -> UserMessage:
    """Return a message from IDENTITY to a queue, with some properties changed."""
    arguments: dict[str, Any] = {
        "source": IDENTITY,
        "destination_manager": NULL_GUID,
        "destination": queue,
        "message_id": NUMBER,
        "sent_time_s": SENT_S,
        "body": b"a body of some bytes",
        "label": "fuzz",
        "time_to_be_received_s": LIVES_S,
    }
    return user_message(**arguments | changes)


def transaction(
    number: int = 1, previous: int = 0, *, ordinal: int = NUMBER, time_stamp: int = SENT_S
) -> TransactionHeader:
    """Return the place of a message in a sequence. By default, each packet has a sequence of its own."""
    header = TransactionHeader(
        tx_sequence_id=TxSequenceId(time_stamp=time_stamp, ordinal=ordinal),
        tx_sequence_number=number,
        previous_tx_sequence_number=previous,
    )
    header.first = header.last = True
    return header


def acknowledgment(
    sent: LastSent,
    source: Guid,
    target: Guid,
    sent_s: int,
    message_id: int,
    message_class: MessageClass | None = None,
) -> UserMessage:
    """Return the OrderAck, or the FinalAck of this class, for a message from `target`.  [MS-MQQB] 2.2.4, 2.2.5"""
    common: dict[str, Any] = {
        "source": source,
        "destination_manager": target,
        "destination": ORDER_QUEUE,
        "message_id": message_id,
        "sent_time_s": sent_s,
    }
    place = sent.identifier, sent.number, sent.previous
    if message_class is None:
        return OrderAck(body=OrderAckBody(*place), **common).message()
    body = FinalAckBody(*place, target, sent.message_id)
    return FinalAck(message_class=message_class, body=body, **common).message()


def secured(message: UserMessage, security: SecurityHeader) -> UserMessage:
    """Add a SecurityHeader to a message; return it."""
    security.has_security_data = True
    if security.sender_id:
        security.sender_id_type = QUEUE_MANAGER
    message.user.has_security, message.security = True, security
    return message


def with_soap(message: UserMessage, soap: SoapHeader) -> UserMessage:
    """Add a SoapHeader to a message; return it."""
    message.user.has_soap, message.soap = True, soap
    return message


def direct_names(*names: str) -> MqfAddressHeader:
    """Return a list of queues with these direct names."""
    return MqfAddressHeader(
        format_name_list=FormatNameList([MqfFormatNameElement(3, b"", name) for name in names])
    )


def with_values(packet: bytes, values: dict[str, int]) -> bytes:
    """Return a packet in which some fields have other values; nothing else is adjusted."""
    for field in inspect_packet(packet).fields:
        if (value := values.get(field.name)) is not None:
            after = packet[field.offset + field.size :]
            packet = packet[: field.offset] + value.to_bytes(field.size, "little") + after
    return packet


def _with_headers(queue: str) -> UserMessage:
    """Return a message with every part that it may have in addition to its body."""
    elements = [
        MqfFormatNameElement(3, b"", queue),
        MqfFormatNameElement(2, b"", PrivateQueueFormatName(IDENTITY, 17)),
        MqfFormatNameElement(1, b"", IDENTITY),
    ]
    names = MqfAddressHeader(format_name_list=FormatNameList(elements))
    message = a_message(
        queue,
        transaction=transaction(),
        admin_queue=PrivateQueueFormatName(IDENTITY, 9),
        response_queue=queue,
        extension=b"extension",
        acknowledgments=ASKS_ALL,
        multi_queue_format=MultiQueueFormatHeader(destination=names, administration=names),
    )
    return with_soap(message, SoapHeader(header="<header/>", body="<body/>"))


def _encrypted(queue: str) -> UserMessage:
    """Return a message that claims to be encrypted with AES-256; nobody has the key to open it."""
    message = a_message(queue, recoverable=True, body=bytes(range(64)))
    message.properties.privacy_level, message.properties.encryption_algorithm = CIPHERS["AES-256"]
    key = simple_blob.encode(SimpleBlob(encrypted_key=bytes(range(256))))
    security = SecurityHeader(encryption_key=key)
    security.body_encrypted = True
    return secured(message, security)


_LAST: Final = LastSent(TxSequenceId(time_stamp=SENT_S, ordinal=NUMBER), 3, 2, 7)
MESSAGES: Final[dict[str, Callable[[str], UserMessage]]] = {
    "express": lambda queue: a_message(queue),
    "recoverable": lambda queue: a_message(queue, recoverable=True),
    "transactional": lambda queue: a_message(queue, transaction=transaction()),
    "with all headers": _with_headers,
    "secured": lambda queue: secured(
        a_message(queue, recoverable=True),
        SecurityHeader(sender_id=IDENTITY, signature=b"signed", sender_cert=b"certificate"),
    ),
    "encrypted": _encrypted,
    "traced": lambda queue: a_message(queue, trace_queue=IDENTITY),
    "asking for acknowledgments": lambda queue: a_message(
        queue, recoverable=True, acknowledgments=ASKS_ALL, admin_queue=queue, journal_negative=True
    ),
    "for a queue that is not there": lambda queue: a_message(queue + "-not-there", recoverable=True),
    "for another queue manager": lambda _: a_message(17, destination_manager=IDENTITY, recoverable=True),
    "for a private queue by number": lambda _: a_message(17, recoverable=True),
    "an administration acknowledgment": lambda queue: a_message(
        queue, message_class=MessageClass.ACK_REACH_QUEUE, correlation_id=IDENTITY + bytes(4)
    ),
    "OrderAck": lambda _: acknowledgment(_LAST, IDENTITY, NULL_GUID, SENT_S, NUMBER),
    "FinalAck": lambda _: acknowledgment(
        _LAST, IDENTITY, NULL_GUID, SENT_S, NUMBER, MessageClass.ACK_RECEIVE
    ),
}
"""For each kind of UserMessage, a function that makes one for a queue."""


@lru_cache(maxsize=256)
def message_of(queue: str, kind: str) -> bytes:
    """Return a UserMessage of one of the kinds in MESSAGES; it contains marks."""
    return encode_packet(MESSAGES[kind](queue))

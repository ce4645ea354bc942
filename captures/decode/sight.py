"""One packet of a capture, with everything that is known when it is read: its kind, the names of its ends, and the
packets that it acknowledges.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from mqproto.base.errors import WireFormatError
from mqproto.captures.decode.findings import Finding
from mqproto.captures.packets import SeenPacket
from mqproto.wire import (
    ConnectionParameters,
    EstablishConnection,
    FinalAckBody,
    Guid,
    MessageClass,
    OrderAckBody,
    Ping,
    SessionAck,
    SessionHeader,
    UserHeader,
    UserMessage,
    acknowledgment_in,
    announced_sizes,
)
from mqproto.wire.glance import is_internal
from mqproto.wire.layouts.acknowledgment import BODY_SIZE, order_ack_body
from mqproto.wire.layouts.base import base_header
from mqproto.wire.layouts.internal import establish_connection_packet
from mqproto.wire.layouts.user import user_header
from mqproto.wire.messages import FIRST_FINAL_CLASS, addresses_order_queue


class Kind(StrEnum):
    """The kind of a packet. UserMessages are distinguished by their delivery and their class."""

    PING = "Ping"
    ESTABLISH_CONNECTION = "EstablishConnection"
    CONNECTION_PARAMETERS = "ConnectionParameters"
    SESSION_ACK = "SessionAck"
    EXPRESS = "Express"
    RECOVERABLE = "Recoverable"
    TRANSACTIONAL = "Transactional"
    ORDER_ACK = "OrderAck"
    FINAL_ACK = "FinalAck"
    ADMIN_ACK = "AdminAck"
    REPORT = "Report"
    MALFORMED = "Malformed"
    ENCRYPTED = "Encrypted"
    """The head of a TLS record, whose content cannot be read."""
    CUT = "Cut"
    """A packet of which the capture has too little to show its kind."""

    __hash__ = str.__hash__  # Kinds are keys for every packet, and Enum's own is five times as slow.


INTERNAL_KINDS: Final = {
    EstablishConnection: Kind.ESTABLISH_CONNECTION,
    ConnectionParameters: Kind.CONNECTION_PARAMETERS,
    SessionAck: Kind.SESSION_ACK,
    Ping: Kind.PING,
}
MESSAGES: Final = frozenset({Kind.EXPRESS, Kind.RECOVERABLE, Kind.TRANSACTIONAL})
"""The kinds of messages that applications send; all other UserMessages report what became of these."""
TLS_HEAD: Final = struct.Struct("!BBBHB")
TLS_MAJOR: Final = 3
TLS_MINOR: Final = 4
TLS_RECORD_LIMIT_BYTES: Final = (1 << 14) + 2_048
TLS_HANDSHAKE: Final = 22
TLS_CONTENTS: Final = {
    20: "change of ciphers",
    21: "alert",
    TLS_HANDSHAKE: "handshake",
    23: "application data",
}
TLS_HELLOS: Final = {1: "ClientHello", 2: "ServerHello"}
_USER_AT: Final = base_header.sizeof()
_USER: Final = struct.Struct("<16s16sIIIH")
"""The first fields of a UserHeader, up to the first half of its flags.

That half contains the hop count, and the bit that marks express messages.
"""
_FLAGS_AT: Final = _USER_AT + user_header.offset_of("flags")
_FLAGS_END: Final = _USER_AT + user_header.offset_of("destination_queue")
RESERVED_AT: Final = order_ack_body.offset_of("reserved")
CLIENT_END: Final = establish_connection_packet.offset_of("server_guid")
SERVER_END: Final = establish_connection_packet.offset_of("time_stamp_ms")
_ACKNOWLEDGING: Final = {int(each) for each in MessageClass} - {MessageClass.NORMAL, MessageClass.REPORT}


@dataclass(slots=True)
class Acknowledged:
    """The numbers of the earlier packets that a packet acknowledges, as far as they are still remembered.

    As text, `#9-#11` means all packets from the first to the last; `#9..#15 (3)` means three packets, with other
    packets between them.
    """

    packets: list[int]

    def __str__(self) -> str:
        packets = self.packets
        if len(packets) == 1:
            return f"#{packets[0]}"
        if packets[-1] - packets[0] == len(packets) - 1:
            return f"#{packets[0]}-#{packets[-1]}"
        return f"#{packets[0]}..#{packets[-1]} ({len(packets)})"


class Learnt(NamedTuple):
    """A message that an earlier packet turns out to have acknowledged.

    packet: the packet that carried the message.
    by: the packet that acknowledged the message.
    time_ns: when the acknowledgment was seen.
    is_saved: whether the acknowledgment also reported that the message was saved.
    """

    packet: int
    by: int
    time_ns: int
    is_saved: bool


@dataclass(slots=True)
class Sight:
    """A packet with everything that is known about it when it is read.

    source, destination: the names of the two ends, or their addresses and ports.
    hop: the two queue managers, each given as its GUID if the handshake revealed it, otherwise as its address.
    message: the packet, if it is a UserMessage.
    beginning: the UserHeader, without names of queues, of a UserMessage that is cut too short to show its kind. It is
        set if the capture has at least the first half of the flags.
    session: the packet's SessionHeader, if the capture has one.
    from_client: whether the end that opened the connection sent the packet.
    acknowledgment: the body of an OrderAck or a FinalAck.
    answers: whether the packet answers the packet of the same kind that came from the other end in the handshake.
    count, recoverable_count: the numbers of a message on its session, 16 bits; None if unknown. An express message has
        no recoverable_count.
    received: the packets that the SessionHeader newly acknowledges as received.
    saved: the packets that the SessionHeader newly acknowledges as saved.
    learnt: messages of the same end that earlier SessionHeaders of the other end turn out to have acknowledged.
    ended: the packets of the messages that an OrderAck, a FinalAck or an administration acknowledgment is about.
    """

    seen: SeenPacket
    kind: Kind
    source: str = ""
    destination: str = ""
    hop: tuple[str | bytes, str | bytes] = ("", "")
    message: UserMessage | None = None
    beginning: UserHeader | None = None
    session: SessionHeader | None = None
    acknowledgment: OrderAckBody | FinalAckBody | None = None
    from_client: bool = False
    answers: bool = False
    count: int | None = None
    recoverable_count: int | None = None
    received: Acknowledged | None = None
    saved: Acknowledged | None = None
    learnt: list[Learnt] = field(default_factory=list)
    ended: Acknowledged | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def user(self) -> UserHeader | None:
        """Return the UserHeader of a UserMessage, or as much of it as `beginning` has."""
        return self.beginning if self.message is None else self.message.user

    @property
    def transactional(self) -> bool | None:
        """Whether a UserMessage is transactional.

        None if it is not express, and is cut before the bytes that show whether it is transactional.
        """
        user = self.user
        assert user is not None
        is_told = not user.recoverable or self.message is not None or len(self.seen.data) >= _FLAGS_END
        return user.has_transaction if is_told else None


def sight_of(seen: SeenPacket) -> Sight:
    """Return what a packet shows on its own.

    A message whose body is not an acknowledgment counts as an ordinary message.
    """
    packet = seen.packet
    if type(packet) is UserMessage:
        acknowledgment = None
        if packet.properties.message_class:
            try:
                acknowledgment = _in_part(seen.data, packet) if seen.cut_bytes else acknowledgment_in(packet)
            except WireFormatError:
                acknowledgment = None
            if seen.cut_bytes and acknowledgment is None and _may_acknowledge(seen.data, packet):
                return Sight(seen, Kind.CUT, beginning=_beginning(seen.data))
        return Sight(
            seen,
            message_kind(packet, acknowledgment),
            message=packet,
            session=packet.session,
            acknowledgment=acknowledgment,
        )
    if packet is None and seen.cut_bytes:
        return Sight(seen, Kind.CUT, beginning=_beginning(seen.data))
    if packet is None:
        return Sight(seen, Kind.MALFORMED if tls_record(seen) is None else Kind.ENCRYPTED)
    return Sight(seen, INTERNAL_KINDS[type(packet)], session=getattr(packet, "session", None))


def _beginning(data: bytes) -> UserHeader | None:
    if is_internal(data) or len(data) < _USER_AT + _USER.size:
        return None
    source, address, to_be_received_s, sent_s, message_id, _ = _USER.unpack_from(data, _USER_AT)
    flags = int.from_bytes(data[_FLAGS_AT:_FLAGS_END], "little")
    return UserHeader(Guid(source), Guid(address), to_be_received_s, sent_s, message_id, flags)


def _in_part(beginning: bytes, message: UserMessage) -> OrderAckBody | FinalAckBody | None:
    """Return the acknowledgment in a message with a hole.

    Return None if the message is not an acknowledgment, or if the capture does not have its whole body. Only an
    OrderAck may lack bytes: the reserved ones at its end.
    """
    properties = message.properties
    body, (_, body_bytes) = properties.message_body, announced_sizes(beginning)
    if (
        properties.message_class != MessageClass.ORDER_ACK
        or len(body) < RESERVED_AT
        or body_bytes != BODY_SIZE
    ):
        return acknowledgment_in(message) if len(body) == body_bytes else None
    properties.message_body = body.ljust(BODY_SIZE, b"\0")
    try:
        return acknowledgment_in(message)
    finally:
        properties.message_body = body


def _may_acknowledge(beginning: bytes, message: UserMessage) -> bool:
    """Whether a message with a hole may be an OrderAck or a FinalAck whose numbers are missing."""
    properties = message.properties
    _, body_bytes = announced_sizes(beginning)
    return (
        (properties.message_class == MessageClass.ORDER_ACK or properties.message_class >= FIRST_FINAL_CLASS)
        and len(properties.message_body) < body_bytes == BODY_SIZE
        and addresses_order_queue(message)
    )


def guids_of(seen: SeenPacket, packet: EstablishConnection) -> tuple[Guid | None, Guid | None]:
    """Return the GUIDs of an EstablishConnection's ends; None for a GUID that the capture does not have whole."""
    known_bytes = len(seen.data)
    return (
        packet.client_guid if known_bytes >= CLIENT_END else None,
        packet.server_guid if known_bytes >= SERVER_END else None,
    )


def tls_record(seen: SeenPacket) -> str | None:
    """Return the TLS record that begins where a packet should; None if there is none.  [RFC 8446] 4, 5.1

    The first two bytes of a TLS record are never those of a packet.
    """
    if seen.framed or seen.is_ping or len(seen.data) < TLS_HEAD.size:
        return None
    content, major, minor, size_bytes, handshake = TLS_HEAD.unpack_from(seen.data)
    if content not in TLS_CONTENTS or major != TLS_MAJOR or minor > TLS_MINOR:
        return None
    if not 0 < size_bytes <= TLS_RECORD_LIMIT_BYTES:
        return None
    return TLS_HELLOS.get(handshake, "handshake") if content == TLS_HANDSHAKE else TLS_CONTENTS[content]


def message_kind(message: UserMessage, acknowledgment: OrderAckBody | FinalAckBody | None) -> Kind:
    """Return the kind of a UserMessage."""
    if acknowledgment is not None:
        return Kind.ORDER_ACK if type(acknowledgment) is OrderAckBody else Kind.FINAL_ACK
    message_class = message.properties.message_class
    if message_class in _ACKNOWLEDGING:
        return Kind.ADMIN_ACK
    if message_class == MessageClass.REPORT:
        return Kind.REPORT
    if message.transaction is not None:
        return Kind.TRANSACTIONAL
    return Kind.RECOVERABLE if message.user.recoverable else Kind.EXPRESS

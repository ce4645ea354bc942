"""The packets that open a session and keep it going.  [MS-MQQB] 2.2.1 to 2.2.3, 2.2.6"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from construct import Int16ul, Int32ul, this

from mqproto.wire.guid import NULL_GUID, Guid
from mqproto.wire.layouts.base import BaseHeader, PacketRecord, base_header
from mqproto.wire.layouts.session import SessionHeader, session_header
from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import GuidOctets, Octets
from mqproto.wire.schema.record import Bit, Bits, Record

SESSION_ACK: Final = 1
ESTABLISH_CONNECTION: Final = 2
CONNECTION_PARAMETERS: Final = 3

RESPONSE_PADDING: Final = b"\x5a" * 512


@dataclass(slots=True)
class InternalHeader:
    """The type of an internal packet, and whether it refuses a connection.  [MS-MQQB] 2.2.1"""

    reserved: int = 0
    flags: int = 0

    packet_type = Bits(0, 4)
    refused = Bit(4)


internal_header = Record(
    InternalHeader,
    Layout(
        "[MS-MQQB] 2.2.1",
        "reserved" / Int16ul,
        "flags" / Int16ul,
        Must(
            "flags",
            (InternalHeader.packet_type.within(this.flags) - 1 & 15) <= 2,
            "1, 2 or 3",
            part="packet_type",
            value=InternalHeader.packet_type.within(this.flags),
        ),
    ),
)
assert internal_header.sizeof() == 4


def _internal_base() -> BaseHeader:
    return BaseHeader(flags=BaseHeader.internal.mask | 3)


def _rules(packet_type: int, packet_size: int) -> list[Any]:
    """Return the rules for one kind of packet.

    They are about the IN bit, the type in InternalHeader.Flags, and the size.
    """
    return [
        Must("base.flags", BaseHeader.internal.within(this.base.flags), "set in IN", value=this.base.flags),
        Must(
            "internal.flags",
            InternalHeader.packet_type.within(this.internal.flags) == packet_type,
            f"{packet_type}",
            part="internal.packet_type",
            value=InternalHeader.packet_type.within(this.internal.flags),
        ),
        Must(
            "base.packet_size",
            this.base.packet_size == packet_size,
            f"{packet_size}",
            value=this.base.packet_size,
        ),
    ]


@dataclass(slots=True)
class EstablishConnection:
    """Asks for a session, or answers such a request.  [MS-MQQB] 2.2.3

    time_stamp_ms: milliseconds since the initiator's system started; the answer repeats the number.
    """

    base: BaseHeader = field(default_factory=_internal_base)
    internal: InternalHeader = field(default_factory=lambda: InternalHeader(flags=ESTABLISH_CONNECTION))
    client_guid: Guid = NULL_GUID
    server_guid: Guid = NULL_GUID
    time_stamp_ms: int = 0
    operating_system: int = 0x0310
    reserved: int = 0
    padding: bytes = field(default=RESPONSE_PADDING, compare=False, repr=False)

    no_ping = Bit(8, "operating_system")
    server_class = Bit(9, "operating_system")
    quality_of_service = Bit(10, "operating_system")

    @property
    def refused(self) -> bool:
        """The CS bit: the acceptor refuses the session."""
        return self.internal.refused


establish_connection_packet = PacketRecord(
    EstablishConnection,
    Layout(
        "[MS-MQQB] 2.2.3",
        "base" / base_header,
        "internal" / internal_header,
        *_rules(ESTABLISH_CONNECTION, 572),
        "client_guid" / GuidOctets(),
        "server_guid" / GuidOctets(),
        "time_stamp_ms" / Int32ul,
        "operating_system" / Int16ul,
        Must("operating_system", this.operating_system & 0xFF == 0x10, "0x10 in RE, its low byte"),
        "reserved" / Int16ul,
        "padding" / Octets(512),
    ),
)
assert establish_connection_packet.sizeof() == 572


@dataclass(slots=True)
class ConnectionParameters:
    """The timeouts for acknowledgments, and the number of messages that may be unacknowledged.  [MS-MQQB] 2.2.2"""

    base: BaseHeader = field(default_factory=_internal_base)
    internal: InternalHeader = field(default_factory=lambda: InternalHeader(flags=CONNECTION_PARAMETERS))
    recoverable_ack_timeout_ms: int = 500
    ack_timeout_ms: int = 20_000
    reserved: int = 0
    window_size: int = 64

    @property
    def refused(self) -> bool:
        """The CS bit: the connection is refused."""
        return self.internal.refused


_recoverable_ack_timeout = this.recoverable_ack_timeout_ms
_ack_timeout = this.ack_timeout_ms

connection_parameters_packet = PacketRecord(
    ConnectionParameters,
    Layout(
        "[MS-MQQB] 2.2.2.1",
        "base" / base_header,
        "internal" / internal_header,
        *_rules(CONNECTION_PARAMETERS, 32),
        "recoverable_ack_timeout_ms" / Int32ul,
        Must("recoverable_ack_timeout_ms", _recoverable_ack_timeout >= 500, "500 to 120000 ms"),
        Must("recoverable_ack_timeout_ms", _recoverable_ack_timeout <= 120_000, "500 to 120000 ms"),
        "ack_timeout_ms" / Int32ul,
        Must("ack_timeout_ms", _ack_timeout >= 20_000, "20000 to 120000 ms"),
        Must("ack_timeout_ms", _ack_timeout <= 120_000, "20000 to 120000 ms"),
        "reserved" / Int16ul,
        "window_size" / Int16ul,
    ),
)
assert connection_parameters_packet.sizeof() == 32


_ACK_FLAGS: Final = BaseHeader.session_header.mask | BaseHeader.internal.mask | 3


@dataclass(slots=True)
class SessionAck:
    """A session acknowledgment that is sent by itself.  [MS-MQQB] 2.2.6

    Unlike that of a UserMessage, its PacketSize includes the SessionHeader: in [MS-MQQB] 4.1.8, it is 36.
    """

    base: BaseHeader = field(default_factory=partial(BaseHeader, flags=_ACK_FLAGS))
    internal: InternalHeader = field(default_factory=partial(InternalHeader, flags=SESSION_ACK))
    session: SessionHeader = field(default_factory=SessionHeader)


session_ack_packet = PacketRecord(
    SessionAck,
    Layout(
        "[MS-MQQB] 2.2.6",
        "base" / base_header,
        "internal" / internal_header,
        *_rules(SESSION_ACK, 36),
        Must(
            "base.flags",
            BaseHeader.session_header.within(this.base.flags),
            "set in SH",
            value=this.base.flags,
        ),
        "session" / session_header,
    ),
)
assert session_ack_packet.sizeof() == 36


def establish_connection(
    *,
    client: Guid,
    server: Guid,
    time_stamp_ms: int,
    refused: bool = False,
    ping: bool = False,
    server_class: bool = True,
) -> EstablishConnection:
    """Return a request for a session, or an answer to one.  [MS-MQQB] 2.2.3.1

    An answer repeats the GUIDs, the time stamp and the bits of its request.

    Args:
        client: the initiator's queue manager.
        server: the acceptor's queue manager; NULL_GUID in a request for a direct format name.
        time_stamp_ms: the initiator's uptime; 32 bits, so it wraps.
        refused: whether the acceptor refuses the session.
        ping: whether a Ping was sent before the request.
        server_class: whether the initiator's operating system is one for servers.
    """
    packet = EstablishConnection(client_guid=client, server_guid=server, time_stamp_ms=time_stamp_ms)
    packet.internal.refused = refused
    packet.no_ping = not ping
    packet.server_class = server_class
    return packet

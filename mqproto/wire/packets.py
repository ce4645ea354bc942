"""The UserMessage, and the union of all packets sent on a session.  [MS-MQMQ] 2.2.20, [MS-MQQB] 2.2"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from construct import GreedyBytes, this

from mqproto.wire.layouts.base import (
    SMALLEST_INTERNAL_PACKET,
    SMALLEST_USER_MESSAGE,
    BaseHeader,
    PacketRecord,
    base_header,
)
from mqproto.wire.layouts.debug import DebugHeader, debug_header
from mqproto.wire.layouts.internal import (
    CONNECTION_PARAMETERS,
    ESTABLISH_CONNECTION,
    SESSION_ACK,
    ConnectionParameters,
    EstablishConnection,
    SessionAck,
    connection_parameters_packet,
    establish_connection_packet,
    session_ack_packet,
)
from mqproto.wire.layouts.multiqueue import MultiQueueFormatHeader, multi_queue_format_header
from mqproto.wire.layouts.properties import MessagePropertiesHeader, message_properties_header
from mqproto.wire.layouts.security import SecurityHeader, security_header
from mqproto.wire.layouts.session import SessionHeader, session_header
from mqproto.wire.layouts.soap import SoapHeader, soap_header
from mqproto.wire.layouts.srmp import (
    CompoundMessageHeader,
    SrmpEnvelopeHeader,
    compound_message_header,
    srmp_envelope_header,
)
from mqproto.wire.layouts.transaction import TransactionHeader, transaction_header
from mqproto.wire.layouts.user import UserHeader, user_header
from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import When


@dataclass(slots=True)
class UserMessage:
    """A whole message; administration, order and final acknowledgments are included.  [MS-MQMQ] 2.2.20

    trailing: the bytes, usually none, that PacketSize counts beyond the last header.
    session: the SessionHeader, which is beyond PacketSize ([MS-MQMQ] 2.2.19.1).
    """

    base: BaseHeader = field(default_factory=BaseHeader)
    user: UserHeader = field(default_factory=UserHeader)
    transaction: TransactionHeader | None = None
    security: SecurityHeader | None = None
    properties: MessagePropertiesHeader = field(default_factory=MessagePropertiesHeader)
    debug: DebugHeader | None = None
    soap: SoapHeader | None = None
    multi_queue_format: MultiQueueFormatHeader | None = None
    session: SessionHeader | None = None
    trailing: bytes = b""


_user_flags = this.user.flags

_headers = (
    "base" / base_header,
    Must(
        "base.flags",
        BaseHeader.internal.within(this.base.flags) == 0,
        "clear of IN",
        value=this.base.flags,
    ),
    "user" / user_header,
    "transaction" / When(UserHeader.has_transaction.within(_user_flags), transaction_header),
    "security" / When(UserHeader.has_security.within(_user_flags), security_header),
    "properties" / message_properties_header,
    "debug" / When(BaseHeader.debug_header.within(this.base.flags), debug_header),
)
_headers_behind = (
    "soap" / When(UserHeader.has_soap.within(_user_flags), soap_header),
    "multi_queue_format"
    / When(UserHeader.has_multi_queue_format.within(_user_flags), multi_queue_format_header),
    "trailing" / GreedyBytes,
)

_apart = {"session": session_header}

user_message_packet = PacketRecord(
    UserMessage, Layout("[MS-MQMQ] 2.2.20", *_headers, *_headers_behind), _apart
)


@dataclass(slots=True)
class SrmpMessage(UserMessage):
    """A message that claims to have come over HTTP.  [MS-MQRR] 2.2.5.1.2

    Queue managers may not send such messages to each other.
    """

    srmp_envelope: SrmpEnvelopeHeader | None = None
    compound_message: CompoundMessageHeader | None = None


srmp_message_packet = PacketRecord(
    SrmpMessage,
    Layout(
        "[MS-MQRR] 2.2.5.1",
        *_headers,
        "srmp_envelope" / srmp_envelope_header,
        "compound_message" / compound_message_header,
        *_headers_behind,
    ),
    _apart,
)
"""A message with AH set. Only analysts use this; no other code reads such a message."""

Packet: TypeAlias = EstablishConnection | ConnectionParameters | SessionAck | UserMessage

INTERNAL_PACKETS: Final[dict[int, PacketRecord[Any]]] = {
    SESSION_ACK: session_ack_packet,
    ESTABLISH_CONNECTION: establish_connection_packet,
    CONNECTION_PARAMETERS: connection_parameters_packet,
}

assert min(record.sizeof() for record in INTERNAL_PACKETS.values()) == SMALLEST_INTERNAL_PACKET
assert (
    base_header.sizeof()
    + user_header.offset_of("destination_queue")
    + message_properties_header.offset_of("label")
    == SMALLEST_USER_MESSAGE
)

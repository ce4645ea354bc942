"""Packets that no queue manager may accept, one for each way in which a parser of this protocol is known to go wrong.

Each is a valid packet with one field changed. Its name, which a capture shows next to it, contains the field's new
value. Sizes and counts wrap in 32 bits when they are doubled, aligned or added, or go beyond the packet. Flags announce
parts that are missing.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from mqproto.simulator.fuzz.tactics.packets import (
    connection_request,
    direct_names,
    proposal,
    secured,
    with_soap,
    with_values,
)
from mqproto.wire import (
    DebugHeader,
    Guid,
    MqfSignatureHeader,
    MultiQueueFormatHeader,
    SecurityHeader,
    SessionAck,
    SessionHeader,
    SoapHeader,
    TransactionHeader,
    TxSequenceId,
    encode_packet,
    inspect_packet,
    ping_packet,
    user_message,
)
from mqproto.wire.layouts.base import BaseHeader
from mqproto.wire.layouts.internal import InternalHeader
from mqproto.wire.layouts.ping import Ping
from mqproto.wire.layouts.user import UserHeader

WRAPS_DOUBLED: Final = 0x8000_0004
WRAPS_ALIGNED: Final = 0xFFFF_FFFD
HUGE: Final = 0xFFFF_FFFF
SENT_S: Final = 1_700_000_000


class _Change(NamedTuple):
    """One field of one packet, and its new value. If there is a mask, only the bits in the mask change."""

    packet: str
    field: str
    value: int
    mask: int = 0


CHANGES: Final = (
    _Change("message", "base.version_number", 0x11),
    _Change("message", "base.signature", 0x4C494F52),
    _Change("message", "base.packet_size", 0),
    _Change("message", "base.packet_size", 15),
    _Change("message", "base.packet_size", 100),
    _Change("message", "base.packet_size", 0x40_0001),
    _Change("message", "base.packet_size", HUGE),
    _Change("plain", "base.flags", 1, BaseHeader.trace.mask),
    _Change("parameters", "internal.flags", 0, InternalHeader.packet_type.mask),
    _Change("parameters", "internal.flags", 4, InternalHeader.packet_type.mask),
    _Change("request", "base.packet_size", 571),
    _Change("parameters", "recoverable_ack_timeout_ms", 499),
    _Change("parameters", "recoverable_ack_timeout_ms", HUGE),
    _Change("parameters", "ack_timeout_ms", 19_999),
    _Change("acknowledgment", "base.flags", 0, BaseHeader.session_header.mask),
    _Change("acknowledgment", "session.window_size", 0),
    _Change("message", "user.flags", 1, UserHeader.destination_type.mask),
    _Change("message", "user.flags", 4, UserHeader.admin_type.mask),
    _Change("message", "user.flags", 2, UserHeader.delivery_mode.mask),
    _Change("message", "user.flags", 30, UserHeader.hop_count.mask),
    _Change("message", "user.flags", 0, UserHeader.has_properties.mask),
    _Change("message", "user.flags", 1, UserHeader.has_connector_type.mask),
    _Change("message", "user.flags", 1, UserHeader.over_http.mask),
    _Change("plain", "user.flags", 1, UserHeader.has_soap.mask),
    _Change("plain", "user.flags", 1, UserHeader.has_multi_queue_format.mask),
    _Change("direct", "user.destination_queue.count", 0),
    _Change("direct", "user.destination_queue.count", 21),
    _Change("direct", "user.destination_queue.count", 0xFFFF),
    _Change("message", "transaction.tx_sequence_number", 0),
    _Change("plain", "user.flags", 1, UserHeader.has_security.mask),
    _Change("message", "security.flags", 3, 0x000F),
    _Change("message", "security.sender_id_size", 0xFFFF),
    _Change("message", "security.signature_size", 0xFFFF),
    _Change("message", "security.sender_cert_size", HUGE),
    _Change("message", "security.provider_info_size", WRAPS_ALIGNED),
    _Change("message", "properties.label_length", 251),
    _Change("message", "properties.message_size", HUGE),
    _Change("message", "properties.extension_size", WRAPS_ALIGNED),
    _Change("message", "debug.flags", 2, DebugHeader.queue_type.mask),
    _Change("message", "soap.header_section_id", 0x0321),
    _Change("message", "soap.header_data_length", WRAPS_DOUBLED),
    _Change("message", "soap.body_data_length", WRAPS_DOUBLED),
    _Change("message", "multi_queue_format.destination.header_size", 11),
    _Change("message", "multi_queue_format.destination.header_size", HUGE),
    _Change("message", "multi_queue_format.destination.header_id", 101),
    _Change("message", "multi_queue_format.destination.element_count", HUGE),
    _Change("message", "multi_queue_format.destination.format_name_list.elements[0].format_type", 4),
    _Change("message", "multi_queue_format.signature.id", 351),
    _Change("message", "multi_queue_format.signature.size", WRAPS_ALIGNED),
    _Change("message", "session.window_size", 0),
)
"""The changes, in the order of the headers."""


def hostile_packets(source: Guid, target: Guid) -> dict[str, bytes]:
    """Return the packets sent from `source` to `target`, keyed by name; `decode_packet` refuses each of them."""
    valid = _valid_packets(source, target)
    packets = {_name(change): _changed(valid[change.packet], change) for change in CHANGES}
    message = valid["message"]
    packets["message: cut in the middle of its SessionHeader"] = message[:-7]
    return packets


def hostile_pings(source: Guid) -> dict[str, bytes]:
    """Return datagrams for a ping port, keyed by name. No queue manager answers them."""
    ping = ping_packet.encode(Ping(cookie=1, qm_guid=source))
    return {
        "ping: one byte too short": ping[:-1],
        "ping: one byte too long": ping + b"\0",
        "ping: no signature": bytes(len(ping)),
    }


def _valid_packets(source: Guid, target: Guid) -> dict[str, bytes]:
    common: dict[str, Any] = {
        "source": source,
        "destination_manager": target,
        "message_id": 1,
        "sent_time_s": SENT_S,
        "body": b"hostile",
    }
    identifier = TxSequenceId(time_stamp=SENT_S, ordinal=1)
    message = user_message(
        destination=16,
        label="hostile",
        extension=b"extra",
        transaction=TransactionHeader(tx_sequence_id=identifier, tx_sequence_number=1),
        multi_queue_format=MultiQueueFormatHeader(
            destination=direct_names(r"OS:somebody\orders"), signature=MqfSignatureHeader(signature=b"sealed")
        ),
        **common,
    )
    security = SecurityHeader(sender_id=source, signature=b"signed", sender_cert=b"certificate")
    with_soap(secured(message, security), SoapHeader(header="<h/>", body="<b/>"))
    message.debug, message.base.debug_header = DebugHeader(flags=1, queue_identifier=target), True
    session = SessionHeader(ack_sequence_number=0, user_msg_sequence_number=1, recoverable_msg_seq_number=1)
    message.session, message.base.session_header = session, True
    return {
        "request": connection_request(source, target, time_stamp_ms=0),
        "parameters": proposal(),
        "acknowledgment": encode_packet(SessionAck(session=SessionHeader())),
        "plain": encode_packet(user_message(destination=16, **common)),
        "direct": encode_packet(user_message(destination=r"TCP:127.0.0.2\q", **common)),
        "message": encode_packet(message),
    }


def _changed(packet: bytes, change: _Change) -> bytes:
    field = next(field for field in inspect_packet(packet).fields if field.name == change.field)
    old = int.from_bytes(field.raw, "little")
    lowest_bit = change.mask & -change.mask
    new = old & ~change.mask | change.value * lowest_bit if change.mask else change.value
    assert new != old, f"{_name(change)} changes nothing"
    return with_values(packet, {change.field: new})


def _name(change: _Change) -> str:
    bits = f" & {change.mask:#x}" if change.mask else ""
    return f"{change.packet}: {change.field}{bits} = {change.value:#x}"

"""The reference reader and writer: construct interprets the layouts.

Some eighty times slower than codec.py, which is generated from the same layouts and turns to this module for
the words of each refusal. Tools that want to see every byte use `read`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.wire.layouts.base import MAXIMUM_PACKET_SIZE, BaseHeader, base_header
from mqproto.wire.layouts.internal import InternalHeader, internal_header
from mqproto.wire.layouts.session import session_header
from mqproto.wire.layouts.user import UserHeader, user_header
from mqproto.wire.packets import (
    INTERNAL_PACKETS,
    Packet,
    UserMessage,
    srmp_message_packet,
    user_message_packet,
)
from mqproto.wire.schema.layout import Layout, PacketStream
from mqproto.wire.schema.record import Record, to_records

_head = Layout("[MS-MQMQ] 2.2.19.1", "base" / base_header)
_internal_head = Layout("[MS-MQQB] 2.2.1", "base" / base_header, "internal" / internal_header)
_TYPE_AT: Final = base_header.sizeof() + internal_header.offset_of("flags")
_session = Layout("[MS-MQMQ] 2.2.20", "session" / session_header)
_USER_FLAGS: Final = struct.Struct(user_header.struct_format("flags"))


def decode_packet(data: bytes) -> Packet:
    """One whole packet as its record; a UserMessage's SessionHeader included.

    Raises:
        WireFormatError: the bytes form no packet of [MS-MQQB] 2.2.
    """
    return read(bytes(data))


def read(
    data: bytes,
    seen: list[Any] | None = None,
    faults: list[WireFormatError] | None = None,
    skip: Callable[[Record[Any], int, int], int] | None = None,
) -> Packet:
    """Read a packet and tell what is seen on the way.

    Args:
        data: one whole packet.
        seen: takes (name, offset, value, bytes, section) of each field.
        faults: takes the broken rules that leave the rest readable; without it the first one is raised.
        skip: passes over items of lists that are good, for those who look for a fault; see `Repeated`.
    """
    context = {"seen": seen, "faults": faults, "skip": skip}
    if len(data) < base_header.sizeof():
        _head.parse_stream(PacketStream(data), **context)
    head = _head.parse_stream(PacketStream(data), faults=None if faults is None else []).base
    internal = bool(head.flags & BaseHeader.internal.mask)
    size = head.packet_size
    rides = not internal and bool(head.flags & BaseHeader.session_header.mask)
    whole = size + session_header.sizeof() * rides
    if len(data) != whole:
        error = WireFormatError(
            "base.packet_size",
            base_header.offset_of("packet_size"),
            size,
            f"{max(len(data) - (whole - size), 0):#x}, as {len(data)} bytes are there"
            + " with a SessionHeader" * rides,
            "[MS-MQMQ] 2.2.19.1",
        )
        if faults is None:
            raise error
        faults.append(error)
        size = min(size, len(data))
    # Whatever PacketSize says, its header is there, and an analyst is to be told what is wrong in it.
    size = max(size, base_header.sizeof())

    record: Record[Any] = user_message_packet
    if internal:
        kind = InternalHeader.packet_type.within(data[_TYPE_AT]) if len(data) > _TYPE_AT else 0
        if kind not in INTERNAL_PACKETS:
            # Nothing beyond the type can be read, so this fault ends the reading for analysts too.
            _internal_head.parse_stream(PacketStream(data[:size]), **context)
            assert faults
            raise faults.pop()
        record = INTERNAL_PACKETS[kind]
    elif faults is not None and _is_over_http(data[:size]):
        record = srmp_message_packet
    packet: Packet = to_records(record.parse_stream(PacketStream(data[:size]), **context))
    if rides:
        assert isinstance(packet, UserMessage)
        stream = PacketStream(data[size:], size)
        packet.session = to_records(_session.parse_stream(stream, **context).session)
    return packet


def _is_over_http(packet: bytes) -> bool:
    """Whether a UserMessage has AH set."""
    if len(packet) < base_header.sizeof() + _USER_FLAGS.size:
        return False
    [flags] = _USER_FLAGS.unpack_from(packet, base_header.sizeof())
    return bool(flags & UserHeader.over_http.mask)


def judge_head(head: bytes) -> None:
    """Raise what the layout of the BaseHeader has against the first 16 bytes of a packet."""
    _head.parse_stream(PacketStream(head))


def encode_packet(packet: Packet) -> bytes:
    """The bytes of a packet, its SessionHeader included.

    Raises:
        UsageError: a value breaks a rule of the layout, or the flags announce other headers than there are.
    """
    if isinstance(packet, UserMessage):
        # Twice, as PacketSize stands first and is known last.
        size = len(user_message_packet.encode(packet, packet_size=MAXIMUM_PACKET_SIZE))
        body = user_message_packet.encode(packet, packet_size=size)
        session = packet.session
        if packet.base.session_header != (session is not None):
            raise UsageError(
                "base.flags and session disagree: SH says whether there is one  [MS-MQMQ] 2.2.20"
            )
        return body + (session_header.encode(session) if session is not None else b"")
    kinds: Iterable[Record[Any]] = INTERNAL_PACKETS.values()
    for record in kinds:
        if isinstance(packet, record.kind):
            return record.encode(packet, packet_size=record.sizeof())
    raise UsageError(f"{type(packet).__name__} is no packet")

"""Fields that an observer reads from a passing packet without decoding it.

Their offsets are taken from the layouts.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from mqproto.wire.generated import transaction_offset
from mqproto.wire.glance import place_in_sequence as place_of
from mqproto.wire.layouts.base import BaseHeader, base_header
from mqproto.wire.layouts.internal import (
    CONNECTION_PARAMETERS,
    SESSION_ACK,
    InternalHeader,
    connection_parameters_packet,
    internal_header,
)
from mqproto.wire.layouts.session import session_header
from mqproto.wire.layouts.transaction import transaction_header
from mqproto.wire.layouts.user import UserHeader, user_header

_head = struct.Struct(base_header.struct_format("flags", "packet_size"))
_session = struct.Struct(
    session_header.struct_format(
        "ack_sequence_number",
        "recoverable_msg_ack_seq_number",
        "recoverable_msg_ack_flags",
        "window_size",
    )
)
_word = struct.Struct("<I")
_short = struct.Struct("<H")
_INTERNAL: Final = BaseHeader.internal.mask
_SESSION: Final = BaseHeader.session_header.mask
_SESSION_SIZE: Final = session_header.sizeof()
_INTERNAL_FLAGS: Final = connection_parameters_packet.offset_of("internal") + internal_header.offset_of(
    "flags"
)
_WINDOW: Final = connection_parameters_packet.offset_of("window_size")
_PACKET_TYPE: Final = InternalHeader.packet_type.limit
_BASE: Final = base_header.sizeof()
_SOURCE: Final = _BASE + user_header.offset_of("source_queue_manager")
_MANAGER: Final = _BASE + user_header.offset_of("queue_manager_address")
_MESSAGE_ID: Final = _BASE + user_header.offset_of("message_id")
_FLAGS: Final = _BASE + user_header.offset_of("flags")
_AFTER_FLAGS: Final = _FLAGS + _word.size
# Reads the head of a UserMessage at once: source, manager, MessageID as bytes, and the first byte of the flags.
_user = struct.Struct(f"<{_SOURCE}x16s16s{_MESSAGE_ID - _MANAGER - 16}x4sB")
assert (_MANAGER, _FLAGS) == (_SOURCE + 16, _MESSAGE_ID + 4)
_RECOVERABLE: Final = UserHeader.recoverable.mask
_PREVIOUS: Final = transaction_header.offset_of("previous_tx_sequence_number")
_HOPS: Final = UserHeader.hop_count.mask


class SessionGlimpse(NamedTuple):
    """The fields of a SessionHeader that acknowledge packets."""

    ack_sequence_number: int
    saved_from: int
    saved_flags: int
    window_size: int


class Glimpse:
    """One packet on its way between two neighbours.

    identity: the GUID of the source and the MessageID of an application's message, which together identify the message
        from end to end.
    manager: the GUID of its destination's queue manager.
    window: the WindowSize that it announces, or 0.
    """

    __slots__ = ("identity", "is_user", "manager", "packet", "recoverable", "session", "window")

    def __init__(self, packet: bytes) -> None:
        flags, _ = _head.unpack_from(packet)
        self.packet = packet
        self.is_user = not flags & _INTERNAL
        self.session: SessionGlimpse | None = None
        self.window = 0
        if self.is_user:
            source, self.manager, message_id, user_flags = _user.unpack_from(packet)
            self.identity = source + message_id
            self.recoverable = bool(user_flags & _RECOVERABLE)
            has_session = flags & _SESSION
        else:
            self.identity = self.manager = b""
            self.recoverable = False
            packet_type = _short.unpack_from(packet, _INTERNAL_FLAGS)[0] & _PACKET_TYPE
            has_session = packet_type == SESSION_ACK
            if packet_type == CONNECTION_PARAMETERS:
                (self.window,) = _short.unpack_from(packet, _WINDOW)
        if has_session:
            self.session = SessionGlimpse(*_session.unpack_from(packet, len(packet) - _SESSION_SIZE))
            self.window = self.session.window_size

    @property
    def hop_count(self) -> int:
        return self.packet[_FLAGS] & _HOPS

    @property
    def body(self) -> bytes:
        """The bytes that an intermediate node must not change: everything after the flags, except the SessionHeader."""
        _, size = _head.unpack_from(self.packet)
        return self.packet[_AFTER_FLAGS:size]


def identity_of(packet: bytes) -> bytes:
    """Return the identity of a UserMessage: its source's GUID and its MessageID."""
    return packet[_SOURCE : _SOURCE + 16] + packet[_MESSAGE_ID : _MESSAGE_ID + 4]


def identity(source: bytes, message_id: int) -> bytes:
    """Return an identity from its parts."""
    return source + _word.pack(message_id)


def place_in_sequence(packet: bytes) -> tuple[tuple[int, int], int] | None:
    """Return a transactional message's TxSequenceID, as time stamp and ordinal, and its number.

    The result is None for other messages.
    """
    place = place_of(packet)
    if place is None:
        return None
    identifier, number = place
    return (identifier.time_stamp, identifier.ordinal), number


def previous_number_of(packet: bytes) -> int:
    """Return PreviousTxSequenceNumber of a transactional message."""
    number: int = _word.unpack_from(packet, transaction_offset(packet) + _PREVIOUS)[0]
    return number

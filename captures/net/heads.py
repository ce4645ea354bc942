"""Finds where packets begin in the bytes of a stream, as far as heads show it.  [MS-MQMQ] 2.2.19.1"""

from __future__ import annotations

from typing import Final

from mqproto.base.errors import WireFormatError
from mqproto.wire import PacketBuffer
from mqproto.wire.layouts.base import SIGNATURE, SMALLEST_INTERNAL_PACKET, BaseHeader, base_header
from mqproto.wire.layouts.internal import ESTABLISH_CONNECTION, establish_connection_packet

HEAD_BYTES: Final = 16
"""The size of the part that framing judges: the BaseHeader.  [MS-MQMQ] 2.2.19.1"""
TRIES_COUNT: Final = 16
"""How many heads are tried in a chunk to find a packet.

`chain_in` tries more than that: in addition, as many as the longest possible chain in the chunk would have.
"""

_SIGNATURE: Final = SIGNATURE.to_bytes(4, "little")
_SIGNATURE_AT: Final = base_header.offset_of("signature")
_OPENING: Final = _SIGNATURE + establish_connection_packet.sizeof().to_bytes(4, "little")


def chain_in(data: bytes) -> int | None:
    """Return the offset of the first packet that begins an unbroken chain to the end of the data.

    Return None if there is none. At least two heads are needed, the second at the place that the first one implies. A
    payload may contain such a chain, but only if somebody crafted it to its last byte. Even then, the payload is
    searched only if the head of its own packet was lost.
    """
    left = TRIES_COUNT + len(data) // SMALLEST_INTERNAL_PACKET
    at = _SIGNATURE_AT
    while left:
        at = data.find(_SIGNATURE, at + 1)
        if at < 0:
            break
        start = place = at - _SIGNATURE_AT
        count = 0
        while left and place + HEAD_BYTES <= len(data):
            left -= 1
            size = whole_size(data[place : place + HEAD_BYTES])
            place += size
            count += 1
            if not size:
                break
        else:
            if count > 1 and place + HEAD_BYTES > len(data):
                return start
    return None


def head_in(data: bytes) -> tuple[int | None, int]:
    """Return the offset and the size of the first possible packet that leaves no room for another head.

    That is, the data ends before a whole head can follow the packet. If there is no such packet, the offset is None. At
    most TRIES_COUNT heads are tried.
    """
    at = _SIGNATURE_AT
    for _ in range(TRIES_COUNT):
        at = data.find(_SIGNATURE, at + 1)
        start = at - _SIGNATURE_AT
        if at < 0 or start + HEAD_BYTES > len(data):
            break
        size_bytes = whole_size(data[start : start + HEAD_BYTES])
        if size_bytes and start + size_bytes + HEAD_BYTES > len(data):
            return start, size_bytes
    return None, 0


def whole_size(head: bytes) -> int:
    """Return the size of the packet with this head, including its SessionHeader; 0 if it is not a head."""
    buffer = PacketBuffer()
    try:
        buffer.feed(head)
    except WireFormatError:
        return 0
    return HEAD_BYTES + buffer.missing_bytes


def begins_packet(data: bytes) -> bool:
    """Whether the first 16 bytes are the head of a packet."""
    return len(data) >= HEAD_BYTES and fault_of(data[:HEAD_BYTES]) is None


def opens_session(data: bytes) -> bool:
    """Whether data begins with an EstablishConnection; on one connection, each side sends it first, and only then.

    [MS-MQQB] 2.2.1, 3.1.5.3
    """
    is_internal = data[_SIGNATURE_AT:12] == _OPENING and data[2] & BaseHeader.internal.mask
    return bool(is_internal) and data[18:19] != b"" and data[18] & 0xF == ESTABLISH_CONNECTION


def fault_of(head: bytes) -> WireFormatError | None:
    """Return why these 16 bytes are not the head of a packet; None if they are."""
    try:
        PacketBuffer().feed(head)
    except WireFormatError as fault:
        return fault
    return None

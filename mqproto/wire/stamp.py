"""Packets of messages that are alike, made from one of them.  [MS-MQMQ] 2.2.20

What a producer sends differs mostly in its bodies, and in the numbers that its queue manager gives: to set these anew
and copy the rest takes a tenth of what encoding takes. The offsets come from the layouts, as in patch.py.
"""

from __future__ import annotations

import struct
from typing import Final

from mqproto.errors import UsageError
from mqproto.wire.base import MAXIMUM_PACKET_SIZE, base_header
from mqproto.wire.codec import properties_offset, transaction_offset
from mqproto.wire.properties import message_properties_header
from mqproto.wire.transaction import TxSequenceId, transaction_header
from mqproto.wire.user import user_header

_number = struct.Struct("<I")
_sizes = struct.Struct("<II")
_place = struct.Struct("<IIIII")
_lengths = struct.Struct(
    message_properties_header.struct_format("label_length", "message_size", "extension_size")
)

_PACKET_SIZE: Final = base_header.offset_of("packet_size")
_MESSAGE_ID: Final = base_header.sizeof() + user_header.offset_of("message_id")
_SIZES: Final = message_properties_header.offset_of("message_size")
_LABEL: Final = message_properties_header.offset_of("label")
assert message_properties_header.offset_of("allocation_body_size") == _SIZES + _number.size
assert [
    transaction_header.offset_of(name)
    for name in ("tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number", "connector_qm_guid")
] == [4, 12, 16, _place.size]


def place_bytes(flags: int, identifier: TxSequenceId, number: int, previous: int) -> bytes:
    """The fixed fields of a TransactionHeader.  [MS-MQMQ] 2.2.20.5

    Raises:
        UsageError: a number does not fit.
    """
    if not (1 <= number <= 0xFFFFFFFF and 0 <= previous <= 0xFFFFFFFE):
        raise UsageError(f"number {number} behind {previous}: must be 1 to 0xffffffff behind 0 to 0xfffffffe")
    return _place.pack(flags, identifier.ordinal, identifier.time_stamp, number, previous)


class Stamp:
    """Makes packets that are like a given one.

    Args:
        packet: of a UserMessage without a SessionHeader.
    """

    def __init__(self, packet: bytes) -> None:
        properties = properties_offset(packet)
        label_length, message_size, extension_size = _lengths.unpack_from(packet, properties)
        self._body = body = properties + _LABEL + 2 * label_length + extension_size
        place = transaction_offset(packet)
        after_place = place + _place.size
        if place < 0:
            place = after_place = properties
        sizes = properties + _SIZES
        self._to_size = packet[:_PACKET_SIZE]
        self._to_id = packet[_PACKET_SIZE + _number.size : _MESSAGE_ID]
        self._to_place = packet[_MESSAGE_ID + _number.size : place]
        self._to_sizes = packet[after_place:sizes]
        self._to_body = packet[sizes + _sizes.size : body]
        # Whatever follows the body begins on a 4-byte boundary, so it does not depend on where.
        body += message_size
        self._to_end = packet[body + -body % 4 :]

    def packet(self, body: bytes, message_id: int, place: bytes = b"") -> bytes:
        """A packet with this body and MessageID; its sizes follow, AllocationBodySize among them.

        place: its `place_bytes`; empty for a message without a TransactionHeader, as the given one must be, too.

        Raises:
            UsageError: the packet would be too large.
        """
        end = self._body + len(body)
        padding = -end % 4
        size = end + padding + len(self._to_end)
        if size > MAXIMUM_PACKET_SIZE:
            raise UsageError(f"the packet would have {size:,} bytes, at most {MAXIMUM_PACKET_SIZE:,}")
        return b"".join(
            (
                self._to_size,
                _number.pack(size),
                self._to_id,
                _number.pack(message_id),
                self._to_place,
                place,
                self._to_sizes,
                _sizes.pack(len(body), len(body)),
                self._to_body,
                body,
                bytes(padding),
                self._to_end,
            )
        )

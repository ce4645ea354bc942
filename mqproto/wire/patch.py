"""Changes packets without decoding them.

An intermediate queue manager changes every packet that it passes on. A sender makes packets that are like a given one.

The offsets come from the layouts: they are the sizes of the preceding fields. Packets must be whole and valid, as
`PacketBuffer` and `decode_packet` ensure.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.wire.generated import build_session_header, properties_offset, transaction_offset
from mqproto.wire.layouts.base import MAXIMUM_PACKET_SIZE, BaseHeader, base_header
from mqproto.wire.layouts.properties import LONGEST_LABEL, message_properties_header
from mqproto.wire.layouts.session import SessionHeader
from mqproto.wire.layouts.transaction import TxSequenceId, transaction_header
from mqproto.wire.layouts.user import MAXIMUM_HOP_COUNT, UserHeader, user_header
from mqproto.wire.schema.refused import REFUSALS

_head = struct.Struct(base_header.struct_format("flags", "packet_size"))
_base_flags = struct.Struct("<H")
_number = struct.Struct("<I")
_class = struct.Struct("<H")
_place = struct.Struct("<IIII")
_byte = struct.Struct("<B")
_numbers = struct.Struct("<II")
_flags_and_place = struct.Struct("<IIIII")

_BASE_FLAGS: Final = base_header.offset_of("flags")
_AFTER_BASE_FLAGS: Final = _BASE_FLAGS + _base_flags.size
_HOPS: Final = base_header.sizeof() + user_header.offset_of("flags")  # RC is in the first byte of the word
_HOP_MASK: Final = UserHeader.hop_count.mask
_PREVIOUS: Final = transaction_header.offset_of("previous_tx_sequence_number")
_SEQUENCE: Final = transaction_header.offset_of("tx_sequence_id")
assert _PREVIOUS + _number.size == _SEQUENCE + _place.size
_CLASS: Final = message_properties_header.offset_of("message_class")
_SESSION: Final = BaseHeader.session_header.mask
_INTERNAL: Final = BaseHeader.internal.mask
_PACKET_SIZE: Final = base_header.offset_of("packet_size")
_MESSAGE_SIZE: Final = message_properties_header.offset_of("message_size")
_EXTENSION_SIZE: Final = message_properties_header.offset_of("extension_size")
_BEHIND: Final = _SESSION | BaseHeader.debug_header.mask | BaseHeader.trace.mask
_BEHIND_USER: Final = UserHeader.has_soap.mask | UserHeader.has_multi_queue_format.mask
"""The flags of headers that come after the body."""
_SENT: Final = base_header.sizeof() + user_header.offset_of("sent_time_s")
_LABEL: Final = _EXTENSION_SIZE + _number.size
_LABEL_LENGTH: Final = message_properties_header.offset_of("label_length")
_CORRELATION: Final = message_properties_header.offset_of("correlation_id")
_CORRELATION_BYTES: Final = 20
_LABEL_LIMIT_BYTES: Final = 2 * (LONGEST_LABEL + 1)


def with_session_header(packet: bytes, header: SessionHeader) -> bytes:
    """Return a UserMessage with this SessionHeader in place of any other: with SH set and 16 bytes added.

    Raises:
        UsageError: the packet is internal.
    """
    flags, size = _head.unpack_from(packet)
    if flags & _INTERNAL:
        raise UsageError("a SessionHeader rides on UserMessages only; send a SessionAck")
    flag_bytes = _base_flags.pack(flags | _SESSION)
    return b"".join(
        (packet[:_BASE_FLAGS], flag_bytes, packet[_AFTER_BASE_FLAGS:size], build_session_header(header))
    )


def without_session_header(packet: bytes) -> bytes:
    """Return a UserMessage without its SessionHeader: SH is clear, and the packet ends at PacketSize.

    A packet without a SessionHeader, or an internal packet, is returned unchanged.
    """
    flags, size = _head.unpack_from(packet)
    if flags & (_SESSION | _INTERNAL) != _SESSION:
        return packet
    return b"".join(
        (packet[:_BASE_FLAGS], _base_flags.pack(flags & ~_SESSION), packet[_AFTER_BASE_FLAGS:size])
    )


def with_hop_counted(packet: bytes) -> bytes:
    """Return a UserMessage with RC one higher, as a routing server passes it on.  [MS-MQMQ] 2.2.19.2

    Raises:
        UsageError: RC is already 29; look at `hop_count` first.
    """
    return b"".join((packet[:_HOPS], bytes((_one_hop_more(packet),)), packet[_HOPS + 1 :]))


def passed_on(packets: Sequence[bytes]) -> list[bytes]:
    """Return UserMessages as a routing server passes them on, with RC one higher and no SessionHeader.

    Each of them is the result of `without_session_header` followed by `with_hop_counted`.  [MS-MQMQ] 2.2.19.2

    Args:
        packets: one or more UserMessages with the same flags.

    Raises:
        UsageError: RC is already 29; look at `hop_count` first.
    """
    hops, behind = bytes((_one_hop_more(packets[0]),)), _HOPS + 1
    if packets[0][_BASE_FLAGS] & _SESSION:
        packets = list(map(without_session_header, packets))
    return [b"".join((packet[:_HOPS], hops, packet[behind:])) for packet in packets]


def _one_hop_more(packet: bytes) -> int:
    """Return the byte that contains RC, with RC raised by one."""
    bits = packet[_HOPS]
    if bits & _HOP_MASK >= MAXIMUM_HOP_COUNT:
        raise UsageError(f"hop_count is {MAXIMUM_HOP_COUNT} already, the most that [MS-MQMQ] 2.2.19.2 allows")
    return bits + 1


def beginning(data: bytes) -> tuple[bytes, int, int] | None:
    """Return the beginning of a UserMessage as a message of its own, without its large parts.

    Returns:
        The message without extension, body and later headers, followed by the offsets of the extension
        and of the body in the whole message. None if there are too few bytes.
    """
    from mqproto.wire.glance import variable_part

    try:
        _, start, _, end = variable_part(data)
        properties = properties_offset(data)
    except REFUSALS:
        return None
    if start > len(data):
        return None
    found = bytearray(data[:start] + bytes(-start & 3))
    flags, _ = _head.unpack_from(data)
    word: int = _number.unpack_from(data, _HOPS)[0]
    _base_flags.pack_into(found, _BASE_FLAGS, flags & ~_BEHIND)
    _number.pack_into(found, _PACKET_SIZE, len(found))
    _number.pack_into(found, _HOPS, word & ~_BEHIND_USER)
    _number.pack_into(found, properties + _MESSAGE_SIZE, 0)
    _number.pack_into(found, properties + _EXTENSION_SIZE, 0)
    return bytes(found), start, end


def with_previous_number(packet: bytes, number: int) -> bytes:
    """Return a transactional UserMessage with a different PreviousTxSequenceNumber.  [MS-MQMQ] 2.2.20.5

    Raises:
        UsageError: the message has no TransactionHeader, or the number does not fit.
    """
    if not 0 <= number <= 0xFFFFFFFE:
        raise UsageError(f"PreviousTxSequenceNumber is {number}, must be 0 to 0xfffffffe  [MS-MQMQ] 2.2.20.5")
    if (offset := transaction_offset(packet)) < 0:
        raise UsageError("the message has no TransactionHeader, and so no PreviousTxSequenceNumber")
    offset += _PREVIOUS
    return b"".join((packet[:offset], _number.pack(number), packet[offset + _number.size :]))


def with_place(packet: bytes, identifier: TxSequenceId, number: int, previous: int) -> bytes:
    """Return a transactional UserMessage with another place in another sequence.  [MS-MQMQ] 2.2.20.5

    Raises:
        UsageError: the message has no TransactionHeader, or a number does not fit.
    """
    if not (1 <= number <= 0xFFFFFFFF and 0 <= previous <= 0xFFFFFFFE):
        raise UsageError(f"number {number} behind {previous}: must be 1 to 0xffffffff behind 0 to 0xfffffffe")
    if (offset := transaction_offset(packet)) < 0:
        raise UsageError("the message has no TransactionHeader, and so no place in a sequence")
    offset += _SEQUENCE
    place = _place.pack(identifier.ordinal, identifier.time_stamp, number, previous)
    return b"".join((packet[:offset], place, packet[offset + _place.size :]))


def with_message_class(packet: bytes, message_class: int) -> bytes:
    """Return a UserMessage with another class, which says why it is a dead letter.  [MS-MQMQ] 2.2.18.1.6

    Args:
        message_class: the new class, of 16 bits.
    """
    offset = properties_offset(packet) + _CLASS
    return b"".join((packet[:offset], _class.pack(message_class), packet[offset + _class.size :]))


def place_bytes(flags: int, identifier: TxSequenceId, number: int, previous: int) -> bytes:
    """Return the fixed fields of a TransactionHeader.  [MS-MQMQ] 2.2.20.5

    Raises:
        UsageError: a number does not fit.
    """
    if not (1 <= number <= 0xFFFFFFFF and 0 <= previous <= 0xFFFFFFFE):
        raise UsageError(f"number {number} behind {previous}: must be 1 to 0xffffffff behind 0 to 0xfffffffe")
    return _flags_and_place.pack(flags, identifier.ordinal, identifier.time_stamp, number, previous)


class Stamp:
    """Makes packets that are like a given one.  [MS-MQMQ] 2.2.20

    A producer's messages differ mostly in bodies, labels, correlation identifiers, extensions (a gateway puts the
    producer's id there), and the time and numbers that the queue manager sets. Setting these anew and copying the rest
    takes a fifth of the time of encoding.

    Args:
        packet: a UserMessage without a SessionHeader.
    """

    def __init__(self, packet: bytes) -> None:
        from mqproto.wire.glance import variable_part  # Only a sender needs it, and its offsets cost time.

        label, _, _, end = variable_part(packet)
        properties = label - _LABEL
        self._without_properties = label
        place = transaction_offset(packet)
        after_place = place + _flags_and_place.size
        if place < 0:
            place = after_place = properties
        sizes = properties + _MESSAGE_SIZE
        self._to_size = packet[:_PACKET_SIZE]
        self._to_sent = packet[_PACKET_SIZE + _number.size : _SENT]
        self._to_place = packet[_SENT + _numbers.size : place]
        correlation = properties + _CORRELATION
        self._to_label_length = packet[after_place : properties + _LABEL_LENGTH]
        self._to_correlation = packet[properties + _LABEL_LENGTH + 1 : correlation]
        self._to_sizes = packet[correlation + _CORRELATION_BYTES : sizes]
        self._to_extension_size = packet[sizes + _numbers.size : properties + _EXTENSION_SIZE]
        # What follows the body begins on a 4-byte boundary, so it is the same wherever the body ends.
        self._to_end = packet[end + -end % 4 :]
        self._set("", bytes(_CORRELATION_BYTES))

    def _set(self, label: str, correlation_id: bytes) -> None:
        """Set the label and the CorrelationID of the next packets."""
        text = f"{label}\0".encode("utf-16-le", "surrogatepass") if label else b""
        if len(text) > _LABEL_LIMIT_BYTES or "\0" in label or len(correlation_id) != _CORRELATION_BYTES:
            raise UsageError(
                f"a label of {len(label)} characters, a correlation id of {len(correlation_id)} bytes: "
                f"at most {LONGEST_LABEL} without a NUL, and {_CORRELATION_BYTES}"
            )
        self._label, self._correlation_id, self._text = label, correlation_id, text
        length = _byte.pack(len(text) >> 1)
        self._after_place = b"".join(
            (self._to_label_length, length, self._to_correlation, correlation_id, self._to_sizes)
        )

    def size_bytes(self, body: bytes, label: str, extension: bytes) -> int:
        """Return the size of a packet with this body, label and ExtensionData."""
        label_bytes = len(f"{label}\0".encode("utf-16-le", "surrogatepass")) if label else 0
        end = self._without_properties + label_bytes + len(extension) + len(body)
        return end + -end % 4 + len(self._to_end)

    def packet(
        self,
        body: bytes,
        label: str,
        correlation_id: bytes,
        extension: bytes,
        sent_time_s: int,
        message_id: int,
        place: bytes = b"",
    ) -> bytes:
        """Return a packet with this body, label, CorrelationID, ExtensionData, SentTime and MessageID.

        The packet's sizes, including AllocationBodySize, follow from these.

        label: empty for none.
        place: the packet's `place_bytes`; empty if the given packet has no TransactionHeader.

        Raises:
            UsageError: the packet or the label would be too large, or the CorrelationID does not have 20 bytes.
        """
        if label != self._label or correlation_id != self._correlation_id:
            self._set(label, correlation_id)
        body_bytes = len(body)
        end = self._without_properties + len(self._text) + len(extension) + body_bytes
        padding = -end % 4
        size = end + padding + len(self._to_end)
        if size > MAXIMUM_PACKET_SIZE:
            raise UsageError(f"the packet would have {size:,} bytes, at most {MAXIMUM_PACKET_SIZE:,}")
        return b"".join(
            (
                self._to_size,
                _number.pack(size),
                self._to_sent,
                _numbers.pack(sent_time_s, message_id),
                self._to_place,
                place,
                self._after_place,
                _numbers.pack(body_bytes, body_bytes),
                self._to_extension_size,
                _number.pack(len(extension)),
                self._text,
                extension,
                body,
                bytes(padding),
                self._to_end,
            )
        )

"""Judges the common parts of successive messages only once.

In a stream of messages, nearly all bytes that decide whether a packet is valid repeat in the next packet: version,
flags and names. A `Shape` keeps these bytes of a packet that was checked. Another packet with the same bytes, and with
valid numbers and sizes, is valid, too, and needs no check of its own. These fields may differ:

    BaseHeader   PacketSize, which has to be the size of the packet
    UserHeader   SentTime, MessageID
    Transaction  its identifier, place and predecessor; first and last in the transaction
    Properties   CorrelationID, body type and other values without rules; sizes; label, extension, body

A packet with a SessionHeader, a DebugHeader, or headers for security, SOAP or lists of queues has a shape of its own,
which it does not share with any other packet. The offsets come from the layouts, as in patch.py.
"""

from __future__ import annotations

import struct
from codecs import utf_16_le_decode
from collections.abc import Generator, Iterable
from typing import Final, NamedTuple

from mqproto.wire.codec import check_packet, decode_message
from mqproto.wire.generated import properties_offset, transaction_offset
from mqproto.wire.glance import message_ids, user_flags
from mqproto.wire.layouts.base import MAXIMUM_PACKET_SIZE, BaseHeader, base_header
from mqproto.wire.layouts.properties import (
    LONGEST_LABEL,
    MessagePropertiesHeader,
    message_properties_header,
)
from mqproto.wire.layouts.transaction import TransactionHeader, TxSequenceId, transaction_header
from mqproto.wire.layouts.user import QueueName, UserHeader, user_header
from mqproto.wire.messages import FINAL_ACK, asks_final_ack
from mqproto.wire.packets import UserMessage
from mqproto.wire.schema.refused import REFUSALS

KNOWN: Final = 16
"""The maximum number of shapes that a session remembers. It forgets the oldest one first."""
LONGEST_HEAD: Final = 512
"""The maximum number of bytes of a packet that are kept for its shape.

If its label begins later than that, no other packet can have its shape.
"""

_BASE_FLAGS_AT: Final = base_header.offset_of("flags")
_USER_AT: Final = base_header.sizeof()
_SIZE_AT: Final = base_header.offset_of("packet_size")
_REACH_AT: Final = base_header.offset_of("time_to_reach_queue_s")
_SENT_AT: Final = _USER_AT + user_header.offset_of("sent_time_s")
_FLAGS_AT: Final = _USER_AT + user_header.offset_of("flags")
_KEY_END: Final = _USER_AT + user_header.offset_of("destination_queue") + 4
_LABEL_AT: Final = message_properties_header.offset_of("label")
assert _REACH_AT == _SIZE_AT + 4
assert _FLAGS_AT == _SENT_AT + 8

APART: Final = BaseHeader.session_header.mask | BaseHeader.debug_header.mask
"""The BaseHeader.Flags, all in the first byte, for headers that must be judged in each packet."""
APART_USER: Final = (
    UserHeader.has_security.mask | UserHeader.has_soap.mask | UserHeader.has_multi_queue_format.mask
)
"""The UserHeader.Flags for headers that must be judged in each packet."""
assert APART < 0x100
_INTERNAL: Final = BaseHeader.internal.mask
_ACKNOWLEDGE_ARRIVAL: Final = MessagePropertiesHeader.acknowledge_arrival.mask
_CONNECTOR: Final = TransactionHeader.connector.mask
_LAST_PREVIOUS: Final = 0xFFFFFFFE
_LONGEST_LABEL: Final = LONGEST_LABEL + 1

_to_names = f"<{_SIZE_AT}sI{_SENT_AT - _REACH_AT}s8x"
_place = transaction_header.struct_format("flags", "tx_sequence_number", "previous_tx_sequence_number")[1:]
_properties = message_properties_header.struct_format(
    "flags", "label_length", "message_class", "message_size", "extension_size"
)[1:]
_in_sequence = struct.Struct("<IIIII")
assert [
    transaction_header.offset_of(name)
    for name in ("flags", "tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number")
] == [0, 4, 12, 16]


class Facts(NamedTuple):
    """The facts that a destination reads from the first message of a shape; they are true of all others.

    final_ack: whether the messages' sender waits for a FinalAck.
    """

    destination_queue: QueueName
    message_class: int
    final_ack: bool
    acknowledge_arrival: bool


class Shape:
    """What similar messages have in common.

    Args:
        packet: a valid UserMessage.
    """

    def __init__(self, packet: bytes) -> None:
        self.flags = user_flags(packet)
        """UserHeader.Flags."""
        self.facts: Facts | None = None
        """The facts about these messages; None before the first `Run.facts`."""
        self.may_have_others = not (packet[_BASE_FLAGS_AT] & APART or self.flags & APART_USER)
        """Whether other packets may have this shape."""
        self._example = packet[:LONGEST_HEAD]
        self._unpack: struct.Struct | None = None
        """The struct that unpacks these messages; None until a second packet is compared with the shape.

        If there are many shapes, most of them have only one packet, and never need the struct.
        """
        self._place_at = self._label_at = self._least_bytes = 0
        self._common: tuple[bytes, bytes, bytes, int, int] = b"", b"", b"", 0, 0
        self._final_ack = 0
        self._label = b""
        self._identifier = TxSequenceId()

    def fits(self, packet: bytes) -> bool:
        """Return whether a packet has this shape, which makes it valid. If not, it may still be valid."""
        unpack = self._unpack
        if unpack is None and (unpack := self._learn()) is None:
            return False
        size = len(packet)
        if size < self._least_bytes:
            return False
        if self._place_at < 0:
            begin, told, head, names, kind, label_length, message_class, body, extension = unpack.unpack_from(
                packet
            )
        else:
            (
                begin,
                told,
                head,
                names,
                word,
                number,
                previous,
                kind,
                label_length,
                message_class,
                body,
                extension,
            ) = unpack.unpack_from(packet)
            if not number or previous > _LAST_PREVIOUS or word & (_CONNECTOR | FINAL_ACK) != self._final_ack:
                return False
        label_end = self._label_at + 2 * label_length
        end: int = label_end + extension + body
        return (
            (begin, head, names, kind, message_class) == self._common
            and told == size <= MAXIMUM_PACKET_SIZE
            and end + (-end & 3) <= size
            and (
                not label_length
                or (label := packet[self._label_at : label_end]) == self._label
                or self._is_label(label)
            )
        )

    def _is_label(self, label: bytes) -> bool:
        """Return whether a label is valid: it ends with a NUL and contains no other."""
        is_good = (
            len(label) <= 2 * _LONGEST_LABEL
            and label[-2:] == b"\0\0"
            and "\0" not in utf_16_le_decode(label[:-2], "surrogatepass", True)[0]
        )
        if is_good:
            self._label = label
        return is_good

    def _learn(self) -> struct.Struct | None:
        """Prepare to compare other packets with the one from which this shape was made.

        Return the struct that unpacks them; None if no other packet can have this shape.
        """
        if not self.may_have_others:
            return None
        example = self._example
        try:
            place, properties = transaction_offset(example), properties_offset(example)
        except REFUSALS:
            place = properties = len(example)
        label = properties + _LABEL_AT
        if label > len(example):
            self.may_have_others = False
            return None
        names = (properties if place < 0 else place) - _FLAGS_AT
        unpack = struct.Struct(f"{_to_names}{names}s{_place if place >= 0 else ''}{_properties}")
        if place < 0:
            begin, _, head, middle, kind, _, message_class, _, _ = unpack.unpack_from(example)
        else:
            begin, _, head, middle, word, _, _, kind, _, message_class, _, _ = unpack.unpack_from(example)
            if word & _CONNECTOR:
                self.may_have_others = False
                return None
            self._final_ack = word & FINAL_ACK
        self._place_at, self._label_at, self._least_bytes = place, label, label
        self._common = begin, head, middle, kind, message_class
        self._unpack = unpack
        return unpack

    def header_of(self, packet: bytes) -> TransactionHeader:
        """Return the TransactionHeader of one of these messages, but without a ConnectorQMGuid."""
        at = self._place_at or transaction_offset(packet)
        word, ordinal, time_stamp, number, previous = _in_sequence.unpack_from(packet, at)
        identifier = self._identifier
        if identifier.ordinal != ordinal or identifier.time_stamp != time_stamp:
            identifier = self._identifier = TxSequenceId(ordinal=ordinal, time_stamp=time_stamp)
        return TransactionHeader(word, identifier, number, previous)


class Run:
    """One or more successive messages of the same shape."""

    def __init__(self, shape: Shape, packets: list[bytes]) -> None:
        self.shape = shape
        self.packets = packets
        self._message: UserMessage | None = None
        self._message_ids: list[int] | None = None

    @property
    def message_ids(self) -> list[int]:
        """The MessageID of each message."""
        if self._message_ids is None:
            self._message_ids = message_ids(self.packets)
        return self._message_ids

    def part(self, first: int, count: int) -> Run:
        """Return `count` messages (at least one), starting from index `first`."""
        if count == len(self.packets):
            return self
        return Run(self.shape, self.packets[first : first + count])

    @property
    def message(self) -> UserMessage:
        """The first message, decoded on first use."""
        if self._message is None:
            self._message = decode_message(self.packets[0])
        return self._message

    @property
    def facts(self) -> Facts:
        """The facts, which are true of each message."""
        facts = self.shape.facts
        if facts is None:
            message = self.message
            properties = message.properties
            facts = self.shape.facts = Facts(
                message.user.destination_queue,
                properties.message_class,
                asks_final_ack(message),
                bool(properties.flags & _ACKNOWLEDGE_ARRIVAL),
            )
        return facts


def run_of(packet: bytes) -> Run:
    """Return a run that consists of one UserMessage, which must be valid."""
    return Run(Shape(packet), [packet])


class Shapes:
    """The shapes of the messages on one session: at most KNOWN shapes, each of at most LONGEST_HEAD bytes."""

    def __init__(self) -> None:
        self._known: dict[bytes, Shape] = {}
        """The shapes by UserHeader.Flags and the first bytes of the destination's name."""

    def __len__(self) -> int:
        return len(self._known)

    def runs(self, packets: Iterable[bytes]) -> Generator[Run | bytes, None, None]:
        """Yield successive UserMessages of the same shape together, as one run.

        Yield any other packet by itself, unjudged.

        Raises:
            WireFormatError: the next packet is a UserMessage that breaks [MS-MQMQ] 2.2.20. Everything before it has
                been yielded.
        """
        shape: Shape | None = None
        alike: list[bytes] = []
        for packet in packets:
            if shape is not None:
                if shape.fits(packet):
                    alike.append(packet)
                    continue
                yield Run(shape, alike)
                shape = None
            if packet[_BASE_FLAGS_AT] & _INTERNAL:
                yield packet
            else:
                shape, alike = self._of(packet), [packet]
        if shape is not None:
            yield Run(shape, alike)

    def _of(self, packet: bytes) -> Shape:
        """Return the shape of a UserMessage, which may be known or new. If it is new, check the message."""
        key = packet[_FLAGS_AT:_KEY_END]
        known = self._known
        shape = known.get(key)
        if shape is not None and shape.fits(packet):
            return shape
        check_packet(packet)
        shape = Shape(packet)
        if shape.may_have_others:
            if key not in known and len(known) >= KNOWN:
                del known[next(iter(known))]
            known[key] = shape
        return shape

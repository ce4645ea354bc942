"""Shows an analyst a packet, whether valid or not: every field with its position, and all faults.

Layouts and rules are those of `decode_packet`, but a broken rule is only noted if reading can continue.
`inspect_stream` does the same for successive packets and Pings. `decode_beginning` reads the headers of a packet whose
rest is missing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from mqproto.base.errors import WireFormatError
from mqproto.wire import reference
from mqproto.wire.buffer import HEAD_SIZE, PacketBuffer
from mqproto.wire.codec import decode_packet
from mqproto.wire.generated import properties_offset
from mqproto.wire.guid import NULL_GUID
from mqproto.wire.layouts.base import INFINITE, BaseHeader, announced, base_header
from mqproto.wire.layouts.internal import EstablishConnection, establish_connection_packet, internal_header
from mqproto.wire.layouts.keyblobs import (
    PUBLIC_KEY,
    KeyBlob,
    begins_key_blob,
    public_key_blob,
    simple_blob,
)
from mqproto.wire.layouts.ping import Ping, begins_ping, ping_packet
from mqproto.wire.layouts.properties import message_properties_header
from mqproto.wire.layouts.user import UserHeader, user_header
from mqproto.wire.packets import Packet, UserMessage
from mqproto.wire.schema.record import Record
from mqproto.wire.schema.refused import REFUSALS, Refused
from mqproto.wire.schema.stream import Onlooker, PacketStream

_base = struct.Struct(base_header.struct_format("flags", "packet_size"))
_base_flags = struct.Struct("<H")
_size = struct.Struct("<I")
_user_flags = struct.Struct("<I")
_lengths = struct.Struct(
    message_properties_header.struct_format("label_length", "message_size", "extension_size")
)
_BASE_FLAGS_AT: Final = base_header.offset_of("flags")
_SIZE_AT: Final = base_header.offset_of("packet_size")
_USER_FLAGS_AT: Final = base_header.sizeof() + user_header.offset_of("flags")
_LABEL_AT: Final = message_properties_header.offset_of("label")
_BODY_SIZE_END: Final = message_properties_header.offset_of("allocation_body_size")
_LENGTH_PLACES: Final = tuple(
    (message_properties_header.offset_of(name), struct.Struct(code))
    for name, code in (("label_length", "<B"), ("message_size", "<I"), ("extension_size", "<I"))
)
_BEHIND_BODY: Final = BaseHeader.session_header.mask | BaseHeader.debug_header.mask | BaseHeader.trace.mask
_BEHIND_BODY_TOO: Final = UserHeader.has_soap.mask | UserHeader.has_multi_queue_format.mask
_INTERNAL_BYTES: Final = base_header.sizeof() + internal_header.sizeof()
_ESTABLISHED: Final = establish_connection_packet.encode(EstablishConnection())


@dataclass(frozen=True, slots=True)
class SeenField:
    """One field of a packet: its dotted name, its position, and its value.

    offset, size: both in bytes; the offset is from the packet's first byte.
    value: an int, a text, or bytes. The parts of a queue name are separate fields.
    """

    name: str
    offset: int
    size: int
    value: Any
    raw: bytes
    section: str


@dataclass(frozen=True, slots=True)
class Remark:
    """Something unusual that a queue manager nevertheless accepts."""

    field: str
    text: str
    section: str

    def __str__(self) -> str:
        return f"{self.field} {self.text}  {self.section}"


@dataclass(slots=True)
class Inspection:
    """The analysis of some bytes that should form a packet.

    fields: the fields in the order of their bytes. Those of a valid packet cover every byte exactly once. If a fault
        ends the reading, the bytes after it form a last field called `unread`.
    findings: errors that `decode_packet` would raise, followed by remarks.
    packet: None if the bytes could not be read to the end.
    """

    fields: list[SeenField] = field(default_factory=list)
    findings: list[WireFormatError | Remark] = field(default_factory=list)
    packet: Packet | Ping | KeyBlob | None = None

    @property
    def is_valid(self) -> bool:
        """Whether `decode_packet`, or the decoder of a Ping or key blob, accepts these bytes."""
        return not any(isinstance(finding, WireFormatError) for finding in self.findings)


def inspect_packet(data: bytes) -> Inspection:
    """Read as much as possible from bytes that should form one whole packet. No fault raises an error."""
    seen: list[Any] = []
    faults: list[WireFormatError] = []
    packet = None
    try:
        packet = reference.read(bytes(data), Onlooker(seen, faults))
    except WireFormatError as fault:
        faults.append(fault)
    return Inspection(
        _fields(seen, data), [*faults, *(remarks(packet) if packet is not None else ())], packet
    )


def inspect_ping(datagram: bytes) -> Inspection:
    """Return the fields of a Ping, whose only rules are its size and its signature."""
    seen: list[Any] = []
    ping = ping_packet.typed(ping_packet.parse_stream(PacketStream(datagram, onlooker=Onlooker(seen))))
    return Inspection(_fields(seen, datagram), packet=ping)


def inspect_key_blob(data: bytes) -> Inspection:
    """Return the fields of a PUBLICKEYBLOB or SIMPLEBLOB, and its faults.  [MS-MQQB] 2.4"""
    seen: list[Any] = []
    faults: list[WireFormatError] = []
    record: Record[Any] = public_key_blob if data[0] == PUBLIC_KEY else simple_blob
    stream = PacketStream(data, onlooker=Onlooker(seen, faults))
    blob = None
    try:
        blob = record.typed(record.parse_stream(stream))
        record.decode(data)
    except WireFormatError as fault:
        if not faults or blob is None:
            faults.append(fault)
    return Inspection(_fields(seen, data), [*faults], blob if not faults else None)


def inspect_stream(data: bytes) -> Iterator[tuple[int, Inspection]]:
    """Yield successive packets and Pings, each with its offset. If `data` is a key blob, yield only that.

    The last item may be truncated, or may be bytes that do not begin a packet; the search for packets ends there.
    """
    at = 0
    if begins_key_blob(data) and not begins_ping(data):
        yield at, inspect_key_blob(data)
        return
    while at < len(data):
        if begins_ping(data[at : at + ping_packet.sizeof()]):
            size = ping_packet.sizeof()
            yield at, inspect_ping(data[at : at + size])
        else:
            try:
                size = _size_of(data[at : at + HEAD_SIZE])
            except WireFormatError as fault:
                rest = data[at:]
                unread = SeenField("unread", 0, len(rest), rest, rest, "")
                yield at, inspect_packet(rest) if not at else Inspection([unread], [fault])
                return
            yield at, inspect_packet(data[at : at + size])
        at += size


def decode_beginning(data: bytes) -> EstablishConnection | UserMessage | None:
    """Decode the headers of a packet from only its first bytes.

    The record of a message has as much of the body as there is, and the label and the extension if they are complete.
    Headers after the body are left out, although the flags still announce them; `announced_sizes` returns the lengths.
    If any of the fixed fields after message_size is missing, all of them are 0. If fields of an EstablishConnection
    after its InternalHeader are missing, they have the values of a packet without GUIDs.

    Args:
        data: the beginning of a longer packet, with its head.

    Returns:
        The record; None if there are too few bytes to show the kind of packet, or if they break a rule.
    """
    flags, size = _base.unpack_from(data)
    if flags & BaseHeader.internal.mask:
        if size != len(_ESTABLISHED) or len(data) < _INTERNAL_BYTES:
            return None
        whole = data + _ESTABLISHED[len(data) :]
    else:
        try:
            whole = _shortened(data)
        except REFUSALS:
            return None
    try:
        packet = decode_packet(whole)
    except WireFormatError:
        return None
    if isinstance(packet, UserMessage):
        packet.base.flags = flags
        (packet.user.flags,) = _user_flags.unpack_from(data, _USER_FLAGS_AT)
    assert isinstance(packet, EstablishConnection | UserMessage), "no other has that size"
    return packet


def announced_sizes(data: bytes) -> tuple[int | None, int]:
    """Return the sizes of the extension and the body that a message announces; None for an unknown size.

    data: a message as for `decode_beginning`.
    """
    properties = properties_offset(data)
    _, message_size, extension_size = _lengths.unpack_from(_with_fixed_fields(data, properties), properties)
    return extension_size if len(data) >= properties + _LABEL_AT else None, message_size


def _with_fixed_fields(data: bytes, properties: int) -> bytes:
    """Return `data`, with zeros in the last fixed fields if only some of these are missing."""
    if properties + _BODY_SIZE_END <= len(data) < properties + _LABEL_AT:
        return data[: properties + _BODY_SIZE_END] + bytes(_LABEL_AT - _BODY_SIZE_END)
    return data


def _shortened(data: bytes) -> bytes:
    """Return the available part of a message, changed into a whole message, or raise one of REFUSALS.

    The new message ends where `data` ends, or where the body ends if that is earlier. A label or extension that is not
    complete is left out.
    """
    flags, size = _base.unpack_from(data)
    properties = properties_offset(data)
    data = _with_fixed_fields(data, properties)
    lengths = label_length, message_size, extension_size = _lengths.unpack_from(data, properties)
    label = properties + _LABEL_AT
    extension = label + 2 * label_length
    body = extension + extension_size
    if body + message_size > size:
        raise Refused
    if extension > len(data):
        lengths, end = (0, 0, 0), label
    elif body > len(data):
        lengths, end = (label_length, 0, 0), extension
    else:
        end = min(body + message_size, len(data))
        lengths = (label_length, end - body, extension_size)
    whole = bytearray(data[:end])
    whole += bytes(-end % 4)
    for (at, number), length in zip(_LENGTH_PLACES, lengths, strict=True):
        number.pack_into(whole, properties + at, length)
    (user_flags,) = _user_flags.unpack_from(data, _USER_FLAGS_AT)
    _user_flags.pack_into(whole, _USER_FLAGS_AT, user_flags & ~_BEHIND_BODY_TOO)
    _base_flags.pack_into(whole, _BASE_FLAGS_AT, flags & ~_BEHIND_BODY)
    _size.pack_into(whole, _SIZE_AT, len(whole))
    return bytes(whole)


def begins_stream(data: bytes) -> bool:
    """Return whether these bytes begin a packet, a Ping or a key blob that `inspect_stream` could read."""
    try:
        return begins_ping(data) or begins_key_blob(data) or _size_of(data[:HEAD_SIZE]) > 0
    except WireFormatError:
        return False


def _size_of(head: bytes) -> int:
    """Return the size of the packet with this head, as its receiver would compute it."""
    if len(head) < HEAD_SIZE:
        announced(head)
    buffer = PacketBuffer()
    buffer.feed(head)
    return len(head) + buffer.missing_bytes


def _fields(seen: list[Any], data: bytes) -> list[SeenField]:
    """Return the fields that were read. The unread bytes, if any, form one last field."""
    fields = [
        SeenField(name, offset, len(raw), value, raw, section) for name, offset, value, raw, section in seen
    ]
    end = fields[-1].offset + fields[-1].size if fields else 0
    if end < len(data):
        fields.append(SeenField("unread", end, len(data) - end, data[end:], data[end:], ""))
    return fields


def remarks(packet: Packet) -> Iterator[Remark]:
    """Yield remarks about rules that the specification has for senders, but receivers do not enforce."""
    if not isinstance(packet, UserMessage):
        if packet.base.debug_header:
            yield Remark("base.flags", "has DH set, which is for UserMessages", "[MS-MQMQ] 2.2.19.1")
        if packet.base.time_to_reach_queue_s != INFINITE:
            yield Remark("base.time_to_reach_queue_s", "is not 0xffffffff", "[MS-MQMQ] 2.2.19.1")
        return
    user, properties = packet.user, packet.properties
    if packet.transaction is not None and packet.base.priority:
        yield Remark("base.priority", "is not 0 in a transactional message", "[MS-MQMQ] 2.2.19.1")
    if isinstance(user.destination_queue, str) and user.queue_manager_address != NULL_GUID:
        yield Remark("user.queue_manager_address", "is not null beside a direct name", "[MS-MQMQ] 2.2.19.2")
    if properties.flags & 0x0F and not user.admin_type:
        yield Remark(
            "user.admin_queue", "is absent, though acknowledgments are asked for", "[MS-MQMQ] 2.2.19.2"
        )
    if properties.allocation_body_size < len(properties.message_body):
        yield Remark("properties.allocation_body_size", "is below MessageSize", "[MS-MQMQ] 2.2.19.3")
    security = packet.security
    if security is not None and (security.authenticated or security.signature_type):
        yield Remark("security.flags", "has AU or AS set, which a receiver sets", "[MS-MQMQ] 2.2.20.6")
    if packet.trailing:
        yield Remark(
            "trailing", f"holds {len(packet.trailing)} bytes that no header counts", "[MS-MQMQ] 2.2.20"
        )

"""What an analyst wants to see of a packet, broken or not: every field where it lies, and what is wrong.

The same layouts and the same rules as `decode_packet`; only that a broken rule is noted where the reading
can go on. `inspect_stream` does so with packets and Pings that stand behind one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mqproto.base.errors import WireFormatError
from mqproto.wire import reference
from mqproto.wire.buffer import HEAD_SIZE, PacketBuffer
from mqproto.wire.guid import NULL_GUID
from mqproto.wire.layouts.base import INFINITE
from mqproto.wire.layouts.ping import Ping, begins_ping, ping_packet
from mqproto.wire.packets import Packet, UserMessage
from mqproto.wire.schema.layout import PacketStream
from mqproto.wire.schema.record import to_records


@dataclass(frozen=True, slots=True)
class SeenField:
    """One field of a packet: its dotted name, where it lies, what it says.

    offset, size: in bytes, the offset from the packet's first byte.
    value: an int, text, or bytes; of a queue name its parts come one by one.
    """

    name: str
    offset: int
    size: int
    value: Any
    raw: bytes
    section: str


@dataclass(frozen=True, slots=True)
class Remark:
    """Something odd that a queue manager lets pass."""

    field: str
    text: str
    section: str

    def __str__(self) -> str:
        return f"{self.field} {self.text}  {self.section}"


@dataclass(slots=True)
class Inspection:
    """All that can be said of some bytes that should be a packet.

    fields: in the order of their bytes; of a valid packet they hold every byte exactly once. What lies
        beyond a fault that ends the reading is one last field called `unread`.
    findings: errors that `decode_packet` would raise, then remarks.
    packet: None where the bytes could not be read to the end.
    """

    fields: list[SeenField] = field(default_factory=list)
    findings: list[WireFormatError | Remark] = field(default_factory=list)
    packet: Packet | Ping | None = None

    @property
    def is_valid(self) -> bool:
        """Whether `decode_packet`, or `decode_ping`, accepts these bytes."""
        return not any(isinstance(finding, WireFormatError) for finding in self.findings)


def inspect_packet(data: bytes) -> Inspection:
    """Read as much as can be read of what should be one whole packet; raises nothing."""
    seen: list[Any] = []
    faults: list[WireFormatError] = []
    packet = None
    try:
        packet = reference.read(bytes(data), seen, faults)
    except WireFormatError as fault:
        faults.append(fault)
    return Inspection(
        _fields(seen, data), [*faults, *(remarks(packet) if packet is not None else ())], packet
    )


def inspect_ping(datagram: bytes) -> Inspection:
    """The fields of a Ping, which has no other rules than its size and its signature."""
    seen: list[Any] = []
    ping = to_records(ping_packet.parse_stream(PacketStream(datagram), seen=seen))
    return Inspection(_fields(seen, datagram), packet=ping)


def inspect_stream(data: bytes) -> Iterator[tuple[int, Inspection]]:
    """The packets and Pings that stand behind one another, each with its offset.

    The last may be one whose end is missing, or a rest that begins none: nothing searches for another behind it.
    """
    at = 0
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


def begins_stream(data: bytes) -> bool:
    """Whether a packet or a Ping begins with these bytes, so that `inspect_stream` has one to show."""
    try:
        return begins_ping(data) or _size_of(data[:HEAD_SIZE]) > 0
    except WireFormatError:
        return False


def _size_of(head: bytes) -> int:
    """The size of the packet that begins so, as whoever receives it would have it."""
    if len(head) < HEAD_SIZE:
        reference.judge_head(head)
    buffer = PacketBuffer()
    buffer.feed(head)
    return len(head) + buffer.missing_bytes


def _fields(seen: list[Any], data: bytes) -> list[SeenField]:
    """What was seen, and as one last field what was not."""
    fields = [
        SeenField(name, offset, len(raw), value, raw, section) for name, offset, value, raw, section in seen
    ]
    end = fields[-1].offset + fields[-1].size if fields else 0
    if end < len(data):
        fields.append(SeenField("unread", end, len(data) - end, data[end:], data[end:], ""))
    return fields


def remarks(packet: Packet) -> Iterator[Remark]:
    """What the specification asks of senders and receivers do not insist on."""
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

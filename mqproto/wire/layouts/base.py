"""The 16-byte BaseHeader, with which each packet begins.  [MS-MQMQ] 2.2.19.1"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from construct import Const, Container, Int8ul, Int16ul, Int32ul, Rebuild, this

from mqproto.wire.layouts.session import session_header
from mqproto.wire.schema.layout import TOP, Anywhere, Layout, MisuseError, Must, ParseError
from mqproto.wire.schema.record import Bit, Bits, R, Record
from mqproto.wire.schema.stream import NOBODY, Onlooker, PacketStream

VERSION_NUMBER: Final = 0x10
SIGNATURE: Final = 0x524F494C  # LIOR, as it lies on the wire
MAXIMUM_PACKET_SIZE: Final = 0x00400000
INFINITE: Final = 0xFFFFFFFF  # of TimeToReachQueue and TimeToBeReceived
DEFAULT_PRIORITY: Final = 3

# These limits judge the first 16 bytes before anything is buffered; packets.py asserts that they are right.
SMALLEST_INTERNAL_PACKET: Final = 32
SMALLEST_USER_MESSAGE: Final = 120


@dataclass(slots=True)
class BaseHeader:
    """Identifies a packet and announces its headers.  [MS-MQMQ] 2.2.19.1

    PacketSize is not a field of the record: it follows from the packet.
    """

    reserved: int = 0
    flags: int = DEFAULT_PRIORITY
    time_to_reach_queue_s: int = INFINITE

    priority = Bits(0, 3)
    internal = Bit(3)
    session_header = Bit(4)
    debug_header = Bit(5)
    trace = Bit(8)


_internal = BaseHeader.internal.within(this.flags)

base_header = Record(
    BaseHeader,
    Layout(
        "[MS-MQMQ] 2.2.19.1",
        "version_number" / Const(VERSION_NUMBER, Int8ul),
        "reserved" / Int8ul,
        "flags" / Int16ul,
        "signature" / Const(SIGNATURE, Int32ul),
        "packet_size" / Rebuild(Int32ul, this._params.packet_size),
        "time_to_reach_queue_s" / Int32ul,
        Must("packet_size", this.packet_size <= MAXIMUM_PACKET_SIZE, f"at most {MAXIMUM_PACKET_SIZE:#x}"),
        Must(
            "packet_size",
            this.packet_size >= SMALLEST_INTERNAL_PACKET,
            f"at least {SMALLEST_INTERNAL_PACKET}, the smallest packet",
        ),
        Must(
            "packet_size",
            (this.packet_size >= SMALLEST_USER_MESSAGE) | (_internal != 0),
            f"at least {SMALLEST_USER_MESSAGE}, the smallest UserMessage",
        ),
        Must(
            "flags",
            (BaseHeader.trace.within(this.flags) == 0) | (BaseHeader.debug_header.within(this.flags) != 0),
            "clear of TR, or set DH as well",
        ),
    ),
)
assert base_header.sizeof() == 16

_head = Layout("[MS-MQMQ] 2.2.19.1", "base" / base_header)
_session = Layout("[MS-MQMQ] 2.2.20", "session" / session_header)
_RIDES: Final = BaseHeader.session_header.mask
_RIDES_OR_INTERNAL: Final = _RIDES | BaseHeader.internal.mask


def announced(head: bytes, onlooker: Onlooker = NOBODY) -> tuple[int, int]:
    """Return PacketSize, and the size of a SessionHeader after the packet, from a packet's first 16 bytes.

    [MS-MQMQ] 2.2.19.1

    Raises:
        WireFormatError: the bytes are not a BaseHeader.
    """
    base = _head.parse_stream(PacketStream(head, onlooker=onlooker)).base
    return base.packet_size, session_header.sizeof() if base.flags & _RIDES_OR_INTERNAL == _RIDES else 0


def size_within(data: bytes, size: int, behind: int, onlooker: Onlooker = NOBODY) -> int:
    """Return PacketSize. Refuse `data` if it is not exactly the packet plus `behind` more bytes.

    If the onlooker notes faults for an analyst, do not refuse, but add this fault to them, and return the size to read.
    """
    if len(data) != size + behind:
        error = ParseError(
            "base.packet_size",
            base_header.offset_of("packet_size"),
            size,
            f"{max(len(data) - behind, 0):#x}, as {len(data)} bytes are there"
            + " with a SessionHeader" * bool(behind),
            "[MS-MQMQ] 2.2.19.1",
        )
        error.path = f"{TOP} -> base -> packet_size"
        if onlooker.faults is None:
            raise error
        onlooker.faults.append(error)
        size = min(size, len(data))
    # Whatever PacketSize says, its header is there, and an analyst wants to know what is wrong in it.
    return max(size, base_header.sizeof())


def whole_packet(stream: PacketStream) -> tuple[bytes, int]:
    """Return two values: the next packet of a stream with its SessionHeader, and the packet's PacketSize.

    Refuse a truncated packet.
    """
    head = stream.up_to(base_header.sizeof())
    size, behind = announced(head)
    data = head + stream.up_to(size + behind - len(head))
    return data, size_within(data, size, behind)


class PacketRecord(Anywhere, Record[R]):
    """A whole packet. It begins with a BaseHeader, whose PacketSize says how much of a stream to read.

    If the fields in `apart` include `session`, that field is a SessionHeader beyond PacketSize, or None.
    """

    def fields(self, data: bytes, size: int, onlooker: Onlooker = NOBODY) -> Container[Any]:
        """Return the fields of a packet of `size` bytes, together with those of the SessionHeader after it."""
        fields: Container[Any] = self.layout.parse_stream(PacketStream(data[:size], onlooker=onlooker))
        if "session" in self.apart:
            rides, behind = fields.base.flags & _RIDES, PacketStream(data[size:], size, onlooker)
            fields["session"] = _session.parse_stream(behind).session if rides else None
        return fields

    def _read(self, stream: PacketStream, context: Any, path: str) -> Container[Any]:
        return self.fields(*whole_packet(stream))

    def _write(self, fields: Any, stream: PacketStream, context: Any, path: str) -> Any:
        trial = PacketStream()
        if "session" in self.apart:
            # PacketSize stands near the front, but is known last.
            self.layout.build_stream(fields, trial, packet_size=MAXIMUM_PACKET_SIZE, measuring=True)
        self.layout.build_stream(fields, stream, packet_size=trial.tell() or self.layout.sizeof())
        if "session" in self.apart:
            session = fields.get("session")
            if bool(fields["base"]["flags"] & _RIDES) != (session is not None):
                raise MisuseError(
                    "base.flags and session disagree: SH says if there is one  [MS-MQMQ] 2.2.20"
                )
            if session is not None:
                _session.build_stream({"session": session}, stream)
        return fields

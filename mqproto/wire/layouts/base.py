"""The BaseHeader, with which each packet begins, and all that its 16 bytes say.  [MS-MQMQ] 2.2.19.1"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from construct import Const, Int8ul, Int16ul, Int32ul, Rebuild, this

from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.record import Bit, Bits, Record

VERSION_NUMBER: Final = 0x10
SIGNATURE: Final = 0x524F494C  # LIOR, as it lies on the wire
MAXIMUM_PACKET_SIZE: Final = 0x00400000
INFINITE: Final = 0xFFFFFFFF  # of TimeToReachQueue and TimeToBeReceived
DEFAULT_PRIORITY: Final = 3

# By these the first 16 bytes are judged before anything is buffered; packets.py asserts that they are true.
SMALLEST_INTERNAL_PACKET: Final = 32
SMALLEST_USER_MESSAGE: Final = 120


@dataclass(slots=True)
class BaseHeader:
    """Identifies a packet and says what it holds.  [MS-MQMQ] 2.2.19.1

    PacketSize is not here: it follows from the packet.
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

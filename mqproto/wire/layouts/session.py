"""The SessionHeader, which carries one neighbour's acknowledgments to the other.  [MS-MQMQ] 2.2.20.4"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from construct import Int16ul, Int32ul, this

from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.record import Record

DEFAULT_WINDOW_SIZE: Final = 0x0040


@dataclass(slots=True)
class SessionHeader:
    """A session acknowledgment, alone in a SessionAck or added to a UserMessage.  [MS-MQMQ] 2.2.20.4

    Bit k of recoverable_msg_ack_flags stands for recoverable message number recoverable_msg_ack_seq_number + k. The
    numbers are 16 bits wide and wrap.
    """

    ack_sequence_number: int = 0
    recoverable_msg_ack_seq_number: int = 0
    recoverable_msg_ack_flags: int = 0
    user_msg_sequence_number: int = 0
    recoverable_msg_seq_number: int = 0
    window_size: int = DEFAULT_WINDOW_SIZE
    reserved: int = 0


session_header = Record(
    SessionHeader,
    Layout(
        "[MS-MQMQ] 2.2.20.4",
        "ack_sequence_number" / Int16ul,
        "recoverable_msg_ack_seq_number" / Int16ul,
        "recoverable_msg_ack_flags" / Int32ul,
        "user_msg_sequence_number" / Int16ul,
        "recoverable_msg_seq_number" / Int16ul,
        "window_size" / Int16ul,
        Must("window_size", this.window_size >= 1, "at least 1"),
        "reserved" / Int16ul,
    ),
)
assert session_header.sizeof() == 16

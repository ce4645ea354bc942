"""Two headers of messages that came over HTTP. They are present if AH is set.  [MS-MQRR] 2.2.5.1.2

AH is clear in messages between queue managers ([MS-MQMQ] 2.2.19.2), and the codec refuses packets in which it is set.
Analysts still see such packets. The exploit of CVE-2023-21554, called QueueJumper, is a packet with AH set and with a
very large DataLength. If this number is doubled in 32 bits, it wraps to a small one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from construct import Int16ul, Int32ul, Rebuild, len_, this

from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import Fits, Octets, Pad4, Text, wide_size_
from mqproto.wire.schema.record import Record

QUEUE_JUMPER: Final = "CVE-2023-21554 (QueueJumper)"


@dataclass(slots=True)
class SrmpEnvelopeHeader:
    """The SOAP envelope of the message, as text. DataLength counts its characters, including the NUL.

    The specification gives no unit; in the SoapHeader and in published packets, such lengths count characters.
    """

    header_id: int = 0
    reserved: int = 0
    data: str | None = None
    padding: bytes = field(default=b"", compare=False, repr=False)


@dataclass(slots=True)
class CompoundMessageHeader:
    """The whole HTTP request, and where in it the message's body is."""

    header_id: int = 0
    reserved: int = 0
    msg_body_size: int = 0
    msg_body_offset: int = 0
    data: bytes = b""
    padding: bytes = field(default=b"", compare=False, repr=False)


srmp_envelope_header = Record(
    SrmpEnvelopeHeader,
    Layout(
        "[MS-MQRR] 2.2.5.1.2.1",
        "header_id" / Int16ul,
        "reserved" / Int16ul,
        "data_length" / Rebuild(Int32ul, wide_size_(this.data) >> 1),
        Fits("data_length", 2, QUEUE_JUMPER),
        "data" / Text(this.data_length * 2),
        "padding" / Pad4(),
    ),
)
compound_message_header = Record(
    CompoundMessageHeader,
    Layout(
        "[MS-MQRR] 2.2.5.1.2.2",
        "header_id" / Int16ul,
        "reserved" / Int16ul,
        "http_body_size" / Rebuild(Int32ul, len_(this.data)),
        "msg_body_size" / Int32ul,
        "msg_body_offset" / Int32ul,
        Fits("http_body_size", 1, QUEUE_JUMPER),
        Must(
            "msg_body_size",
            this.msg_body_size + this.msg_body_offset <= this.http_body_size,
            "at most HTTPBodySize less MsgBodyOffset",
        ),
        "data" / Octets(this.http_body_size),
        "padding" / Pad4(),
    ),
)

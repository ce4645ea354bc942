"""The SoapHeader: two texts from the application.  [MS-MQMQ] 2.2.20.7"""

from __future__ import annotations

from dataclasses import dataclass

from construct import Const, Int16ul, Int32ul, Rebuild, this

from mqproto.wire.schema.layout import Layout
from mqproto.wire.schema.parts import Text, wide_size_
from mqproto.wire.schema.record import Record


@dataclass(slots=True)
class SoapHeader:
    """A header and a body for SOAP. None takes no bytes; "" takes only a NUL.  [MS-MQMQ] 2.2.20.7

    There is no padding between the two texts. A MultiQueueFormatHeader after them has padding of its own.
    """

    reserved: int = 0
    header: str | None = None
    reserved1: int = 0
    body: str | None = None


soap_header = Record(
    SoapHeader,
    Layout(
        "[MS-MQMQ] 2.2.20.7",
        "header_section_id" / Const(0x0320, Int16ul),
        "reserved" / Int16ul,
        "header_data_length" / Rebuild(Int32ul, wide_size_(this.header) >> 1),
        "header" / Text(this.header_data_length * 2),
        "body_section_id" / Const(0x0384, Int16ul),
        "reserved1" / Int16ul,
        "body_data_length" / Rebuild(Int32ul, wide_size_(this.body) >> 1),
        "body" / Text(this.body_data_length * 2),
    ),
)

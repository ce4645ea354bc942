"""The DebugHeader, which says where report messages are sent.  [MS-MQMQ] 2.2.20.8"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from construct import Int16ul, this

from mqproto.wire.guid import Guid
from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import GuidOctets, When
from mqproto.wire.schema.record import Bits, Record

PUBLIC_TRACE_QUEUE: Final = 1


@dataclass(slots=True)
class DebugHeader:
    """The public queue that receives report messages, or none.  [MS-MQMQ] 2.2.20.8"""

    flags: int = 0
    reserved: int = 0
    queue_identifier: Guid | None = None

    queue_type = Bits(0, 2)


_queue_type = DebugHeader.queue_type.within(this.flags)

debug_header = Record(
    DebugHeader,
    Layout(
        "[MS-MQMQ] 2.2.20.8",
        "flags" / Int16ul,
        Must("flags", _queue_type <= 1, "0 or 1", part="queue_type", value=_queue_type),
        "reserved" / Int16ul,
        "queue_identifier" / When(_queue_type == PUBLIC_TRACE_QUEUE, GuidOctets()),
    ),
)

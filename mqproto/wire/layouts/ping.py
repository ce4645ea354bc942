"""The Ping packet, alone in a UDP datagram: it asks whether a queue manager is there.  [MS-MQQB] 2.2.7"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from construct import Const, Int16ul, Int32ul

from mqproto.wire.guid import NULL_GUID, Guid
from mqproto.wire.schema.layout import Layout
from mqproto.wire.schema.parts import GuidOctets
from mqproto.wire.schema.record import Bit, Record

PING_SIGNATURE: Final = 0x5548


@dataclass(slots=True)
class Ping:
    """A request or a response; a response has the cookie of its request.  [MS-MQQB] 2.2.7"""

    flags: int = 0
    cookie: int = 0
    qm_guid: Guid = NULL_GUID

    client = Bit(0)
    refused = Bit(1)


ping_packet = Record(
    Ping,
    Layout(
        "[MS-MQQB] 2.2.7",
        "flags" / Int16ul,
        "signature" / Const(PING_SIGNATURE, Int16ul),
        "cookie" / Int32ul,
        "qm_guid" / GuidOctets(),
    ),
)
assert ping_packet.sizeof() == 24


def begins_ping(data: bytes) -> bool:
    """Return whether bytes begin with a whole Ping, judging by its signature."""
    at = ping_packet.offset_of("signature")
    return len(data) >= ping_packet.sizeof() and data[at : at + 2] == PING_SIGNATURE.to_bytes(2, "little")

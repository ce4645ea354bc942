"""Two headers that a queue manager adds to a UserMessage that is kept.  [MS-MQRR] 2.2.5

They are never sent. A SubqueueHeader and an ExtendedAddressHeader may also be there, but are not used here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from construct import Const, Int8ul, Int32ul, Rebuild, this

from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import Octets, PaddedRest, TerminatedText, wide_size_
from mqproto.wire.schema.record import Bit, Record


@dataclass(slots=True)
class ExtensionHeader:
    """Says which headers follow, and how many bytes they take.  [MS-MQRR] 2.2.5.2"""

    remaining_headers_size: int = 0
    flags: int = 0
    reserved: bytes = bytes(3)

    has_dead_letter = Bit(0)
    has_subqueue = Bit(1)
    has_extended_address = Bit(4)


extension_header = Record(
    ExtensionHeader,
    Layout(
        "[MS-MQRR] 2.2.5.2",
        "header_size" / Const(12, Int32ul),
        "remaining_headers_size" / Int32ul,
        "flags" / Int8ul,
        "reserved" / Octets(3),
    ),
)
assert extension_header.sizeof() == 12


@dataclass(slots=True)
class DeadLetterHeader:
    """The path name of the queue that an application chose for a failed message.  [MS-MQRR] 2.2.5.4"""

    path_name: str = ""
    padding: bytes | None = field(default=None, compare=False, repr=False)


dead_letter_header = Record(
    DeadLetterHeader,
    Layout(
        "[MS-MQRR] 2.2.5.4",
        "header_size" / Rebuild(Int32ul, (wide_size_(this.path_name) + 3 & ~3) + 4),
        Must("header_size", this.header_size & 3 == 0, "a multiple of 4"),
        "path_name" / TerminatedText(),
        "padding" / PaddedRest(),
    ),
)

"""The MultiQueueFormatHeader: all the queues that a message was sent to.  [MS-MQMQ] 2.2.20.1 to 2.2.20.3"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from construct import Const, Int16ul, Int32ul, Rebuild, len_, this
from construct.expr import FuncPath

from mqproto.wire.guid import Guid
from mqproto.wire.layouts.user import PrivateQueueFormatName, private_queue_format_name
from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import (
    EncodedSize,
    GuidOctets,
    Octets,
    OneOf,
    Pad4,
    PaddedRest,
    Repeated,
    TerminatedText,
    Window,
    is_one_of,
)
from mqproto.wire.schema.record import Record

PUBLIC_NAME: Final = 1
PRIVATE_NAME: Final = 2
DIRECT_NAME: Final = 3
DISTRIBUTION_LIST_NAME: Final = 6

# The format type and at least a NUL.
SMALLEST_ELEMENT: Final = 4
MAXIMUM_ELEMENTS: Final = 4_096
"""The maximum number of queues in one list, which is a limit of our own.

In [MS-MQMQ] 2.2.20.2, the only limit is PacketSize. It would let a packet list a million queues, each of which becomes
a record of 64 bytes and a name.
"""


@dataclass(slots=True)
class MqfFormatNameElement:
    """One queue of a list; format_type says what kind of name format_name is.  [MS-MQMQ] 2.2.18.1.4

    A GUID names a public queue (1) or a distribution list (6). Private names and distribution lists start on a 4-byte
    boundary, so padding may come before them.
    """

    format_type: int = DIRECT_NAME
    padding: bytes = field(default=b"", compare=False, repr=False)
    format_name: Guid | PrivateQueueFormatName | str = ""


_unpadded, _padded, _guid = Octets(0), Pad4(), GuidOctets()

mqf_format_name_element = Record(
    MqfFormatNameElement,
    Layout(
        "[MS-MQMQ] 2.2.18.1.4",
        "format_type" / Int16ul,
        Must(
            "format_type",
            (this.format_type <= 7)
            & is_one_of(this.format_type & 7, PUBLIC_NAME, PRIVATE_NAME, DIRECT_NAME, DISTRIBUTION_LIST_NAME),
            "1, 2, 3 or 6",
        ),
        "padding"
        / OneOf(
            this.format_type,
            {
                PUBLIC_NAME: _unpadded,
                DIRECT_NAME: _unpadded,
                PRIVATE_NAME: _padded,
                DISTRIBUTION_LIST_NAME: _padded,
            },
            if_missing=b"",
        ),
        "format_name"
        / OneOf(
            this.format_type,
            {
                DIRECT_NAME: TerminatedText(),
                PRIVATE_NAME: private_queue_format_name,
                PUBLIC_NAME: _guid,
                DISTRIBUTION_LIST_NAME: _guid,
            },
        ),
    ),
)


@dataclass(slots=True)
class FormatNameList:
    """The elements of a list, and the padding after them that HeaderSize includes.  [MS-MQMQ] 2.2.20.2

    padding: the bytes after the last element, up to a 4-byte boundary; None stands for the necessary number of zeros.
        Some senders do not include the padding in HeaderSize. In that case it is the `padding` of the MqfAddressHeader.
    """

    elements: list[MqfFormatNameElement] = field(default_factory=list)
    padding: bytes | None = field(default=None, compare=False, repr=False)


format_name_list = Record(
    FormatNameList,
    Layout(
        "[MS-MQMQ] 2.2.20.2",
        "elements" / Repeated(this._.element_count, mqf_format_name_element),
        "padding" / PaddedRest(),
    ),
)


_list_size_ = FuncPath(EncodedSize(format_name_list))


@dataclass(slots=True)
class MqfAddressHeader:
    """A list of queues: destinations, administration queues or response queues.  [MS-MQMQ] 2.2.20.2

    padding: the padding after the list, if HeaderSize does not count it.
    """

    reserved: int = 0
    format_name_list: FormatNameList = field(default_factory=FormatNameList)
    padding: bytes = field(default=b"", compare=False, repr=False)


def _mqf_address_header(header_id: int) -> Record[MqfAddressHeader]:
    return Record(
        MqfAddressHeader,
        Layout(
            "[MS-MQMQ] 2.2.20.2",
            "header_size" / Rebuild(Int32ul, _list_size_(this.format_name_list) + 12),
            Must("header_size", this.header_size >= 12, "at least 12"),
            "header_id" / Const(header_id, Int16ul),
            "reserved" / Int16ul,
            "element_count" / Rebuild(Int32ul, len_(this.format_name_list.elements)),
            # Checked before memory is taken for the list.
            Must(
                "element_count",
                this.element_count <= MAXIMUM_ELEMENTS,
                f"at most {MAXIMUM_ELEMENTS}, as many as we read",
                is_last=True,
            ),
            Must(
                "element_count",
                this.element_count * SMALLEST_ELEMENT <= this.header_size - 12,
                "as many as HeaderSize has room for, at 4 bytes each",
            ),
            "format_name_list" / Window(this.header_size - 12, format_name_list),
            "padding" / Pad4(),
        ),
    )


destination_mqf_address_header = _mqf_address_header(0x0064)
administration_mqf_address_header = _mqf_address_header(0x00C8)
response_mqf_address_header = _mqf_address_header(0x012C)


@dataclass(slots=True)
class MqfSignatureHeader:
    """A signature of the packet.  [MS-MQMQ] 2.2.20.3"""

    reserved: int = 0
    signature: bytes = b""


mqf_signature_header = Record(
    MqfSignatureHeader,
    Layout(
        "[MS-MQMQ] 2.2.20.3",
        "id" / Const(0x015E, Int16ul),
        "reserved" / Int16ul,
        "size" / Rebuild(Int32ul, len_(this.signature)),
        "signature" / Octets(this.size),
    ),
)


@dataclass(slots=True)
class MultiQueueFormatHeader:
    """All destinations of a message, with their administration and response queues.  [MS-MQMQ] 2.2.20.1

    leading_padding: bytes up to a 4-byte boundary, if the SoapHeader before it does not end on one.
    """

    leading_padding: bytes = field(default=b"", compare=False, repr=False)
    destination: MqfAddressHeader = field(default_factory=MqfAddressHeader)
    administration: MqfAddressHeader = field(default_factory=MqfAddressHeader)
    response: MqfAddressHeader = field(default_factory=MqfAddressHeader)
    signature: MqfSignatureHeader = field(default_factory=MqfSignatureHeader)


multi_queue_format_header = Record(
    MultiQueueFormatHeader,
    Layout(
        "[MS-MQMQ] 2.2.20.1",
        "leading_padding" / Pad4(),
        "destination" / destination_mqf_address_header,
        "administration" / administration_mqf_address_header,
        "response" / response_mqf_address_header,
        "signature" / mqf_signature_header,
    ),
)

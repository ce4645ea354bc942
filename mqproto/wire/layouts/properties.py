"""The MessagePropertiesHeader: label, extension and body, with their sizes and types.  [MS-MQMQ] 2.2.19.3"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from construct import Int8ul, Int16ul, Int32ul, Rebuild, len_, this

from mqproto.wire.guid import Guid
from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import GuidOctets, Octets, Pad4, Text, wide_size_
from mqproto.wire.schema.record import Bit, Record

LONGEST_LABEL: Final = 249  # characters, without the NUL
SHA_512: Final = 0x0000800E
AES_256: Final = 0x00006610
HASH_NAMES: Final = {
    0x8001: "MD2",
    0x8002: "MD4",
    0x8003: "MD5",
    0x8004: "SHA-1",
    0x800C: "SHA-256",
    SHA_512: "SHA-512",
}
"""The names of HashAlgorithm's values."""


@dataclass(frozen=True, slots=True)
class MessageIdentifier:
    """Identifies a message by its first queue manager and a number that is unique there.

    [MS-MQMQ] 2.2.18.1.3. The correlation_id of an administration acknowledgment is the identifier of the acknowledged
    message.
    """

    queue_manager_guid: Guid
    ordinal: int


message_identifier = Record(
    MessageIdentifier,
    Layout("[MS-MQMQ] 2.2.18.1.3", "queue_manager_guid" / GuidOctets(), "ordinal" / Int32ul),
)
assert message_identifier.sizeof() == 20


@dataclass(slots=True)
class MessagePropertiesHeader:
    """The label, extension and body of a message, and their properties.  [MS-MQMQ] 2.2.19.3

    A label of None is absent; a label of "" is only a NUL. The extension and the body are opaque bytes.
    AllocationBodySize is kept as it came; `user_message` sets it to the size of the body.
    """

    flags: int = 0
    message_class: int = 0
    correlation_id: bytes = bytes(20)
    body_type: int = 0
    application_tag: int = 0
    allocation_body_size: int = 0
    privacy_level: int = 0
    hash_algorithm: int = SHA_512
    encryption_algorithm: int = AES_256
    label: str | None = None
    extension_data: bytes = b""
    message_body: bytes = b""
    padding: bytes = field(default=b"", compare=False, repr=False)

    acknowledge_arrival = Bit(0)
    acknowledge_receipt = Bit(1)
    report_no_arrival = Bit(2)
    report_no_receipt = Bit(3)


message_properties_header = Record(
    MessagePropertiesHeader,
    Layout(
        "[MS-MQMQ] 2.2.19.3",
        "flags" / Int8ul,
        "label_length" / Rebuild(Int8ul, wide_size_(this.label) >> 1),
        Must("label_length", this.label_length <= LONGEST_LABEL + 1, "at most 250"),
        "message_class" / Int16ul,
        "correlation_id" / Octets(20),
        "body_type" / Int32ul,
        "application_tag" / Int32ul,
        "message_size" / Rebuild(Int32ul, len_(this.message_body)),
        "allocation_body_size" / Int32ul,
        "privacy_level" / Int32ul,
        "hash_algorithm" / Int32ul,
        "encryption_algorithm" / Int32ul,
        "extension_size" / Rebuild(Int32ul, len_(this.extension_data)),
        "label" / Text(this.label_length * 2),
        "extension_data" / Octets(this.extension_size),
        "message_body" / Octets(this.message_size),
        "padding" / Pad4(),
    ),
)

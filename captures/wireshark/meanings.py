"""The names that Wireshark shows next to numbers: those that the specifications list."""

from __future__ import annotations

from typing import Final

from mqproto.bodies.automation import BY_NUMBER
from mqproto.bodies.objects import BINARY_FORMATTER
from mqproto.captures.decode.security.words import SENDER_KINDS
from mqproto.wire.classes import MessageClass
from mqproto.wire.layouts.base import INFINITE, BaseHeader
from mqproto.wire.layouts.debug import DebugHeader
from mqproto.wire.layouts.internal import (
    CONNECTION_PARAMETERS,
    ESTABLISH_CONNECTION,
    SESSION_ACK,
    InternalHeader,
)
from mqproto.wire.layouts.keyblobs import CIPHER_NAMES, SimpleBlob
from mqproto.wire.layouts.multiqueue import (
    DIRECT_NAME,
    DISTRIBUTION_LIST_NAME,
    PRIVATE_NAME,
    PUBLIC_NAME,
    MqfFormatNameElement,
)
from mqproto.wire.layouts.properties import HASH_NAMES, MessagePropertiesHeader
from mqproto.wire.layouts.security import SecurityHeader
from mqproto.wire.layouts.user import (
    DIRECT,
    NO_QUEUE,
    PRIVATE_ELSEWHERE,
    PRIVATE_ON_ADMIN_HOST,
    PRIVATE_ON_DESTINATION,
    PRIVATE_ON_SOURCE,
    PUBLIC,
    SAME_AS_ADMIN_QUEUE,
    UserHeader,
)

Meanings = dict[int, str]

_QUEUE_TYPES: Final[Meanings] = {
    NO_QUEUE: "none",
    SAME_AS_ADMIN_QUEUE: "the administration queue",
    PRIVATE_ON_SOURCE: "private, on the source host",
    PRIVATE_ON_DESTINATION: "private, on the destination host",
    PRIVATE_ON_ADMIN_HOST: "private, on the administration queue's host",
    PUBLIC: "public",
    PRIVATE_ELSEWHERE: "private, on another host",
    DIRECT: "direct",
}

MEANINGS: Final[dict[tuple[type, str], Meanings]] = {
    (InternalHeader, "packet_type"): {
        SESSION_ACK: "SessionAck",
        ESTABLISH_CONNECTION: "EstablishConnection",
        CONNECTION_PARAMETERS: "ConnectionParameters",
    },
    (BaseHeader, "time_to_reach_queue_s"): {INFINITE: "infinite"},
    (UserHeader, "time_to_be_received_s"): {INFINITE: "infinite"},
    (UserHeader, "delivery_mode"): {0: "express", 1: "recoverable"},
    (UserHeader, "destination_type"): _QUEUE_TYPES,
    (UserHeader, "admin_type"): _QUEUE_TYPES,
    (UserHeader, "response_type"): _QUEUE_TYPES,
    (DebugHeader, "queue_type"): {0: "none", 1: "public"},
    (MqfFormatNameElement, "format_type"): {
        PUBLIC_NAME: "public",
        PRIVATE_NAME: "private",
        DIRECT_NAME: "direct",
        DISTRIBUTION_LIST_NAME: "distribution list",
    },
    (SecurityHeader, "sender_id_type"): {0: "none", **SENDER_KINDS},
    (MessagePropertiesHeader, "message_class"): {each.value: each.name for each in MessageClass},
    # [MS-MQMQ] 2.2.12
    (MessagePropertiesHeader, "body_type"): {
        0: "VT_EMPTY",
        12: "VT_VARIANT",
        65: "VT_BLOB",
        BINARY_FORMATTER: "BinaryFormatter",
        **{number: variant.name for number, variant in BY_NUMBER.items()},
    },
    (MessagePropertiesHeader, "privacy_level"): {
        0: "clear text",
        1: "40 bits, end to end",
        3: "128 bits, end to end",
        5: "AES",
    },
    (MessagePropertiesHeader, "hash_algorithm"): HASH_NAMES,
    (MessagePropertiesHeader, "encryption_algorithm"): CIPHER_NAMES,
    (SimpleBlob, "session_key_algorithm"): CIPHER_NAMES,
}
"""The names of values, keyed by a record and the name of one of its fields.

The name may also be that of the bits in a flag word of the record.
"""

HEXADECIMAL: Final = frozenset(
    {"message_class", "hash_algorithm", "encryption_algorithm", "session_key_algorithm"}
)
"""The names of the fields, other than flag words and constants, whose numbers the specification prints in base 16."""


def title(name: str) -> str:
    """Return a field's name as in the specification, with its unit: `sent_time_s` becomes `SentTime (s)`."""
    for ending, unit in (("_ms", " (ms)"), ("_s", " (s)")):
        if name.endswith(ending):
            return title(name.removesuffix(ending)) + unit
    return "".join({"id": "ID", "qm": "QM"}.get(word, word.capitalize()) for word in name.split("_"))

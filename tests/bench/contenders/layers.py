"""scapy: the message as one layer, with conditional fields, as scapy's own layers are written."""

from __future__ import annotations

import logging
from typing import Any

# Without this, importing scapy warns of a machine that has no route to anywhere.
logging.getLogger("scapy.runtime").setLevel(logging.ERROR)

from scapy.fields import (  # noqa: E402
    ConditionalField,
    FieldLenField,
    LEIntField,
    LEShortField,
    StrFixedLenField,
    StrLenField,
    XByteField,
    XLEIntField,
)
from scapy.packet import Packet  # noqa: E402

from mqproto.wire.layouts.base import SIGNATURE, VERSION_NUMBER  # noqa: E402
from tests.bench.measures.others import (  # noqa: E402
    DIRECT,
    HAS_TRANSACTION,
    PRIVATE,
    TYPE_SHIFT,
    Contender,
    narrow,
    wide,
)


def _is(kind: int) -> Any:
    return lambda message: message.user_flags >> TYPE_SHIFT & 7 == kind


def _transactional(field: Any) -> Any:
    return ConditionalField(field, lambda message: message.user_flags & HAS_TRANSACTION)


def _counted(name: str, of: str) -> Any:
    return FieldLenField(name, None, fmt="<I", length_of=of)


def _octets(name: str, size: Any) -> Any:
    return StrLenField(name, b"", length_from=size)


class Message(Packet):  # type: ignore[misc]
    name = "UserMessage"
    fields_desc = (
        XByteField("version_number", VERSION_NUMBER),
        XByteField("base_reserved", 0),
        LEShortField("base_flags", 0),
        XLEIntField("signature", SIGNATURE),
        LEIntField("packet_size", None),
        LEIntField("time_to_reach_queue_s", 0),
        StrFixedLenField("source_queue_manager", b"", 16),
        StrFixedLenField("queue_manager_address", b"", 16),
        LEIntField("time_to_be_received_s", 0),
        LEIntField("sent_time_s", 0),
        LEIntField("message_id", 0),
        XLEIntField("user_flags", 0),
        ConditionalField(LEIntField("identifier", 0), _is(PRIVATE)),
        ConditionalField(FieldLenField("count", None, fmt="<H", length_of="path"), _is(DIRECT)),
        ConditionalField(_octets("path", lambda message: message.count), _is(DIRECT)),
        ConditionalField(_octets("path_padding", lambda message: 2 - message.count & 3), _is(DIRECT)),
        _transactional(XLEIntField("transaction_flags", 0)),
        _transactional(LEIntField("ordinal", 0)),
        _transactional(LEIntField("time_stamp", 0)),
        _transactional(LEIntField("tx_sequence_number", 0)),
        _transactional(LEIntField("previous_tx_sequence_number", 0)),
        XByteField("properties_flags", 0),
        FieldLenField(
            "label_length", None, fmt="B", length_of="label", adjust=lambda message, size: size // 2
        ),
        LEShortField("message_class", 0),
        StrFixedLenField("correlation_id", b"", 20),
        LEIntField("body_type", 0),
        LEIntField("application_tag", 0),
        _counted("message_size", "message_body"),
        LEIntField("allocation_body_size", 0),
        LEIntField("privacy_level", 0),
        LEIntField("hash_algorithm", 0),
        LEIntField("encryption_algorithm", 0),
        _counted("extension_size", "extension_data"),
        _octets("label", lambda message: message.label_length * 2),
        _octets("extension_data", lambda message: message.extension_size),
        _octets("message_body", lambda message: message.message_size),
    )

    def post_build(self, packet: bytes, payload: bytes) -> bytes:
        """Padding, and PacketSize."""
        packet += bytes(-len(packet) & 3)
        return packet[:8] + len(packet).to_bytes(4, "little") + packet[12:] + payload


def contender() -> Contender:
    """scapy."""
    return Contender("scapy", Message, values, prepare, bytes)


def values(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = dict(message.fields)
    path = found.get("path")
    name = found["identifier"] if path is None else narrow(path)
    return found | {"destination_queue": name, "label": narrow(found["label"])}


def prepare(fields: dict[str, Any]) -> Message:
    given = fields | {"label": wide(fields["label"])}
    queue = given.pop("destination_queue")
    if isinstance(queue, str):
        path = wide(queue)
        return Message(**given, path=path, path_padding=bytes(2 - len(path) & 3))
    return Message(**given, identifier=queue)

"""construct, compiled: the message as its `.compile()` can take it.

It takes no `Aligned` around what varies in size and no function of Python's, and leaves BitStructs interpreted; so
padding is written out and flags are integers.
"""

from __future__ import annotations

from typing import Any

from construct import Bytes, Const, If, Int8ul, Int16ul, Int32ul, Struct, Switch, this

from mqproto.wire.layouts.base import SIGNATURE, VERSION_NUMBER
from tests.bench.measures.others import (
    DIRECT,
    HAS_TRANSACTION,
    PRIVATE,
    TYPE_SHIFT,
    Contender,
    narrow,
    wide,
)

MESSAGE = Struct(
    "version_number" / Const(VERSION_NUMBER, Int8ul),
    "base_reserved" / Int8ul,
    "base_flags" / Int16ul,
    "signature" / Const(SIGNATURE, Int32ul),
    "packet_size" / Int32ul,
    "time_to_reach_queue_s" / Int32ul,
    "source_queue_manager" / Bytes(16),
    "queue_manager_address" / Bytes(16),
    "time_to_be_received_s" / Int32ul,
    "sent_time_s" / Int32ul,
    "message_id" / Int32ul,
    "user_flags" / Int32ul,
    "destination_queue"
    / Switch(
        (this.user_flags >> TYPE_SHIFT) & 7,
        {
            PRIVATE: Int32ul,
            DIRECT: Struct(
                "count" / Int16ul,
                "name" / Bytes(this.count),
                "padding" / Bytes((2 - this.count) & 3),
            ),
        },
    ),
    "transaction"
    / If(
        this.user_flags & HAS_TRANSACTION,
        Struct(
            "transaction_flags" / Int32ul,
            "ordinal" / Int32ul,
            "time_stamp" / Int32ul,
            "tx_sequence_number" / Int32ul,
            "previous_tx_sequence_number" / Int32ul,
            "connector_qm_guid" / If(this.transaction_flags & 1, Bytes(16)),
        ),
    ),
    "properties_flags" / Int8ul,
    "label_length" / Int8ul,
    "message_class" / Int16ul,
    "correlation_id" / Bytes(20),
    "body_type" / Int32ul,
    "application_tag" / Int32ul,
    "message_size" / Int32ul,
    "allocation_body_size" / Int32ul,
    "privacy_level" / Int32ul,
    "hash_algorithm" / Int32ul,
    "encryption_algorithm" / Int32ul,
    "extension_size" / Int32ul,
    "label" / Bytes(this.label_length * 2),
    "extension_data" / Bytes(this.extension_size),
    "message_body" / Bytes(this.message_size),
    "padding" / Bytes(-(this.label_length * 2 + this.extension_size + this.message_size) & 3),
)
# The three sizes and paddings that construct would compute with lambdas stand in the values that are written.


def contender() -> Contender:
    """construct's own compiler."""
    compiled: Any = MESSAGE.compile()
    return Contender("construct, compiled", compiled.parse, values, prepare, compiled.build)


def values(parsed: Any) -> dict[str, Any]:
    found = {name: value for name, value in parsed.items() if not name.startswith("_")}
    found |= {name: value for name, value in found.pop("transaction").items() if not name.startswith("_")}
    queue = found["destination_queue"]
    name = queue if isinstance(queue, int) else narrow(queue.name)
    return found | {"destination_queue": name, "label": narrow(found["label"])}


def prepare(fields: dict[str, Any]) -> Any:
    queue, label = fields["destination_queue"], wide(fields["label"])
    body_size, extension_size = len(fields["message_body"]), len(fields["extension_data"])
    size = 64 + 4 + 20 + 56 + len(label) + extension_size + body_size
    padding = bytes(-size & 3)
    if isinstance(queue, str):
        name = wide(queue)
        queue = {"count": len(name), "name": name, "padding": bytes((2 - len(name)) & 3)}
        size += 2 + len(name) + len(queue["padding"]) - 4
    return fields | {
        "packet_size": size + len(padding),
        "destination_queue": queue,
        "transaction": fields | {"connector_qm_guid": None},
        "label_length": len(label) // 2,
        "label": label,
        "message_size": body_size,
        "extension_size": extension_size,
        "padding": padding,
    }

"""dissect.cstruct: the message as C structs, compiled; what depends on a flag is a struct of its own."""

from __future__ import annotations

import io
from typing import Any

from dissect.cstruct import cstruct

from mqproto.wire.layouts.base import SIGNATURE, VERSION_NUMBER
from tests.bench.measures.others import DIRECT, HAS_TRANSACTION, TYPE_SHIFT, Contender, narrow, wide

DEFINITIONS = """
struct head {
    uint8 version_number;
    uint8 base_reserved;
    uint16 base_flags;
    uint32 signature;
    uint32 packet_size;
    uint32 time_to_reach_queue_s;
    char source_queue_manager[16];
    char queue_manager_address[16];
    uint32 time_to_be_received_s;
    uint32 sent_time_s;
    uint32 message_id;
    uint32 user_flags;
};
struct identifier {
    uint32 destination_queue;
};
struct direct {
    uint16 count;
    char destination_queue[count];
};
struct transaction {
    uint32 transaction_flags;
    uint32 ordinal;
    uint32 time_stamp;
    uint32 tx_sequence_number;
    uint32 previous_tx_sequence_number;
};
struct properties {
    uint8 properties_flags;
    uint8 label_length;
    uint16 message_class;
    char correlation_id[20];
    uint32 body_type;
    uint32 application_tag;
    uint32 message_size;
    uint32 allocation_body_size;
    uint32 privacy_level;
    uint32 hash_algorithm;
    uint32 encryption_algorithm;
    uint32 extension_size;
    char label[label_length * 2];
    char extension_data[extension_size];
    char message_body[message_size];
};
"""


def contender() -> Contender:
    """With its compiler, which is on unless one says otherwise."""
    types: Any = cstruct().load(DEFINITIONS)

    def parse(data: bytes) -> list[Any]:
        stream = io.BytesIO(data)
        head = types.head(stream)
        if head.version_number != VERSION_NUMBER or head.signature != SIGNATURE:
            raise ValueError("no packet")
        if head.user_flags >> TYPE_SHIFT & 7 == DIRECT:
            queue = types.direct(stream)
            stream.seek(-stream.tell() & 3, io.SEEK_CUR)
        else:
            queue = types.identifier(stream)
        parts = [head, queue]
        if head.user_flags & HAS_TRANSACTION:
            parts.append(types.transaction(stream))
        parts.append(types.properties(stream))
        return parts

    def prepare(fields: dict[str, Any]) -> list[Any]:
        queue, label = fields["destination_queue"], wide(fields["label"])
        kinds = (types.head, types.direct if isinstance(queue, str) else types.identifier)
        parts = [kind() for kind in (*kinds, types.transaction, types.properties)]
        given = fields | {
            "version_number": VERSION_NUMBER,
            "signature": SIGNATURE,
            "label": label,
            "label_length": len(label) // 2,
            "message_size": len(fields["message_body"]),
            "extension_size": len(fields["extension_data"]),
        }
        if isinstance(queue, str):
            given |= {"destination_queue": wide(queue), "count": len(wide(queue))}
        for part in parts:
            for name in part.__class__.fields:
                setattr(part, name, given.get(name, 0))
        return parts

    def build(parts: list[Any]) -> bytes:
        head, queue, transaction, properties = parts
        name = queue.dumps()
        name += bytes(-len(name) & 3)
        tail = properties.dumps()
        tail += bytes(-len(tail) & 3)
        middle = transaction.dumps()
        head.packet_size = 64 + len(name) + len(middle) + len(tail)
        return b"".join((head.dumps(), name, middle, tail))

    return Contender("dissect.cstruct", parse, values, prepare, build)


def values(parts: list[Any]) -> dict[str, Any]:
    found = {name: getattr(part, name) for part in parts for name in part.__class__.fields}
    queue = found["destination_queue"]
    name = narrow(queue) if isinstance(queue, bytes) else int(queue)
    return found | {"destination_queue": name, "label": narrow(found["label"])}

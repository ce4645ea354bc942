"""The contents of a log's segment: one record for each transaction, as bytes.

A record does not have `finals` or `moves`: the store has looked up the messages to which they refer, and writes
additions and removals instead. So the meaning of a record does not depend on the state of the tables, and a record can
be applied twice.

The numbers that belong to messages are in columns, and the packets follow one after the other. So one call of `struct`
and one of `join` encode a whole batch. Rarer rows are MessagePack. A record has two parts: its head, with everything
except the packets, and the packets. The head has a checksum of each packet, so a record with an undamaged head shows
which of its messages are damaged.
"""

from __future__ import annotations

import zlib
from itertools import accumulate, chain
from struct import Struct, error, pack, unpack_from
from typing import Final, NamedTuple

import msgspec

from mqproto.turn.effects import (
    IdentifierRow,
    IncomingRow,
    MessageRow,
    OutcomeRow,
    OutgoingRow,
    PostedChange,
    PostedRow,
    QueueRow,
    Writes,
)
from mqproto.wire.guid import Guid

COUNTS: Final = Struct("<IIII")
"""The form of four counts: messages, ranges of removed keys, lasting keys, and bytes of MessagePack."""
NEVER: Final = -1
"""The number used in place of `expires_s` for a message that never expires."""


class States(msgspec.Struct, array_like=True):
    """The rows of a transaction that are not messages, and the changes to them."""

    queues: list[QueueRow]
    outgoing: list[OutgoingRow]
    incoming: list[IncomingRow]
    identifiers: list[IdentifierRow]
    forgotten_identifiers: list[tuple[Guid, int, int]]
    counters: dict[str, int]
    outcomes: list[OutcomeRow]
    forgotten_outcomes: list[tuple[bytes, int]]
    forgotten_invokers: list[bytes]
    forgotten_incoming: list[tuple[Guid, int]] = []
    posted: list[PostedRow] = []
    changes: list[PostedChange] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(States)


class Decoded(NamedTuple):
    """The transaction that a record contains.

    hurt: those of its messages whose packets do not match their checksums.
    """

    writes: Writes
    hurt: list[MessageRow]


def encoded(writes: Writes) -> tuple[bytes, list[bytes]]:
    """Encode a transaction. Return the head and the packets."""
    messages, removals, lasting = writes.messages, writes.removals, writes.lasting
    states = _encoder.encode(_states(writes))
    parts = [COUNTS.pack(len(messages), len(removals), len(lasting), len(states)), states]
    if removals:
        parts.append(pack(f"<{2 * len(removals)}Q", *chain.from_iterable(removals)))
    if lasting:
        parts.append(pack(f"<{len(lasting)}Q", *lasting))
    if messages:
        keys, packets, message_ids, final_acks, expiries, _, _ = zip(*messages, strict=True)
        ends = [NEVER if expires_s is None else expires_s for expires_s in expiries]
        parts.append(
            pack(
                _columns(len(messages)),
                *keys,
                *message_ids,
                *ends,
                *map(len, packets),
                *final_acks,
                *map(zlib.crc32, packets),
            )
        )
        return b"".join(parts), list(packets)
    return b"".join(parts), []


def decoded(head: memoryview, packets: memoryview) -> Decoded:
    """Decode a transaction from these bytes.

    Raises:
        ValueError: the bytes do not form a transaction.
    """
    try:
        return _decoded(head, packets)
    except (error, msgspec.MsgspecError) as reason:
        raise ValueError(f"no record: {reason}") from reason


def _decoded(data: memoryview, packets: memoryview) -> Decoded:
    message_count, removal_count, lasting_count, states_bytes = COUNTS.unpack_from(data)
    at = COUNTS.size + states_bytes
    states = _decoder.decode(data[COUNTS.size : at])
    bounds = unpack_from(f"<{2 * removal_count}Q", data, at)
    at += 16 * removal_count
    lasting = unpack_from(f"<{lasting_count}Q", data, at)
    at += 8 * lasting_count
    columns = Struct(_columns(message_count))
    numbers = columns.unpack_from(data, at)
    if at + columns.size != len(data):
        raise ValueError(f"its columns end at byte {at + columns.size} of {len(data)}")
    keys, message_ids, ends, sizes, final_acks, checksums = (
        numbers[i * message_count : (i + 1) * message_count] for i in range(6)
    )
    starts = list(accumulate(sizes, initial=0))
    if starts[-1] != len(packets):
        raise ValueError(f"its packets end at byte {starts[-1]} of {len(packets)}")
    messages = [
        MessageRow(
            key, bytes(packets[start : start + size]), message_id, final_ack, None if end == NEVER else end
        )
        for key, start, size, message_id, final_ack, end in zip(
            keys, starts, sizes, message_ids, final_acks, ends, strict=False
        )
    ]
    writes = Writes(
        queues=states.queues,
        messages=messages,
        removals=list(zip(bounds[::2], bounds[1::2], strict=True)),
        lasting=list(lasting),
        outgoing={row.queue: row for row in states.outgoing},
        incoming={
            **dict.fromkeys(states.forgotten_incoming),
            **{(row.source, row.queue): row for row in states.incoming},
        },
        identifiers=states.identifiers,
        forgotten_identifiers=states.forgotten_identifiers,
        counters=states.counters,
        outcomes={
            **dict.fromkeys(states.forgotten_outcomes),
            **{(row.invoker, row.identifier): row for row in states.outcomes},
        },
        forgotten_invokers=states.forgotten_invokers,
        posted=states.posted,
        changes=states.changes,
    )
    found = zip(messages, checksums, strict=False)
    return Decoded(writes, [row for row, checksum in found if zlib.crc32(row.packet) != checksum])


def _states(writes: Writes) -> States:
    outcomes = writes.outcomes
    return States(
        writes.queues,
        list(writes.outgoing.values()),
        [row for row in writes.incoming.values() if row is not None],
        writes.identifiers,
        writes.forgotten_identifiers,
        writes.counters,
        [row for row in outcomes.values() if row is not None],
        [name for name, row in outcomes.items() if row is None],
        writes.forgotten_invokers,
        [name for name, row in writes.incoming.items() if row is None],
        writes.posted,
        writes.changes,
    )


def _columns(count: int) -> str:
    """Return the format of the columns: keys, message_ids, expiry times, packet lengths, whether each message is kept
    for a FinalAck, and checksums of packets."""
    return f"<{count}Q{count}Q{count}q{count}I{count}?{count}I"

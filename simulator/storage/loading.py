"""Loads what a queue manager must know of its tables when it starts; nearly all messages stay there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TypeVar

from mqproto.simulator.storage.base import StoreTables
from mqproto.simulator.storage.checksums import whole_rows
from mqproto.simulator.storage.tables import LAST_POSITION, keys_of
from mqproto.turn.effects import (
    POSITION_BITS,
    HurtPacket,
    IdentifierRow,
    IncomingRow,
    NewLife,
    OutcomeRow,
    OutgoingRow,
    QueueKind,
    QueueRow,
    StoredQueue,
    StoredState,
)

T = TypeVar("T")


def load(tables: StoreTables, life: NewLife | None, used: Iterable[int]) -> StoredState:
    """Return all that a queue manager must know to start, oldest first; of the messages, only the held ones.

    Args:
        life: the life that is to begin.
        used: the keys of messages that the log has, and of those that it removes from the tables.

    Raises:
        DamageError: something is not what was written.
        sqlite3.Error: the file cannot be read.
    """
    db = tables.db

    def rows(table: str, make: Callable[..., T], chosen: str = "") -> Iterator[T]:
        return whole_rows(table, db.execute(f"SELECT * FROM {table} {chosen}").fetchall(), make)

    last_used: dict[int, int] = {}
    for key in used:
        last_used[key >> POSITION_BITS] = max(last_used.get(key >> POSITION_BITS, 0), key & LAST_POSITION)
    queues = [_stored_queue(db, queue, last_used.get(queue.queue, 0)) for queue in tables.queues()]
    identifiers = db.execute(
        "SELECT source, ordinal, time_stamp_s, checksum FROM message_id ORDER BY arrival"
    ).fetchall()
    kept = [
        (row.key, row.packet)
        for queue in queues
        if queue.kind in (QueueKind.HELD, QueueKind.ORDER)
        for row in tables.between(*keys_of(queue.queue))
    ]
    return StoredState(
        queues=queues,
        resident=[(key, packet) for key, packet in kept if not isinstance(packet, HurtPacket)],
        hurt=[(key, packet) for key, packet in kept if isinstance(packet, HurtPacket)],
        gaps=[gap for queue in queues if queue.kind is QueueKind.SEQUENCE for gap in _gaps(db, queue)],
        outgoing=list(rows("outgoing_sequence", OutgoingRow)),
        incoming=list(rows("incoming_sequence", IncomingRow, "WHERE queue > 0")),
        identifiers=list(whole_rows("message_id", identifiers, IdentifierRow)),
        counters=tables.counters(),
        outcomes=sorted(rows("outcome", made_outcome), key=lambda row: row.performed_s),
        life=life,
    )


def made_outcome(
    invoker: bytes, identifier: int, outcome: bytes, lasting: int, performed_s: int
) -> OutcomeRow:
    """Make an outcome from its columns."""
    return OutcomeRow(invoker, identifier, outcome, bool(lasting), performed_s)


def _stored_queue(db: sqlite3.Connection, queue: QueueRow, last_used: int) -> StoredQueue:
    chosen = "SELECT key FROM message WHERE key BETWEEN ? AND ? ORDER BY key"
    [(first, last)] = db.execute(
        f"SELECT ({chosen} LIMIT 1), ({chosen} DESC LIMIT 1)", keys_of(queue.queue) * 2
    ).fetchall()
    [(message_count, size_bytes, final_ack_count)] = db.execute(
        "SELECT message_count, size_bytes, final_ack_count FROM queue WHERE queue = ?", (queue.queue,)
    ).fetchall()
    assert (first is None) == (message_count == 0), (
        f"queue {queue.queue} counts {message_count} messages, the first being {first}"
    )
    first, last = ((first or 0) & LAST_POSITION, (last or 0) & LAST_POSITION)
    return StoredQueue(*queue, message_count, size_bytes, first, last, max(last, last_used), final_ack_count)


def _gaps(db: sqlite3.Connection, queue: StoredQueue) -> Iterator[tuple[int, int]]:
    """The ranges of keys between a queue's first and last that have no message; mostly there are none."""
    if queue.message_count < queue.last - queue.first + 1:
        keys = db.execute(
            "SELECT key FROM message WHERE key BETWEEN ? AND ? ORDER BY key", keys_of(queue.queue)
        )
        for (before,), (after,) in pairwise(keys):
            if before + 1 < after:
                yield before + 1, after - 1

"""What a queue manager must know of its tables when it starts; nearly all messages stay where they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from mqproto.turn.effects import (
    IdentifierRow,
    IncomingRow,
    OutcomeRow,
    OutgoingRow,
    QueueKind,
    StoredQueue,
    StoredState,
)
from simulator.storage.tables import LAST_POSITION, keys_of


def load(db: sqlite3.Connection) -> StoredState:
    """All that a queue manager must know to start, oldest first; of the messages only the held ones."""

    def rows(statement: str, values: tuple[int, ...] = ()) -> list[Any]:
        return db.execute(statement, values).fetchall()

    queues = [_stored_queue(db, *row) for row in rows("SELECT * FROM queue ORDER BY queue")]
    return StoredState(
        queues=queues,
        resident=[
            row
            for queue in queues
            if queue.kind in (QueueKind.HELD, QueueKind.ORDER)
            for row in rows(
                "SELECT key, packet FROM message WHERE key BETWEEN ? AND ? ORDER BY key",
                keys_of(queue.queue),
            )
        ],
        gaps=[gap for queue in queues if queue.kind is QueueKind.SEQUENCE for gap in _gaps(db, queue)],
        outgoing=[OutgoingRow(*row) for row in rows("SELECT * FROM outgoing_sequence")],
        incoming=[IncomingRow(*row) for row in rows("SELECT * FROM incoming_sequence")],
        identifiers=[
            IdentifierRow(*row)
            for row in rows("SELECT source, ordinal, time_stamp_s FROM message_id ORDER BY arrival")
        ],
        counters=dict(rows("SELECT name, value FROM counter")),
        outcomes=[
            OutcomeRow(invoker, identifier, outcome, bool(lasting), performed_s)
            for invoker, identifier, outcome, lasting, performed_s in rows(
                "SELECT * FROM outcome ORDER BY performed_s"
            )
        ],
    )


def _stored_queue(
    db: sqlite3.Connection,
    queue: int,
    kind: str,
    name: str,
    priority: int,
    on_hold: int,
    message_count: int,
    size_bytes: int,
    final_ack_count: int,
) -> StoredQueue:
    chosen = "SELECT key FROM message WHERE key BETWEEN ? AND ? ORDER BY key"
    [(first, last)] = db.execute(
        f"SELECT ({chosen} LIMIT 1), ({chosen} DESC LIMIT 1)", keys_of(queue) * 2
    ).fetchall()
    assert (first is None) == (message_count == 0), (
        f"queue {queue} counts {message_count} messages, the first being {first}"
    )
    first, last = ((first or 0) & LAST_POSITION, (last or 0) & LAST_POSITION)
    return StoredQueue(
        queue,
        QueueKind(kind),
        name,
        priority,
        bool(on_hold),
        message_count,
        size_bytes,
        first,
        last,
        final_ack_count,
    )


def _gaps(db: sqlite3.Connection, queue: StoredQueue) -> Iterator[tuple[int, int]]:
    """The ranges of keys between a queue's first and last that have no message; mostly there are none."""
    if queue.message_count < queue.last - queue.first + 1:
        keys = db.execute(
            "SELECT key FROM message WHERE key BETWEEN ? AND ? ORDER BY key", keys_of(queue.queue)
        )
        for (before,), (after,) in pairwise(keys):
            if before + 1 < after:
                yield before + 1, after - 1

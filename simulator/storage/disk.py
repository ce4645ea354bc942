"""An in-memory disk of a node, with the contract of simulator/storage: it contains exactly what was committed.

`begin` takes a transaction, and `flush` makes it durable; `commit` does both. A crash between the two keeps all of the
transaction or none of it, as the caller chooses. Unit tests run on this store. Simulated worlds run on the real store,
and compare the real store's contents with this one's; a property test does so after each transaction.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice, pairwise

from mqproto.simulator.base.storeerrors import ADVICE, StoreError
from mqproto.simulator.storage.contents import fitting
from mqproto.simulator.storage.recent import changed
from mqproto.turn.effects import (
    LAST_POSITION,
    POSITION_BITS,
    HurtPacket,
    IdentifierRow,
    IncomingRow,
    MessageRow,
    OutcomeRow,
    OutgoingRow,
    PostedRow,
    QueueKind,
    QueueRow,
    ReadExpired,
    ReadPage,
    ReadSequences,
    StoredQueue,
    StoredState,
    Writes,
    message_key,
)
from mqproto.wire.guid import Guid


class Shelf:
    """The messages of one queue, keyed by position, and in order."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.rows: dict[int, MessageRow] = {}
        self.size_bytes = 0
        self.final_ack_count = 0

    def put(self, row: MessageRow) -> None:
        """Add a message at a position that was never used before."""
        position = row.key & LAST_POSITION
        positions = self.positions
        assert position not in self.rows, f"message {row.key:#x} is in the store already"
        if positions and position < positions[-1]:
            insort(positions, position)
        else:
            positions.append(position)
        self.rows[position] = row
        self.size_bytes += len(row.packet)
        self.final_ack_count += row.final_ack

    def take(self, first: int, last: int) -> list[MessageRow]:
        """Remove and return the messages from the first to the last position, both included."""
        low, high = bisect_left(self.positions, first), bisect_right(self.positions, last)
        rows = [*map(self.rows.pop, self.positions[low:high])]
        del self.positions[low:high]
        for row in rows:
            self.size_bytes -= len(row.packet)
            self.final_ack_count -= row.final_ack
        return rows


class Disk:
    """The store of one queue manager, which survives the queue manager's crashes."""

    def __init__(self) -> None:
        self.queues: dict[int, QueueRow] = {}
        self.outgoing: dict[int, OutgoingRow] = {}
        self.incoming: dict[tuple[Guid, int], IncomingRow] = {}
        self.identifiers: dict[tuple[Guid, int], int] = {}
        self.counters: dict[str, int] = {}
        self.outcomes: dict[tuple[bytes, int], OutcomeRow] = {}
        self.posted: dict[int, PostedRow] = {}
        self.commit_count = 0
        self.size_bytes = 0
        """The total size of all messages, in bytes."""
        self.room_bytes: int | None = None
        """The number of bytes of packets for which the disk has room; None for a disk that never fills up."""
        self.hurt: dict[int, HurtPacket] = {}
        """The damaged messages, keyed by their keys, as a node reads them. Everywhere else, this disk has their
        original packets.
        """
        self._shelves: dict[int, Shelf] = {}
        self._expiring: list[tuple[int, int]] = []
        """The `expires_s` and the key of each message that expires, in order."""
        self._pending: Writes | None = None

    # Writing

    def commit(self, writes: Writes) -> None:
        """Put the whole transaction on disk.

        Raises:
            StoreError: the disk is full, and no part of the transaction is on it.
        """
        self.begin(writes)
        self.flush()

    def begin(self, writes: Writes) -> None:
        """Take a transaction. It is on disk when `flush` returns.

        Raises:
            StoreError: the disk is full, and no part of the transaction will be on it.
        """
        assert self._pending is None, "the transaction before was not flushed"
        if self.room_bytes is not None:
            added = sum(len(row.packet) for row in writes.messages)
            if added and self.size_bytes + added > self.room_bytes:
                raise StoreError(ADVICE[sqlite3.SQLITE_FULL])
        self._pending = writes

    def flush(self) -> None:
        """Flush the transaction that was begun."""
        writes, self._pending = self._pending, None
        assert writes is not None, "nothing was begun"
        self._apply(writes)

    def crash(self, *, kept: bool) -> None:
        """Stop the machine. If `kept`, a transaction that was begun is completely on disk; otherwise it is lost."""
        if kept and self._pending is not None:
            self.flush()
        self._pending = None

    def _apply(self, writes: Writes) -> None:
        """Apply the fields of `writes`, in their order."""
        self.commit_count += 1
        for queue in writes.queues:
            self.queues[queue.queue] = queue
            if queue.queue not in self._shelves:
                self._shelves[queue.queue] = Shelf()
        self._put(*writes.messages)
        for final in writes.finals:
            self._keep_for_final_ack(final.first, final.last, final.final_queue)
        for old, new, expires_s in writes.moves:
            taken = self._take(old, old)
            assert taken, f"message {old:#x} is to move to {new:#x}, but is not in the store"
            self._put(taken[0]._replace(key=new, expires_s=expires_s))
        for first, last in writes.removals:
            self._take(first, last)
        for key in writes.lasting:
            if self.row(key) is not None:
                [row] = self._take(key, key)
                self._put(row._replace(expires_s=None))
        self.outgoing |= writes.outgoing
        for place, sequence in writes.incoming.items():
            if sequence is None:
                self.incoming.pop(place, None)
            else:
                self.incoming[place] = sequence
        for source, first, last in writes.forgotten_identifiers:
            for ordinal in range(first, last + 1):
                self.identifiers.pop((source, ordinal), None)
        for source, ordinal, time_s in writes.identifiers:
            self.identifiers.pop((source, ordinal), None)
            self.identifiers[source, ordinal] = time_s
        self.counters |= writes.counters
        for invoker in writes.forgotten_invokers:
            self.outcomes = {key: row for key, row in self.outcomes.items() if key[0] != invoker}
        for name, outcome in writes.outcomes.items():
            if outcome is None:
                self.outcomes.pop(name, None)
            else:
                self.outcomes[name] = outcome
        self.posted |= {row.message_id: row for row in writes.posted}
        for change in writes.changes:
            if (posted := self.posted.get(change.message_id)) is not None:
                self.posted[change.message_id] = changed(posted, change)
        if self.hurt:
            self.hurt = {key: packet for key, packet in self.hurt.items() if self.row(key) is not None}

    def _put(self, *rows: MessageRow) -> None:
        shelves = self._shelves
        for row in rows:
            shelves[row.key >> POSITION_BITS].put(row)
            self.size_bytes += len(row.packet)
            if row.expires_s is not None:
                insort(self._expiring, (row.expires_s, row.key))

    def _take(self, first: int, last: int) -> list[MessageRow]:
        queue = first >> POSITION_BITS
        assert queue == last >> POSITION_BITS, f"{first:#x} to {last:#x} is not within one queue"
        shelf = self._shelves.get(queue)
        rows = shelf.take(first & LAST_POSITION, last & LAST_POSITION) if shelf else []
        for row in rows:
            self.size_bytes -= len(row.packet)
            if row.expires_s is not None:
                del self._expiring[bisect_left(self._expiring, (row.expires_s, row.key))]
        return rows

    def set_aside_hurt(self) -> None:
        """Record that a node has found the damaged messages. Their rows still count, but cannot be used for anything
        else.
        """
        for key in self.hurt:
            [row] = self._take(key, key)
            self._put(row._replace(final_ack=False, expires_s=None))

    def _keep_for_final_ack(self, first: int, last: int, final_queue: int) -> None:
        shelf = self._shelves[first >> POSITION_BITS]
        low = bisect_left(shelf.positions, first & LAST_POSITION)
        high = bisect_right(shelf.positions, last & LAST_POSITION)
        for position in shelf.positions[low:high]:
            if shelf.rows[position].final_ack:
                key = first & ~LAST_POSITION | position
                [row] = self._take(key, key)
                self._put(row._replace(key=message_key(final_queue, row.message_id), expires_s=None))

    # Reading

    def load(self) -> StoredState:
        """Return everything that the node needs to start, oldest first. Of the messages, only held ones are
        included."""
        queues = [self._stored_queue(self.queues[number]) for number in sorted(self.queues)]
        kept = [
            row
            for queue in queues
            if queue.kind in (QueueKind.HELD, QueueKind.ORDER)
            for row in self.rows(queue.queue)
        ]
        return StoredState(
            queues=queues,
            resident=[(row.key, row.packet) for row in kept if row.key not in self.hurt],
            hurt=[(row.key, self.hurt[row.key]) for row in kept if row.key in self.hurt],
            gaps=[gap for queue in queues if queue.kind is QueueKind.SEQUENCE for gap in self._gaps(queue)],
            outgoing=list(self.outgoing.values()),
            incoming=[row for row in self.incoming.values() if row.queue > 0],
            identifiers=[
                IdentifierRow(source, ordinal, time_s)
                for (source, ordinal), time_s in self.identifiers.items()
            ],
            counters=dict(self.counters),
            outcomes=sorted(self.outcomes.values(), key=lambda row: row.performed_s),
        )

    def read(self, page: ReadPage | ReadExpired) -> list[tuple[int, bytes, bool]]:
        """Return the messages of a page as (position, packet, final_ack). For expired messages, return the key instead
        of the position.
        """
        if isinstance(page, ReadExpired):
            expiring = (self._with_key(key) for _, key in self._expiring if key not in self.hurt)
            return fitting(expiring, page.limit_messages, page.limit_bytes)
        shelf = self._shelves.get(page.queue)
        if shelf is None:
            return []
        begin = bisect_right(shelf.positions, page.after)
        following = map(shelf.rows.__getitem__, islice(shelf.positions, begin, None))
        rows = (
            (
                row.key & LAST_POSITION,
                self.hurt.get(row.key, row.packet),
                row.final_ack and row.key not in self.hurt,
            )
            for row in following
        )
        return fitting(rows, page.limit_messages, page.limit_bytes)

    def sequences(self, read: ReadSequences) -> list[IncomingRow]:
        """Return the incoming sequences that `read` asks for."""
        rows = self.incoming.values()
        return [row for row in rows if row.source == read.source and read.first <= row.queue <= read.last]

    def _with_key(self, key: int) -> tuple[int, bytes, bool]:
        row = self._shelves[key >> POSITION_BITS].rows[key & LAST_POSITION]
        return key, row.packet, row.final_ack

    def _stored_queue(self, queue: QueueRow) -> StoredQueue:
        shelf = self._shelves[queue.queue]
        positions = shelf.positions
        first, last = (positions[0], positions[-1]) if positions else (0, 0)
        return StoredQueue(*queue, len(positions), shelf.size_bytes, first, last, last, shelf.final_ack_count)

    def _gaps(self, queue: StoredQueue) -> Iterator[tuple[int, int]]:
        """Yield the ranges of unused keys between a queue's first and last messages; usually there are none."""
        if queue.message_count < queue.last - queue.first + 1:
            for before, after in pairwise(self._shelves[queue.queue].positions):
                if before + 1 < after:
                    yield message_key(queue.queue, before + 1), message_key(queue.queue, after - 1)

    # For tests and invariants

    @property
    def messages(self) -> dict[int, MessageRow]:
        """All messages, in order, keyed by their keys."""
        return {row.key: row for number in sorted(self._shelves) for row in self.rows(number)}

    def rows(self, queue: int) -> Iterator[MessageRow]:
        """Return the messages of one queue, in order."""
        shelf = self._shelves[queue]
        return (shelf.rows[position] for position in shelf.positions)

    def row(self, key: int) -> MessageRow | None:
        """Return the message with this key, or None if there is none."""
        return self._shelves[key >> POSITION_BITS].rows.get(key & LAST_POSITION)

    def between(self, first: int, last: int) -> list[MessageRow]:
        """Return the messages of one queue with keys from first to last, both included."""
        shelf = self._shelves.get(first >> POSITION_BITS)
        if shelf is None:
            return []
        low = bisect_left(shelf.positions, first & LAST_POSITION)
        high = bisect_right(shelf.positions, last & LAST_POSITION)
        return [shelf.rows[position] for position in shelf.positions[low:high]]

    def count(self, queue: int) -> int:
        """Return the number of messages of a queue."""
        return len(self._shelves[queue].positions)

    def size_of(self, kind: QueueKind, name: str) -> int:
        """Return the total size, in bytes, of the messages of a queue, in all priorities."""
        return sum(
            self._shelves[number].size_bytes
            for number, queue in self.queues.items()
            if queue.kind is kind and queue.name == name
        )

    def waiting(self, kind: QueueKind) -> int:
        """Return the total number of messages in all queues of a kind."""
        return sum(
            len(self._shelves[number].positions)
            for number, queue in self.queues.items()
            if queue.kind is kind
        )

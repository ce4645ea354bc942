"""The contents of a store, which are partly in the tables and partly in the log, and the effect of a transaction on
them.

A queue manager that starts loads some of the contents; nearly all messages stay in the tables.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice, pairwise
from typing import TypeVar

from mqproto.simulator.base.storeerrors import DamageError
from mqproto.simulator.storage.base import StoreTables
from mqproto.simulator.storage.checksums import whole_rows
from mqproto.simulator.storage.recent import RecentRows, Size, changed, in_order, joined
from mqproto.simulator.storage.tables import keys_of
from mqproto.turn.effects import (
    LAST_POSITION,
    POSITION_BITS,
    HurtPacket,
    IdentifierRow,
    IncomingRow,
    MessageRow,
    NewLife,
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

T = TypeVar("T")
Row = tuple[int, bytes, bool]
"""A message: its key or its position, its packet, and `final_ack`."""


class Contents:
    """The messages and queues of a store.

    Args:
        recent: the rows that the log has and the tables lack.
    """

    def __init__(self, tables: StoreTables, recent: RecentRows) -> None:
        self._tables = tables
        self._recent = recent
        self._queues = {queue.queue: queue for queue in tables.queues()} | recent.states.queues
        self._numbers = {queue[1:4]: queue.queue for queue in self._queues.values()}
        """The numbers of queues, keyed by kind, name and priority. Of several sequences to one destination, the one
        that was declared last counts.
        """

    def add(self, writes: Writes, gone: dict[int, Size]) -> int:
        """Add a transaction of the log, as returned by `resolved`.

        Return the number of bytes by which the messages grow. It is negative if the transaction removes more than it
        adds.
        """
        for queue in writes.queues:
            was = self._queues.get(queue.queue)
            if was is not None and self._numbers.get(was[1:4]) == queue.queue:
                del self._numbers[was[1:4]]  # It may be the name of another from now on.
            self._queues[queue.queue] = queue
            self._numbers[queue[1:4]] = queue.queue
        return self._recent.add(writes, gone)

    def counts(self, kind: QueueKind) -> dict[str, int]:
        """Return the number of messages in each queue of this kind, keyed by name; empty queues are left out."""
        counts = self._tables.counts(kind)
        for key in self._recent.gone:
            if key >> POSITION_BITS in counts:
                counts[key >> POSITION_BITS] -= 1
        found: dict[str, int] = {}
        for queue in self._queues.values():
            count = counts.get(queue.queue, 0) + self._recent.messages.count(queue.queue)
            if queue.kind is kind and count:
                found[queue.name] = found.get(queue.name, 0) + count
        return found

    def sequences(self, read: ReadSequences) -> list[IncomingRow]:
        """Return the incoming sequences that `read` asks for."""
        found: dict[int, IncomingRow | None] = {row.queue: row for row in self._tables.sequences(read)}
        for (source, queue), row in self._recent.states.incoming.items():
            if source == read.source and read.first <= queue <= read.last:
                found[queue] = row
        return [row for row in found.values() if row is not None]

    def posted(self, queue: str, key: str) -> PostedRow | None:
        """Return the posted message with this id; None if there is none."""
        return self._recent.states.posted.named(queue, key) or self._changed(
            self._tables.posted.named(queue, key)
        )

    def posted_as(self, message_id: int) -> PostedRow | None:
        """Return the posted message with this MessageID; None if there is none."""
        return self._recent.states.posted.rows.get(message_id) or self._changed(
            self._tables.posted.numbered(message_id)
        )

    def owed(self) -> list[PostedRow]:
        """Return the posted messages of which a shared database has yet to be told."""
        recent = self._recent.states.posted
        rows = {row.message_id: row for row in self._tables.posted.owed()} | recent.rows
        return [row for row in map(self._changed, rows.values()) if row is not None and row.owed]

    def _changed(self, row: PostedRow | None) -> PostedRow | None:
        change = None if row is None else self._recent.states.posted.changes.get(row.message_id)
        return row if row is None or change is None else changed(row, change)

    def page(self, page: ReadPage) -> list[Row]:
        """Return the messages of a page, as (key, packet, final_ack).

        The log and the tables are merged before the page is cut to its limits. Otherwise a small message from the log
        could follow a message from the tables that does not fit.
        """
        first, (_, last) = message_key(page.queue, page.after + 1), keys_of(page.queue)
        limit = max(1, page.limit_messages)
        recent = (
            (row.key, row.packet, row.final_ack) for row in self._recent.messages.between(first, last, limit)
        )
        if not self._tables.messages.may_have(first):
            return fitting(recent, limit, page.limit_bytes)
        with closing(self._tables.messages.waiting(first, last, self._recent.gone)) as stored:
            return fitting(heapq.merge(stored, recent), limit, page.limit_bytes)

    def between(self, first: int, last: int, *, finals: bool = False) -> list[MessageRow]:
        """Return messages of a queue with keys from first to last, in order: either all, or only those with
        `final_ack`."""
        rows = list(self._recent.messages.between(first, last))
        if self._tables.messages.may_have(first):
            gone, stored = self._recent.gone, self._tables.messages.between(first, last, finals=finals)
            rows = sorted([*(row for row in stored if row.key not in gone), *rows])
        return [row for row in rows if row.final_ack] if finals else rows

    def expired(self, page: ReadExpired) -> list[Row]:
        """Return the messages that expire first, as (key, packet, final_ack)."""
        gone, lasting = self._recent.gone, self._recent.lasting
        with closing(self._tables.messages.expiring()) as found:
            stored = (each for each in found if each[1] not in gone and each[1] not in lasting)
            recent = self._recent.messages.expiring(page.limit_messages)
            rows = (self._expiring(*each) for each in heapq.merge(stored, recent))
            return fitting(
                ((row.key, row.packet, row.final_ack) for row in rows), page.limit_messages, page.limit_bytes
            )

    def _expiring(self, expires_s: int, key: int) -> MessageRow:
        """Return the message to which an entry in the index of expiring messages refers."""
        found = self.between(key, key)
        if not found or (found[0].expires_s != expires_s and not isinstance(found[0].packet, HurtPacket)):
            raise DamageError(f"message {key:#x} is to expire at {expires_s}, and there is none that does")
        return found[0]

    def resolved(self, writes: Writes) -> tuple[Writes, dict[int, Size]]:
        """Return the transaction without `finals` and `moves`, and the messages that it removes from the tables.

        Raises:
            AssertionError: the transaction cannot be carried out.
        """
        self._check_queues(writes.queues)
        if writes.finals or writes.moves:
            writes = self._without_moves(writes)
        if writes.messages:
            self._check_new([row.key for row in writes.messages], writes.queues)
        gone: dict[int, Size] = {}
        for first, last in writes.removals:
            assert first >> POSITION_BITS == last >> POSITION_BITS, (
                f"{first:#x} to {last:#x} is not within one queue"
            )
            if self._tables.messages.may_have(first):
                gone |= self._tables.messages.sizes(first, last)
        for key in gone.keys() & self._recent.gone.keys():
            del gone[key]
        return writes, gone

    def _without_moves(self, writes: Writes) -> Writes:
        """Replace each move with an insertion of the message under its new key and a removal of it under its old
        key.
        """
        messages = {row.key: row for row in writes.messages}
        moved: dict[int, MessageRow] = {}
        """The messages to move, keyed by their old keys. A message in two ranges of `finals` moves with the first of
        them.
        """

        def move(row: MessageRow, new: int, expires_s: int | None) -> None:
            moved.setdefault(row.key, row._replace(key=new, expires_s=expires_s))

        for first, last, final_queue in writes.finals:
            kept = self.between(first, last, finals=True)
            kept += [row for row in messages.values() if first <= row.key <= last and row.final_ack]
            for row in kept:
                move(row, message_key(final_queue, row.message_id), None)
        for old, new, expires_s in writes.moves:
            found = [messages[old]] if old in messages else self.between(old, old)
            assert found, f"message {old:#x} is to move to {new:#x}, but is not in the store"
            if isinstance(found[0].packet, HurtPacket):  # Another start lets it go.
                raise DamageError(f"message {old:#x} is to move to {new:#x}, and is not what was written")
            move(found[0], new, expires_s)
        return replace(
            writes,
            messages=[*writes.messages, *moved.values()],
            finals=[],
            moves=[],
            removals=[*joined((key, key) for key in moved), *writes.removals],
        )

    def _check_queues(self, rows: list[QueueRow]) -> None:
        """Check that no two queues share a name, except for sequences. A renamed queue gives up its old name."""
        given_up = set()
        for row in rows:
            other = self._numbers.get(row[1:4], row.queue)
            assert row.queue == other or row.kind is QueueKind.SEQUENCE or row[1:4] in given_up, (
                f"queue {row.queue} is to be what queue {other} is"
            )
            if (was := self._queues.get(row.queue)) is not None and was[1:4] != row[1:4]:
                given_up.add(was[1:4])

    def _check_new(self, keys: list[int], queues: list[QueueRow]) -> None:
        """Check that no message in the store has one of these keys, and that their queues were declared."""
        if in_order(keys):
            first = keys[0] if keys[0] >> POSITION_BITS == keys[-1] >> POSITION_BITS else None
        else:
            first = None
            assert len(set(keys)) == len(keys), "two messages are to come with one key"
        assert self._recent.messages.rows.keys().isdisjoint(keys), "a message with this key is in the store"
        if first is None or self._tables.messages.may_have(first):
            for key in keys:
                assert not self._tables.messages.may_have(key) or not self._tables.messages.sizes(key, key), (
                    f"message {key:#x} is in the store already"
                )
        for number in (
            {first >> POSITION_BITS} if first is not None else {key >> POSITION_BITS for key in keys}
        ):
            assert number in self._queues or any(queue.queue == number for queue in queues), (
                f"queue {number} has messages, but was never declared"
            )


def fitting(rows: Iterable[Row], limit_messages: int, limit_bytes: int) -> list[Row]:
    """Return the longest prefix that keeps within both limits, but at least the first row if there is one.

    Every read with a size limit uses this function. The reader continues after the last row that it was given, so no
    row may be given after an omitted one.
    """
    found: list[Row] = []
    size_bytes = 0
    for row in islice(rows, max(1, limit_messages)):
        size_bytes += len(row[1])
        if found and size_bytes > limit_bytes:
            break
        found.append(row)
    return found


def everything(tables: StoreTables) -> Iterator[tuple[QueueRow, bytes]]:
    """Yield all undamaged messages, each with its queue."""
    for queue in tables.queues():
        with closing(tables.messages.waiting(*keys_of(queue.queue), ())) as found:
            yield from ((queue, packet) for _, packet, _ in found if not isinstance(packet, HurtPacket))


def load(tables: StoreTables, life: NewLife | None, used: Iterable[int]) -> StoredState:
    """Return everything that a queue manager needs to start, oldest first. Of the messages, only held ones are
    included.

    Args:
        life: the life that begins.
        used: the keys of messages in the log, and of messages that the log removes from the tables.

    Raises:
        DamageError: a row differs from the row that was written.
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
        for row in tables.messages.between(*keys_of(queue.queue))
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
    """Yield the ranges of unused keys between a queue's first and last messages; usually there are none."""
    if queue.message_count < queue.last - queue.first + 1:
        keys = db.execute(
            "SELECT key FROM message WHERE key BETWEEN ? AND ? ORDER BY key", keys_of(queue.queue)
        )
        for (before,), (after,) in pairwise(keys):
            if before + 1 < after:
                yield before + 1, after - 1

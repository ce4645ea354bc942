"""Gathers the writes for the next commit, and gives out numbers that are never given twice.

The writes include ceilings for these numbers, from which the next process continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.turn.effects import (
    LIFE,
    MESSAGE_ID_CEILING,
    POSITION_BITS,
    SEQUENCE_ORDINAL_CEILING,
    SEQUENCE_ORDINAL_FIRST,
    IncomingRow,
    MessageRow,
    NewLife,
    OutcomeRow,
    OutgoingRow,
    QueueRow,
    StoredState,
    Writes,
)
from mqproto.turn.waypoints import OFF, Waypoints
from mqproto.wire import TxSequenceId

LAZY_WRITES_DELAY_MS: Final = 1_000
PURGED_UNTIL: Final = "purged_until_"
"""The beginning of the name of a counter for a purged queue. The queue's number follows.

The counter holds the last position to delete.
"""
MESSAGE_ID_BLOCK: Final = 65_536
"""How many MessageIDs the store sets aside at a time. A crash leaves the rest of a block unused."""
ORDINAL_BLOCK: Final = 4_096
"""How many Ordinals of TxSequenceIDs are set aside at a time.

One is used whenever all messages are acknowledged.
"""


def purges_of(counters: Mapping[str, int]) -> dict[int, int]:
    """Return the queues, by number, whose purge is unfinished, each with the last position to delete."""
    return {
        int(name.removeprefix(PURGED_UNTIL)): position
        for name, position in counters.items()
        if name.startswith(PURGED_UNTIL) and position
    }


class HasRow(Protocol):
    """A sequence that has a row in the store.

    The row is made only once per commit, no matter how often the sequence changes.
    """

    def row(self) -> OutgoingRow | IncomingRow:
        """Return the data that must survive failures of the process and of the node."""


class PendingWrites:
    """The writes since the last commit, which are of two kinds.

    Writes that others are told about, in acceptances or acknowledgments, have to be committed in this turn. Writes that
    only remove data, such as a message that the neighbour has, are made with the next commit, or after a second. If a
    crash comes before that, the message is sent twice and the receiver drops the second copy.
    """

    def __init__(self, timers: Timers, waypoints: Waypoints = OFF) -> None:
        self._writes = Writes()
        self._changed: dict[HasRow, None] = {}
        self._is_urgent = False
        self._has_room = True
        self._held_back: dict[int, QueueRow] = {}
        """The rows that strangers have caused since the disk became full, by queue number; not written yet."""
        self._timers = timers
        self._waypoints = waypoints

    def urgent(self) -> Writes:
        """The writes that must be on disk before this turn's packets leave. All others are committed with them."""
        self._is_urgent = True
        return self._writes

    @property
    def later(self) -> Writes:
        """The writes that may wait for the next commit."""
        return self._writes

    def has_room(self, has_room: bool) -> None:
        """Set whether the disk has more free space than the reserve.

        The reserve is for writes that free space.
        """
        self._has_room = has_room
        if has_room and self._held_back:
            self._writes.queues += self._held_back.values()
            self._held_back.clear()

    def put_row(self, row: QueueRow, *, urgent: bool) -> None:
        """Keep a row of a kind that strangers can cause in unlimited numbers.

        On a full disk it waits in memory, unless it is urgent, because strangers must not use up the reserve.
        """
        self._is_urgent = self._is_urgent or urgent
        self._held_back.pop(row.queue, None)
        if urgent or self._has_room:
            self._writes.queues.append(row)
        else:
            self._held_back[row.queue] = row

    def put(self, messages: Sequence[MessageRow], queue: str) -> None:
        """Keep messages.

        queue: the name of their queue.
        """
        self._is_urgent = True
        self._waypoints.stored(messages, queue)
        self._writes.messages += messages

    def changed(self, sequence: HasRow, *, urgent: bool) -> None:
        """Record that a sequence's row has changed."""
        self._changed[sequence] = None
        self._is_urgent = self._is_urgent or urgent

    def give_up(self, sequence: HasRow, stays: IncomingRow | None) -> None:
        """Stop keeping an incoming sequence. If `stays` is given, keep `stays` instead."""
        self._changed.pop(sequence, None)
        gone = sequence.row()
        assert isinstance(gone, IncomingRow), "only these have places"
        self._writes.incoming[gone.source, gone.queue] = None
        if stays is not None:
            self._writes.incoming[stays.source, stays.queue] = stays

    def accompany(
        self,
        outcomes: dict[tuple[bytes, int], OutcomeRow | None],
        *,
        needed: bool,
        counters: dict[str, int] | None = None,
    ) -> bool:
        """Store an operation's outcome, and counters, together with the operation's writes.

        Return whether they are stored.

        needed: whether to store them even if the operation wrote nothing.
        """
        self._is_urgent = self._is_urgent or needed
        if self._is_urgent:
            self._writes.outcomes |= outcomes
            self._writes.counters |= counters or {}
        return self._is_urgent

    def forget(
        self,
        invokers: Iterable[bytes],
        rows: dict[tuple[bytes, int], OutcomeRow | None],
        counters: dict[str, int],
    ) -> None:
        """Forget invokers with all their outcomes, and keep `rows` and `counters` in the same transaction.

        This may wait for the next commit.
        """
        writes = self._writes
        if gone := set(invokers):
            writes.forgotten_invokers += gone
            # The store forgets before it keeps, so their outcomes in this transaction have to go here.
            writes.outcomes = {key: row for key, row in writes.outcomes.items() if key[0] not in gone}
        writes.outcomes |= rows
        writes.counters |= counters

    def purge_until(self, queue: int, position: int) -> None:
        """Record the last position to delete from a queue, for the next process if this one is killed.

        position: 0 when the queue is empty.
        """
        writes = self.urgent() if position else self._writes
        writes.counters[f"{PURGED_UNTIL}{queue}"] = position

    def leaving(self) -> dict[int, int]:
        """Return how many messages, at most, the next commit removes from each queue, by the queue's number."""
        counts: dict[int, int] = {}
        for first, last in self._writes.removals:
            queue = first >> POSITION_BITS
            counts[queue] = counts.get(queue, 0) + last - first + 1
        return counts

    def removes(self, key: int) -> bool:
        """Return whether the next commit removes a message completely, without keeping it for its FinalAck."""
        is_gone = any(first <= key <= last for first, last in self._writes.removals)
        return is_gone and not any(first <= key <= last for first, last, _ in self._writes.finals)

    def force(self) -> None:
        """Write all pending changes in this turn."""
        self._is_urgent = True

    def take(self, now: Moment) -> Writes | None:
        """Return the transaction to commit now; None if there is none or it may wait."""
        if not self._is_urgent:
            if (self._changed or self._writes) and not self._timers.runs(Timer.LAZY_WRITES, None):
                self._timers.start(Timer.LAZY_WRITES, None, now.uptime_ms + LAZY_WRITES_DELAY_MS)
            return None
        for sequence in self._changed:
            row = sequence.row()
            if isinstance(row, OutgoingRow):
                self._writes.outgoing[row.queue] = row
            else:
                self._writes.incoming[row.source, row.queue] = row
        self._changed.clear()
        self._is_urgent = False
        self._timers.stop(Timer.LAZY_WRITES, None)
        writes, self._writes = self._writes, Writes()
        return writes or None


class GivenNumbers:
    """The next numbers for queues and messages, and their ceilings in the store.  3.1.1.3, 3.1.1.3.1

    first_ordinal: the first Ordinal of a TxSequenceID that no earlier life can have given; 0 if that is not known.
    """

    def __init__(self, writes: PendingWrites, state: StoredState) -> None:
        self._writes = writes
        self.first_ordinal = state.counters.get(SEQUENCE_ORDINAL_FIRST, 0)
        self._ordinal_ceiling = state.counters.get(SEQUENCE_ORDINAL_CEILING, 0)
        self._next_queue = 1 + max((stored.queue for stored in state.queues), default=0)
        self._next_message_id = self._message_id_ceiling = state.counters.get(MESSAGE_ID_CEILING, 1)
        if state.life is not None:
            self._begin(state.life)

    def _begin(self, life: NewLife) -> None:
        """Make sure that no MessageID or TxSequenceID is given that an earlier life may have given.  3.1.1.3,
        3.1.1.3.1
        """
        self._next_message_id = self._message_id_ceiling = life.first_message_id
        self.first_ordinal = self._ordinal_ceiling = max(self._ordinal_ceiling, life.first_sequence_ordinal)
        self._writes.urgent().counters |= {
            LIFE: life.number,
            MESSAGE_ID_CEILING: self._message_id_ceiling,
            SEQUENCE_ORDINAL_CEILING: self._ordinal_ceiling,
            SEQUENCE_ORDINAL_FIRST: self.first_ordinal,
        }

    def next_queue(self) -> int:
        """Return a number for a queue that is new to the store."""
        self._next_queue += 1
        return self._next_queue - 1

    def next_message_id(self) -> int:
        """Return the next MessageIdOrdinal.  3.1.1.3"""
        return self.next_message_ids(1)[0]

    def next_message_ids(self, count: int) -> list[int]:
        """Return the next MessageIdOrdinals, one for each of several messages."""
        first, self._next_message_id = self._next_message_id, self._next_message_id + count
        while self._next_message_id > self._message_id_ceiling:
            self._message_id_ceiling += MESSAGE_ID_BLOCK
            self._writes.urgent().counters[MESSAGE_ID_CEILING] = self._message_id_ceiling
        return [number & 0xFFFFFFFF for number in range(first, self._next_message_id)]

    def set_aside(self, identifier: TxSequenceId) -> None:
        """Make sure that the store's ceiling is higher than an identifier's Ordinal.

        Call this before any message has the identifier.
        """
        if identifier.ordinal >= self._ordinal_ceiling:
            self._ordinal_ceiling = identifier.ordinal + ORDINAL_BLOCK
            self._writes.urgent().counters[SEQUENCE_ORDINAL_CEILING] = self._ordinal_ceiling

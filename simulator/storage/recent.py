"""The contents of the log that are not in the tables yet: messages, and other rows.

Messages are added at the end of a queue and mostly leave at its front, many at a time, so most of the work is done
by a few calls for each transaction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import lt
from typing import Final

from mqproto.turn.effects import (
    POSITION_BITS,
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

ROW_BYTES: Final = 400
"""The number of bytes that a message takes in memory in addition to its packet."""
POSTED_BYTES: Final = 700
"""The approximate number of bytes that a posted row takes in memory."""


Size = Sequence[int]
"""The amounts that a message adds to its queue's totals: the size of its packet, `final_ack`, and its checksum."""


class RecentRows:
    """Everything in the log that is not in the tables.

    Attributes:
        messages: the messages that were added.
        gone: the sizes of messages that have to be removed from the tables, keyed by the messages' keys.
        lasting: the keys of messages that no longer expire, if the tables have them.
        states: all other rows.
    """

    def __init__(self) -> None:
        self.messages = RecentMessages()
        self.gone: dict[int, Size] = {}
        self.lasting: set[int] = set()
        self.states = RecentStates()

    @property
    def size_bytes(self) -> int:
        """The number of bytes by which the messages in the tables will grow when these rows move there. It is usually
        negative.
        """
        return self.messages.size_bytes - sum([size[0] for size in self.gone.values()])

    @property
    def memory_bytes(self) -> int:
        """The approximate number of bytes of memory that the messages and the posted rows take."""
        return self.messages.memory_bytes + POSTED_BYTES * len(self.states.posted.rows)

    @property
    def removal_count(self) -> int:
        """The number of rows of the tables that have to be removed or changed."""
        states = self.states
        changed_count = len(states.forgotten_identifiers) + len(states.posted.changes)
        return len(self.gone) + len(self.lasting) + changed_count

    def add(self, writes: Writes, gone: dict[int, Size]) -> int:
        """Add a record that was written to the log.

        Args:
            gone: the messages that the record removes from the tables, except those that are already in `self.gone`.

        Returns:
            The number of bytes of messages that the record has added.
        """
        before_bytes = self.messages.size_bytes
        if writes.messages:
            self.messages.put(writes.messages)
        for first, last in writes.removals:
            self.messages.take(first, last)
        for key in writes.lasting:
            if not self.messages.make_lasting(key):
                self.lasting.add(key)
        self.states.add(writes)
        added_bytes = self.messages.size_bytes - before_bytes
        if gone:
            self.gone |= gone
            added_bytes -= sum([size[0] for size in gone.values()])
        return added_bytes

    def clear(self) -> None:
        """Forget everything, because the tables have it."""
        self.messages.clear()
        self.gone.clear()
        self.lasting.clear()
        self.states.clear()
        self.states.queues.clear()
        self.states.identifiers.clear()
        self.states.posted.clear()

    def take_out(
        self,
        rows: list[MessageRow],
        gone: Iterable[int],
        identifiers: list[IdentifierRow],
        posted: list[PostedRow],
        changes: list[PostedChange],
        *,
        with_states: bool,
    ) -> None:
        """Forget these rows, and all lasting keys and queues, because the tables now have them. With `with_states`,
        forget all other states as well.
        """
        if rows:
            self.messages.take_keys([row.key for row in rows])
        for key in gone:
            del self.gone[key]
        self.lasting.clear()
        self.states.queues.clear()
        self.states.forgotten_identifiers.clear()
        for row in identifiers:
            del self.states.identifiers[row.source, row.ordinal]
        self.states.posted.take_out(posted, changes)
        if with_states:
            self.states.clear()


class RecentMessages:
    """The messages in the log that the tables lack, keyed by their keys.

    Attributes:
        size_bytes: the total size of the messages' packets, in bytes.
    """

    def __init__(self) -> None:
        self.rows: dict[int, MessageRow] = {}
        self.size_bytes = 0
        self._keys: defaultdict[int, list[int]] = defaultdict(list)
        """The keys of each queue, in order."""
        self._expiring: list[tuple[int, int]] = []
        """The `expires_s` and the key of each message that expires, in order."""

    @property
    def memory_bytes(self) -> int:
        """The approximate number of bytes of memory that the messages take."""
        return self.size_bytes + ROW_BYTES * len(self.rows)

    def put(self, rows: list[MessageRow]) -> None:
        """Add messages with keys that were never used before."""
        keys = [row.key for row in rows]
        self.rows.update(zip(keys, rows, strict=True))
        self.size_bytes += sum([len(row.packet) for row in rows])
        there = self._keys[keys[0] >> POSITION_BITS]
        if (
            keys[0] >> POSITION_BITS == keys[-1] >> POSITION_BITS
            and (not there or there[-1] < keys[0])
            and in_order(keys)
        ):
            there += keys
        else:
            for key in keys:
                insort(self._keys[key >> POSITION_BITS], key)
        for row in rows:
            if row.expires_s is not None:
                insort(self._expiring, (row.expires_s, row.key))

    def clear(self) -> None:
        """Forget all messages."""
        self.rows.clear()
        self.size_bytes = 0
        self._keys.clear()
        self._expiring.clear()

    def take(self, first: int, last: int) -> list[MessageRow]:
        """Remove and return the messages of one queue with keys from first to last, both included."""
        there = self._keys.get(first >> POSITION_BITS)
        if not there or last < there[0]:
            return []
        low, high = bisect_left(there, first), bisect_right(there, last)
        keys = there[low:high]
        del there[low:high]
        return self._gone(keys)

    def take_keys(self, keys: list[int]) -> list[MessageRow]:
        """Remove and return the messages with these keys, which must be here."""
        for first, last in runs(sorted(keys)):
            there = self._keys[first >> POSITION_BITS]
            low, high = bisect_left(there, first), bisect_right(there, last)
            del there[low:high]
        return self._gone(keys)

    def make_lasting(self, key: int) -> bool:
        """Make sure that a message never expires. Return whether the message is here."""
        row = self.rows.get(key)
        if row is not None and row.expires_s is not None:
            self.take_keys([key])
            self.put([row._replace(expires_s=None)])
        return row is not None

    def between(self, first: int, last: int, limit: int | None = None) -> Iterator[MessageRow]:
        """Return the messages of one queue with keys from first to last, both included, but at most `limit`.

        They are looked up one by one, because all messages of a page may be in the tables.
        """
        there = self._keys.get(first >> POSITION_BITS)
        if not there or there[-1] < first:
            return iter(())
        low, high = bisect_left(there, first), bisect_right(there, last)
        keys = there[low : high if limit is None else min(high, low + limit)]
        return map(self.rows.__getitem__, keys)

    def expiring(self, limit: int) -> list[tuple[int, int]]:
        """Return the `expires_s` and the key of each of the messages that expire first, at most `limit` of them."""
        return self._expiring[:limit]

    def count(self, queue: int) -> int:
        """Return the number of messages that a queue has here."""
        return len(self._keys.get(queue, ()))

    def _gone(self, keys: list[int]) -> list[MessageRow]:
        rows = list(map(self.rows.pop, keys))
        self.size_bytes -= sum([len(row.packet) for row in rows])
        if self._expiring:
            for row in rows:
                if row.expires_s is not None:
                    del self._expiring[bisect_left(self._expiring, (row.expires_s, row.key))]
        return rows


class RecentPosted:
    """The posted rows of the log that the tables lack, the oldest first.

    Attributes:
        changes: the changes of rows that the tables have already.
    """

    def __init__(self) -> None:
        self.rows: dict[int, PostedRow] = {}
        self.changes: dict[int, PostedChange] = {}
        self._by_name: dict[tuple[str, str], int] = {}

    def add(self, rows: list[PostedRow], changes: list[PostedChange]) -> None:
        """Add rows, and changes of these or earlier ones."""
        for row in rows:
            self.rows[row.message_id] = row
            self.changes.pop(row.message_id, None)
            if row.key:
                self._by_name[row.queue, row.key] = row.message_id
        for change in changes:
            found = self.rows.get(change.message_id)
            if found is None:
                self.changes[change.message_id] = _both(self.changes.get(change.message_id), change)
            else:
                self.rows[change.message_id] = changed(found, change)

    def take_out(self, rows: list[PostedRow], changes: list[PostedChange]) -> None:
        """Forget these rows and changes, because the tables have them."""
        for row in rows:
            del self.rows[row.message_id]
            if self._by_name.get((row.queue, row.key)) == row.message_id:
                del self._by_name[row.queue, row.key]
        for change in changes:
            del self.changes[change.message_id]

    def clear(self) -> None:
        """Forget everything."""
        self.rows.clear()
        self.changes.clear()
        self._by_name.clear()

    def first(self, limit: int) -> list[PostedRow]:
        """Return at most `limit` rows, beginning with the oldest."""
        return list(islice(self.rows.values(), limit))

    def named(self, queue: str, key: str) -> PostedRow | None:
        """Return the row of the message with this id; None if it is not here."""
        found = self._by_name.get((queue, key))
        return None if found is None else self.rows[found]


def changed(row: PostedRow, change: PostedChange) -> PostedRow:
    """Return a row with a change. Another acknowledgment of the same message replaces an earlier one."""
    if change.message_class:
        row = row._replace(
            changed_s=change.changed_s, message_class=change.message_class, ended_s=change.ended_s
        )
    return row._replace(owed=False) if change.is_settled else row


def _both(earlier: PostedChange | None, later: PostedChange) -> PostedChange:
    """Return one change for two of the same row."""
    if earlier is None:
        return later
    chosen = later if later.message_class else earlier
    return chosen._replace(is_settled=earlier.is_settled or later.is_settled)


class RecentStates:
    """The rows that are not messages, each as it was last written.

    Attributes:
        forgotten_invokers: the invokers whose outcomes must be removed from the tables before `outcomes` are added.
        forgotten_identifiers: the ordinals whose rows must be removed from the tables before `identifiers` are added.
    """

    def __init__(self) -> None:
        self.queues: dict[int, QueueRow] = {}
        self.outgoing: dict[int, OutgoingRow] = {}
        self.incoming: dict[tuple[Guid, int], IncomingRow | None] = {}
        self.identifiers: dict[tuple[Guid, int], IdentifierRow] = {}
        self.forgotten_identifiers: list[tuple[Guid, int, int]] = []
        self.counters: dict[str, int] = {}
        self.forgotten_invokers: dict[bytes, None] = {}
        self.outcomes: dict[tuple[bytes, int], OutcomeRow | None] = {}
        self.posted = RecentPosted()

    def add(self, writes: Writes) -> None:
        """Add all rows of a transaction, except messages."""
        for queue in writes.queues:
            self.queues[queue.queue] = queue
        self.outgoing |= writes.outgoing
        self.incoming |= writes.incoming
        for forgotten in writes.forgotten_identifiers:
            self._forget_identifiers(*forgotten)
        if writes.identifiers:
            self._add_identifiers(writes.identifiers)
        self.counters |= writes.counters
        for invoker in writes.forgotten_invokers:
            self.forgotten_invokers[invoker] = None
            self.outcomes = {name: row for name, row in self.outcomes.items() if name[0] != invoker}
        self.outcomes |= writes.outcomes
        if writes.posted or writes.changes:
            self.posted.add(writes.posted, writes.changes)

    def clear(self) -> None:
        """Forget everything that is in the tables. Queues, identifiers and posted rows are removed
        separately.
        """
        self.outgoing.clear()
        self.incoming.clear()
        self.forgotten_identifiers.clear()
        self.counters.clear()
        self.forgotten_invokers.clear()
        self.outcomes.clear()

    def _add_identifiers(self, rows: Iterable[IdentifierRow]) -> None:
        identifiers = self.identifiers
        for row in rows:
            name = (row.source, row.ordinal)
            if name in identifiers:
                del identifiers[name]  # It is the newest again.
            identifiers[name] = row

    def _forget_identifiers(self, source: Guid, first: int, last: int) -> None:
        for ordinal in range(first, last + 1):
            self.identifiers.pop((source, ordinal), None)
        self.forgotten_identifiers.append((source, first, last))


def in_order(keys: list[int]) -> bool:
    """Return whether each key is greater than the key before it."""
    return all(map(lt, keys, islice(keys, 1, None)))


def runs(keys: list[int]) -> list[tuple[int, int]]:
    """Combine these ascending keys into as few ranges as possible, each within one queue."""
    if keys and keys[-1] - keys[0] == len(keys) - 1 and keys[0] >> POSITION_BITS == keys[-1] >> POSITION_BITS:
        return [(keys[0], keys[-1])]
    return joined((key, key) for key in keys)


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges of keys that overlap or adjoin, and return the fewest ranges, the lowest first.

    Each range stays within one queue.
    """
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1 and first >> POSITION_BITS == result[-1][1] >> POSITION_BITS:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result

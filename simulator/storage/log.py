"""The log of a store: its segments, and how their contents move to the tables.

Most of a record is obsolete by the time that the log has grown long. Only the current data of the oldest segment moves
to the tables, a part of it with each further commit. Then the segment is removed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import sub
from typing import Final, NamedTuple

from mqproto.simulator.base.storeerrors import (
    POSTPONED_AFTER,
    DiskFullError,
    finds_no_room,
    primary_code,
)
from mqproto.simulator.storage.base import Mark, StoreTables
from mqproto.simulator.storage.files import Files
from mqproto.simulator.storage.recovery import Recovered
from mqproto.simulator.storage.reserve import Reserve
from mqproto.simulator.storage.segments import FoundSegment, LogSegment, SegmentName
from mqproto.simulator.storage.witnesses.identity import Identity
from mqproto.simulator.storage.witnesses.witness import StoreWitness, WitnessFullError
from mqproto.turn.effects import HurtPacket, MessageRow, Writes
from mqproto.wire.guid import Guid


class LogLimits(NamedTuple):
    """Limits for the data that is only in the log.

    segment_bytes: the length of a segment, unless a single record is longer.
    segments: the maximum number of segments; if there is one more, the oldest moves to the tables.
    memory_bytes: the approximate amount of memory for messages that only the log has; if they take more, the oldest
        segment moves to the tables.
    slice_messages, slice_bytes: the number of messages, and of bytes, that move to the tables with a commit; or twice
        as many as the commit has, if that is more.
    reserve_bytes: the room to set aside for the log on a full disk; 0 for none. One share has room for the maximum that
        neighbours can send in one batch (simulator/node/turns.py).
    """

    segment_bytes: int = 8 << 20
    segments: int = 16
    memory_bytes: int = 40 << 20
    slice_messages: int = 128
    slice_bytes: int = 256 << 10
    reserve_bytes: int = 16 << 20


LIMITS: Final = LogLimits()
REMOVALS: Final = 8
"""The number of messages that can be removed from the tables in the time that it takes to add one message."""
SCANNED_MESSAGES: Final = 5_000
"""The number of messages of a segment that are checked with each commit, in order to find those that are still in the
store.
"""
SMALLEST_BYTES: Final = 512
"""The size, in bytes, of a segment on a disk that has no room for a larger one."""
OVERDRAFT: Final = 4
"""The factor by which the log may exceed the size in `LogLimits` while the tables cannot be written."""


@dataclass(slots=True)
class _Due:
    """The data that has to move to the tables before the oldest segment can be removed.

    keys: the keys of the messages that the segment has added to the store. Those that are still in the store have to
        move to the tables.
    looked_at: the number of these keys that have been checked.
    removals, identifiers, posted, changes: the number of removals, of identifiers, of posted rows and of their changes
        that are due, out of those that only the log has. The oldest are due; the rest belong to later segments.
    """

    keys: list[int]
    looked_at: int
    removals: int
    identifiers: int
    posted: int
    changes: int

    def take_off(self, *counts: int) -> None:
        """Count what a slice has moved, in the order of the fields."""
        due = (self.removals, self.identifiers, self.posted, self.changes)
        self.removals, self.identifiers, self.posted, self.changes = map(sub, due, counts)


class Log:
    """The log of one store. The caller has the lock that readers of the log and the tables need.

    Args:
        found: the data that was found at the start and left in the log.

    Attributes:
        recent: the data that the log has and the tables lack.
        next_record: the number of the next record.
        is_usable: whether the log and the tables are in step, so that the store can continue.
        is_overdrawn: whether the log has more data than it should, because the tables cannot take more.
    """

    def __init__(
        self,
        limits: LogLimits,
        reserve: Reserve,
        tables: StoreTables,
        found: Recovered,
        witness: StoreWitness,
        identity: Identity,
    ) -> None:
        self.recent, self.next_record = found.recent, found.record
        self.is_usable, self.is_overdrawn = True, False
        self._limits, self._reserve, self._tables = limits, reserve, tables
        self._witness, self._identity = witness, identity
        self._mark, self._older = found.mark, found.segments
        """The place where the log begins; and the full segments, the oldest first."""
        self._segment = self._older.pop() if self._older else None
        """The segment to which records are written; None if there is none yet."""
        self._due: _Due | None = None
        """The data that still has to move from the oldest segment to the tables; None if nothing has to move yet."""

    def close(self) -> None:
        """Release the segments."""
        self.is_usable = False
        for segment in self.segments():
            segment.close()
        self._older, self._segment = [], None

    def segments(self) -> list[LogSegment]:
        """Return all segments. Records are written to the last one."""
        return [*self._older, *([self._segment] if self._segment else [])]

    def copies_of(self, keys: set[int], files: Files, node: Guid) -> dict[int, MessageRow]:
        """Return the copies that the log has of the messages with these keys, as they were written there."""
        segments = self.segments()
        return {
            row.key: row
            for segment in segments
            if not keys.isdisjoint(segment.keys)
            for writes in FoundSegment.read(files, SegmentName(segment.number, segment.path), node).records(
                is_last=segment is segments[-1], acknowledged=self.next_record - 1
            )
            for row in writes.messages
            if row.key in keys and not isinstance(row.packet, HurtPacket)
        }

    def has_work(self) -> bool:
        """Whether the log, or its messages in memory, have reached a limit, or data is due to move to the tables.

        There is also work if the reserve is missing and the log has older segments.
        """
        limits, recent = self._limits, self.recent
        return self._segment is not None and (
            self._due is not None
            or len(self._older) >= limits.segments
            or (bool(self._older) and self._reserve.is_missing)
            or recent.memory_bytes > limits.memory_bytes
            or recent.removal_count > REMOVALS * limits.slice_messages
        )

    def segment_for(self, writes: Writes) -> LogSegment:
        """Return the segment for the next record, and keep the log within its limits."""
        if self._segment is None:
            return self.begin()
        if not self.has_work():
            return self._segment
        limits, memory_bytes = self._limits, self.recent.memory_bytes
        if self._due is None:
            # The reserve is used to its end: a segment behind it may have no room for the next record, even
            # if that segment was done with before and is now a reserve, a short one.
            if memory_bytes > limits.memory_bytes and not (self._older or self._reserve.is_short):
                with suppress(DiskFullError):
                    self._segment = self._next_segment(self._segment)
            # Each segment that is done with becomes a reserve, so without one the log is kept as short as possible.
            if self._older and (
                len(self._older) >= limits.segments
                or memory_bytes > limits.memory_bytes
                or self._reserve.is_missing
            ):
                recent, posted = self.recent, self.recent.states.posted
                self._due = _Due(
                    self._older[0].keys,
                    0,
                    len(recent.gone),
                    len(recent.states.identifiers),
                    len(posted.rows),
                    len(posted.changes),
                )
        if self._due is not None or self.recent.removal_count > REMOVALS * limits.slice_messages:
            self._try_to_spill(writes)
        return self._segment

    def begin(self) -> LogSegment:
        """Begin the log's first segment. The tables record it, so that its loss would be noticed."""
        segment = self._reserve.segment(self._mark.segment, self._mark.record, SMALLEST_BYTES)
        mark = self._mark._replace(is_begun=True)
        try:
            with self._tables.transaction(flushed=True):
                self._tables.put_mark(mark)
        except BaseException as error:
            # On a full disk, the witness knows of it as well, with its first record.
            if not finds_no_room(error):
                if primary_code(error) in POSTPONED_AFTER:
                    self._reserve.take(segment)
                else:  # The tables may know of it after all.
                    self.is_usable = False
                    segment.close()
                raise
        else:
            self._mark = mark
        self._segment = segment
        return segment

    def _next_segment(self, full: LogSegment, needed_bytes: int = 0) -> LogSegment:
        segment = self._reserve.segment(full.number + 1, self.next_record, max(needed_bytes, SMALLEST_BYTES))
        self._older.append(full)
        return segment

    def finds_room(self, needed_bytes: int) -> bool:
        """Find room for a large batch, if necessary in a separate segment. The reserve is not used. Return whether
        there is room."""
        if self._segment is not None and self._segment.free_bytes >= needed_bytes:
            return True
        try:
            full = self._segment or self.begin()
            self._segment = self._reserve.created(full.number + 1, self.next_record, needed_bytes)
        except DiskFullError:
            return False
        self._older.append(full)
        return True

    def segment_behind(self, full: LogSegment, needed_bytes: int) -> tuple[LogSegment, bool]:
        """Return a segment for a record that does not fit into the last segment, and whether all earlier data is in the
        tables.

        Raises:
            DiskFullError: there is no room for the segment anywhere.
        """
        try:
            self._segment = self._next_segment(full, needed_bytes)
        except DiskFullError:
            # Perhaps most of the log is obsolete, and the tables have room for the rest.
            self.take_over()
            segment = self.begin()
            if segment.free_bytes < needed_bytes:
                self._segment = self._next_segment(segment, needed_bytes)
            return self._segment or segment, True
        return self._segment, False

    def _try_to_spill(self, writes: Writes) -> None:
        """Move some of the due data to the tables. If that is not possible now, each commit tries again.

        Raises:
            StoreError, sqlite3.Error: the disk fails or has been full for too long, or another program has used the
                file for too long.
        """
        limits = self._limits
        try:
            self._tables.let_grow(not self._reserve.is_missing)
            self._spill(
                max(limits.slice_messages, 2 * len(writes.messages)),
                max(limits.slice_bytes, 2 * sum([len(row.packet) for row in writes.messages])),
            )
        except BaseException as error:
            if primary_code(error) not in POSTPONED_AFTER and not isinstance(error, WitnessFullError):
                self.is_usable = False
                raise
            size_bytes = sum(segment.used_bytes for segment in self.segments())
            self.is_overdrawn = (
                size_bytes > OVERDRAFT * limits.segments * limits.segment_bytes
                or self.recent.memory_bytes > OVERDRAFT * limits.memory_bytes
            )
            # With a reserve, all that makes the store larger is refused instead, until the tables have room.
            if self.is_overdrawn and not (limits.reserve_bytes and finds_no_room(error)):
                raise
        else:
            self.is_overdrawn = False

    def _spill(self, limit: int, limit_bytes: int) -> None:
        """Move at most `limit` messages from the oldest segment to the tables, and at most as many other rows of each
        kind.

        Raises:
            WitnessFullError, sqlite3.Error: the tables are unchanged.
        """
        recent, states, due = self.recent, self.recent.states, self._due
        rows, looked_at, size_bytes = list[MessageRow](), 0, 0
        for key in islice(due.keys, due.looked_at, due.looked_at + SCANNED_MESSAGES) if due else ():
            if len(rows) >= limit or size_bytes >= limit_bytes:
                break
            looked_at += 1
            row = recent.messages.rows.get(key)
            if row is not None:
                rows.append(row)
                size_bytes += len(row.packet)
        gone = dict(islice(recent.gone.items(), REMOVALS * limit))
        identifiers = list(islice(states.identifiers.values(), limit)) if due else []
        posted = states.posted.first(limit) if due else []
        changes = list(islice(states.posted.changes.values(), limit))
        counts = (len(gone), len(identifiers), len(posted), len(changes))
        is_done = (
            due is not None
            and due.looked_at + looked_at == len(due.keys)
            # A row that comes anew has no end, so there may be fewer than were due.
            and (due.changes <= len(changes) or len(changes) < limit)
            and due.removals <= len(gone)
            and due.identifiers <= len(identifiers)
            and due.posted <= len(posted)
        )
        following = self.segments()[1] if is_done else None
        if following is not None:
            self._witness.flush()
            self._identity.flush()
        mark = self._mark
        with self._tables.transaction(flushed=is_done):
            self._tables.put_queues(states.queues.values())
            self._tables.messages.remove(gone)  # This is first, because what comes may need its room.
            self._tables.messages.insert(rows)
            # Messages that are gone, and left for a later slice, are subtracted as they were when they went.
            self._tables.messages.make_lasting(recent.lasting - recent.gone.keys())
            self._tables.put_identifiers(identifiers, states.forgotten_identifiers)
            self._tables.posted.put(posted, changes)
            if following is not None:
                # These may be newer than the segment: the later segments say the same again, if it comes to that.
                self._tables.put_states(states)
                mark = Mark(following.number, following.first_record, is_begun=True)
                self._tables.put_mark(mark)
        recent.take_out(rows, gone, identifiers, posted, changes, with_states=is_done)
        self._mark = mark
        if due is not None:
            due.looked_at += looked_at
            due.take_off(*counts)
        if is_done:
            self._due = None
            self._reserve.take(self._older.pop(0))

    def take_over(self) -> None:
        """Move everything to the tables, and remove the log."""
        segments = self.segments()
        mark = Mark(segments[-1].number + 1, self.next_record, is_begun=False)
        self._witness.flush()
        self._identity.flush()
        self._tables.let_grow(not self._reserve.is_missing)
        self._tables.take_over(self.recent, mark)
        self.recent.clear()
        self._mark, self._older, self._segment, self._due = mark, [], None, None
        for segment in segments:
            self._reserve.take(segment)

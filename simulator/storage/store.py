"""A node's disk: a log to which each transaction is appended, and tables for what lasts longer.

`Store.commit` writes one record to the log, flushes it, and remembers what it says. Most messages leave a
second after they came, so most of a record is obsolete when the log has grown long. Only the rest of its
oldest segment then goes to the tables, a part with each further commit, and the segment is removed.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from time import perf_counter
from types import TracebackType
from typing import Final, NamedTuple, Self

from mqproto.base.durations import Durations
from mqproto.base.errors import UsageError
from mqproto.simulator.base.storeerrors import (
    POSTPONED_AFTER,
    DiskFullError,
    LifeFullError,
    StoreError,
    explained,
    finds_no_room,
    primary_code,
    sound,
)
from mqproto.simulator.storage.base import BUSY_RUNNING_MS, Mark, StoreTables, messages_of, write_anew
from mqproto.simulator.storage.checksums import whole_message
from mqproto.simulator.storage.contents import Contents
from mqproto.simulator.storage.files import SYSTEM_FILES, Files
from mqproto.simulator.storage.loading import load
from mqproto.simulator.storage.opening.earlier import found_segment
from mqproto.simulator.storage.recovery import recover, witness_of
from mqproto.simulator.storage.reserve import SHARES, Reserve
from mqproto.simulator.storage.segments import HEADER, NO_ROOM, LogSegment, Record, SegmentName
from mqproto.simulator.storage.tables import LAST_POSITION, keys_of
from mqproto.simulator.storage.witnesses.identity import Identity
from mqproto.simulator.storage.witnesses.life import LifeNote
from mqproto.simulator.storage.witnesses.witness import WitnessFullError
from mqproto.turn.effects import (
    COUNTERS_OF_LIFE,
    HurtPacket,
    IncomingRow,
    MessageRow,
    NewLife,
    QueueKind,
    QueueRow,
    ReadExpired,
    ReadPage,
    ReadSequences,
    StoredState,
    Writes,
)
from mqproto.wire.guid import Guid


class LogLimits(NamedTuple):
    """How much is only in the log.

    segment_bytes: how long a segment is, unless it has a single longer record.
    segments: with one more, the oldest goes to the tables.
    memory_bytes: about how much messages may take that are only in the log; with more, the oldest segment goes.
    slice_messages, slice_bytes: how much goes to the tables with a commit; twice what the commit has, if that is more.
    reserve_bytes: how much is set aside, for the log, for a full disk; 0 for nothing. One share of it has room for all
        that neighbours can bring with one batch (simulator/node/turns.py).
    """

    segment_bytes: int = 8 << 20
    segments: int = 16
    memory_bytes: int = 40 << 20
    slice_messages: int = 128
    slice_bytes: int = 256 << 10
    reserve_bytes: int = 16 << 20


LIMITS: Final = LogLimits()
SYSTEM_DICE: Final = random.SystemRandom()
REMOVALS: Final = 8
"""How many messages can leave the tables in the time that one takes to go there."""
SCANNED_MESSAGES: Final = 5_000
"""How many messages of a segment are checked with a commit, to see which are still there."""
SMALLEST_BYTES: Final = 512
"""The size of a segment on a disk that has no room for more."""
TABLES_PART: Final = 12
"""One part in this many of the reserve is set aside in the tables as well."""
OVERDRAFT: Final = 4
"""How many times the size in `LogLimits` the log may have if the tables cannot be written just now."""


@dataclass(slots=True)
class _Due:
    """What has to go to the tables before the oldest segment can be removed.

    keys: the keys of the messages that it put into the store; those that are still there have to go.
    looked_at: how many of them are done.
    removals, identifiers: how many of those that only the log has, the oldest first. Later ones are in a
        later segment.
    """

    keys: list[int]
    looked_at: int
    removals: int
    identifiers: int


class Store:
    """The store of one queue manager.

    Args:
        path: the file of the tables, beside which the log lies; it is made if it does not exist, its folder is not.
        node: the queue manager's GUID. A file that belongs to another is refused.
        limits: how much may be only in the log.
        files: the system's, or simulated ones.
        dice: choose where the MessageIDs of a life begin.
        is_adopted: whether an operator has said that the store was moved here, and another life begins.
        again: what a proposed command needs to find the node, after a space.

    Raises:
        StoreError: the file cannot be opened, is not this node's, lacks a part of its log, or was copied here.
    """

    def __init__(
        self,
        path: Path,
        node: Guid,
        limits: LogLimits = LIMITS,
        files: Files = SYSTEM_FILES,
        dice: random.Random = SYSTEM_DICE,
        *,
        is_adopted: bool = False,
        again: str = "",
    ) -> None:
        self.path = path
        self.commits = Durations()
        """The durations of the commits that succeeded."""
        """How many commits were flushed."""
        self._place = path.resolve()
        self._node = node
        self._files = files
        self._limits = limits
        self._usable = True
        self._older: list[LogSegment] = []
        """Full segments, the oldest first."""
        self._segment: LogSegment | None = None
        """The segment that is written to."""
        self._is_overdrawn = False
        """Whether the log has more than it should, because the tables have no room."""
        self._due: _Due | None = None
        """What is still to go from the oldest segment to the tables; None if there is no need yet."""
        self._together = Lock()
        """Held while log and tables change, for another thread that reads both."""
        with explained(path), ExitStack() as undo:
            self._lock = undo.enter_context(closing(files.lock(path)))
            if limits.reserve_bytes and files.identity(self._place).inode:
                undo.callback(files.keep_room, self._place)  # A store that does not start loses no room.
            self._identity = undo.enter_context(
                closing(Identity(files, self._place, node, is_adopted=is_adopted, again=again))
            )
            with sound(path):
                self._tables = StoreTables(files, path, node)
                undo.callback(self._tables.leave)
                self._witness = undo.enter_context(
                    closing(witness_of(files, self._tables, self._place, node))
                )
                found = recover(files, self._tables, self._witness, self._place, node)
                self._mark, self.notices, self._next_record, self._recent, self._older, _ = found
                self.unfinished = found.unfinished
                """The record that a kill cut short, and that nobody was told of; empty if there is none."""
                if self._older:
                    self._segment = self._older.pop()
                for segment in self._segments():
                    undo.callback(segment.close)
                self._tables.set_aside_found()
                if self._tables.is_upgraded:
                    self.notices.append(f"{path.name} was of version 0.5 and has got its checksums")
                """What an operator should know about how the store was found, a line each."""
                self._see_which_life_it_is(dice)
                self._contents = Contents(self._tables, self._recent)
            self._reserve = Reserve(files, self._place, limits.reserve_bytes)
            if limits.reserve_bytes and not self._reserve.is_missing:
                self._tables.set_room_aside(limits.reserve_bytes // TABLES_PART)
                files.keep_room(self._place)
            self.size_bytes = self._tables.size_bytes() + self._recent.size_bytes
            """The bytes that all messages take, without what the disk needs for them."""
            self._tables.db.execute(f"PRAGMA busy_timeout = {BUSY_RUNNING_MS}").close()
            self._remember_log()
            undo.pop_all()

    def _see_which_life_it_is(self, dice: random.Random) -> None:
        tables = self._tables
        with self._all_seen():
            counters = tables.counters()
            figures = (counters.get(name, 0) for name in COUNTERS_OF_LIFE)
            life, message_id, sequence_ordinal = figures
            stored = LifeNote(life, self._next_record - 1, message_id, sequence_ordinal, tables.home)
            home = self._identity.compare(stored, tables.own_message_ids, dice)
        self.notices += self._identity.notices
        if home != tables.home:
            try:
                with tables.transaction(flushed=True):
                    tables.put_home(home)
            except sqlite3.Error as error:
                if finds_no_room(error):
                    raise LifeFullError(self.path) from error
                raise

    def _remember_log(self) -> None:
        """Tell the witness which of SQLite's logs it is now; on a full disk it learns that with the next record."""
        if self._witness.salts != self._tables.log_salts:
            self._witness.salts = self._tables.log_salts
            with suppress(WitnessFullError):
                self._witness.flush()

    def _all_seen(self) -> AbstractContextManager[None]:
        """Within, the tables also have what a start found in the log and could not move there."""
        return self._tables.seen_with(self._recent) if self._segments() else nullcontext()

    @property
    def life(self) -> NewLife | None:
        """The life that is to begin with a transaction that says so; None if the last one goes on."""
        return self._identity.new

    @property
    def record_count(self) -> int:
        """How many transactions were committed since there was a store."""
        return self._next_record - 1

    @property
    def room_bytes(self) -> int | None:
        """How many bytes of new messages a batch may bring, and as many of neighbours'; None if there is no limit.

        0 if the reserve is in use, or the tables have had no room for long: what makes the store smaller goes on.
        """
        return 0 if self._is_overdrawn else self._reserve.share_bytes

    @property
    def lacks_room(self) -> bool:
        """Whether its reserve is not as it should be; `make_room` may mend that."""
        return self._reserve.is_short

    @property
    def is_usable(self) -> bool:
        """Whether it can go on, as it can after a commit that found no room."""
        return self._usable

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the files, and leave all in the tables if possible. What was committed is on disk already."""
        try:
            if self._usable:
                with explained(self.path):
                    self._settle()
        except StoreError:
            pass  # The log has it, for the process that opens the store next.
        finally:
            self._usable = False
            for segment in self._segments():
                segment.close()
            self._older, self._segment = [], None
            self._witness.close()
            self._identity.close()
            self._tables.close()
            if self._limits.reserve_bytes:
                self._files.keep_room(self._place)
            self._lock.close()

    # Reading

    def load(self) -> StoredState:
        """Return all that the node must know to start, oldest first; of the messages, only the held ones.

        Raises:
            StoreError: the file cannot be read, or its contents do not fit together.
        """
        with explained(self.path), sound(self.path):
            try:
                self._settle()
            except (StoreError, sqlite3.Error) as error:
                if not finds_no_room(error):
                    raise
            with self._all_seen():
                in_log = chain.from_iterable(segment.keys for segment in self._segments())
                state = load(self._tables, self._identity.new, chain(self._recent.gone, in_log))
            self._tables.set_aside([key for key, _ in state.hurt], {})
            return state

    def read(self, page: ReadPage | ReadExpired) -> list[tuple[int, bytes, bool]]:
        """Return the messages that are asked for, as (position, packet, final_ack), or with their key if they expire.

        Raises:
            StoreError: the file cannot be read.
        """
        with explained(self.path):
            rows = self._rows(page)
            if hurt := [key for key, packet, _ in rows if isinstance(packet, HurtPacket)]:
                with self._together:
                    self._tables.set_aside(hurt, self._logged(set(hurt)))
                rows = self._rows(page)
            if isinstance(page, ReadExpired):
                return rows
            return [(key & LAST_POSITION, packet, final_ack) for key, packet, final_ack in rows]

    def _rows(self, page: ReadPage | ReadExpired) -> list[tuple[int, bytes, bool]]:
        contents = self._contents
        return contents.expired(page) if isinstance(page, ReadExpired) else contents.page(page)

    def _logged(self, keys: set[int]) -> dict[int, MessageRow]:
        """Return those of these messages of the tables that the log has as well, as they were written."""
        return {
            row.key: row
            for segment in self._segments()
            if not keys.isdisjoint(segment.keys)
            for writes in found_segment(
                self._files, SegmentName(segment.number, segment.path), self._node
            ).records(is_last=segment is self._segment, acknowledged=self._next_record - 1)
            for row in writes.messages
            if row.key in keys and not isinstance(row.packet, HurtPacket)
        }

    def sequences(self, read: ReadSequences) -> list[IncomingRow]:
        """Return the incoming sequences that are asked for.

        Raises:
            StoreError: the file cannot be read.
        """
        with explained(self.path):
            found: dict[int, IncomingRow | None] = {row.queue: row for row in self._tables.sequences(read)}
        for (source, queue), row in self._recent.states.incoming.items():
            if source == read.source and read.first <= queue <= read.last:
                found[queue] = row
        return [row for row in found.values() if row is not None]

    def take_forgotten(self) -> int:
        """Return how many strangers' sequences were forgotten since the last call for lack of places."""
        count, self._tables.forgotten_count = self._tables.forgotten_count, 0
        return count

    def counts(self, kind: QueueKind) -> dict[str, int]:
        """Return how many messages the queues of one kind have, by name; empty queues are left out.

        Raises:
            StoreError: the file cannot be read.
        """
        with explained(self.path):
            return self._contents.counts(kind)

    def everything(self) -> Iterator[tuple[QueueRow, bytes]]:
        """Yield all undamaged messages with their queues, from a store that was just opened.

        Raises:
            StoreError: the file cannot be read.
        """
        assert not self.commits.count, "the log has what the tables lack"
        with explained(self.path), self._all_seen():
            for queue in self._tables.queues():
                with closing(self._tables.waiting(*keys_of(queue.queue), ())) as found:
                    yield from (
                        (queue, packet) for _, packet, _ in found if not isinstance(packet, HurtPacket)
                    )

    def find(self, message_id: int) -> list[tuple[int, bytes]]:
        """Return key and packet of the messages with this MessageID.

        It looks at all that was committed, which may take seconds: call it in a thread of its own.

        Raises:
            StoreError: the file cannot be read.
            UsageError: only one connection may read it just now.
        """
        with explained(self.path):
            with self._together:
                try:
                    db, in_tables = messages_of(self._files, self.path, message_id)
                except sqlite3.OperationalError as error:
                    if primary_code(error) != sqlite3.SQLITE_BUSY:
                        raise
                    raise UsageError(
                        "messages cannot be looked for by their identifiers just now: the node was started on a full"
                        " disk, or another program has its store open: ask for the queue"
                    ) from error
                recent, gone = list(self._recent.messages.rows.values()), set(self._recent.gone)
            with closing(db):
                whole = (whole_message(*columns) for columns in in_tables)
                found = {row.key: row.packet for row in whole if row.key not in gone}
        found |= {row.key: row.packet for row in recent if row.message_id == message_id}
        return sorted(found.items())

    # Writing

    def commit(self, writes: Writes) -> None:
        """Put all of it on disk, in one record with one flush.

        Raises:
            StoreError: nothing of it is there. The store goes on after a full disk; after anything worse it refuses
                each further commit, and the next process that opens it finds this batch complete or absent.
        """
        if not self._usable:
            raise StoreError(
                f"{self.path}: it failed before: start the node again; nothing acknowledged is lost"
            )
        began_s = perf_counter()
        with self._together, explained(self.path):
            segment = self._segment_for(writes)
            writes, gone = self._contents.resolved(writes)
            record = Record.of(self._next_record, writes)
            if not segment.has_room_for(record):
                segment, is_settled = self._segment_behind(segment, HEADER.size + record.size_bytes)
                if is_settled:
                    writes, gone = self._contents.resolved(writes)
            self._usable = False  # until the log and what we know of it are in step
            try:
                segment.append(record)
            except BaseException:
                self._usable = segment.is_sound
                raise
            self._witness.write(self._next_record, self._tables.log_salts)
            self._identity.committed(self._next_record, writes.counters)
            self._next_record += 1
            self.size_bytes += self._contents.add(writes, gone)
            self._usable = True
        self.commits.add(perf_counter() - began_s)

    def make_room(self, size_bytes: int = 0) -> bool:
        """Find room for a batch with this many bytes of new messages; with 0, make the reserve again if it is missing.

        Returns:
            Whether there is room for the batch.

        Raises:
            StoreError: the disk fails.
        """
        if not self._usable:
            return False
        with self._together, explained(self.path):
            self._reserve.make()
            share_bytes = self.room_bytes
            if share_bytes is None or size_bytes <= share_bytes:
                return True
            if not share_bytes:
                return False
            needed_bytes = size_bytes + SHARES * share_bytes
            if self._segment is not None and self._segment.free_bytes >= needed_bytes:
                return True
            try:
                self._segment = self._longer_segment(needed_bytes)
            except DiskFullError:
                return False
            return True

    def tidy(self) -> None:
        """Move a slice of what is due to the tables, if anything is: for turns of a node that commit nothing.

        A million messages may leave with a few commits, and what is due with each of them is more than a slice.

        Raises:
            StoreError: the disk fails.
        """
        if self._segment is not None and self._usable and self._has_work():
            with self._together, explained(self.path):
                self._segment_for(Writes())

    # Nothing stays of what has left

    def settle(self) -> None:
        """Move all to the tables, and begin the log anew: no commit needs the tables until that log is long.

        Raises:
            StoreError: the disk fails, or has no room for it just now.
        """
        with explained(self.path):
            self._settle()
            with self._together:
                self._begun()

    def overwrite(self) -> None:
        """Write the tables anew, so nothing stays in their files of what has left them.

        It takes about as long as a backup, and needs a disk with room for one. Meanwhile commits go to the
        log: call it in a thread of its own, after `settle`, and call `overwritten` after it.

        Raises:
            StoreError: it cannot be done now; nothing has changed.
        """
        with explained(self.path), closing(self._files.connect(self.path)) as db:
            write_anew(db)

    def overwritten(self) -> None:
        """Take back the room, in the tables and beside them, that `overwrite` has released.

        Raises:
            StoreError: the disk fails.
        """
        with explained(self.path):
            if self._limits.reserve_bytes and not self._reserve.is_missing:
                self._tables.set_room_aside(self._limits.reserve_bytes // TABLES_PART)
                self._files.keep_room(self._place)
            self._tables.look_at_log()
            self._remember_log()

    # The log, and how it gets to the tables

    def _segments(self) -> list[LogSegment]:
        return [*self._older, *([self._segment] if self._segment else [])]

    def _has_work(self) -> bool:
        """Whether the log or what is in memory has reached a limit, or something is due to the tables."""
        limits, recent = self._limits, self._recent
        return (
            self._due is not None
            or len(self._older) >= limits.segments
            or (self._reserve.is_missing and bool(self._older))
            or recent.messages.memory_bytes > limits.memory_bytes
            or recent.removal_count > REMOVALS * limits.slice_messages
        )

    def _segment_for(self, writes: Writes) -> LogSegment:
        """Return the segment for the next record. The log is kept within its limits on the way."""
        if self._segment is None:
            return self._begun()
        if not self._has_work():
            return self._segment
        limits, memory_bytes = self._limits, self._recent.messages.memory_bytes
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
                recent = self._recent
                self._due = _Due(self._older[0].keys, 0, len(recent.gone), len(recent.states.identifiers))
        if self._due is not None or self._recent.removal_count > REMOVALS * limits.slice_messages:
            self._try_to_spill(writes)
        return self._segment

    def _begun(self) -> LogSegment:
        """Begin the log's first segment. The tables know of it, so it cannot be mislaid unnoticed."""
        number, record = self._mark.segment, self._mark.record
        segment = self._new_segment(number, record, SMALLEST_BYTES)
        mark = self._mark._replace(is_begun=True)
        try:
            with self._tables.transaction(flushed=True):
                self._tables.put_mark(mark)
        except BaseException as error:
            if finds_no_room(error):  # The witness knows of it as well, with its first record.
                self._segment = segment
                return segment
            if primary_code(error) in POSTPONED_AFTER:
                self._reserve.take(segment)
            else:  # The tables may know of it after all.
                self._usable = False
                segment.close()
            raise
        self._mark, self._segment = mark, segment
        return segment

    def _new_segment(self, number: int, record: int, needed_bytes: int) -> LogSegment:
        """Make a segment of the usual size, or as large as the disk still has room for, if that is enough.

        Raises:
            StoreError: it cannot be made.
        """
        size_bytes = max(self._limits.segment_bytes, needed_bytes)
        while True:
            try:
                return LogSegment.create(self._files, self._place, self._node, number, record, size_bytes)
            except StoreError as error:
                if getattr(error.__cause__, "errno", None) not in NO_ROOM:
                    raise
                if needed_bytes <= self._reserve.size_bytes:
                    return self._reserve.become(self._place, self._node, number, record)
                if size_bytes <= needed_bytes:
                    raise DiskFullError(str(error)) from error
                size_bytes = max(needed_bytes, size_bytes // 8)

    def _next_segment(self, full: LogSegment, needed_bytes: int = 0) -> LogSegment:
        segment = self._new_segment(full.number + 1, self._next_record, max(needed_bytes, SMALLEST_BYTES))
        self._older.append(full)
        return segment

    def _longer_segment(self, needed_bytes: int) -> LogSegment:
        """Make a segment for a large batch alone. The reserve stays as it is.

        Raises:
            DiskFullError: there is no room for it.
        """
        full = self._segment or self._begun()
        number = full.number + 1
        try:
            segment = LogSegment.create(
                self._files, self._place, self._node, number, self._next_record, needed_bytes
            )
        except StoreError as error:
            if getattr(error.__cause__, "errno", None) in NO_ROOM:
                raise DiskFullError(str(error)) from error
            raise
        self._older.append(full)
        return segment

    def _segment_behind(self, full: LogSegment, needed_bytes: int) -> tuple[LogSegment, bool]:
        """Return a segment for a record that has no room in the last one, and whether all before it is in the tables.

        Raises:
            DiskFullError: there is no room for it anywhere.
        """
        try:
            self._segment = self._next_segment(full, needed_bytes)
        except DiskFullError:
            # Perhaps most of the log is obsolete, and the tables have room for the rest.
            self._take_over()
            segment = self._begun()
            if segment.free_bytes < needed_bytes:
                self._segment = self._next_segment(segment, needed_bytes)
            return self._segment or segment, True
        return self._segment, False

    def _try_to_spill(self, writes: Writes) -> None:
        """Move some of what is due to the tables. If that is not possible now, each commit tries again.

        Raises:
            StoreError, sqlite3.Error: the disk fails; or has been full, or the file in another's hands, for long.
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
                self._usable = False
                raise
            size_bytes = sum(segment.used_bytes for segment in self._segments())
            self._is_overdrawn = (
                size_bytes > OVERDRAFT * limits.segments * limits.segment_bytes
                or self._recent.messages.memory_bytes > OVERDRAFT * limits.memory_bytes
            )
            # With a reserve, all that makes the store larger is refused instead, until the tables have room.
            if self._is_overdrawn and not (limits.reserve_bytes and finds_no_room(error)):
                raise
        else:
            self._is_overdrawn = False

    def _spill(self, limit: int, limit_bytes: int) -> None:
        """Move at most `limit` messages from the oldest segment to the tables, and as many rows of all else.

        Raises:
            WitnessFullError, sqlite3.Error: the tables are as they were.
        """
        recent, states, due = self._recent, self._recent.states, self._due
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
        identifiers = states.first_identifiers(limit) if due else []
        is_done = (
            due is not None
            and due.looked_at + looked_at == len(due.keys)
            and due.removals <= len(gone)
            and due.identifiers <= len(identifiers)
        )
        following = self._segments()[1] if is_done else None
        if following is not None:
            self._witness.flush()
            self._identity.flush()
        mark = self._mark
        with self._tables.transaction(flushed=is_done):
            self._tables.put_queues(states.queues.values())
            self._tables.remove(gone)  # This is first, because what comes may need its room.
            self._tables.insert(rows)
            # Messages that are gone, and left for a later slice, are subtracted as they were when they went.
            self._tables.make_lasting(recent.lasting - recent.gone.keys())
            self._tables.put_identifiers(identifiers, states.forgotten_identifiers)
            if following is not None:
                # These may be newer than the segment: the later segments say the same again, if it comes to that.
                self._tables.put_states(states)
                mark = Mark(following.number, following.first_record, is_begun=True)
                self._tables.put_mark(mark)
        recent.take_out(rows, gone, identifiers, with_states=is_done)
        self._mark = mark
        if due is not None:
            due.looked_at += looked_at
            due.removals -= len(gone)
            due.identifiers -= len(identifiers)
        if is_done:
            self._due = None
            self._reserve.take(self._older.pop(0))

    def _settle(self) -> None:
        """Move all to the tables, and remove the log."""
        if self._segments():
            with self._together:
                self._take_over()

    def _take_over(self) -> None:
        segments = self._segments()
        mark = Mark(segments[-1].number + 1, self._next_record, is_begun=False)
        self._witness.flush()
        self._identity.flush()
        self._tables.let_grow(not self._reserve.is_missing)
        self._tables.take_over(self._recent, mark)
        self._recent.clear()
        self._mark, self._older, self._segment, self._due = mark, [], None, None
        for segment in segments:
            self._reserve.take(segment)

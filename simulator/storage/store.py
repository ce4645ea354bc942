"""A node's disk: a log to which each transaction is appended, and tables for data that lasts longer.

`Store.commit` writes one record to the log, flushes it, and keeps its contents in memory. Most messages leave the store
within a second; `log.py` moves the others to the tables.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from itertools import chain
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Final, Self

from mqproto.base.durations import Durations
from mqproto.simulator.base.storeerrors import (
    POSTPONED_AFTER,
    DamageError,
    LifeFullError,
    StoreError,
    explain,
    explained,
    finds_no_room,
    primary_code,
    sound,
)
from mqproto.simulator.storage.base import BUSY_RUNNING_MS, StoreTables, messages_of, write_anew
from mqproto.simulator.storage.checksums import whole_message
from mqproto.simulator.storage.contents import Contents, everything, load
from mqproto.simulator.storage.files import SYSTEM_FILES, Files
from mqproto.simulator.storage.log import LIMITS, Log, LogLimits
from mqproto.simulator.storage.recovery import recover, witness_of
from mqproto.simulator.storage.reserve import SHARES, Reserve
from mqproto.simulator.storage.segments import HEADER, Record
from mqproto.simulator.storage.witnesses.identity import Identity
from mqproto.simulator.storage.witnesses.life import LifeNote
from mqproto.simulator.storage.witnesses.witness import WitnessFullError
from mqproto.turn.effects import (
    COUNTERS_OF_LIFE,
    LAST_POSITION,
    HurtPacket,
    IncomingRow,
    NewLife,
    PostedRow,
    QueueKind,
    QueueRow,
    ReadExpired,
    ReadPage,
    ReadSequences,
    StoredState,
    Writes,
)
from mqproto.wire.guid import Guid

SYSTEM_DICE: Final = random.SystemRandom()
TABLES_PART: Final = 12
"""A divisor: the tables also set aside the reserve's size divided by this number."""


class Store:
    """The store of one queue manager.

    Args:
        path: the file of the tables; the log is next to it. The file is made if it is missing, but its folder must
            exist.
        node: the GUID that the queue manager has. A file of another queue manager is refused.
        limits: limits for the data that is only in the log.
        files: the operating system's files, or simulated ones.
        dice: chooses the first MessageID of a life.
        is_adopted: whether an operator has said that the store was moved here, so another life begins.
        again: the options with which a suggested command finds the node, with a space in front.

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
        self._place = place = path.resolve()
        self._node, self._files, self._limits = node, files, limits
        self._together = Lock()
        """A lock that is held while the log and the tables change, because another thread may read both."""
        with explained(path), ExitStack() as undo:
            self._lock = undo.enter_context(closing(files.lock(path)))
            if limits.reserve_bytes and files.identity(place).inode:
                undo.callback(files.keep_room, place)  # A store that does not start loses no room.
            self._identity = undo.enter_context(
                closing(Identity(files, place, node, is_adopted=is_adopted, again=again))
            )
            with sound(path):
                self._tables = StoreTables(files, path, node)
                undo.callback(self._tables.leave)
                self._witness = undo.enter_context(closing(witness_of(files, self._tables, place, node)))
                found = recover(files, self._tables, self._witness, place, node)
                self.notices, self.unfinished = found.notices, found.unfinished
                """Facts about the state in which the store was found, one line each; and a report.

                Both are for an operator. The report is about a record that was cut short by a kill and never confirmed;
                it is empty if there was no such record.
                """
                self._reserve = Reserve(files, place, node, limits.reserve_bytes, limits.segment_bytes)
                self._log = Log(limits, self._reserve, self._tables, found, self._witness, self._identity)
                self._recent = self._log.recent
                for segment in self._log.segments():
                    undo.callback(segment.close)
                self._tables.set_aside_found()
                self._see_which_life_it_is(dice)
                self._contents = Contents(self._tables, self._recent)
            self._reserve.make()
            if limits.reserve_bytes and not self._reserve.is_missing:
                self._tables.set_room_aside(limits.reserve_bytes // TABLES_PART)
                files.keep_room(place)
            self.size_bytes = self._tables.size_bytes() + self._recent.size_bytes
            """The number of bytes that all messages take, without the disk's overhead."""
            self._tables.db.execute(f"PRAGMA busy_timeout = {BUSY_RUNNING_MS}").close()
            self._remember_log()
            undo.pop_all()

    def _see_which_life_it_is(self, dice: random.Random) -> None:
        tables = self._tables
        with self._all_seen():
            counters = tables.counters()
            life, message_id, sequence_ordinal = (counters.get(name, 0) for name in COUNTERS_OF_LIFE)
            stored = LifeNote(life, self._log.next_record - 1, message_id, sequence_ordinal, tables.home)
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
        """Record the salts of SQLite's log in the witness.

        If the disk is full, the witness is written with the next record instead.
        """
        if self._witness.salts != self._tables.log_salts:
            self._witness.salts = self._tables.log_salts
            with suppress(WitnessFullError):
                self._witness.flush()

    def _all_seen(self) -> AbstractContextManager[None]:
        """Within the block, the tables also show certain rows that are still in the log.

        These are rows that were found in the log at the start but could not be moved to the tables.
        """
        return self._tables.seen_with(self._recent) if self._log.segments() else nullcontext()

    @property
    def life(self) -> NewLife | None:
        """The life that the next transaction will begin; None if the last life continues."""
        return self._identity.new

    @property
    def record_count(self) -> int:
        """The number of transactions that were committed since the store was made."""
        return self._log.next_record - 1

    @property
    def room_bytes(self) -> int | None:
        """How many bytes a batch from applications may add. A batch from neighbours may add as many again.

        None if there is no limit; 0 if the reserve is in use, or if the tables have had no room for a long time. Even
        at 0, writes that shrink the store are accepted.
        """
        return 0 if self._log.is_overdrawn else self._reserve.share_bytes

    @property
    def lacks_room(self) -> bool:
        """Whether the store's reserve is missing or too small, which `make_room` may repair."""
        return self._reserve.is_short

    @property
    def is_usable(self) -> bool:
        """Whether the store can continue, as it can even after a commit that failed for lack of room."""
        return self._log.is_usable

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failed: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the files, and move everything to the tables if possible. All commits are on disk in any case."""
        try:
            if self._log.is_usable:
                with explained(self.path):
                    self._settle()
        except StoreError:
            pass  # The log has it, for the process that opens the store next.
        finally:
            self._log.close()
            self._witness.close()
            self._identity.close()
            self._tables.close()
            if self._limits.reserve_bytes:
                self._files.keep_room(self._place)
            self._lock.close()

    # Reading

    def load(self) -> StoredState:
        """Return everything that the node needs to start, oldest first.

        Of the messages, only those that are held are included.

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
                in_log = chain.from_iterable(segment.keys for segment in self._log.segments())
                state = load(self._tables, self._identity.new, chain(self._recent.gone, in_log))
            self._tables.set_aside([key for key, _ in state.hurt], {})
            return state

    def read(self, page: ReadPage | ReadExpired) -> list[tuple[int, bytes, bool]]:
        """Return a page's messages as (position, packet, final_ack); expired ones have a key instead of a position.

        Raises:
            StoreError: the file cannot be read.
        """
        with explained(self.path):
            rows = self._rows(page)
            if hurt := [key for key, packet, _ in rows if isinstance(packet, HurtPacket)]:
                with self._together:
                    self._tables.set_aside(hurt, self._log.copies_of(set(hurt), self._files, self._node))
                rows = self._rows(page)
            if isinstance(page, ReadExpired):
                return rows
            return [(key & LAST_POSITION, packet, final_ack) for key, packet, final_ack in rows]

    def _rows(self, page: ReadPage | ReadExpired) -> list[tuple[int, bytes, bool]]:
        return self._contents.expired(page) if isinstance(page, ReadExpired) else self._contents.page(page)

    def sequences(self, read: ReadSequences) -> list[IncomingRow]:
        """Return the incoming sequences that `read` asks for.

        Raises:
            StoreError: the file cannot be read.
        """
        with explained(self.path):
            return self._contents.sequences(read)

    def posted(self, queue: str, key: str) -> PostedRow | None:
        """Return the message that was posted to a queue with this id; None if there is none.

        Raises:
            DamageError: a message that may have this id differs from the one that was written.
            StoreError: the file cannot be read.
        """
        try:
            return self._contents.posted(queue, key)
        except sqlite3.Error as error:
            explain(self.path, error)
            raise

    def posted_as(self, message_id: int) -> PostedRow | None:
        """Return the posted message with this MessageID, as `posted` does."""
        try:
            return self._contents.posted_as(message_id)
        except sqlite3.Error as error:
            explain(self.path, error)
            raise

    def owed(self) -> list[PostedRow]:
        """Return the posted messages of which a shared database has yet to be told.

        Raises:
            StoreError: the file cannot be read.
        """
        with explained(self.path):
            return self._contents.owed()

    def forget_posted(self, since_s: int, limit: int = 1_000) -> int:
        """Forget a slice of the posted messages in the tables that have not changed since then. Return their number.

        This may be undone by a power loss, and then happens again. It is left for later if the tables cannot be written
        now.

        Raises:
            StoreError: the disk fails.
        """
        if not self._log.is_usable:
            return 0
        try:
            with self._together, self._tables.transaction(flushed=False):
                return self._tables.posted.forget(since_s, limit)
        except sqlite3.Error as error:
            if primary_code(error) in POSTPONED_AFTER:
                return 0
            explain(self.path, error)
            raise

    def take_forgotten(self) -> int:
        """Return how many strangers' sequences have been forgotten since the last call.

        They are forgotten when there are too many of them.
        """
        count, self._tables.forgotten_count = self._tables.forgotten_count, 0
        return count

    def counts(self, kind: QueueKind) -> dict[str, int]:
        """Return the number of messages in each queue of one kind, keyed by the queue's name.

        Empty queues are left out.

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
            yield from everything(self._tables)

    def find(self, message_id: int) -> list[tuple[int, bytes]]:
        """Return the keys and packets of the messages with this MessageID.

        The search covers all committed messages, and may take seconds, so call it in a separate thread.

        Raises:
            StoreError: the file cannot be read.
            UsageError: only one connection may read it at the moment.
        """
        with explained(self.path):
            with self._together:
                db, in_tables = messages_of(self._files, self.path, message_id)
                recent, gone = list(self._recent.messages.rows.values()), set(self._recent.gone)
            with closing(db):
                whole = (whole_message(*columns) for columns in in_tables)
                found = {row.key: row.packet for row in whole if row.key not in gone}
        found |= {row.key: row.packet for row in recent if row.message_id == message_id}
        return sorted(found.items())

    # Writing

    def commit(self, writes: Writes) -> None:
        """Put the whole batch on disk, in one record with one flush.

        Raises:
            StoreError: no part of the batch took effect. If the disk was full, the store continues. After a worse
                fault, it refuses all further commits, and the next process that opens it finds this batch either
                complete or absent.
        """
        if not self._log.is_usable:
            raise StoreError(
                f"{self.path}: it failed before: start the node again; nothing acknowledged is lost"
            )
        began_s = perf_counter()
        with self._together:
            try:
                log = self._log
                segment = log.segment_for(writes)
                writes, gone = self._contents.resolved(writes)
                record = Record.of(log.next_record, writes)
                if record.size_bytes > segment.free_bytes:
                    segment, is_settled = log.segment_behind(segment, HEADER.size + record.size_bytes)
                    if is_settled:
                        writes, gone = self._contents.resolved(writes)
                log.is_usable = False  # until the log and what we know of it are in step
                try:
                    segment.append(record)
                except BaseException:
                    log.is_usable = segment.is_sound
                    raise
                self._witness.write(log.next_record, self._tables.log_salts)
                self._identity.committed(log.next_record, writes.counters)
                log.next_record += 1
                self.size_bytes += self._contents.add(writes, gone)
                log.is_usable = True
            except (DamageError, sqlite3.Error) as error:
                explain(self.path, error)
                raise
        self.commits.add(perf_counter() - began_s)

    def make_room(self, size_bytes: int = 0) -> bool:
        """Find room for a batch with this many bytes of new messages.

        First restore the reserve if it is missing or too small; with 0 bytes, do nothing else.

        Returns:
            Whether there is room for the batch.

        Raises:
            StoreError: the disk fails.
        """
        if not self._log.is_usable:
            return False
        with self._together, explained(self.path):
            self._reserve.make()
            share_bytes = self.room_bytes
            if share_bytes is None or size_bytes <= share_bytes:
                return True
            return bool(share_bytes) and self._log.finds_room(size_bytes + SHARES * share_bytes)

    def tidy(self) -> None:
        """Move a slice of the data that is due, if there is any, to the tables.

        A node calls this in turns without a commit. A few commits can remove a million messages, and each of these
        commits makes more than one slice due.

        Raises:
            StoreError: the disk fails.
        """
        if self._log.is_usable and self._log.has_work():
            with self._together, explained(self.path):
                self._log.segment_for(Writes())

    # Nothing stays of what has left

    def settle(self) -> None:
        """Move everything to the tables, and begin a new log.

        Commits do not need the tables until the new log has grown long.

        Raises:
            StoreError: the disk fails, or has no room for this now.
        """
        with explained(self.path):
            self._settle()
            with self._together:
                self._log.begin()

    def overwrite(self) -> None:
        """Rewrite the tables, so that their files no longer contain deleted data.

        This takes about as long as a backup, and needs as much room on the disk. Commits go to the log meanwhile. So
        call this in a separate thread, after `settle`, and call `overwritten` afterward.

        Raises:
            StoreError: this cannot be done now; nothing has changed.
        """
        with explained(self.path), closing(self._files.connect(self.path)) as db:
            write_anew(db)

    def overwritten(self) -> None:
        """Reclaim the room that `overwrite` has released in the tables and next to them, and set it aside again.

        Raises:
            StoreError: the disk fails.
        """
        with explained(self.path):
            if self._limits.reserve_bytes and not self._reserve.is_missing:
                self._tables.set_room_aside(self._limits.reserve_bytes // TABLES_PART)
                self._files.keep_room(self._place)
            self._tables.look_at_log()
            self._remember_log()

    def _settle(self) -> None:
        """Move everything to the tables, and remove the log."""
        if self._log.segments():
            with self._together:
                self._log.take_over()

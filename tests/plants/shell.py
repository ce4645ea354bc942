"""Faults of the layers between a core and its disk: the loop and the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace
from typing import Any

from mqproto.manager.queuemanager import QueueManager
from mqproto.simulator.base.storeerrors import DiskFullError, StoreError
from mqproto.simulator.storage import Store, contents, recovery, segments, store
from mqproto.simulator.storage.base import StoreTables
from mqproto.simulator.storage.contents import Contents, Row
from mqproto.simulator.storage.recent import RecentRows
from mqproto.simulator.storage.reserve import Reserve
from mqproto.simulator.storage.segments import HEAD, LENGTHS, FoundSegment, LogSegment
from mqproto.simulator.storage.tables import MessageTable
from mqproto.simulator.storage.witnesses.witness import StoreWitness
from mqproto.simulator.world.node import lifetime
from tests.plants.planting import plant

ON_DISK = "disks_have_what_was_committed"
LOUD = "no_error_of_our_own"


class Instead:
    """An object that has the attributes of another one, except for those that are given."""

    def __init__(self, other: Any, **given: Any) -> None:
        self.other = other
        vars(self).update(given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.other, name)


def nothing(*arguments: Any) -> None:
    """Do nothing."""


# The order of the loop


@plant(
    lifetime,
    "carry_out",
    "acknowledged_is_on_disk",
    "order_acks_leave_no_gap",
    "higher_priorities_leave_first",
)
def send_before_commit(sound: Any) -> Any:
    """Neighbours are told about data that is not on disk yet."""

    def carry_out(core: Any, batch: Any, now: Any, hands: Any) -> None:
        for send in batch.sends:
            hands.send(send)
        sound(core, replace(batch, sends=[]), now, hands)

    return carry_out


@plant(lifetime, "carry_out", "accepted_is_on_disk", "handed_out_is_on_disk")
def deliver_before_commit(sound: Any) -> Any:
    """Applications are told about data that is not on disk yet."""

    def carry_out(core: Any, batch: Any, now: Any, hands: Any) -> None:
        hands.deliver(batch.deliveries)
        sound(core, replace(batch, deliveries=[]), now, hands)

    return carry_out


@plant(lifetime, "carry_out", "nothing_is_retained", "endings_have_reasons", LOUD)
def commit_after_reads(sound: Any) -> Any:
    """A queue asks for a message that the same batch puts on disk, and does not get it."""

    def carry_out(core: Any, batch: Any, now: Any, hands: Any) -> None:
        for page in batch.reads:
            core.loaded(page, hands.read(page), now)
        sound(core, replace(batch, reads=[]), now, hands)

    return carry_out


@plant(lifetime, "carry_out", "acknowledged_is_on_disk", "accepted_is_on_disk", "handed_out_is_on_disk")
def commit_last(sound: Any) -> Any:
    """The commit is the last step of a batch."""

    def carry_out(core: Any, batch: Any, now: Any, hands: Any) -> None:
        sound(core, replace(batch, writes=None), now, hands)
        if batch.writes is not None:
            core.stored(hands.commit(batch.writes))

    return carry_out


@plant(lifetime, "carry_out", "closed_after_what_was_sent")
def close_before_send(sound: Any) -> Any:
    """The last packets of a session are not sent."""

    def carry_out(core: Any, batch: Any, now: Any, hands: Any) -> None:
        for close in batch.closes:
            hands.close(close)
        sound(core, replace(batch, closes=[]), now, hands)

    return carry_out


@plant(
    lifetime,
    "carry_out",
    "acknowledged_is_on_disk",
    "accepted_is_on_disk",
    "handed_out_is_on_disk",
    "nothing_is_retained",
    "unused_sessions_are_closed",
)
def go_on_after_a_commit_that_failed(sound: Any) -> Any:
    """The disk was full, but the rest of the batch is carried out."""

    def carry_out(core: Any, batch: Any, now: Any, hands: Any) -> None:
        try:
            sound(core, batch, now, hands)
        except StoreError:
            sound(core, replace(batch, writes=None), now, hands)

    return carry_out


@plant(lifetime, "carry_out", LOUD)
def carry_out_twice(sound: Any) -> Any:
    """A batch is committed, and then committed again."""

    def carry_out(core: Any, batch: Any, now: Any, hands: Any) -> None:
        sound(core, batch, now, hands)
        if batch.writes is not None:
            hands.commit(batch.writes)

    return carry_out


# What is flushed, and in which order


@plant(LogSegment, "append", ON_DISK, LOUD)
def leave_out_the_flush(sound: Any) -> Any:
    """A record is written, but the operating system may not have put it on disk."""

    def append(self: LogSegment, record: Any) -> None:
        file = self._file
        self._file = Instead(file, flush=nothing)
        try:
            sound(self, record)
        finally:
            self._file = file

    return append


@plant(LogSegment, "create", ON_DISK, LOUD)
def leave_out_the_flush_of_a_name(sound: Any) -> Any:
    """A segment is flushed, but its folder is not."""
    return classmethod(
        lambda cls, files, *others: sound.__func__(cls, Instead(files, flush_folder=nothing), *others)
    )


@plant(LogSegment, "create", LOUD)
def leave_out_the_flush_of_a_header(sound: Any) -> Any:
    """The tables know of a segment that may not have a header yet."""

    def create(cls: type[LogSegment], files: Any, *others: Any) -> Any:
        unflushed = Instead(files, create=lambda path: Instead(files.create(path), flush=nothing))
        segment = sound.__func__(cls, unflushed, *others)
        segment._file = segment._file.other
        return segment

    return classmethod(create)


@plant(StoreWitness, "flush", LOUD)
def leave_out_the_flush_of_the_witness(sound: Any) -> Any:
    """After a power loss, the witness lags behind the tables, as if it came from an earlier moment."""
    return nothing


@plant(Store, "commit", LOUD)
def have_the_witness_ahead_of_the_log(sound: Any) -> Any:
    """A record is said to be on disk before it is."""

    def commit(self: Store, writes: Any) -> None:
        self._witness.write(self._log.next_record, self._tables.log_salts)
        sound(self, writes)

    return commit


@plant(Store, "commit", ON_DISK)
def have_the_file_of_the_life_ahead_of_the_log(sound: Any) -> Any:
    """The life file counts a record that is lost in a crash, so the store looks as if it had been restored."""

    def commit(self: Store, writes: Any) -> None:
        self._identity.committed(self._log.next_record, writes.counters)
        sound(self, writes)

    return commit


@plant(StoreTables, "transaction", ON_DISK, LOUD)
def cut_the_log_before_the_tables_are_flushed(sound: Any) -> Any:
    """A segment's data is in the tables, but the operating system may not have put it on disk."""
    return lambda self, *, flushed: sound(self, flushed=False)


@plant(store, "recover", ON_DISK, LOUD)
def remove_a_segment_when_it_is_read(sound: Any) -> Any:
    """After a crash, a segment of the log is deleted before the tables have its data."""

    def recover(files: Any, *others: Any) -> Any:
        def read(path: Any) -> Any:
            data = files.read(path)
            files.remove(path)
            return data

        return sound(Instead(files, read=read, remove=nothing), *others)

    return recover


@plant(StoreTables, "put_mark", LOUD)
def forget_where_the_log_begins(sound: Any) -> Any:
    """A segment is deleted, but the tables still ask for it."""
    return lambda self, mark: sound(self, mark) if mark.is_begun else None


# What a record says


@plant(Store, "commit", ON_DISK)
def split_a_batch_in_two(sound: Any) -> Any:
    """Arriving messages are committed in one transaction, and leaving ones in the next."""

    def commit(self: Store, writes: Any) -> None:
        if writes.messages and writes.removals:
            sound(self, replace(writes, removals=[]))
            writes = replace(writes, queues=[], messages=[], finals=[], moves=[])
        sound(self, writes)

    return commit


@plant(segments, "encoded", ON_DISK, LOUD)
def leave_a_removal_out_of_the_log(sound: Any) -> Any:
    """A removed message reappears after a crash."""
    return lambda writes: sound(replace(writes, removals=writes.removals[1:]))


@plant(LogSegment, "append", ON_DISK, LOUD)
def take_a_write_that_failed_for_done(sound: Any) -> Any:
    """The store does not report that the disk is full."""

    def append(self: LogSegment, record: Any) -> None:
        try:
            sound(self, record)
        except StoreError:
            self.is_sound = True

    return append


@plant(FoundSegment, "_found", LOUD)
def take_a_torn_record_for_whole(sound: Any) -> Any:
    """Nobody checks the checksum of the last record."""

    def found(self: FoundSegment, data: memoryview, at: int) -> tuple[memoryview, memoryview] | None:
        start = at + HEAD.size
        if start > len(data) or not any(data[at:start]):
            return None
        _, head_bytes, packets_bytes = LENGTHS.unpack_from(data, at)
        middle, end = start + head_bytes, start + head_bytes + packets_bytes
        return (data[start:middle], data[middle:end]) if end <= len(data) else None

    return found


@plant(FoundSegment, "_may_be_torn", LOUD, "disks_have_what_was_committed")
def take_a_torn_record_for_damage(sound: Any) -> Any:
    """A node that was killed during a write no longer starts."""
    return lambda self, at: False


@plant(FoundSegment, "_may_be_torn", LOUD)
def take_only_an_end_for_torn(sound: Any) -> Any:
    """The beginning of an unfinished record is believed to be there, as if disks wrote sectors in order."""
    return lambda self, at: sound(self, at) and any(self._data[at : at + HEAD.size])


@plant(FoundSegment, "records", ON_DISK, LOUD)
def lose_the_last_record(sound: Any) -> Any:
    """After a crash, the newest transaction is mistaken for a torn one."""

    def records(self: FoundSegment, *, is_last: bool, acknowledged: int) -> Iterator[Any]:
        found = list(sound(self, is_last=is_last, acknowledged=acknowledged))
        return iter(found[:-1] if is_last else found)

    return records


@plant(FoundSegment, "records", ON_DISK)
def carry_out_a_record_twice(sound: Any) -> Any:
    """After a crash the newest transaction is carried out again."""

    def records(self: FoundSegment, *, is_last: bool, acknowledged: int) -> Iterator[Any]:
        found = list(sound(self, is_last=is_last, acknowledged=acknowledged))
        return iter([*found, *found[-1:]] if is_last else found)

    return records


@plant(StoreTables, "mark", ON_DISK, LOUD)
def replay_an_old_segment(sound: Any) -> Any:
    """The remains of a log that was already moved to the tables are moved there again."""

    def mark(self: StoreTables) -> Any:
        sound_mark = sound(self)
        there = segments.segments_of(self._files, self.path)
        if not there or there[0].number >= sound_mark.segment:
            return sound_mark
        [(node,)] = self._rows("SELECT guid FROM node")
        oldest = FoundSegment.read(self._files, there[0], node)
        return sound_mark._replace(segment=there[0].number, record=oldest.first_record)

    return mark


# What goes from the log to the tables


@plant(LogSegment, "append", ON_DISK, LOUD)
def cut_the_log_before_all_of_it_is_in_the_tables(sound: Any) -> Any:
    """The last message of each record is left behind when its segment is moved to the tables."""

    def append(self: LogSegment, record: Any) -> None:
        sound(self, record)
        del self.keys[-1:]

    return append


@plant(MessageTable, "remove", ON_DISK, LOUD)
def lose_a_removal(sound: Any) -> Any:
    """A received message stays in the tables."""
    return lambda self, sizes: sound(self, dict(list(sizes.items())[1:]))


@plant(MessageTable, "make_lasting", ON_DISK)
def lose_what_no_longer_expires(sound: Any) -> Any:
    """A message that was to be kept for good expires after all."""
    return nothing


@plant(RecentRows, "take_out", ON_DISK, LOUD)
def keep_what_went_to_the_tables(sound: Any) -> Any:
    """A message that is moved to the tables also stays in the log, and counts twice."""
    return lambda self, rows, *others, **states: sound(self, [], *others, **states)


# What is read


@plant(contents, "fitting", ON_DISK)
def pages_that_pass_over_what_does_not_fit(sound: Any) -> Any:
    """If a message is too large for a page, the page continues with smaller messages that follow it."""

    def fitting(rows: Iterable[Row], limit_messages: int, limit_bytes: int) -> list[Row]:
        found, *others = [*rows, None]
        page = [] if found is None else [found]
        for row in others:
            size_bytes = sum(len(packet) for _, packet, _ in page)
            if row is not None and len(page) < limit_messages and size_bytes + len(row[1]) <= limit_bytes:
                page.append(row)
        return page

    return fitting


@plant(MessageTable, "waiting", ON_DISK)
def read_what_is_gone(sound: Any) -> Any:
    """Messages that the log has removed are read from the tables."""
    return lambda self, first, last, gone: sound(self, first, last, ())


@plant(contents, "heapq", ON_DISK)
def read_the_log_before_the_tables(sound: Any) -> Any:
    """Newer messages come first."""
    return SimpleNamespace(merge=lambda stored, recent: chain(recent, stored))


@plant(Contents, "add", ON_DISK)
def forget_to_count_what_is_gone(sound: Any) -> Any:
    """The size that a store reports never decreases."""
    return lambda self, writes, gone: max(0, sound(self, writes, gone))


@plant(QueueManager, "has_room", "full_disks_take_nothing_new", "reserves_last")
def take_messages_on_a_full_disk(sound: Any) -> Any:
    """The core is not told that the reserve is in use, so new messages use it up."""
    return lambda self, room_bytes: None


@plant(Reserve, "_become", "reserves_last", LOUD)
def have_no_reserve_when_it_is_needed(sound: Any) -> Any:
    """The reserve is not used when the disk is full."""

    def become(self: Reserve, *place: Any) -> Any:
        raise DiskFullError(f"{self.path}: the disk is full")

    return become


@plant(recovery, "finds_no_room", "full_disks_end_no_node")
def start_where_there_is_room_alone(sound: Any) -> Any:
    """A node does not start if the tables have no room for what is in its log."""
    return lambda error: False


@plant(recovery, "_see_that_it_is_on_disk", LOUD, ON_DISK)
def start_on_what_only_the_system_has(sound: Any) -> Any:
    """A record that a killed process did not flush is believed to be on disk."""
    return nothing

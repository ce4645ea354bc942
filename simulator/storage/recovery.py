"""After a crash, moves the leftover log into the tables, before anything else happens to the store."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

from mqproto.simulator.base.storeerrors import (
    DiskFullError,
    LifeFullError,
    StoreError,
    finds_no_room,
    repair_advice,
)
from mqproto.simulator.storage.base import BEGINNING, Mark, StoreTables
from mqproto.simulator.storage.files import DRAFT, Files
from mqproto.simulator.storage.recent import RecentRows, Size
from mqproto.simulator.storage.segments import (
    FoundSegment,
    LogSegment,
    SegmentName,
    damaged,
    explained_file,
    segment_path,
    segments_of,
)
from mqproto.simulator.storage.witnesses.witness import Said, StoreWitness, witness_path
from mqproto.turn.effects import HurtPacket, Writes
from mqproto.wire.guid import Guid


class Recovered(NamedTuple):
    """What was found out about a log that was there when the store was opened.

    mark: the place where the log begins.
    notices: facts about the start for an operator, one line for each.
    record: the number of the next record.
    recent: the rows that the tables still lack; empty if the tables had room for all of them.
    segments: the segments with the rows that the tables lack, if any. Writing continues in the last one.
    unfinished: the report about a last record that a kill may have cut short; empty if there is none.
    """

    mark: Mark
    notices: list[str]
    record: int
    recent: RecentRows
    segments: list[LogSegment]
    unfinished: str


def witness_of(files: Files, tables: StoreTables, path: Path, node: Guid) -> StoreWitness:
    """Return the witness of a store's log. A store that never had a log gets a new witness.

    Raises:
        LifeFullError: a life is about to begin, and the disk has no room for its file.
        StoreError: the witness is missing or damaged, or belongs to another node.
    """
    mark = tables.mark()
    with explained_file(path.parent):
        there = files.names(path.parent)
        for name in there:
            if name.startswith(f"{path.name}-") and name.endswith(DRAFT):
                files.remove(path.with_name(name))
    if witness_path(path).name in there:
        return StoreWitness.open(files, path, node)
    if mark != BEGINNING:
        raise StoreError(f"{path}: {witness_path(path).name} is missing, {repair_advice(path)}")
    try:
        return StoreWitness.create(files, path, node, Said(mark.record - 1, tables.log_salts))
    except DiskFullError as error:
        raise LifeFullError(witness_path(path)) from error


def recover(files: Files, tables: StoreTables, witness: StoreWitness, path: Path, node: Guid) -> Recovered:
    """Move the log into the tables. Afterward, no segment is left, unless the disk has no room for the move.

    Nothing is changed before the whole log has been read. If the process dies meanwhile, the next process starts again.

    Raises:
        StoreError: the log is damaged or incomplete, or the disk fails.
    """
    mark = tables.mark()
    there = segments_of(files, path)
    names = [name for name in there if name.number >= mark.segment]
    _see_that_none_is_missing(path, mark, names)
    recent = RecentRows()
    record = mark.record
    notices, unfinished = list[str](), ""
    found: list[tuple[FoundSegment, list[int]]] = []
    for name in names:
        segment, keys = FoundSegment.read(files, name, node), list[int]()
        if segment.first_record != record:
            # Nothing within the one before was broken, so it was cut between two records.
            cut = names[max(0, names.index(name) - 1)]
            raise damaged(
                cut.path, f"record {record} is missing, {name.path.name} has {segment.first_record}"
            )
        for writes in segment.records(is_last=name == names[-1], acknowledged=witness.record):
            take_again(recent, tables, writes)
            keys += [row.key for row in writes.messages]
            record += 1
        if record - 1 > witness.record:  # No kill leaves it behind and half a record: the power went.
            notices += [segment.torn] * bool(segment.torn)
        else:
            unfinished = segment.torn
        notices += [segment.flipped] * bool(segment.flipped)
        segment.forget()
        found.append((segment, keys))
    _see_that_the_witness_agrees(path, mark, names, witness, record)
    if names and record - 1 > witness.record:
        _see_that_it_is_on_disk(files, names[-1].path)
    witness.record = record - 1
    for name in set(there).difference(names):
        with explained_file(name.path):
            files.remove(name.path)
    try:
        witness.flush()
        if names or mark.is_begun:
            following = Mark(names[-1].number + 1, record, is_begun=False)
            tables.take_over(recent, following)
            mark = following
    except (StoreError, sqlite3.Error) as error:
        is_hurt = any(isinstance(row.packet, HurtPacket) for row in recent.messages.rows.values())
        if not finds_no_room(error) or is_hurt:
            raise
        notices.append(
            f"the disk is full, and the log stays as it is: {path.name} has no room for what it says"
        )
        _leave_out_what_the_tables_have(tables, recent)
        # The process that made the last one may have been killed before its name was on disk.
        with explained_file(path):
            files.flush_folder(path.parent)
        segments = [LogSegment.gone_on(files, *each) for each in found]
        return Recovered(mark, notices, record, recent, segments, unfinished)
    for name in names:
        with explained_file(name.path):
            files.remove(name.path)
    return Recovered(mark, notices, record, RecentRows(), [], unfinished)


def take_again(recent: RecentRows, tables: StoreTables, writes: Writes) -> None:
    """Add a record of the log. The tables may already have a part of it."""
    # Rows of this record that the tables have already were not there when an earlier one removed those keys.
    for row in writes.messages:
        recent.gone.pop(row.key, None)
    gone: dict[int, Size] = {}
    for first, last in writes.removals:
        if tables.messages.may_have(first):
            gone |= tables.messages.sizes(first, last)
    recent.add(writes, gone)


def _see_that_it_is_on_disk(files: Files, path: Path) -> None:
    """Flush the last record. It may not be on disk if the process that wrote it was killed.

    Without this, a power loss could undo the record after the store has acted on it.
    """
    with explained_file(path):
        file = files.open(path)
        try:
            file.flush()
        finally:
            file.close()


def _leave_out_what_the_tables_have(tables: StoreTables, recent: RecentRows) -> None:
    """Leave out the part of the log that an earlier process has already moved to the tables."""
    rows = recent.messages.rows
    there = tables.messages.those_there(rows)
    recent.lasting |= {key for key in there if rows[key].expires_s is None}
    recent.messages.take_keys(there)


def _see_that_none_is_missing(path: Path, mark: Mark, names: list[SegmentName]) -> None:
    last = names[-1].number if names else mark.segment - (not mark.is_begun)
    missing = {*range(mark.segment, last + 1)}.difference(name.number for name in names)
    if missing:
        lost = segment_path(path, min(missing))
        raise StoreError(f"{path}: {lost.name} is missing, which has messages: {repair_advice(path)}")


def _see_that_the_witness_agrees(
    path: Path, mark: Mark, names: list[SegmentName], witness: StoreWitness, record: int
) -> None:
    """Check that the log has every record that was reported to be on disk, and that the tables are not newer."""
    if record <= witness.record:
        gone = (
            f"record {record} is" if record == witness.record else f"records {record} to {witness.record} are"
        )
        if names:
            raise damaged(names[-1].path, f"{gone} gone from its end")
        raise StoreError(
            f"{path}: {gone} gone: it, or {witness.path.name}, is of another moment: {repair_advice(path)}"
        )
    if mark.record > witness.record + 1:
        raise StoreError(
            f"{witness.path}: it is of an earlier moment, when record {witness.record} was the newest;"
            f" {path.name} has all up to {mark.record - 1}: {repair_advice(path)}"
        )

"""What a crash has left of the log goes to the tables, before anything else happens to the store."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mqproto.wire.guid import Guid
from simulator.base.storeerrors import StoreError, repair_advice
from simulator.storage.base import BEGINNING, Mark, Tables
from simulator.storage.files import DRAFT, Files
from simulator.storage.opening.earlier import found_segment
from simulator.storage.recent import Recent, Size
from simulator.storage.segments import (
    SegmentName,
    damaged,
    explained_file,
    segment_path,
    segments_of,
)
from simulator.storage.witnesses.witness import Witness, witness_path


class Recovered(NamedTuple):
    """What a start has found.

    mark: where the next log begins; no segment is left.
    notices: what an operator should know of it, a line each.
    """

    mark: Mark
    notices: list[str]


def witness_of(files: Files, tables: Tables, path: Path, node: Guid) -> Witness:
    """The witness of a store's log. One that has no log yet, and never had one, gets its own.

    Raises:
        StoreError: it is missing, damaged or another node's.
    """
    mark = tables.mark()
    with explained_file(path.parent):
        there = files.names(path.parent)
        for name in there:
            if name.startswith(f"{path.name}-") and name.endswith(DRAFT):
                files.remove(path.with_name(name))
    if witness_path(path).name in there:
        return Witness.open(files, path, node)
    if mark != BEGINNING:
        raise StoreError(f"{path}: {witness_path(path).name} is missing, {repair_advice(path)}")
    return Witness.create(files, path, node, mark.record - 1)


def recover(files: Files, tables: Tables, witness: Witness, path: Path, node: Guid) -> Recovered:
    """Bring the log to the tables. Then no segment is left.

    Nothing is changed before all of it was read. If the process dies meanwhile, the next does it again.

    Raises:
        StoreError: the log is not whole, or the disk fails.
    """
    mark = tables.mark()
    there = segments_of(files, path)
    names = [name for name in there if name.number >= mark.segment]
    _see_that_none_is_missing(path, mark, names)
    recent = Recent()
    record = mark.record
    notices = []
    for name in names:
        segment = found_segment(files, name, node)
        if segment.first_record != record:
            # Nothing within the one before was broken, so it was cut between two records.
            cut = names[max(0, names.index(name) - 1)]
            raise damaged(
                cut.path, f"record {record} is missing, {name.path.name} has {segment.first_record}"
            )
        for writes in segment.records(is_last=name == names[-1], acknowledged=witness.record):
            # What the tables have of this record already was not there when an earlier one removed what stood there.
            for row in writes.messages:
                recent.gone.pop(row.key, None)
            gone: dict[int, Size] = {}
            for first, last in writes.removals:
                if tables.may_have(first):
                    gone |= tables.sizes(first, last)
            recent.add(writes, gone)
            record += 1
        if segment.torn:
            notices.append(segment.torn)
    _see_that_the_witness_agrees(path, mark, names, witness, record)
    witness.record = record - 1
    witness.flush()
    if names or mark.is_begun:
        mark = Mark(names[-1].number + 1, record, is_begun=False)
        tables.take_over(recent, mark)
    for name in there:
        with explained_file(name.path):
            files.remove(name.path)
    return Recovered(mark, notices)


def _see_that_none_is_missing(path: Path, mark: Mark, names: list[SegmentName]) -> None:
    last = names[-1].number if names else mark.segment - (not mark.is_begun)
    missing = {*range(mark.segment, last + 1)}.difference(name.number for name in names)
    if missing:
        lost = segment_path(path, min(missing))
        raise StoreError(f"{path}: {lost.name} is missing, which has messages: {repair_advice(path)}")


def _see_that_the_witness_agrees(
    path: Path, mark: Mark, names: list[SegmentName], witness: Witness, record: int
) -> None:
    """The log has all that was said to be on disk, and the tables are no newer than what says so."""
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

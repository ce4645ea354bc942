"""What a crash has left of the log goes to the tables, before anything else happens to the store."""

from __future__ import annotations

from pathlib import Path

from mqproto.wire.guid import Guid
from simulator.base.storeerrors import StoreError
from simulator.storage.base import Mark, Tables
from simulator.storage.files import Files
from simulator.storage.recent import Recent, Size
from simulator.storage.segments import (
    FoundSegment,
    SegmentName,
    damaged,
    explained_file,
    segment_path,
    segments_of,
)


def recover(files: Files, tables: Tables, path: Path, node: Guid) -> Mark:
    """Bring the log to the tables, and return where the next one begins. Then no segment is left.

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
    for name in names:
        segment = FoundSegment(files, name, node)
        is_last = name == names[-1]
        if segment.is_headless:
            if not is_last or (name.number == mark.segment and mark.is_begun):
                raise damaged(name.path, "it has no header")
            break
        if segment.first_record != record:
            # Nothing within the one before was broken, so it was cut between two records.
            cut = names[max(0, names.index(name) - 1)]
            raise damaged(
                cut.path, f"record {record} is missing, {name.path.name} has {segment.first_record}"
            )
        for writes in segment.records(is_last=is_last):
            # What the tables have of this record already was not there when an earlier one removed what stood there.
            for row in writes.messages:
                recent.gone.pop(row.key, None)
            gone: dict[int, Size] = {}
            for first, last in writes.removals:
                if tables.may_have(first):
                    gone |= tables.sizes(first, last)
            recent.add(writes, gone)
            record += 1
    if names or mark.is_begun:
        mark = Mark(names[-1].number + 1, record, is_begun=False)
        tables.take_over(recent, mark)
    for name in there:
        with explained_file(name.path):
            files.remove(name.path)
    return mark


def _see_that_none_is_missing(path: Path, mark: Mark, names: list[SegmentName]) -> None:
    last = names[-1].number if names else mark.segment - (not mark.is_begun)
    missing = {*range(mark.segment, last + 1)}.difference(name.number for name in names)
    if missing:
        lost = segment_path(path, min(missing))
        raise StoreError(f"{path}: {lost.name} is missing, which has messages: put it back beside it")

"""Cuts a capture into ranges, each of which a task can read by itself, from record to record.

Only a record tells where the next one begins, so one task goes through a whole file. It looks only at the heads of
records: 0.3 µs for each, where all tables together take 20 µs for a packet. Several tasks could do this only if they
searched for records in the middle of a file. That was tried before. It took proofs and repeated work, because a frame
may contain bytes that look like records.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from mqproto.captures.files.frame import CaptureError, Interface
from mqproto.captures.files.pcapng import MAX_BLOCK_BYTES, Section
from mqproto.captures.pipeline.source.files import RANGE_BYTES, CaptureFile, Mapped, continued, mapped
from mqproto.captures.pipeline.source.records import Data, Frames, Stretch, Walked, walk
from mqproto.captures.pipeline.source.storage import is_remote

BEHIND_BYTES: Final = (1 << 20, 4 * MAX_BLOCK_BYTES)
"""How many bytes to fetch after a range of an object, because its last record may extend there.

The first value is for the first try. The second value is for a second try, if the first one fetched too few bytes.
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """A range: all that a task needs to read exactly the frames of the range.

    Readings of one packed file belong in one task, because each mapping unpacks the file from its beginning.

    start, end: where the range's first record begins, and where the record after its last one begins, in the (unpacked)
        file.
    first_number: the number of the range's first frame, counted from 1 over the file.
    section: the state at `start`: byte order and interfaces.
    damage: the fault at `end` that ends the file, if any. No range follows it.
    continued: maps the number of an interface to the earlier interface that it is read as, as in
        mqproto.captures.files.pcapng.
    """

    file: CaptureFile
    start: int
    end: int
    first_number: int
    frame_count: int
    section: Section
    damage: CaptureError | None = None
    continued: Mapping[int, Interface] = field(default_factory=dict)


def readings(file: CaptureFile, range_bytes: int = RANGE_BYTES) -> list[Reading]:
    """Return the ranges of a file.

    Ranges with neither a frame nor damage are left out, and so is everything after damage.

    Raises:
        CaptureError, OSError: as for `files.mapped`.
    """
    result: list[Reading] = []
    start, section, number = file.start, file.section, 1
    with ExitStack() as kept:
        whole = kept.enter_context(mapped(file)) if file.packing or not is_remote(file.path) else None
        end = file.size_bytes if whole is None else len(whole.data)
        for high in _ends(file, end, range_bytes):
            if start >= high:
                continue  # A record of an earlier range extends beyond it.
            walked = (
                _fetched(file, start, high, section)
                if whole is None
                else _walked(file, start, high, section, whole)
            )
            count, damage = walked.frame_count, walked.damage
            if count or damage:
                result.append(Reading(file, start, walked.following, number, count, section, damage))
            section = walked.section
            if damage:
                break
            start, number = walked.following, number + count
    if section.interface_count > len(section.sources):
        aliases = continued(file)
        result = [replace(reading, continued=aliases) for reading in result]
    return result


def _ends(file: CaptureFile, end: int, range_bytes: int) -> Iterator[int]:
    """Yield the ends of ranges of equal size, at most `range_bytes`, so that all tasks take equally long."""
    size_bytes = end - file.start
    step = max(1, math.ceil(size_bytes / max(1, math.ceil(size_bytes / range_bytes))))
    yield from range(file.start + step, end, step)
    # The end of a damaged packing is met behind the last byte, so the last range goes beyond it.
    yield sys.maxsize if file.packing else end


def _fetched(file: CaptureFile, start: int, high: int, section: Section) -> Walked:
    """Walk through a range of an object."""
    for behind in BEHIND_BYTES:
        with mapped(file, start, high + behind) as source:
            walked = _walked(file, start, high, section, source)
        # Bytes that were not fetched are zeros, which end no block properly: it then looks damaged.
        if walked.damage is None or source.until == file.size_bytes:
            break
    return walked


def _walked(file: CaptureFile, start: int, high: int, section: Section, source: Mapped) -> Walked:
    stretch = Stretch(source.data, file.form, file.where, start, high, section, source.damage)
    return walk(stretch, with_columns=False)


def frames(reading: Reading, data: Data) -> Frames:
    """Return the frames of a range as columns.

    Raises:
        CaptureError: the frames differ from those that were found before.
    """
    file = reading.file
    stretch = Stretch(data, file.form, file.where, reading.start, reading.end, reading.section)
    walked = walk(stretch, with_columns=True)
    if (walked.frame_count, walked.following) != (reading.frame_count, reading.end):
        raise CaptureError(file.where, walked.following, "the file has changed; analyse it again")
    found = walked.frames()
    for number, earlier in reading.continued.items():
        if found.interfaces.pop(number, None) is not None:
            found.interface[found.interface == number] = earlier.number
            found.interfaces[earlier.number] = earlier
        found.dropped.join(number, earlier)
    return found

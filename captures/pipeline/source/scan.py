"""Finds the records of a range, and proves that all ranges together hold every record of the file.

A range that does not begin at the start of the file searches for its first record: the first place from which several
plausible records follow one another. Frames may contain bytes that look like records, and an earlier section header may
have changed the byte order, so that place is a guess. It is proved once all ranges have been scanned: each must begin
where the previous one ended, and name only interfaces that were described before. A range that fails is scanned again,
this time from the known place and state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final

import numpy as np

from mqproto.captures.files.frame import MAX_FRAME_BYTES, NANOSECONDS, CaptureError, Interface
from mqproto.captures.files.pcapng import MAX_BLOCK_BYTES, Section
from mqproto.captures.pipeline.source.files import (
    RANGE_BYTES,
    CaptureFile,
    Mapped,
    Range,
    continued,
    mapped,
    ranges,
)
from mqproto.captures.pipeline.source.records import (
    FRAME_KINDS,
    RECORD_BYTES,
    Data,
    Frames,
    Stretch,
    walk,
)
from mqproto.captures.pipeline.source.storage import is_remote

CHAIN: Final = 4
"""This many consecutive plausible records count as real; fewer suffice at the end of the file."""
SEARCHED_BYTES: Final = 2 * MAX_FRAME_BYTES
"""How many bytes from the start of a range are searched for the beginning of a record.

If no record seems to begin there, the scan of the previous range tells where the range's first record begins.
"""
BEHIND_BYTES: Final = (1 << 20, (CHAIN + 1) * MAX_BLOCK_BYTES)
"""How many bytes to fetch after a range of an object, because its last records may extend there.

The first value is for the first try. The second value is for a second try, if the first one fetched too few bytes.
"""
FETCHES: Final = 4
"""The number of ranges of an object that are fetched and scanned at the same time while a query is planned."""
NEAR_NS: Final = 10 * 366 * 24 * 3600 * NANOSECONDS
"""The limit, ten years, for how far the time of a plausible pcap record may be from that of the file's first frame."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """The contents of one range, provided that its assumed beginning is right.

    first: where its first record begins; None if none was found, and then the other fields are empty, too.
    following: where the record after its last one begins.
    section: the state there. If the state at the beginning was unknown, it holds only what is described in the range.
    begins_section: whether a pcapng section begins in the range.
    order: the byte order in which the first record was read.
    interfaces_needed: the number of interfaces that must be described before the range.
    damage: the fault at `following`, if any.
    """

    part: Range
    first: int | None
    following: int
    frame_count: int
    section: Section
    order: str
    begins_section: bool = False
    interfaces_needed: int = 0
    damage: CaptureError | None = None

    def section_after(self, before: Section) -> Section:
        """Return the state at the end, given the state `before` at the beginning."""
        if self.part.section is not None:
            return self.section
        if self.part.file.form == "pcap":
            return before
        shift = before.interface_count
        own = tuple(
            source._replace(interface=source.interface._replace(number=source.interface.number + shift))
            for source in self.section.sources
        )
        sources = own if self.begins_section else before.sources + own
        return Section(self.section.order, sources, shift + self.section.interface_count)

    def holds(self, start: int, section: Section) -> bool:
        """Return whether the range was certainly scanned from the right beginning.

        This is true if its first record is at `start`, and if the state that it assumed there agrees with `section`. If
        that state was unknown, it is also false for a range with damage, because a wrong beginning may have caused the
        damage.
        """
        if self.first != start:
            return False
        if self.part.section is not None:
            return self.part.section == section
        # Damage may come from a wrong beginning, and its wording needs the section.
        if self.damage is not None:
            return False
        return self.order == section.order and self.interfaces_needed <= len(section.sources)


@dataclass(frozen=True, slots=True)
class Reading:
    """A range whose beginning is proved: all that a task needs to read exactly the frames of the range.

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


def scan(part: Range, range_bytes: int = RANGE_BYTES) -> list[Scanned]:
    """Scan a range and return one result; for a packed file, one for each `range_bytes` of unpacked data.

    Raises:
        CaptureError, OSError: as for `files.mapped`.
    """
    if not part.file.packing:
        return [_scan_plain(part)]
    with mapped(part.file) as source:
        results: list[Scanned] = []
        low, high, section = part.low, 0, part.file.section
        while high < part.high and not (results and results[-1].damage):
            # The end of a damaged packing is met behind the last byte, so the last piece goes beyond it.
            high = low + range_bytes if low + range_bytes < len(source.data) else part.high
            results.append(_scan(Range(part.file, low, high, section), source))
            low, section = results[-1].following, results[-1].section
        return results


def unproved(scans: Sequence[Scanned]) -> list[Range]:
    """Return the ranges of one file to scan again, given all results in order; empty if all are proved.

    A range whose beginning is wrong may have a wrong end too. So the range after it is not judged yet, but later ones
    are. Most files are proved in two rounds, and each round proves at least one more range.
    """
    again: list[Range] = []
    if not scans:
        return again
    start, section = scans[0].part.low, scans[0].part.file.section
    is_known = True  # whether `start` is right for the next range; if not, that range is skipped
    for scanned in scans:
        part = scanned.part
        if not is_known:
            is_known = scanned.first is not None and scanned.damage is None
        elif start >= part.high:
            continue
        elif scanned.holds(start, section):
            if scanned.damage is not None:
                break
        else:
            again.append(Range(part.file, start, part.high, section))
            # If only its assumed interfaces were wrong, its end is right.
            is_known = scanned.first == start and scanned.damage is None
        start, section = scanned.following, scanned.section_after(section)
    return again


def readings(scans: Sequence[Scanned]) -> list[Reading]:
    """Return all readings of one file whose ranges are all proved.

    Ranges with neither a frame nor damage are left out, and so is everything after damage.
    """
    result: list[Reading] = []
    if not scans:
        return result
    file = scans[0].part.file
    start, section, number = scans[0].part.low, file.section, 1
    for scanned in scans:
        if start >= scanned.part.high:
            continue  # A record of an earlier range extends beyond it.
        end, damage = scanned.following, scanned.damage
        if scanned.frame_count or damage:
            result.append(Reading(file, start, end, number, scanned.frame_count, section, damage))
        section = scanned.section_after(section)
        if damage:
            break
        start, number = end, number + scanned.frame_count
    if section.interface_count > len(section.sources):
        aliases = continued(file)
        result = [replace(reading, continued=aliases) for reading in result]
    return result


def replaced(scans: Sequence[Scanned], again: Sequence[Scanned]) -> list[Scanned]:
    """Return the results, with those of the repeated scans in place of the earlier ones."""
    by_end = {scanned.part.high: scanned for scanned in again}
    return [by_end.get(scanned.part.high, scanned) for scanned in scans]


def read_plan(file: CaptureFile, range_bytes: int = RANGE_BYTES) -> list[Reading]:
    """Scan one file in this process and return its readings.

    Several ranges of an object are scanned at a time, because fetching is slow.

    Raises:
        CaptureError, OSError: as for `files.mapped`.
    """
    with ThreadPoolExecutor(FETCHES if is_remote(file.path) else 1) as threads:

        def scanned(parts: Sequence[Range]) -> list[Scanned]:
            return list(chain.from_iterable(threads.map(partial(scan, range_bytes=range_bytes), parts)))

        scans = scanned(ranges(file, range_bytes))
        while again := unproved(scans):
            scans = replaced(scans, scanned(again))
        return readings(scans)


def frames(reading: Reading, data: Data) -> Frames:
    """Return the frames of a range as columns.

    Raises:
        CaptureError: the frames differ from those that were scanned.
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


def _scan_plain(part: Range) -> Scanned:
    for behind in BEHIND_BYTES:
        with mapped(part.file, part.low, part.high + behind) as source:
            scanned = _scan(part, source)
        # Bytes that were not fetched are zeros, which end no block properly: it then looks damaged.
        if scanned.damage is None or source.until == part.file.size_bytes:
            break
    return scanned


def _scan(part: Range, source: Mapped) -> Scanned:
    file = part.file
    found = (part.low, part.section) if part.section is not None else _find(source.data, part)
    if found is None:
        return Scanned(part, None, part.high, 0, file.section, file.section.order)
    first, section = found
    is_assumed = part.section is None and file.form == "pcapng"
    stretch = Stretch(
        source.data, file.form, file.where, first, part.high, section, is_assumed, source.damage
    )
    walked = walk(stretch, with_columns=False)
    return Scanned(
        part,
        first,
        walked.following,
        walked.frame_count,
        walked.section,
        section.order,
        walked.begins_section,
        walked.interfaces_needed,
        walked.damage,
    )


def _find(data: Data, part: Range) -> tuple[int, Section] | None:
    """Return where the first record of a range seems to begin, and the state assumed there.

    Return None if no such place was found.
    """
    known = part.file.section
    high = min(part.high, part.low + SEARCHED_BYTES)
    if part.file.form == "pcap":
        return next(((at, known) for at in _plausible_records(data, part.file, part.low, high)), None)
    other = Section(">" if known.order == "<" else "<")
    return next(
        (
            (at, section)
            for section in (known, other)
            for at in _plausible_blocks(data, section.order, part.low, high)
        ),
        None,
    )


def _chain_from(at: int, end: int, length_at: Callable[[int], int]) -> bool:
    """Return whether the next few records are all plausible.

    If the data ends at `end` before that, fewer suffice.
    """
    for _ in range(CHAIN):
        length = length_at(at)
        if not length:
            return False
        at += length
        if at == end:
            break
    return True


def _plausible_records(data: Data, file: CaptureFile, low: int, high: int) -> Iterator[int]:
    """Yield the places from which several plausible pcap records seem to follow one another."""
    (source,) = file.section.sources
    fields = struct.Struct(file.section.order + "IIII")
    middle_s = (file.first_ns or 0) // NANOSECONDS
    near_s = NEAR_NS // NANOSECONDS

    def length_at(at: int) -> int:
        """Return the length of the record at a place; 0 if there is none."""
        if at + RECORD_BYTES > len(data):
            return 0
        seconds, ticks, size, _ = fields.unpack_from(data, at)
        good = 0 < size <= MAX_FRAME_BYTES and ticks < source.clock.ticks_per_second
        if not good or abs(seconds - middle_s) > near_s or at + RECORD_BYTES + size > len(data):
            return 0
        length: int = RECORD_BYTES + size
        return length

    # Seconds come first: their high half alone rules out nearly every place.
    count = min(high, len(data) - 3) - low
    if count <= 0:
        return
    seconds = np.ndarray((count,), np.dtype(file.section.order + "u4"), data, offset=low, strides=(1,))
    near = np.abs(seconds.astype(np.int64) - middle_s) <= near_s
    for at in (np.flatnonzero(near) + low).tolist():
        if _chain_from(at, len(data), length_at):
            yield at


def _plausible_blocks(data: Data, order: str, low: int, high: int) -> Iterator[int]:
    """Yield the places from which several pcapng blocks seem to follow one another.

    The first of these blocks has a frame.
    """
    fields = struct.Struct(order + "II")
    repeated = struct.Struct(order + "I")

    def length_at(at: int) -> int:
        if at + 12 > len(data):
            return 0
        _, length = fields.unpack_from(data, at)
        if length & 3 or not 12 <= length <= MAX_BLOCK_BYTES or at + length > len(data):
            return 0
        return length if repeated.unpack_from(data, at + length - 4)[0] == length else 0

    low += -low & 3
    count = (min(high, len(data)) - low) // 4
    if count <= 0:
        return
    kinds = np.frombuffer(data, np.dtype(order + "u4"), count, low)
    for place in np.flatnonzero(np.isin(kinds, FRAME_KINDS)).tolist():
        if _chain_from(low + 4 * place, len(data), length_at):
            yield low + 4 * place

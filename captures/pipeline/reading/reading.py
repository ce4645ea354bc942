"""The reading stage: it turns each range of a capture into segments, all ranges at the same time."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from mqproto.captures.files.frame import CaptureError
from mqproto.captures.files.pcapng import Dropped
from mqproto.captures.net.streams import CONNECTION_LIMIT, Ends, ends_of
from mqproto.captures.net.taps import Half
from mqproto.captures.net.tcp import SYN
from mqproto.captures.packets import Totals
from mqproto.captures.pipeline.engines.engine import Inbox, Outbox
from mqproto.captures.pipeline.reading.addresses import FOUND_ROWS, FRAGMENTS, SEGMENTS, Addresses
from mqproto.captures.pipeline.reading.carrying import carried
from mqproto.captures.pipeline.reading.fragments import FragmentLog, fragment_rows, waiting_packets
from mqproto.captures.pipeline.reading.growth import Growth
from mqproto.captures.pipeline.reading.packets.reassembly import Pairs
from mqproto.captures.pipeline.reading.rows import ping_rows
from mqproto.captures.pipeline.source.files import mapped
from mqproto.captures.pipeline.source.records import Data
from mqproto.captures.pipeline.source.scan import Reading
from mqproto.captures.pipeline.source.segments import segments
from mqproto.captures.translation import (
    COMPARED_COUNT,
    PROOF_BYTES,
    Crossings,
    TellingSegment,
    Translation,
    Translations,
)


@dataclass(frozen=True, slots=True)
class Place:
    """A range of a series.

    number: the number of the range, counted from 0 over the series.
    frames_before: how many frames are in the earlier files of the series.
    halves: maps the number of an interface of a TAP to the interface that it is read as, as in
        mqproto.captures.net.taps.
    translations: the connections that are read as others, as in mqproto.captures.translation.
    """

    number: int
    reading: Reading
    frames_before: int
    halves: dict[int, Half] = field(default_factory=dict)
    translations: tuple[Translation, ...] = ()

    @property
    def first_number(self) -> int:
        """The number of the range's first frame, counted from 1 over the series."""
        return self.frames_before + self.reading.first_number

    def __str__(self) -> str:
        return f"{self.reading.file.where}, bytes {self.reading.start} to {self.reading.end}"


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The ranges of one file that are read together; there are several only if the file is packed.

    waiting: the packets that wait for fragments before some of these ranges, keyed by the number of the range.
    """

    addresses: Addresses
    places: tuple[Place, ...]
    waiting: Mapping[int, bytes]

    def __str__(self) -> str:
        return str(self.places[0])


@dataclass(slots=True)
class RangeRead:
    """The result of reading a range.

    totals: the totals of the range's frames; the counts of streams become known later.
    has_fragments: whether IP packets in the range came in fragments.
    openings: the segments that begin connections in the range.
    back_ns: how far times go back in the range, as in mqproto.captures.points.Point.
    dropped: what the range says about dropped frames.
    """

    place: int
    totals: Totals
    has_fragments: bool
    damage: CaptureError | None
    openings: list[TellingSegment] = field(default_factory=list)
    back_ns: int = 0
    dropped: Dropped = field(default_factory=Dropped)


def read_ranges(task: ReadTask, inbox: Inbox, outbox: Outbox) -> list[RangeRead]:
    """Read ranges, and hand on the results.

    Raises:
        CaptureError, OSError: as for `mqproto.captures.pipeline.source.files.mapped`.
    """
    results = []
    first, last = task.places[0].reading, task.places[-1].reading
    with mapped(first.file, first.start, last.end) as source:
        for place in task.places:
            result = _read(task, place, source.data, outbox)
            results.append(result)
    return results


def _read(task: ReadTask, place: Place, data: Data, outbox: Outbox) -> RangeRead:
    addresses = task.addresses
    address = addresses.range(place.number)
    ip = FragmentLog(waiting_packets(task.waiting.get(place.number)))
    given_up_before = ip.given_up_count
    found = segments(place.reading, data, ip)
    if ip.fragments:
        outbox.put(FRAGMENTS, addresses.series, fragment_rows(place.number, ip.fragments), source=address)
    found.join_halves(place.halves)
    found.translate(place.translations, place.first_number)
    for bucket, rows in carried(addresses, found, data, place.first_number):
        outbox.put(SEGMENTS, bucket, rows, source=address)
    if found.pings:
        outbox.put(FOUND_ROWS, address, ping_rows(found.pings, place.frames_before), source=address)
    early = openings(Pairs(found), data, place.first_number)
    totals = Totals(
        frames=found.frame_count,
        segment_frames=len(found),
        ping_frames=len(found.pings),
        other_frames=found.other_frames,
        cut_frames=found.cut_frames,
        untimed_frames=found.untimed_frames,
        first_ns=found.first_ns,
        last_ns=found.last_ns,
        given_up_fragments=ip.given_up_count - given_up_before,
    )
    return RangeRead(
        place=place.number,
        totals=totals,
        has_fragments=bool(ip.fragments),
        damage=place.reading.damage,
        openings=early,
        back_ns=found.back_ns,
        dropped=found.dropped,
    )


def openings(pairs: Pairs, data: Data, first_number: int) -> list[TellingSegment]:
    """Return the openings of a range, in the order of the capture.

    They show which connections are translated copies of others. For each pair of ends, they are the first segment and
    the segments with a SYN. After each of these, the first COMPARED_COUNT segments with at least PROOF_BYTES of payload
    are also openings.
    """
    segments, by = pairs.segments, pairs.by_pair
    if not len(by):
        return []
    begins = segments.flags[by] & SYN != 0
    begins[pairs.first_places] = True
    is_proof = segments.size[by] >= PROOF_BYTES
    count = np.cumsum(is_proof)
    before = np.maximum.accumulate(np.where(begins, count - is_proof, 0))
    is_early = begins | (is_proof & (count - before <= COMPARED_COUNT))
    rows = np.sort(by[is_early])
    found = []
    ends = segments.ends
    columns = (
        rows,
        segments.frame[rows] + first_number,
        segments.time_ns[rows],
        segments.source[rows],
        segments.destination[rows],
        segments.sequence[rows],
        segments.acknowledgment[rows],
        segments.flags[rows],
        segments.size[rows],
        segments.cut[rows],
    )
    for row, number, time_ns, source, destination, sequence, acknowledgment, flags, size, cut in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        content = zlib.crc32(segments.payload(data, row)) if size >= PROOF_BYTES else 0
        found.append(
            TellingSegment(
                number,
                time_ns,
                ends[source],
                ends[destination],
                sequence,
                acknowledgment,
                flags,
                size + cut,
                size,
                content,
            )
        )
    return found


class Translated:
    """The address translations that are known once all ranges have been read.

    Args:
        growth: the state before the new ranges.
        reads: the new ranges, in order.

    Attributes:
        in_force: translations that apply after these ranges, as in mqproto.captures.pipeline.reading.growth.Growth.
        crossings: all crossings up to now.
    """

    def __init__(self, growth: Growth, reads: Iterable[RangeRead]) -> None:
        translations = Translations(growth.translations)
        for read in reads:
            for early in read.openings:
                translations.take(early)
        self.crossings = Crossings(growth.crossings)
        self.crossings.add(translations.found)
        self._of: defaultdict[Ends, list[Translation]] = defaultdict(list)
        for each in (*growth.translations, *translations.found):
            self._of[ends_of(*each.way)].append(each)
        last = sorted((each[-1] for each in self._of.values()), key=lambda each: each.number)
        self.in_force = tuple(each for each in last if each.shown is not None)[-CONNECTION_LIMIT:]

    def within(self, read: RangeRead) -> tuple[Translation, ...]:
        """Return, in order, the translations that affect segments of a range."""
        between = {ends_of(early.source, early.destination) for early in read.openings} if self._of else ()
        found = (each for ends in between for each in self._of.get(ends, ()))
        return tuple(sorted(found, key=lambda each: each.number))

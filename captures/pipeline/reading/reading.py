"""The reading stage: it turns each range of a capture into segments, all ranges at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mqproto.captures.files.frame import CaptureError
from mqproto.captures.net.taps import Half
from mqproto.captures.packets import Totals
from mqproto.captures.pipeline.engines.engine import Count, Inbox, Outbox
from mqproto.captures.pipeline.reading.addresses import FOUND_ROWS, FRAGMENTS, SEGMENTS, Addresses
from mqproto.captures.pipeline.reading.carrying import carried
from mqproto.captures.pipeline.reading.fragments import FragmentLog, fragment_rows, waiting_packets
from mqproto.captures.pipeline.reading.openings import openings
from mqproto.captures.pipeline.reading.packets.reassembly import Pairs
from mqproto.captures.pipeline.reading.rows import ping_rows
from mqproto.captures.pipeline.source.files import mapped
from mqproto.captures.pipeline.source.records import Data
from mqproto.captures.pipeline.source.scan import Reading
from mqproto.captures.pipeline.source.segments import segments
from mqproto.captures.translation import TellingSegment, Translation


@dataclass(frozen=True, slots=True)
class Place:
    """A range of a series.

    number: the number of the range, counted from 0 over the series.
    frames_before: the number of frames in the earlier files of the series.
    halves: interfaces of TAPs that are read as another interface, as in mqproto.captures.net.taps.
    translations: connections that are read as another connection, as in mqproto.captures.translation.
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
    """

    place: int
    totals: Totals
    has_fragments: bool
    damage: CaptureError | None
    openings: list[TellingSegment] = field(default_factory=list)
    back_ns: int = 0


def read_ranges(task: ReadTask, inbox: Inbox, outbox: Outbox, count: Count) -> list[RangeRead]:
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
            count(0, place.reading.end - place.reading.start)
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
    )

"""The reading stage: each range of a capture becomes the packets that it shows, all ranges at the same time."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from mqproto.captures.files.frame import CaptureError
from mqproto.captures.net.taps import Half
from mqproto.captures.packets import Totals
from mqproto.captures.pipeline.engines.engine import Count, Inbox, Outbox
from mqproto.captures.pipeline.reading.addresses import FOUND_ROWS, FRAGMENTS, SUMMARIES, Addresses
from mqproto.captures.pipeline.reading.asked import Asked
from mqproto.captures.pipeline.reading.fragments import FragmentLog, fragment_rows, waiting_packets
from mqproto.captures.pipeline.reading.ranges.copies import pass_over_damaged
from mqproto.captures.pipeline.reading.ranges.flows import Flows, PairSummary, read_flows
from mqproto.captures.pipeline.reading.ranges.reassembly import RangeSegments
from mqproto.captures.pipeline.reading.rows import packet_rows, ping_rows
from mqproto.captures.pipeline.source.files import mapped
from mqproto.captures.pipeline.source.records import Data
from mqproto.captures.pipeline.source.scan import Reading, reading_ahead
from mqproto.captures.pipeline.source.segments import Segments, segments
from mqproto.captures.translation import Early, Translation

SUMMARY: Final = pa.schema([("place", pa.int64()), ("summary", pa.large_binary())])
"""A range's report about a pair of ends: a CountedPair, pickled."""


@dataclass(frozen=True, slots=True)
class Place:
    """A range of a series.

    number: counted from 0 over the series.
    frames_before: in the files of the series before this one.
    halves: interfaces of TAPs that are read as others, as in mqproto.captures.net.taps.
    translations: connections that are read as others, as in mqproto.captures.translation.
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
    """Ranges of one file, several only if it is packed.

    waiting: by range number, what waits for fragments before some of them.
    asked: what to read from packets besides their fields.
    """

    addresses: Addresses
    places: tuple[Place, ...]
    waiting: Mapping[int, bytes]
    asked: Asked

    def __str__(self) -> str:
        return str(self.places[0])


@dataclass(frozen=True, slots=True)
class CountedPair:
    """A pair's summary; how many rows of its packets the range has, and how many of these are framed."""

    summary: PairSummary
    rows: int
    framed: int


@dataclass(slots=True)
class RangeRead:
    """The result of reading a range.

    totals: of its frames; the counts of streams are known later.
    rows, framed: of its packets, including Pings, if all its assumptions are right.
    has_fragments: whether IP packets in it came in fragments.
    openings: how connections begin in it.
    back_ns: how far times go back in it, as in mqproto.captures.points.Point.
    """

    place: int
    totals: Totals
    rows: int
    framed: int
    has_fragments: bool
    damage: CaptureError | None
    openings: list[Early] = field(default_factory=list)
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
            count(result.framed, place.reading.end - place.reading.start)
    return results


def _read(task: ReadTask, place: Place, data: Data, outbox: Outbox) -> RangeRead:
    addresses = task.addresses
    address = addresses.range(place.number)
    ip = FragmentLog(waiting_packets(task.waiting.get(place.number)))
    given_up_before = ip.given_up_count
    found = segments(place.reading, data, ip)
    if ip.fragments:
        outbox.put(FRAGMENTS, addresses.series, fragment_rows(place.number, ip.fragments), source=address)
    found = put_right(place, data, found)
    flows = read_flows(found, data, place.first_number, apart=bool(place.halves))
    packets = flows.packets
    rows = packet_rows(packets, asked=task.asked)
    if found.pings:
        rows = chain(rows, [ping_rows(found.pings, place.frames_before)])
    for batch in rows:
        outbox.put(FOUND_ROWS, address, batch, source=address)
    for bucket, summaries in _by_bucket(addresses, place, flows).items():
        outbox.put(SUMMARIES, bucket, summaries, source=address)
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
        rows=len(packets) + len(found.pings),
        framed=int(packets.framed.sum()) + len(found.pings),
        has_fragments=bool(ip.fragments),
        damage=place.reading.damage,
        openings=flows.openings,
        back_ns=found.back_ns,
    )


def put_right(place: Place, data: Data, found: Segments) -> Segments:
    """Return the segments of a range, with what is read as others, and without what came damaged and again intact."""
    parts = []
    ahead = reading_ahead(place.reading, found.section, data)
    for reading, some in ((place.reading, found), (ahead, None if ahead is None else segments(ahead, data))):
        if reading is not None and some is not None:
            number = place.frames_before + reading.first_number
            some.join_halves(place.halves)
            some.translate(place.translations, number)
            parts.append(RangeSegments(some, data, number))
    pass_over_damaged(*parts)
    return found


def _by_bucket(addresses: Addresses, place: Place, flows: Flows) -> dict[int, pa.RecordBatch]:
    packets = flows.packets
    rows = np.bincount(packets.stream, minlength=len(packets.streams))
    framed = np.bincount(packets.stream[packets.framed], minlength=len(packets.streams))
    buckets: defaultdict[int, list[bytes]] = defaultdict(list)
    for summary in flows.summaries:
        counted = CountedPair(summary, int(rows[summary.places].sum()), int(framed[summary.places].sum()))
        pickled = pickle.dumps(counted, pickle.HIGHEST_PROTOCOL)
        buckets[addresses.pair(summary.ends)].append(pickled)
    return {
        bucket: pa.record_batch([[place.number] * len(some), some], schema=SUMMARY)
        for bucket, some in buckets.items()
    }

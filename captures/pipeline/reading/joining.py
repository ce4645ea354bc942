"""The joining stage: reports of ranges about the same two ends are proved, corrected, and joined where a cut was."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mqproto.captures.framing import StreamCount
from mqproto.captures.net.streams import Ends
from mqproto.captures.packets import Totals
from mqproto.captures.pipeline.engines.engine import Count, Inbox, Outbox
from mqproto.captures.pipeline.kept.saving import save
from mqproto.captures.pipeline.reading.addresses import (
    CLOSED_STREAMS,
    CORRECTIONS,
    JOINED_ROWS,
    OPEN_STREAMS,
    SUMMARIES,
    Addresses,
    hash_of,
)
from mqproto.captures.pipeline.reading.asked import Asked
from mqproto.captures.pipeline.reading.fragments import waiting_packets
from mqproto.captures.pipeline.reading.growth import FOLDER, saved_pairs
from mqproto.captures.pipeline.reading.ranges.cutting import Packets, collected
from mqproto.captures.pipeline.reading.ranges.reassembly import RangeSegments
from mqproto.captures.pipeline.reading.ranges.seams import END_OF_CAPTURE, OpenPair, Seam, Stitcher
from mqproto.captures.pipeline.reading.reading import CountedPair, Place, put_right
from mqproto.captures.pipeline.reading.rows import NO_STREAM, packet_rows
from mqproto.captures.pipeline.reading.streams import closed_rows
from mqproto.captures.pipeline.source.files import is_changed, mapped
from mqproto.captures.pipeline.source.segments import segments
from mqproto.captures.pipeline.tables.lists import batch_of
from mqproto.captures.pipeline.tables.parts import Part, Store

KEPT_RANGES: Final = 2
"""Ranges read again that are kept, because several pairs may need them."""

CORRECTED: Final = pa.schema(
    [
        ("stream", pa.int32()),
        ("stands", pa.bool_()),
        ("connection", pa.int64()),
        ("position", pa.int64()),
        ("missing_bytes", pa.int64()),
        ("skipped_bytes", pa.int64()),
        ("snapped_bytes", pa.int64()),
        ("ahead", pa.bool_()),
        ("opened", pa.bool_()),
    ]
)
"""What becomes of a stream's rows in a range: whether they stand, and the fields of ranges.seams.Correction."""


@dataclass(frozen=True, slots=True)
class ReadSeries:
    """A series whose ranges have all been read.

    places: its ranges, after those of earlier runs that may have to be read again.
    first: the number of the first new range.
    end: a number behind all of them, for rows that only the end of the series reveals.
    silent: the number of a range; pairs that do not occur after it count as over.
    open_pairs: files with pairs that were open before the first new range.
    waiting: by range number, what waits for fragments before it.
    asked: what to read from packets besides their fields.
    saved: prefix of the names of the parts that this run saves about it, in `store`.
    """

    addresses: Addresses
    places: tuple[Place, ...]
    first: int
    end: int
    silent: int
    open_pairs: tuple[str, ...]
    waiting: Mapping[int, bytes]
    asked: Asked
    store: Store
    saved: str

    def place(self, number: int) -> Place:
        """Return a range by its number."""
        return self.places[number - self.places[0].number]


@dataclass(frozen=True, slots=True)
class JoinTask:
    """All pairs of ends of one bucket of a series."""

    series: str
    bucket: int

    def __str__(self) -> str:
        return f"connections of {self.series}"


@dataclass(slots=True)
class Joined:
    """The changes made by joining.

    rows, framed: by range, how many more or fewer of its rows count now.
    connections: the numbers of their first frames.
    totals: of streams that are over. open_totals: of those that would be, if the series ended here.
    saved: the open pairs.
    """

    rows: Counter[int] = field(default_factory=Counter)
    framed: Counter[int] = field(default_factory=Counter)
    connections: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    totals: Totals = field(default_factory=Totals)
    open_totals: Totals = field(default_factory=Totals)
    saved: Part | None = None


def join_ranges(
    all_series: Mapping[str, ReadSeries], task: JoinTask, inbox: Inbox, outbox: Outbox, count: Count
) -> Joined:
    """Join the pairs of a bucket, and hand on what ranges need to know about it."""
    series = all_series[task.series]
    with ExitStack() as stack:
        joiner = _Joiner(series, task.bucket, stack)
        for rows in inbox.take(SUMMARIES):
            for place, summary in zip(rows["place"].to_pylist(), rows["summary"], strict=True):
                joiner.take(place, pickle.loads(summary.as_buffer()))
        return joiner.finish(outbox)


class _Joiner:
    """Takes summaries range by range, and collects changes for each range."""

    def __init__(self, series: ReadSeries, bucket: int, stack: ExitStack) -> None:
        self._series = series
        self._bucket = bucket
        self._stack = stack
        self._again: dict[int, RangeSegments] = {}
        self._corrections: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
        self._packets: defaultdict[int, list[Packets]] = defaultdict(list)
        self._joined = Joined()
        self._closed: list[StreamCount] = []
        self._open: list[StreamCount] = []
        self._connections: set[int] = set()
        self._stitchers: dict[Ends, Stitcher] = {}
        self._gone = _Gone(series)
        self._first_numbers = [each.first_number for each in series.places if each.number >= series.first]
        for pair in saved_pairs(series.open_pairs, bucket, series.addresses.count):
            self._stitchers[pair.ends] = Stitcher(pair, self._segments, self._gone)

    def take(self, place: int, pair: CountedPair) -> None:
        """Take the next range of a pair."""
        ends = pair.summary.ends
        stitcher = self._stitchers.get(ends)
        if stitcher is None:
            stitcher = self._stitchers[ends] = Stitcher(OpenPair(ends), self._segments, self._gone)
        seam = stitcher.take(place, pair.summary)
        if not seam.proved:
            self._count(place, -pair.rows, -pair.framed)
            self._corrections[place] += [
                (stream, False, 0, 0, 0, 0, 0, False, None) for stream in pair.summary.places
            ]
        self._add(place, seam, self._joined.totals, self._closed)

    def finish(self, outbox: Outbox) -> Joined:
        """End the series for now: save what is open, and put what only the end reveals behind it."""
        series, joined = self._series, self._joined
        addresses, bucket = series.addresses, self._bucket
        for ends, stitcher in list(self._stitchers.items()):
            self._add(series.end - 1, stitcher.decide(), joined.totals, self._closed)
            if stitcher.pair.last_place <= series.silent:
                self._add(series.end - 1, stitcher.finish(), joined.totals, self._closed)
                del self._stitchers[ends]
        pairs = [stitcher.pair for stitcher in self._stitchers.values()]
        joined.saved = save(
            series.store,
            f"{FOLDER}/{series.saved}-open-{bucket:02d}.parquet",
            ((hash_of(pair.ends), pair) for pair in pairs),
        )
        for stitcher in self._stitchers.values():
            self._add(series.end, stitcher.finish(), joined.open_totals, self._open)
        for exchange, seen in ((CLOSED_STREAMS, self._closed), (OPEN_STREAMS, self._open)):
            outbox.put(exchange, addresses.streams + bucket, closed_rows(seen))
        for place, some in sorted(self._corrections.items()):
            outbox.put(CORRECTIONS, addresses.range(place), batch_of(CORRECTED, some))
        for place, packets in sorted(self._packets.items()):
            for rows in packet_rows(collected(packets), NO_STREAM, asked=series.asked):
                outbox.put(JOINED_ROWS, addresses.range(place), rows)
        joined.connections = np.array(sorted(self._connections), dtype=np.int64)
        return joined

    def _add(self, place: int, seam: Seam, totals: Totals, closed: list[StreamCount]) -> None:
        for stream, correction in seam.corrections.items():
            self._corrections[place].append((stream, True, *correction))
        for packets in seam.packets:
            for at, some in self._by_range(place, packets):
                self._count(at, len(some), int(some.framed.sum()))
                self._packets[at].append(some)
        for seen in seam.closed:
            self._connections.add(seen.stream.connection)
            totals.add_stream(seen)
        closed += seam.closed

    def _by_range(self, place: int, packets: Packets) -> Iterator[tuple[int, Packets]]:
        """Yield packets by the range in which they become readable: perhaps an earlier one, if they had to wait."""
        at = np.searchsorted(self._first_numbers, packets.readable, side="right") - 1 + self._series.first
        at = np.clip(at, self._series.first, place)
        at[packets.readable >= END_OF_CAPTURE] = place
        for each in np.unique(at).tolist():
            yield each, packets.of(at == each)

    def _count(self, place: int, rows: int, framed: int) -> None:
        self._joined.rows[place] += rows
        self._joined.framed[place] += framed

    def _segments(self, number: int) -> RangeSegments:
        """Return the segments of a range, reading it again if necessary."""
        if number not in self._again:
            while len(self._again) >= KEPT_RANGES:
                del self._again[next(iter(self._again))]
            place = self._series.place(number)
            reading = place.reading
            source = self._stack.enter_context(mapped(reading.file, reading.start, reading.end))
            found = segments(reading, source.data, waiting_packets(self._series.waiting.get(number)))
            put_right(place, source.data, found)
            self._again[number] = RangeSegments(
                found, source.data, place.first_number, apart=bool(place.halves)
            )
        return self._again[number]


class _Gone(Container[int]):
    """The ranges of earlier runs whose files have changed or are gone, as in a ring buffer."""

    def __init__(self, series: ReadSeries) -> None:
        self._places = {place.number: place for place in series.places}
        self._changed = cache(is_changed)

    def __contains__(self, number: object) -> bool:
        place = self._places.get(number) if isinstance(number, int) else None
        return place is None or self._changed(place.reading.file)

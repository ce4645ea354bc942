"""The stage that joins: what ranges say of the same two ends is proved, put right, and put together where a cut was."""

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

from captures.framing import StreamCount
from captures.net.streams import Ends
from captures.packets import Totals
from captures.pipeline.cutting import Packets, collected
from captures.pipeline.files import is_changed, mapped
from captures.pipeline.folders import SeriesFolder, hash_of
from captures.pipeline.fragments import waiting_before
from captures.pipeline.growth import FOLDER, saved_pairs
from captures.pipeline.parts import Part, Store
from captures.pipeline.reading import CountedPair, Place
from captures.pipeline.reassembly import RangeSegments
from captures.pipeline.rows import NO_STREAM, packet_rows
from captures.pipeline.runner import Count
from captures.pipeline.saving import pickled, save
from captures.pipeline.seams import OpenPair, Seam, Stitcher
from captures.pipeline.segments import segments
from captures.pipeline.stages.rows import batch_of
from captures.pipeline.streams import CLOSED, closed_rows

KEPT_RANGES: Final = 2
"""How many ranges that were read again are kept, as several pairs may need them."""

CORRECTIONS: Final = pa.schema(
    [
        ("stream", pa.int32()),
        ("stands", pa.bool_()),
        ("connection", pa.int64()),
        ("position", pa.int64()),
        ("missing_bytes", pa.int64()),
        ("skipped_bytes", pa.int64()),
        ("snapped_bytes", pa.int64()),
        ("ahead", pa.bool_()),
    ]
)
"""What becomes of a stream's rows in a range: whether they stand, and as in captures.pipeline.seams.Correction."""


@dataclass(frozen=True, slots=True)
class ReadSeries:
    """A series of which all ranges have been read.

    places: of its ranges, and before them those of earlier runs that may have to be read again.
    first: the number of the first that is new.
    end: a number behind all of them, for what only the end of the series lets be read.
    silent: the number of a range; pairs that do not occur behind it are taken to be over.
    open_pairs: files with what was open before the first.
    saved: how the name begins of the parts that this run saves of it, in `store`.
    """

    folder: SeriesFolder
    places: tuple[Place, ...]
    first: int
    end: int
    silent: int
    open_pairs: tuple[str, ...]
    store: Store
    saved: str

    def place(self, number: int) -> Place:
        """One range."""
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
    """What joining has changed.

    rows, framed: by range, how many more of its rows count now, or fewer.
    connections: the numbers of the frames with which they began.
    totals: of streams that are over. open_totals: of those that would be, if the series ended here.
    saved: the open pairs.
    """

    rows: Counter[int] = field(default_factory=Counter)
    framed: Counter[int] = field(default_factory=Counter)
    connections: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    totals: Totals = field(default_factory=Totals)
    open_totals: Totals = field(default_factory=Totals)
    saved: Part | None = None


def join_ranges(all_series: Mapping[str, ReadSeries], task: JoinTask, count: Count) -> Joined:
    """Join the pairs of a bucket, and leave what ranges have to know of it in the folder of the series."""
    series = all_series[task.series]
    with ExitStack() as stack:
        joiner = _Joiner(series, task.bucket, stack)
        for place in series.places:
            if place.number >= series.first:
                for batch in series.folder.summaries.take(task.bucket, [place.number]):
                    for summary in batch.column("summary"):
                        joiner.take(place.number, pickle.loads(summary.as_buffer()))
        return joiner.finish()


class _Joiner:
    """Takes summaries range by range, and keeps what becomes of each range."""

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
        for pair in saved_pairs(series.open_pairs, bucket, series.folder.buckets):
            self._stitchers[pair.ends] = Stitcher(pair, self._segments, self._gone)

    def take(self, place: int, pair: CountedPair) -> None:
        """The next range of a pair."""
        ends = pair.summary.ends
        stitcher = self._stitchers.get(ends)
        if stitcher is None:
            stitcher = self._stitchers[ends] = Stitcher(OpenPair(ends), self._segments, self._gone)
        seam = stitcher.take(place, pair.summary)
        if not seam.proved:
            self._count(place, -pair.rows, -pair.framed)
            self._corrections[place] += [
                (stream, False, 0, 0, 0, 0, 0, False) for stream in pair.summary.places
            ]
        self._add(place, seam, self._joined.totals, self._closed)

    def finish(self) -> Joined:
        """The series is over for now: what is open is saved, and what only the end lets be read stands behind it."""
        series, joined = self._series, self._joined
        folder, bucket = series.folder, self._bucket
        for ends, stitcher in list(self._stitchers.items()):
            if stitcher.pair.last_place <= series.silent:
                self._add(series.end - 1, stitcher.finish(), joined.totals, self._closed)
                del self._stitchers[ends]
        pairs = [stitcher.pair for stitcher in self._stitchers.values()]
        joined.saved = save(
            series.store,
            f"{FOLDER}/{series.saved}-open-{bucket:02d}.parquet",
            ((hash_of(pair.ends), pickled(pair)) for pair in pairs),
        )
        for stitcher in self._stitchers.values():
            self._add(series.end, stitcher.finish(), joined.open_totals, self._open)
        for exchange, seen in ((folder.closed, self._closed), (folder.open, self._open)):
            exchange.put_all(bucket, CLOSED, [closed_rows(seen)])
        folder.corrections.put(
            bucket, {place: batch_of(CORRECTIONS, some) for place, some in self._corrections.items() if some}
        )
        folder.joined.put(
            bucket,
            {
                place: pa.concat_batches(packet_rows(collected(some), NO_STREAM, texts=folder.texts))
                for place, some in self._packets.items()
            },
        )
        joined.connections = np.array(sorted(self._connections), dtype=np.int64)
        return joined

    def _add(self, place: int, seam: Seam, totals: Totals, closed: list[StreamCount]) -> None:
        for stream, correction in seam.corrections.items():
            self._corrections[place].append((stream, True, *correction))
        for packets in seam.packets:
            self._count(place, len(packets), int(packets.framed.sum()))
            self._packets[place].append(packets)
        for seen in seam.closed:
            self._connections.add(seen.stream.connection)
            totals.add_stream(seen)
        closed += seam.closed

    def _count(self, place: int, rows: int, framed: int) -> None:
        self._joined.rows[place] += rows
        self._joined.framed[place] += framed

    def _segments(self, number: int) -> RangeSegments:
        """A range once more."""
        if number not in self._again:
            while len(self._again) >= KEPT_RANGES:
                del self._again[next(iter(self._again))]
            place = self._series.place(number)
            reading = place.reading
            source = self._stack.enter_context(mapped(reading.file, reading.start, reading.end))
            found = segments(reading, source.data, waiting_before(self._series.folder, number))
            found.join_halves(place.halves)
            self._again[number] = RangeSegments(
                found, source.data, place.first_number, apart=bool(place.halves)
            )
        return self._again[number]


class _Gone(Container[int]):
    """The ranges of earlier runs whose files are no longer what they were: a ring buffer has come round."""

    def __init__(self, series: ReadSeries) -> None:
        self._places = {place.number: place for place in series.places}
        self._changed = cache(is_changed)

    def __contains__(self, number: object) -> bool:
        place = self._places.get(number) if isinstance(number, int) else None
        return place is None or self._changed(place.reading.file)


def corrections_of(folder: SeriesFolder, place: int) -> Iterator[pa.RecordBatch]:
    """What all buckets say of a range's streams."""
    return folder.corrections.take(place, range(folder.buckets))

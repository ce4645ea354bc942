"""The stage that joins: what ranges say of the same two ends is proved, put right, and put together where a cut was."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from captures.packets import Totals
from captures.pipeline.cutting import Packets, collected
from captures.pipeline.files import mapped
from captures.pipeline.reading import CountedPair, Place, SeriesFolder, waiting_fragments
from captures.pipeline.reassembly import RangeSegments
from captures.pipeline.rows import NO_STREAM, packet_rows
from captures.pipeline.runner import Count
from captures.pipeline.seams import Seam, Stitcher
from captures.pipeline.segments import segments
from captures.streams import Ends

KEPT_RANGES: Final = 2
"""So many ranges that were read again are kept, as several pairs may need them."""

CORRECTIONS: Final = pa.schema(
    [
        ("stream", pa.int32()),
        ("stands", pa.bool_()),
        ("connection", pa.int64()),
        ("position", pa.int64()),
        ("missing_bytes", pa.int64()),
        ("skipped_bytes", pa.int64()),
    ]
)
"""What becomes of a stream's rows in a range: whether they stand, and as in captures.pipeline.seams.Correction."""


@dataclass(frozen=True, slots=True)
class ReadSeries:
    """A series of which all ranges have been read.

    fragments_of: by range, as in ReadTask.
    """

    folder: SeriesFolder
    places: tuple[Place, ...]
    fragments_of: dict[int, int]


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
    totals: of their streams.
    """

    rows: Counter[int] = field(default_factory=Counter)
    framed: Counter[int] = field(default_factory=Counter)
    connections: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    totals: Totals = field(default_factory=Totals)


def join_ranges(all_series: Mapping[str, ReadSeries], task: JoinTask, count: Count) -> Joined:
    """Join the pairs of a bucket, and leave what ranges have to know of it in the folder of the series."""
    series = all_series[task.series]
    with ExitStack() as stack:
        joiner = _Joiner(series, task.bucket, stack)
        for place in series.places:
            for batch in series.folder.summaries.take(task.bucket, [place.number]):
                for pickled in batch.column("summary"):
                    joiner.take(place.number, pickle.loads(pickled.as_buffer()))
        return joiner.finish()


class _Joiner:
    """Takes summaries range by range, and keeps what becomes of each range."""

    def __init__(self, series: ReadSeries, bucket: int, stack: ExitStack) -> None:
        self._series = series
        self._bucket = bucket
        self._stack = stack
        self._again: dict[int, RangeSegments] = {}
        self._stitchers: dict[Ends, Stitcher] = {}
        self._corrections: defaultdict[int, list[tuple[int, bool, int, int, int, int]]] = defaultdict(list)
        self._packets: defaultdict[int, list[Packets]] = defaultdict(list)
        self._joined = Joined()
        self._connections: set[int] = set()

    def take(self, place: int, pair: CountedPair) -> None:
        """The next range of a pair."""
        ends = pair.summary.ends
        stitcher = self._stitchers.get(ends)
        if stitcher is None:
            stitcher = self._stitchers[ends] = Stitcher(ends, self._segments)
        seam = stitcher.take(place, pair.summary)
        if not seam.proved:
            self._count(place, -pair.rows, -pair.framed)
            self._corrections[place] += [(stream, False, 0, 0, 0, 0) for stream in pair.summary.places]
        self._add(place, seam)

    def finish(self) -> Joined:
        """The series is over, and what only that lets be read stands at its end."""
        last = self._series.places[-1].number
        for stitcher in self._stitchers.values():
            self._add(last, stitcher.finish())
        folder, bucket = self._series.folder, self._bucket
        folder.corrections.put(
            bucket, {place: _corrections(some) for place, some in self._corrections.items() if some}
        )
        folder.joined.put(
            bucket,
            {
                place: pa.concat_batches(packet_rows(collected(some), NO_STREAM))
                for place, some in self._packets.items()
            },
        )
        self._joined.connections = np.array(sorted(self._connections), dtype=np.int64)
        self._joined.totals.connections = len(self._connections)
        return self._joined

    def _add(self, place: int, seam: Seam) -> None:
        for stream, (connection, position, missing_bytes, skipped_bytes) in seam.corrections.items():
            self._corrections[place].append(
                (stream, True, connection, position, missing_bytes, skipped_bytes)
            )
        for packets in seam.packets:
            self._count(place, len(packets), int(packets.framed.sum()))
            self._packets[place].append(packets)
        for seen in seam.closed:
            self._connections.add(seen.stream.connection)
            self._joined.totals.add_stream(seen)

    def _count(self, place: int, rows: int, framed: int) -> None:
        self._joined.rows[place] += rows
        self._joined.framed[place] += framed

    def _segments(self, number: int) -> RangeSegments:
        """A range once more."""
        if number not in self._again:
            while len(self._again) >= KEPT_RANGES:
                del self._again[next(iter(self._again))]
            place = self._series.places[number]
            source = self._stack.enter_context(mapped(place.reading.file))
            ip = waiting_fragments(self._series.folder, self._series.fragments_of.get(number))
            found = segments(place.reading, source.data, ip)
            self._again[number] = RangeSegments(found, source.data, place.first_number)
        return self._again[number]


def _corrections(rows: list[tuple[int, bool, int, int, int, int]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, CORRECTIONS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CORRECTIONS)


def corrections_of(folder: SeriesFolder, place: int) -> Iterator[pa.RecordBatch]:
    """What all buckets say of a range's streams."""
    return folder.corrections.take(place, range(folder.buckets))

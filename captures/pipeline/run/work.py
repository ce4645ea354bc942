"""A series on its way from stage to stage, with the state that the driver keeps."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mqproto.captures.files.frame import CaptureError
from mqproto.captures.files.pcapng import Dropped
from mqproto.captures.files.series import series_name
from mqproto.captures.net.taps import Half
from mqproto.captures.packets import Totals
from mqproto.captures.pipeline.reading.addresses import Addresses
from mqproto.captures.pipeline.reading.connections import ConnectionsRead, ReadSeries
from mqproto.captures.pipeline.reading.fragments import FragmentsJoined, FragmentTask
from mqproto.captures.pipeline.reading.growth import CONNECTIONS, FOLDER, FORM, SILENT_NS, Growth
from mqproto.captures.pipeline.reading.halves import Merged, MergeTask
from mqproto.captures.pipeline.reading.reading import Place, RangeRead, ReadTask, Translated
from mqproto.captures.pipeline.reading.rows import Asked
from mqproto.captures.pipeline.reading.writing import SeriesFiles, StreamsTask, WriteTask
from mqproto.captures.pipeline.run.known import Known, ToRead, halves_of
from mqproto.captures.pipeline.source.files import RANGE_BYTES, CaptureFile
from mqproto.captures.pipeline.source.scan import Reading
from mqproto.captures.pipeline.tables.kept import save
from mqproto.captures.pipeline.tables.parts import Part, parquet_table
from mqproto.captures.pipeline.tables.schemas import sessions
from mqproto.captures.pipeline.tables.tables import WORK, Run

BUCKETS: Final = 16
"""The largest number of parts into which the connections of a series are split.

This many tasks may read them at the same time.
"""


@dataclass(slots=True)
class SeriesResult:
    """The result for a series.

    files: all files of the series.
    new: how many of these files this run has read; they are the last ones.
    totals: the totals that one reader would find in all files, one after another.
    damage: the damage of files that this run could read only in part.
    halves: the first file of each half, if the series consists of the halves of a TAP.
    """

    name: str
    files: list[CaptureFile]
    new: int
    totals: Totals
    damage: list[CaptureError]
    halves: tuple[str, ...] = ()


class Work:
    """A series, and the results of each stage for its new files.

    Attributes:
        sources: the files to read: the new files of the series, or one file merged from them.
        asked: what to read from packets in addition to their fields.
        buckets: how many parts the series' pairs of ends are split into.
        addresses: where the series' rows go, once it is known how many ranges there are.
        replaces: the series that this one replaces.
        places: the new ranges of the series, once they are known.
        wanting: ranges to be read again. When they were read, it was not known which earlier packets still waited for
            fragments, or which connections were translated.
        connections: the result of reading the connections of each bucket.
        parts: the parts that were written.
    """

    def __init__(self, run: Run, to_read: ToRead, asked: Asked) -> None:
        self.series = to_read.series
        self.growth = to_read.growth or Growth()
        self.known = to_read.known if to_read.growth is not None else None
        self.files = self.series.files[len(self.growth.files) :]
        self.sources = self.files
        self.replaces = to_read.replaces
        self.key = hashlib.blake2b(self.series.name.encode(), digest_size=6).hexdigest()
        self.asked = asked
        self.buckets = min(BUCKETS, 1 + sum(file.size_bytes for file in self.files) // RANGE_BYTES)
        self.addresses = Addresses(0, 0, 0, 0, self.buckets)
        self.places: tuple[Place, ...] = ()
        self.wanting: list[Place] = []
        self.connections: list[ConnectionsRead] = []
        self.parts: list[Part] = []
        self._halves = to_read.halves
        self._one_way = to_read.one_way
        self._merged: Merged | None = None
        self._taps: dict[int, Half] = {}
        self._run = run
        self._store = run.store
        self._frames_before = list(self.growth.frames_before)
        self._reads: dict[int, RangeRead] = {}
        self._translated = Translated(self.growth, ())
        before = self.growth.waiting
        self._waiting = {} if before is None else {self.growth.range_count: before}
        self._waiting_count = 0

    def merge_tasks(self) -> Iterator[MergeTask]:
        """Yield one task if the series consists of two halves."""
        if self._halves is not None:
            yield MergeTask(self._halves, self._store, f"{WORK}/{self._run.name}/{self.key}.pcapng")

    def take_merged(self, merged: Merged) -> None:
        """Take the file into which the halves were merged."""
        self._merged = merged
        self.sources = (merged.file,)

    @property
    def end(self) -> int:
        """Return a number that is higher than the number of any range.

        It is for rows that only the end of the series reveals.
        """
        return self.growth.range_count + len(self.places)

    def place(self, ranges: Sequence[Sequence[Reading]]) -> None:
        """Number the ranges of the series, given those of each of `sources`."""
        places: list[Place] = []
        frames = self.growth.frames
        self._taps = self.growth.halves if self.growth.range_count else halves_of(self.sources)
        for of_file in ranges:
            self._frames_before.append(frames)
            for reading in of_file:
                number = self.growth.range_count + len(places)
                places.append(Place(number, reading, self._frames_before[-1], self._taps))
                frames += reading.frame_count
        self.places = tuple(places)

    def address(self, series: int, ranges: int, pairs: int, streams: int) -> None:
        """Set the buckets for the series' rows.

        The arguments are the bucket of the series, and the first bucket for its new ranges, for its pairs of ends, and
        for the streams of these pairs.
        """
        self.addresses = Addresses(series, ranges - self.growth.range_count, pairs, streams, self.buckets)

    def read_task(self, places: Iterable[Place]) -> ReadTask:
        """Return the task that reads some ranges.

        For each range, the task has the earlier packets that are now known to wait for fragments.
        """
        some = tuple(places)
        numbers = [place.number for place in some]
        waiting = {number: self._waiting[number] for number in numbers if number in self._waiting}
        return ReadTask(self.addresses, some, waiting)

    @property
    def reads(self) -> list[RangeRead]:
        """The result for each new range."""
        return [self._reads[place.number] for place in self.places]

    def take_reads(self, reads: Iterable[RangeRead]) -> None:
        """Take the results of reading ranges, some of which may have been read again."""
        self._reads |= {read.place: read for read in reads}

    def fragment_tasks(self) -> Iterator[FragmentTask]:
        """Yield one task if any range has fragments, or packets wait for fragments."""
        first = self.growth.range_count
        before = self._waiting.get(first)
        if before is not None or any(read.has_fragments for read in self.reads):
            yield FragmentTask(self.series.name, first, before, self.end)

    def take_fragments(self, joined: FragmentsJoined) -> None:
        """Take, for each range, the earlier packets that wait for fragments; mark the range to be read again."""
        self._waiting |= joined.waiting
        self._waiting_count = joined.waiting_count
        self.wanting = [place for place in self.places if place.number in joined.waiting]

    def translate(self) -> None:
        """Apply translations, now that openings are known.

        Ranges with connections that are translated will be read again.
        """
        translated = Translated(self.growth, self.reads)
        self._translated = translated
        self.places = tuple(
            replace(place, translations=some) if (some := translated.within(read)) else place
            for place, read in zip(self.places, self.reads, strict=True)
        )
        wanting = {place.number for place in self.wanting}
        self.wanting = [place for place in self.places if place.number in wanting or place.translations]
        for read in self.reads:
            read.openings.clear()

    def read_series(self) -> ReadSeries:
        """Return the input of the tasks that read connections."""
        known = self.known
        return ReadSeries(
            self.addresses,
            self.growth.range_count,
            tuple(place.first_number for place in self.places),
            self.last_ns - SILENT_NS,
            bool(self._taps),
            tuple(map(self._store.path, known.open_pairs)) if known else (),
            self.asked,
            self._store,
            f"{self.key}-{self._run.name}",
        )

    @property
    def last_ns(self) -> int:
        """The time of the last frame, in nanoseconds since 1970; 0 if there is none."""
        return max(self.growth.last_ns, *(read.totals.last_ns or 0 for read in self.reads), 0)

    def take_connections(self, read: ConnectionsRead) -> None:
        """Take the result of reading the connections of one bucket."""
        self.connections.append(read)
        if read.saved is not None:
            self.parts.append(read.saved)

    def series_files(self) -> SeriesFiles:
        """Return the input of the writing tasks."""
        return SeriesFiles(
            self.series.name,
            tuple(file.path for file in self.series.files),
            tuple(self._frames_before),
            self._connections,
            None if self._merged is None else self._merged.origins,
        )

    @property
    def packet_paths(self) -> list[str]:
        """Return the paths of the parts with the series' new packets, before the run is over."""
        return [self._store.path(part.name) for part in self.parts if part.table == "packets"]

    def captures_table(self) -> pa.Table:
        """Return the table of captures for the series' new files."""
        if self._merged is None:
            found = {file.path: FileRead() for file in self.files}
            for place, read in zip(self.places, self.reads, strict=True):
                found[place.reading.file.path].add(read)
        else:
            damage = self._merged.damage
            found = {
                path: FileRead(1, totals, damage.get(path)) for path, totals in self._merged.totals.items()
            }
        return captures_table(self.series.name, self.files, found)

    @cached_property
    def _connections(self) -> npt.NDArray[np.int64]:
        """The numbers of the frames in which connections begin."""
        found = [each.connections for each in self.connections]
        if self.known is not None:
            saved = parquet_table(self._store.path(self.known.connections))
            found.append(saved["first_frame"].to_numpy())
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def write_tasks(self) -> Iterator[tuple[int, WriteTask]]:
        """Yield a task for each range, and one for rows that only the end reveals if there are any.

        Each comes with its bucket.
        """
        rows, framed = self._rows_before(), self._framed_before()
        ranges: list[tuple[int, Place | None, str]] = []
        ranges += ((place.number, place, f"{place.number:06d}") for place in self.places)
        if rows[-1] > rows[-2]:
            ranges.append((self.end, None, "end"))
        for index, (number, place, label) in enumerate(ranges):
            name = f"packets/{self.key}-{self._run.name}-{label}.parquet"
            task = WriteTask(self._store, self.series.name, place, name, rows[index], framed[index])
            yield self.addresses.range(number), task

    def stream_tasks(self) -> Iterator[tuple[int, StreamsTask]]:
        """Yield one task for each bucket of pairs, each with the bucket of its streams."""
        prefix = f"streams/{self.key}-{self._run.name}"
        for bucket in range(self.buckets if self.end else 0):
            closed, opened = f"{prefix}-{bucket:02d}.parquet", f"{prefix}-open-{bucket:02d}.parquet"
            task = StreamsTask(self._store, self.series.name, closed, opened)
            yield self.addresses.streams + bucket, task

    def _rows_before(self) -> list[int]:
        """Return the number of rows before each range, before the rows that only the end reveals, and in total."""
        return self._counted(self.growth.rows, [each.rows for each in self.connections])

    def _framed_before(self) -> list[int]:
        """Return the number of framed packets before the same places as in `_rows_before`."""
        return self._counted(self.growth.framed, [each.framed for each in self.connections])

    def _counted(self, before: int, found: Sequence[Counter[int]]) -> list[int]:
        pings = (*(read.totals.ping_frames for read in self.reads), 0)
        counts = (
            count + sum(each[number] for each in found)
            for number, count in enumerate(pings, self.growth.range_count)
        )
        return list(accumulate(counts, initial=before))

    def save(self) -> Known:
        """Save the state of the series for a later run, and return it."""
        prefix = f"{self.key}-{self._run.name}"
        growth = self._grown()
        saved = save(self._store, f"{FOLDER}/{prefix}-series.parquet", [(0, growth)])
        table = pa.table([pa.array(self._connections)], schema=CONNECTIONS)
        connections = self._store.write_part(f"{FOLDER}/{prefix}-connections.parquet", table)
        self.parts += [saved, connections]

        result = self.result()
        parts = [part for part in self.parts if part.table == "packets"]
        framed = np.diff(self._framed_before()).tolist()
        packets = [(part.name, part.rows, count) for part, count in zip(parts, framed, strict=False)]
        streams = [part.name for part in self.parts if part.table == "streams"]
        opened = {task.open for _, task in self.stream_tasks()}
        known = self.known or Known()
        return Known(
            files={file.fingerprint: file.path for file in self.series.files},
            packets=[*(part for part in known.packets if part[0] != known.end), *packets],
            end=parts[-1].name if len(parts) > len(self.places) else "",
            captures=known.captures + [part.name for part in self.parts if part.table == "captures"],
            origins=[file.origin for file in self.series.files if file.origin is not None],
            streams=known.streams + [name for name in streams if name not in opened],
            open_streams=[name for name in streams if name in opened],
            is_lossy=bool(result.damage or known.damage) or not result.totals.is_complete,
            damage=known.damage + [(error.where, error.offset, error.reason) for error in result.damage],
            form=FORM,
            growth=saved.name,
            connections=connections.name,
            open_pairs=[each.saved.name for each in self.connections if each.saved is not None],
            one_way=self._one_way,
            halves=[series_name(half[0].path) for half in self._halves or ()],
            translated=list(self._translated.crossings.texts()),
            conflicts=[list(each) for each in result.totals.conflicts],
        )

    def _grown(self) -> Growth:
        before = self.growth
        return Growth(
            files=self.series.files,
            frames_before=tuple(self._frames_before),
            last_ns=self.last_ns,
            range_count=self.end,
            frames=before.frames + sum(place.reading.frame_count for place in self.places),
            rows=self._rows_before()[-2],
            framed=self._framed_before()[-2],
            totals=self._totals(),
            waiting=self._waiting.get(self.end),
            halves=self._taps,
            translations=self._translated.in_force,
            crossings=dict(self._translated.crossings),
        )

    def _totals(self) -> Totals:
        """Return the totals of streams that are over."""
        totals = Totals()
        totals.add(self.growth.totals)
        for read in self.reads:
            totals.add(read.totals)
        for each in self.connections:
            totals.add(each.totals)
        dropped: defaultdict[str, Dropped] = defaultdict(Dropped)
        for place, read in zip(self.places, self.reads, strict=False):
            dropped[place.reading.file.path].add(read.dropped)
        for path, found in (dropped if self._merged is None else self._merged.dropped).items():
            totals.drop(path, found)
        return totals

    def result(self) -> SeriesResult:
        """Return the result for the series."""
        totals = self._totals()
        for each in self.connections:
            totals.add(each.open_totals)
        totals.packets = self._framed_before()[-1]
        totals.connections = len(self._connections)
        totals.end(self._waiting_count)
        damage = [read.damage for read in self.reads if read.damage is not None]
        damage += [] if self._merged is None else self._merged.damage.values()
        halves = tuple(half[0].path for half in self._halves or ())
        return SeriesResult(
            self.series.name, list(self.series.files), len(self.files), totals, damage, halves
        )


CAPTURES: Final = sessions.CAPTURES.schema
COUNTED: Final = (
    *("frames", "segment_frames", "ping_frames", "cut_frames", "untimed_frames"),
    *("first_ns", "last_ns"),
)
"""The columns of CAPTURES that are fields of a file's totals."""


@dataclass(slots=True)
class FileRead:
    """The result of reading a file: the number of its ranges, its frames, and its damage.

    back_ns: how far times go back in the file.
    """

    ranges: int = 0
    totals: Totals = field(default_factory=Totals)
    damage: CaptureError | None = None
    back_ns: int = 0

    def add(self, read: RangeRead) -> None:
        """Add the result of one range of the file."""
        self.ranges += 1
        before_ns, first_ns = self.totals.last_ns, read.totals.first_ns
        back_ns = 0 if before_ns is None or first_ns is None else before_ns - first_ns
        self.back_ns = max(self.back_ns, read.back_ns, back_ns)
        self.totals.add(read.totals)
        self.damage = self.damage or read.damage


def captures_table(series: str, files: Iterable[CaptureFile], found: Mapping[str, FileRead]) -> pa.Table:
    """Return the rows of some files of a series.

    Args:
        found: the results, keyed by file path.
    """
    rows = []
    for file in files:
        read = found[file.path]
        totals, damage = read.totals, read.damage
        rows.append(
            {
                "series": series,
                "file": file.path,
                **{name: getattr(file, name) for name in ("fingerprint", "size_bytes", "form", "packing")},
                "ranges": read.ranges,
                **{name: getattr(totals, name) for name in COUNTED},
                "other_frames": sum(totals.other_frames.values()),
                "other_reasons": sorted(totals.other_frames.items()),
                "back_ns": read.back_ns,
                "damage": damage.reason if damage else None,
                "damage_offset": damage.offset if damage else None,
            }
        )
    return pa.Table.from_pylist(rows, schema=CAPTURES)

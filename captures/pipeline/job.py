"""Captures into tables: which stages there are, what each is given, and what the driver has to know in between.

Each stage is one job for all series together, as there may be many small ones.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from captures.decode.names import Names
from captures.frame import CaptureError
from captures.packets import Totals
from captures.pipeline.buckets import PacketPart
from captures.pipeline.files import (
    RANGE_BYTES,
    CaptureFile,
    Range,
    Series,
    in_order,
    inventory,
    look_at,
    ranges,
)
from captures.pipeline.inputs import CAPTURES, captures_table
from captures.pipeline.joining import Joined, JoinTask, ReadSeries, join_ranges
from captures.pipeline.judging import damage_rows
from captures.pipeline.reading import Place, RangeRead, ReadTask, SeriesFolder, read_ranges
from captures.pipeline.rows import PACKETS
from captures.pipeline.runner import Count, Runner
from captures.pipeline.scan import Scanned, readings, replaced, scan, unproved
from captures.pipeline.tables import Part, Run, Tables, write_part
from captures.pipeline.verdicts import SCHEMAS, judge
from captures.pipeline.writing import SeriesFiles, WriteTask, write_packets

T = TypeVar("T")
R = TypeVar("R")

BUCKETS: Final = 16
"""Into so many parts at most the connections of a series are put; as many tasks may join them at a time."""
SERIES: Final = "series"
REFUSED: Final = "refused"
"""In the manifest's state: what is known of each series by its name, and why files were refused, by their paths."""


@dataclass(frozen=True, slots=True)
class ScanTask:
    """One range to be scanned."""

    part: Range
    range_bytes: int

    def __str__(self) -> str:
        end = min(self.part.high, self.part.file.size_bytes)
        return f"{self.part.file.where}, bytes {self.part.low} to {end}"


@dataclass(slots=True)
class SeriesResult:
    """What became of a series.

    totals: as one reader of all its files, one behind the other, would have them.
    damage: of its files, those that could be read up to there only.
    """

    name: str
    files: list[CaptureFile]
    totals: Totals
    damage: list[CaptureError]


@dataclass(slots=True)
class Result:
    """What a run has done.

    known: files that earlier runs have read.
    codes: how often each severity and code was found, over all runs.
    """

    series: list[SeriesResult]
    refused: list[CaptureError]
    repeated: list[tuple[str, str]]
    passed_over: list[str]
    known: list[str]
    codes: Counter[tuple[str, str]]


def analyse(
    paths: Sequence[str],
    tables: Tables,
    runner: Runner,
    *,
    names: Names | None = None,
    range_bytes: int = RANGE_BYTES,
) -> Result:
    """Read captures into the tables of a folder. What is in them already, by content, is not read again.

    A series of which files are new is read as a whole, since its connections go on from file to file. Where the earlier
    files are gone, the new ones are a series of their own.

    Args:
        paths: files, and folders with files.
        names: what queue managers and queues are called.
        range_bytes: so much of a file one task reads.

    Raises:
        TablesError: as `Tables.run`.
        JobError: a task failed.
        OSError: the folder cannot be written to.
    """
    found = inventory(paths)
    with tables.run() as run:
        known = {name: _Known(**entry) for name, entry in tables.manifest.state.get(SERIES, {}).items()}
        new = [_with_earlier(series, known) for series in found.series if not _is_known(series, known)]
        known_files = [
            file.path for series in found.series if _is_known(series, known) for file in series.files
        ]
        job = _Job(run, runner, range_bytes, new)
        job.carry_out()
        replaced_parts = {
            name for series in new if series.name in known for name in known[series.name].part_names
        }
        places = {work.series.name: run.folder for work in job.works}
        known |= {work.series.name: work.known() for work in job.works}
        verdicts = judge(
            run,
            runner,
            [
                part
                for name, each in known.items()
                for part in each.packet_parts(name, places.get(name, tables.folder))
            ],
            lossy=(name for name, each in known.items() if each.is_lossy),
            names=names or Names(),
        )
        read = {file.path for series in found.series for file in series.files}
        refused = {
            path: why for path, why in tables.manifest.state.get(REFUSED, {}).items() if path not in read
        }
        refused |= {error.where: [error.offset, error.reason] for error in found.refused}
        damage = [(file, file, offset, reason) for file, (offset, reason) in refused.items()] + [
            (name, *each) for name, one in known.items() for each in one.damage
        ]
        parts = [part for work in job.works for part in work.parts] + verdicts.parts
        if damage:
            parts.append(write_part(run.folder, f"findings/{run.name}-captures.parquet", damage_rows(damage)))
            verdicts.codes["note", "damaged-capture"] += len(damage)
        parts += _empty(run, {part.table for part in parts})
        run.commit(
            added=parts,
            replaced=SCHEMAS,
            dropped=[part for part in tables.manifest.parts if part.name in replaced_parts],
            state={SERIES: {name: asdict(each) for name, each in known.items()}, REFUSED: refused},
        )
    return Result(
        [work.result() for work in job.works],
        list(found.refused),
        list(found.repeated),
        list(found.passed_over),
        known_files,
        verdicts.codes,
    )


def _empty(run: Run, there: set[str]) -> Iterator[Part]:
    """Parts without rows for tables that nothing was found for, so that who reads them finds their columns."""
    for name, schema in {"packets": PACKETS, "captures": CAPTURES, **SCHEMAS}.items():
        if name not in there:
            yield write_part(run.folder, f"{name}/{run.name}-empty.parquet", schema.empty_table())


def _is_known(series: Series, known: dict[str, _Known]) -> bool:
    """Whether all files of a series have been read."""
    read = {fingerprint for each in known.values() for fingerprint in each.files}
    return {file.fingerprint for file in series.files} <= read


def _with_earlier(series: Series, known: dict[str, _Known]) -> Series:
    """A series with the files of it that were read before.

    If these are no longer there, the new ones are a series of their own, which later ones may belong to.
    """
    parts: list[str] = []
    name = series.name
    while name in known:
        parts.append(name)
        name = f"{series.name} ({len(parts) + 1})"
    if not parts:
        return series
    earlier = known[parts[-1]]
    read = {fingerprint for part in parts for fingerprint in known[part].files}
    files = {file.fingerprint: file for file in series.files if file.fingerprint not in read}
    for path in earlier.files.values():
        with suppress(OSError, CaptureError):
            file = look_at(path)
            files[file.fingerprint] = file
    if earlier.files.keys() <= files.keys():
        return Series(parts[-1], in_order(files.values()))
    return Series(name, in_order(file for file in series.files if file.fingerprint not in read))


@dataclass(slots=True)
class _Known:
    """What a later run has to know of a series.

    files: their paths, by their fingerprints.
    packets: its parts of the table of packets: name, rows, and how many of these are packets.
    captures: its part of the table of captures.
    damage: file, offset and reason.
    """

    files: dict[str, str]
    packets: list[tuple[str, int, int]]
    captures: str
    is_lossy: bool
    damage: list[tuple[str, int, str]]

    @property
    def part_names(self) -> list[str]:
        return [self.captures, *(name for name, _, _ in self.packets)]

    def packet_parts(self, series: str, folder: Path) -> Iterator[PacketPart]:
        """The parts of packets in their order."""
        rows_before = framed_before = 0
        for name, rows, framed in self.packets:
            yield PacketPart(str(folder / name), series, rows, framed, rows_before, framed_before)
            rows_before, framed_before = rows_before + rows, framed_before + framed


@dataclass(slots=True)
class _Work:
    """A series under way.

    frames_before: by file, in those before it.
    """

    series: Series
    key: str
    folder: SeriesFolder
    places: tuple[Place, ...] = ()
    frames_before: list[int] = field(default_factory=list)
    reads: list[RangeRead] = field(default_factory=list)
    fragments_of: dict[int, int] = field(default_factory=dict)
    joined: list[Joined] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    def rows_before(self) -> list[int]:
        """How many rows stand before each range, and in all."""
        return _counted((read.rows for read in self.reads), [each.rows for each in self.joined])

    def framed_before(self) -> list[int]:
        """Of these, how many are packets."""
        return _counted((read.framed for read in self.reads), [each.framed for each in self.joined])

    def known(self) -> _Known:
        """What a later run has to know."""
        result = self.result()
        rows, framed = self.rows_before(), self.framed_before()
        packets = [part for part in self.parts if part.table == "packets"]
        return _Known(
            {file.fingerprint: file.path for file in self.series.files},
            [
                (part.name, rows[place + 1] - rows[place], framed[place + 1] - framed[place])
                for place, part in enumerate(packets)
            ],
            next(part.name for part in self.parts if part.table == "captures"),
            bool(result.damage) or not result.totals.is_complete,
            [(error.where, error.offset, error.reason) for error in result.damage],
        )

    def result(self) -> SeriesResult:
        """What became of it."""
        totals = Totals()
        for read in self.reads:
            totals.add(read.totals)
        for each in self.joined:
            totals.add(each.totals)
        totals.packets = self.framed_before()[-1]
        with_fragments = [read for read in self.reads if read.fragment_count]
        if with_fragments:
            totals.given_up_fragments += with_fragments[-1].waiting_fragments
        damage = [read.damage for read in self.reads if read.damage is not None]
        return SeriesResult(self.series.name, list(self.series.files), totals, damage)


class _Job:
    """The stages, one after the other."""

    def __init__(self, run: Run, runner: Runner, range_bytes: int, series: Sequence[Series]) -> None:
        self._run = run
        self._runner = runner
        self._range_bytes = range_bytes
        self.works = [self._begin(each) for each in series]

    def _begin(self, series: Series) -> _Work:
        key = hashlib.blake2b(series.name.encode(), digest_size=6).hexdigest()
        size_bytes = sum(file.size_bytes for file in series.files)
        buckets = min(BUCKETS, 1 + size_bytes // RANGE_BYTES)
        return _Work(series, key, SeriesFolder(self._run.folder / "_stages" / key, buckets))

    def carry_out(self) -> None:
        """Everything from files to parts."""
        self._scan()
        self._read()
        self._join()
        self._write()

    def _of_all(
        self,
        stage: str,
        function: Callable[[T, Count], R],
        tasks_of: Callable[[_Work], Iterable[T]],
        take: Callable[[_Work, R], object],
    ) -> None:
        """One job for all series: their tasks, and who takes the results."""
        tasks = [(work, task) for work in self.works for task in tasks_of(work)]
        results = self._runner(stage, function, [task for _, task in tasks])
        for (work, _), result in zip(tasks, results, strict=True):
            take(work, result)

    def _scan(self) -> None:
        """Find where the records stand, until all is proved."""
        scans: dict[str, list[Scanned]] = {file.path: [] for work in self.works for file in work.series.files}
        parts = [
            part
            for work in self.works
            for file in work.series.files
            for part in ranges(file, self._range_bytes)
        ]
        again: defaultdict[str, list[Scanned]]
        while parts:
            tasks = [ScanTask(part, self._range_bytes) for part in parts]
            again = defaultdict(list)
            for part, found in zip(parts, self._runner("looking for frames", scan_range, tasks), strict=True):
                again[part.file.path] += found
            for path, found in again.items():
                scans[path] = replaced(scans[path], found) if scans[path] else found
            parts = [part for path in again for part in unproved(scans[path])]
        for work in self.works:
            _place(work, scans)

    def _read(self) -> None:
        """Read every range; those with fragments again, until all is known that they need of others."""
        reads: dict[str, dict[int, RangeRead]] = {work.key: {} for work in self.works}

        def take(work: _Work, results: list[RangeRead]) -> None:
            reads[work.key] |= {read.place: read for read in results}

        self._of_all("reading packets", read_ranges, _read_tasks, take)
        rounds = {work.key: _FragmentRounds(work) for work in self.works}
        while any(rounds[work.key].wanted(reads[work.key]) for work in self.works):
            self._of_all("reading fragments", read_ranges, lambda work: rounds[work.key].tasks(), take)
        for work in self.works:
            work.reads = [reads[work.key][place.number] for place in work.places]
            work.fragments_of = rounds[work.key].sources

    def _join(self) -> None:
        def tasks(work: _Work) -> Iterable[JoinTask]:
            buckets = range(work.folder.buckets if work.places else 0)
            return (JoinTask(work.series.name, bucket) for bucket in buckets)

        read = {
            work.series.name: ReadSeries(work.folder, work.places, work.fragments_of) for work in self.works
        }
        self._of_all(
            "joining connections",
            partial(join_ranges, read),
            tasks,
            lambda work, joined: work.joined.append(joined),
        )
        for work in self.works:
            if work.places:
                found = np.concatenate([each.connections for each in work.joined])
                np.save(_connections(work), np.sort(found))

    def _write(self) -> None:
        files = {work.series.name: _files(work) for work in self.works}
        self._of_all(
            "writing packets",
            partial(write_packets, files),
            self._write_tasks,
            lambda work, part: work.parts.append(part),
        )
        for work in self.works:
            name = f"captures/{work.key}-{self._run.name}.parquet"
            table = captures_table(work.series, work.places, work.reads)
            work.parts.append(write_part(self._run.folder, name, table))

    def _write_tasks(self, work: _Work) -> Iterable[WriteTask]:
        rows, framed = work.rows_before(), work.framed_before()
        for place in work.places:
            name = f"packets/{work.key}-{self._run.name}-{place.number:06d}.parquet"
            before = (rows[place.number], framed[place.number])
            yield WriteTask(self._run.folder, work.series.name, place, name, *before)


class _FragmentRounds:
    """Which ranges of a series are to be read again because packets wait for fragments that they may have."""

    def __init__(self, work: _Work) -> None:
        self._work = work
        self._reads: Counter[int] = Counter()
        self._used: dict[int, tuple[int, int] | None] = {}
        self._wanted: dict[int, tuple[int, int] | None] = {}

    @property
    def sources(self) -> dict[int, int]:
        """By range: the one by whose end packets wait for what it has."""
        return {number: used[0] for number, used in self._used.items() if used is not None}

    def wanted(self, reads: dict[int, RangeRead]) -> bool:
        """Whether there are any; what waits at the end of a range changes whenever that is read again."""
        self._wanted.clear()
        waiting: tuple[int, int] | None = None
        for place in self._work.places:
            read = reads[place.number]
            if not read.fragment_count:
                continue
            if self._used.get(place.number) != waiting:
                self._wanted[place.number] = waiting
            waiting = (place.number, self._reads[place.number]) if read.waiting_fragments else None
        return bool(self._wanted)

    def tasks(self) -> list[ReadTask]:
        """Read them again."""
        self._used |= self._wanted
        self._reads.update(self._wanted.keys())
        places = self._work.places
        return [
            ReadTask(self._work.folder, (places[number],), None if wanted is None else wanted[0])
            for number, wanted in self._wanted.items()
        ]


def scan_range(task: ScanTask, done: Count) -> list[Scanned]:
    """Where the records of a range stand."""
    found = scan(task.part, task.range_bytes)
    for scanned in found:
        done(0, scanned.following - (scanned.first or scanned.part.low))
    return found


def _place(work: _Work, scans: dict[str, list[Scanned]]) -> None:
    """All that is to be read of a series, in its order."""
    places: list[Place] = []
    frames = 0
    for file in work.series.files:
        work.frames_before.append(frames)
        for reading in readings(scans[file.path]):
            places.append(Place(len(places), reading, work.frames_before[-1]))
            frames += reading.frame_count
    work.places = tuple(places)


def _files(work: _Work) -> SeriesFiles:
    paths = tuple(file.path for file in work.series.files)
    return SeriesFiles(work.series.name, paths, tuple(work.frames_before), work.folder, _connections(work))


def _read_tasks(work: _Work) -> Iterable[ReadTask]:
    """The ranges of a packed file one after the other, as it is unpacked only once; all others by themselves."""
    packed: defaultdict[str, list[Place]] = defaultdict(list)
    for place in work.places:
        if place.reading.file.packing:
            packed[place.reading.file.path].append(place)
        else:
            yield ReadTask(work.folder, (place,))
    for places in packed.values():
        yield ReadTask(work.folder, tuple(places))


def _connections(work: _Work) -> Path:
    """Where the numbers of the frames stand with which the connections of a series began."""
    return work.folder.path / "connections.npy"


def _counted(found: Iterable[int], changes: Sequence[Counter[int]]) -> list[int]:
    counts = (count + sum(change[number] for change in changes) for number, count in enumerate(found))
    return list(accumulate(counts, initial=0))

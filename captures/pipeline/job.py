"""Captures into tables: which stages there are, what each is given, and what the driver has to know in between.

Each stage is one job for all series together, as there may be many small ones.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from captures.frame import CaptureError
from captures.packets import Totals
from captures.pipeline.files import RANGE_BYTES, CaptureFile, Inventory, Range, Series, inventory, ranges
from captures.pipeline.inputs import captures_table
from captures.pipeline.joining import Joined, JoinTask, join_ranges
from captures.pipeline.reading import Place, RangeRead, ReadTask, SeriesFolder, read_ranges
from captures.pipeline.runner import Count, Runner
from captures.pipeline.scan import Scanned, readings, replaced, scan, unproved
from captures.pipeline.tables import Part, Run, Tables, write_part
from captures.pipeline.writing import SeriesFiles, WriteTask, write_packets

T = TypeVar("T")
R = TypeVar("R")

BUCKETS: Final = 16
"""Into so many parts at most the connections of a series are put; as many tasks may join them at a time."""
STATE: Final = "series"
"""In the manifest's state: by the name of a series, its files' fingerprints and its parts."""


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
    """

    series: list[SeriesResult]
    refused: list[CaptureError]
    repeated: list[tuple[str, str]]
    passed_over: list[str]
    known: list[str]


def analyse(
    paths: Sequence[str], tables: Tables, runner: Runner, *, range_bytes: int = RANGE_BYTES
) -> Result:
    """Read captures into the tables of a folder. What is in them already, by content, is not read again.

    A series of which files are new is read as a whole, since its connections go on from file to file.

    Args:
        paths: files, and folders with files.
        range_bytes: so much of a file one task reads.

    Raises:
        TablesError: as `Tables.run`.
        JobError: a task failed.
        OSError: the folder cannot be written to.
    """
    found = inventory(paths)
    with tables.run() as run:
        earlier: dict[str, Any] = tables.manifest.state.get(STATE, {})
        known = {
            fingerprint: series.name
            for series in found.series
            for fingerprint in earlier.get(series.name, {"files": []})["files"]
        }
        new = [
            series for series in found.series if any(file.fingerprint not in known for file in series.files)
        ]
        job = _Job(run, runner, range_bytes, new)
        job.carry_out()
        replaced_parts = {name for series in new for name in earlier.get(series.name, {"parts": []})["parts"]}
        state = earlier | {
            work.series.name: {
                "files": [file.fingerprint for file in work.series.files],
                "parts": [part.name for part in work.parts],
            }
            for work in job.works
        }
        run.commit(
            added=[part for work in job.works for part in work.parts],
            dropped=[part for part in tables.manifest.parts if part.name in replaced_parts],
            state={STATE: state},
        )
    return Result(
        [work.result() for work in job.works],
        list(found.refused),
        list(found.repeated),
        list(found.passed_over),
        _known_files(found, new),
    )


def _known_files(found: Inventory, new: Sequence[Series]) -> list[str]:
    return [file.path for series in found.series if series not in new for file in series.files]


@dataclass(slots=True)
class _Work:
    """A series under way."""

    series: Series
    key: str
    folder: SeriesFolder
    places: tuple[Place, ...] = ()
    files: SeriesFiles | None = None
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
            return (JoinTask(work.folder, bucket, work.places, work.fragments_of) for bucket in buckets)

        self._of_all(
            "joining connections", join_ranges, tasks, lambda work, joined: work.joined.append(joined)
        )
        for work in self.works:
            if work.places:
                found = np.concatenate([each.connections for each in work.joined])
                np.save(_connections(work), np.sort(found))

    def _write(self) -> None:
        self._of_all(
            "writing packets", write_packets, self._write_tasks, lambda work, part: work.parts.append(part)
        )
        for work in self.works:
            name = f"captures/{work.key}-{self._run.name}.parquet"
            table = captures_table(work.series, work.places, work.reads)
            work.parts.append(write_part(self._run.folder, name, table))

    def _write_tasks(self, work: _Work) -> Iterable[WriteTask]:
        assert work.files is not None
        rows, framed = work.rows_before(), work.framed_before()
        for place in work.places:
            name = f"packets/{work.key}-{self._run.name}-{place.number:06d}.parquet"
            before = (rows[place.number], framed[place.number])
            yield WriteTask(
                self._run.folder, work.folder, work.files, place, name, *before, _connections(work)
            )


class _FragmentRounds:
    """Which ranges of a series are to be read again because packets wait for fragments that they may have."""

    def __init__(self, work: _Work) -> None:
        self._work = work
        self._reads: Counter[int] = Counter()
        self._used: dict[int, tuple[int, int]] = {}
        self._wanted: dict[int, tuple[int, int]] = {}

    @property
    def sources(self) -> dict[int, int]:
        """By range: the one by whose end packets wait for what it has."""
        return {number: source for number, (source, _) in self._used.items()}

    def wanted(self, reads: dict[int, RangeRead]) -> bool:
        """Whether there are any; what waits at the end of a range changes whenever that is read again."""
        self._wanted.clear()
        waiting: tuple[int, int] | None = None
        for place in self._work.places:
            read = reads[place.number]
            if not read.fragment_count:
                continue
            if waiting is not None and self._used.get(place.number) != waiting:
                self._wanted[place.number] = waiting
            waiting = (place.number, self._reads[place.number]) if read.waiting_fragments else None
        return bool(self._wanted)

    def tasks(self) -> list[ReadTask]:
        """Read them again."""
        self._used |= self._wanted
        self._reads.update(self._wanted.keys())
        places = self._work.places
        return [
            ReadTask(self._work.folder, (places[number],), source)
            for number, (source, _) in self._wanted.items()
        ]


def scan_range(task: ScanTask, count: Count) -> list[Scanned]:
    """Where the records of a range stand."""
    found = scan(task.part, task.range_bytes)
    for scanned in found:
        count(0, scanned.following - (scanned.first or scanned.part.low))
    return found


def _place(work: _Work, scans: dict[str, list[Scanned]]) -> None:
    """All that is to be read of a series, in its order."""
    places: list[Place] = []
    frames_before: list[int] = []
    frames = 0
    for file in work.series.files:
        frames_before.append(frames)
        for reading in readings(scans[file.path]):
            places.append(Place(len(places), reading, frames_before[-1]))
            frames += reading.frame_count
    work.places = tuple(places)
    paths = tuple(file.path for file in work.series.files)
    work.files = SeriesFiles(work.series.name, paths, tuple(frames_before))


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

"""Makes tables from captures: runs the stages with their inputs, and keeps the driver's state between them.

Each stage is one job for all series together, because there may be many small ones.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from mqproto.captures.decode.names import Names
from mqproto.captures.files.frame import CaptureError
from mqproto.captures.pipeline.engines.engine import Engine, Function, Inbox, Outbox
from mqproto.captures.pipeline.reading import writing
from mqproto.captures.pipeline.reading.addresses import FRAGMENTS, SEGMENTS
from mqproto.captures.pipeline.reading.connections import ConnectionsTask, read_connections
from mqproto.captures.pipeline.reading.fragments import join_fragments
from mqproto.captures.pipeline.reading.halves import merge
from mqproto.captures.pipeline.reading.reading import Place, ReadTask, read_ranges
from mqproto.captures.pipeline.reading.rows import Asked
from mqproto.captures.pipeline.reading.writing import write
from mqproto.captures.pipeline.run.known import Known, reads
from mqproto.captures.pipeline.run.pairing import all_to_read
from mqproto.captures.pipeline.run.strangers import apart
from mqproto.captures.pipeline.run.work import SeriesResult, Work
from mqproto.captures.pipeline.source.files import RANGE_BYTES, CaptureFile, Inventory, Series, inventory
from mqproto.captures.pipeline.source.scan import Reading, readings
from mqproto.captures.pipeline.stages.tasks.checkpoint import (
    FOLDER,
    Checkpoint,
    checkpoint_of,
    digest,
    watermark,
)
from mqproto.captures.pipeline.stages.tasks.findings import rows_of_captures
from mqproto.captures.pipeline.stages.tasks.plan import MADE, make_tables
from mqproto.captures.pipeline.tables.parts import Part
from mqproto.captures.pipeline.tables.schemas.tables import COMMENTED
from mqproto.captures.pipeline.tables.tables import WORK, Run, Tables, TablesError
from mqproto.captures.pipeline.tables.tidying import TidyTask, groups, tidy

T = TypeVar("T")
R = TypeVar("R")

SERIES: Final = "series"
TEXTS: Final = "body_texts"
KEYED: Final = "keyed"
REFUSED: Final = "refused"
JUDGED: Final = "judged"
"""The last key of the tables' state; SERIES is the first.

From SERIES to JUDGED, the keys have these values:

1. Each series' `Known`, by name.
2. Whether packets have the texts of bodies.
3. Whether packets have the results of keys.
4. Why files were refused, by path.
5. The state of judging.
"""


READING: Final = "reading segments"
"""The stage whose tasks may be repeated."""


@dataclass(frozen=True, slots=True)
class ScanTask:
    """A file to cut into ranges."""

    file: CaptureFile

    def __str__(self) -> str:
        return self.file.where


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run makes of its captures.

    names: the names of queue managers and queues.
    range_bytes: how much of a file one task reads.
    body_texts: whether the table of packets has the texts of bodies; once a table has them, it always does.
    keys: files and folders with keys, which verify and decrypt these packets; they are not stored.
    """

    names: Names = field(default_factory=Names)
    range_bytes: int = RANGE_BYTES
    body_texts: bool = False
    keys: Sequence[str] = ()


DEFAULT: Final = Wanted()


@dataclass(slots=True)
class Result:
    """The result of a run.

    known: the files that earlier runs have read.
    codes: how often each severity and code is in the table of findings.
    """

    series: list[SeriesResult]
    refused: list[CaptureError]
    repeated: list[tuple[str, str]]
    passed_over: list[str]
    known: list[str]
    codes: Counter[tuple[str, str]]


def nothing_new(found: Inventory, tables: Tables, wanted: Wanted = DEFAULT) -> Result | None:
    """Return the result of `analyse` if everything found is already in the tables; None if there is work to do."""
    state = tables.state
    before = checkpoint_of(state.get(JUDGED))
    is_read = reads(Known(**entry) for entry in state.get(SERIES, {}).values())
    if (
        before is None
        or before.names != digest(wanted.names)
        or (wanted.body_texts and not state[TEXTS])
        or (wanted.keys and not state.get(KEYED))
        or not all(map(is_read, found.files))
        or _refused(state, found, found.refused) != state[REFUSED]
    ):
        return None
    return _result(found, [], (), [file.path for file in found.files], tables)


def analyse(
    paths: Sequence[str],
    tables: Tables,
    engine: Engine,
    wanted: Wanted = DEFAULT,
    *,
    found: Inventory | None = None,
) -> Result:
    """Read captures into tables; files whose content is already in the tables are not read again.

    New files of a series are read after those that were read before, and continue their connections. For new files that
    do not come after the earlier ones, see mqproto.captures.pipeline.run.known.to_read.

    Args:
        paths: files, and folders with files.
        found: the inventory of the paths, if there is one already.

    Raises:
        TablesError: as for `Tables.run`; or texts of bodies, or keys, are requested, but were not requested for earlier
            packets.
        JobError: a task failed.
        OSError: the folder cannot be written to.
    """
    found = inventory(paths) if found is None else found
    with tables.run() as run, _emptied(engine, run):
        state = tables.state
        known = {name: Known(**entry) for name, entry in state.get(SERIES, {}).items()}
        texts = state.get(TEXTS, False) if known else wanted.body_texts
        if wanted.body_texts and not texts:
            raise TablesError(
                f"{tables.folder} has tables without what bodies say: analyse all captures into another folder"
            )
        keyed = state.get(KEYED, False) if known else bool(wanted.keys)
        if wanted.keys and not keyed:
            raise TablesError(
                f"{tables.folder} has tables that were made without keys: analyse all captures into another folder"
            )
        is_read = reads(known.values())
        known_files: list[str] = []
        new: list[Series] = []
        for series in found.series:
            if all(map(is_read, series.files)):
                known_files += (file.path for file in series.files)
            else:
                new.append(series)
        asked = Asked(texts, tuple(wanted.keys))
        works = [Work(run, each, asked) for each in all_to_read(new, known, is_read, run.store)]
        _Job(works, run, engine, wanted.range_bytes).carry_out()
        read_works = works
        works, strangers = apart(works, known, run.store)
        run.store.remove(part.name for work in read_works if work not in works for part in work.parts)

        before = checkpoint_of(state.get(JUDGED))
        if before is not None and any(_is_out_of_order(work, known, before) for work in works):
            before = None
        before_run = tables.every_part()
        replaced: set[str] = set()
        for work in works:
            for name in work.replaces:
                replaced |= known.pop(name).part_names
            if (earlier := known.get(work.series.name)) is not None:
                replaced |= earlier.part_names if work.known is None else earlier.saved
            known[work.series.name] = work.save()
        written = {part.name for work in works for part in work.parts}
        made = make_tables(
            run,
            engine,
            [
                part
                for name, each in sorted(known.items())
                for part in each.packet_parts(name, written, run.store)
            ],
            [
                part
                for name, each in sorted(known.items())
                for part in each.stream_parts(name, written, run.store)
            ],
            before,
            lossy=(name for name, each in known.items() if each.is_lossy),
            names=wanted.names,
            newest_ns=min((work.last_ns for work in works), default=None),
        )
        refused = _refused(state, found, (*found.refused, *strangers))
        damage = [(file, file, offset, reason) for file, (offset, reason) in refused.items()] + [
            (name, *each) for name, one in known.items() for each in one.damage
        ]
        parts = [part for work in works for part in work.parts] + made.parts
        noted = [
            (name, "address-translation", text) for name, one in known.items() for text in one.translated
        ]
        noted += [(name, *each) for name, one in known.items() for each in one.conflicts]
        if damage or noted:
            rows = rows_of_captures(damage, noted)
            parts.append(run.store.write_part(f"findings/{run.name}-captures.parquet", rows))
            made.checkpoint.open.append(parts[-1].name)
        if before is not None and not made.is_anew:
            replaced.update(before.open)
        else:
            replaced |= {part.name for part in before_run if part.table in MADE}
        replaced |= {name for name in tables.kept.files if name.startswith(f"{FOLDER}/")}
        kept = [part for part in before_run if part.name not in replaced]
        lists = [names for each in known.values() for names in (each.captures, each.streams)]
        tidied = _tidied(run, engine, kept, [*made.checkpoint.arrivals, *lists])
        parts += tidied
        gone = {name for names in tidied.values() for name in names}
        run.commit(
            added=parts,
            schemas=COMMENTED,
            dropped=replaced | gone,
            tidied=gone.union(part.name for part in tidied),
            state={
                SERIES: {name: asdict(each) for name, each in known.items()},
                TEXTS: texts,
                KEYED: keyed,
                REFUSED: refused,
                JUDGED: asdict(made.checkpoint),
            },
        )
    return _result(found, works, strangers, known_files, tables)


def _refused(
    state: Mapping[str, Any], found: Inventory, errors: Iterable[CaptureError]
) -> dict[str, list[Any]]:
    """Return the reasons for refused files, including those of earlier runs."""
    read = {file.path for file in found.files}
    refused = {path: why for path, why in state.get(REFUSED, {}).items() if path not in read}
    return refused | {error.where: [error.offset, error.reason] for error in errors}


def _result(
    found: Inventory,
    works: Iterable[Work],
    strangers: Iterable[CaptureError],
    known: list[str],
    tables: Tables,
) -> Result:
    codes = tables.read("findings", ("severity", "code"))
    return Result(
        [work.result() for work in works],
        [*found.refused, *strangers],
        list(found.repeated),
        list(found.passed_over),
        known,
        Counter(zip(*(column.to_pylist() for column in codes.columns), strict=True)),
    )


@contextmanager
def _emptied(engine: Engine, run: Run) -> Iterator[None]:
    """After the block, delete everything that tasks stored for one another."""
    try:
        yield
    finally:
        engine.clear()
        run.store.remove([file.name for file in run.store.files(f"{WORK}/{run.name}")])


def _is_out_of_order(work: Work, known: Mapping[str, Known], before: Checkpoint) -> bool:
    """Whether judged packets of a series are read again, or new packets are too old.

    New packets are too old if they are from before `Watermark.quiet_ns`: messages that were last seen before that time
    may already count as over.
    """
    if work.known is not None:
        return False
    first_ns = work.files[0].first_ns
    return (
        work.series.name in known
        or bool(work.replaces)
        or (first_ns is not None and first_ns < watermark(before.newest_ns).quiet_ns)
    )


def _tidied(
    run: Run, engine: Engine, parts: Iterable[Part], lists: Sequence[list[str]]
) -> dict[Part, list[str]]:
    """Merge small parts of earlier runs; return each new part with the names of the parts it replaces.

    Args:
        parts: the parts that stay.
        lists: lists of names of parts. A part named in a list is merged only with parts of the same list. The name of
            the new part then replaces their names in that list.
    """
    places = {name: place for place, names in enumerate(lists) for name in names}
    keyed = (
        (f"{part.table} {places.get(part.name, '')}", part)
        for part in parts
        if part.table in MADE or part.name in places
    )
    together = list(groups(keyed))
    tasks = [
        TidyTask(
            run.store,
            tuple(part.name for part in some),
            f"{some[0].table}/{run.name}-tidy-{number:06d}.parquet",
        )
        for number, some in enumerate(together)
    ]
    made = engine.carry_out("tidying tables", tidy, dict(enumerate(tasks)), puts=False)
    found = {part: [each.name for each in some] for part, some in zip(made, together, strict=True)}
    for part, gone in found.items():
        if gone[0] in places:
            names = lists[places[gone[0]]]
            names[:] = [part.name, *(name for name in names if name not in gone)]
    return found


class _Job:
    """The stages, one after another."""

    def __init__(self, works: Sequence[Work], run: Run, engine: Engine, range_bytes: int) -> None:
        self._works = works
        self._run = run
        self._engine = engine
        self._range_bytes = range_bytes

    def carry_out(self) -> None:
        """Run everything from files to parts."""
        self._merge()
        self._scan()
        self._address()
        self._read()
        self._read_connections()
        self._write()

    def _of_all(
        self,
        stage: str,
        function: Function[T, R],
        tasks_of: Callable[[Work], Iterable[tuple[int, T]]],
        take: Callable[[Work, R], object],
        reads: Sequence[str] = (),
        *,
        again: str | None = None,
        puts: bool = True,
    ) -> None:
        """Run one stage for all series.

        Args:
            tasks_of: a function that returns the tasks of a series, each with its bucket.
            take: a function that takes each result.
        """
        tasks = [(work, bucket, task) for work in self._works for bucket, task in tasks_of(work)]
        results = self._engine.carry_out(
            stage, function, {bucket: task for _, bucket, task in tasks}, reads, again=again, puts=puts
        )
        for (work, _, _), result in zip(tasks, results, strict=True):
            take(work, result)

    def _merge(self) -> None:
        numbers = itertools.count()
        self._of_all(
            "merging halves",
            merge,
            lambda work: zip(numbers, work.merge_tasks(), strict=False),
            Work.take_merged,
            puts=False,
        )

    def _scan(self) -> None:
        """Find the ranges of all files."""
        numbers = itertools.count()
        found: defaultdict[Work, list[list[Reading]]] = defaultdict(list)
        self._of_all(
            "looking for frames",
            partial(scan, self._range_bytes),
            lambda work: zip(numbers, map(ScanTask, work.sources), strict=False),
            lambda work, readings: found[work].append(readings),
            puts=False,
        )
        for work in self._works:
            work.place(found[work])

    def _address(self) -> None:
        """Assign buckets to the rows of each series.

        Every range, and every part of the pairs of ends, has a bucket of its own.
        """
        streams = sum(len(work.places) + 1 for work in self._works)
        ranges = pairs = 0
        for number, work in enumerate(self._works):
            work.address(number, ranges, pairs, streams + pairs)
            ranges += len(work.places) + 1
            pairs += work.buckets

    def _read(self) -> None:
        """Read every range, and read some ranges again.

        A range is read again if it has fragments of packets that began before it, or connections that address
        translation repeats.
        """
        self._of_all(READING, read_ranges, _read_tasks, Work.take_reads)
        self._of_all(
            "joining fragments",
            join_fragments,
            lambda work: ((work.addresses.series, task) for task in work.fragment_tasks()),
            Work.take_fragments,
            (FRAGMENTS,),
            puts=False,
        )
        for work in self._works:
            work.translate()
        self._of_all(
            "reading once more",
            read_ranges,
            lambda work: (
                (work.addresses.range(place.number), work.read_task([place])) for place in work.wanting
            ),
            Work.take_reads,
            again=READING,
        )
        self._engine.drop(FRAGMENTS)

    def _read_connections(self) -> None:
        def tasks(work: Work) -> Iterable[tuple[int, ConnectionsTask]]:
            for bucket in range(work.buckets if work.end else 0):
                yield work.addresses.pairs + bucket, ConnectionsTask(work.series.name, bucket)

        read = {work.series.name: work.read_series() for work in self._works}
        function = partial(read_connections, read)
        self._of_all("reading connections", function, tasks, Work.take_connections, (SEGMENTS,))
        self._engine.drop(SEGMENTS)

    def _write(self) -> None:
        files = {work.series.name: work.series_files() for work in self._works}
        self._of_all(
            "writing packets",
            partial(write, files),
            lambda work: (*work.write_tasks(), *work.stream_tasks()),
            lambda work, parts: work.parts.extend(parts),
            writing.READ,
            puts=False,
        )
        self._engine.drop(*writing.READ)
        for work in self._works:
            name = f"captures/{work.key}-{self._run.name}.parquet"
            work.parts.append(self._run.store.write_part(name, work.captures_table()))


def scan(range_bytes: int, task: ScanTask, inbox: Inbox, outbox: Outbox) -> list[Reading]:
    """Find the ranges of a file."""
    return readings(task.file, range_bytes)


def _read_tasks(work: Work) -> Iterable[tuple[int, ReadTask]]:
    """Yield a task for each range, but only one for all ranges of a packed file, which is unpacked only once."""
    packed: defaultdict[str, list[Place]] = defaultdict(list)
    for place in work.places:
        if place.reading.file.packing:
            packed[place.reading.file.path].append(place)
        else:
            yield work.addresses.range(place.number), work.read_task([place])
    for places in packed.values():
        yield work.addresses.range(places[0].number), work.read_task(places)

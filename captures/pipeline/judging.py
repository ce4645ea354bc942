"""The stages that judge packets, as tasks: who brings which rows to which stage, and where its tables go.

What a stage does stands in captures/pipeline/stages. Packets come from the table of packets, part by part; rows go from
task to task in buckets, of which each has all that one connection, one sequence or one message needs. Each stage first
takes what is new, and is saved as it stands then; what it says further is open. See captures.pipeline.judged.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from captures.decode.findings import Severity
from captures.decode.sight import Kind
from captures.pipeline.buckets import PacketPart, by_connection, by_text, split
from captures.pipeline.judged import FOLDER
from captures.pipeline.records import Integers
from captures.pipeline.runner import Count
from captures.pipeline.saving import pickled, save, saved
from captures.pipeline.stages import (
    clocks,
    directory,
    duplicates,
    findings,
    grouping,
    histories,
    journeys,
    sequences,
    sessions,
    settling,
    subjects,
)
from captures.pipeline.stages.facts import losses_of
from captures.pipeline.stages.rows import Batches
from captures.pipeline.stages.schema import FINDINGS, RELATIONS
from captures.pipeline.stages.sequence_schema import CONFIRMATIONS
from captures.pipeline.tables import Part, write_part
from captures.pipeline.workbench import OPEN, Bench, Done, Out, Route, Task

T = TypeVar("T")

BATCH_ROWS: Final = 65_536
COLLECTED_OBJECTS: Final = 1_000_000
"""So many objects the tasks here make before Python looks for garbage among them, in the place of 700."""
OF_SESSIONS: Final = "sessions"
OF_SEQUENCES: Final = "sequences"
OF_JOURNEYS: Final = "journeys"
OF_HISTORIES: Final = "histories"
FINDERS: Final = tuple(f"findings of {stage}" for stage in (OF_SESSIONS, OF_SEQUENCES, OF_JOURNEYS))
"""Findings on their way to the packets that they are about, by who found them."""
PLACED: Final = ("file", "frame", "file_offset")
PLACED_FINDINGS: Final = pa.schema(
    [*FINDINGS, ("file", pa.string()), ("frame", pa.int64()), ("file_offset", pa.int64())]
)
"""Findings, and the place of the packet that each is about: its file, the frame that ended it, and where it began."""
JOINED: Final = tuple(name for name in RELATIONS.names if name not in ("series", "row_id"))
_READ: Final = tuple(
    dict.fromkeys(name for name in (*grouping.COLUMNS, *sequences.COLUMNS) if name not in JOINED)
)
FACTS, RELATED = "facts", "relations"
SEQUENCE_ROWS, MESSAGE_ROWS, CONFIRMED = "sequence-rows", "message-rows", "confirmations"
AGAIN: Final = f"{MESSAGE_ROWS} again"
"""Rows on their way: what connections need, what packets are to them, what sequences and messages need. AGAIN has rows
of packets of earlier runs of which more is known now."""

Stage = Callable[[Bench, Task, Count], Done]


def _collecting_seldom(function: Stage) -> Stage:
    """A task that makes many rows, which are no garbage: looking for cycles in them took a fifth of its time."""

    @wraps(function)
    def carry_out(bench: Bench, task: Task, count: Count) -> Done:
        thresholds = gc.get_threshold()
        gc.set_threshold(COLLECTED_OBJECTS, *thresholds[1:])
        try:
            return function(bench, task, count)
        finally:
            gc.set_threshold(*thresholds)

    return carry_out


def share(bench: Bench, task: Task, count: Count) -> Done:
    """Packets of a part to their connections."""
    part = bench.parts[task.number]
    done = Done()
    found = done.open if task.number in bench.ends else done.settled
    facts: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    for batch in _read(part, sessions.COLUMNS):
        bucket = by_connection(part.series, batch.column("connection"), bench.buckets.connections)
        for number, rows in split(batch, bucket).items():
            facts[number].append(rows)
        asked = pc.equal(batch.column("kind"), str(Kind.ESTABLISH_CONNECTION))
        found.handshakes.append(batch.filter(asked).select(directory.HANDSHAKE_COLUMNS))
        found.places |= {(part.series, number) for number in batch.column("interface").unique().to_pylist()}
        count(batch.num_rows, 0)
    bench.exchange(FACTS).put(
        task.number, {number: pa.concat_batches(batches) for number, batches in facts.items()}
    )
    return done


@_collecting_seldom
def judge_sessions(bench: Bench, task: Task, count: Count) -> Done:
    """The connections of a bucket."""
    done = Done()
    routes = {
        "relations": (RELATED, bench.index.of_rows),
        "findings": (f"findings of {OF_SESSIONS}", bench.index.of_numbers),
    }
    settled, opened = _outs(bench, task, done, OF_SESSIONS, routes)

    def add(out: Out, found: Batches) -> None:
        if (rows := found.get("sessions")) is not None:
            out.found.losses |= losses_of(rows)
        out.add(found)

    def take(out: Out, parts: Iterable[int]) -> None:
        for rows in _pieces(bench.exchange(FACTS).take(task.number, parts)):
            add(out, stage.take(rows))
            count(rows.num_rows, 0)

    stage = _resumed(bench, task, OF_SESSIONS, sessions.SessionStage) or sessions.SessionStage(bench.names)
    stage.know(bench.directory)
    take(settled, bench.new)
    add(settled, stage.part(bench.parted_ns))
    stage.know(directory.Directory({}))
    done.saved = _saved(bench, task, OF_SESSIONS, stage)
    stage.know(bench.directory)
    take(opened, bench.ends)
    add(opened, stage.finish(bench.lossless))
    settled.finish()
    opened.finish()
    return done


def relate(bench: Bench, task: Task, count: Count) -> Done:
    """Packets of a part, and what they are to their sessions, to their sequences and their messages.

    Of a part that an earlier run has judged come those packets of which a session says more by now.
    """
    part = bench.parts[task.number]
    done = Done()
    every = []
    for name, stage, found in (
        (RELATED, "packets", done.settled),
        (f"{OPEN} {RELATED}", f"{OPEN}-packets", done.open),
    ):
        batches = bench.exchange(name).take(task.number, task.files[name])
        relations = pa.Table.from_batches(batches, RELATIONS)
        if relations.num_rows:
            found.parts.append(bench.part("relations", stage, task.number, relations.sort_by("row_id")))
        every.append(relations)
    waiting = _whole(every[1]["row_id"])
    relations = pa.concat_tables(every).sort_by("row_id")
    is_new, is_end = task.number in bench.new, task.number in bench.ends
    of_sequences: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    of_messages: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    at = 0
    for batch in _read(part, _READ):
        if not (is_new or is_end):
            batch = batch.filter(pc.is_in(batch.column("row_id"), _whole(relations["row_id"])))
        own = relations.slice(at, batch.num_rows)
        at += batch.num_rows
        assert own["row_id"].combine_chunks().equals(batch.column("row_id")), "a relation for each packet"
        for name in JOINED:
            batch = batch.append_column(name, _whole(own[name]))
        if is_new or is_end:
            rows = sequences.keyed(batch.select(sequences.COLUMNS))
            bucket = by_text(rows.column("identifier"), bench.buckets.connections)
            for number, some in split(rows, bucket).items():
                of_sequences[number].append(some)
        waits = pc.is_in(batch.column("row_id"), waiting)
        rows = subjects.keyed(batch.select(grouping.COLUMNS).append_column(settling.WAITS, waits))
        for number, some in split(rows, by_text(rows.column("subject"), bench.buckets.messages)).items():
            of_messages[number].append(some)
        count(batch.num_rows, 0)
    messages = MESSAGE_ROWS if is_new or is_end else AGAIN
    for name, buckets in ((SEQUENCE_ROWS, of_sequences), (messages, of_messages)):
        bench.exchange(name).put(
            task.number, {bucket: pa.concat_batches(some) for bucket, some in buckets.items()}
        )
    done.files[messages] = {bucket: [task.number] for bucket in of_messages}
    return done


@_collecting_seldom
def judge_sequences(bench: Bench, task: Task, count: Count) -> Done:
    """The sequences of a bucket."""
    done = Done()

    def to_messages(rows: pa.RecordBatch) -> Integers:
        return by_text(rows.column("subject"), bench.buckets.messages)

    routes = {
        "confirmations": (CONFIRMED, to_messages),
        "findings": (f"findings of {OF_SEQUENCES}", bench.index.of_numbers),
    }
    settled, opened = _outs(bench, task, done, OF_SEQUENCES, routes)

    def take(out: Out, parts: Iterable[int]) -> None:
        for rows in _pieces(bench.exchange(SEQUENCE_ROWS).take(task.number, parts)):
            out.add(stage.take(rows))
            count(rows.num_rows, 0)

    stage = _resumed(bench, task, OF_SEQUENCES, sequences.SequenceStage) or sequences.SequenceStage()
    stage.know(bench.losses)
    take(settled, bench.new)
    stage.know({})
    done.saved = _saved(bench, task, OF_SEQUENCES, stage)
    stage.know(bench.losses)
    take(opened, bench.ends)
    opened.add(stage.finish(bench.lossless))
    settled.finish()
    opened.finish()
    return done


@_collecting_seldom
def judge_journeys(bench: Bench, task: Task, count: Count) -> Done:
    """The messages of a bucket, from hop to hop, where capture points have clocks of their own."""
    done = Done()
    messages = OfMessages(bench, task)
    for out, rows in zip(
        _message_outs(bench, task, done, OF_JOURNEYS), (messages.settled, messages.open), strict=True
    ):
        clock = clocks.ClockStage()
        _tell(grouping.MessageStages(journeys.JourneyStage(bench.losses), clock), rows, out, count)
        out.found.clock_pairs.append(clock.pairs())
    return done


@_collecting_seldom
def tell_histories(bench: Bench, task: Task, count: Count) -> Done:
    """The messages of a bucket, each as a whole, by one clock."""
    done = Done()
    messages = OfMessages(bench, task)
    for out, rows in zip(
        _message_outs(bench, task, done, OF_HISTORIES), (messages.settled, messages.open), strict=True
    ):
        _tell(grouping.MessageStages(*_tellers(bench)), rows, out, count)
    done.saved = messages.save()
    return done


@_collecting_seldom
def judge_journeys_and_tell(bench: Bench, task: Task, count: Count) -> Done:
    """The same both at once, where there is one capture point."""
    done = Done()
    messages = OfMessages(bench, task)
    for out, rows in zip(
        _message_outs(bench, task, done, OF_JOURNEYS), (messages.settled, messages.open), strict=True
    ):
        journey = journeys.JourneyStage(bench.losses)
        _tell(grouping.MessageStages(journey, *_tellers(bench)), rows, out, count)
    done.saved = messages.save()
    return done


def _tellers(bench: Bench) -> tuple[grouping.OfMessages, ...]:
    label = directory.labels(bench.names, bench.directory)
    return (
        histories.HistoryStage(label, bench.lossless, bench.offsets_ns),
        duplicates.DuplicateStage(bench.lossless, bench.offsets_ns),
    )


def _message_outs(bench: Bench, task: Task, done: Done, stage: str) -> tuple[Out, Out]:
    return _outs(
        bench, task, done, stage, {"findings": (f"findings of {OF_JOURNEYS}", bench.index.of_numbers)}
    )


def _outs(
    bench: Bench, task: Task, done: Done, stage: str, routes: Mapping[str, tuple[str, Route]]
) -> tuple[Out, Out]:
    """For what is settled, and for what is open."""
    return (
        Out(bench, task, done, stage, routes, is_open=False),
        Out(bench, task, done, stage, routes, is_open=True),
    )


def _tell(stages: grouping.MessageStages, rows: pa.Table | None, out: Out, count: Count) -> None:
    """Messages to their stages, and what comes out."""
    if rows is not None:
        for batch in rows.to_batches(BATCH_ROWS):
            out.add(stages.take(batch))
            count(batch.num_rows, 0)
        out.add(stages.finish())
    out.finish()


class OfMessages:
    """All rows of a bucket of messages, and what OrderAcks say of these; those of one message together.

    Attributes:
        settled, open: by whether more is expected of the message; None if there are none.
    """

    def __init__(self, bench: Bench, task: Task) -> None:
        self._bench = bench
        self._number = task.number
        kept = self._kept()
        new = self._rows(MESSAGE_ROWS, bench.new, CONFIRMED, task)
        last = self._rows(MESSAGE_ROWS, bench.ends, f"{OPEN} {CONFIRMED}", task)
        again = _table(bench.exchange(AGAIN).take(task.number, task.files[AGAIN]))
        if kept is not None and again is not None:
            again = again.filter(pc.is_in(again["subject"], _whole(kept["subject"])))
            kept = kept.filter(pc.invert(pc.is_in(_names(kept), _names(again))))
        elif kept is None:
            again = None  # Their messages are over.
        remembered = self._remembered(new, kept)
        rows = _sorted(kept, again, new, remembered)
        self.settled: pa.Table | None = None
        self._kept_rows: pa.Table | None = None
        if rows is not None:
            others = pa.array([], pa.string()) if last is None else last["subject"].unique()
            [batch] = rows.combine_chunks().to_batches()
            over = pa.array(settling.settled(batch, bench.horizon, others, bench.kept_rows))
            self.settled, self._kept_rows = rows.filter(over), rows.filter(pc.invert(over))
        self.open = self._kept_rows if last is None else _sorted(self._kept_rows, last)

    def save(self) -> Part:
        """Keep what is open but for what only the end lets be read."""
        rows = pa.table({}) if self._kept_rows is None else self._kept_rows
        name = f"{FOLDER}/{self._bench.run}-messages-{self._number:06d}.parquet"
        return write_part(self._bench.run_folder, name, rows)

    def _kept(self) -> pa.Table | None:
        before = self._bench.before
        if before is None:
            return None
        rows = pq.read_table(self._bench.tables_folder / before.messages[self._number], partitioning=None)
        return rows if rows.num_rows else None

    def _rows(self, name: str, parts: Iterable[int], confirmed: str, task: Task) -> pa.Table | None:
        rows = _table(self._bench.exchange(name).take(self._number, parts))
        acks = self._bench.exchange(confirmed).take(self._number, task.files[confirmed])
        return _together(rows, pa.Table.from_batches(acks, CONFIRMATIONS))

    def _remembered(self, new: pa.Table | None, kept: pa.Table | None) -> pa.Table | None:
        """What earlier runs have settled of messages of which there is more."""
        before = self._bench.before
        if before is None or new is None or not before.arrivals[self._number]:
            return None
        subjects = new.filter(pc.invert(new["about"]))["subject"].unique()
        if kept is not None:
            subjects = subjects.filter(pc.invert(pc.is_in(subjects, _whole(kept["subject"]))))
        paths = [str(self._bench.tables_folder / name) for name in before.arrivals[self._number]]
        found = ds.dataset(paths, format="parquet").to_table(filter=ds.field("message").isin(subjects))
        return _table(map(duplicates.remembered, found.to_batches()))


def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    some = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(some) if some else None


def _together(*tables: pa.Table | None) -> pa.Table | None:
    """The rows of all; what a table has no column for is null."""
    some = [table for table in tables if table is not None and table.num_rows]
    return pa.concat_tables(some, promote_options="default") if some else None


def _sorted(*tables: pa.Table | None) -> pa.Table | None:
    """The rows of all, those of one message together."""
    rows = _together(*tables)
    return None if rows is None else rows.sort_by([(name, "ascending") for name in grouping.ORDER])


def _names(rows: pa.Table) -> pa.Array:
    """What each row of `subjects.keyed` is known by; null of others."""
    columns = (_whole(rows[name]).cast(pa.string()) for name in ("series", "row_id", "about"))
    return pc.binary_join_element_wise(*columns, "/")


def _resumed(bench: Bench, task: Task, name: str, kind: type[T]) -> T | None:
    """A stage as the run before has saved it."""
    if bench.before is None:
        return None
    names = bench.before.sessions if name == OF_SESSIONS else bench.before.sequences
    return saved(bench.tables_folder / names[task.number], kind)


def _saved(bench: Bench, task: Task, name: str, stage: object) -> Part:
    return save(
        bench.run_folder, f"{FOLDER}/{bench.run}-{name}-{task.number:06d}.parquet", [(0, pickled(stage))]
    )


def place_findings(bench: Bench, task: Task, count: Count) -> Done:
    """All that was found about the packets of a part, with their places."""
    done = Done()
    settled, opened = _findings(bench, task, ""), _findings(bench, task, f"{OPEN} ")
    if task.number in bench.new or task.number in bench.ends:
        own = opened if task.number in bench.ends else settled
        own += map(findings.packet_findings, _read(bench.parts[task.number], findings.COLUMNS))
    wanted = pa.Table.from_batches([*settled, *opened], FINDINGS)
    if not wanted.num_rows:
        return done
    places = _places(bench.parts[task.number], wanted) if task.number < len(bench.parts) else {}
    for found, stage, batches in ((done.settled, "packets", settled), (done.open, f"{OPEN}-packets", opened)):
        rows = pa.Table.from_batches(batches, FINDINGS)
        if not rows.num_rows:
            continue
        rows = _placed(rows, places)
        found.codes.update(zip(rows["severity"].to_pylist(), rows["code"].to_pylist(), strict=True))
        found.parts.append(bench.part("findings", stage, task.number, rows))
        count(rows.num_rows, 0)
    return done


def _findings(bench: Bench, task: Task, prefix: str) -> list[pa.RecordBatch]:
    names = [prefix + name for name in FINDERS]
    return [batch for name in names for batch in bench.exchange(name).take(task.number, task.files[name])]


def _placed(rows: pa.Table, places: dict[tuple[int, bool], tuple[Any, ...]]) -> pa.Table:
    """Findings with the places of the packets that they are about."""
    rows = rows.sort_by([("number", "ascending"), ("row_id", "ascending"), ("rank", "ascending")])
    placed = [
        places.get((row_id, True)) or places.get((number, False)) or (None, None, None)
        for row_id, number in zip(rows["row_id"].to_pylist(), rows["number"].to_pylist(), strict=True)
    ]
    for name, column in zip(PLACED, zip(*placed, strict=True), strict=True):
        rows = rows.append_column(name, pa.array(column, PLACED_FINDINGS.field(name).type))
    return rows


def _places(part: PacketPart, wanted: pa.Table) -> dict[tuple[int, bool], tuple[Any, ...]]:
    """Places of the packets that findings are about: by row_id where that is such a packet, and by number."""
    numbers = pa.array(wanted["number"].unique().to_pylist(), pa.int64())
    told = dict(zip(wanted["row_id"].to_pylist(), wanted["number"].to_pylist(), strict=True))
    places: dict[tuple[int, bool], tuple[Any, ...]] = {}
    for batch in _read(part, ("row_id", "number", "framed", *PLACED)):
        near = batch.filter(pc.is_in(batch.column("number"), value_set=numbers))
        for row_id, number, framed, *place in zip(
            *(near.column(name).to_pylist() for name in ("row_id", "number", "framed", *PLACED)), strict=True
        ):
            if told.get(row_id) == number:
                places[row_id, True] = tuple(place)
            if framed:
                places[number, False] = tuple(place)
    return places


def damage_rows(damage: Iterable[tuple[str, str, int, str]]) -> pa.Table:
    """Findings about captures that could not be read, or not to their ends.

    Args:
        damage: of each the series, the file, where in it, and why.
    """
    rows = [
        {
            "series": series,
            "rank": 0,
            "severity": str(Severity.NOTE),
            "code": "damaged-capture",
            "text": reason,
            "section": "",
            "others": [],
            "file": file,
            "file_offset": offset,
        }
        for series, file, offset, reason in damage
    ]
    return pa.Table.from_pylist(rows, schema=PLACED_FINDINGS)


def _read(part: PacketPart, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of a part, some rows at a time."""
    with pq.ParquetFile(part.path) as file:
        yield from file.iter_batches(BATCH_ROWS, columns=list(columns))


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows some at a time: so few that what is made of them stays small, and no fewer, as each call takes its time."""
    kept: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            some = batch.slice(start, BATCH_ROWS)
            if count + some.num_rows > BATCH_ROWS:
                yield pa.concat_batches(kept)
                kept, count = [], 0
            kept.append(some)
            count += some.num_rows
    if kept:
        yield pa.concat_batches(kept)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined

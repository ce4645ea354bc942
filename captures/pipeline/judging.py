"""The stages that judge packets, as tasks: who brings which rows to which stage, and where its tables go.

What a stage does stands in captures/pipeline/stages. Packets come from the table of packets, part by part; rows go from
task to task in buckets, of which each has all that one connection, one sequence or one message needs.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from captures.decode.findings import Severity
from captures.decode.names import Names
from captures.decode.sight import Kind
from captures.pipeline.buckets import Outbox, PacketPart, PartIndex, by_connection, by_text, split
from captures.pipeline.exchange import Exchange
from captures.pipeline.runner import Count
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
    subjects,
)
from captures.pipeline.stages.facts import Losses, losses_of
from captures.pipeline.stages.rows import Batches
from captures.pipeline.stages.schema import FINDINGS, RELATIONS
from captures.pipeline.stages.sequence_schema import CONFIRMATIONS
from captures.pipeline.tables import Part, write_part

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


@dataclass(frozen=True)
class Bench:
    """All that the tasks of one stage share.

    run_folder: of the run, for its parts. run: its name.
    parts: of the table of packets.
    lossy: the series that the captures lack some of.
    directory, losses, offsets_ns: what the stages before have found.
    """

    run_folder: Path
    run: str
    parts: tuple[PacketPart, ...]
    lossy: frozenset[str]
    names: Names
    connection_buckets: int
    sequence_buckets: int
    message_buckets: int
    directory: directory.Directory = field(default_factory=lambda: directory.Directory([], {}))
    losses: Losses = field(default_factory=dict)
    offsets_ns: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def exchange(self, name: str) -> Exchange:
        """Rows on their way."""
        return Exchange(self.run_folder / "_stages" / "judging", name)

    @cached_property
    def index(self) -> PartIndex:
        """Where the rows of packets are."""
        return PartIndex(self.parts)

    def lossless(self, series: str) -> bool:
        """Whether the captures lack nothing of a series."""
        return series not in self.lossy

    def part(self, table: str, stage: str, number: int, rows: pa.Table) -> Part:
        """Write what one task of a stage has for a table."""
        return write_part(self.run_folder, f"{table}/{self.run}-{stage}-{number:06d}.parquet", rows)


@dataclass(frozen=True, slots=True)
class Task:
    """What one task is given.

    number: of the part, or of the bucket.
    files: of the exchanges that it reads, by name, where these were written by several tasks.
    """

    number: int
    files: Mapping[str, tuple[int, ...]]

    def __str__(self) -> str:
        return f"part {self.number} of the packets"


@dataclass(slots=True)
class Done:
    """What one task says.

    parts: that it has written.
    files: by the exchange's name and the bucket, the files of that task.
    places: the capture points of its packets: series and interface.
    """

    parts: list[Part] = field(default_factory=list)
    files: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    handshakes: pa.RecordBatch | None = None
    places: set[tuple[str, int]] = field(default_factory=set)
    losses: Losses = field(default_factory=dict)
    clock_pairs: pa.RecordBatch | None = None
    codes: dict[tuple[str, str], int] = field(default_factory=dict)


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
    handshakes = []
    places: set[tuple[str, int]] = set()
    facts: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    for batch in _read(part, sessions.COLUMNS):
        bucket = by_connection(part.series, batch.column("connection"), bench.connection_buckets)
        for number, rows in split(batch, bucket).items():
            facts[number].append(rows)
        asked = pc.equal(batch.column("kind"), str(Kind.ESTABLISH_CONNECTION))
        handshakes.append(batch.filter(asked).select(directory.HANDSHAKE_COLUMNS))
        places |= {(part.series, number) for number in batch.column("interface").unique().to_pylist()}
        count(batch.num_rows, 0)
    bench.exchange("facts").put(
        task.number, {number: pa.concat_batches(batches) for number, batches in facts.items()}
    )
    return Done(handshakes=pa.concat_batches(handshakes) if handshakes else None, places=places)


@_collecting_seldom
def judge_sessions(bench: Bench, task: Task, count: Count) -> Done:
    """The connections of a bucket."""
    stage = sessions.SessionStage(bench.names, bench.directory)
    relations = Outbox(bench.exchange("relations"), task.number)
    out = _Out(bench, task.number, OF_SESSIONS, {"relations": relations})

    def add(found: Batches) -> None:
        if (rows := found.pop("relations", None)) is not None:
            relations.add(rows, bench.index.of_rows(rows))
        if (some := found.get("sessions")) is not None:
            out.done.losses |= losses_of(some)
        out.add(found)

    for rows in _pieces(bench.exchange("facts").take(task.number, range(len(bench.parts)))):
        add(stage.take(rows))
        count(rows.num_rows, 0)
    add(stage.finish(bench.lossless))
    return out.finish()


def relate(bench: Bench, task: Task, count: Count) -> Done:
    """Packets of a part, and what they are to their sessions, to their sequences and their messages."""
    part = bench.parts[task.number]
    relations = pa.Table.from_batches(
        bench.exchange("relations").take(task.number, task.files["relations"]), RELATIONS
    ).sort_by("row_id")
    done = Done([bench.part("relations", "packets", task.number, relations)])
    of_sequences: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    of_messages: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    at = 0
    for batch in _read(part, _READ):
        own = relations.slice(at, batch.num_rows)
        at += batch.num_rows
        assert own["row_id"].combine_chunks().equals(batch.column("row_id")), "a relation for each packet"
        for name in JOINED:
            batch = batch.append_column(name, _whole(own[name]))
        rows = sequences.keyed(batch.select(sequences.COLUMNS))
        for bucket, some in split(rows, by_text(rows.column("identifier"), bench.sequence_buckets)).items():
            of_sequences[bucket].append(some)
        rows = subjects.keyed(batch.select(grouping.COLUMNS))
        for bucket, some in split(rows, by_text(rows.column("subject"), bench.message_buckets)).items():
            of_messages[bucket].append(some)
        count(batch.num_rows, 0)
    for name, buckets in (("sequence-rows", of_sequences), ("message-rows", of_messages)):
        bench.exchange(name).put(
            task.number, {bucket: pa.concat_batches(some) for bucket, some in buckets.items()}
        )
    return done


@_collecting_seldom
def judge_sequences(bench: Bench, task: Task, count: Count) -> Done:
    """The sequences of a bucket."""
    stage = sequences.SequenceStage(bench.losses)
    confirmations = Outbox(bench.exchange("confirmations"), task.number)
    out = _Out(bench, task.number, OF_SEQUENCES, {"confirmations": confirmations})

    def add(found: Batches) -> None:
        if (some := found.pop("confirmations", None)) is not None:
            confirmations.add(some, by_text(some.column("subject"), bench.message_buckets))
        out.add(found)

    for rows in _pieces(bench.exchange("sequence-rows").take(task.number, range(len(bench.parts)))):
        add(stage.take(rows))
        count(rows.num_rows, 0)
    add(stage.finish(bench.lossless))
    return out.finish()


@_collecting_seldom
def judge_journeys(bench: Bench, task: Task, count: Count) -> Done:
    """The messages of a bucket, from hop to hop, where capture points have clocks of their own."""
    clock = clocks.ClockStage()
    messages = grouping.MessageStages(journeys.JourneyStage(bench.losses), clock)
    done = _messages_to(messages, bench, task, count, OF_JOURNEYS)
    done.clock_pairs = clock.pairs()
    return done


@_collecting_seldom
def tell_histories(bench: Bench, task: Task, count: Count) -> Done:
    """The messages of a bucket, each as a whole, by one clock."""
    return _messages_to(grouping.MessageStages(*_tellers(bench)), bench, task, count, OF_HISTORIES)


@_collecting_seldom
def judge_journeys_and_tell(bench: Bench, task: Task, count: Count) -> Done:
    """The same both at once, where there is one capture point."""
    messages = grouping.MessageStages(journeys.JourneyStage(bench.losses), *_tellers(bench))
    return _messages_to(messages, bench, task, count, OF_JOURNEYS)


def _tellers(bench: Bench) -> tuple[grouping.OfMessages, ...]:
    label = directory.labels(bench.names, bench.directory)
    return (
        histories.HistoryStage(label, bench.lossless, bench.offsets_ns),
        duplicates.DuplicateStage(bench.lossless, bench.offsets_ns),
    )


def _messages_to(
    messages: grouping.MessageStages, bench: Bench, task: Task, count: Count, stage: str
) -> Done:
    """All rows of a bucket of messages, and what OrderAcks say of these; those of one message together."""
    out = _Out(bench, task.number, stage)
    batches = list(bench.exchange("message-rows").take(task.number, range(len(bench.parts))))
    if batches:
        confirmed = bench.exchange("confirmations").take(task.number, task.files["confirmations"])
        rows = pa.concat_tables(
            [pa.Table.from_batches(batches), pa.Table.from_batches(confirmed, CONFIRMATIONS)],
            promote_options="default",
        )
        order = [(name, "ascending") for name in grouping.ORDER]
        for batch in rows.sort_by(order).to_batches(BATCH_ROWS):
            out.add(messages.take(batch))
            count(batch.num_rows, 0)
    out.add(messages.finish())
    return out.finish()


def place_findings(bench: Bench, task: Task, count: Count) -> Done:
    """All that was found about the packets of a part, with their places."""
    found = [batch for name in FINDERS for batch in bench.exchange(name).take(task.number, task.files[name])]
    places: dict[tuple[int, bool], tuple[Any, ...]] = {}
    if task.number < len(bench.parts):
        part = bench.parts[task.number]
        for batch in _read(part, findings.COLUMNS):
            found.append(findings.packet_findings(batch))
        wanted = pa.Table.from_batches(found, FINDINGS)
        places = _places(part, wanted)
    rows = pa.Table.from_batches(found, FINDINGS).sort_by(
        [("number", "ascending"), ("row_id", "ascending"), ("rank", "ascending")]
    )
    if not rows.num_rows:
        return Done()
    placed = [
        places.get((row_id, True)) or places.get((number, False)) or (None, None, None)
        for row_id, number in zip(rows["row_id"].to_pylist(), rows["number"].to_pylist(), strict=True)
    ]
    for name, column in zip(PLACED, zip(*placed, strict=True), strict=True):
        rows = rows.append_column(name, pa.array(column, PLACED_FINDINGS.field(name).type))
    codes: defaultdict[tuple[str, str], int] = defaultdict(int)
    for key in zip(rows["severity"].to_pylist(), rows["code"].to_pylist(), strict=True):
        codes[key] += 1
    count(rows.num_rows, 0)
    return Done([bench.part("findings", "packets", task.number, rows)], codes=dict(codes))


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


class _Out:
    """The tables of one bucket, and the findings of it on their way to their packets."""

    def __init__(self, bench: Bench, number: int, stage: str, boxes: dict[str, Outbox] | None = None) -> None:
        self.done = Done()
        self._findings = f"findings of {stage}"
        self.boxes = {**(boxes or {}), self._findings: Outbox(bench.exchange(self._findings), number)}
        self._bench = bench
        self._number = number
        self._stage = stage
        self._tables: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)

    def add(self, found: Batches) -> None:
        """What a stage gives."""
        for name, batch in found.items():
            if name == "findings":
                self.boxes[self._findings].add(batch, self._bench.index.of_numbers(batch))
            else:
                self._tables[name].append(batch)

    def finish(self) -> Done:
        """Write everything."""
        for name, batches in self._tables.items():
            rows = pa.Table.from_batches(batches)
            self.done.parts.append(self._bench.part(name, self._stage, self._number, rows))
        for name, box in self.boxes.items():
            box.flush()
            self.done.files[name] = dict(box.written)
        return self.done


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

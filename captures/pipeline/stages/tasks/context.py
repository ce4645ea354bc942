"""The context of the stages that judge packets, and the input and output of each task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeVar

import pyarrow as pa

from mqproto.captures.decode.names import Names
from mqproto.captures.decode.sessions.connections import Origins
from mqproto.captures.decode.ways import Ways
from mqproto.captures.pipeline.engines.engine import Inbox, Outbox
from mqproto.captures.pipeline.stages.facts import Losses
from mqproto.captures.pipeline.stages.messages.offsets import Ahead
from mqproto.captures.pipeline.stages.messages.watermark import Watermark
from mqproto.captures.pipeline.stages.sessions.directory import Directory, FirstHop
from mqproto.captures.pipeline.stages.tasks.buckets import (
    SENT_ROWS,
    Gathering,
    PacketPart,
    PartIndex,
    StreamPart,
)
from mqproto.captures.pipeline.stages.tasks.checkpoint import FOLDER, Buckets, Checkpoint, part_name
from mqproto.captures.pipeline.tables.kept import save, saved
from mqproto.captures.pipeline.tables.lists import Batches
from mqproto.captures.pipeline.tables.parts import Part, Store

T = TypeVar("T")

FINDING_ROWS: Final = "findings"
"""The exchange of findings on their way to the packets that they are about."""
OPEN: Final = "open"
"""The beginning of the names of parts with open results."""
KEPT_ROWS: Final = 1_000_000
BUCKET_ROWS: Final = 200_000
"""The maximum number of open messages' rows to keep: KEPT_ROWS for all buckets together, and BUCKET_ROWS for each
bucket, because a bucket is sorted in memory.
"""


def opened(exchange: str) -> str:
    """Return the name of the exchange for the open rows that belong to `exchange`."""
    return f"open {exchange}"


@dataclass(frozen=True)
class Context:
    """The data that all tasks of one stage share.

    store: the store of the tables.
    run: the name of the run.
    parts: all parts of the table of packets.
    streams: all parts of the table of streams.
    new: the numbers of the parts that no run has judged.
    ends: the numbers of the parts that the next run of their series replaces.
    lossy: the series with losses.
    before: the state after the previous run; None if all packets are judged again.
    watermark: the limits that decide whether messages are over.
    parted_ns: the time since which a session must have been silent to count as over.
    directory, origins, losses, known_ways, ahead: the results of earlier stages.
    """

    store: Store
    run: str
    parts: tuple[PacketPart, ...]
    streams: tuple[StreamPart, ...]
    new: tuple[int, ...]
    ends: tuple[int, ...]
    lossy: frozenset[str]
    names: Names
    buckets: Buckets
    before: Checkpoint | None
    watermark: Watermark
    parted_ns: int
    directory: Directory = field(default_factory=lambda: Directory({}))
    origins: Mapping[str, Origins] = field(default_factory=dict)
    losses: Losses = field(default_factory=dict)
    known_ways: Mapping[str, Ways] = field(default_factory=dict)
    ahead: Mapping[tuple[str, int], Ahead] = field(default_factory=dict)

    @property
    def kept_rows(self) -> int:
        """The maximum number of rows of open messages that a bucket keeps."""
        return min(KEPT_ROWS // self.buckets.messages, BUCKET_ROWS)

    @cached_property
    def index(self) -> PartIndex:
        """The index that finds the rows of packets."""
        return PartIndex(self.parts)

    def lossless(self, series: str) -> bool:
        """Whether nothing is missing from a series."""
        return series not in self.lossy

    def ways(self, series: str) -> Ways:
        """Return the losses on the ways of a series."""
        return self.known_ways.get(series) or Ways()

    def part(self, table: str, stage: str, number: int, rows: pa.Table) -> Part:
        """Write a part, and return it."""
        return self.store.write_part(part_name(table, self.run, stage, number), rows)

    def keep(self, stage: str, thing: object, number: int = 0) -> Part:
        """Save an object for the next run, and return its part."""
        return save(self.store, part_name(FOLDER, self.run, stage, number), [(0, thing)])

    def resumed(self, stage: str, kind: type[T], number: int = 0) -> T | None:
        """Return an object as the previous run saved it; None if all packets are judged again."""
        if self.before is None:
            return None
        return saved(self.store.path(self.before.part_name(stage, number)), kind)


@dataclass(frozen=True, slots=True)
class Task:
    """The input of one task: the number of its part or bucket."""

    number: int

    def __str__(self) -> str:
        return f"part {self.number} of the packets"


@dataclass(slots=True)
class Found:
    """The settled or the open results of one task.

    parts: the parts that the task has written.
    """

    parts: list[Part] = field(default_factory=list)
    losses: Losses = field(default_factory=dict)
    ways: dict[str, Ways] = field(default_factory=dict)
    first_hops: set[FirstHop] = field(default_factory=set)
    handshakes: list[pa.RecordBatch] = field(default_factory=list)
    places: set[tuple[str, int]] = field(default_factory=set)
    clock_pairs: list[pa.RecordBatch] = field(default_factory=list)


@dataclass(slots=True)
class Done:
    """The report of one task; its settled parts include those from which the next run continues."""

    settled: Found = field(default_factory=Found)
    open: Found = field(default_factory=Found)


Stage = Callable[[Context, Task, Inbox, Outbox], Done]


class Out:
    """The output of one task: either settled or open rows. Each finding goes to the part that has its packet.

    Args:
        stage: the stage that makes the rows.
        outbox: takes findings.
    """

    def __init__(
        self, context: Context, task: Task, done: Done, stage: str, outbox: Outbox, *, is_open: bool
    ) -> None:
        self.found = done.open if is_open else done.settled
        self._context = context
        self._number = task.number
        self._stage = f"{OPEN}-{stage}" if is_open else stage
        self._findings = Gathering(opened(FINDING_ROWS) if is_open else FINDING_ROWS, outbox)
        self._tables: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)

    def add(self, rows: Batches) -> None:
        """Add rows of tables."""
        for table, batch in rows.items():
            if table == "findings":
                self._findings.add(batch, self._context.index.of_numbers(batch))
                continue
            self._tables[table].append(batch)
            if sum(each.num_rows for each in self._tables[table]) >= SENT_ROWS:
                self._write(table)

    def finish(self) -> None:
        """Write or send all rows that are still kept."""
        for table in list(self._tables):
            self._write(table)
        self._findings.send()

    def _write(self, table: str) -> None:
        """Write the rows of a table that are still kept."""
        rows = pa.Table.from_batches(self._tables.pop(table))
        stage = f"{self._stage}-{sum(part.table == table for part in self.found.parts)}"
        self.found.parts.append(self._context.part(table, stage, self._number, rows))


def outs(context: Context, task: Task, done: Done, stage: str, outbox: Outbox) -> tuple[Out, Out]:
    """Return the outputs for settled and for open rows."""
    return (
        Out(context, task, done, stage, outbox, is_open=False),
        Out(context, task, done, stage, outbox, is_open=True),
    )

"""Runs the tasks of a stage, and moves rows from the tasks of one stage to those of the next.

A stage is a plain function that is called with each of its tasks. It takes rows from an inbox and puts rows into an
outbox, each batch for one bucket of an exchange. A later task takes the rows that earlier tasks have sent to its
bucket, in the order of these tasks. The function does not know how rows are moved: by Spark's shuffle (sparkengine.py),
or in files on this machine, between processes of a pool (localengine.py).

A batch in transit is one packed Arrow stream, so that Spark moves it as one value rather than row by row. In this way
it moves 254,000 rows a second, against 104,000 single rows.
"""

from __future__ import annotations

import gc
import pickle
import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import IO, Any, Final, NamedTuple, TypeVar

import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")

PACKED: Final = pa.ipc.IpcWriteOptions(compression="lz4")
"""Options for packing batches: on its way through all stages, a packet takes 1.2 kB, or a sixth of that when packed."""
AS_IT_IS: Final = pa.ipc.IpcWriteOptions()
"""Options for whole frames, which are not packed, because their bodies hardly shrink.

Packing and unpacking them took a microsecond per packet.
"""
COLLECTED_OBJECTS: Final = 1_000_000
"""How many objects a task makes before Python collects garbage; Python's default is 700.

The objects are rows, and searching them for cycles took a fifth of the task's time.
"""


class Entry(NamedTuple):
    """A batch in a file of an outbox.

    source: the number of the task that sent the batch.
    order: the number of the batch among those of that task.
    """

    exchange: str
    bucket: int
    source: int
    order: int
    offset: int
    size: int


class Outbox:
    """Writes the rows of one task to a file, so that only a few rows are in memory at a time.

    Args:
        source: the number of the task.

    Attributes:
        entries: the batches in the file.
    """

    def __init__(self, source: int, file: IO[bytes]) -> None:
        self.entries: list[Entry] = []
        self._source = source
        self._file = file
        self._offset = 0

    def put(self, exchange: str, bucket: int, rows: pa.RecordBatch, source: int | None = None) -> None:
        """Send rows to a bucket's task.

        Args:
            source: the number by which these rows are ordered, if it is not the task's own.
        """
        if rows.num_rows:
            packed = pack(rows)
            self._file.write(packed)
            number = self._source if source is None else source
            entry = Entry(exchange, bucket, number, len(self.entries), self._offset, packed.size)
            self.entries.append(entry)
            self._offset += packed.size

    @property
    def buckets(self) -> dict[str, set[int]]:
        """Maps each exchange to the buckets that have rows."""
        return buckets_of(self.entries)


def buckets_of(entries: Iterable[Entry]) -> dict[str, set[int]]:
    """Return a mapping from each exchange to the buckets that some entries have there."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    for entry in entries:
        found[entry.exchange].add(entry.bucket)
    return dict(found)


def pack(rows: pa.RecordBatch) -> pa.Buffer:
    """Return a batch packed for transfer."""
    rows = pa.RecordBatch.from_arrays([*map(_own, rows.columns)], rows.schema.names)
    sink = pa.BufferOutputStream()
    is_dense = pa.large_binary() in rows.schema.types
    with pa.ipc.new_stream(sink, rows.schema, options=AS_IT_IS if is_dense else PACKED) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


def _own(column: pa.Array) -> pa.Array:
    """Return a column; if its dictionary has more texts than the column has rows, drop unused texts."""
    if not pa.types.is_dictionary(column.type) or len(column.dictionary) <= len(column):
        return column
    return column.dictionary_decode().dictionary_encode()


def unpack(packed: Any) -> pa.RecordBatch:
    """Return an unpacked batch."""
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_next_batch()


class Inbox:
    """The rows that earlier tasks have sent to this task's bucket.

    They arrive one after another, exchange by exchange, in the order of the stage's `reads`.

    Args:
        batches: packed batches, each with the place of its exchange in `reads`.
    """

    def __init__(self, reads: Sequence[str], batches: Iterator[tuple[int, Any]]) -> None:
        self._reads = reads
        self._batches = batches
        self._place = -1
        self._next: tuple[int, Any] | None = None

    def take(self, exchange: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one exchange, in the order of the numbers of the tasks that sent them.

        The rows of one task come in the order in which it sent them. Exchanges are taken in the order of `reads`;
        others are skipped.
        """
        place = self._reads.index(exchange)
        assert place > self._place, f"{exchange} is taken once, in the order of {self._reads}"
        self._place = place
        return self._taken(place)

    def _taken(self, place: int) -> Iterator[pa.RecordBatch]:
        while True:
            assert place == self._place, f"{self._reads[place]} is taken before what comes behind it"
            if self._next is None:
                self._next = next(self._batches, None)
            if self._next is None or self._next[0] > place:
                return
            (at, packed), self._next = self._next, None
            if at == place:
                yield unpack(packed)


Function = Callable[[T, Inbox, Outbox], R]
"""The function of a stage, called for each task.

If a task is repeated, it sends the same rows and leaves the same parts.
"""


@dataclass(slots=True)
class Output:
    """The rows that one stage has sent to later stages.

    held: where the rows are.
    buckets: maps each exchange that may still be read to the buckets with rows.
    gone: the sources whose rows no longer count.
    """

    stage: str
    held: Any
    buckets: dict[str, set[int]]
    gone: set[int] = field(default_factory=set)


class Engine(ABC):
    """Runs all tasks of a stage wherever it can, perhaps more than once, and keeps the rows that they have sent."""

    def __init__(self) -> None:
        self._outputs: list[Output] = []

    def carry_out(
        self,
        stage: str,
        function: Function[T, R],
        tasks: Mapping[int, T],
        reads: Sequence[str] = (),
        *,
        again: str | None = None,
        puts: bool = True,
    ) -> list[R]:
        """Run the tasks; return their results in order.

        Args:
            stage: the name of the work, as it is shown to people.
            function: picklable, and sent once with all the data that the tasks share. An exception that it raises ends
                the stage.
            tasks: the tasks by bucket. They must be small, because each is sent separately. Error messages show
                `str(task)`. Results must be small, too; rows go through exchanges.
            reads: the exchanges from which the tasks take rows, in this order.
            again: an earlier stage that this one repeats. Rows from its tasks for the same buckets no longer count.
            puts: whether the tasks send rows to later stages; keeping these rows costs time.
        """
        if not tasks:
            return []
        results, held, found = self._run(stage, function, tasks, reads, puts=puts)
        for output in self._outputs:
            if output.stage == again:
                output.gone.update(tasks)
        buckets: defaultdict[str, set[int]] = defaultdict(set)
        for each in found:
            for exchange, some in each.items():
                buckets[exchange] |= some
        if buckets:
            self._outputs.append(Output(stage, held, dict(buckets)))
        else:
            self._free(held)
        return results

    @abstractmethod
    def _run(
        self,
        stage: str,
        function: Function[T, R],
        tasks: Mapping[int, T],
        reads: Sequence[str],
        *,
        puts: bool,
    ) -> tuple[list[R], Any, list[dict[str, set[int]]]]:
        """Run the tasks of a stage.

        Returns:
            Their results, where their rows are, and for each task, the buckets of each exchange to which it sent rows.
        """

    @abstractmethod
    def _free(self, held: Any) -> None:
        """Free rows that are no longer read."""

    def buckets(self, exchange: str) -> set[int]:
        """Return the buckets of an exchange that have rows."""
        return set().union(*(output.buckets.get(exchange, ()) for output in self._outputs))

    def drop(self, *exchanges: str) -> None:
        """Drop exchanges that no later stage reads; in transit, rows take many times the size of their capture."""
        for output in list(self._outputs):
            for exchange in exchanges:
                output.buckets.pop(exchange, None)
            if not output.buckets:
                self._outputs.remove(output)
                self._free(output.held)

    def clear(self) -> None:
        """Drop everything."""
        self.drop(*{exchange for output in self._outputs for exchange in output.buckets})


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Make Python collect garbage less often in the block."""
    thresholds = gc.get_threshold()
    gc.set_threshold(COLLECTED_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def spare_modules() -> None:
    """Make the garbage collector skip everything that exists now, if modules have been imported since the last call.

    Spark makes a worker collect its garbage after each task. Searching all modules takes 10 to 25 ms.
    """
    _spare(len(sys.modules))


@cache
def _spare(_modules: int) -> None:
    gc.collect()
    gc.freeze()


def pickled(thing: object) -> bytes:
    """Return a task or a result pickled for transfer."""
    return pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)

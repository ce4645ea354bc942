"""What carries out the tasks of a stage, and how rows go from the tasks of one stage to those of the next.

A stage is a plain function that each of its tasks is given to. It takes rows out of an inbox and puts rows into an
outbox, each batch for a bucket of an exchange; what a later task takes is what earlier ones have put for its own
bucket, in their order. It knows nothing of what moves the rows: Spark's shuffle (sparkengine.py), or files of this
machine, between processes of a pool (localengine.py).

A batch on its way is one Arrow stream, packed, so that Spark moves it as one value and not row by row: that is 254,000
rows a second where single rows are 104,000.
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
from typing import IO, Any, Final, Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")
Held = TypeVar("Held")

Count = Callable[[int, int], None]
"""What a task calls to say how many more packets and bytes it has done."""
PACKED: Final = pa.ipc.IpcWriteOptions(compression="lz4")
"""A packet leaves 1.2 kB on its way through all stages, and a sixth of that so."""
COLLECTED_OBJECTS: Final = 1_000_000
"""How many objects a task makes before Python looks for garbage among them, in the place of 700: what it makes are
rows, and to look for cycles in them took a fifth of its time."""


class Inbox(Protocol):
    """The rows that earlier tasks have put for the bucket of this one."""

    def take(self, exchange: str) -> Iterator[pa.RecordBatch]:
        """The rows of one exchange, by the number of the task that put them, and in the order in which it did.

        Exchanges are taken in the order of the stage's `reads`, as they come one behind the other; what is not taken is
        passed over.
        """


class Entry(NamedTuple):
    """A batch in a file of an outbox.

    source: the number of the task that put it. order: counted over the batches of that task.
    """

    exchange: str
    bucket: int
    source: int
    order: int
    offset: int
    size: int


class Outbox:
    """Takes the rows of one task, into a file, so that few are in memory.

    Args:
        source: the number of the task.

    Attributes:
        entries: what there is in the file.
    """

    def __init__(self, source: int, file: IO[bytes]) -> None:
        self.entries: list[Entry] = []
        self._source = source
        self._file = file
        self._offset = 0

    def put(self, exchange: str, bucket: int, rows: pa.RecordBatch, source: int | None = None) -> None:
        """Send rows to the task of a bucket.

        Args:
            source: the number by which they are taken in order, if it is not that of the task.
        """
        if rows.num_rows:
            packed = pack(rows)
            self._file.write(packed)
            number = self._source if source is None else source
            entry = Entry(exchange, bucket, number, len(self.entries), self._offset, packed.size)
            self.entries.append(entry)
            self._offset += packed.size

    def put_all(self, exchange: str, batches: Mapping[int, Iterable[pa.RecordBatch]]) -> None:
        """Send rows, by their buckets; those of one bucket as one batch."""
        for bucket, some in sorted(batches.items()):
            self.put(exchange, bucket, pa.concat_batches(some))

    @property
    def buckets(self) -> dict[str, set[int]]:
        """By exchange, the buckets that there are rows for."""
        return buckets_of(self.entries)


def buckets_of(entries: Iterable[Entry]) -> dict[str, set[int]]:
    """By exchange, the buckets that some entries are for."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    for entry in entries:
        found[entry.exchange].add(entry.bucket)
    return dict(found)


Function = Callable[[T, Inbox, Outbox, Count], R]
"""What a stage does with each task. Done again, it puts the same rows, and leaves the same parts."""


class Engine(Protocol):
    """Has all tasks of a stage done, somewhere, perhaps more than once."""

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
        """The results of the tasks, in their order.

        Args:
            stage: what they do, for people.
            function: picklable, with all that the tasks have in common: it is sent out once. What it raises ends the
                stage.
            tasks: by bucket; small, as each is sent by itself. As text, each says what it is about, for the message if
                it fails. Results are small as well: rows go by exchanges.
            reads: the exchanges that they take rows from, in this order.
            again: an earlier stage, whose tasks of these buckets have put rows that count no more.
            puts: whether its tasks put rows; what they put is kept for later stages, which has its price.
        """

    def buckets(self, exchange: str) -> set[int]:
        """The buckets that something was put for."""

    def drop(self, *exchanges: str) -> None:
        """No later stage takes from these: a large capture has many times its size on the way."""

    def clear(self) -> None:
        """Drop everything."""


def pack(rows: pa.RecordBatch) -> pa.Buffer:
    """A batch as it is on its way."""
    rows = pa.RecordBatch.from_arrays([*map(_own, rows.columns)], rows.schema.names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=PACKED) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


def _own(column: pa.Array) -> pa.Array:
    """A column with the texts of its own rows: its dictionary may have those of many other rows."""
    if not pa.types.is_dictionary(column.type) or len(column.dictionary) <= len(column):
        return column
    return column.dictionary_decode().dictionary_encode()


def unpack(packed: Any) -> pa.RecordBatch:
    """It again."""
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_next_batch()


class OrderedInbox:
    """Batches that come one behind the other, by exchange in the order in which they are read.

    Args:
        batches: packed, each with the place of its exchange in `reads`.
    """

    def __init__(self, reads: Sequence[str], batches: Iterator[tuple[int, Any]]) -> None:
        self._reads = reads
        self._batches = batches
        self._place = -1
        self._next: tuple[int, Any] | None = None

    def take(self, exchange: str) -> Iterator[pa.RecordBatch]:
        """As of Inbox."""
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


@dataclass(slots=True)
class Output(Generic[Held]):
    """What one stage has put.

    held: where it is. buckets: by exchange that somebody may still take from, those that there is something for.
    gone: the sources of which it counts no more.
    """

    stage: str
    held: Held
    buckets: dict[str, set[int]]
    gone: set[int] = field(default_factory=set)


class Outputs(ABC, Generic[Held]):
    """What all stages have put, and who may still take it."""

    def __init__(self) -> None:
        self._outputs: list[Output[Held]] = []

    @abstractmethod
    def _free(self, held: Held) -> None:
        """Nobody takes from it any more."""

    def _add(self, stage: str, held: Held, found: Iterable[dict[str, set[int]]]) -> None:
        """A stage is over.

        Args:
            found: of each task, by exchange, the buckets that it put something for.
        """
        buckets: defaultdict[str, set[int]] = defaultdict(set)
        for each in found:
            for exchange, some in each.items():
                buckets[exchange] |= some
        if buckets:
            self._outputs.append(Output(stage, held, dict(buckets)))
        else:
            self._free(held)

    def _replace(self, stage: str | None, sources: Iterable[int]) -> None:
        """Tasks of a stage are done again."""
        for output in self._outputs:
            if output.stage == stage:
                output.gone.update(sources)

    def buckets(self, exchange: str) -> set[int]:
        """As of Engine."""
        return set().union(*(output.buckets.get(exchange, ()) for output in self._outputs))

    def drop(self, *exchanges: str) -> None:
        """As of Engine."""
        for output in list(self._outputs):
            for exchange in exchanges:
                output.buckets.pop(exchange, None)
            if not output.buckets:
                self._outputs.remove(output)
                self._free(output.held)

    def clear(self) -> None:
        """As of Engine."""
        self.drop(*{exchange for output in self._outputs for exchange in output.buckets})


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Have Python look for garbage seldom, for the block."""
    thresholds = gc.get_threshold()
    gc.set_threshold(COLLECTED_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def spare_modules() -> None:
    """Have the garbage collector of this process pass over all that is there by now, if modules have been imported.

    Spark has a worker collect its garbage after each task. To look through all modules for some takes 10 to 25 ms.
    """
    _spare(len(sys.modules))


@cache
def _spare(_modules: int) -> None:
    gc.collect()
    gc.freeze()


def pickled(thing: object) -> bytes:
    """A task or a result on its way."""
    return pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)

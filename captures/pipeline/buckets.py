"""Rows into buckets: by what they have in common, or by the part of the table of packets that they belong to."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from captures.pipeline.exchange import Exchange
from captures.pipeline.parts import parquet
from captures.pipeline.records import Integers

BATCH_ROWS: Final = 65_536
"""How many rows stages are given at a time."""
FLUSHED_ROWS: Final = 1 << 18
"""How many rows an outbox keeps before it writes them."""
TASK_FILES: Final = 1 << 20
"""How many files at most one task writes, so that their numbers do not meet those of the next."""


def split(batch: pa.RecordBatch, bucket: Integers) -> dict[int, pa.RecordBatch]:
    """The rows of each bucket, in their order."""
    order = np.argsort(bucket, kind="stable")
    found, starts, counts = np.unique(bucket[order], return_index=True, return_counts=True)
    rows = batch.take(pa.array(order))
    return {
        number: rows.slice(start, count)
        for number, start, count in zip(found.tolist(), starts.tolist(), counts.tolist(), strict=True)
    }


def by_text(column: pa.Array, buckets: int) -> Integers:
    """Buckets by a column of texts, the same in every process."""
    coded = column.dictionary_encode()
    texts = coded.dictionary.to_numpy(zero_copy_only=False)
    hashed = pd.util.hash_array(texts, categorize=False) % np.uint64(buckets)
    bucket: Integers = hashed.astype(np.int64)[coded.indices.to_numpy(zero_copy_only=False)]
    return bucket


def by_connection(series: str, column: pa.Array, buckets: int) -> Integers:
    """Buckets by the connections of one series; what has none goes anywhere."""
    numbers: Integers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    bucket: Integers = (numbers + zlib.crc32(series.encode())) % buckets
    return bucket


@dataclass(frozen=True, slots=True)
class PacketPart:
    """A part of the table of packets: rows of one series that follow one another.

    path: or its URI.
    rows_before, framed_before: of the series, before it.
    is_new: whether no run has judged it. is_end: whether the next run of its series replaces it.
    """

    path: str
    series: str
    rows: int
    framed: int
    rows_before: int
    framed_before: int
    is_new: bool
    is_end: bool

    def __str__(self) -> str:
        return self.path


def read(part: PacketPart, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of a part, some rows at a time."""
    with parquet(part.path) as file:
        yield from file.iter_batches(BATCH_ROWS, columns=list(columns))


@dataclass(frozen=True, slots=True)
class StreamPart:
    """A part of the table of streams, of one series.

    is_new: whether no run has judged it. is_open: whether the next run of its series replaces it.
    """

    path: str
    series: str
    is_new: bool
    is_open: bool


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


class PartIndex:
    """Where the rows of packets are, all parts of a series in its order."""

    def __init__(self, parts: Sequence[PacketPart]) -> None:
        self.count = len(parts)
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, part in enumerate(parts):
            if part.rows:
                places[part.series].append(place)
        self._places = {series: np.array(some) for series, some in places.items()}
        self._rows = {
            series: np.array([parts[place].rows_before for place in some]) for series, some in places.items()
        }
        self._numbers = {
            series: np.array([parts[place].framed_before for place in some])
            for series, some in places.items()
        }

    def of_rows(self, batch: pa.RecordBatch, name: str = "row_id") -> Integers:
        """The part of each row_id, or `count` where that is null."""
        return self._find(batch, name, self._rows)

    def of_numbers(self, batch: pa.RecordBatch) -> Integers:
        """The part of each packet by its number, or `count` where that is null."""
        return self._find(batch, "number", self._numbers)

    def _find(self, batch: pa.RecordBatch, name: str, before: dict[str, npt.NDArray[np.int64]]) -> Integers:
        found = np.full(batch.num_rows, self.count, dtype=np.int64)
        column = batch.column(name)
        known = column.is_valid().to_numpy(zero_copy_only=False)
        numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
        coded = batch.column("series").dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        for code, series in enumerate(coded.dictionary.to_pylist()):
            rows = known & (codes == code)
            place = np.searchsorted(before[series], numbers[rows], side="left") - 1
            found[rows] = self._places[series][np.maximum(place, 0)]
        return found


class Outbox:
    """Rows of one task on their way to buckets, written now and then, so that few are kept.

    Attributes:
        written: by bucket, the numbers of the files that have rows for it.
    """

    def __init__(self, exchange: Exchange, task: int) -> None:
        self.written: defaultdict[int, list[int]] = defaultdict(list)
        self._exchange = exchange
        self._next = task * TASK_FILES
        self._kept: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._rows = 0

    def add(self, batch: pa.RecordBatch, bucket: Integers) -> None:
        """Some rows, and where they go."""
        for number, rows in split(batch, bucket).items():
            self._kept[number].append(rows)
        self._rows += batch.num_rows
        if self._rows >= FLUSHED_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is kept."""
        if self._kept:
            self._exchange.put(
                self._next, {bucket: pa.concat_batches(batches) for bucket, batches in self._kept.items()}
            )
            for bucket in self._kept:
                self.written[bucket].append(self._next)
            self._next += 1
            self._kept.clear()
            self._rows = 0

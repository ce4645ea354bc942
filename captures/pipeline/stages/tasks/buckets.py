"""Puts rows into buckets.

The bucket follows from a common key, or from the rows' part of the table of packets.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.pipeline.engines.engine import Outbox
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.tables.lists import integers
from mqproto.captures.pipeline.tables.parts import parquet
from mqproto.captures.pipeline.tables.schemas.columns import REPEATED

BATCH_ROWS: Final = 65_536
"""The number of rows that stages get at a time."""
SENT_ROWS: Final = 1 << 18
"""The number of rows to gather before they are sent."""
STRETCH_ROWS: Final = 1 << 20
"""How many consecutive rows of a series are covered at a time when a bucket's rows are put in order."""


def split(batch: pa.RecordBatch, bucket: Integers) -> dict[int, pa.RecordBatch]:
    """Return the rows of each bucket, in their original order."""
    order = np.argsort(bucket, kind="stable")
    found, starts, counts = np.unique(bucket[order], return_index=True, return_counts=True)
    rows = batch.take(pa.array(order))
    return {
        number: rows.slice(start, count)
        for number, start, count in zip(found.tolist(), starts.tolist(), counts.tolist(), strict=True)
    }


def by_text(column: pa.Array, buckets: int) -> Integers:
    """Return the bucket of each row, determined by a column of strings.

    The same string gives the same bucket in every process.
    """
    import pandas as pd  # It takes 0.2 s to import, which programs that judge nothing are spared.

    is_coded = pa.types.is_dictionary(column.type)
    texts = (column.dictionary if is_coded else column).to_numpy(zero_copy_only=False)
    hashed = pd.util.hash_array(texts, categorize=False) % np.uint64(buckets)
    bucket: Integers = hashed.astype(np.int64)
    return bucket[column.indices.to_numpy(zero_copy_only=False)] if is_coded else bucket


def by_connection(series: str, column: pa.Array, buckets: int) -> Integers:
    """Return the bucket of each row according to its connection in a series.

    Rows without a connection may be in any bucket.
    """
    numbers: Integers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    bucket: Integers = (numbers + zlib.crc32(series.encode())) % buckets
    return bucket


@dataclass(frozen=True, slots=True)
class PacketPart:
    """A part of the table of packets: consecutive rows of one series.

    path: the path or URI of the part.
    rows_before, framed_before: the number of rows, and of packets, in the earlier parts of the series.
    is_new: whether no run has judged the part yet.
    is_end: whether the next run of its series replaces the part.
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
    """Yield some columns of a part, in batches."""
    names = list(columns)
    with parquet(part.path, [name for name in names if name in REPEATED]) as file:
        yield from file.iter_batches(BATCH_ROWS, columns=names)


@dataclass(frozen=True, slots=True)
class StreamPart:
    """A part of the table of streams, all of one series.

    is_new: whether no run has judged the part yet.
    is_open: whether the next run of its series replaces the part.
    """

    path: str
    series: str
    is_new: bool
    is_open: bool


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


class PartIndex:
    """Finds the parts that hold the rows of packets; the parts of a series are in order."""

    def __init__(self, parts: Sequence[PacketPart]) -> None:
        self.count = len(parts)
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, part in enumerate(parts):
            if part.rows:
                places[part.series].append(place)
        self._places = {series: np.array(some) for series, some in places.items()}
        self._numbers = {
            series: np.array([parts[place].framed_before for place in some])
            for series, some in places.items()
        }

    def of_numbers(self, batch: pa.RecordBatch) -> Integers:
        """Return, for each row, the index of the part that has the packet with the row's `number`.

        If `number` is null, the index is `count`.
        """
        found = np.full(batch.num_rows, self.count, dtype=np.int64)
        column = batch.column("number")
        known = column.is_valid().to_numpy(zero_copy_only=False)
        numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
        coded = batch.column("series").dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        for code, series in enumerate(coded.dictionary.to_pylist()):
            rows = known & (codes == code)
            place = np.searchsorted(self._numbers[series], numbers[rows], side="left") - 1
            found[rows] = self._places[series][np.maximum(place, 0)]
        return found


class Gathering:
    """Rows of one task on their way to buckets: sent in large batches, and often enough that few are kept.

    Args:
        by_row: whether the readers of these rows use `in_order`.
    """

    def __init__(self, exchange: str, outbox: Outbox, *, by_row: bool = False) -> None:
        self._exchange = exchange
        self._outbox = outbox
        self._by_row = by_row
        self._kept: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._rows = 0

    def add(self, batch: pa.RecordBatch, bucket: Integers) -> None:
        """Add some rows with their buckets."""
        for number, rows in split(batch, bucket).items():
            self._kept[number].append(rows)
        self._rows += batch.num_rows
        if self._rows >= SENT_ROWS:
            self.send()

    def send(self) -> None:
        """Send the collected rows."""
        for bucket, batches in sorted(self._kept.items()):
            rows = pa.concat_batches(batches)
            if not self._by_row:
                self._outbox.put(self._exchange, bucket, rows)
                continue
            for stretch, some in split(rows, integers(rows, "row_id") // STRETCH_ROWS).items():
                self._outbox.put(self._exchange, bucket, some, source=stretch)
        self._kept.clear()
        self._rows = 0


def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a bucket in the order of row_id.

    The rows come from many tasks, each of which gathered its rows with `by_row`.
    """
    for _, some in groupby(batches, lambda rows: rows.column("row_id")[0].as_py() // STRETCH_ROWS):
        rows = pa.concat_batches(list(some))
        yield from pieces([rows.take(pa.array(np.argsort(integers(rows, "row_id"), kind="stable")))])


def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of at most BATCH_ROWS, joining small batches.

    The limit bounds the data that is made from a batch. Small batches are joined because each call takes time.
    """
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

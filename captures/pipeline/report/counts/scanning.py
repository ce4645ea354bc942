"""Tables read batch by batch, in memory that does not grow with them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqproto.captures.pipeline.tables.parts import parquet
from mqproto.captures.pipeline.tables.tables import Tables

BATCH_ROWS: Final = 65_536


def batches(tables: Tables, table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """All rows of a table, in the order of its parts; none if there is no such table."""
    for path in tables.paths(table):
        with parquet(path) as file:
            yield from file.iter_batches(BATCH_ROWS, columns=list(columns), use_threads=False)


def near(
    tables: Tables, table: str, columns: Sequence[str], wanted: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """The rows among which those are that have a wanted number; other groups of rows are passed over unread.

    Args:
        wanted: by the name of a column, which numbers are wanted there: an array, ascending. The statistics of a
            group say what it may have.
    """
    if not any(len(numbers) for numbers in wanted.values()):
        return
    for path in tables.paths(table):
        with parquet(path) as file:
            known = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            groups = [number for number, group in enumerate(known) if _may_have(group, wanted)]
            if groups:
                yield from file.iter_batches(
                    BATCH_ROWS, row_groups=groups, columns=list(columns), use_threads=False
                )


def _may_have(group: Any, wanted: Mapping[str, Any]) -> bool:
    for number in range(group.num_columns):
        column = group.column(number)
        numbers = wanted.get(column.path_in_schema)
        if numbers is not None and len(numbers):
            known = column.statistics
            if known is None or not known.has_min_max:
                return True
            place = int(np.searchsorted(numbers, known.min))
            if place < len(numbers) and numbers[place] <= known.max:
                return True
    return False


def rows(tables: Tables, table: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The same, for small tables."""
    for batch in batches(tables, table, columns):
        yield from batch.to_pylist()


def integers(column: pa.Array) -> tuple[Any, Any]:
    """A column as numpy has it, 0 for null; and which of them are not null."""
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False), valid


class Top:
    """The rows with the largest of some number; of equal ones, those that came first.

    Args:
        limit: how many are kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._heap: list[tuple[int, int, dict[str, Any]]] = []

    def take(self, batch: pa.RecordBatch, by: Any, where: Any) -> None:
        """The next rows.

        Args:
            by: their numbers, an array.
            where: which of them count, an array of flags.
        """
        candidates = np.flatnonzero(where)
        if len(self._heap) == self._limit:
            candidates = candidates[by[candidates] > self._heap[0][0]]
        best = candidates[np.argsort(-by[candidates], kind="stable")[: self._limit]]
        for place in best.tolist():
            self._count += 1
            entry = (int(by[place]), -self._count, batch.slice(place, 1).to_pylist()[0])
            if len(self._heap) < self._limit:
                heapq.heappush(self._heap, entry)
            else:
                heapq.heappushpop(self._heap, entry)

    def rows(self) -> list[dict[str, Any]]:
        """What is left, the largest first."""
        return [row for _, _, row in sorted(self._heap, reverse=True, key=lambda entry: entry[:2])]


def grouped(batch: pa.RecordBatch, keys: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The places of rows that are alike in some columns of text, ascending; the groups as they come up."""
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in keys:
        encoded = batch.column(name).dictionary_encode(null_encoding="encode")
        codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    found = [places for places in np.split(order, edges) if len(places)]
    for places in sorted(found, key=lambda places: int(places[0])):
        yield tuple(batch.column(name)[int(places[0])].as_py() for name in keys), places

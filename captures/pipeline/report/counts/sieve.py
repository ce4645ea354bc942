"""Finds rows of a large table by a text without reading all: of each block of rows it is kept which texts it may have.

A block has a row of bits. A value as a whole sets two of them, by its hash; of a text that is searched in parts, each
three and each five letters that follow one another set one, whatever their case. A block of which not all bits of what
is sought are set does not have it; of others the rows are read and compared. So nothing is missed, and what is read
in vain is little. Of texts shorter than three letters nothing is known: they are looked for in all rows, and are soon
found, or are nowhere.

A sieve is a file beside the tables for each part of a table, made when it is first asked for: a part never changes. It
takes some five bytes a row for each column. Bits that belong together stand together, so little of it is read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqproto.captures.pipeline.tables.parts import Part, parquet
from mqproto.captures.pipeline.tables.tables import Tables

FOLDER: Final = "_sieves"
SIEVED_ROWS: Final = 200_000
"""Tables with fewer rows are read: that takes no longer."""
BLOCK_ROWS: Final = 8_192
BITS: Final = 1 << 18
"""For each block; a block of labels that all differ sets a fifth of them."""
SHORT, LONG = 3, 5
"""How many letters are taken together; long ones tell more, and short ones are there for short texts."""
FACTOR: Final = 0x9E3779B97F4A7C15
WAYS_LIMIT: Final = 64
"""Who looks for more values at once reads all rows: most blocks have one of them."""
Bits = Any
"""An array of flags, or of places of flags."""
NO_BITS: Final[Bits] = np.empty(0, dtype=np.int64)
Matches = Callable[[pa.RecordBatch], pa.Array]


class Sieve:
    """Of one table.

    Args:
        wholes: columns of which whole values are looked for.
        texts: columns of which parts are looked for, too.
    """

    def __init__(self, tables: Tables, table: str, wholes: Sequence[str], texts: Sequence[str] = ()) -> None:
        self._tables = tables
        self._table = table
        self._wholes = tuple(wholes)
        self._texts = tuple(texts)

    @property
    def is_worth_it(self) -> bool:
        """Whether the table has so many rows that reading all of them takes long."""
        return self._tables.rows(self._table) > SIEVED_ROWS

    def prepare(self) -> None:
        """Make what is not there, if it is worth it."""
        if self.is_worth_it:
            for part in self._tables.parts(self._table):
                self._bits(part)
            self._remove_others()

    def rows(
        self, columns: Sequence[str], ways: Sequence[Bits], told_by: Sequence[str], matches: Matches
    ) -> Iterator[pa.RecordBatch]:
        """The rows that match, in the order of the table.

        Args:
            ways: sets of bits; what does not have all of one of them does not match. An empty set is had by all.
            told_by: the columns that tell whether a row matches; the others are read of groups of rows that do.
            matches: which rows of a batch do.
        """
        is_read = not self.is_worth_it or any(not len(way) for way in ways)
        for part in self._tables.parts(self._table):
            blocks = None if is_read else self._blocks(part, ways)
            if blocks is None or len(blocks):
                with parquet(self._tables.store.path(part.name)) as file:
                    yield from _matching(file, columns, blocks, told_by, matches)

    def _blocks(self, part: Part, ways: Sequence[Bits]) -> Bits:
        bits = self._bits(part)
        found = np.zeros(8 * bits.shape[1], dtype=np.bool_)
        for way in ways:
            found |= np.unpackbits(np.bitwise_and.reduce(bits[way], axis=0)).astype(np.bool_)
        return np.flatnonzero(found[: -(-part.rows // BLOCK_ROWS)])

    def _bits(self, part: Part) -> Bits:
        """By the bit, which blocks of a part have it, eight to a byte."""
        name = self._name(part)
        shape = (BITS, -(-part.rows // BLOCK_ROWS // 8) or 1)
        with suppress(OSError, ValueError):
            found = self._load(name)
            if found.shape == shape and found.dtype == np.uint8:
                return found
        flags = np.zeros((8 * shape[1], BITS), dtype=np.bool_)
        for number, batch in enumerate(self._pieces(part)):
            flags[number] = self._flags(batch)
        made = np.packbits(flags, axis=0).T.copy()
        # Tables that one may read and not write are searched all the same, though each time anew.
        with suppress(OSError):
            file = io.BytesIO()
            np.save(file, made, allow_pickle=False)
            self._tables.store.write(name, file.getvalue())
        return made

    def _load(self, name: str) -> Bits:
        store = self._tables.store
        if store.folder is not None:
            return np.load(store.folder / name, mmap_mode="r", allow_pickle=False)
        return np.load(io.BytesIO(store.read(name)), allow_pickle=False)

    def _pieces(self, part: Part) -> Iterator[pa.RecordBatch]:
        """A part, block by block."""
        columns = list(dict.fromkeys((*self._wholes, *self._texts)))
        kept: list[pa.RecordBatch] = []
        room = BLOCK_ROWS
        with parquet(self._tables.store.path(part.name)) as file:
            for batch in file.iter_batches(BLOCK_ROWS, columns=columns, use_threads=False):
                while batch.num_rows:
                    kept.append(batch.slice(0, room))
                    room -= kept[-1].num_rows
                    batch = batch.slice(kept[-1].num_rows)
                    if not room:
                        yield pa.concat_batches(kept)
                        kept, room = [], BLOCK_ROWS
        if kept:
            yield pa.concat_batches(kept)

    def _flags(self, batch: pa.RecordBatch) -> Bits:
        flags = np.zeros(BITS, dtype=np.bool_)
        for name in self._wholes:
            flags[whole_bits(batch.column(name).drop_null())] = True
        for name in self._texts:
            data = _letters(batch.column(name))
            for size in (SHORT, LONG):
                flags[_grams(data, size)] = True
        return flags

    def _name(self, part: Part) -> str:
        return f"{FOLDER}/{part.name.replace('/', '-')}.npy"

    def _remove_others(self) -> None:
        known = {self._name(part) for part in self._tables.every_part()}
        store = self._tables.store
        with suppress(OSError):
            store.remove([file.name for file in store.files(FOLDER) if file.name not in known])


def whole_bits(values: pa.Array) -> Bits:
    """The bits of values, each as a whole."""
    texts = values.to_numpy(zero_copy_only=False)
    hashed = pd.util.hash_array(texts, categorize=False)
    return np.concatenate([hashed % BITS, (hashed >> np.uint64(32)) % BITS]).astype(np.int64)


def part_bits(text: str) -> Bits:
    """The bits of a text that is sought as a part of others; none of one that is too short."""
    data = _letters(pa.array([text], pa.string()))
    return np.unique(_grams(data, LONG if len(data) >= LONG else SHORT))


def lowered(column: pa.Array) -> pa.Array:
    """Texts as they are compared where only a part is sought."""
    return pc.utf8_lower(column)


def _letters(column: pa.Array) -> Bits:
    """All texts of a column one after the other: what follows one another by that alone only sets more bits."""
    return np.frombuffer("\n".join(lowered(column.drop_null()).to_pylist()).encode(), np.uint8)


def _grams(data: Bits, size: int) -> Bits:
    count = len(data) - size + 1
    if count <= 0:
        return NO_BITS
    found = np.full(count, size, dtype=np.uint64)
    for offset in range(size):
        found = found << np.uint64(8) | data[offset : offset + count]
    return (found * np.uint64(FACTOR) >> np.uint64(40)).astype(np.int64) % BITS


def _matching(
    file: pq.ParquetFile,
    columns: Sequence[str],
    blocks: Bits | None,
    told_by: Sequence[str],
    matches: Matches,
) -> Iterator[pa.RecordBatch]:
    """The rows of a part that match, or of some of its blocks."""
    before = 0
    for number in range(file.num_row_groups):
        count = file.metadata.row_group(number).num_rows
        places = np.arange(count) if blocks is None else _within(blocks, before, count)
        before += count
        if len(places):
            rows = file.read_row_group(number, columns=list(told_by), use_threads=False)
            if len(places) < count:
                rows = rows.take(pa.array(places))
            [batch] = rows.combine_chunks().to_batches(max_chunksize=count)
            found = places[matches(batch).to_numpy(zero_copy_only=False)]
            if len(found):
                every = file.read_row_group(number, columns=list(columns), use_threads=False)
                yield from every.take(pa.array(found)).to_batches()


def _within(blocks: Bits, before: int, count: int) -> Bits:
    """Which rows of a group belong to these blocks."""
    rows = (blocks[:, np.newaxis] * BLOCK_ROWS + np.arange(BLOCK_ROWS)).ravel() - before
    return rows[(rows >= 0) & (rows < count)]


def with_one_of(
    tables: Tables, table: str, column: str, wanted: Iterable[str], columns: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The rows of a table that have one of these texts in a column."""
    values = pa.array(sorted(set(wanted)), pa.string())
    if not len(values):
        return
    few = len(values) if len(values) <= WAYS_LIMIT else 0
    ways = [whole_bits(values[place : place + 1]) for place in range(few)] or [NO_BITS]

    def matches(batch: pa.RecordBatch) -> pa.Array:
        return pc.is_in(batch.column(column), value_set=values)

    for batch in Sieve(tables, table, (column,)).rows(columns, ways, (column,), matches):
        yield from batch.to_pylist()

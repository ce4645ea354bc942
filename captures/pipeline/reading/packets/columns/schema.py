"""The columns of packets, and how they are assembled from values for some of the rows."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from mqproto.captures.pipeline.source.octets import Mask, Vector
from mqproto.captures.pipeline.tables.schemas.columns import schema_of
from mqproto.captures.pipeline.tables.schemas.packets import SAID

PACKET_SCHEMA: Final = schema_of(SAID)
"""The fields that a packet itself states. Numbers of 8 and 16 bits are int32, those of 32 bits int64, because all are
unsigned."""

_Piece: TypeAlias = tuple[Vector, pa.Array, Vector | None]
"""Rows, the items for them, and the index of the item for each row.

Instead of the indexes there is None if each row has its own item.
"""


class Table:
    """Rows of PACKET_SCHEMA, filled in column by column.

    A column takes values for some of the rows, any number of times. Rows are given by their numbers, in rising order. A
    row without a value in a column is null there.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._values: dict[str, tuple[Any, Mask]] = {}
        self._items: dict[str, list[_Piece]] = {}

    def put(self, name: str, rows: Vector, values: Any) -> None:
        """Put numbers or truth values, one for each of these rows; a single value goes to all of them."""
        if name not in self._values:
            dtype = PACKET_SCHEMA.field(name).type.to_pandas_dtype()
            self._values[name] = np.zeros(self._count, dtype), np.ones(self._count, bool)
        column, is_null = self._values[name]
        where = self._places(rows)
        column[where] = values
        is_null[where] = False

    def put_items(
        self, name: str, rows: Vector, items: list[Any] | pa.Array, codes: Vector | None = None
    ) -> None:
        """Put texts or findings into these rows, from a list or an Arrow array.

        Args:
            codes: the index of each row's item; without it, each row gets its own item, in order.
        """
        if isinstance(items, list):
            items = pa.array(items, PACKET_SCHEMA.field(name).type)
        self._items.setdefault(name, []).append((rows, items, codes))

    def batch(self) -> pa.RecordBatch:
        """Return all rows, with the columns of PACKET_SCHEMA."""
        return pa.RecordBatch.from_arrays(
            [self._column(field) for field in PACKET_SCHEMA], schema=PACKET_SCHEMA
        )

    def _column(self, field: pa.Field) -> pa.Array:
        if field.name in self._values:
            column, is_null = self._values[field.name]
            return pa.array(column, field.type, mask=is_null if is_null.any() else None)
        if field.name in self._items:
            return self._item_column(self._items[field.name], field.type)
        return pa.nulls(self._count, field.type)

    def _item_column(self, pieces: list[_Piece], kind: pa.DataType) -> pa.Array:
        index, is_null = np.zeros(self._count, np.int64), np.ones(self._count, bool)
        before = 0
        for rows, items, codes in pieces:
            where = self._places(rows)
            if codes is None and len(rows) == self._count:
                return items.cast(kind)
            index[where] = before + (np.arange(len(rows)) if codes is None else codes)
            is_null[where] = False
            before += len(items)
        mask = is_null if is_null.any() else None
        return pa.concat_arrays([items for _, items, _ in pieces]).cast(kind).take(pa.array(index, mask=mask))

    def _places(self, rows: Vector) -> Any:
        """Return a fast numpy index for the rows: a slice if they are all rows, as they often are."""
        return slice(None) if len(rows) == self._count else rows

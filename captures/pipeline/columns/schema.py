"""The columns of packets, and how they are put together from what some of the rows have."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from captures.pipeline.octets import Mask, Vector

FINDING: Final = pa.struct(
    [("severity", pa.string()), ("code", pa.string()), ("text", pa.string()), ("section", pa.string())]
)
PACKET_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("size_bytes", pa.int32()),
        ("valid", pa.bool_()),
        ("fault", pa.string()),
        ("own_findings", pa.list_(FINDING)),
        ("digest", pa.int64()),
        ("priority", pa.int32()),
        ("trace", pa.bool_()),
        ("time_to_reach_queue_s", pa.int64()),
        ("client", pa.string()),
        ("server", pa.string()),
        ("refused", pa.bool_()),
        ("cookie", pa.int64()),
        ("recoverable_ack_timeout_ms", pa.int64()),
        ("ack_timeout_ms", pa.int64()),
        ("ack_number", pa.int32()),
        ("saved_first", pa.int32()),
        ("saved_flags", pa.int64()),
        ("sent_count", pa.int32()),
        ("recoverable_sent_count", pa.int32()),
        ("window_size", pa.int32()),
        ("message", pa.string()),
        ("source_manager", pa.string()),
        ("message_id", pa.int64()),
        ("destination_manager", pa.string()),
        ("queue", pa.string()),
        ("admin_queue", pa.string()),
        ("response_queue", pa.string()),
        ("sent_time_s", pa.int64()),
        ("time_to_be_received_s", pa.int64()),
        ("hop_count", pa.int32()),
        ("delivery", pa.string()),
        ("journal_negative", pa.bool_()),
        ("journal_positive", pa.bool_()),
        ("message_class", pa.int32()),
        ("class_name", pa.string()),
        ("correlation", pa.string()),
        ("label", pa.string()),
        ("body_type", pa.int64()),
        ("application_tag", pa.int64()),
        ("body_offset", pa.int32()),
        ("body_bytes", pa.int32()),
        ("extension_bytes", pa.int32()),
        ("body_text", pa.string()),
        ("acknowledgments", pa.int32()),
        ("authenticated", pa.bool_()),
        ("sender_id", pa.string()),
        ("sequence", pa.string()),
        ("sequence_number", pa.int64()),
        ("previous_number", pa.int64()),
        ("first_in_transaction", pa.bool_()),
        ("last_in_transaction", pa.bool_()),
        ("asks_final_ack", pa.bool_()),
        ("ack_sequence", pa.string()),
        ("ack_sequence_number", pa.int64()),
        ("ack_previous_number", pa.int64()),
        ("ack_message", pa.string()),
    ]
)
"""What a packet says by itself, named as in `captures.decode.row.PacketRow`; what a packet has not is null.

Numbers of 8 and 16 bits are int32, those of 32 bits int64, as none of them has a sign. Beside PacketRow's there are

    own_findings: what is wrong or odd in it, whatever came before: `malformed` and `odd-field`; null for nothing.
    digest: of a UserMessage: equal for packets that differ in the hop count and the SessionHeader only.
    body_offset: of a UserMessage: where in the packet its body begins.

Both are null where the packet is cut.
"""


_Piece: TypeAlias = tuple[Vector, pa.Array, Vector | None]
"""Rows, items for them, and which each row gets, if not its own."""


class Table:
    """Rows of PACKET_SCHEMA, filled in by columns: each takes values for some of the rows, as often as there are some.

    Rows are given by their numbers, in rising order. A row that a column gets nothing for is null there.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._values: dict[str, tuple[Any, Mask]] = {}
        self._items: dict[str, list[_Piece]] = {}

    def put(self, name: str, rows: Vector, values: Any) -> None:
        """Numbers or truth values, one for each of these rows; a single one goes to all of them."""
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
        """Texts or findings for these rows, in a list or an Arrow array.

        Args:
            codes: which of the items each row gets; without it each gets its own, in order.
        """
        if isinstance(items, list):
            items = pa.array(items, PACKET_SCHEMA.field(name).type)
        self._items.setdefault(name, []).append((rows, items, codes))

    def batch(self) -> pa.RecordBatch:
        """All rows, by PACKET_SCHEMA."""
        return pa.RecordBatch.from_arrays(
            [self._column(field) for field in PACKET_SCHEMA], schema=PACKET_SCHEMA
        )

    def _column(self, field: pa.Field) -> pa.Array:
        if field.name in self._values:
            column, is_null = self._values[field.name]
            return pa.array(column, field.type, mask=is_null if is_null.any() else None)
        if field.name in self._items:
            return self._item_column(self._items[field.name])
        return pa.nulls(self._count, field.type)

    def _item_column(self, pieces: list[_Piece]) -> pa.Array:
        index, is_null = np.zeros(self._count, np.int64), np.ones(self._count, bool)
        before = 0
        for rows, items, codes in pieces:
            where = self._places(rows)
            if codes is None and len(rows) == self._count:
                return items
            index[where] = before + (np.arange(len(rows)) if codes is None else codes)
            is_null[where] = False
            before += len(items)
        mask = is_null if is_null.any() else None
        return pa.concat_arrays([items for _, items, _ in pieces]).take(pa.array(index, mask=mask))

    def _places(self, rows: Vector) -> Any:
        """The rows as numpy is quickest with them, which are often all."""
        return slice(None) if len(rows) == self._count else rows

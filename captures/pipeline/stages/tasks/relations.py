"""Packets on their way from their sessions to their sequences and messages, joined with their relations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from mqproto.captures.pipeline.engines.engine import Outbox
from mqproto.captures.pipeline.stages.messages import grouping, subjects
from mqproto.captures.pipeline.stages.messages.watermark import WAITS
from mqproto.captures.pipeline.stages.schema import RELATIONS
from mqproto.captures.pipeline.stages.sequences import sequences
from mqproto.captures.pipeline.stages.sessions import directory
from mqproto.captures.pipeline.stages.tasks.buckets import Gathering, by_text, split
from mqproto.captures.pipeline.stages.tasks.context import Context
from mqproto.captures.pipeline.tables.lists import integers
from mqproto.captures.pipeline.tables.schemas.packets import PACKETS

JOINED: Final = tuple(name for name in RELATIONS.names if name not in ("series", "row_id"))
COLUMNS: Final = tuple(
    dict.fromkeys(name for name in (*grouping.COLUMNS, *sequences.COLUMNS) if name not in JOINED)
)
"""The columns of packets that sequences and messages need."""
SCHEMA: Final = pa.schema([PACKETS.schema.field(name) for name in COLUMNS])


class Related:
    """Takes packets of a bucket of connections, and sends each of them on once its relation is known.

    Attributes:
        waiting: packets whose relations are not known yet, keyed by series.

    Args:
        to_messages, to_sequences: the exchanges to which it sends them.
    """

    def __init__(
        self, context: Context, outbox: Outbox, to_messages: str, to_sequences: str | None = None
    ) -> None:
        self._context = context
        self._messages = Gathering(to_messages, outbox)
        self._sequences = None if to_sequences is None else Gathering(to_sequences, outbox, by_row=True)
        self.waiting: dict[str, pa.RecordBatch] = {}

    def add(self, packets: pa.RecordBatch) -> None:
        """Take packets with COLUMNS; those of a series are in the order of row_id."""
        for series, rows in _by_series(packets):
            before = self.waiting.get(series)
            self.waiting[series] = rows if before is None else pa.concat_batches([before, rows])

    def relate(self, relations: pa.RecordBatch, *, waits: bool) -> None:
        """Send the packets to which these relations belong.

        Args:
            relations: they may include relations of packets that were never added.
            waits: whether the relations may still change.
        """
        for series, some in _by_series(relations) if self.waiting else ():
            packets = self.waiting.get(series)
            if packets is None or not packets.num_rows:
                continue
            here, wanted = integers(packets, "row_id"), integers(some, "row_id")
            at = np.minimum(np.searchsorted(here, wanted), len(here) - 1)
            is_known = here[at] == wanted
            others = np.ones(len(here), dtype=bool)
            others[at[is_known]] = False
            self.waiting[series] = packets.filter(pa.array(others))
            related = packets.take(pa.array(at[is_known]))
            self._send(series, related, some.filter(pa.array(is_known)), waits=waits)

    def _send(self, series: str, batch: pa.RecordBatch, relations: pa.RecordBatch, *, waits: bool) -> None:
        context = self._context
        for name in JOINED:
            column = relations.column(name)
            if name in ("from_key", "to_key"):
                column = directory.resolved(column, context.origins.get(series))
            batch = batch.append_column(name, column)
        if self._sequences is not None:
            rows = sequences.keyed(batch.select(sequences.COLUMNS))
            bucket = by_text(rows.column("identifier"), context.buckets.connections)
            self._sequences.add(rows, bucket)
        flags = pa.repeat(pa.scalar(waits), batch.num_rows)
        rows = subjects.keyed(batch.select(grouping.COLUMNS).append_column(WAITS, flags))
        self._messages.add(rows, by_text(rows.column("subject"), context.buckets.messages))

    def finish(self) -> None:
        """Send what was gathered."""
        assert not any(rows.num_rows for rows in self.waiting.values()), "a relation for each packet"
        self._messages.send()
        if self._sequences is not None:
            self._sequences.send()


def rest(*every: Related) -> pa.Table:
    """Return all packets that still wait."""
    return pa.Table.from_batches([rows for each in every for rows in each.waiting.values()], SCHEMA)


def _by_series(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    coded = batch.column("series").dictionary_encode()
    names = coded.dictionary.to_pylist()
    if len(names) == 1:  # As is nearly always so.
        yield names[0], batch
    else:
        for code, rows in split(batch, coded.indices.to_numpy()).items():
            yield names[code], rows

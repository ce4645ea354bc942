"""The stage that writes the tables of packets and streams, with their rows numbered and in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.pipeline.engines.engine import Inbox, Outbox
from mqproto.captures.pipeline.reading.addresses import CLOSED_STREAMS, FOUND_ROWS, OPEN_STREAMS
from mqproto.captures.pipeline.reading.halves import Origins, origins_at
from mqproto.captures.pipeline.reading.reading import Place
from mqproto.captures.pipeline.reading.rows import CLOSED, FOUND, PACKETS, STREAMS
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.tables.parts import Part, Store
from mqproto.captures.pipeline.tables.schemas.columns import CODED


@dataclass(frozen=True, slots=True)
class SeriesFiles:
    """The files of a series, in order.

    frames_before: for each file, the number of frames in the files before it.
    connections: the numbers of all frames in which connections begin.
    origins: the file with the origins of frames, if the files of the series were merged into one capture.
    """

    name: str
    paths: tuple[str, ...]
    frames_before: tuple[int, ...]
    connections: Integers
    origins: str | None = None

    def origins_of(self, numbers: Integers, offsets: Integers | None = None) -> Origins:
        """Return the origins of frames, which are given by their numbers over the whole series.

        Args:
            offsets: the offsets of these frames in the capture that was read.
        """
        if self.origins is not None:
            return origins_at(self.origins, numbers)
        file = np.searchsorted(self.frames_before, numbers, side="left") - 1
        frame = numbers - np.array(self.frames_before, dtype=np.int64)[file]
        return Origins(file, frame, np.zeros_like(frame) if offsets is None else offsets)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """A range whose packets are known.

    place: the range; None for packets that only the end of the series reveals.
    name: the name of the part.
    rows_before, framed_before: the number of rows, and of framed packets, in the earlier ranges.
    """

    store: Store
    series: str
    place: Place | None
    name: str
    rows_before: int
    framed_before: int

    def __str__(self) -> str:
        return str(self.place or f"the end of {self.series}")


@dataclass(frozen=True, slots=True)
class StreamsTask:
    """The streams of a bucket of pairs.

    closed, open: the names of the parts for streams that are over, and for those that may continue.
    """

    store: Store
    series: str
    closed: str
    open: str

    def __str__(self) -> str:
        return f"streams of {self.series}"


READ: Final = (FOUND_ROWS, CLOSED_STREAMS, OPEN_STREAMS)
"""The exchanges that `write` reads."""


def write(
    all_series: Mapping[str, SeriesFiles],
    task: WriteTask | StreamsTask,
    inbox: Inbox,
    outbox: Outbox,
) -> list[Part]:
    """Write the part files for a range of the capture, or for a bucket of streams."""
    if isinstance(task, StreamsTask):
        return write_streams(all_series[task.series], task, inbox)
    return [write_packets(all_series[task.series], task, inbox)]


def write_streams(series: SeriesFiles, task: StreamsTask, inbox: Inbox) -> list[Part]:
    """Write the streams of a bucket, if there are any."""
    parts = []
    for name, exchange in ((task.closed, CLOSED_STREAMS), (task.open, OPEN_STREAMS)):
        rows = pa.Table.from_batches(inbox.take(exchange), CLOSED)
        if rows.num_rows:
            began = _numbers(rows, "connection")
            origins = series.origins_of(began)
            rows = _with(rows, "connection", pa.array(np.searchsorted(series.connections, began)))
            rows = rows.append_column("series", pa.repeat(pa.scalar(series.name, CODED), rows.num_rows))
            rows = rows.append_column("file", pa.array(series.paths, CODED).take(pa.array(origins.file)))
            rows = rows.append_column("frame", pa.array(origins.frame))
            parts.append(task.store.write_part(name, rows.select(STREAMS.names)))
    return parts


def write_packets(series: SeriesFiles, task: WriteTask, inbox: Inbox) -> Part:
    """Write the part file for a range of the capture."""
    table = _sorted(pa.Table.from_batches(inbox.take(FOUND_ROWS), schema=FOUND))
    return task.store.write_part(task.name, _numbered(series, task, table))


def _sorted(table: pa.Table) -> pa.Table:
    """Return all rows in the order in which they became readable."""
    keys = [_numbers(table, name) for name in ("position", "order", "readable")]
    order = np.lexsort(keys)
    return table if (order == np.arange(len(order))).all() else table.take(pa.array(order))


def _numbered(series: SeriesFiles, task: WriteTask, table: pa.Table) -> pa.Table:
    """Return rows of FOUND as rows of PACKETS."""
    framed = table["framed"].to_numpy()
    first = series.origins_of(_numbers(table, "first_frame"), _numbers(table, "file_offset"))
    last = series.origins_of(_numbers(table, "frame"))
    paths = pa.array(series.paths, CODED)
    is_ping = table["connection"].is_null()
    began = pc.fill_null(table["connection"], 0).to_numpy()
    time_ns = table["time_ns"]
    columns: dict[str, Any] = {
        "series": pa.repeat(pa.scalar(series.name, CODED), table.num_rows),
        "row_id": task.rows_before + np.arange(1, table.num_rows + 1),
        "number": task.framed_before + np.cumsum(framed),
        "framed": table["framed"],
        "file": paths.take(pa.array(first.file)),
        "frame": last.frame,
        "first_frame": first.frame,
        "file_offset": first.offset,
        "frame_file": paths.take(pa.array(last.file, mask=first.file == last.file)),
        "time": pc.divide(time_ns, 1_000).cast(pa.timestamp("us", "UTC")),
        "connection": pc.if_else(
            is_ping, pa.scalar(None, pa.int64()), np.searchsorted(series.connections, began)
        ),
    }
    arrays = []
    for field in PACKETS:
        column = columns.get(field.name, table[field.name] if field.name in FOUND.names else None)
        arrays.append(pa.array(column, field.type) if isinstance(column, np.ndarray) else column)
    return pa.table(arrays, schema=PACKETS)


def _numbers(table: pa.Table, name: str) -> Integers:
    numbers: Integers = table[name].to_numpy().astype(np.int64, copy=False)
    return numbers


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), column)

"""The table of streams: what each side of a connection sent, as far as one interface saw it, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from captures.direction import STREAM_COUNTS
from captures.framing import StreamCount

COUNTS: Final = (
    "packet_count",
    "packet_bytes",
    "cut_bytes",
    "headless_bytes",
    "refused_bytes",
    "resumed_count",
)
STREAMS: Final = pa.schema(
    [
        ("series", pa.string()),
        ("file", pa.string()),
        ("frame", pa.int64()),
        ("connection", pa.int64()),
        ("interface", pa.int32()),
        ("source_address", pa.string()),
        ("source_port", pa.int32()),
        ("destination_address", pa.string()),
        ("destination_port", pa.int32()),
        ("from_start", pa.bool_()),
        ("ending", pa.string()),
        ("data_bytes", pa.int64()),
        *((name, pa.int64()) for name in (*STREAM_COUNTS, *COUNTS)),
    ]
)
"""A row for each stream, MSMQ's and others'; its columns are as in captures.direction.Stream and
captures.framing.StreamCount.

file, frame: with which the connection began. connection: as that of packets.
ending: finished (FIN), reset (RST), or open: the captures show no end of it.
"""
CLOSED: Final = pa.schema([field for field in STREAMS if field.name not in ("series", "file", "frame")])
"""The same under way; `connection` is the number of the frame with which the connection began."""


def closed_rows(seen: Sequence[StreamCount]) -> pa.RecordBatch:
    """Streams as rows of CLOSED."""
    rows = [_row(each) for each in seen]
    columns = list(zip(*rows, strict=True)) or [()] * len(CLOSED)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, CLOSED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CLOSED)


def _row(seen: StreamCount) -> tuple[Any, ...]:
    stream = seen.stream
    return (
        stream.connection,
        stream.interface.number,
        *stream.source,
        *stream.destination,
        stream.from_start,
        stream.ending.value,
        stream.data_bytes,
        *(getattr(stream, name) for name in STREAM_COUNTS),
        *(getattr(seen, name) for name in COUNTS),
    )

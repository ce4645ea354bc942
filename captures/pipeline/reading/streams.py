"""The table of streams: what each side of a connection sent, as seen by one interface, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final

import pyarrow as pa

from mqproto.captures.framing import StreamCount
from mqproto.captures.net.direction import STREAM_COUNTS
from mqproto.captures.pipeline.tables.lists import batch_of
from mqproto.captures.pipeline.tables.schemas import sessions

COUNTS: Final = tuple(field.name for field in fields(StreamCount) if field.name != "stream")
STREAMS: Final = sessions.STREAMS.schema
"""The columns of streams, with a row for each stream, whether it carries MSMQ or not."""
assert (*STREAM_COUNTS, *COUNTS) == tuple(STREAMS.names[-len(STREAM_COUNTS) - len(COUNTS) :]), (
    "all that is counted"
)
CLOSED: Final = pa.schema([field for field in STREAMS if field.name not in ("series", "file", "frame")])
"""The same columns for streams in transit; `connection` is the number of the connection's first frame."""


def closed_rows(seen: Iterable[StreamCount]) -> pa.RecordBatch:
    """Return streams as rows of CLOSED."""
    return batch_of(CLOSED, map(_row, seen))


def _row(seen: StreamCount) -> tuple[Any, ...]:
    stream = seen.stream
    return (
        stream.connection,
        stream.interface.number,
        *stream.source,
        *stream.destination,
        stream.from_start,
        stream.ending.value,
        stream.sent_bytes,
        stream.came_bytes,
        stream.data_bytes,
        *(getattr(stream, name) for name in STREAM_COUNTS),
        *(getattr(seen, name) for name in COUNTS),
    )

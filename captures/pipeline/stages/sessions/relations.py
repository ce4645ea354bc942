"""Makes RELATIONS for packets of one connection that were taken all at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.sessions.connections import Connection
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.pipeline.source.octets import Mask
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.stages.schema import INTEGER, RELATIONS, SHORT
from mqproto.captures.pipeline.stages.sessions.steady import NOBODY, Said
from mqproto.captures.pipeline.tables.lists import key_text
from mqproto.captures.pipeline.tables.schemas.columns import CODED


def is_from(batch: pa.RecordBatch, endpoint: Endpoint) -> Mask:
    """Return, for each packet, whether it comes from `endpoint`."""
    same = pc.and_(
        pc.equal(batch.column("source_address"), endpoint.host),
        pc.equal(batch.column("source_port"), endpoint.port),
    )
    found: Mask = same.to_numpy(zero_copy_only=False)
    return found


def relations_of(
    batch: pa.RecordBatch, connection: Connection, from_client: Mask, said: Said
) -> pa.RecordBatch:
    """Return RELATIONS of packets that were taken all at once."""
    halves = (connection.server, connection.client)
    sender, other = pa.array(from_client.astype(np.int8)), pa.array((~from_client).astype(np.int8))
    labels = pa.array([half.label for half in halves], CODED)
    keys = pa.array([key_text(half.key) for half in halves], CODED)
    arrays = [
        batch.column("series"),
        batch.column("row_id"),
        labels.take(sender),
        labels.take(other),
        keys.take(sender),
        keys.take(other),
        pa.array(from_client),
        _numbers(said.session_number, SHORT),
        _numbers(said.session_recoverable_number, SHORT),
        *_ranges(*said.received),
        *_ranges(*said.saved),
        _numbers(said.acknowledged_by, INTEGER),
        _numbers(said.acknowledged_ns, INTEGER),
        _numbers(said.saved_by, INTEGER),
        batch.column("queue_name"),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RELATIONS)


def _numbers(column: Integers, kind: pa.DataType) -> pa.Array:
    return pa.array(column, kind, mask=column == NOBODY)


def _ranges(first: Integers, last: Integers, count: Integers) -> tuple[pa.Array, pa.Array]:
    """Return the pairs of first and last numbers as a list column, and how many items each pair covers."""
    none = count == NOBODY
    ends = pa.array(np.append(0, np.cumsum(np.where(none, 0, 2))), pa.int32())
    pairs = pa.array(np.stack([first, last], axis=1)[~none].ravel())
    return pa.ListArray.from_arrays(ends, pairs, mask=pa.array(none)), _numbers(count, INTEGER)

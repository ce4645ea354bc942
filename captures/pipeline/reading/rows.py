"""The table of packets: its columns, and how a range's rows get into it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqproto.captures.decode.security.keyring import KeyRing, read_keys
from mqproto.captures.framing import StreamCount
from mqproto.captures.net.direction import STREAM_COUNTS
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import SeenPacket
from mqproto.captures.pipeline.reading.packets.columns import packet_columns, ping_columns
from mqproto.captures.pipeline.reading.packets.cutting import Packets
from mqproto.captures.pipeline.tables.lists import batch_of
from mqproto.captures.pipeline.tables.schemas import packets, sessions
from mqproto.captures.pipeline.tables.schemas.columns import CODED

ROWS_AT_A_TIME: Final = 32_768

PACKETS: Final = packets.PACKETS.schema
"""The columns of the table of packets."""
FOUND: Final = pa.schema(
    [
        ("readable", pa.int64()),
        ("order", pa.int64()),
        ("framed", pa.bool_()),
        *(PACKETS.field(name) for name in ("frame", "first_frame", "file_offset")),
        *(PACKETS.field(column.name) for column in (*packets.SEEN, *packets.SAID)),
    ]
)
"""The columns of packets that were found in their connections, before they have their numbers.

readable, order, position: the order of all packets of a series.
frame, first_frame: counted from 1 over the series.
connection: the number of the connection's first frame; null for a Ping.

The other columns are those of PACKETS.
"""


def packet_rows(packets: Packets, asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield packets as rows of FOUND, in their order.

    Args:
        asked: what to read from packets in addition to their fields.
    """
    streams = packets.streams
    hosts, codes = _codes([(stream.source, stream.destination) for stream in streams])
    codes["interface"] = np.array([stream.interface.number for stream in streams], dtype=np.int32)
    codes["opened"] = np.array([stream.opened for stream in streams], dtype=object)
    codes["connection"] = np.array([stream.connection for stream in streams], dtype=np.int64)
    ring = asked.ring
    for low in range(0, len(packets), ROWS_AT_A_TIME):
        rows = slice(low, low + ROWS_AT_A_TIME)
        said = packet_columns(
            packets.data,
            packets.start[rows],
            packets.size[rows],
            packets.framed[rows],
            packets.cut[rows],
            texts=asked.texts,
            ring=ring,
        )
        index = packets.stream[rows]
        columns: dict[str, Any] = {
            "readable": packets.readable[rows],
            "order": packets.order[rows],
            "framed": packets.framed[rows],
            "frame": packets.frame[rows],
            "first_frame": packets.first_frame[rows],
            "file_offset": packets.offset[rows],
            "time_ns": packets.time_ns[rows],
            "began_ns": packets.began_ns[rows],
            "position": packets.position[rows],
            "missing_bytes": packets.missing[rows],
            "skipped_bytes": packets.skipped[rows],
            "snapped_bytes": packets.snapped[rows],
            "cut_bytes": packets.cut[rows],
            "ahead": packets.ahead[rows],
        }
        columns |= {name: values[index] for name, values in codes.items()}
        yield _batch(columns, hosts, said)


def ping_rows(pings: list[SeenPacket], first_number: int) -> pa.RecordBatch:
    """Return Pings as rows of FOUND.

    Args:
        first_number: the number, in the series, of the first frame in the file of `pings`, minus 1.
    """
    data = np.frombuffer(b"".join(ping.data for ping in pings), dtype=np.uint8)
    size = np.array([len(ping.data) for ping in pings], dtype=np.int64)
    said = ping_columns(data, np.cumsum(size) - size, size)
    hosts, codes = _codes([(ping.source, ping.destination) for ping in pings])
    frame = [first_number + ping.frame for ping in pings]
    columns: dict[str, Any] = {
        "readable": frame,
        "order": [0] * len(pings),
        "framed": [True] * len(pings),
        "frame": frame,
        "first_frame": frame,
        "file_offset": [ping.file_offset for ping in pings],
        "time_ns": [ping.time_ns for ping in pings],
        "began_ns": [ping.began_ns for ping in pings],
        "interface": [ping.interface.number for ping in pings],
        "connection": [None] * len(pings),
        "position": [0] * len(pings),
        "missing_bytes": [0] * len(pings),
        "skipped_bytes": [0] * len(pings),
        "snapped_bytes": [0] * len(pings),
        "cut_bytes": [0] * len(pings),
        "ahead": [False] * len(pings),
        "opened": [None] * len(pings),
    }
    return _batch(columns | codes, hosts, said)


def _codes(ends: Sequence[tuple[Endpoint, Endpoint]]) -> tuple[list[str], dict[str, Any]]:
    """Return the hosts, each of them once, and columns keyed by name.

    For each row, a column has either the index of its host or its port.
    """
    hosts = list(dict.fromkeys(end.host for pair in ends for end in pair))
    place = {host: index for index, host in enumerate(hosts)}
    columns: dict[str, Any] = {}
    for side, name in enumerate(("source", "destination")):
        columns[f"{name}_address"] = np.array([place[pair[side].host] for pair in ends], dtype=np.int32)
        columns[f"{name}_port"] = np.array([pair[side].port for pair in ends], dtype=np.int32)
    return hosts, columns


def _batch(columns: dict[str, Any], hosts: list[str], said: pa.RecordBatch) -> pa.RecordBatch:
    names = pa.array(hosts, CODED)
    arrays = []
    for field in FOUND:
        if field.name.endswith("_address"):
            arrays.append(names.take(pa.array(columns[field.name], pa.int32())))
        elif field.name in columns:
            arrays.append(pa.array(columns[field.name], field.type))
        else:
            arrays.append(said.column(field.name))
    return pa.RecordBatch.from_arrays(arrays, schema=FOUND)


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


@dataclass(frozen=True, slots=True)
class Asked:
    """The parts of packets to read in addition to their fields.

    texts: whether to read the texts of bodies.
    keys: files and folders with keys for decryption and verification.
    """

    texts: bool = False
    keys: tuple[str, ...] = ()

    @property
    def ring(self) -> KeyRing | None:
        """Return the keys, as they are now.

        Raises:
            UsageError: as for `read_keys`.
        """
        if not self.keys:
            return None
        return _read(self.keys, tuple(_changed_ns(Path(path)) for path in self.keys))


@lru_cache(maxsize=1)
def _read(keys: tuple[str, ...], _changed: tuple[int, ...]) -> KeyRing:
    """Read the keys once in each process, and again if they have changed."""
    return read_keys(keys)


def _changed_ns(path: Path) -> int:
    """Return when the newest file changed; 0 if there are no files, which `read_keys` reports."""
    try:
        files = [path, *path.iterdir()] if path.is_dir() else [path]
        return max(file.stat().st_mtime_ns for file in files)
    except OSError:
        return 0

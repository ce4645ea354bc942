"""Segments on their way from ranges to the readers of their connections, with their payloads."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqproto.captures.files.frame import Interface
from mqproto.captures.net.recent import AHEAD_COUNT, Caught, DamagedCopies
from mqproto.captures.net.streams import ends_of
from mqproto.captures.net.tcp import SYN, Endpoint, Segment
from mqproto.captures.pipeline.reading.addresses import Addresses
from mqproto.captures.pipeline.reading.packets.reassembly import SegmentPart, distance
from mqproto.captures.pipeline.source.octets import binaries
from mqproto.captures.pipeline.source.records import Data, Integers
from mqproto.captures.pipeline.source.segments import Segments

PART_BYTES: Final = 64 << 20
"""How many bytes of frames are read at a time."""
BATCH_BYTES: Final = 4 << 20
"""How many bytes of frames are in one batch, which is a single value to Spark."""
NUMBERS: Final = (
    *("frame", "time_ns", "offset", "interface", "source", "destination", "sequence", "acknowledgment"),
    *("flags", "size", "cut", "frame_missing"),
)
"""The columns of segments that are carried unchanged."""
PLACES: Final = ("start", "frame_start", "frame_size")
"""The columns that refer to places in the bytes."""


def carried(
    addresses: Addresses, segments: Segments, data: Data, first_number: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the segments of a range, grouped by the bucket of their connection's ends.

    Frames are numbered over the series.

    Args:
        first_number: the number of the range's first frame.
    """
    if not len(segments):
        return
    ends, count = segments.ends, len(segments.ends)
    pairs, pair = np.unique(
        segments.source.astype(np.int64) * count + segments.destination, return_inverse=True
    )
    between = (divmod(each, count) for each in pairs.tolist())
    bucket = np.array([addresses.pair(ends_of(ends[one], ends[other])) for one, other in between])[pair]
    for each in np.unique(bucket).tolist():
        rows = np.flatnonzero(bucket == each)
        batch = np.cumsum(segments.frame_size[rows]) // BATCH_BYTES
        for some in np.split(rows, np.flatnonzero(np.diff(batch)) + 1):
            yield each, _batch(segments, data, first_number, some)


def _batch(segments: Segments, data: Data, first_number: int, rows: Integers) -> pa.RecordBatch:
    """Return some segments as rows; the first row also has all their ends and interfaces."""
    columns = {name: getattr(segments, name)[rows] for name in NUMBERS}
    columns["frame"] = columns["frame"] + first_number
    ends, index = np.unique([columns["source"], columns["destination"]], return_inverse=True)
    columns["source"], columns["destination"] = index.reshape(2, -1).astype(np.int32)
    start, frame_start = segments.start[rows], segments.frame_start[rows]
    columns["at"] = np.where(start < 0, -1, start - frame_start)
    found = {name: pa.array(column) for name, column in columns.items()}
    found["data"] = binaries(np.frombuffer(data, np.uint8), frame_start, segments.frame_size[rows])
    odd = (
        [segments.odd_payloads.get(row) for row in rows.tolist()] if (start < 0).any() else [None] * len(rows)
    )
    about = pickle.dumps(([segments.ends[end] for end in ends.tolist()], segments.interfaces))
    found["odd"] = pa.array(odd, pa.large_binary())
    found["about"] = pa.array([about, *[None] * (len(rows) - 1)], pa.large_binary())
    return pa.RecordBatch.from_pydict(found)


@dataclass(frozen=True, slots=True)
class _Some:
    rows: pa.RecordBatch
    ends: list[Endpoint]
    interfaces: dict[int, Interface]


class SegmentParts:
    """Collects segments into large parts for reading, because each part has a cost.

    If an intact copy of a damaged segment follows, the damaged one loses its content.

    Args:
        apart: as in SegmentPart.
    """

    def __init__(self, apart: bool) -> None:
        self._apart = apart
        self._waiting: list[_Some] = []
        self._size_bytes = 0
        self._copies = DamagedCopies()

    def take(self, rows: pa.RecordBatch) -> Iterator[SegmentPart]:
        """Take the segments of the next range; yield a part if there are enough."""
        ends, interfaces = pickle.loads(rows["about"][0].as_buffer())
        self._waiting.append(_Some(rows, ends, interfaces))
        self._size_bytes += rows["data"].nbytes
        if self._size_bytes >= PART_BYTES:
            yield from self.rest(AHEAD_COUNT)

    def rest(self, held_count: int = 0) -> Iterator[SegmentPart]:
        """Yield everything except the last `held_count` frames.

        These are held, because an intact copy of a damaged frame may still follow.
        """
        if not self._waiting:
            return
        part = _together(self._waiting, self._apart)
        pass_over_damaged(part, self._copies)
        frame = part.segments.frame
        count = int(np.searchsorted(frame, frame[-1] - held_count, side="right"))
        held, self._waiting = self._waiting, []
        left = len(frame) - count
        while left:
            some = held.pop()
            rows = some.rows.slice(max(0, some.rows.num_rows - left))
            self._waiting.insert(0, replace(some, rows=rows))
            left -= rows.num_rows
        self._size_bytes = sum(some.rows["data"].nbytes for some in self._waiting)
        if count:
            yield part._replace(segments=_first(part.segments, count))


def _together(some: Sequence[_Some], apart: bool) -> SegmentPart:
    """Return segments in one table, and the bytes of their frames."""
    index: dict[Endpoint, int] = {}
    interfaces: dict[int, Interface] = {}
    for each in some:
        interfaces |= each.interfaces
        for end in each.ends:
            index.setdefault(end, len(index))
    columns: dict[str, Any] = {}
    for name in (*NUMBERS, "at"):
        values = [each.rows[name].to_numpy() for each in some]
        if name in ("source", "destination"):
            places = (np.array([index[end] for end in each.ends], np.int32) for each in some)
            values = [place[one] for place, one in zip(places, values, strict=True)]
        columns[name] = np.concatenate(values)
    pieces, sizes = zip(*(_octets(each.rows["data"]) for each in some), strict=True)
    frame_size: Integers = np.concatenate(sizes)
    frame_start = np.cumsum(frame_size) - frame_size
    at = columns.pop("at")
    odd_payloads: dict[int, bytes] = {}
    if (at < 0).any():
        odd = pa.chunked_array([each.rows["odd"] for each in some])
        odd_payloads = {row: odd[row].as_py() for row in np.flatnonzero(at < 0).tolist()}
    segments = Segments(
        **columns,
        start=np.where(at < 0, -1, frame_start + at),
        frame_start=frame_start,
        frame_size=frame_size,
        ends=[*index],
        interfaces=interfaces,
        odd_payloads=odd_payloads,
    )
    return SegmentPart(segments, b"".join(pieces), apart)


def _first(segments: Segments, count: int) -> Segments:
    """Return the first `count` of some segments."""
    columns = {name: getattr(segments, name)[:count] for name in (*NUMBERS, *PLACES)}
    odd = {row: payload for row, payload in segments.odd_payloads.items() if row < count}
    passed = {row: whole for row, whole in segments.passed.items() if row < count}
    return replace(segments, **columns, odd_payloads=odd, passed=passed)


def _octets(column: pa.LargeBinaryArray) -> tuple[pa.Buffer, Integers]:
    """Return all bytes of a column, and the size of each value."""
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return data[int(edges[0]) : int(edges[-1])], np.diff(edges)


def pass_over_damaged(part: SegmentPart, copies: DamagedCopies) -> None:
    """Remove the content of damaged segments that have intact copies, and of contradictory segments.

    Args:
        copies: the findings from earlier parts; some may be about segments of this part.
    """
    segments = part.segments
    row = np.flatnonzero((segments.size > 0) | (segments.flags & SYN != 0))
    count = len(segments.ends)
    way = (segments.interface[row].astype(np.int64) * count + segments.source[row]) * count
    way += segments.destination[row]
    frame, sequence, size = segments.frame[row], segments.sequence[row], segments.size[row]
    by = np.argsort(way, kind="stable")
    is_first = np.ones(len(by), np.bool_)
    is_first[1:] = way[by[1:]] != way[by[:-1]]
    group = np.cumsum(is_first) - 1
    start = distance(sequence[by], sequence[by][is_first][group]) + (group << 34)
    reached = np.maximum.accumulate(start + size[by])
    behind = np.flatnonzero(~is_first[1:] & (start[1:] < reached[:-1])) + 1
    firsts = np.flatnonzero(is_first)[group]

    def at(place: int) -> Caught:
        return _segment_at(part, int(row[by[place]]))

    def before(place: int) -> Iterator[Caught]:
        for other in range(place - 1, int(firsts[place]) - 1, -1):
            if frame[by[other]] < frame[by[place]] - AHEAD_COUNT:
                break
            yield at(other)

    for place in behind.tolist():
        copies.compare(*at(place), before(place))
    copies.passed = {number: one for number, one in copies.passed.items() if number >= segments.frame[0]}
    for number, one in copies.passed.items():
        segments.pass_over(number, one)


def _segment_at(part: SegmentPart, row: int) -> Caught:
    segments = part.segments
    source, destination = segments.ends[segments.source[row]], segments.ends[segments.destination[row]]
    payload, flags = segments.payload(part.data, row), int(segments.flags[row])
    segment = Segment(source, destination, int(segments.sequence[row]), 0, flags, 0, b"", payload)
    return segments.frame_of(part.data, row), segment

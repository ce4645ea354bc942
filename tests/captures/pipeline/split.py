"""Captures that are cut into ranges and put together again, compared with one reader of the whole capture."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mqproto.captures.files.frame import Frame
from mqproto.captures.framing import StreamCount
from mqproto.captures.net.answers import segment_in
from mqproto.captures.net.direction import STREAM_COUNTS, Ending
from mqproto.captures.net.heads import fault_of
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.recent import DamagedCopies
from mqproto.captures.net.taps import Taps
from mqproto.captures.net.tcp import Endpoint, Segment
from mqproto.captures.packets import PacketReader, SeenPacket, Totals
from mqproto.captures.pipeline.reading.carrying import pass_over_damaged
from mqproto.captures.pipeline.reading.packets.cutting import Packets
from mqproto.captures.pipeline.reading.packets.flows import Flows
from mqproto.captures.pipeline.reading.packets.reassembly import SegmentPart
from mqproto.captures.pipeline.source.segments import Segments
from mqproto.captures.translation import Translations

BETWEEN = b"\xee\xee\xee"
"""The bytes between two payloads in the file."""


def numbered(frames: Iterable[Frame]) -> list[Frame]:
    """Number frames as a file would."""
    return [frame._replace(number=number, offset=100 * number) for number, frame in enumerate(frames, 1)]


def ranges(frames: Sequence[Frame], cuts: Iterable[int] = (), odd: Iterable[int] = ()) -> list[SegmentPart]:
    """Return the segments of a capture that is cut into ranges.

    Args:
        cuts: the positions of the frames before which the capture is cut.
        odd: the numbers of frames whose payload is not in one piece in the file.
    """
    reader, taps = IpReader(), Taps()
    taps.look(iter(frames))
    edges = sorted({0, len(frames), *cuts})
    scattered = frozenset(odd)
    parts = [_range(frames[start:end], reader, scattered) for start, end in itertools.pairwise(edges)]
    translations, reader = Translations(), IpReader()
    for frame in frames:
        if (segment := segment_in(frame, reader)) is not None:
            translations.meet(segment, frame.number, frame.time_ns)
    for part in parts:
        part.segments.join_halves(taps.halves)
        part.segments.translate(translations.found, 0)
    return [part._replace(apart=bool(taps.halves)) for part in parts]


def _range(frames: Sequence[Frame], reader: IpReader, scattered: frozenset[int]) -> SegmentPart:
    found = [(frame, segment_in(frame, reader)) for frame in frames]
    return segments_of([(frame, segment) for frame, segment in found if segment is not None], scattered)


def segments_of(
    rows: Sequence[tuple[Frame, Segment]], scattered: frozenset[int] = frozenset()
) -> SegmentPart:
    """Return segments as columns, together with the file that has their payloads."""
    data = bytearray(BETWEEN)
    ends: dict[Endpoint, int] = {}
    odd_payloads: dict[int, bytes] = {}
    columns: list[tuple[int, ...]] = []
    for row, (frame, segment) in enumerate(rows):
        frame_start = len(data)
        data += frame.data
        at = frame.data.rfind(segment.payload)
        start = frame_start + at if at >= 0 else len(data)
        if frame.number in scattered or (at < 0 and frame.data):
            start = -1
            odd_payloads[row] = segment.payload
        elif at < 0:
            data += segment.payload
        data += BETWEEN
        columns.append(
            (
                frame.number,
                frame.time_ns,
                frame.offset,
                frame.interface.number,
                ends.setdefault(segment.source, len(ends)),
                ends.setdefault(segment.destination, len(ends)),
                segment.sequence_number,
                segment.acknowledgment_number,
                segment.flags,
                start,
                len(segment.payload),
                segment.cut_bytes,
                frame_start,
                len(frame.data),
                frame.missing_bytes,
            )
        )
    table = np.array(columns, dtype=np.int64).reshape(-1, 15).T
    segments = Segments(
        frame=table[0],
        time_ns=table[1],
        offset=table[2],
        interface=table[3].astype(np.int32),
        source=table[4].astype(np.int32),
        destination=table[5].astype(np.int32),
        sequence=table[6],
        acknowledgment=table[7],
        flags=table[8].astype(np.uint8),
        start=table[9],
        size=table[10],
        cut=table[11],
        frame_start=table[12],
        frame_size=table[13],
        frame_missing=table[14],
        ends=list(ends),
        interfaces={frame.interface.number: frame.interface for frame, _ in rows},
        odd_payloads=odd_payloads,
    )
    return SegmentPart(segments, bytes(data))


@dataclass
class Result:
    """What the pipeline finds in a capture: packets, each in the form of `told`, in order; and streams."""

    packets: list[dict[str, Any]] = field(default_factory=list)
    closed: list[StreamCount] = field(default_factory=list)


def read_in_parts(parts: Iterable[SegmentPart]) -> Result:
    """Read all parts, one after another. Return the result."""
    flows = Flows()
    found = [*map(flows.read, parts), flows.decide(), flows.finish()]
    result = Result(closed=flows.closed)
    ranks = sorted({seen.stream.connection for seen in result.closed})
    number = 0
    for _, row in sorted((row for packets in found for row in _rows(packets)), key=lambda pair: pair[0]):
        number += row["framed"]
        row["number"] = number
        row["connection"] = ranks.index(row["connection"])
        result.packets.append(row)
    return result


def _rows(packets: Packets) -> Iterator[tuple[tuple[int, int, int], dict[str, Any]]]:
    for row in range(len(packets)):
        stream = packets.streams[int(packets.stream[row])]
        start, size = int(packets.start[row]), int(packets.size[row])
        data = packets.data[start : start + size].tobytes()
        values: dict[str, Any] = {
            "data": data,
            "source": stream.source,
            "destination": stream.destination,
            "interface": stream.interface,
            "connection": stream.connection,
            "position": int(packets.position[row]),
            "framed": bool(packets.framed[row]),
            "fault": None if packets.framed[row] else str(fault_of(data)),
            "frame": int(packets.frame[row]),
            "first_frame": int(packets.first_frame[row]),
            "file_offset": int(packets.offset[row]),
            "time_ns": int(packets.time_ns[row]),
            "began_ns": int(packets.began_ns[row]),
            "missing_bytes": int(packets.missing[row]),
            "skipped_bytes": int(packets.skipped[row]),
            "snapped_bytes": int(packets.snapped[row]),
            "cut_bytes": int(packets.cut[row]),
            "ahead": bool(packets.ahead[row]),
        }
        yield (int(packets.readable[row]), int(packets.order[row]), values["position"]), values


NAMES = (
    *("number", "data", "source", "destination", "interface", "connection", "position", "framed"),
    *("frame", "first_frame", "file_offset", "time_ns", "began_ns", "missing_bytes", "skipped_bytes"),
    *("snapped_bytes", "cut_bytes", "ahead"),
)


def told(packet: SeenPacket) -> dict[str, Any]:
    """Return everything that a capture shows about a packet."""
    values = {name: getattr(packet, name) for name in NAMES}
    return values | {"fault": None if packet.framed else str(packet.fault)}


def whole(frames: Iterable[Frame]) -> tuple[list[dict[str, Any]], PacketReader]:
    """Return what one reader of the whole capture finds, without Pings."""
    reader = PacketReader(frames)
    packets = [packet for packet in reader if not packet.is_ping]
    number = 0
    for packet in packets:
        number += packet.framed
        packet.number = number
    return [told(packet) for packet in packets], reader


TOTAL_NAMES = (
    *("msmq_streams", "stream_bytes", "packet_bytes", "cut_bytes", "headless_bytes", "refused_bytes"),
    *("other_bytes", "cut_packets", "hidden_bytes", "resumed_count", *STREAM_COUNTS),
)


def assert_same(frames: Sequence[Frame], cuts: Iterable[int] = (), odd: Iterable[int] = ()) -> Result:
    """Check that the parts of a capture, read one after another, give the same result as one reader."""
    parts, copies = ranges(frames, cuts, odd), DamagedCopies()
    for part in ranges(frames):
        pass_over_damaged(part, copies)
    for part in parts:
        for number in copies.passed.keys() & part.segments.frame.tolist():
            part.segments.pass_over(number, copies.passed[number])
    result = read_in_parts(parts)
    packets, reader = whole(frames)
    totals = reader.totals
    assert result.packets == packets
    ours = Totals()
    for seen in result.closed:
        ours.add_stream(seen)
    assert {name: getattr(ours, name) for name in TOTAL_NAMES} == {
        name: getattr(totals, name) for name in TOTAL_NAMES
    }
    assert Counter(
        (seen.stream.source, seen.stream.interface.number, (seen.stream.sent_bytes, seen.stream.came_bytes))
        for seen in result.closed
        if seen.is_msmq and (seen.stream.came_bytes is not None or seen.stream.ending is not Ending.OPEN)
    ) == Counter((end.source, end.interface, tuple(of)) for end, of in reader.ends.items())
    assert len({seen.stream.connection for seen in result.closed}) == totals.connections
    return result

"""The packets of a range of a capture, and what must be proved about them where it meets the range before it.

A range knows nothing about those before it. So it is read under an assumption: every connection comes in with nothing
waiting, each side continues with the byte that is due, everything has come that is acknowledged before a side's
first segment, and a packet begins where one seems to. A
`PairSummary` carries the assumptions, the bytes before the first packet, and the state of each connection at the end;
mqproto.captures.pipeline.reading.ranges.seams proves them, or has the pair read again from what is known by then.

`Reassembler` forgets what exceeds 16,384 connections and 64 MiB; here nothing is given up, because a range is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from mqproto.captures.framing import Framing
from mqproto.captures.net.direction import Stream
from mqproto.captures.net.heads import HEAD_BYTES
from mqproto.captures.net.streams import Connection, Ends, ends_of
from mqproto.captures.net.tcp import Segment
from mqproto.captures.pipeline.reading.ranges.chunks import Chunks, Piece, from_segments, joined
from mqproto.captures.pipeline.reading.ranges.cutting import Heads, Packets, Run, cut, whole_size
from mqproto.captures.pipeline.reading.ranges.openings import openings
from mqproto.captures.pipeline.reading.ranges.reassembly import Pairs, RangeSegments, Smooth, reassemble
from mqproto.captures.pipeline.source.octets import Octets
from mqproto.captures.pipeline.source.records import Data
from mqproto.captures.pipeline.source.segments import Segments
from mqproto.captures.translation import Early
from mqproto.wire.layouts.base import SIGNATURE, base_header

LEAD_LIMIT_BYTES: Final = 1 << 16
"""Bytes of a stream handed on because no packet was seen to begin before them."""
SEARCH_LIMIT_BYTES: Final = 8 << 20
"""Bytes searched for a packet inside segments: the largest packet, twice."""
CHAIN_COUNT: Final = 3
"""This many packets in a row make a beginning likely even inside a segment."""
SEARCH_LIMIT_COUNT: Final = 64
"""Number of candidates that are tried."""

_SIGNATURE: Final = SIGNATURE.to_bytes(4, "little")
_SIGNATURE_AT: Final = base_header.offset_of("signature")


class FirstSegment(NamedTuple):
    """The first segment of a pair of ends in a range: enough to tell whether it is another connection.

    segment: without its options and all but the first byte of its payload.
    """

    number: int
    interface: int
    segment: Segment


@dataclass(slots=True)
class Lead:
    """The bytes of a stream before the first packet that is seen to begin.

    pieces: its chunks; None if they are many. Then none of them begins with the head of a packet, and `chained` tells
        whether one may have a packet inside that mqproto.captures.framing finds, or guesses.
    size_bytes, missing_bytes: of all of them. snapped_bytes: those of the missing bytes that the capture cut off.
    found: a packet begins behind them; `gap_bytes` are missing right before it. With `inside` a lost reader would
        not see it: it does not begin a chunk, or its head is not in one chunk.
    """

    pieces: list[Piece] | None
    size_bytes: int = 0
    missing_bytes: int = 0
    snapped_bytes: int = 0
    found: bool = True
    gap_bytes: int = 0
    inside: bool = False
    chained: bool = False


NO_LEAD: Final = Lead([])


@dataclass(slots=True)
class StreamRead:
    """A stream as far as a range shows it.

    lead: the bytes before the first packet that is seen to begin.
    framing: its state at the end, as if it had begun in step behind the lead; None if no packet begins.
    place: its index in the streams of the range's packets; -1 if no packet begins.
    packet_count: rows of the range for this stream.
    is_steady: whether no decision depends on whether it had packets before.
    is_lossy: whether bytes were missing or skipped behind the lead.
    """

    lead: Lead
    framing: Framing | None = None
    place: int = -1
    packet_count: int = 0
    is_steady: bool = True
    is_lossy: bool = False


@dataclass(slots=True)
class ConnectionRead:
    """A connection as far as a range shows it: its state at the end, and its streams that had bytes."""

    connection: Connection
    streams: dict[Stream, StreamRead] = field(default_factory=dict)


@dataclass(slots=True)
class PairSummary:
    """All that a range knows about a pair of ends, without payload except at the edges of packets.

    first: its first segment.
    last_number: the number of the frame of its last segment.
    connections: those between the two ends, in order; all but the last are over. None if bytes wait at the end for
        earlier ones: then the range has to be read again, together with the next.
    places: the indexes of its streams in those of the range's packets.
    """

    ends: Ends
    first: FirstSegment
    last_number: int
    connections: list[ConnectionRead] | None
    places: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Flows:
    """The contents of a range: its packets, if all assumptions are right, and the summaries that state these.

    openings: how connections begin in it.
    """

    packets: Packets
    summaries: list[PairSummary]
    openings: list[Early]


class _Slice(NamedTuple):
    """The number of a stream's adjacent chunks; and whether others may come before them."""

    connection: ConnectionRead
    stream: Stream
    chunk_count: int
    is_open: bool


def read_flows(segments: Segments, data: Data, first_number: int, apart: bool = False) -> Flows:
    """Read the packets of a range.

    Args:
        data: the capture file, as for `segments`.
        first_number: the number of the range's first frame. If several files are one capture, frames are
            numbered consecutively.
    """
    part = RangeSegments(segments, data, first_number, apart)
    pairs = Pairs(segments)
    smooth = Smooth(pairs)
    parts = [from_segments(segments, data, first_number, smooth.payload_rows)]
    slices: list[_Slice] = []
    by_pair: dict[int, ConnectionRead] = {}
    summaries: list[PairSummary] = []
    for pair, (first, last) in enumerate(pairs.edge_rows.tolist()):
        outline = _outline(part, first, last)
        reads: list[ConnectionRead] = []
        summaries.append(PairSummary(*outline, reads))
        if smooth.is_smooth[pair]:
            connection = Connection(outline[1].number, outline[1].segment, assumed=True, apart=apart)
            reads.append(ConnectionRead(connection))
            by_pair[pair] = reads[0]
            continue
        for epoch in reassemble(part, pairs.rows_of(pair), None, assumed=True):
            reads.append(ConnectionRead(epoch.connection))
            for stream, chunks in epoch.chunks().items():
                is_open = len(reads) == 1 and not stream.from_start
                slices.append(_Slice(reads[-1], stream, len(chunks), is_open))
                parts.append(chunks)
    connections = {pair: read.connection for pair, read in by_pair.items()}
    smooth_slices = [
        _Slice(by_pair[pair], stream, count, not stream.from_start)
        for pair, stream, count in smooth.fill(connections)
    ]
    packets = _cut(joined(parts), smooth_slices + slices)
    for summary in summaries:
        _finish(summary)
    return Flows(packets, summaries, openings(pairs, data, first_number))


def _cut(chunks: Chunks, slices: list[_Slice]) -> Packets:
    """Return the packets of all streams; add what is known about each to its connection."""
    heads = Heads(chunks)
    runs: list[Run] = []
    reads: list[StreamRead] = []
    changed = False
    end = 0
    for read, stream, count, is_open in slices:
        first, end = end, end + count
        lead, begin = _lead(chunks, heads, first, end) if is_open else (NO_LEAD, first)
        one = read.streams[stream] = StreamRead(lead)
        if lead.found:
            changed |= lead.inside or lead.gap_bytes > 0
            one.framing, one.place = Framing(stream, is_open or stream.from_start), len(runs)
            one.is_steady = not is_open
            one.is_lossy = bool(chunks.missing[begin:end].any() or chunks.cut[begin:end].any())
            runs.append(Run(stream, one.framing, begin, end))
            reads.append(one)
    packets = cut(chunks, Heads(chunks) if changed else heads, runs)
    places, firsts, counts = np.unique(packets.stream, return_index=True, return_counts=True)
    for place, row, count in zip(places.tolist(), firsts.tolist(), counts.tolist(), strict=True):
        reads[place].packet_count = count
        # A stream that had a packet is MSMQ's on any port, and has begun.
        reads[place].is_steady |= bool(packets.framed[row]) and packets.position[row] == 0
    for one in reads:
        assert one.framing is not None
        seen = one.framing.seen
        lacks = bool(seen.cut_bytes or seen.headless_bytes or seen.refused_bytes)
        one.is_steady |= not lacks
        one.is_lossy |= lacks
    return packets


def _lead(chunks: Chunks, heads: Heads, first: int, end: int) -> tuple[Lead, int]:
    """Return what comes before a stream's first packet, and the row that this begins, after removing it there."""
    begin = int(chunks.start[first])
    row = min(int(heads.next_head[first]), end)
    found = row < end
    size_bytes = int(chunks.start[row] if found else chunks.start[end - 1] + chunks.size[end - 1]) - begin
    if size_bytes > LEAD_LIMIT_BYTES:
        inside = _search(chunks, heads, first, row)
        if inside is not None:
            row = int(np.searchsorted(chunks.start, inside, side="right")) - 1
            return _lead_inside(chunks, first, row, inside - int(chunks.start[row])), row
    limit = SEARCH_LIMIT_BYTES if found else LEAD_LIMIT_BYTES
    snapped_bytes = int(chunks.cut[first:row].sum())
    lead = Lead(
        [chunks.piece(one) for one in range(first, row)] if size_bytes <= limit else None,
        size_bytes,
        int(chunks.missing[first:row].sum()) + snapped_bytes,
        snapped_bytes,
        found,
    )
    if lead.pieces is None:
        lead.chained = any(chunks.may_begin(one) for one in range(first, row))
    if found:
        lead.gap_bytes = int(chunks.missing[row])
        chunks.missing[row] = 0
    return lead, row


def _lead_inside(chunks: Chunks, first: int, row: int, kept_bytes: int) -> Lead:
    """Return what comes before a packet that begins `kept_bytes` into a row, and cut the row there."""
    pieces = [chunks.piece(one) for one in range(first, row)]
    gap_bytes = 0
    if kept_bytes:
        piece = chunks.piece(row)
        pieces.append(piece._replace(chunk=piece.chunk._replace(data=piece.chunk.data[:kept_bytes])))
        chunks.shorten(row, kept_bytes)
    else:
        gap_bytes = int(chunks.missing[row])
    chunks.missing[row] = 0
    return Lead(pieces, gap_bytes=gap_bytes, inside=True)


def _search(chunks: Chunks, heads: Heads, first: int, end: int) -> int | None:
    """Return where in the data a packet seems to begin inside a chunk: others follow it."""
    begin = int(chunks.start[first])
    is_open = first + 1 < end and not chunks.cut[first]
    last = max(first, min(int(heads.next_gap[first + 1]), end) - 1) if is_open else first
    stop = int(chunks.start[last] + chunks.size[last])
    data = chunks.data[begin : min(stop, begin + SEARCH_LIMIT_BYTES)].tobytes()
    at = _SIGNATURE_AT - 1
    for _ in range(SEARCH_LIMIT_COUNT):
        at = data.find(_SIGNATURE, at + 1)
        if at < 0:
            break
        head = begin + at - _SIGNATURE_AT
        if _is_chain(chunks.data[:stop], head):
            return head
    return None


def _is_chain(data: Octets, at: int) -> bool:
    """Whether a packet begins here that others follow, at least one, as far as the data goes."""
    for place in range(CHAIN_COUNT):
        if place >= 2 and at + HEAD_BYTES > len(data):
            break
        size = whole_size(data, at)
        if not size:
            return False
        at += size
    return True


def _finish(summary: PairSummary) -> None:
    """Reduce a summary to what is worth handing on."""
    assert summary.connections is not None
    summary.places = [
        one.place for read in summary.connections for one in read.streams.values() if one.place >= 0
    ]
    for read in summary.connections:
        read.connection.forget()
    if summary.connections[-1].connection.waits:
        summary.connections = None


def _outline(part: RangeSegments, first: int, last: int) -> tuple[Ends, FirstSegment, int]:
    """Return the ends of a pair's segments, the first segment, and the number of the last one's frame."""
    segments = part.segments
    segment = Segment(
        segments.ends[segments.source[first]],
        segments.ends[segments.destination[first]],
        int(segments.sequence[first]),
        0,
        int(segments.flags[first]),
        0,
        b"",
        b"\0" if segments.size[first] else b"",
    )
    number = part.first_number + int(segments.frame[first])
    return (
        ends_of(segment.source, segment.destination),
        FirstSegment(number, int(segments.interface[first]), segment),
        part.first_number + int(segments.frame[last]),
    )

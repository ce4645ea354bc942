"""The packets of a range of a capture, and what has to be proved of them where it meets the range before it.

A range knows nothing of those before it. So it is read under an assumption: that every connection comes in with nothing
waiting, that each side goes on with the byte that is due, and that a packet begins where one seems to. A
`PairSummary` carries what was assumed, the bytes before the first packet, and how each connection stands at the end;
captures.pipeline.seams proves it, or has the pair read again from what is known by then.

Pairs of ends whose segments simply follow one another are read all at once, without a look at each segment. All
others go through captures.streams, segment by segment, so that there is one implementation of the rules. `Reassembler`
forgets what 16,384 connections and 64 MiB exceed; here nothing is given up, since a range is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from captures.direction import Arrival, Ending, Stream
from captures.frame import Frame
from captures.framing import Framing
from captures.pipeline.chunks import Chunks, Piece, from_pieces, from_segments, joined
from captures.pipeline.cutting import WINDOW_BYTES, Heads, Packets, Run, cut, sizes_in
from captures.pipeline.records import Data, Integers
from captures.pipeline.segments import Segments
from captures.streams import Connection, Ends, ends_of
from captures.tcp import FIN, RST, SYN, Segment
from mqproto.wire.base import SIGNATURE, base_header

LEAD_LIMIT_BYTES: Final = 1 << 16
"""So much of a stream is handed on because no packet was seen to begin before it."""
SEARCH_LIMIT_BYTES: Final = 8 << 20
"""So far a packet is searched for inside segments: the largest one, and as much again."""
CHAIN_COUNT: Final = 3
"""So many packets in a row make a beginning likely that no segment begins with."""

SEARCH_LIMIT_COUNT: Final = 64
"""So often something that looks like one is tried."""

_SIGNATURE: Final = SIGNATURE.to_bytes(4, "little")
_SIGNATURE_AT: Final = base_header.offset_of("signature")


class FirstSegment(NamedTuple):
    """What a pair of ends begins with in a range: enough to say whether it is another connection.

    segment: without its options and all but the first byte of its payload.
    """

    number: int
    interface: int
    segment: Segment


@dataclass(slots=True)
class Lead:
    """What a stream brings before the first packet that is seen to begin.

    pieces: its chunks; None if they are many. Then none of them begins with the head of a packet.
    size_bytes, missing_bytes: of all of them.
    found: a packet begins behind them; `gap_bytes` are missing right before it. With `inside` it does so where nobody
        sees it who is lost: not with a chunk, or its head is not in one chunk.
    """

    pieces: list[Piece] | None
    size_bytes: int = 0
    missing_bytes: int = 0
    found: bool = True
    gap_bytes: int = 0
    inside: bool = False


NO_LEAD: Final = Lead([])


@dataclass(slots=True)
class StreamRead:
    """A stream as far as a range shows it.

    lead: what comes before the first packet that is seen to begin.
    framing: how it stands at the end, as if it had begun in step behind the lead; None if no packet begins.
    place: its index in the streams of the range's packets; -1 if no packet begins.
    packet_count: rows of the range that are of this stream.
    is_steady: whether nothing was decided that depends on whether it had packets before.
    """

    lead: Lead
    framing: Framing | None = None
    place: int = -1
    packet_count: int = 0
    is_steady: bool = True


@dataclass(slots=True)
class ConnectionRead:
    """A connection as far as a range shows it: how it stands at the end, and its streams that had bytes."""

    connection: Connection
    streams: dict[Stream, StreamRead] = field(default_factory=dict)


@dataclass(slots=True)
class PairSummary:
    """All that a range knows of a pair of ends, without payload but what a packet begins or ends with.

    first: its first segment.
    last_number: the number of the frame of its last segment.
    connections: those between the two ends, in order; all but the last are over. None if at the end bytes wait for
        those before them: then the range has to be read again, together with the next.
    places: the indexes of its streams in those of the range's packets.
    """

    ends: Ends
    first: FirstSegment
    last_number: int
    connections: list[ConnectionRead] | None
    places: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Flows:
    """What a range holds: its packets, if all that was assumed is right, and the summaries that say what that was."""

    packets: Packets
    summaries: list[PairSummary]


class Epoch(NamedTuple):
    """A connection in the segments of a pair, and the chunks of its streams."""

    connection: Connection
    pieces: dict[Stream, list[Piece]]


class _Slice(NamedTuple):
    """The rows of a stream's chunks; whether others may come before them."""

    connection: ConnectionRead
    stream: Stream
    first: int
    end: int
    is_open: bool


def read_flows(segments: Segments, data: Data, first_number: int) -> Flows:
    """The packets of a range.

    Args:
        data: the capture file, as for `segments`.
        first_number: the number of the range's first frame. Of several files that are one capture, frames are
            numbered through.
    """
    pairs = _Pairs(segments)
    smooth = _Smooth(pairs)
    summaries, slices = smooth.summaries(first_number)
    parts = [from_segments(segments, data, first_number, smooth.payload_rows)]
    at = len(parts[0])
    for pair in np.flatnonzero(~smooth.is_smooth).tolist():
        rows = pairs.rows_of(pair)
        epochs = reassemble(segments, data, first_number, rows, None)
        reads = [ConnectionRead(epoch.connection) for epoch in epochs]
        summaries.append(PairSummary(*_outline(segments, first_number, int(rows[0]), int(rows[-1])), reads))
        for epoch, read in zip(epochs, reads, strict=True):
            for stream, pieces in epoch.pieces.items():
                parts.append(from_pieces(pieces))
                is_open = read is reads[0] and not stream.from_start
                slices.append(_Slice(read, stream, at, at + len(pieces), is_open))
                at += len(pieces)
    packets = _cut(joined(parts), slices)
    for summary in summaries:
        _finish(summary)
    return Flows(packets, summaries)


def reassemble(
    segments: Segments, data: Data, first_number: int, rows: Integers, connection: Connection | None
) -> list[Epoch]:
    """The chunks of one pair's streams, by captures.streams.

    Args:
        rows: the pair's.
        connection: what is known of it before these segments.
    """
    epochs = [] if connection is None else [Epoch(connection, {})]
    ends, interfaces = segments.ends, segments.interfaces
    columns = (
        segments.source,
        segments.destination,
        segments.sequence,
        segments.acknowledgment,
        segments.flags,
        segments.interface,
        segments.frame,
        segments.time_ns,
        segments.offset,
    )
    for row, source, destination, sequence, acknowledgment, flags, place, index, time_ns, offset in zip(
        rows.tolist(), *(column[rows].tolist() for column in columns), strict=True
    ):
        number = first_number + index
        payload = segments.payload(data, row)
        segment = Segment(ends[source], ends[destination], sequence, acknowledgment, flags, 0, b"", payload)
        if not epochs or epochs[-1].connection.is_over_for(place, segment):
            if epochs:
                settle(epochs[-1], number)
            epochs.append(Epoch(Connection(number, segment), {}))
        epoch = epochs[-1]
        frame = Frame(time_ns, b"", interface=interfaces[place], number=number, offset=offset)
        _add(epoch, epoch.connection.feed(frame, segment), number, 0)
    return epochs


def settle(epoch: Epoch, readable: int) -> None:
    """A connection is over with a frame: what waits is read before what the frame itself brings."""
    arrivals = epoch.connection.settle()
    _add(epoch, arrivals, readable, -len(arrivals))


def _add(epoch: Epoch, arrivals: Iterable[Arrival], readable: int, order: int) -> None:
    """Keep what can be read with a frame, in this order."""
    for place, (stream, chunk) in enumerate(arrivals, order):
        if chunk is not None:
            epoch.pieces.setdefault(stream, []).append(Piece(readable, place, chunk))


def _cut(chunks: Chunks, slices: list[_Slice]) -> Packets:
    """The packets of all streams; what is known of each is added to its connection."""
    heads = Heads(chunks)
    runs: list[Run] = []
    reads: list[StreamRead] = []
    changed = False
    for read, stream, first, end, is_open in slices:
        lead, begin = _lead(chunks, heads, first, end) if is_open else (NO_LEAD, first)
        one = read.streams[stream] = StreamRead(lead)
        if lead.found:
            changed |= lead.inside or lead.gap_bytes > 0
            one.framing, one.place = Framing(stream, is_open or stream.from_start), len(runs)
            one.is_steady = not is_open
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
        one.is_steady |= not (seen.cut_bytes or seen.headless_bytes or seen.refused_bytes)
    return packets


def _lead(chunks: Chunks, heads: Heads, first: int, end: int) -> tuple[Lead, int]:
    """What comes before a stream's first packet, and the row that this begins; that row is cut free of it."""
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
    lead = Lead(
        [chunks.piece(one) for one in range(first, row)] if size_bytes <= limit else None,
        size_bytes,
        int(chunks.missing[first:row].sum()),
        found,
    )
    if found:
        lead.gap_bytes = int(chunks.missing[row])
        chunks.missing[row] = 0
    return lead, row


def _lead_inside(chunks: Chunks, first: int, row: int, kept_bytes: int) -> Lead:
    """What comes before a packet that begins so many bytes into a row, which is cut there."""
    pieces = [chunks.piece(one) for one in range(first, row)]
    gap_bytes = 0
    if kept_bytes:
        piece = chunks.piece(row)
        pieces.append(piece._replace(chunk=piece.chunk._replace(data=piece.chunk.data[:kept_bytes])))
        chunks.start[row] += kept_bytes
        chunks.size[row] -= kept_bytes
    else:
        gap_bytes = int(chunks.missing[row])
    chunks.missing[row] = 0
    return Lead(pieces, gap_bytes=gap_bytes, inside=True)


def _search(chunks: Chunks, heads: Heads, first: int, end: int) -> int | None:
    """Where in the data a packet seems to begin that no chunk begins with: others follow it."""
    begin = int(chunks.start[first])
    last = min(int(heads.next_gap[first + 1]) if first + 1 < end else end, end) - 1
    stop = min(int(chunks.start[last] + chunks.size[last]), begin + SEARCH_LIMIT_BYTES)
    data = chunks.data[begin:stop].tobytes()
    at = -1
    for _ in range(SEARCH_LIMIT_COUNT):
        at = data.find(_SIGNATURE, at + 1)
        if at < 0:
            break
        head = begin + at - _SIGNATURE_AT
        if (
            at >= _SIGNATURE_AT
            and len(sizes_in(chunks.data[head : min(stop, head + WINDOW_BYTES)])) >= CHAIN_COUNT
        ):
            return head
    return None


def _finish(summary: PairSummary) -> None:
    """Leave of a summary what is worth handing on."""
    assert summary.connections is not None
    summary.places = [
        one.place for read in summary.connections for one in read.streams.values() if one.place >= 0
    ]
    for read in summary.connections:
        read.connection.forget()
    if summary.connections[-1].connection.waits:
        summary.connections = None


def _outline(segments: Segments, first_number: int, first: int, last: int) -> tuple[Ends, FirstSegment, int]:
    """Between whom a pair's segments crossed, the first of them, and the number of the last one's frame."""
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
    number = first_number + int(segments.frame[first])
    return (
        ends_of(segment.source, segment.destination),
        FirstSegment(number, int(segments.interface[first]), segment),
        first_number + int(segments.frame[last]),
    )


class _Pairs:
    """The rows of segments by pair of ends, and by direction within."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        source, destination = segments.source.astype(np.int64), segments.destination.astype(np.int64)
        low, high = np.minimum(source, destination), np.maximum(source, destination)
        keys, self.pair = np.unique(low * len(segments.ends) + high, return_inverse=True)
        self.count = len(keys)
        self.direction = 2 * self.pair + (source > destination)
        self._by_pair = np.argsort(self.pair, kind="stable")
        self._edges = np.searchsorted(self.pair[self._by_pair], np.arange(self.count + 1))

    def rows_of(self, pair: int) -> Integers:
        """Those of one pair, in the order of the capture."""
        return self._by_pair[self._edges[pair] : self._edges[pair + 1]]

    @property
    def edge_rows(self) -> npt.NDArray[np.int64]:
        """The first and the last of each pair."""
        return np.stack([self._by_pair[self._edges[:-1]], self._by_pair[self._edges[1:] - 1]], axis=1)


class _Smooth:
    """The pairs whose segments simply follow one another, at one interface: no hole, no repetition, no overtaking.

    A SYN is the first of its direction, and a FIN stands where the bytes end that came before it. RST and bare
    acknowledgments may stand anywhere: they say nothing of the bytes.
    """

    def __init__(self, pairs: _Pairs) -> None:
        self._pairs = pairs
        segments = pairs.segments
        by = np.argsort(pairs.direction, kind="stable")
        direction, flags, size = pairs.direction[by], segments.flags[by], segments.size[by]
        sequence, syn, fin = segments.sequence[by], flags & SYN != 0, flags & FIN != 0
        is_first = np.ones(len(by), dtype=np.bool_)
        is_first[1:] = direction[1:] != direction[:-1]
        firsts = np.flatnonzero(is_first)
        place = np.cumsum(is_first) - 1
        before = np.cumsum(size) - size
        before -= before[firsts][place]
        start = (sequence + syn)[firsts]
        due = start[place] + before

        odd = ((size > 0) | fin) & ((sequence - due) % 2**32 != 0)
        odd |= syn & (~is_first | (size > 0) | (flags & (FIN | RST) != 0))
        pair = pairs.pair[by]
        edges = pairs.edge_rows
        odd |= segments.interface[by] != segments.interface[edges[:, 0]][pair]
        odd |= segments.source[by] == segments.destination[by]
        self.is_smooth = np.bincount(pair, odd, pairs.count) == 0

        # Where an index repeats, the last value stays.
        self._finish = np.full(len(firsts), -1, dtype=np.int64)
        self._finish[place[fin]] = (due + size)[fin]
        self._last_flags = np.zeros(len(firsts), dtype=np.uint8)
        ends = flags & (FIN | RST) != 0
        self._last_flags[place[ends]] = flags[ends]
        self._start = start
        self._from_start = syn[firsts]
        self._first_row = by[firsts]
        self._size = np.bincount(place, size, len(firsts)).astype(np.int64)
        taken = (size > 0) & self.is_smooth[pair]
        self._count = np.bincount(place, taken, len(firsts)).astype(np.int64)
        self.payload_rows = by[taken]

    def summaries(self, first_number: int) -> tuple[list[PairSummary], list[_Slice]]:
        """Of each of these pairs; and where its payload stands in `payload_rows`."""
        segments = self._pairs.segments
        summaries: list[PairSummary] = []
        by_pair: dict[int, ConnectionRead] = {}
        for pair, (first, last) in enumerate(self._pairs.edge_rows.tolist()):
            if self.is_smooth[pair]:
                outline = _outline(segments, first_number, first, last)
                read = by_pair[pair] = ConnectionRead(Connection(outline[1].number, outline[1].segment))
                summaries.append(PairSummary(*outline, [read]))
        slices: list[_Slice] = []
        at = 0
        columns = zip(
            self._first_row.tolist(),
            self._start.tolist(),
            self._size.tolist(),
            self._count.tolist(),
            self._from_start.tolist(),
            self._finish.tolist(),
            self._last_flags.tolist(),
            strict=True,
        )
        for row, start, size_bytes, count, from_start, finish, flags in columns:
            if (found := by_pair.get(int(self._pairs.pair[row]))) is None:
                continue
            direction, _ = found.connection.directions(
                segments.interfaces[int(segments.interface[row])],
                segments.ends[segments.source[row]],
                segments.ends[segments.destination[row]],
            )
            # A segment with both counts as reset, as it does where they are taken one by one.
            ending = Ending.RESET if flags & RST else Ending.FINISHED if flags & FIN else Ending.OPEN
            direction.take_run(start, size_bytes, from_start, finish if finish >= 0 else None, ending)
            if count:
                slices.append(_Slice(found, direction.stream, at, at + count, not from_start))
                at += count
        return summaries, slices

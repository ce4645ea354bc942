"""The connections between pairs of ends, each read from its first byte to its last, in whatever order its segments
come.

Segments come in parts, in the order of the capture. Where nothing is odd, all pairs are read at once. Everything else
goes through the exact classes, and so does a pair that is known from an earlier part.

`Reassembler` discards data beyond 16,384 connections and 64 MiB. Nothing is discarded here, but from part to part only
the last frames are kept to recognize repetitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mqproto.captures.framing import Framing, StreamCount
from mqproto.captures.net.direction import Stream
from mqproto.captures.net.streams import Connection, Ends, ends_of
from mqproto.captures.net.tcp import Segment
from mqproto.captures.pipeline.reading.packets.chunks import Chunks, Piece, from_pieces, from_segments, joined
from mqproto.captures.pipeline.reading.packets.cutting import Heads, Packets, Run, cut
from mqproto.captures.pipeline.reading.packets.reassembly import (
    Epoch,
    Pairs,
    SegmentPart,
    Smooth,
    decided,
    give_way,
    reassemble,
)

KEPT_COUNT: Final = 16_384
"""The number of last frames that are kept from part to part."""
END_OF_CAPTURE: Final = 1 << 62
"""The base of `readable` for packets that only the end of the capture reveals.

The number of the last frame is added to it.
"""


@dataclass(slots=True)
class OpenPair:
    """A pair of ends as far as it has been read: its connections, and their streams that have had bytes.

    connection: the one that took the latest segment.
    rivals: the other open ones, the latest last.
    last_number, last_ns: the number and the time of the pair's last frame.
    """

    ends: Ends
    connection: Connection
    framings: dict[Stream, Framing] = field(default_factory=dict)
    last_number: int = 0
    last_ns: int = 0
    rivals: list[Connection] = field(default_factory=list)

    @property
    def known(self) -> list[Connection]:
        """All open connections, the latest last."""
        return [*self.rivals, self.connection]

    def framing(self, stream: Stream) -> Framing:
        """Return the framing of a stream; a new one if the stream has had no bytes so far."""
        if stream not in self.framings:
            self.framings[stream] = Framing(stream, stream.from_start)
        return self.framings[stream]

    def close(self, connection: Connection) -> Iterator[StreamCount]:
        """End a connection that has no waiting segments; yield the counts of its streams."""
        for stream in connection.streams:
            yield self.framing(stream).end()
            del self.framings[stream]


class Flows:
    """Reads pairs of ends.

    Args:
        pairs: open pairs before the first part.

    Attributes:
        pairs: the open pairs.
        closed: the streams that ended since this list was emptied, with all their counts.
    """

    def __init__(self, pairs: Iterable[OpenPair] = ()) -> None:
        self.pairs = {pair.ends: pair for pair in pairs}
        self.closed: list[StreamCount] = []

    def read(self, part: SegmentPart) -> Packets:
        """Return the packets that the next segments complete."""
        segments = part.segments
        pairs = Pairs(segments)
        edges = pairs.edge_rows
        every = [_ends(part, row) for row in edges[:, 0].tolist()]
        smooth = Smooth(pairs, np.array([ends in self.pairs for ends in every], dtype=np.bool_))
        cutting = _Cutting()
        fresh: dict[int, OpenPair] = {}
        for pair in np.flatnonzero(smooth.is_smooth).tolist():
            number, segment = _first(part, int(edges[pair, 0]))
            connection = Connection(number, segment, apart=part.apart)
            self.pairs[every[pair]] = fresh[pair] = OpenPair(every[pair], connection)
        chunks = from_segments(segments, part.data, smooth.payload_rows)
        connections = {number: pair.connection for number, pair in fresh.items()}
        runs = smooth.fill(part, connections)
        cutting.add_runs(chunks, [(fresh[number], stream, count) for number, stream, count in runs])
        for pair in np.flatnonzero(~smooth.is_smooth).tolist():
            known = self.pairs.get(every[pair])
            connections_before = [] if known is None else known.known
            self._take(every[pair], reassemble(part, pairs.rows_of(pair), connections_before), cutting)
        times = segments.time_ns[pairs.by_pair]
        last_ns = np.maximum.reduceat(times, pairs.first_places) if len(times) else times
        numbers = segments.frame[edges[:, 1]]
        for ends, number, latest_ns in zip(every, numbers.tolist(), last_ns.tolist(), strict=True):
            pair_now = self.pairs[ends]
            pair_now.last_number, pair_now.last_ns = number, max(pair_now.last_ns, latest_ns)
        self.forget(KEPT_COUNT)
        return self._cut(cutting)

    def forget(self, kept_count: int) -> None:
        """Keep only the last `kept_count` frames of the capture for recognizing repetitions."""
        last = max((pair.last_number for pair in self.pairs.values()), default=0)
        for pair in self.pairs.values():
            for connection in pair.known:
                connection.forget(last - kept_count)

    def decide(self) -> Packets:
        """Read the waiting segments now, as if no more frames came."""
        cutting = _Cutting()
        for ends, pair in list(self.pairs.items()):
            if any(connection.waiting for connection in pair.known):
                self._take(ends, decided(pair.known), cutting)
        return self._cut(cutting)

    def finish(self, silent_ns: int | None = None) -> Packets:
        """End connections, and read the bytes that still wait for earlier ones.

        Args:
            silent_ns: if given, only pairs that have been silent since this time are ended.
        """
        cutting = _Cutting()
        for ends, pair in list(self.pairs.items()):
            if silent_ns is None or pair.last_ns <= silent_ns:
                leaving = [(Epoch(connection), connection.settle()) for connection in pair.known]
                give_way(leaving, END_OF_CAPTURE + pair.last_number)
                for epoch, _ in leaving:
                    cutting.add(pair, epoch)
                    cutting.over.append((pair, epoch.connection))
                del self.pairs[ends]
        return self._cut(cutting)

    def _take(self, ends: Ends, epochs: Sequence[Epoch], cutting: _Cutting) -> None:
        """Take connections of a pair; some may continue known ones."""
        pair = self.pairs.setdefault(ends, OpenPair(ends, epochs[-1].connection))
        *pair.rivals, pair.connection = (epoch.connection for epoch in epochs if not epoch.is_over)
        for epoch in epochs:
            cutting.add(pair, epoch)
            if epoch.is_over:
                cutting.over.append((pair, epoch.connection))

    def _cut(self, cutting: _Cutting) -> Packets:
        packets = cutting.packets()
        self.closed += (count for pair, connection in cutting.over for count in pair.close(connection))
        return packets


class _Cutting:
    """Chunks to be cut into packets, all at once.

    over: the connections that end after these chunks, each with its pair.
    """

    def __init__(self) -> None:
        self.over: list[tuple[OpenPair, Connection]] = []
        self._parts: list[Chunks] = []
        self._runs: list[Run] = []
        self._end = 0

    def add_runs(self, chunks: Chunks, runs: Iterable[tuple[OpenPair, Stream, int]]) -> None:
        """Add adjacent chunks of new streams; each run has its pair, its stream and its number of chunks."""
        self._parts.append(chunks)
        for pair, stream, count in runs:
            self._add(stream, pair.framing(stream), count)

    def add(self, pair: OpenPair, epoch: Epoch) -> None:
        """Add the chunks of a connection's streams; the beginning of an unfinished packet comes before its stream's
        chunks.
        """
        chunks = epoch.chunks()
        for stream, some in chunks.items():
            framing = pair.framing(stream)
            other = stream.opposite
            if other in pair.framings and other not in chunks and pair.framings[other].untold:
                some.ahead[:] = True
            begun = framing.begun
            if begun is not None:
                self._parts.append(from_pieces([Piece(0, 0, begun)]))
            self._parts.append(some)
            self._add(stream, framing, len(some) + (begun is not None), begun=begun is not None)

    def packets(self) -> Packets:
        """Return all packets."""
        table = joined(self._parts)
        return cut(table, Heads(table), self._runs)

    def _add(self, stream: Stream, framing: Framing, count: int, *, begun: bool = False) -> None:
        first, self._end = self._end, self._end + count
        self._runs.append(Run(stream, framing, first, self._end, begun))


def _ends(part: SegmentPart, row: int) -> Ends:
    segments = part.segments
    return ends_of(segments.ends[segments.source[row]], segments.ends[segments.destination[row]])


def _first(part: SegmentPart, row: int) -> tuple[int, Segment]:
    """Return the number of a connection's first frame, and that frame's segment.

    The segment has only the fields that are needed to create a Connection.
    """
    segments = part.segments
    source, destination = segments.ends[segments.source[row]], segments.ends[segments.destination[row]]
    segment = Segment(
        source, destination, int(segments.sequence[row]), 0, int(segments.flags[row]), 0, b"", b""
    )
    return int(segments.frame[row]), segment

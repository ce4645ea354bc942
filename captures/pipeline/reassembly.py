"""The segments of a range, put in order: the chunks of each stream.

Pairs of ends whose segments simply follow one another are taken all at once (`Smooth`). All others go through
captures.net.streams (`reassemble`), so that there is one implementation of the rules; but where many segments in a row
bring just what is due, they are taken at once as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from captures.files.frame import Frame
from captures.net.direction import Arrival, Direction, Ending, Stream
from captures.net.streams import Connection
from captures.net.tcp import FIN, RST, SYN, Segment
from captures.pipeline.chunks import Chunks, Piece, from_pieces, from_segments, joined
from captures.pipeline.records import Data, Integers
from captures.pipeline.segments import Segments

RUN_COUNT: Final = 32
"""How many segments have to follow one another to be worth taking at once."""


class RangeSegments(NamedTuple):
    """The segments of a range, the file that their payloads stand in, and the number of the range's first frame.

    Of several files that are one capture, frames are numbered through.
    """

    segments: Segments
    data: Data
    first_number: int


class Epoch:
    """A connection in the segments of a pair, and the chunks of its streams."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._parts: dict[Stream, list[Chunks | list[Piece]]] = {}

    def add(self, stream: Stream, piece: Piece) -> None:
        """The next chunk of a stream."""
        parts = self._parts.setdefault(stream, [])
        if parts and isinstance(parts[-1], list):
            parts[-1].append(piece)
        else:
            parts.append([piece])

    def add_run(self, stream: Stream, chunks: Chunks) -> None:
        """The next chunks of a stream."""
        self._parts.setdefault(stream, []).append(chunks)

    def add_arrivals(self, arrivals: Iterable[Arrival], readable: int, order: int) -> None:
        """What can be read with a frame, in this order."""
        for place, (stream, chunk) in enumerate(arrivals, order):
            if chunk is not None:
                self.add(stream, Piece(readable, place, chunk))

    def settle(self, readable: int) -> None:
        """The connection is over with a frame: what waits is read before what the frame itself brings."""
        arrivals = self.connection.settle()
        self.add_arrivals(arrivals, readable, -len(arrivals))

    def chunks(self) -> dict[Stream, Chunks]:
        """All chunks of each stream that has any."""
        return {
            stream: joined(from_pieces(part) if isinstance(part, list) else part for part in parts)
            for stream, parts in self._parts.items()
        }


def reassemble(part: RangeSegments, rows: Integers, connection: Connection | None) -> list[Epoch]:
    """The connections of one pair, and their chunks.

    Args:
        rows: the pair's.
        connection: what is known of it before these segments.
    """
    segments, data, first_number = part
    epochs = [] if connection is None else [Epoch(connection)]
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
    table = list(zip(*(column[rows].tolist() for column in columns), strict=True))
    run_ends = _run_ends(segments, rows).tolist()
    at = retry_at = 0
    patience = RUN_COUNT
    while at < len(table):
        end = run_ends[at]
        if end - at >= RUN_COUNT and at >= retry_at and epochs and not epochs[-1].connection.waits:
            if _take_run(part, rows[at:end], epochs[-1]):
                at, patience = end, RUN_COUNT
                continue
            # What is repeated at length follows itself, and not what is due.
            retry_at, patience = at + patience, 2 * patience

        source, destination, sequence, acknowledgment, flags, place, index, time_ns, offset = table[at]
        number = first_number + index
        payload = segments.payload(data, int(rows[at]))
        segment = Segment(ends[source], ends[destination], sequence, acknowledgment, flags, 0, b"", payload)
        if not epochs or epochs[-1].connection.is_over_for(place, segment):
            if epochs:
                epochs[-1].settle(number)
            epochs.append(Epoch(Connection(number, segment)))
        frame = Frame(time_ns, b"", interface=interfaces[place], number=number, offset=offset)
        epochs[-1].add_arrivals(epochs[-1].connection.feed(frame, segment), number, 0)
        at += 1
    return epochs


def _run_ends(segments: Segments, rows: Integers) -> Integers:
    """For each row the first from it on that does not simply follow the one before it in its direction."""
    size, flags, sequence = segments.size[rows], segments.flags[rows], segments.sequence[rows]
    follows = flags & (SYN | FIN | RST) == 0
    direction = segments.interface[rows].astype(np.int64) * len(segments.ends) + segments.source[rows]
    filled = np.flatnonzero(size > 0)
    by = filled[np.argsort(direction[filled], kind="stable")]
    due = np.full(len(by), -1, dtype=np.int64)
    same = direction[by[1:]] == direction[by[:-1]]
    due[1:] = np.where(same, (sequence[by[:-1]] + size[by[:-1]]) % 2**32, -1)
    follows[by] &= sequence[by] == due
    places = np.where(follows, len(rows), np.arange(len(rows)))
    ends: Integers = np.minimum.accumulate(places[::-1])[::-1]
    return ends


def _take_run(part: RangeSegments, rows: Integers, epoch: Epoch) -> bool:
    """Take segments that follow one another, if they follow what has come; nothing waits."""
    segments, data, first_number = part
    interface, source = segments.interface[rows], segments.source[rows]
    taken: list[tuple[Direction, Integers]] = []
    for key in np.unique(interface.astype(np.int64) * len(segments.ends) + source).tolist():
        number, place = divmod(key, len(segments.ends))
        direction = epoch.connection.direction(number, segments.ends[place])
        some = rows[(interface == number) & (source == place)]
        some = some[segments.size[some] > 0]
        if direction is None or not direction.goes_on(int(segments.sequence[some[0]]) if len(some) else None):
            return False
        if len(some):
            taken.append((direction, some))
    for direction, some in taken:
        sizes = segments.size[some].tolist()
        direction.take_more(sizes, partial(_payload_at, part, some))
        epoch.add_run(direction.stream, from_segments(segments, data, first_number, some))
    return True


def _payload_at(part: RangeSegments, rows: Integers, place: int) -> bytes:
    return part.segments.payload(part.data, int(rows[place]))


class Pairs:
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


class Smooth:
    """The pairs whose segments simply follow one another, at one interface: no hole, no repetition, no overtaking.

    A SYN is the first of its direction, and a FIN stands where the bytes end that came before it. RST and bare
    acknowledgments may stand anywhere: they say nothing of the bytes.
    """

    def __init__(self, pairs: Pairs) -> None:
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

    def fill(self, connections: Mapping[int, Connection]) -> list[tuple[int, Stream, int]]:
        """Let connections take what they had: those of all these pairs, by their index, and new.

        Returns:
            A pair, a stream and the number of its chunks: as they follow one another in `payload_rows`.
        """
        segments = self._pairs.segments
        taken: list[tuple[int, Stream, int]] = []
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
            pair = int(self._pairs.pair[row])
            if pair not in connections:
                continue
            direction, _ = connections[pair].directions(
                segments.interfaces[int(segments.interface[row])],
                segments.ends[segments.source[row]],
                segments.ends[segments.destination[row]],
            )
            # A segment with both counts as reset, as it does where they are taken one by one.
            ending = Ending.RESET if flags & RST else Ending.FINISHED if flags & FIN else Ending.OPEN
            direction.take_run(start, size_bytes, from_start, finish if finish >= 0 else None, ending)
            if count:
                taken.append((pair, direction.stream, count))
        return taken

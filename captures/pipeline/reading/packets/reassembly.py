"""Puts segments in order, and so makes the chunks of each stream.

Pairs of ends whose segments simply follow one another, and acknowledge only seen bytes, are taken all at once
(`Smooth`). All others go through mqproto.captures.net.streams (`reassemble`), so that the rules are implemented only
once. But if many segments in a row bring exactly the bytes that are due, and wait for nothing, they are taken at once,
too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.direction import Arrival, Ending, Stream
from mqproto.captures.net.recent import AHEAD_COUNT, JUMP_LIMIT_BYTES, Caught
from mqproto.captures.net.sender import Lag, Sender
from mqproto.captures.net.streams import Connection, beginning_in, choose
from mqproto.captures.net.tcp import ACK, FIN, RST, SYN, Segment
from mqproto.captures.pipeline.reading.packets.chunks import Chunks, Piece, from_pieces, from_segments, joined
from mqproto.captures.pipeline.source.records import Data, Integers
from mqproto.captures.pipeline.source.segments import Segments

RUN_COUNT: Final = 32
"""The number of segments that must follow one another to be worth taking at once."""


class SegmentPart(NamedTuple):
    """Some segments of a capture, with the numbers of their frames, and the bytes that contain the segments.

    apart: whether interfaces that are read as one may each have captured one direction of their connections.
    """

    segments: Segments
    data: Data
    apart: bool = False

    @property
    def last_number(self) -> int:
        """The number of the last frame."""
        return int(self.segments.frame[-1])


class Epoch:
    """A connection within the segments of a pair, and the chunks of its streams.

    is_over: whether another connection has taken its place.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_over = False
        self._fed = (0, 0)  # the last frame, and how much became readable with it
        self._parts: dict[Stream, list[Chunks | list[Piece]]] = {}

    def add(self, stream: Stream, piece: Piece) -> None:
        """Add the next chunk of a stream."""
        parts = self._parts.setdefault(stream, [])
        if parts and isinstance(parts[-1], list):
            parts[-1].append(piece)
        else:
            parts.append([piece])

    def add_run(self, stream: Stream, chunks: Chunks) -> None:
        """Add the next chunks of a stream."""
        self._parts.setdefault(stream, []).append(chunks)

    def feed(self, caught: Caught, readable: int) -> None:
        """Take a segment; if a frame makes several chunks readable, they come in the order of their segments."""
        order = self._fed[1] if self._fed[0] == readable else 0
        arrivals = self.connection.feed(*caught)
        self.add_arrivals(arrivals, readable, order)
        self._fed = readable, order + len(arrivals)

    def add_arrivals(self, arrivals: Iterable[Arrival], readable: int, order: int) -> None:
        """Add chunks that became readable with a frame."""
        for place, (stream, chunk) in enumerate(arrivals, order):
            if chunk is not None:
                self.add(stream, Piece(readable, place, chunk))

    def chunks(self) -> dict[Stream, Chunks]:
        """Return all chunks of each stream that has any."""
        return {
            stream: joined(from_pieces(part) if isinstance(part, list) else part for part in parts)
            for stream, parts in self._parts.items()
        }


def give_way(leaving: Sequence[tuple[Epoch, list[Arrival]]], readable: int) -> None:
    """Add the chunks that waited in connections.

    They are read before the content of the frame that ends the wait.
    """
    order = -sum(len(arrivals) for _, arrivals in leaving)
    for epoch, arrivals in leaving:
        epoch.add_arrivals(arrivals, readable, order)
        order += len(arrivals)


def reassemble(part: SegmentPart, rows: Integers, known: Sequence[Connection]) -> list[Epoch]:
    """Return the connections of one pair, and their chunks; those that are over come first.

    Args:
        rows: the rows of the pair.
        known: the pair's open connections before these segments, the latest last.
    """
    segments, data, apart = part
    waiting, passed, epochs = _resumed(known)
    passed |= {int(segments.frame[row]): whole for row, whole in segments.passed.items()}
    over: list[Epoch] = []
    ends, interfaces = segments.ends, segments.interfaces
    columns = _columns(segments)
    run_ends = _run_ends(segments, rows).tolist()
    at, retry_at, patience = 0, 0, RUN_COUNT

    def caught(at: int) -> Caught:
        row = int(rows[at])
        source, destination, sequence, acknowledgment, flags, place, number, time_ns, offset, cut, *raw = (
            column.item(row) for column in columns
        )  # The rest is about the frame: its start, its size, and how much of it is missing.
        payload, one, other = segments.payload(data, row), ends[source], ends[destination]
        segment = Segment(one, other, sequence, acknowledgment, flags, 0, b"", payload, cut)
        frame = data[raw[0] : raw[0] + raw[1]]
        return Frame(time_ns, frame, "", raw[2], interfaces[place], number, offset), segment

    while waiting or at < len(rows):
        if not waiting:
            end = run_ends[at]
            is_alone = len(epochs) == 1 and not epochs[-1].connection.waits
            if end - at >= RUN_COUNT and at >= retry_at and is_alone:
                if _take_run(part, rows[at:end], epochs[-1]):
                    at, patience = end, RUN_COUNT
                    continue
                # A long repetition follows itself, not what is due.
                retry_at, patience = at + patience, 2 * patience
            waiting.append(caught(at))
            at += 1

        if _begins(waiting[0], epochs):
            last = waiting[0][0].number + AHEAD_COUNT
            while at < len(rows) and int(segments.frame[rows[at]]) <= last:
                waiting.append(caught(at))
                at += 1
            if last > part.last_number:
                break
        over += _read_next(waiting, epochs, passed, apart=apart)
    if waiting:
        first = waiting[0][0].number
        epochs = epochs or [Epoch(Connection(first, waiting[0][1], apart=apart))]
        epochs[-1].connection.waiting = [*waiting]
        epochs[-1].connection.passed = {key: one for key, one in passed.items() if key >= first}
    return over + epochs


def _columns(segments: Segments) -> tuple[npt.NDArray[Any], ...]:
    """Return all columns of each segment, except its payload."""
    return (
        segments.source,
        segments.destination,
        segments.sequence,
        segments.acknowledgment,
        segments.flags,
        segments.interface,
        segments.frame,
        segments.time_ns,
        segments.offset,
        segments.cut,
        segments.frame_start,
        segments.frame_size,
        segments.frame_missing,
    )


def decided(known: Sequence[Connection]) -> list[Epoch]:
    """Return the connections of a pair, as `reassemble` does, once nothing can change them."""
    waiting, passed, epochs = _resumed(known)
    over: list[Epoch] = []
    while waiting:
        over += _read_next(waiting, epochs, passed, apart=known[-1].apart)
    return over + epochs


def _resumed(
    known: Sequence[Connection],
) -> tuple[deque[Caught], dict[int, Frame | None], list[Epoch]]:
    """Take the waiting segments out of the connections of a pair.

    Return these segments, the frames to pass over, keyed by number, and the connections that have streams.
    """
    waiting: deque[Caught] = deque()
    passed: dict[int, Frame | None] = {}
    for connection in known:
        waiting += connection.waiting
        passed |= connection.passed
        connection.waiting, connection.passed = [], {}
    return waiting, passed, [Epoch(connection) for connection in known if connection.streams]


def _begins(first: Caught, epochs: Sequence[Epoch]) -> bool:
    """Return the same as mqproto.captures.net.streams.Reassembler.begins."""
    frame, segment = first
    number = frame.interface.number
    is_new = all(epoch.connection.is_new_to(number, segment) for epoch in epochs)
    return is_new and not segment.flags & SYN


def _ahead(waiting: Sequence[Caught]) -> list[Caught]:
    last = waiting[0][0].number + AHEAD_COUNT
    return [each for each in waiting if each[0].number <= last]


def _read_next(
    waiting: deque[Caught],
    epochs: list[Epoch],
    passed: Mapping[int, Frame | None],
    *,
    apart: bool,
) -> list[Epoch]:
    """Take the first waiting segment; return the connections that it ends.

    If the sender's data begins with a later waiting segment, take that one instead.
    """
    number = waiting[0][0].number
    place = beginning_in(_ahead(waiting)) if _begins(waiting[0], epochs) else 0
    if place:
        waiting.appendleft(waiting[place])
        del waiting[place + 1]
    frame, segment = waiting.popleft()
    epoch_of = {epoch.connection: epoch for epoch in epochs}
    known = [*epoch_of]
    connection, gone = choose(known, frame.interface.number, segment)
    epoch = epoch_of[connection] if connection else Epoch(Connection(number, segment, apart=apart))
    over, epochs[:] = [epoch_of[each] for each in gone], [epoch_of[each] for each in known]
    leaving = [(each, each.connection.settle()) for each in over]
    for each in over:
        each.is_over = True
    if epoch.connection.is_shown_by(segment):
        leaving += ((other, other.connection.let_go()) for other in epochs)
    give_way(leaving, number)
    epochs.append(epoch)
    epoch.feed((frame, segment), number)
    if whole := passed.get(frame.number):
        epoch.connection.contradict(frame, whole, segment.source)
    return over


def _run_ends(segments: Segments, rows: Integers) -> Integers:
    """Return, for each row, the first row from there on that does not simply follow the rows before it.

    A row simply follows if it is not cut or damaged, has no SYN, FIN or RST, and continues the bytes of its direction,
    if it has any. It must also not acknowledge more bytes than the other direction has reached in these rows.
    """
    size, flags, sequence = segments.size[rows], segments.flags[rows], segments.sequence[rows]
    follows = (flags & (SYN | FIN | RST) == 0) & (segments.cut[rows] == 0)
    if segments.passed:
        follows &= ~np.isin(rows, list(segments.passed))
    whole = size + segments.cut[rows]
    direction = segments.interface[rows].astype(np.int64) * len(segments.ends) + segments.source[rows]
    filled = np.flatnonzero(size > 0)
    by = filled[np.argsort(direction[filled], kind="stable")]
    due = np.full(len(by), -1, dtype=np.int64)
    same = direction[by[1:]] == direction[by[:-1]]
    due[1:] = np.where(same, (sequence[by[:-1]] + whole[by[:-1]]) % 2**32, -1)
    follows[by] &= sequence[by] == due
    back = segments.interface[rows].astype(np.int64) * len(segments.ends) + segments.destination[rows]
    for one in np.unique(direction).tolist():
        # The state of this direction at each row of the other one; there is none before its first row.
        own = np.flatnonzero(direction == one)
        others = np.flatnonzero((back == one) & (size > 0) & (flags & ACK != 0))
        before = np.searchsorted(own, others) - 1
        others, before = others[before >= 0], own[before[before >= 0]]
        taken = whole[before] + (flags[before] & (SYN | FIN) != 0)
        follows[others] &= distance(segments.acknowledgment[rows[others]], sequence[before] + taken) <= 0
    places = np.where(follows, len(rows), np.arange(len(rows)))
    ends: Integers = np.minimum.accumulate(places[::-1])[::-1]
    return ends


def _take_run(part: SegmentPart, rows: Integers, epoch: Epoch) -> bool:
    """Take consecutive segments at once if they continue the bytes so far and depend on no others.

    Return whether they were taken. The caller makes sure that nothing waits.
    """
    segments, data, _ = part
    interface, source = segments.interface[rows], segments.source[rows]
    sides: list[_Side] = []
    for number in np.unique(interface).tolist():
        view = epoch.connection.known_view(number)
        if view is None:
            return False
        one, other = (
            _Side(
                sender,
                segments,
                rows,
                (interface == number) & (source == segments.ends.index(sender.stream.source)),
            )
            for sender in view.senders
        )
        if not one.goes_on_beside(other) or not other.goes_on_beside(one):
            return False
        sides += one, other
    for side in sides:
        side.acknowledge()
    for side in sides:
        some = rows[side.filled]
        if len(some):
            side.sender.take_more(segments.size[some].tolist(), partial(_pieces_from, part, some))
            epoch.add_run(side.sender.stream, from_segments(segments, data, some, ahead=side.is_ahead))
    return True


class _Side:
    """The segments of one side in a run.

    filled: the places, within the run, of the segments with payload.
    is_ahead: whether all bytes of these segments are ahead.
    """

    def __init__(
        self, sender: Sender, segments: Segments, rows: Integers, mask: npt.NDArray[np.bool_]
    ) -> None:
        self.sender = sender
        self.is_ahead = False
        self._opposite = self
        self._said: tuple[int, ...] = ()
        size = segments.size[rows]
        self._places = np.flatnonzero(mask)
        self.filled = np.flatnonzero(mask & (size > 0))
        self._first = int(segments.sequence[rows[self.filled[0]]]) if len(self.filled) else None
        self._number = segments.acknowledgment[rows]
        self._is_known = segments.flags[rows] & ACK != 0
        self._moved = np.cumsum(np.where(mask, size, 0))

    def goes_on_beside(self, opposite: _Side) -> bool:
        """Whether this side's bytes are due, and depend on no bytes that the other side lacks."""
        self._opposite = opposite
        theirs = opposite.sender
        if not len(self._places):
            return True
        if self.sender.absent or not self.sender.goes_on(self._first) or self.sender is theirs:
            return False
        saying = self._places[self._is_known[self._places]]
        if not len(saying):
            return True
        self.is_ahead = theirs.absent
        start = theirs.read_to
        if start is None:
            # Nothing was seen of it: everything acknowledged must have been acknowledged before.
            start = int(self._number[saying[0]])
        said = distance(self._number[saying], start + opposite._moved[saying])
        if (np.abs(said) > JUMP_LIMIT_BYTES).any():
            return False
        self._said = (
            int(self._number[saying[0]]),
            (start + int((said + opposite._moved[saying]).max())) % 2**32,
        )
        needing = self.filled[self._is_known[self.filled]]
        needs = distance(self._number[needing], start + opposite._moved[needing])
        if len(needing) and not theirs.absent:
            if theirs.read_to is not None:
                if (needs > 0).any():
                    return False
            elif theirs.lag((start + int(needs.max())) % 2**32) is not Lag.NONE:
                return False
        return True

    def acknowledge(self) -> None:
        """Report acknowledgments to the other side.

        Both sides do this before either of them takes its bytes.
        """
        theirs = self._opposite.sender
        for number in self._said:
            theirs.acknowledged(number, first=False)


def distance(numbers: Integers, references: Integers) -> Integers:
    """Return how far sequence numbers are beyond others, as mqproto.captures.net.direction.signed does."""
    behind: Integers = (numbers - references + 2**31) % 2**32 - 2**31
    return behind


def _pieces_from(part: SegmentPart, rows: Integers, first: int) -> Iterator[tuple[bytes, Frame]]:
    segments, some = part.segments, rows[first:]
    payloads = (segments.payload(part.data, row) for row in some.tolist())
    return zip(payloads, segments.frames_of(part.data, some), strict=True)


class Pairs:
    """The rows of segments, grouped by pair of ends; each row also has a direction within its pair."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        source, destination = segments.source.astype(np.int64), segments.destination.astype(np.int64)
        low, high = np.minimum(source, destination), np.maximum(source, destination)
        keys, self.pair = np.unique(low * len(segments.ends) + high, return_inverse=True)
        self.count = len(keys)
        self.direction = 2 * self.pair + (source > destination)
        self.by_pair = np.argsort(self.pair, kind="stable")
        self._edges = np.searchsorted(self.pair[self.by_pair], np.arange(self.count + 1))

    @property
    def first_places(self) -> Integers:
        """For each pair, the place in `by_pair` where it begins."""
        return self._edges[:-1]

    def rows_of(self, pair: int) -> Integers:
        """Return the rows of one pair, in the order of the capture."""
        return self.by_pair[self._edges[pair] : self._edges[pair + 1]]

    @property
    def edge_rows(self) -> npt.NDArray[np.int64]:
        """The first and the last row of each pair."""
        return np.stack([self.by_pair[self._edges[:-1]], self.by_pair[self._edges[1:] - 1]], axis=1)


class _Said:
    """The acknowledgments that directions send each other, where segments simply follow one another.

    Rows are in the order of directions, each of which is a `place`.

    Args:
        by: the rows.
        firsts: the rows that begin a direction.
        place: the direction of each row.
        start: for each direction, the number of its first byte.
        from_start: for each direction, whether it begins with a SYN.

    Attributes:
        is_odd: for each row, whether its acknowledgment number is odd: it is far from what the other direction has
            reached, comes with payload and is beyond that, or answers a missing SYN. Before its first segment, the
            other direction counts as having reached the first acknowledged number.
        is_beyond: for each row, whether it acknowledges more than the other direction has reached.
    """

    def __init__(
        self,
        pairs: Pairs,
        by: Integers,
        firsts: Integers,
        place: Integers,
        start: Integers,
        from_start: npt.NDArray[np.bool_],
    ) -> None:
        segments = pairs.segments
        direction = pairs.direction[by]
        flags, number, filled = segments.flags[by], segments.acknowledgment[by], segments.size[by] > 0
        says = flags & ACK != 0
        places = np.full(2 * pairs.count, -1, dtype=np.int64)
        places[direction[firsts]] = np.arange(len(firsts))
        opposite = places[direction[firsts] ^ 1]
        is_there = opposite >= 0
        end = _come_to(pairs)[by]

        # The number to count from: where the other direction begins, or without that the first one acknowledged.
        first_said = _first(says, firsts)
        self._has_said = first_said < len(by)
        said_first = number[np.minimum(first_said, len(by) - 1)]
        self._reference = np.where(is_there, start[opposite], said_first)
        there = is_there[place]
        furthest = distance(number, self._reference[place] + np.where(there, end, 0))
        self.is_odd = says & (np.abs(furthest) > JUMP_LIMIT_BYTES)
        self.is_beyond = says & there & (furthest > 0)
        self.is_odd |= filled & self.is_beyond
        unseen = by < np.where(is_there, by[firsts][opposite], len(by))[place]
        self.is_odd |= says & filled & unseen & (distance(number, said_first[place]) > 0)
        opens = np.where(is_there, from_start[opposite], False)
        begins = np.where(is_there, by[firsts][opposite], len(by))
        self.is_odd |= says & (flags & SYN != 0) & (unseen | ~opens[place])

        said = np.where(there, end, 0) + furthest
        self._acknowledged = _furthest(said, says, firsts)
        self._base = np.where(
            self._has_said & (by[np.minimum(first_said, len(by) - 1)] < begins), said_first, -1
        )

    def heard(self) -> Iterator[tuple[int | None, int | None]]:
        """Yield, for each place, the arguments for mqproto.captures.net.sender.Sender.hear that come from the other
        direction.
        """
        columns = (self._base, self._reference, self._acknowledged)
        for base, reference, furthest in zip(*(column.tolist() for column in columns), strict=True):
            yield None if base < 0 else base, None if furthest == _NEVER else reference + furthest


_NEVER: Final = -(1 << 62)


def _come_to(pairs: Pairs) -> Integers:
    """Return, for each segment, how many numbers the other direction had used by then, including its FIN."""
    segments, by = pairs.segments, pairs.by_pair
    is_high = pairs.direction[by] & 1 != 0
    numbers = segments.size[by] + (segments.flags[by] & FIN != 0)
    starts = pairs.first_places
    pair = pairs.pair[by]
    low, high = (np.cumsum(np.where(side, numbers, 0)) for side in (~is_high, is_high))
    # Nothing before a pair's first segment belongs to the other direction.
    other = np.where(is_high, low, high)
    before_low, before_high = ((np.concatenate([[0], each[:-1]]))[starts][pair] for each in (low, high))
    come = np.empty(len(by), dtype=np.int64)
    come[by] = other - np.where(is_high, before_low, before_high)
    return come


def _first(mask: npt.NDArray[np.bool_], firsts: Integers) -> Integers:
    """Return the first place of each group where the mask is true; the length if there is none."""
    places = np.where(mask, np.arange(len(mask)), len(mask))
    return np.minimum.reduceat(places, firsts) if len(mask) else places


def _furthest(values: Integers, mask: npt.NDArray[np.bool_], firsts: Integers) -> Integers:
    """Return the largest value of each group where the mask is true; _NEVER if there is none."""
    values = np.where(mask, values, _NEVER)
    return np.maximum.reduceat(values, firsts) if len(mask) else values


class Smooth:
    """The pairs whose segments simply follow one another, at one interface, with no hole, repetition or overtaking.

    No segment is cut. A SYN begins its direction, and a FIN follows the last byte of its direction. RST and bare
    acknowledgments may be anywhere, because they do not affect the bytes. No payload acknowledges more than the other
    direction has reached; if there is a FIN or RST, no number at all is beyond that. A direction without a SYN does not
    begin so late that earlier bytes may still follow.

    Args:
        known: for each pair, whether it already has a connection.
    """

    def __init__(self, pairs: Pairs, known: npt.NDArray[np.bool_]) -> None:
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

        pair = pairs.pair[by]
        ends = flags & (FIN | RST) != 0
        is_ended = (np.bincount(pair, ends, pairs.count) > 0)[pair]
        whole = np.add.reduceat(size, firsts) if len(by) else size

        odd = ((size > 0) | fin) & ((sequence - due) % 2**32 != 0)
        # After an end, numbers beyond it are those of another connection.
        odd |= fin & (before + size < whole[place])
        odd |= is_ended & (flags & RST == 0) & (distance(sequence, due) > 1)
        odd |= segments.cut[by] > 0
        odd |= np.isin(by, list(segments.passed))
        # A bare acknowledgment from before may be where its side begins.
        odd |= (size == 0) & (flags & (SYN | RST) == 0) & (distance(sequence, start[place]) < -1)
        odd |= is_first & ~syn & (segments.frame[by] + AHEAD_COUNT > segments.frame[-1:])
        odd |= syn & (~is_first | (size > 0) | (flags & (FIN | RST) != 0))
        edges = pairs.edge_rows
        odd |= segments.interface[by] != segments.interface[edges[:, 0]][pair]
        odd |= segments.source[by] == segments.destination[by]

        # If an index repeats, the last value stays.
        self._finish = np.full(len(firsts), -1, dtype=np.int64)
        self._finish[place[fin]] = (due + size)[fin]
        self._last_flags = np.zeros(len(firsts), dtype=np.uint8)
        self._last_flags[place[ends]] = flags[ends]
        self._resets: dict[int, tuple[int, int]] = {}  # by the first row of a direction
        for row in np.flatnonzero((flags & RST != 0) & (flags & ACK != 0)).tolist():
            said = int(sequence[row]), int(segments.acknowledgment[by[row]])
            self._resets[int(by[firsts[place[row]]])] = said
        self._start = start
        self._from_start = syn[firsts]
        self._first_row = by[firsts]
        self._said = _Said(pairs, by, firsts, place, start, self._from_start)
        odd |= self._said.is_odd | (is_ended & self._said.is_beyond)
        self.is_smooth = (np.bincount(pair, odd, pairs.count) == 0) & ~known
        taken = (size > 0) & self.is_smooth[pair]
        self._count = np.bincount(place, taken, len(firsts)).astype(np.int64)
        self.payload_rows = by[taken]

    def fill(self, part: SegmentPart, connections: Mapping[int, Connection]) -> list[tuple[int, Stream, int]]:
        """Fill new connections with their segments; the connections are given by the index of their pair.

        Returns:
            For each new run of chunks, its pair, its stream and the number of its chunks, in the order of
            `payload_rows`.
        """
        segments = part.segments
        taken: list[tuple[int, Stream, int]] = []
        columns = zip(
            self._first_row.tolist(),
            self._start.tolist(),
            self._count.tolist(),
            self._from_start.tolist(),
            self._finish.tolist(),
            self._last_flags.tolist(),
            self._said.heard(),
            strict=True,
        )
        end = 0
        for row, start, count, from_start, finish, flags, heard in columns:
            pair = int(self._pairs.pair[row])
            if pair not in connections:
                continue
            view = connections[pair].view(segments.interfaces[int(segments.interface[row])])
            sender, other = view.pair(segments.ends[segments.source[row]])
            rows, end = self.payload_rows[end : end + count], end + count
            sender.begin_with(start, from_start)
            sender.take_more(segments.size[rows].tolist(), partial(_pieces_from, part, rows))
            # A segment with RST and FIN counts as reset, as it does if segments are taken one by one.
            ending = Ending.RESET if flags & RST else Ending.FINISHED if flags & FIN else Ending.OPEN
            sender.end_with(finish if finish >= 0 else None, ending)
            if row in self._resets:
                sender.reset_at, other.dropped_at = self._resets[row]
            other.hear(*heard)
            if count:
                taken.append((pair, sender.stream, count))
        return taken

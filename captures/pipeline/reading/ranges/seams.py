"""Where two ranges of a capture meet: the later one's assumptions are proved, or it is read again.

A `PairState` has all that is known about a pair of ends at the end of a range: the state of its connection and streams.
A `Stitcher` takes what the ranges say about the pair, in order. If a range assumed what the state says, the state moves
on to where that range left it, without a look at its packets. If not, the pair's segments in that range are read again
from the state, by the exact classes. So the result is that of one reader of the whole capture.

Bytes remembered to compare repetitions with do not pass from range to range. If a repetition reaches back
behind what is known, the ranges before are read again as well, together with this one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from mqproto.captures.framing import Framing, StreamCount
from mqproto.captures.net.direction import Stream
from mqproto.captures.net.recent import COMPARED_BYTES
from mqproto.captures.net.streams import Connection, Ends
from mqproto.captures.pipeline.reading.ranges.chunks import Chunks, Piece, from_pieces, joined
from mqproto.captures.pipeline.reading.ranges.cutting import Heads, Packets, Run, cut
from mqproto.captures.pipeline.reading.ranges.flows import PairSummary, StreamRead
from mqproto.captures.pipeline.reading.ranges.lookback import Frozen, LookBack
from mqproto.captures.pipeline.reading.ranges.reassembly import Epoch, RangeSegments, decided, reassemble
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.source.segments import Segments

END_OF_CAPTURE: Final = 1 << 62
"""`readable` for what only the end of the capture reveals; the number of the last frame is added."""


class Correction(NamedTuple):
    """The changes to a stream's packets in a range that is proved.

    connection: the number of its connection's first frame; counted from 0 in the order of these numbers,
        connections have those of mqproto.captures.packets.SeenPacket.
    position: to be added.
    missing_bytes, skipped_bytes, snapped_bytes: to be added to those of its first packet in the range.
    ahead, opened: for all packets, as in mqproto.captures.packets.SeenPacket.
    """

    connection: int
    position: int
    missing_bytes: int
    skipped_bytes: int
    snapped_bytes: int
    ahead: bool = False
    opened: bool | None = None


@dataclass(slots=True)
class Seam:
    """What to do with a range's report about a pair.

    proved: whether its packets stand, once they are corrected. Otherwise those of the pair are left out.
    corrections: by the stream's index in the range's packets.
    packets: additional packets: those that the seam cut in two, or all that the pair has in this range.
    closed: streams that are over, with all their counts.
    """

    proved: bool
    corrections: dict[int, Correction] = field(default_factory=dict)
    packets: list[Packets] = field(default_factory=list)
    closed: list[StreamCount] = field(default_factory=list)


@dataclass(slots=True)
class PairState:
    """A pair between two ranges: its connection, its streams that had bytes, and its last frame's number."""

    connection: Connection
    framings: dict[Stream, Framing]
    last_number: int = 0

    def framing(self, stream: Stream) -> Framing:
        """Return the framing of a stream, new if it has had no bytes."""
        if stream not in self.framings:
            self.framings[stream] = Framing(stream, stream.from_start)
        return self.framings[stream]

    def close(self) -> list[StreamCount]:
        """End the connection, of which nothing waits; return the counts of its streams."""
        return [self.framing(stream).end() for stream in self.connection.streams]


@dataclass(slots=True)
class OpenPair:
    """All that is known about a pair at the end of a range, to continue from there.

    last_place: the last range in which it occurred.
    look_back: as far back as may be needed.
    """

    ends: Ends
    last_place: int = -1
    state: PairState | None = None
    look_back: LookBack = field(default_factory=LookBack)


class Stitcher:
    """Joins what the ranges of a capture say about one pair of ends.

    Args:
        pair: its state at the beginning; it is changed.
        again: returns the segments of a range by its number; called for ranges that must be read again.
        gone: the ranges that cannot be read again; asked only about those that would have to be.
    """

    def __init__(
        self, pair: OpenPair, again: Callable[[int], RangeSegments], gone: Container[int] = frozenset()
    ) -> None:
        self.pair = pair
        self._again = again
        self._gone = gone

    def take(self, place: int, summary: PairSummary) -> Seam:
        """Return what becomes of the pair in a range.

        Args:
            place: the range's number; they come in order, without those in which the pair does not occur.
        """
        pair = self.pair
        before = Frozen(pair.state)
        seam = self._prove(summary)
        if seam is None:
            seam = self._read_again(place, before)
        assert pair.state is not None
        pair.state.last_number = summary.last_number
        if summary.connections is not None:
            streams = summary.connections[-1].connection.streams
            is_whole = len(streams) == len(pair.state.connection.streams)
            if is_whole and all(stream.data_bytes > COMPARED_BYTES for stream in streams):
                # Everything remembered at the end of this range comes from this range.
                pair.look_back.clear()
        pair.look_back.add(place, before)
        pair.last_place = place
        return seam

    def finish(self) -> Seam:
        """End the capture: what waits for earlier bytes waits no longer."""
        seam = self.decide()
        state, self.pair.state = self.pair.state, None
        if state is not None:
            self._close(state, END_OF_CAPTURE + state.last_number, seam)
        return seam

    def decide(self) -> Seam:
        """Note that no more frames come for now: nothing has been overtaken."""
        seam = Seam(proved=True)
        state = self.pair.state
        if state is not None and state.connection.waiting:
            self._go_on(decided(state.connection), seam)
        return seam

    def _prove(self, summary: PairSummary) -> Seam | None:
        """Move to the end of a range if its assumptions hold; else return None, and the state is no longer valid."""
        state, reads = self.pair.state, summary.connections
        if reads is None or (state is not None and state.connection.waiting):
            return None
        seam = Seam(proved=True)
        if state is not None and state.connection.is_over_for(summary.first.interface, summary.first.segment):
            self._close(state, summary.first.number, seam)
            state = None
        earliest = reads[0].connection
        ahead: list[Stream] = []
        if state is None:
            if not earliest.stands_alone:
                return None
            earliest.know()
            state = PairState(earliest, {})
            pairs = [(stream, stream) for stream in earliest.streams]
        elif len(reads) == 1 and state.connection.is_continued_by(earliest):
            ahead = state.connection.ahead
            pairs = list(state.connection.go_on_as(earliest))
        else:
            return None
        lossy = {ours for ours, framing in state.framings.items() if framing.untold}
        for ours, theirs in pairs:
            read = reads[0].streams.get(theirs)
            if read is not None and not _join(state, ours, read, seam, lossy, ahead=ours in ahead):
                return None
        for ours, theirs in pairs:
            read = reads[0].streams.get(theirs)
            opposite = None if theirs.opposite is None else reads[0].streams.get(theirs.opposite)
            if read is None:
                continue
            # It would be ahead of bytes that the other side lacked where the range began; its first bytes, of more.
            if ours.opposite in lossy and (read.packet_count or read.lead.pieces):
                return None
            if read.lead.pieces and opposite is not None and opposite.is_lossy:
                return None

        for later in reads[1:]:
            seam.closed += state.close()
            state = PairState(later.connection, {})
            for stream, read in later.streams.items():
                assert read.framing is not None
                state.framings[stream] = read.framing
                seam.corrections[read.place] = Correction(stream.connection, 0, 0, 0, 0, opened=stream.opened)
        self.pair.state = state
        return seam

    def _read_again(self, place: int, before: Frozen) -> Seam:
        """Read the pair in a range from the state before it, and earlier ranges as far as it reaches back."""
        look_back = self.pair.look_back
        back: list[int] = []
        while True:
            self.pair.state = before.thing
            reached_back = False
            for one in [*back, place]:
                seam = Seam(proved=False)
                reached_back |= self._read(self._again(one), seam)
            if reached_back and any(one in self._gone for one in self._further(back)[1]):
                look_back.without(self._gone)
            if not reached_back or len(back) == len(look_back):
                return seam
            before, back = self._further(back)

    def _further(self, back: list[int]) -> tuple[Frozen, list[int]]:
        """Return a state about twice as far back, and the ranges from there on; nothing if there is none."""
        look_back = self.pair.look_back
        if len(back) == len(look_back):
            return Frozen(None), []
        return look_back.since(min(2 * len(back) + 1, len(look_back)))

    def _read(self, once_more: RangeSegments, seam: Seam) -> bool:
        """Read the pair in a range from the current state; return whether earlier bytes had to be known."""
        state = self.pair.state
        if state is not None:
            state.connection.take_reached_back()
        rows = _rows_between(once_more.segments, self.pair.ends)
        connection = None if state is None else state.connection
        epochs = reassemble(once_more, rows, connection)
        reached_back = any(epoch.connection.take_reached_back() for epoch in epochs)
        self._go_on(epochs, seam)
        return reached_back

    def _go_on(self, epochs: list[Epoch], seam: Seam) -> None:
        state = self.pair.state
        for epoch in epochs:
            if state is None or state.connection is not epoch.connection:
                if state is not None:
                    seam.closed += state.close()
                state = PairState(epoch.connection, {})
            seam.packets += _cut(state, epoch.chunks())
        self.pair.state = state

    def _close(self, state: PairState, readable: int, seam: Seam) -> None:
        """End the connection."""
        epoch = Epoch(state.connection)
        epoch.settle(readable)
        seam.packets += _cut(state, epoch.chunks())
        seam.closed += state.close()


def _join(
    state: PairState, stream: Stream, read: StreamRead, seam: Seam, lossy: set[Stream], *, ahead: bool
) -> bool:
    """Whether a stream continues as a range read it. Then its framing moves to where the range left it.

    Args:
        lossy: receives it if bytes are missing up to the first packet that is seen to begin.
        ahead: whether all of it is.
    """
    framing, lead = state.framing(stream), read.lead
    if lead.missing_bytes or lead.gap_bytes or lead.pieces is None:
        lossy.add(stream)
    is_searched = framing.seen.is_msmq and (lead.pieces is not None or lead.chained)
    if framing.guesses and lead.pieces is None:
        return False
    if framing.lost and not lead.inside and not is_searched:
        framing.miss(lead.missing_bytes, lead.snapped_bytes)
        framing.pass_over(lead.size_bytes)
    elif lead.pieces is None:
        return False
    elif lead.pieces:
        chunks = from_pieces(lead.pieces)
        chunks.ahead[:] |= ahead
        packets = _cut(state, {stream: chunks})
        seam.packets += packets
        if any((some.missing | some.skipped).any() for some in packets):
            lossy.add(stream)  # Until these reported it.
    if framing.untold:
        lossy.add(stream)
    if read.framing is None:
        return True

    if framing.guesses:
        return False  # The next packet may prove the one that has begun.
    if lead.gap_bytes:
        if framing.has_head:
            return False  # A packet with a hole is one that has to be cut.
        framing.miss(lead.gap_bytes)
    # The range took it for the beginning of everything, if nothing had come before.
    seen = framing.seen
    had_any = seen.packet_count or seen.cut_count or seen.headless_bytes or seen.refused_bytes
    if framing.lost and not lead.inside:
        framing.find()
    elif not framing.in_step:
        return False
    if had_any and not read.is_steady:
        return False
    seam.corrections[read.place] = Correction(
        stream.connection,
        framing.position,
        framing.missing_bytes,
        framing.skipped_bytes,
        framing.snapped_bytes,
        ahead,
        stream.opened,
    )
    framing.go_on_as(read.framing, read.packet_count > 0, ahead=ahead)
    return True


def _cut(state: PairState, chunks: Mapping[Stream, Chunks]) -> list[Packets]:
    """Return the packets in the chunks of a connection's streams, behind those that have begun."""
    runs: list[Run] = []
    parts: list[Chunks] = []
    end = 0
    for stream, some in chunks.items():
        framing = state.framing(stream)
        other = stream.opposite
        if other in state.framings and other not in chunks and state.framings[other].untold:
            some.ahead[:] = True
        begun = framing.begun
        if begun is not None:
            parts.append(from_pieces([Piece(0, 0, begun)]))
        parts.append(some)
        first, end = end, end + len(some) + (begun is not None)
        runs.append(Run(stream, framing, first, end, begun is not None))
    table = joined(parts)
    packets = cut(table, Heads(table), runs)
    return [packets] if len(packets) else []


def _rows_between(segments: Segments, ends: Ends) -> Integers:
    """Return the segments between two ends, in the order of the capture."""
    places = [segments.ends.index(end) for end in ends]
    source, destination = segments.source, segments.destination
    there = (source == places[0]) & (destination == places[1])
    back = (source == places[1]) & (destination == places[0])
    return np.flatnonzero(there | back)

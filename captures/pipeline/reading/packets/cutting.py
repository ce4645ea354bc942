"""Cuts the chunks of many streams into packets.

Where nothing is wrong, this is done for all chunks at once; elsewhere, mqproto.captures.framing does it. A packet is
identified by its place and its size. Everything else about the packet is looked up in the chunk that has its first
byte, and in the chunk that has its last byte.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mqproto.base.errors import WireFormatError
from mqproto.captures.framing import Framed, Framing, Loss, Mark
from mqproto.captures.net.direction import Chunk, Stream
from mqproto.captures.net.heads import HEAD_BYTES
from mqproto.captures.pipeline.reading.packets.chunks import Chunks
from mqproto.captures.pipeline.source.octets import Octets
from mqproto.captures.pipeline.source.records import Integers
from mqproto.wire import PacketBuffer
from mqproto.wire.layouts.base import (
    MAXIMUM_PACKET_SIZE,
    SIGNATURE,
    SMALLEST_INTERNAL_PACKET,
    SMALLEST_USER_MESSAGE,
    VERSION_NUMBER,
    BaseHeader,
    base_header,
)
from mqproto.wire.layouts.session import session_header

WINDOW_BYTES: Final = 1 << 16
"""The number of bytes that are cut at a time.

More would be copied in vain if no packet begins after the first bytes.
"""

_HEAD: Final = np.dtype(
    {
        "names": ["version", "flags", "signature", "size"],
        "formats": ["u1", "<u2", "<u4", "<u4"],
        "offsets": [
            base_header.offset_of(name) for name in ("version_number", "flags", "signature", "packet_size")
        ],
        "itemsize": HEAD_BYTES,
    }
)


@dataclass(slots=True)
class Packets:
    """Packets, one per row, in the order in which they became readable.

    Some rows are not packets: they have the first bytes of a part that does not begin with a packet.

    The columns mean the same as the attributes of mqproto.captures.packets.SeenPacket, except these:

    stream: an index into `streams`.
    start, size: the place and the size of the packet's bytes in `data`, which may be the whole file.
    readable, order: as in chunks.Piece. All packets of a capture are ordered by readable, order and position. Packets
        with the same `readable` are between the same two ends.
    """

    stream: Integers
    position: Integers
    start: Integers
    size: Integers
    framed: npt.NDArray[np.bool_]
    frame: Integers
    first_frame: Integers
    offset: Integers
    time_ns: Integers
    began_ns: Integers
    missing: Integers
    skipped: Integers
    snapped: Integers
    cut: Integers
    ahead: npt.NDArray[np.bool_]
    readable: Integers
    order: Integers
    data: Octets
    streams: list[Stream]

    def __len__(self) -> int:
        return len(self.start)


class Heads:
    """The first bytes of chunks.

    whole: the size of the packet whose head begins a chunk; 0 if none does.
    next_head: for each chunk, the first chunk from there on that begins with a head.
    next_odd: the first chunk from there on that is not exactly one packet, or has bytes missing before it, or is cut.
    next_gap: the first chunk from there on that has bytes missing before it, or is cut.
    """

    def __init__(self, chunks: Chunks) -> None:
        self.whole = _whole_sizes(chunks)
        gap = (chunks.missing > 0) | (chunks.cut > 0)
        self.next_head = _next(self.whole > 0)
        self.next_odd = _next((self.whole != chunks.size) | gap)
        self.next_gap = _next(gap)


class Run(NamedTuple):
    """Adjacent chunks of one stream: the rows from `first` up to, but not including, `end`.

    framing: the reader that takes these chunks, and has taken all chunks before them.
    begun: whether the first row repeats `framing.begun`, and must not be taken again.
    """

    stream: Stream
    framing: Framing
    first: int
    end: int
    begun: bool = False


def cut(chunks: Chunks, heads: Heads, runs: Sequence[Run]) -> Packets:
    """Return the packets of each run; bytes that do not complete a packet stay in the run's framing."""
    cutter = _Cutter(chunks, heads)
    places = {run.stream: place for place, run in enumerate(runs)}
    untold: list[tuple[int, list[Span]]] = []
    for place, run in enumerate(runs):
        spans = cutter.cut(place, run)
        opposite = None if run.stream.opposite is None else places.get(run.stream.opposite)
        if spans and opposite is not None:
            untold.append((opposite, spans))
    packets = cutter.packets([run.stream for run in runs])
    for place, spans in untold:
        _set_ahead(packets, place, spans)
    return packets


Moment = tuple[float, float]
"""`readable` and `order`, as in mqproto.captures.pipeline.reading.packets.chunks.Piece."""
Span = tuple[Moment, Moment]
"""The time from a loss of bytes in a stream until one of the stream's packets reported the loss."""


def _set_ahead(packets: Packets, place: int, spans: Sequence[Span]) -> None:
    """Mark as ahead those packets of a stream that came while the other side lacked bytes."""
    rows = np.flatnonzero(packets.stream == place)
    moments = list(zip(packets.readable[rows].tolist(), packets.order[rows].tolist(), strict=True))
    for began, ended in spans:
        packets.ahead[rows[bisect_left(moments, began) : bisect_left(moments, ended)]] = True


@dataclass(slots=True)
class _Found:
    """Packets in columns that are not assembled yet."""

    run: list[int] = field(default_factory=list)  # of each batch, like the next two
    start: list[Integers] = field(default_factory=list)
    size: list[Integers] = field(default_factory=list)
    count: int = 0
    heads: list[int] = field(default_factory=list)  # rows of bytes that begin no packet
    losses: list[tuple[int, Loss]] = field(default_factory=list)  # of a row
    told: list[tuple[int, int]] = field(
        default_factory=list
    )  # a row that is cut or guessed, and the row that showed it
    began: list[tuple[int, Mark]] = field(
        default_factory=list
    )  # a row that began in a chunk of an earlier run
    ended: list[tuple[int, Chunk]] = field(default_factory=list)  # a row that was guessed, and where it ended

    def add(self, run: int, start: Integers, size: Integers, loss: Loss) -> None:
        if any(loss):
            self.losses.append((self.count, loss))
        self.run.append(run)
        self.start.append(start)
        self.size.append(size)
        self.count += len(start)


class _Cutter:
    """Goes from chunk to chunk, taking as many at once as possible."""

    def __init__(self, chunks: Chunks, heads: Heads) -> None:
        self._chunks = chunks
        self._heads = heads
        self._found = _Found()
        # Positions in a stream count missing bytes; starts in `data` do not.
        self._position = np.cumsum(chunks.size + chunks.missing + chunks.cut) - chunks.size - chunks.cut
        self._shift: list[int] = []  # by run: from those positions to the positions in its stream

    def cut(self, place: int, run: Run) -> list[Span]:
        """Take all chunks of a run; return the spans of its losses.

        A span lasts from a loss of bytes until a packet reports the loss.
        """
        chunks, framing = self._chunks, run.framing
        spans: list[Span] = []
        since: Moment | None = (-inf, 0) if framing.untold else None
        row = run.first
        begun_bytes = int(chunks.size[row]) if run.begun else 0
        ahead = int(self._position[row] - chunks.missing[row])
        self._shift.append(framing.position - begun_bytes - ahead)
        row += run.begun
        while row < run.end:
            at, found_count, batch_count = row, self._found.count, len(self._found.start)
            found = self._found_from(run, row) if framing.lost else row
            if found > row:
                cut_bytes = int(chunks.cut[row:found].sum())
                framing.miss(int(chunks.missing[row:found].sum()) + cut_bytes, cut_bytes)
                framing.pass_over(int(chunks.size[row:found].sum()))
                row = found
            elif framing.in_step and not chunks.missing[row] and not chunks.cut[row]:
                row = self._cut_in_step(place, run, row)
                at = row - 1
            else:
                self._take(place, run, chunks.piece(row).chunk, row)
                row += 1
            if since is not None and self._found.count > found_count:
                start, size = self._found.start[batch_count][0], self._found.size[batch_count][0]
                told = int(np.searchsorted(chunks.start, start + size - 1, side="right")) - 1
                told = next((by for each, by in self._found.told[::-1] if each == found_count), told)
                spans.append((since, self._moment(told)))
                since = None
            if since is None and framing.untold:
                since = self._moment(at)
        if since is not None:
            spans.append((since, (inf, 0)))
        return spans

    def _found_from(self, run: Run, row: int) -> int:
        """Return the first row, from `row` on, where packet boundaries may be found again."""
        if run.framing.guesses:
            return row
        end = min(int(self._heads.next_head[row]), run.end)
        if run.framing.seen.is_msmq:
            for place in range(row, end):
                if self._chunks.may_begin(place):
                    return place
        return end

    def _moment(self, row: int) -> Moment:
        return int(self._chunks.readable[row]), int(self._chunks.order[row])

    def packets(self, streams: list[Stream]) -> Packets:
        """Return all packets found."""
        chunks, found = self._chunks, self._found
        none = [np.empty(0, dtype=np.int64)]
        start, size = np.concatenate(found.start or none), np.concatenate(found.size or none)
        counts = np.array([len(batch) for batch in found.start], dtype=np.int64)
        run = np.repeat(np.array(found.run, dtype=np.int64), counts)
        first = np.searchsorted(chunks.start, start, side="right") - 1
        last = np.searchsorted(chunks.start, start + size - 1, side="right") - 1
        framed = np.ones(len(start), dtype=np.bool_)
        framed[found.heads] = False
        missing, skipped, snapped, cut = losses = np.zeros((4, len(start)), dtype=np.int64)
        for row, loss in found.losses:
            losses[:, row] = loss
        data = chunks.source
        is_spread = chunks.is_laid_down or bool((first != last).any())
        for row, chunk in found.told:
            last[row] = chunk
        position = self._position[first] + start - chunks.start[first]
        position += np.array(self._shift, dtype=np.int64)[run]
        readable, order = chunks.readable[last], chunks.order[last]
        frame, time_ns, ahead = chunks.frame[last], chunks.time_ns[last], chunks.ahead[last]
        first_frame, began_ns, offset = chunks.frame[first], chunks.time_ns[first], chunks.offset[first]
        for row, mark in found.began:
            first_frame[row], began_ns[row], offset[row] = mark.frame, mark.time_ns, mark.offset
        for row, ended in found.ended:
            frame[row], time_ns[row] = ended.frame, ended.time_ns
            ahead[row] |= ended.ahead
        by = np.lexsort((start, order, readable))
        if is_spread:
            data = chunks.data
        else:
            # Each is in one segment, so it is read from its place in the file.
            start += chunks.at[first] - chunks.start[first]
        return Packets(
            stream=run[by],
            position=position[by],
            start=start[by],
            size=size[by],
            framed=framed[by],
            frame=frame[by],
            first_frame=first_frame[by],
            offset=offset[by],
            time_ns=time_ns[by],
            began_ns=began_ns[by],
            missing=missing[by],
            skipped=skipped[by],
            snapped=snapped[by],
            cut=cut[by],
            ahead=ahead[by],
            readable=readable[by],
            order=order[by],
            data=data,
            streams=streams,
        )

    def _cut_in_step(self, place: int, run: Run, row: int) -> int:
        """Take chunks from row `row` on, where a packet begins; return the row after them."""
        chunks, framing = self._chunks, run.framing
        end = min(int(self._heads.next_odd[row]), run.end)
        if end > row:
            size = chunks.size[row:end]
            self._add(place, framing, chunks.start[row:end], size, int(size.sum()))
            return end

        # Packets that do not end with their segments are cut from the bytes of all chunks up to the next gap.
        last = min(int(self._heads.next_gap[row]), run.end) - 1
        at = int(chunks.start[row])
        stop = int(chunks.start[last] + chunks.size[last])
        while at < stop:
            sizes = _sizes_in(chunks.data[at : min(stop, at + WINDOW_BYTES)])
            if not len(sizes):
                break
            taken = int(sizes.sum())
            self._add(place, framing, at + np.cumsum(sizes) - sizes, sizes, taken)
            at += taken
        if at == stop:
            return last + 1
        row = int(np.searchsorted(chunks.start, at, side="right")) - 1
        chunk = chunks.piece(row).chunk
        self._take(place, run, chunk._replace(data=chunk.data[at - int(chunks.start[row]) :]), row)
        return row + 1

    def _add(self, place: int, framing: Framing, start: Integers, size: Integers, taken: int) -> None:
        loss = Loss(framing.missing_bytes, framing.skipped_bytes, framing.snapped_bytes)
        self._found.add(place, start, size, loss)
        framing.advance(len(start), taken)

    def _take(self, place: int, run: Run, chunk: Chunk, row: int) -> None:
        for framed in run.framing.take(chunk):
            start, first = self._start_of(place, run, framed)
            if framed.began.frame != self._chunks.frame[first]:
                self._found.began.append((self._found.count, framed.began))
            if framed.fault is not None:
                self._found.heads.append(self._found.count)
            if not framed.ended.data:
                self._found.ended.append((self._found.count, framed.ended))
            if framed.loss.cut_bytes or not framed.ended.data:
                self._found.told.append((self._found.count, row))
            self._found.add(place, np.array([start]), np.array([len(framed.data)]), framed.loss)

    def _start_of(self, place: int, run: Run, framed: Framed) -> tuple[int, int]:
        """Return where a packet begins in the data, and in which row."""
        position = framed.began.position - self._shift[place]
        row = (
            run.first + int(np.searchsorted(self._position[run.first : run.end], position, side="right")) - 1
        )
        return int(self._chunks.start[row]) + position - int(self._position[row]), row


def _sizes_in(data: Octets) -> Integers:
    """Return the sizes of the whole packets at the start of these bytes."""
    try:
        packets = PacketBuffer().feed(data.tobytes())
    except WireFormatError:
        packets = []
    return np.array([len(packet) for packet in packets], dtype=np.int64)


def _whole_sizes(chunks: Chunks) -> Integers:
    """Return the sizes of the packets whose heads begin the chunks; 0 for chunks without one."""
    whole = np.zeros(len(chunks), dtype=np.int64)
    rows = np.flatnonzero(chunks.size >= HEAD_BYTES)
    if len(rows):
        source = chunks.source
        windows = np.ndarray((len(source) - HEAD_BYTES + 1,), _HEAD, source, strides=(1,))
        whole[rows] = _whole_of(windows[chunks.at[rows]])
    return whole


def _whole_of(heads: npt.NDArray[np.void]) -> Integers:
    """Return sizes of whole packets, as mqproto.captures.net.heads.whole_size does; 0 for bytes that are not a head."""
    flags, size = heads["flags"], heads["size"].astype(np.int64)
    internal = flags & BaseHeader.internal.mask != 0
    smallest = np.where(internal, SMALLEST_INTERNAL_PACKET, SMALLEST_USER_MESSAGE)
    good = (heads["version"] == VERSION_NUMBER) & (heads["signature"] == SIGNATURE)
    good &= (smallest <= size) & (size <= MAXIMUM_PACKET_SIZE)
    rides = ~internal & (flags & BaseHeader.session_header.mask != 0)
    return np.where(good, size + rides * session_header.sizeof(), 0)


def _next(mask: npt.NDArray[np.bool_]) -> Integers:
    """Return, for each place, the first place from there on where the mask is true.

    If there is none, return the mask's length for that place.
    """
    count = len(mask)
    places = np.where(mask, np.arange(count), count)
    return np.minimum.accumulate(places[::-1])[::-1]

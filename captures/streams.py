"""TCP reassembly: from segments to the bytes that each side sent.  [RFC 9293] 3.4, 3.10.7.4

Segments are put in order and repeated bytes are dropped. What the capture never saw is left out. Both are counted, and
so are repetitions that say something else than the first copy did. `Reassembler` takes a capture of any size, and keeps
a bounded part of it; `reassemble` keeps everything, for captures of a run.
"""

from __future__ import annotations

import heapq
import os
import sys
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from captures.frame import NANOSECONDS, Frame, Interface
from captures.ip import IpReader
from captures.links import ip_start
from captures.pcap import read_capture
from captures.tcp import ACK, FIN, PROTOCOL_TCP, RST, SYN, Endpoint, Segment, decode_segment

MSMQ_PORT: Final = 1801

EARLY_LIMIT_BYTES: Final = 1 << 20
"""Bytes that came early wait for those before them. When this many wait, those before them are not coming."""
EARLY_LIMIT_NS: Final = NANOSECONDS
"""Bytes that the receiver acknowledged this long ago, and the capture has not shown, are not coming either."""
COMPARED_BYTES: Final = 1 << 16
"""So much of what was read stays, to compare repetitions with."""
PIECE_LIMIT_COUNT: Final = 1_024
"""Neither may be more pieces than this, so that segments of one byte cost no more than others."""
PIECE_COST_BYTES: Final = 200
"""What keeping a piece costs beside its bytes."""
HELD_LIMIT_BYTES: Final = 64 << 20
"""What may wait or stay in all connections together; beyond it, the one that was silent longest gives its part."""
CONNECTION_LIMIT: Final = 16_384
"""So many connections are followed at a time; then the one that was silent longest is given up."""
JUMP_LIMIT_BYTES: Final = 1 << 28
"""No window is as wide: a segment this far from what is due belongs to another connection between the same ports."""


_Ends = tuple[Endpoint, Endpoint]


class Ending(Enum):
    """How a side stopped sending, as far as the capture shows."""

    OPEN = "open"
    FINISHED = "finished"
    RESET = "reset"


class Chunk(NamedTuple):
    """Bytes that could be read at one moment, all from one frame.

    time_ns: since 1970, UTC; when the last segment that was needed crossed the wire.
    missing_bytes: how many bytes right before these the capture lacks.
    frame: the number of the frame that the bytes stood in.
    offset: of that frame's record in the file.
    """

    time_ns: int
    data: bytes
    missing_bytes: int = 0
    frame: int = 0
    offset: int = 0


@dataclass(slots=True, eq=False)
class Stream:
    """What one side of one connection sent, as seen at one interface.

    connection: counted from 0 in the order of first frames, as Wireshark's tcp.stream.
    chunks: what `reassemble` found; `Reassembler` leaves it empty.
    from_start: the capture has the SYN, so the first chunk begins the stream (if no bytes are missing before it).
    data_bytes: what could be read, repetitions and gaps left aside.
    gap_count, missing_bytes: how often and how many bytes were sent that the capture lacks.
    retransmission_count: segments of which some bytes had been there before.
    conflict_count: those of them that had another byte somewhere. What was read first stands.
    early_count: segments that came before bytes that precede them, or whose predecessors the capture lacks.
    keep_alive_count: repetitions of the last byte that ask whether anybody is there; its value means nothing.
    """

    connection: int
    source: Endpoint
    destination: Endpoint
    interface: Interface = field(default_factory=Interface)
    chunks: list[Chunk] = field(default_factory=list)
    from_start: bool = False
    ending: Ending = Ending.OPEN
    data_bytes: int = 0
    gap_count: int = 0
    missing_bytes: int = 0
    retransmission_count: int = 0
    conflict_count: int = 0
    early_count: int = 0
    keep_alive_count: int = 0

    @property
    def data(self) -> bytes:
        """All its bytes; where some are missing, the rest closes up."""
        return b"".join(chunk.data for chunk in self.chunks)

    def __str__(self) -> str:
        return f"{self.source} > {self.destination}"


class Arrival(NamedTuple):
    """A chunk that can be read now, or None for the end of a stream: nothing more of it will come."""

    stream: Stream
    chunk: Chunk | None


def streams(path: str | os.PathLike[str]) -> list[Stream]:
    """The streams of the capture file at `path`: two for each connection, the opener's first.

    Raises:
        CaptureError: the file is damaged. `reassemble` gives what came before the damage.
        OSError: the file cannot be opened or read.
    """
    return reassemble(read_capture(path))


def reassemble(frames: Iterable[Frame]) -> list[Stream]:
    """The streams in `frames`, as `streams`. Frames that hold no TCP segment are passed over."""
    reader = IpReader()
    reassembler = Reassembler(connection_limit=sys.maxsize)
    found: list[Stream] = []
    for frame in frames:
        segment = segment_in(frame, reader)
        if segment is not None:
            for stream, chunk in reassembler.feed(frame, segment):
                if chunk is not None:
                    stream.chunks.append(chunk)
            found.extend(reassembler.take_opened())
    for stream, chunk in reassembler.finish():
        if chunk is not None:
            stream.chunks.append(chunk)
    return found


def segment_in(frame: Frame, reader: IpReader) -> Segment | None:
    """The TCP segment that a frame holds or completes; None if there is none."""
    start = ip_start(frame.link_type, frame.data)
    datagram = reader.read(frame.data, start) if start is not None else None
    return decode_segment(datagram) if datagram is not None and datagram.protocol == PROTOCOL_TCP else None


class Reassembler:
    """Segments in, as they were captured; bytes in order out.

    A connection is known by its two ends, and each interface that saw it has streams of its own: what was
    captured at two places is counted at each.

    Args:
        connection_limit: how many connections are followed at a time.
    """

    def __init__(self, connection_limit: int = CONNECTION_LIMIT) -> None:
        self.connection_count = 0
        self.given_up_count = 0
        self._limit = connection_limit
        self._connections: OrderedDict[_Ends, _Connection] = OrderedDict()  # the lower end first
        self._held = _Held()
        self._opened: list[Stream] = []

    def feed(self, frame: Frame, segment: Segment) -> list[Arrival]:
        """What one segment lets be read, and the streams that it ends."""
        arrivals: list[Arrival] = []
        source, destination = segment.source, segment.destination
        ends = (source, destination) if source <= destination else (destination, source)
        connection = self._connections.get(ends)
        if connection is None or connection.is_over_for(frame.interface.number, segment):
            if connection is not None:
                arrivals += connection.settle()
            elif len(self._connections) >= self._limit:
                # More of this one would be taken for a connection of its own.
                self.given_up_count += 1
                _, oldest = self._connections.popitem(last=False)
                arrivals += oldest.settle()
            connection = self._connections[ends] = self._open(segment)
        self._connections.move_to_end(ends)

        direction, answer = connection.directions(frame.interface, segment, self._opened)
        direction.take(segment, frame)
        arrivals += direction.arrivals()
        if segment.flags & ACK:
            answer.acknowledged(segment.acknowledgment_number, frame.time_ns)
            arrivals += answer.arrivals()
        while self._held.total_bytes > HELD_LIMIT_BYTES:
            oldest_ends, oldest = next(iter(self._connections.items()))
            arrivals += oldest.let_go()
            self._connections.move_to_end(oldest_ends)
        return arrivals

    def take_opened(self) -> list[Stream]:
        """The streams that have begun since the last call, the opener's first."""
        opened, self._opened = self._opened, []
        return opened

    def finish(self) -> list[Arrival]:
        """The capture is over: what waits for earlier bytes waits no longer."""
        arrivals = [arrival for connection in self._connections.values() for arrival in connection.settle()]
        self._connections.clear()
        return arrivals

    def _open(self, segment: Segment) -> _Connection:
        # Only the answer to a SYN says by itself that its sender did not open the connection; else the port does.
        ends = (segment.source, segment.destination)
        answers = segment.flags & SYN and segment.flags & ACK
        serves = not segment.flags & SYN and segment.source.port == MSMQ_PORT != segment.destination.port
        connection = _Connection(self.connection_count, ends[::-1] if answers or serves else ends, self._held)
        self.connection_count += 1
        return connection


@dataclass(slots=True)
class _Held:
    """How many bytes all directions together hold."""

    total_bytes: int = 0


class _Connection:
    """Two ends, and what each interface saw of what they sent."""

    def __init__(self, number: int, ends: _Ends, held: _Held) -> None:
        self.number = number
        self.ends = ends
        self._held = held
        self._directions: dict[tuple[int, Endpoint], _Direction] = {}

    def is_over_for(self, interface: int, segment: Segment) -> bool:
        """Whether a segment begins another connection between the same ends."""
        direction = self._directions.get((interface, segment.source))
        if direction is None:
            # At another interface it begins once more, with the number that it had at the first.
            others = [one for (_, source), one in self._directions.items() if source == segment.source]
            return any(one.begins_anew(segment) for one in others)
        return direction.begins_anew(segment)

    def directions(
        self, interface: Interface, segment: Segment, opened: list[Stream]
    ) -> tuple[_Direction, _Direction]:
        """The direction that a segment goes, and the other one; streams that begin with it join `opened`."""
        number = interface.number
        if (number, segment.source) not in self._directions:
            for source, destination in (self.ends, self.ends[::-1]):
                stream = Stream(self.number, source, destination, interface)
                self._directions[number, source] = _Direction(stream, self._held)
                opened.append(stream)
        return self._directions[number, segment.source], self._directions[number, segment.destination]

    def settle(self) -> list[Arrival]:
        return [arrival for direction in self._directions.values() for arrival in direction.settle()]

    def let_go(self) -> list[Arrival]:
        return [arrival for direction in self._directions.values() for arrival in direction.let_go()]


class _Direction:
    """One side's segments on their way into a stream.

    Positions count the bytes of the stream from its initial sequence number, and do not wrap.
    """

    def __init__(self, stream: Stream, held: _Held) -> None:
        self.stream = stream
        self._held = held
        self._initial: int | None = None  # the sequence number of the SYN
        self._next: int | None = None  # the position that is due
        self._finish: int | None = None  # where the FIN stands
        self._early: list[_Early] = []  # a heap
        self._early_bytes = 0
        self._read: deque[tuple[int, bytes]] = deque()  # the last that was read, with its positions
        self._read_bytes = 0
        self._arrivals: list[Arrival] = []

    def begins_anew(self, segment: Segment) -> bool:
        """Whether a segment belongs to another connection; a SYN with the same number repeats that of this one."""
        if self._next is None:
            return False
        if segment.flags & SYN:
            return segment.sequence_number != self._initial
        return bool(segment.payload) and abs(self._position(segment.sequence_number)) > JUMP_LIMIT_BYTES

    def take(self, segment: Segment, frame: Frame) -> None:
        """Add what one segment brings."""
        start = segment.sequence_number
        if segment.flags & SYN:
            if self._next is None:
                self._initial = start
                self.stream.from_start = True
            start += 1
        if self._next is None:
            self._next = start
        position = self._next + self._position(start)
        if segment.payload:
            self._take_payload(position, segment.payload, frame)
        if segment.flags & FIN:
            self._finish = position + len(segment.payload)
            self.stream.ending = Ending.FINISHED
        if segment.flags & RST:
            self.stream.ending = Ending.RESET

    def arrivals(self) -> list[Arrival]:
        """What can be read since the last call."""
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def acknowledged(self, acknowledgment_number: int, time_ns: int) -> None:
        """The receiver has had everything before this number; what the capture still lacks of it is given up."""
        if not self._early or time_ns - self._early[0].time_ns < EARLY_LIMIT_NS:
            return
        assert self._next is not None
        if self._next + self._position(acknowledgment_number) >= self._early[0].position:
            self._skip_gap()

    def settle(self) -> list[Arrival]:
        """No more segments: what waits for earlier bytes waits no longer, and the stream ends."""
        arrivals = self.let_go()
        if self._next is not None and self._finish is not None and self._finish > self._next:
            self._count_gap(self._finish - self._next)
        arrivals.append(Arrival(self.stream, None))
        return arrivals

    def let_go(self) -> list[Arrival]:
        """Hold nothing more."""
        while self._early:
            self._skip_gap()
        self._forget(0)
        return self.arrivals()

    def _position(self, number: int) -> int:
        """A sequence number as a distance from what is due.

        Of all 32-bit numbers half lie before the one that is due, and half from it on.  [RFC 9293] 3.4
        """
        assert self._next is not None
        return (number - self._next + 2**31) % 2**32 - 2**31

    def _take_payload(self, position: int, payload: bytes, frame: Frame) -> None:
        assert self._next is not None
        if len(payload) == 1 and position == self._next - 1:
            # Windows repeats the last byte to ask whether anybody is there, and puts a zero in its place.
            self.stream.keep_alive_count += 1
            return
        if position > self._next:
            self.stream.early_count += 1
        heapq.heappush(self._early, _Early(position, frame.time_ns, frame.number, frame.offset, payload))
        self._early_bytes += len(payload)
        self._held.total_bytes += len(payload) + PIECE_COST_BYTES
        self._append_what_is_due(frame.time_ns)
        while self._early_bytes > EARLY_LIMIT_BYTES or len(self._early) > PIECE_LIMIT_COUNT:
            self._skip_gap()

    def _append_what_is_due(self, time_ns: int, missing_bytes: int = 0) -> None:
        assert self._next is not None
        while self._early and self._early[0].position <= self._next:
            position, early_ns, frame, offset, payload = heapq.heappop(self._early)
            self._early_bytes -= len(payload)
            self._held.total_bytes -= len(payload) + PIECE_COST_BYTES
            had_bytes = self._next - position
            if had_bytes:
                self.stream.retransmission_count += 1
                self.stream.conflict_count += self._says_else(position, payload)
            if had_bytes >= len(payload):
                continue
            data = payload[had_bytes:] if had_bytes else payload
            chunk = Chunk(max(time_ns, early_ns), data, missing_bytes, frame, offset)
            self._arrivals.append(Arrival(self.stream, chunk))
            self._remember(data)
            self._next += len(data)
            self.stream.data_bytes += len(data)
            missing_bytes = 0

    def _remember(self, data: bytes) -> None:
        """Keep what was read, to compare repetitions with, and no more of it than is worth it."""
        assert self._next is not None
        self._read.append((self._next, data))
        self._read_bytes += len(data)
        self._held.total_bytes += len(data) + PIECE_COST_BYTES
        self._forget(COMPARED_BYTES)

    def _forget(self, limit_bytes: int) -> None:
        while self._read and (self._read_bytes > limit_bytes or len(self._read) > PIECE_LIMIT_COUNT):
            _, oldest = self._read.popleft()
            self._read_bytes -= len(oldest)
            self._held.total_bytes -= len(oldest) + PIECE_COST_BYTES

    def _says_else(self, position: int, payload: bytes) -> bool:
        """Whether repeated bytes differ from what was read, as far as that is remembered."""
        end = position + len(payload)
        for at, data in reversed(self._read):
            if at + len(data) <= position:
                break
            first, last = max(at, position), min(at + len(data), end)
            if first < last and data[first - at : last - at] != payload[first - position : last - position]:
                return True
        return False

    def _skip_gap(self) -> None:
        """Go on behind bytes that the capture lacks."""
        assert self._next is not None
        first = self._early[0]
        missing_bytes = first.position - self._next
        self._count_gap(missing_bytes)
        self._next = first.position
        self._append_what_is_due(first.time_ns, missing_bytes)

    def _count_gap(self, missing_bytes: int) -> None:
        self.stream.gap_count += 1
        self.stream.missing_bytes += missing_bytes


class _Early(NamedTuple):
    """Payload at its position; the first in line is the lowest, and of equal ones the first to come."""

    position: int
    time_ns: int
    frame: int
    offset: int
    payload: bytes

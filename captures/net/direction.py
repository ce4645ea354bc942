"""One side's segments on their way into the bytes that it sent.  [RFC 9293] 3.4, 3.10.7.4

Segments are put in order and repeated bytes are dropped. What the capture never saw is left out. Both are counted, and
so are repetitions that say something else than the first copy did.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from captures.files.frame import NANOSECONDS, Frame, Interface
from captures.net.tcp import FIN, RST, SYN, Endpoint, Segment

EARLY_LIMIT_BYTES: Final = 1 << 20
"""Bytes that came early wait for those before them. When this many wait, those before them are not coming."""
EARLY_LIMIT_NS: Final = NANOSECONDS
"""Bytes that the receiver acknowledged this long ago, and the capture has not shown, are not coming either."""
COMPARED_BYTES: Final = 1 << 16
"""How much of what was read stays, to compare repetitions with."""
PIECE_LIMIT_COUNT: Final = 1_024
"""Neither may be more pieces than this, so that segments of one byte cost no more than others."""
PIECE_COST_BYTES: Final = 200
"""What keeping a piece costs beside its bytes."""
JUMP_LIMIT_BYTES: Final = 1 << 28
"""No window is as wide: a segment this far from what is due belongs to another connection between the same ports."""


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
    ahead: whether they acknowledge bytes of the other side that the capture has not shown before them.
    """

    time_ns: int
    data: bytes
    missing_bytes: int = 0
    frame: int = 0
    offset: int = 0
    ahead: bool = False


STREAM_COUNTS: Final = (
    "gap_count",
    "missing_bytes",
    "retransmission_count",
    "conflict_count",
    "early_count",
    "keep_alive_count",
)
"""What of a stream is counted, by the names that they have in `Stream` and wherever they are summed up."""


@dataclass(slots=True, eq=False)
class Stream:
    """What one side of one connection sent, as seen at one interface.

    connection: counted from 0 in the order of first frames, as Wireshark's tcp.stream.
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
    from_start: bool = False
    ending: Ending = Ending.OPEN
    data_bytes: int = 0
    gap_count: int = 0
    missing_bytes: int = 0
    retransmission_count: int = 0
    conflict_count: int = 0
    early_count: int = 0
    keep_alive_count: int = 0

    def add(self, later: Stream) -> None:
        """Count what was read of it later on as well."""
        self.from_start |= later.from_start
        if later.ending is not Ending.OPEN:
            self.ending = later.ending
        self.data_bytes += later.data_bytes
        for name in STREAM_COUNTS:
            setattr(self, name, getattr(self, name) + getattr(later, name))

    def __str__(self) -> str:
        return f"{self.source} > {self.destination}"


class Arrival(NamedTuple):
    """A chunk that can be read now, or None for the end of a stream: nothing more of it will come."""

    stream: Stream
    chunk: Chunk | None


@dataclass(slots=True)
class Held:
    """How many bytes all directions together hold."""

    total_bytes: int = 0


class Direction:
    """One side's segments on their way into a stream.

    Positions count the bytes of the stream from its initial sequence number, and do not wrap.
    """

    def __init__(self, stream: Stream, held: Held) -> None:
        self.stream = stream
        self._held = held
        self.reached_back = False  # whether bytes were repeated that may have been read before our time
        self._known_from: int | None = None  # nothing read before this is known; None: all is
        self._start: int | None = None  # the position that was due first
        self._initial: int | None = None  # the sequence number of the SYN
        self._next: int | None = None  # the position that is due
        self._finish: int | None = None  # where the FIN stands
        self._early: list[Early] = []  # a heap
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
            self._next = self._start = self._known_from = start
        position = self._next + self._position(start)
        if segment.payload:
            self._take_payload(position, segment.payload, frame)
        if segment.flags & FIN:
            self._finish = position + len(segment.payload)
            self.stream.ending = Ending.FINISHED
        if segment.flags & RST:
            self.stream.ending = Ending.RESET

    def take_run(
        self, start: int, size_bytes: int, from_start: bool, finish: int | None, ending: Ending
    ) -> None:
        """Add at once what a side sent in order, as its first segments: without repetition, hole or overtaking.

        Args:
            start: the sequence number of the first byte.
            from_start: the first segment had the SYN.
            finish: the sequence number of the FIN, if there was one, counted on from `start` without wrap.
        """
        assert self._next is None
        self._initial = start - 1 if from_start else None
        self._start = start
        self._next = self._known_from = start + size_bytes
        self._finish = finish
        self.stream.from_start = from_start
        self.stream.ending = ending
        self.stream.data_bytes = size_bytes

    def goes_on(self, sequence_number: int | None) -> bool:
        """Whether payload that begins with this number brings just what is due; if None, whether anything is due.

        Nothing may be waiting.
        """
        if self._next is None:
            return False
        return sequence_number is None or (sequence_number - self._next) % 2**32 == 0

    def take_more(self, sizes: Sequence[int], payload: Callable[[int], bytes]) -> None:
        """Add at once payloads that bring what is due, one behind the other.

        Args:
            sizes: in bytes.
            payload: gives one of them. Only those are asked for that are to be remembered.
        """
        assert self._next is not None
        first, kept_bytes = len(sizes), 0
        while first and kept_bytes <= COMPARED_BYTES and len(sizes) - first <= PIECE_LIMIT_COUNT:
            first -= 1
            kept_bytes += sizes[first]
        self._next += sum(sizes[:first])
        for place in range(first, len(sizes)):
            self._read.append((self._next, payload(place)))
            self._next += sizes[place]
        self._read_bytes += kept_bytes
        self._held.total_bytes += kept_bytes + PIECE_COST_BYTES * (len(sizes) - first)
        self._forget(COMPARED_BYTES)
        self.stream.data_bytes += sum(sizes)

    def is_continued_by(self, later: Direction) -> bool:
        """Whether `later` began where this one stands, and neither has anything that the other had to know."""
        if self._early or later._early or later.reached_back:
            return False
        if self._next is None or later._start is None or later._only_acknowledges:
            return True
        if later.stream.from_start and later._initial != self._initial:
            # A SYN that does not repeat ours begins another connection, whatever is due behind it.
            return False
        return (later._start - self._next) % 2**32 == 0

    def go_on_as(self, later: Direction) -> None:
        """Stand where `later` does, which continues this one. What was read is not remembered."""
        self.stream.add(later.stream)
        if self._next is None:
            self._initial, self._start, self._next, self._finish = (
                later._initial,
                later._start,
                later._next,
                later._finish,
            )
        elif later._next is not None and later._start is not None and not later._only_acknowledges:
            if later._finish is not None:
                self._finish = self._next + later._finish - later._start
            self._next += later._next - later._start
        self.forget()

    @property
    def _only_acknowledges(self) -> bool:
        """Whether all its segments were bare. Then nothing depends on their numbers, which behind a FIN are ahead."""
        said = self.stream.data_bytes or self.stream.retransmission_count or self.stream.keep_alive_count
        return not (said or self._early or self.stream.from_start or self._finish is not None)

    def forget(self) -> None:
        """Keep nothing to compare repetitions with."""
        self._forget(0)
        self._known_from = self._next

    @property
    def waits(self) -> bool:
        """Whether bytes wait for those before them."""
        return bool(self._early)

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
        heapq.heappush(self._early, Early(position, frame.time_ns, frame.number, frame.offset, payload))
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
            self._known_from = None
            self._read_bytes -= len(oldest)
            self._held.total_bytes -= len(oldest) + PIECE_COST_BYTES

    def _says_else(self, position: int, payload: bytes) -> bool:
        """Whether repeated bytes differ from what was read, as far as that is remembered."""
        end = position + len(payload)
        self.reached_back |= self._known_from is not None and position < self._known_from
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


class Early(NamedTuple):
    """Payload at its position; the first in line is the lowest, and of equal ones the first to come."""

    position: int
    time_ns: int
    frame: int
    offset: int
    payload: bytes

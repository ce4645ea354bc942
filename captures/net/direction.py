"""Turns one side's segments into the bytes that it sent.  [RFC 9293] 3.4, 3.10.7.4

Segments are put in order, and repeated bytes are dropped. Bytes that the capture never saw are left out, and so are
bytes that it cut from a frame: they will not come, so nothing waits for them. All of these bytes are counted, and so
are repetitions that contradict the first copy.

A hole is given up by amount, never by time, in two cases. Either too much waits after the hole. Or the other side has
acknowledged the hole's bytes, so that they are not sent again, and LATER_COUNT segments with later bytes have arrived.
`causality.py`, which puts both sides in order, gives up more.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from mqproto.captures.files.frame import Frame, Interface
from mqproto.captures.net.heads import opens_session
from mqproto.captures.net.recent import JUMP_LIMIT_BYTES, Contradiction, Held, Recent, cost_of, signed
from mqproto.captures.net.tcp import ACK, FIN, RST, SYN, Endpoint, Segment

EARLY_LIMIT_BYTES: Final = 1 << 20
"""The largest number of early bytes that wait for the bytes before them.

Beyond this limit, the bytes before them are given up.
"""
PIECE_LIMIT_COUNT: Final = 1_024
"""The largest number of early pieces that may wait, so that segments of one byte cost no more than others."""
LATER_COUNT: Final = 64
"""The largest number of later segments that may overtake a segment in a capture.

If more have overtaken it, the capture lacks the acknowledged bytes.
"""
OPENING_LIMIT_BYTES: Final = 1 << 16
"""The widest window of a SYN, in bytes.

So at most this many bytes can overtake a late SYN, and its stream may begin at most this many bytes after it.
"""


CONFLICT_LIMIT: Final = 8
"""The largest number of contradictions that are reported for each stream; all of them are counted."""


class Ending(Enum):
    """How a side stopped sending, as far as the capture shows."""

    OPEN = "open"
    FINISHED = "finished"
    RESET = "reset"


class Chunk(NamedTuple):
    """Bytes that became readable at one moment, all from one frame.

    time_ns: when the last segment needed for these bytes crossed the wire, in nanoseconds since 1970, UTC.
    missing_bytes: how many bytes the capture lacks right before these.
    frame: the number of the frame with these bytes.
    offset: the place of that frame's record in the file.
    cut_bytes: how many bytes right after these were cut from the frame by the capture.
    ahead: whether these bytes acknowledge bytes of the other side that the capture has not shown before them.
    """

    time_ns: int
    data: bytes
    missing_bytes: int = 0
    frame: int = 0
    offset: int = 0
    ahead: bool = False
    cut_bytes: int = 0


STREAM_COUNTS: Final = (
    "gap_count",
    "missing_bytes",
    "snapped_bytes",
    "retransmission_count",
    "conflict_count",
    "early_count",
    "keep_alive_count",
)
"""The names of a stream's counts, in `Stream` and wherever the counts are summed up."""


@dataclass(slots=True, eq=False)
class Stream:
    """The bytes that one side of one connection sent, as seen at one interface.

    connection: counted from 0 in the order of first frames, as Wireshark's tcp.stream.
    from_start: whether the capture has the SYN, or the answer to it, before any bytes. If so, the first chunk begins
        the stream, unless bytes are missing before it.
    opened: whether this side opened the connection, as shown by the SYN or the answer to it; None if the connection
        begins with neither.
    sent_bytes: the total size of the stream, including gaps, once it has ended. It ends with its FIN, or with its RST
        with an ACK, which comes after everything that was sent [RFC 9293] 3.10.5. None if neither was seen.
    came_bytes: how many of these bytes can have reached the other side. If that side reset the connection, it had
        received no more than its RST acknowledges. None if unknown.
    data_bytes: how many bytes could be read, without repetitions and gaps.
    gap_count, missing_bytes: how many gaps the capture has, and how many sent bytes it lacks there.
    snapped_bytes: how many of missing_bytes were cut from frames by the capture's snapshot length. Such cuts do not
        count as gaps.
    retransmission_count: how many segments had bytes that had been seen before.
    conflict_count: how many repetitions differed in at least one byte. `conflicts` has the first CONFLICT_LIMIT of
        them, and whether the first copy was read.
    early_count: how many segments came before earlier bytes of the stream, or without them.
    keep_alive_count: how many segments repeated the last byte to check that the other side is alive; the value of this
        byte means nothing.
    opposite: the stream of the other side; None for a stream on its own.
    """

    connection: int
    source: Endpoint
    destination: Endpoint
    interface: Interface = field(default_factory=Interface)
    from_start: bool = False
    ending: Ending = Ending.OPEN
    sent_bytes: int | None = None
    came_bytes: int | None = None
    data_bytes: int = 0
    gap_count: int = 0
    missing_bytes: int = 0
    snapped_bytes: int = 0
    retransmission_count: int = 0
    conflict_count: int = 0
    early_count: int = 0
    keep_alive_count: int = 0
    conflicts: list[Contradiction] = field(default_factory=list)
    opposite: Stream | None = field(default=None, repr=False)
    opened: bool | None = None

    def contradict(self, first: Frame, second: Frame, *, is_read: bool = True) -> None:
        """Count a conflict between two frames, which have different bytes for the same place.

        Args:
            is_read: as in Contradiction.
        """
        self.conflict_count += 1
        if len(self.conflicts) < CONFLICT_LIMIT:
            self.conflicts.append(Contradiction.between(first, second)._replace(is_read=is_read))

    def said_of_conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield a finding about each recorded conflict, as a code and a text."""
        for first, second, damaged, is_read in self.conflicts:
            text = f"{self}: frames {first} and {second} have other bytes for the same place of the stream"
            if damaged:
                yield (
                    "damaged-frame",
                    f"{text}; the checksum of frame {damaged} does not fit, so that it was not taken",
                )
            else:
                unread = "" if is_read else ", so that neither was taken"
                yield "contradiction", f"{text}; which the receiver took is not known{unread}"

    def __str__(self) -> str:
        return f"{self.source} > {self.destination}"


class Arrival(NamedTuple):
    """A chunk that can be read now, or None at the end of a stream."""

    stream: Stream
    chunk: Chunk | None


class InPlace(NamedTuple):
    """A chunk at its position among those of its side.

    start: the position of its first byte.
    needs: the acknowledgment number of its segment; None if the segment had none.
    """

    start: int
    needs: int | None
    chunk: Chunk


class Direction:
    """Turns one side's segments into a stream.

    Positions count the bytes of the stream from its initial sequence number, and do not wrap around.
    """

    def __init__(self, stream: Stream, held: Held) -> None:
        self.stream = stream
        self._held = held
        self._recent = Recent(held)
        self._start: int | None = None  # the position that was due first
        self._initial: int | None = None  # the sequence number of the SYN
        self._next: int | None = None  # the position that is due
        self._finish: int | None = None  # the position of the FIN
        self.reset_at: int | None = None  # the sequence number of its RST with an ACK
        self.dropped_at: int | None = None  # what the other side's RST acknowledges
        self._early: list[Early] = []  # a heap
        self._early_bytes = 0
        self._base: int | None = None  # what was acknowledged first, if that was before anything was seen
        self._acknowledged: int | None = None  # the furthest position that was acknowledged
        self._in_place: list[InPlace] = []
        self._taken_count = 0

    def begins_anew(self, segment: Segment) -> bool:
        """Whether a segment belongs to another connection.

        A SYN with the same number as our SYN repeats ours. If we began without a SYN, a SYN right before our start is
        only late. So is a SYN shortly before our start; the capture then lacks the bytes in between.

        If a handshake is missing, positions and bytes tell: bytes before our SYN, or after the end of the connection
        unless they repeat ours. So do the bytes with which a session begins, far ahead of what is due or in place of
        others.
        """
        if self._next is None:
            return False
        if segment.flags & SYN:
            return not self._is_begun_by(segment.sequence_number)
        number, payload = segment.sequence_number, segment.payload
        distance, size_bytes = self._distance(number), len(payload) + segment.cut_bytes
        if segment.flags & RST or (size_bytes == 1 and distance == -1):
            return bool(payload) and abs(distance) > JUMP_LIMIT_BYTES
        if self.is_past_end(number, size_bytes):
            return True
        assert self._start is not None
        position = self._next + distance
        is_opening = distance != 0 and position > self._start and opens_session(payload)
        # Before a late start, bytes may come again that were not seen the first time.
        unseen_bytes = 0 if self.stream.from_start or self.is_over else EARLY_LIMIT_BYTES
        return bool(payload) and (
            abs(distance) > JUMP_LIMIT_BYTES
            or position < self._start - unseen_bytes
            or (is_opening and distance > OPENING_LIMIT_BYTES)
            or ((self.is_over or is_opening) and self._recent.contradicted_by(position, payload) is not None)
        )

    def is_past_end(self, number: int, size_bytes: int = 0) -> bool:
        """Whether a sequence or acknowledgment number is beyond everything that this side can have sent.

        A side sends no bytes after its FIN. What is on its way when the connection is reset fits in a window.

        Args:
            size_bytes: how many bytes were sent from there on.
        """
        if self._next is None or not (self.is_over or (size_bytes and self._finish is not None)):
            return False
        position = self._next + self._distance(number)
        if self._finish is None:
            return position > self._next + OPENING_LIMIT_BYTES
        return position + size_bytes > self._finish + (not size_bytes)

    @property
    def is_over(self) -> bool:
        """Whether both sides have sent a FIN, or one has reset the connection."""
        opposite = self.stream.opposite
        endings = (self.stream.ending, Ending.OPEN if opposite is None else opposite.ending)
        return Ending.RESET in endings or Ending.OPEN not in endings

    def take(self, segment: Segment, frame: Frame) -> None:
        """Add the content of one segment."""
        start = segment.sequence_number
        if segment.flags & SYN:
            start += 1
            self._begin(start)
        elif self._next is None:
            self._start_at(start)
        assert self._next is not None
        position = self._next + self._distance(start)
        if segment.payload:
            needs = segment.acknowledgment_number if segment.flags & ACK else None
            self._take_payload(position, segment, needs, frame)
        if segment.flags & FIN:
            self._finish = position + len(segment.payload) + segment.cut_bytes
            self.stream.ending = Ending.FINISHED
        if segment.flags & RST:
            self.stream.ending = Ending.RESET

    def acknowledged(self, number: int, *, first: bool) -> None:
        """Record that the receiver has everything before this number.

        Args:
            first: whether the acknowledgment answers our SYN, so that the stream begins here.
        """
        if first and (self._next is None or self._is_begun_by((number - 1) % 2**32)):
            self._begin(number)
        if self._next is None:
            if self._base is None or self._acknowledged is None:
                self._base = self._acknowledged = number
            else:
                distance = signed(number - self._acknowledged)
                if 0 < distance <= JUMP_LIMIT_BYTES:
                    self._acknowledged += distance
            return
        position = self._next + self._distance(number)
        if position - self._next <= JUMP_LIMIT_BYTES:
            self._acknowledge(position)
            self._give_up_acknowledged()

    def forget(self, before: int) -> None:
        """Compare repetitions only with frames from this number on."""
        self._recent.forget(before)

    @property
    def due(self) -> int | None:
        """The position of the next expected byte; None if nothing of the stream has been seen."""
        return self._next

    @property
    def read_to(self) -> int | None:
        """The number up to which everything was read, including a FIN; None if nothing of the stream has been seen."""
        return self._next if self._next is None or self._next != self._finish else self._next + 1

    @property
    def has_hole(self) -> bool:
        """Whether bytes wait for earlier bytes."""
        return bool(self._early)

    def in_place(self) -> list[InPlace]:
        """Return the chunks that were put in place since the last call."""
        if not self._in_place:
            return []
        in_place, self._in_place = self._in_place, []
        return in_place

    def give_up_before(self, number: int) -> None:
        """Stop waiting for bytes before this number, because they were acknowledged."""
        while self._next is not None and self._early:
            if self._early[0].position > self._next + self._distance(number):
                break
            self._skip_gap()

    def give_up(self) -> None:
        """Give up all holes: bytes no longer wait for earlier bytes."""
        while self._early:
            self._skip_gap()
        self._recent.forget()

    def settle(self) -> None:
        """End the stream: missing bytes will no longer come."""
        self.give_up()
        lacking_bytes = self._lacking_bytes
        if lacking_bytes > 0:
            self._count_gap(lacking_bytes)
        stream = self.stream
        known_bytes = stream.data_bytes + stream.missing_bytes
        stream.sent_bytes = stream.came_bytes = None
        if self._finish is not None:
            stream.sent_bytes = known_bytes
        elif (behind_bytes := self._behind(self.reset_at)) is not None and behind_bytes >= 0:
            stream.sent_bytes = known_bytes + max(0, behind_bytes - lacking_bytes)
        stream.came_bytes = stream.sent_bytes
        if self._finish is None and (behind_bytes := self._behind(self.dropped_at)) is not None:
            came_bytes = known_bytes + max(0, behind_bytes - lacking_bytes)
            if stream.sent_bytes is None or came_bytes < stream.sent_bytes:
                stream.came_bytes = came_bytes

    def _behind(self, number: int | None) -> int | None:
        """Return how many bytes a sequence number is beyond the bytes read so far.

        The result is negative if the number is among those bytes. Return None if there is no number, if nothing has
        been read yet, or if the number belongs to another connection.
        """
        if number is None or self._next is None:
            return None
        distance = self._distance(number)
        return distance if abs(distance) <= JUMP_LIMIT_BYTES else None

    @property
    def _lacking_bytes(self) -> int:
        """How many bytes at the end of the stream are missing although they were sent, as far as is known."""
        if self._next is not None and self._finish is not None:
            return self._finish - self._next
        known = self._next if self._next is not None else self._base
        if known is None or self._acknowledged is None:
            return 0
        lacking_bytes = self._acknowledged - known
        # A surplus of one number is that of a FIN.
        return lacking_bytes if lacking_bytes > 1 else 0

    def _begin(self, start: int) -> None:
        """Begin the stream with the number in its SYN, or in the answer to the SYN."""
        if self._next is None:
            self._start_at(start)
        assert self._next is not None
        if self._initial is None:
            self._initial = (start - 1) % 2**32
            # What was read before counts as data that may begin anywhere.
            if not self.stream.data_bytes:
                self.stream.from_start = True
                # A bare acknowledgment may have come before the first bytes.
                self._next += self._distance(start)
                self._start = self._next

    def _start_at(self, start: int) -> None:
        acknowledged, self._acknowledged = self._acknowledged, None
        self._next = self._start = start
        if acknowledged is not None:
            self._acknowledge(start + self._distance(acknowledged))

    def _is_begun_by(self, number: int) -> bool:
        """Whether a SYN with this number is the SYN of this stream, which has begun."""
        if self._initial is not None:
            return number == self._initial
        assert self._start is not None
        assert self._next is not None
        lost_bytes = signed(self._start - number - 1)
        is_near = lost_bytes <= OPENING_LIMIT_BYTES and self._next - self._start <= OPENING_LIMIT_BYTES
        return not lost_bytes or (lost_bytes > 0 and is_near)

    def _distance(self, number: int) -> int:
        """Return how far a sequence number is beyond the next expected byte; negative for an earlier one."""
        assert self._next is not None
        return signed(number - self._next)

    def _acknowledge(self, position: int) -> None:
        if self._acknowledged is None or position > self._acknowledged:
            self._acknowledged = position

    def _take_payload(self, position: int, segment: Segment, needs: int | None, frame: Frame) -> None:
        assert self._next is not None
        payload, cut_bytes = segment.payload, segment.cut_bytes
        if len(payload) == 1 and position == self._next - 1 and not cut_bytes:
            # Windows repeats the last byte to ask whether anybody is there, and sends a zero in its place.
            self.stream.keep_alive_count += 1
            return
        if position == self._next and not self._early:
            # Nearly always.
            chunk = Chunk(frame.time_ns, payload, 0, frame.number, frame.offset, cut_bytes=cut_bytes)
            self._put(payload, needs, chunk, frame)
            return
        if position > self._next:
            self.stream.early_count += 1
        self._taken_count += 1
        count = self._taken_count
        heapq.heappush(self._early, Early(position, count, frame, needs, payload, cut_bytes))
        self._early_bytes += len(payload)
        self._held.total_bytes += cost_of(payload, frame)
        self._append_what_is_due(frame.time_ns)
        while self._early_bytes > EARLY_LIMIT_BYTES or len(self._early) > PIECE_LIMIT_COUNT:
            self._skip_gap()
        self._give_up_acknowledged()

    def _give_up_acknowledged(self) -> None:
        """Skip gaps whose bytes were acknowledged, and so are not sent again.

        A gap is skipped once more than LATER_COUNT pieces wait after it.
        """
        while len(self._early) > LATER_COUNT and self._acknowledged is not None:
            if self._acknowledged < self._early[0].position:
                break
            self._skip_gap()

    def _append_what_is_due(self, time_ns: int, missing_bytes: int = 0) -> None:
        assert self._next is not None
        while self._early and self._early[0].position <= self._next:
            position, _, frame, needs, payload, cut_bytes = heapq.heappop(self._early)
            self._early_bytes -= len(payload)
            self._held.total_bytes -= cost_of(payload, frame)
            had_bytes = self._next - position
            if had_bytes:
                self.stream.retransmission_count += 1
                first = self._recent.contradicted_by(position, payload)
                if first is not None:
                    self.stream.contradict(first, frame)
            if had_bytes >= len(payload):
                continue
            data = payload[had_bytes:] if had_bytes else payload
            early_ns = max(time_ns, frame.time_ns)
            chunk = Chunk(early_ns, data, missing_bytes, frame.number, frame.offset, cut_bytes=cut_bytes)
            self._put(data, needs, chunk, frame)
            missing_bytes = 0

    def _put(self, data: bytes, needs: int | None, chunk: Chunk, frame: Frame) -> None:
        """Put a chunk in the next place; bytes that the capture cut from its frame are not waited for."""
        assert self._next is not None
        self._in_place.append(InPlace(self._next, needs, chunk))
        self._recent.add(self._next, data, frame)
        self._next += len(data)
        self.stream.data_bytes += len(data)
        if chunk.cut_bytes:
            self.stream.missing_bytes += chunk.cut_bytes
            self.stream.snapped_bytes += chunk.cut_bytes
            self._next += chunk.cut_bytes

    def _skip_gap(self) -> None:
        """Continue after bytes that the capture lacks."""
        assert self._next is not None
        first = self._early[0]
        missing_bytes = first.position - self._next
        self._count_gap(missing_bytes)
        self._next = first.position
        self._append_what_is_due(first.frame.time_ns, missing_bytes)

    def _count_gap(self, missing_bytes: int) -> None:
        self.stream.gap_count += 1
        self.stream.missing_bytes += missing_bytes


class Early(NamedTuple):
    """Payload at its position.

    When sorted, the lowest position comes first; among equal positions, the payload that arrived first.
    """

    position: int
    order: int
    frame: Frame
    needs: int | None
    payload: bytes
    cut_bytes: int

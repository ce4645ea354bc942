"""One end of a connection at one interface: its bytes, and the chunks that wait for bytes that they acknowledge."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.direction import Arrival, Chunk, Direction, Ending, Stream
from mqproto.captures.net.recent import JUMP_LIMIT_BYTES, PIECE_COST_BYTES, Held, signed


class Lag(IntEnum):
    """How much the capture has shown of the bytes that a segment acknowledges."""

    NONE = 0
    SKIPPED = 1
    """Some of these bytes will not come, and no later bytes have reported the gap yet."""
    LACKING = 2


class Waiting(NamedTuple):
    """A chunk in its place, and the bytes that it waits for.

    start, needs: as in mqproto.captures.net.direction.InPlace.
    came: how many segments of both sides had arrived when the chunk was queued.
    other_came: how many segments of the other side had arrived by then.
    """

    start: int
    needs: int | None
    chunk: Chunk
    came: int
    other_came: int


class Sender(Direction):
    """A direction whose chunks wait for the bytes that they acknowledge.

    Attributes:
        segment_count: how many segments of this direction have arrived.
        absent: whether nothing waits for this direction until it is seen again. It has then not been seen for a long
            time, although its bytes were acknowledged.
        queue: the waiting chunks, in order; `queue_bytes` is their size.
    """

    def __init__(self, stream: Stream, held: Held) -> None:
        super().__init__(stream, held)
        self.segment_count = 0
        self.absent = False
        self.queue: deque[Waiting] = deque()
        self.queue_bytes = 0

    def queue_up(self, came: int, other_came: int) -> bool:
        """Queue the bytes that are in place; return whether there were any."""
        in_place = self.in_place()
        if not in_place:
            return False
        for start, needs, chunk in in_place:
            self.queue.append(Waiting(start, needs, chunk, came, other_came))
            self.queue_bytes += len(chunk.data)
            self._held.total_bytes += len(chunk.data) + PIECE_COST_BYTES
        return True

    def pass_on(self, other: Sender) -> list[Arrival]:
        """Return the bytes in place that do not have to wait, if nothing waits on either side."""
        arrivals: list[Arrival] = []
        if other._in_place:
            return arrivals  # This segment has just released what they waited for: ours may answer them.
        for _, needs, chunk in self._in_place:
            if other.lag(needs) is not Lag.NONE:
                break
            arrivals.append(Arrival(self.stream, chunk))
        del self._in_place[: len(arrivals)]
        return arrivals

    def hand_out(self, *, ahead: bool) -> Arrival:
        """Take the first chunk from the queue, and mark it as ahead if `ahead` is set."""
        chunk = self.queue.popleft().chunk
        self.queue_bytes -= len(chunk.data)
        self._held.total_bytes -= len(chunk.data) + PIECE_COST_BYTES
        return Arrival(self.stream, chunk._replace(ahead=True) if ahead else chunk)

    def lag(self, needs: int | None) -> Lag:
        """Return how much the capture has shown of the bytes before this acknowledgment number."""
        if needs is None:
            return Lag.NONE
        if self.absent:
            return Lag.SKIPPED
        if self._next is None:
            known = self._base is not None and signed(needs - self._base) <= 0
            return Lag.NONE if known else Lag.LACKING
        distance = self._distance(needs)
        if distance > JUMP_LIMIT_BYTES:
            return Lag.NONE  # It belongs to another connection.
        position = self._next + distance
        if self._finish is not None and position == self._finish + 1:
            position = self._finish
        if not self.queue:
            return Lag.LACKING if position > self._next else Lag.NONE
        first = self.queue[0]
        if position > first.start:
            return Lag.LACKING
        return Lag.SKIPPED if position > first.start - first.chunk.missing_bytes else Lag.NONE

    @property
    def waits(self) -> bool:
        """Whether chunks wait for bytes of the other side."""
        return bool(self.queue) or self.has_hole

    # Many segments at once

    def begin_with(self, start: int, from_start: bool) -> None:
        """Begin with the sequence number of the first byte.

        Args:
            from_start: whether the first segment had the SYN.
        """
        assert self._next is None
        self._initial = (start - 1) % 2**32 if from_start else None
        self._start = self._next = start
        self.stream.from_start = from_start

    def end_with(self, finish: int | None, ending: Ending) -> None:
        """Record how this end stopped sending.

        Args:
            finish: the sequence number of the FIN, if there was one, counted from the beginning without wrapping
                around.
        """
        self._finish = finish
        self.stream.ending = ending

    def hear(self, base: int | None, acknowledged: int | None) -> None:
        """Record, in one call, how far the other side has acknowledged our bytes.

        Args:
            base: the first acknowledged number, if it came before our first segment.
            acknowledged: the furthest acknowledged position.
        """
        self._base, self._acknowledged = base, acknowledged

    def goes_on(self, sequence_number: int | None) -> bool:
        """Whether a payload with this sequence number directly continues the bytes so far.

        If the number is None, return whether the next number is known. The caller makes sure that nothing is waiting.
        """
        if self._next is None or self.is_over:
            return False
        if sequence_number is not None and self._next == self._finish:
            return False
        return sequence_number is None or (sequence_number - self._next) % 2**32 == 0

    def take_more(self, sizes: Sequence[int], pieces: Callable[[int], Iterable[tuple[bytes, Frame]]]) -> None:
        """Add several payloads at once, each of which directly follows the one before it.

        Args:
            sizes: the sizes of the payloads in bytes.
            pieces: a function that takes an index, and returns the payloads from that index on with their frames. It is
                called only for the payloads to be remembered.
        """
        assert self._next is not None
        self._next = self._recent.add_many(self._next, sizes, pieces)
        self.stream.data_bytes += sum(sizes)

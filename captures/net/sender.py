"""One end of a connection at one interface: what it sent, and what still waits for bytes that it acknowledges.

A capture may be read in ranges at the same time (mqproto.captures.pipeline). Then a sender of a range is *assumed*:
what was seen before the range is taken to be all that the other side acknowledges. Assumptions are recorded, and
proved where two ranges meet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.direction import Arrival, Chunk, Direction, Ending, Stream
from mqproto.captures.net.recent import JUMP_LIMIT_BYTES, PIECE_COST_BYTES, Held, signed


class Lag(IntEnum):
    """How much the capture has shown of the bytes that a segment acknowledges."""

    NONE = 0
    SKIPPED = 1
    """Some will not come, and the bytes behind the gap have not told so yet."""
    LACKING = 2


class Waiting(NamedTuple):
    """A chunk in its place, and what it waits for.

    start, needs: as in mqproto.captures.net.direction.InPlace.
    came, other_came: how many segments of both sides, and of the other side, had come with it.
    """

    start: int
    needs: int | None
    chunk: Chunk
    came: int
    other_came: int


class Sender(Direction):
    """A direction whose chunks wait for what they acknowledge.

    Args:
        assumed: whether it has an unknown past, and everything acknowledged before its first segment counts as
            read.

    Attributes:
        segment_count: how many of its segments have come.
        absent: it has shown nothing for so long, though its bytes were acknowledged, that nothing waits for it until
            it is seen again.
        queue: the waiting chunks, in order; they have `queue_bytes`.
        undecided: whether, without a past, its first segment may have overtaken others.
    """

    def __init__(self, stream: Stream, held: Held, *, assumed: bool = False) -> None:
        super().__init__(stream, held)
        self.segment_count = 0
        self.absent = False
        self.queue: deque[Waiting] = deque()
        self.queue_bytes = 0
        self.undecided = False
        self._assumed = assumed
        self._needed_unseen: int | None = None  # the furthest that was needed before its first segment
        self._needed_bare: int | None = None  # and before its first bytes
        self._is_torn = False  # whether numbers are so far apart that none is the furthest

    def queue_up(self, came: int, other_came: int) -> bool:
        """Queue what is in its place; return whether there was anything."""
        in_place = self.in_place()
        if not in_place:
            return False
        for start, needs, chunk in in_place:
            self.queue.append(Waiting(start, needs, chunk, came, other_came))
            self.queue_bytes += len(chunk.data)
            self._held.total_bytes += len(chunk.data) + PIECE_COST_BYTES
        return True

    def pass_on(self, other: Sender) -> list[Arrival]:
        """Return what is in place and need not wait, if nothing waits on either side; the rest stays where it is."""
        arrivals: list[Arrival] = []
        if other._in_place:
            return arrivals  # This segment has just released what they waited for: ours may answer them.
        for _, needs, chunk in self._in_place:
            if other.lag(needs) is not Lag.NONE:
                break
            if needs is not None:
                other.note_needed(needs)
            arrivals.append(Arrival(self.stream, chunk))
        del self._in_place[: len(arrivals)]
        return arrivals

    def hand_out(self, *, ahead: bool) -> Arrival:
        """Take the first chunk from the queue."""
        chunk = self.queue.popleft().chunk
        self.queue_bytes -= len(chunk.data)
        self._held.total_bytes -= len(chunk.data) + PIECE_COST_BYTES
        return Arrival(self.stream, chunk._replace(ahead=True) if ahead else chunk)

    def lag(self, needs: int | None) -> Lag:
        """Return how much is missing of the bytes before the other side's acknowledgment number."""
        if needs is None:
            return Lag.NONE
        if self.absent:
            return Lag.SKIPPED
        if self._next is None:
            known = self._base is not None and signed(needs - self._base) <= 0
            return Lag.NONE if known or self._assumed else Lag.LACKING
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
        """Whether bytes wait for others."""
        return bool(self.queue) or self.has_hole

    # Ranges of a capture

    def note_needed(self, needs: int) -> None:
        """While assumed, note that the other side has handed out bytes that need this number."""
        if not self._assumed:
            return
        if self._needed_bare is not None and not self.stream.data_bytes:
            self._is_torn |= _is_far(needs, self._needed_bare)
        if self._next is None:
            self._needed_unseen = _later(self._needed_unseen, needs)
        if not self.stream.data_bytes:
            self._needed_bare = _later(self._needed_bare, needs)

    def hear(
        self, base: int | None, acknowledged: int | None, needed_unseen: int | None, needed_bare: int | None
    ) -> None:
        """Add at once what the other side has acknowledged, together with what `take_run` adds.

        Args:
            base: the first number, if it came before our first segment.
            acknowledged: the furthest position.
            needed_unseen, needed_bare: the furthest that its bytes needed before our first segment, and before our
                first bytes.
        """
        self._base, self._acknowledged = base, acknowledged
        self._needed_unseen, self._needed_bare = needed_unseen, needed_bare

    @property
    def stands_alone(self) -> bool:
        """Whether all assumptions would also hold for a reader without any past."""
        return not self.undecided and self._is_known_from(self._base)

    def know(self) -> None:
        """Take all assumptions as proved."""
        self._assumed = False
        self._needed_unseen = self._needed_bare = None
        self._is_torn = self.undecided = False

    def take_run(
        self, start: int, size_bytes: int, from_start: bool, finish: int | None, ending: Ending
    ) -> None:
        """Add at once what a side sent in order as its first segments: no repetition, hole or overtaking.

        Args:
            start: the sequence number of the first byte.
            from_start: the first segment had the SYN.
            finish: the sequence number of the FIN, if there was one, counted on from `start` without wrap.
        """
        assert self._next is None
        self._initial = (start - 1) % 2**32 if from_start else None
        self._start = start
        self._next = start + size_bytes
        self._recent.forget(self._next)
        self._finish = finish
        self.stream.from_start = from_start
        self.stream.ending = ending
        self.stream.data_bytes = size_bytes

    def goes_on(self, sequence_number: int | None) -> bool:
        """Whether payload that begins with this number brings exactly what is due; for None, whether anything is due.

        Nothing may be waiting.
        """
        if self._next is None:
            return False
        return sequence_number is None or (sequence_number - self._next) % 2**32 == 0

    def take_more(self, sizes: Sequence[int], payload: Callable[[int], tuple[bytes, Frame]]) -> None:
        """Add at once payloads that bring what is due, one behind the other.

        Args:
            sizes: in bytes.
            payload: returns one of them, and its frame. It is called only for those to be remembered.
        """
        assert self._next is not None
        self._next = self._recent.add_many(self._next, sizes, payload)
        self.stream.data_bytes += sum(sizes)

    def is_continued_by(self, later: Sender) -> bool:
        """Whether `later` began where this one ends, and neither has anything that the other needed to know."""
        if self.waits or later.waits or later.reached_back or (self._next is None and later.undecided):
            return False
        if self.absent:
            # Without a segment from it, all that the other side sends still goes out ahead.
            return later._next is None
        heard_to = self._next if self._next is not None else self._acknowledged
        if any(_is_far(heard_to, one) for one in (later._base, later._start)):
            return False
        if not later._is_known_from(self._base if self._base is not None else later._base, self):
            return False
        if self._next is None or later._start is None or later._only_acknowledges:
            return True
        if later._initial is not None and not self._is_begun_by(later._initial):
            # A SYN that does not repeat ours begins another connection, whatever is due after it.
            return False
        return (later._start - self._next) % 2**32 == 0 and self._lacking_bytes <= 0

    def go_on_as(self, later: Sender) -> None:
        """Move to where `later`, which continues this one, is. What was read is not remembered."""
        self.stream.add(later.stream)
        self.absent |= later.absent
        if later.reset_at is not None:
            self.reset_at = later.reset_at
        if later.dropped_at is not None:
            self.dropped_at = later.dropped_at
        if self._next is None and (later._next is not None or self._base is None):
            acknowledged = self._acknowledged
            self._initial, self._start, self._next = later._initial, later._start, later._next
            self._finish, self._acknowledged = later._finish, later._acknowledged
            if self._base is None:
                self._base = later._base
            if acknowledged is not None and self._next is not None:
                self._acknowledge(self._next + self._distance(acknowledged))
        elif self._next is not None and later._next is not None and not later._only_acknowledges:
            assert later._start is not None
            shift = self._next - later._start
            if self._initial is None:
                self._initial = later._initial
            if later._finish is not None:
                self._finish = later._finish + shift
            self._next = later._next + shift
            if later._acknowledged is not None:
                self._acknowledge(later._acknowledged + shift)
        elif later._acknowledged is not None:
            self.acknowledged(later._acknowledged % 2**32, first=False)
        self.forget()

    def _is_known_from(self, base: int | None, before: Sender | None = None) -> bool:
        """Whether all that the other side's bytes needed had been shown before.

        Args:
            base: what had been acknowledged first, if nothing had been seen of it.
            before: the sender of the range before it.
        """
        if self._is_torn:
            return False
        if before is not None and before._next is not None:
            needed = self._needed_bare
            return needed is None or (before.lag(needed) is Lag.NONE and not _is_far(needed, before._next))
        needed = self._needed_unseen
        if needed is None:
            return True
        return base is not None and signed(needed - base) <= 0 and not _is_far(needed, base)

    @property
    def _only_acknowledges(self) -> bool:
        """Whether all its segments were bare. Then nothing depends on their numbers, which are ahead behind a FIN."""
        said = self.stream.data_bytes or self.stream.retransmission_count or self.stream.keep_alive_count
        return not (said or self.has_hole or self.stream.from_start or self._finish is not None)


def _is_far(one: int | None, other: int | None) -> bool:
    """Whether two sequence numbers, if known, cannot belong to one connection."""
    return one is not None and other is not None and abs(signed(one - other)) > JUMP_LIMIT_BYTES


def _later(one: int | None, other: int) -> int:
    """Return the later of two sequence numbers."""
    return other if one is None or signed(other - one) > 0 else one

"""One end of a connection at one interface: what it sent, and what of that still waits for what it acknowledges.

A capture may be read in ranges at the same time (mqproto.captures.pipeline). Then a sender of a range is *assumed*:
what was seen of it before is taken to be all that the other side acknowledges. What is assumed is written down, and
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
    """What the capture has shown of what a segment acknowledges."""

    NONE = 0
    SKIPPED = 1
    """Some of it will not come, and what comes behind that does not yet say so."""
    LACKING = 2


class Waiting(NamedTuple):
    """A chunk in its place, and what it waits for.

    start, needs: as of mqproto.captures.net.direction.InPlace.
    came, other_came: how many segments of both sides, and of the other one, had come with it.
    """

    start: int
    needs: int | None
    chunk: Chunk
    came: int
    other_came: int


class Sender(Direction):
    """A direction whose chunks wait for what they acknowledge.

    Args:
        assumed: whether it had a past that is not known, and all that was acknowledged before its first segment is
            taken to be read.

    Attributes:
        segment_count: how many segments of it have come.
        absent: it has shown nothing for so long, though its bytes were acknowledged, that nothing waits for it until
            it is seen again.
        queue: what waits, in its order; `queue_bytes` are in it.
        undecided: whether, if it had no past, its first segment may have overtaken others.
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
        self._is_torn = False  # whether numbers are so far apart that none of them is the furthest

    def queue_up(self, came: int, other_came: int) -> bool:
        """Have what is in its place wait; whether there is anything new."""
        in_place = self.in_place()
        if not in_place:
            return False
        for start, needs, chunk in in_place:
            self.queue.append(Waiting(start, needs, chunk, came, other_came))
            self.queue_bytes += len(chunk.data)
            self._held.total_bytes += len(chunk.data) + PIECE_COST_BYTES
        return True

    def pass_on(self, other: Sender) -> list[Arrival]:
        """What is in its place and need not wait, if nothing does on either side; the rest stays where it is."""
        arrivals: list[Arrival] = []
        if other._in_place:
            return arrivals  # This segment has just given up what they waited for: they may be what ours answers.
        for _, needs, chunk in self._in_place:
            if other.lag(needs) is not Lag.NONE:
                break
            if needs is not None:
                other.note_needed(needs)
            arrivals.append(Arrival(self.stream, chunk))
        del self._in_place[: len(arrivals)]
        return arrivals

    def hand_out(self, *, ahead: bool) -> Arrival:
        """The first that waits."""
        chunk = self.queue.popleft().chunk
        self.queue_bytes -= len(chunk.data)
        self._held.total_bytes -= len(chunk.data) + PIECE_COST_BYTES
        return Arrival(self.stream, chunk._replace(ahead=True) if ahead else chunk)

    def lag(self, needs: int | None) -> Lag:
        """What is lacking of the bytes before an acknowledgment number of the other side's."""
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
        """While it is assumed: the other side has handed out bytes that need this."""
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
        """Add at once what the other side has acknowledged, with what `take_run` adds.

        Args:
            base: the first number, if it came before the first segment of ours.
            acknowledged: the furthest position.
            needed_unseen, needed_bare: the furthest that its bytes needed before our first segment, and before our
                first bytes.
        """
        self._base, self._acknowledged = base, acknowledged
        self._needed_unseen, self._needed_bare = needed_unseen, needed_bare

    @property
    def stands_alone(self) -> bool:
        """Whether nothing was assumed that a reader would not know who had seen nothing before."""
        return not self.undecided and self._is_known_from(self._base)

    def know(self) -> None:
        """All that was assumed is so."""
        self._assumed = False
        self._needed_unseen = self._needed_bare = None
        self._is_torn = self.undecided = False

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
        self._initial = (start - 1) % 2**32 if from_start else None
        self._start = start
        self._next = start + size_bytes
        self._recent.forget(self._next)
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

    def take_more(self, sizes: Sequence[int], payload: Callable[[int], tuple[bytes, Frame]]) -> None:
        """Add at once payloads that bring what is due, one behind the other.

        Args:
            sizes: in bytes.
            payload: gives one of them, and its frame. Only those are asked for that are to be remembered.
        """
        assert self._next is not None
        self._next = self._recent.add_many(self._next, sizes, payload)
        self.stream.data_bytes += sum(sizes)

    def is_continued_by(self, later: Sender) -> bool:
        """Whether `later` began where this one stands, and neither has anything that the other had to know."""
        if self.waits or later.waits or later.reached_back or (self._next is None and later.undecided):
            return False
        if self.absent:
            # Without a segment of it, all that the other side says goes on to be ahead.
            return later._next is None
        heard_to = self._next if self._next is not None else self._acknowledged
        if any(_is_far(heard_to, one) for one in (later._base, later._start)):
            return False
        if not later._is_known_from(self._base if self._base is not None else later._base, self):
            return False
        if self._next is None or later._start is None or later._only_acknowledges:
            return True
        if later._initial is not None and not self._is_begun_by(later._initial):
            # A SYN that does not repeat ours begins another connection, whatever is due behind it.
            return False
        return (later._start - self._next) % 2**32 == 0 and self._lacking_bytes <= 0

    def go_on_as(self, later: Sender) -> None:
        """Stand where `later` does, which continues this one. What was read is not remembered."""
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
            before: what stood before it.
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
        """Whether all its segments were bare. Then nothing depends on their numbers, which behind a FIN are ahead."""
        said = self.stream.data_bytes or self.stream.retransmission_count or self.stream.keep_alive_count
        return not (said or self.has_hole or self.stream.from_start or self._finish is not None)


def _is_far(one: int | None, other: int | None) -> bool:
    """Whether two sequence numbers, if they are known, cannot be of one connection."""
    return one is not None and other is not None and abs(signed(one - other)) > JUMP_LIMIT_BYTES


def _later(one: int | None, other: int) -> int:
    """The later of two sequence numbers."""
    return other if one is None or signed(other - one) > 0 else one

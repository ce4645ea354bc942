"""What came last: of a stream, to compare repetitions with; of a capture, to see what is damaged.

TCP sends again what has come damaged, and a capture has both. What was read of the first cannot be taken back; so
frames wait for some others before they are read, and one that came whole as well is passed over, as its receiver did.
Nobody is judged by the others. Checksums are computed where they decide something: of copies that differ, and where
somebody would be accused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.answers import segment_in, sum_of
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.tcp import Endpoint, Segment

JUMP_LIMIT_BYTES: Final = 1 << 28
"""No window is as wide: a segment this far from what is due belongs to another connection between the same ports."""
COMPARED_BYTES: Final = 1 << 16
"""How much of what was read stays."""
COMPARED_COUNT: Final = 1_024
"""Nor may it be more pieces than this."""
PIECE_COST_BYTES: Final = 200
"""What keeping a piece costs beside its bytes."""
AHEAD_COUNT: Final = 32
"""So many frames later another copy may come."""

KEPT_COUNT: Final = 128
"""So many frames stay, to be looked at if somebody would be accused by them."""
LONGEST_BYTES: Final = 9_216
"""What is longer never crossed a wire: a network card has joined it, and its checksum says nothing."""
NEAR_COUNT: Final = 8
"""A fault rests on so many packets of a connection, up to the one that shows it: what they say is compared."""
SAMPLE_COUNT: Final = 16
"""Of so many frames of one sender it is looked whether their checksums fit."""
WAYS_LIMIT: Final = 1 << 16
"""Of so many directions it is remembered how far they have come."""

Caught = tuple[Frame, Segment]


class Contradiction(NamedTuple):
    """Two frames with other bytes for the same place of a stream.

    first: the one that was caught first, whose bytes are read; or, if it is damaged and the other one came soon,
        those of the other.
    damaged: which of the two has a checksum that does not fit, while that of the other does; 0 if that does not tell.
    """

    first: int
    second: int
    damaged: int = 0

    @classmethod
    def between(cls, first: Frame, second: Frame) -> Contradiction:
        """That of two frames."""
        fits, other_fits = sum_of(first), sum_of(second)
        damaged = first.number if other_fits and fits is False else 0
        return cls(first.number, second.number, second.number if fits and other_fits is False else damaged)


@dataclass(slots=True)
class Held:
    """How many bytes all directions together hold."""

    total_bytes: int = 0


class Recent:
    """The last pieces of a stream, each with its position, and no more of them than is worth it.

    Args:
        held: what all directions together hold; what is kept here counts.

    Attributes:
        known_from: nothing that was read before this position is known, though a reader of all that came before would
            know it; None where that reader would not either.
    """

    def __init__(self, held: Held) -> None:
        self.known_from: int | None = None
        self._held = held
        self._pieces: deque[tuple[int, bytes, Frame]] = deque()
        self._size_bytes = 0

    def add(self, position: int, data: bytes, frame: Frame) -> None:
        """What was read behind all that was added before, and the frame that it stood in."""
        self._pieces.append((position, data, frame))
        self._size_bytes += len(data)
        self._held.total_bytes += len(data) + len(frame.data) + PIECE_COST_BYTES
        if self._size_bytes > COMPARED_BYTES or len(self._pieces) > COMPARED_COUNT:
            self._drop(COMPARED_BYTES)

    def add_many(
        self, position: int, sizes: Sequence[int], payload: Callable[[int], tuple[bytes, Frame]]
    ) -> int:
        """Add pieces that lie one behind the other; only those are asked for that are to stay.

        Returns:
            The position behind them.
        """
        first, kept_bytes = len(sizes), 0
        while first and kept_bytes <= COMPARED_BYTES and len(sizes) - first <= COMPARED_COUNT:
            first -= 1
            kept_bytes += sizes[first]
        position += sum(sizes[:first])
        for place in range(first, len(sizes)):
            data, frame = payload(place)
            self._pieces.append((position, data, frame))
            self._held.total_bytes += cost_of(data, frame)
            position += sizes[place]
        self._size_bytes += kept_bytes
        self._drop(COMPARED_BYTES)
        return position

    def contradicted_by(self, position: int, data: bytes) -> Frame | None:
        """The frame of which other bytes were read there; None if there is none, as far as that is known."""
        for at, known, frame in reversed(self._pieces):
            if at + len(known) <= position:
                break
            if differ(at, known, position, data):
                return frame
        return None

    def forget(self, known_from: int | None) -> None:
        """Keep nothing."""
        self._drop(0)
        self.known_from = known_from

    def _drop(self, limit_bytes: int) -> None:
        pieces = self._pieces
        while pieces and (self._size_bytes > limit_bytes or len(pieces) > COMPARED_COUNT):
            _, oldest, frame = pieces.popleft()
            self.known_from = None
            self._size_bytes -= len(oldest)
            self._held.total_bytes -= cost_of(oldest, frame)


def cost_of(data: bytes, frame: Frame) -> int:
    """What it costs to keep a piece of a stream and the frame that it stood in."""
    return len(data) + len(frame.data) + PIECE_COST_BYTES


def differ(at: int, one: bytes, position: int, other: bytes) -> bool:
    """Whether two pieces of a stream have other bytes for the same place."""
    first, last = max(at, position), min(at + len(one), position + len(other))
    return first < last and one[first - at : last - at] != other[first - position : last - position]


class DamagedCopies:
    """Which of the frames that come are damaged copies of others.

    Attributes:
        passed: by the numbers of those that are to be passed over, the frame that has it whole.
    """

    def __init__(self) -> None:
        self.passed: dict[int, Frame] = {}
        self._reached: dict[tuple[Endpoint, Endpoint, int], int] = {}

    def is_behind(self, segment: Segment, interface: int) -> bool:
        """Whether a segment with payload that comes has bytes of a place that others had before."""
        way = (segment.source, segment.destination, interface)
        start, reached = segment.sequence_number, self._reached.get(way)
        end = (start + len(segment.payload)) % 2**32
        if reached == start:
            self._reached[way] = end
            return False
        if len(self._reached) > WAYS_LIMIT:
            self._reached.clear()
        behind = 0 if reached is None else signed(reached - start)
        if reached is None or not 0 < behind <= JUMP_LIMIT_BYTES or len(segment.payload) > behind:
            self._reached[way] = end
        return 0 < behind <= JUMP_LIMIT_BYTES

    def compare(self, frame: Frame, segment: Segment, before: Iterable[Caught]) -> None:
        """Look for copies of a segment that differ.

        Args:
            before: what came before it at the same place, the last one first, as far as AHEAD_COUNT.
        """
        if not frame.number:
            return  # It is from no file, and nobody could say which it is.
        for other in _contradicting(frame, segment, before):
            damaged = Contradiction.between(other, frame).damaged
            if damaged:
                worse, better = (other, frame) if damaged == other.number else (frame, other)
                self.passed.setdefault(worse.number, better)


def _contradicting(frame: Frame, segment: Segment, before: Iterable[Caught]) -> Iterator[Frame]:
    for other_frame, other in before:
        if other.source != segment.source or other.destination != segment.destination:
            continue
        at = signed(other.sequence_number - segment.sequence_number)
        if not at and other.payload == segment.payload:
            return  # What is before that has been compared with it.
        if differ(at, other.payload, 0, segment.payload):
            yield other_frame


def is_damaged(kept: Iterable[Frame], first: int, last: int, source: Endpoint) -> bool:
    """Whether a packet stands in a frame whose checksum does not fit, though those of its sender's others do.

    Args:
        kept: the last KEPT_COUNT frames, in their order, but for those that are longer than LONGEST_BYTES.
        first, last: the numbers of the frames that began and that ended the packet.
        source: of the packet. It need not be that of a frame if there is one frame only.
    """
    frames = list(kept)
    begin = bisect_left(frames, first, key=_number)
    for place, frame in enumerate(frames[begin : bisect_left(frames, last + 1, key=_number)], begin):
        if sum_of(frame) is False:
            segment = segment_in(frame, IpReader())
            assert segment is not None
            is_of_it = first == last or segment.source == source
            if is_of_it and not _is_offloaded(segment.source.host, frame, frames[:place]):
                return True
    return False


def _number(frame: Frame) -> int:
    return frame.number


def _is_offloaded(host: str, frame: Frame, before: Sequence[Frame]) -> bool:
    """Whether a host leaves sums to its network card, or the card joins what has come: most that it sent do not fit."""
    wrong = count = 0
    for other in reversed(before):
        segment = segment_in(other, IpReader()) if other.interface.number == frame.interface.number else None
        if segment is not None and segment.source.host == host and not other.missing_bytes:
            wrong += not sum_of(other)
            count += 1
            if count == SAMPLE_COUNT:
                break
    return 2 * wrong > count


def signed(difference: int) -> int:
    """The difference of two sequence numbers.

    Of all 32-bit numbers half lie before another one, and half from it on.  [RFC 9293] 3.4
    """
    return (difference + 2**31) % 2**32 - 2**31

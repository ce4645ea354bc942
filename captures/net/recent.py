"""Keeps the latest bytes of a stream to compare repetitions, and the latest frames of a capture to find damage.

TCP resends segments that arrived damaged, and a capture has both copies. Bytes that were once read cannot be taken
back. So frames wait for some later frames before they are read, and a damaged copy of an intact frame is passed over,
just as the receiver passed over it. Checksums are computed only where they matter: between copies that differ, and
before a fault is reported.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.answers import segment_in, sum_of
from mqproto.captures.net.heads import opens_session
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.tcp import SYN, Endpoint, Segment

JUMP_LIMIT_BYTES: Final = 1 << 28
"""The distance from the next expected byte, in bytes, beyond which a segment is another connection's.

No window is that wide.
"""
COMPARED_BYTES: Final = 1 << 16
"""The number of bytes already read that are kept."""
COMPARED_COUNT: Final = 1_024
"""The number of pieces already read that are kept."""
PIECE_COST_BYTES: Final = 200
"""The cost of keeping a piece, in bytes, in addition to its own bytes."""
AHEAD_COUNT: Final = 32
"""The largest number of frames by which a second copy may come after the first."""

KEPT_COUNT: Final = 128
"""The number of frames that are kept, to be checked before a fault is reported."""
LONGEST_BYTES: Final = 9_216
"""The length of the longest frames on a wire.

Longer frames were joined by a network card, and their checksums say nothing.
"""
NEAR_COUNT: Final = 8
"""A fault rests on this many packets of its connection; the last of them is the one that shows it.

The frames of these packets are checked.
"""
SAMPLE_COUNT: Final = 16
"""The number of frames of one sender whose checksums are checked."""
WAYS_LIMIT: Final = 1 << 16
"""The largest number of directions of connections whose progress is remembered."""

Caught = tuple[Frame, Segment]


class Contradiction(NamedTuple):
    """Two frames with different bytes for the same place of a stream.

    first: the frame that was captured first.
    damaged: the number of the frame with a wrong checksum, if the other frame's checksum is right; otherwise 0.
    is_read: whether the first frame's bytes had been read before the second frame came. Otherwise a damaged frame's
        bytes are not read, and if neither is known to be damaged, those of neither frame.
    """

    first: int
    second: int
    damaged: int = 0
    is_read: bool = True

    @classmethod
    def between(cls, first: Frame, second: Frame) -> Contradiction:
        """Return the contradiction between two frames."""
        fits, other_fits = sum_of(first), sum_of(second)
        damaged = first.number if other_fits and fits is False else 0
        return cls(first.number, second.number, second.number if fits and other_fits is False else damaged)


@dataclass(slots=True)
class Held:
    """The number of bytes that all directions hold together."""

    total_bytes: int = 0


class Recent:
    """The last pieces of a stream, each with its position, up to a limit.

    Args:
        held: counts the bytes that all directions hold together, including the pieces kept here.
    """

    def __init__(self, held: Held) -> None:
        self._held = held
        self._pieces: deque[tuple[int, bytes, Frame]] = deque()
        self._size_bytes = 0

    def add(self, position: int, data: bytes, frame: Frame) -> None:
        """Add bytes that follow everything added before, and their frame."""
        self._pieces.append((position, data, frame))
        self._size_bytes += len(data)
        self._held.total_bytes += len(data) + len(frame.data) + PIECE_COST_BYTES
        if self._size_bytes > COMPARED_BYTES or len(self._pieces) > COMPARED_COUNT:
            self._drop(COMPARED_BYTES)

    def add_many(
        self, position: int, sizes: Sequence[int], pieces: Callable[[int], Iterable[tuple[bytes, Frame]]]
    ) -> int:
        """Add consecutive pieces; only those that are to be kept are read.

        Returns:
            The position after these pieces.
        """
        first, kept_bytes = len(sizes), 0
        while first and kept_bytes <= COMPARED_BYTES and len(sizes) - first <= COMPARED_COUNT:
            first -= 1
            kept_bytes += sizes[first]
        position += sum(sizes[:first])
        if first:  # The new pieces reach the limit without the old ones.
            self.forget()
        kept: list[tuple[int, bytes, Frame]] = []
        for size, (data, frame) in zip(sizes[first:], pieces(first), strict=True):
            kept.append((position, data, frame))
            position += size
        self._pieces += kept
        self._size_bytes += kept_bytes
        self._held.total_bytes += _cost(kept)
        self._drop(COMPARED_BYTES)
        return position

    def contradicted_by(self, position: int, data: bytes) -> Frame | None:
        """Return the frame from which different bytes were read at this position; None if none is known."""
        for at, known, frame in reversed(self._pieces):
            if at + len(known) <= position:
                break
            if differ(at, known, position, data):
                return frame
        return None

    def forget(self, before: int | None = None) -> None:
        """Keep nothing, or only the bytes of frames from this number on."""
        if before is None:
            self._held.total_bytes -= _cost(self._pieces)
            self._pieces.clear()
            self._size_bytes = 0
            return
        while self._pieces and self._pieces[0][2].number < before:
            self._drop_oldest()

    def _drop(self, limit_bytes: int) -> None:
        while self._pieces and (self._size_bytes > limit_bytes or len(self._pieces) > COMPARED_COUNT):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, oldest, frame = self._pieces.popleft()
        self._size_bytes -= len(oldest)
        self._held.total_bytes -= cost_of(oldest, frame)


def cost_of(data: bytes, frame: Frame) -> int:
    """Return the cost of keeping a piece of a stream and its frame."""
    return len(data) + len(frame.data) + PIECE_COST_BYTES


def _cost(pieces: Collection[tuple[int, bytes, Frame]]) -> int:
    return sum(len(data) + len(frame.data) for _, data, frame in pieces) + PIECE_COST_BYTES * len(pieces)


def differ(at: int, one: bytes, position: int, other: bytes) -> bool:
    """Whether two pieces of a stream have different bytes for the same place."""
    first, last = max(at, position), min(at + len(one), position + len(other))
    return first < last and one[first - at : last - at] != other[first - position : last - position]


class DamagedCopies:
    """Finds frames that are damaged copies of other frames, and frames that contradict one another.

    Which of two intact frames the receiver took is not known, so that neither is read: nobody is judged by such bytes.

    Attributes:
        passed: the frames that are to be passed over, keyed by their numbers. The value is the frame that each one
            contradicts; None if that frame names this one.
    """

    def __init__(self) -> None:
        self.passed: dict[int, Frame | None] = {}
        self._reached: dict[tuple[Endpoint, Endpoint, int], tuple[int, int]] = {}

    def is_behind(self, segment: Segment, interface: int, number: int) -> bool:
        """Whether a new segment, in the frame with this number, may repeat bytes of earlier segments."""
        way = (segment.source, segment.destination, interface)
        start = segment.sequence_number
        reached, jumped_at = self._reached.get(way, (start, -AHEAD_COUNT))
        behind = signed(reached - start)
        if abs(behind) > JUMP_LIMIT_BYTES:
            jumped_at = number
        if not 0 < behind <= JUMP_LIMIT_BYTES or len(segment.payload) > behind:
            reached = (start + len(segment.payload)) % 2**32
        if len(self._reached) > WAYS_LIMIT:
            self._reached.clear()
        self._reached[way] = reached, jumped_at
        return behind > 0 or number - jumped_at <= AHEAD_COUNT

    def compare(self, frame: Frame, segment: Segment, before: Iterable[Caught]) -> None:
        """Look for copies of a segment that differ from it, or that the capture cut.

        Args:
            before: earlier segments at the same place, the latest first, up to AHEAD_COUNT.
        """
        if not frame.number:
            return  # It is not from a file, and could not be named.
        before = list(before)
        for other, cut in before:
            is_part = len(cut.payload) < len(segment.payload) and segment.payload.startswith(cut.payload)
            if is_part and other.missing_bytes and cut[:3] == segment[:3]:
                self.passed.setdefault(other.number, None)  # The rest of it is here.
        for other in _contradicting(frame, segment, before):
            damaged = Contradiction.between(other, frame).damaged
            if damaged:
                worse, better = (other, frame) if damaged == other.number else (frame, other)
                self.passed.setdefault(worse.number, better)
            else:
                self.passed.setdefault(other.number, None)
                self.passed.setdefault(frame.number, other)


def _contradicting(frame: Frame, segment: Segment, before: Iterable[Caught]) -> Iterator[Frame]:
    opening: Segment | None = None
    beyond: list[Frame] = []  # Frames before an opening belong to another connection, as those before a SYN.
    for other_frame, other in before:
        if other.source != segment.source or other.destination != segment.destination:
            continue
        at = signed(other.sequence_number - segment.sequence_number)
        if other.flags & SYN:
            if opening or not -JUMP_LIMIT_BYTES < at < -1:
                return  # Anything before that belongs to another connection.
            continue  # It was sent again, because a connection does not begin behind its first byte.
        if at and opens_session(segment.payload):
            continue  # It begins another connection, or repeats the first bytes of this one.
        if not at and other.payload == segment.payload:
            return  # Anything before that has been compared with that copy.
        sizes = len(other.payload), len(segment.payload)
        if 1 in sizes and at + sizes[0] == sizes[1]:
            continue  # One of them checks that the other side is alive: its byte means nothing.
        if opening and other.payload and other.sequence_number == opening.sequence_number:
            yield from beyond  # The opening was a repetition.
            opening, beyond = None, []
        if differ(at, other.payload, 0, segment.payload):
            beyond.append(other_frame)
        if opening is None:
            yield from beyond
            beyond = []
            opening = other if opens_session(other.payload) else None


def is_damaged(kept: Iterable[Frame], first: int, last: int, source: Endpoint) -> bool:
    """Whether a packet is in a frame with a wrong checksum, although its sender's other checksums are right.

    Args:
        kept: the last KEPT_COUNT frames in order, without those longer than LONGEST_BYTES.
        first, last: the numbers of the frames with the packet's first and last bytes.
        source: the packet's source. It is compared with that of a frame only if the packet is in several frames.
    """
    frames = list(kept)
    begin = bisect_left(frames, first, key=_number)
    for place, frame in enumerate(frames[begin : bisect_left(frames, last + 1, key=_number)], begin):
        if sum_of(frame) is False:
            segment = segment_in(frame, IpReader())
            assert segment is not None
            is_of_it = first == last or segment.source == source
            if is_of_it and not is_offloaded(segment.source.host, frame, frames[:place]):
                return True
    return False


def _number(frame: Frame) -> int:
    return frame.number


def is_offloaded(host: str, frame: Frame, before: Sequence[Frame]) -> bool:
    """Whether most of a host's checksums are wrong.

    If so, its network card fills them in, or joins the segments that it receives.
    """
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
    """Return the difference of two sequence numbers.

    Half of all 32-bit numbers come before a given number; the rest are that number and those after it.  [RFC 9293] 3.4
    """
    return (difference + 2**31) % 2**32 - 2**31

"""An undamaged capture: the bytes of each stream in each frame and packet, and those that a damaged capture still has.

TCP is read here again, from SYNs and sequence numbers alone, and not with the readers that are being judged. This is
easy in a capture that lost nothing and kept its order. Positions are counted from the SYN of their side.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.answers import segment_in
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.tcp import SYN, Endpoint, Segment
from mqproto.captures.packets import PacketReader, SeenPacket

StreamKey: TypeAlias = tuple[int, Endpoint]
"""Identifies one direction of a connection: the connection's number, and the side that sent."""


class Span(NamedTuple):
    """A range of bytes in a stream.

    A Ping is not part of a stream; it has the key -1, together with the Ping's source.
    """

    stream: StreamKey
    start: int
    end: int


@dataclass
class Whole:
    """The frames of a capture from which nothing is missing, numbered from 1, and the packets in them.

    spans: the range of each packet, keyed by its number.
    of_frame: the range of each frame's payload, keyed by the frame's number.
    """

    frames: list[Frame]
    packets: dict[int, SeenPacket] = field(default_factory=dict)
    spans: dict[int, Span] = field(default_factory=dict)
    of_frame: dict[int, Span] = field(default_factory=dict)
    _initial: dict[StreamKey, int] = field(default_factory=dict)
    _starts: dict[StreamKey, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self._place_frames()
        bytes_of: dict[StreamKey, bytearray] = defaultdict(bytearray)
        for frame in self.frames:
            span = self.of_frame.get(frame.number)
            segment = segment_in(frame, IpReader())
            if span is not None and segment is not None:
                data = bytes_of[span.stream]
                data[span.start : span.end] = segment.payload
        for packet in PacketReader(iter(self.frames)):
            if not packet.framed:
                continue
            if packet.is_ping:
                span = Span((-packet.frame, packet.source), 0, len(packet.data))
            else:
                stream = packet.connection, packet.source
                span = Span(stream, packet.position, packet.position + len(packet.data))
                assert bytes_of[stream][span.start : span.end] == packet.data, packet
            self.packets[packet.number] = packet
            self.spans[packet.number] = span
            self._starts[span.stream].append((span.start, packet.number))

    def _place_frames(self) -> None:
        current: dict[frozenset[Endpoint], int] = {}
        count = 0
        reader = IpReader()
        for frame in self.frames:
            segment = segment_in(frame, reader)
            if segment is None:
                continue
            ends = frozenset((segment.source, segment.destination))
            stream = (current.get(ends, -1), segment.source)
            if stream[0] < 0 or (
                segment.flags & SYN
                and self._initial.get(stream, segment.sequence_number) != (segment.sequence_number)
            ):
                current[ends], stream, count = count, (count, segment.source), count + 1
            if segment.flags & SYN:
                self._initial.setdefault(stream, segment.sequence_number)
            if stream in self._initial:
                self.of_frame[frame.number] = self._span(stream, segment)

    def _span(self, stream: StreamKey, segment: Segment) -> Span:
        begin = segment.sequence_number + bool(segment.flags & SYN)
        start = (begin - self._initial[stream] - 1) % 2**32
        return Span(stream, start, start + len(segment.payload))

    def span_of(self, frame: Frame, segment: Segment) -> Span | None:
        """Return the range of a stream's bytes that a frame of a damaged capture has.

        The frame has the number of the frame in this capture from which it was made.
        """
        span = self.of_frame.get(frame.number)
        return None if span is None else self._span(span.stream, segment)

    def packets_at(self, stream: StreamKey, start: int, end: int, data: bytes) -> Iterator[int]:
        """Yield the numbers of packets that begin in a part of a stream, and whose first bytes are these."""
        starts = self._starts.get(stream, [])
        for begin, number in starts[bisect.bisect_left(starts, (start, 0)) :]:
            if begin >= end:
                break
            if self.packets[number].data[: len(data)] == data:
                yield number


class Coverage:
    """The bytes of the streams that a damaged capture has at each interface.

    Args:
        frames: the damaged frames, with their numbers in the whole capture; joined frames have the number of the first
            one.
    """

    def __init__(self, whole: Whole, frames: Iterable[Frame]) -> None:
        self.frames = frames = list(frames)
        self.whole = whole
        parts: dict[tuple[StreamKey, int], list[tuple[int, int]]] = defaultdict(list)
        self.places: list[Span | None] = []  # of each frame, in their new order
        self._between: dict[tuple[str, str], set[StreamKey]] = defaultdict(set)
        self.first_frame = self.last_frame = 0  # of the whole capture
        self.is_cut = False  # whether frames lack their ends
        reader = IpReader()
        for frame in frames:
            self.first_frame = min(self.first_frame or frame.number, frame.number)
            self.last_frame = max(self.last_frame, frame.number)
            self.is_cut |= frame.missing_bytes > 0
            segment = segment_in(frame, reader)
            span = None if segment is None else whole.span_of(frame, segment)
            self.places.append(span)
            if span is not None and segment is not None:
                self._between[str(segment.source), str(segment.destination)].add(span.stream)
            if span is not None and span.end > span.start:
                parts[span.stream, frame.interface.number].append((span.start, span.end))
            elif segment is None:
                parts[(-frame.number, NOBODY), frame.interface.number].append((0, len(frame.data)))
        self._parts = {key: _merged(spans) for key, spans in parts.items()}
        self._interfaces = sorted({number for _, number in self._parts})

    def parts(self, stream: StreamKey) -> Iterator[list[tuple[int, int]]]:
        """Yield the parts of a stream that each interface has, in the order of the interfaces."""
        for number in self._interfaces:
            found = self._parts.get((stream, number))
            if found:
                yield found

    def streams_between(self, source: str, destination: str) -> set[StreamKey]:
        """Return the streams that have segments from one endpoint to the other in the damaged capture."""
        return self._between.get((source, destination), set())

    def has(self, span: Span, size_bytes: int | None = None) -> bool:
        """Return whether one interface has all bytes of a span, or its first `size_bytes`."""
        if span.stream[0] < 0:
            return any(True for _ in self.parts((span.stream[0], NOBODY)))
        end = span.end if size_bytes is None else min(span.end, span.start + size_bytes)
        return any(
            start <= span.start and end <= stop for found in self.parts(span.stream) for start, stop in found
        )

    def seen_of(self, span: Span) -> list[tuple[int, int]]:
        """Return which bytes of a span are there at any interface, as ranges."""
        found = [
            (max(start, span.start), min(stop, span.end))
            for each in self.parts(span.stream)
            for start, stop in each
            if start < span.end and span.start < stop
        ]
        return _merged(found)

    def lacks(self, span: Span) -> bool:
        """Return whether no single interface has all bytes of a span."""
        return not self.has(span)

    @property
    def is_lossy(self) -> bool:
        """Return whether whole frames were lost between the first and the last frame that are there."""
        return not self.is_cut and any(
            self.first_frame < packet.first_frame
            and packet.frame < self.last_frame
            and self.lacks(self.whole.spans[number])
            for number, packet in self.whole.packets.items()
        )

    def lacks_before(self, span: Span, interface: int) -> int:
        """Return how many of the stream's bytes before a span are missing at an interface."""
        there = self._parts.get((span.stream, interface), [])
        return span.start - sum(min(stop, span.start) - start for start, stop in there if start < span.start)

    def originals(self, packets: Iterable[SeenPacket]) -> dict[int, int | None]:
        """Return, for each packet of the damaged capture, the number of the same packet in the whole one; None if there
        is none.
        """
        taken: set[tuple[int, int]] = set()
        found: dict[int, int | None] = {}
        for seen in packets:
            numbers = list(self._candidates(seen))
            interface = seen.interface.number
            free = (number for number in numbers if (number, interface) not in taken)
            number = next(free, numbers[0] if numbers else None)
            found[seen.number] = number
            if number is not None:
                taken.add((number, interface))
        return found

    def _candidates(self, seen: SeenPacket) -> Iterator[int]:
        place = self.places[(seen.first_frame or seen.frame) - 1]
        if place is not None:
            return self.whole.packets_at(place.stream, place.start, place.end, seen.data)
        pings = (each for each in self.whole.packets.values() if each.is_ping)
        return (each.number for each in pings if each.data == seen.data)


NOBODY: Final = Endpoint("", 0)


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged

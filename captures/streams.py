"""TCP reassembly: from the frames of a capture to the bytes that each side sent.

Segments are put in order, repeated bytes are dropped and counted, and what the capture never saw is left out
and counted. Everything is held in memory, so this is for captures of a run, not for those of a year.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from captures.pcap import CaptureError, Frame, read_capture
from captures.tcp import ACK, FIN, RST, SYN, Endpoint, Segment, decode_frame
from mqproto.wire import PacketBuffer

# Bytes that came early wait for those before them. When this many wait, those before them are not coming.
EARLY_LIMIT_BYTES: Final = 1 << 20


class Ending(Enum):
    """How a side stopped sending, as far as the capture shows."""

    OPEN = "open"
    FINISHED = "finished"
    RESET = "reset"


class Chunk(NamedTuple):
    """Bytes that could be read at one moment.

    time_ns: since 1970, UTC; when the last segment that was needed crossed the wire.
    missing_bytes: how many bytes right before these the capture lacks.
    """

    time_ns: int
    data: bytes
    missing_bytes: int = 0


@dataclass(slots=True)
class Stream:
    """What one side of one connection sent.

    connection: counted from 0 in the order of first frames, as Wireshark's tcp.stream.
    from_start: the capture has the SYN, so the first chunk begins the stream (if no bytes are missing before
        it).
    gap_count, missing_bytes: how often and how many bytes were sent that the capture lacks.
    retransmission_count: segments of which some bytes had been there before.
    """

    connection: int
    source: Endpoint
    destination: Endpoint
    chunks: list[Chunk] = field(default_factory=list)
    from_start: bool = False
    ending: Ending = Ending.OPEN
    gap_count: int = 0
    missing_bytes: int = 0
    retransmission_count: int = 0

    @property
    def data(self) -> bytes:
        """All its bytes; where some are missing, the rest closes up."""
        return b"".join(chunk.data for chunk in self.chunks)

    def __str__(self) -> str:
        return f"{self.source} > {self.destination}"


def streams(path: str | os.PathLike[str]) -> list[Stream]:
    """The streams of the capture file at `path`: two for each connection, the opener's first.

    Raises:
        CaptureError: the file is damaged. `reassemble` gives what came before the damage.
        OSError: the file cannot be opened or read.
    """
    return reassemble(read_capture(path))


def reassemble(frames: Iterable[Frame]) -> list[Stream]:
    """The streams in `frames`, as `streams`. Frames that hold no TCP segment over IPv4 are passed over."""
    directions: dict[tuple[Endpoint, Endpoint], _Direction] = {}
    everything: list[_Direction] = []
    for frame in frames:
        segment = decode_frame(frame.data)
        if segment is None:
            continue
        key = (segment.source, segment.destination)
        direction = directions.get(key)
        if direction is None or (_opens(segment) and direction.begins_anew(segment)):
            # Only the answer to a SYN says by itself that its sender did not open the connection.
            client, server = key[::-1] if segment.flags & SYN and segment.flags & ACK else key
            number = len(everything) // 2
            for ends in ((client, server), (server, client)):
                directions[ends] = _Direction(Stream(number, *ends))
                everything.append(directions[ends])
            direction = directions[key]
        direction.take(segment, frame.time_ns)
    for direction in everything:
        direction.settle()
    return [direction.stream for direction in everything]


def timed_packets(stream: Stream) -> Iterator[tuple[int, bytes]]:
    """Each whole MSMQ packet of a stream, after the time in ns at which its last byte could be read.

    The beginning of a packet at the end of a stream that was broken off is no packet, and no error.

    Raises:
        CaptureError: bytes are missing; the packets before the gap have been yielded.
        WireFormatError: something else than a packet follows; the packets before it have been yielded.
    """
    buffer = PacketBuffer()
    position = 0
    for chunk in stream.chunks:
        if chunk.missing_bytes:
            raise CaptureError(str(stream), position, f"{chunk.missing_bytes} bytes are not in the capture")
        for packet in buffer.feed(chunk.data):
            yield chunk.time_ns, packet
        if buffer.fault is not None:
            raise buffer.fault
        position += len(chunk.data)


def packets(stream: Stream) -> Iterator[bytes]:
    """Each whole MSMQ packet of a stream; errors as `timed_packets`."""
    return (packet for _, packet in timed_packets(stream))


def _opens(segment: Segment) -> bool:
    return segment.flags & (SYN | ACK) == SYN


class _Direction:
    """One side's segments on their way into a stream.

    Positions count the bytes of the stream from its initial sequence number, and do not wrap.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._initial: int | None = None  # the sequence number of the SYN
        self._next: int | None = None  # the position that is due
        self._finish: int | None = None  # where the FIN stands
        self._early: list[_Early] = []  # a heap
        self._early_bytes = 0

    def begins_anew(self, segment: Segment) -> bool:
        """Whether a SYN opens another connection between the same ports; else it repeats that of this one."""
        return self._next is not None and segment.sequence_number != self._initial

    def take(self, segment: Segment, time_ns: int) -> None:
        """Add what one segment brings."""
        start = segment.sequence_number
        if segment.flags & SYN:
            if self._next is None:
                self._initial = start
                self.stream.from_start = True
            start += 1
        if self._next is None:
            self._next = start
        # Of all 32-bit numbers half lie before the one that is due, and half from it on.  [RFC 9293] 3.4
        position = self._next + (start - self._next + 2**31) % 2**32 - 2**31
        if segment.payload:
            heapq.heappush(self._early, _Early(position, time_ns, segment.payload))
            self._early_bytes += len(segment.payload)
            self._append_what_is_due(time_ns)
            while self._early_bytes > EARLY_LIMIT_BYTES:
                self._skip_gap()
        if segment.flags & FIN:
            self._finish = position + len(segment.payload)
            self.stream.ending = Ending.FINISHED
        if segment.flags & RST:
            self.stream.ending = Ending.RESET

    def settle(self) -> None:
        """The capture is over: what waits for earlier bytes waits no longer."""
        while self._early:
            self._skip_gap()
        if self._next is not None and self._finish is not None and self._finish > self._next:
            self._count_gap(self._finish - self._next)

    def _append_what_is_due(self, time_ns: int, missing_bytes: int = 0) -> None:
        assert self._next is not None
        while self._early and self._early[0].position <= self._next:
            early = heapq.heappop(self._early)
            self._early_bytes -= len(early.payload)
            had_bytes = self._next - early.position
            if had_bytes:
                self.stream.retransmission_count += 1
            if had_bytes >= len(early.payload):
                continue
            data = early.payload[had_bytes:]
            self.stream.chunks.append(Chunk(max(time_ns, early.time_ns), data, missing_bytes))
            self._next += len(data)
            missing_bytes = 0

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
    """Payload at its position; the first in line is the lowest."""

    position: int
    time_ns: int
    payload: bytes

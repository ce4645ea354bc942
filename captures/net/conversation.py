"""Shows byte streams as frames of a TCP connection, so Wireshark can follow a run that was never sniffed.

A node or a link proxy knows who opened a connection, which bytes went which way, and how it ended. This module adds
the rest, as a network without loss or delay would have shown it: handshake, segments, acknowledgments.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.captures.net.tcp import (
    ACK,
    FIN,
    MAX_SEGMENT_BYTES,
    PSH,
    RST,
    SYN,
    Endpoint,
    Segment,
    encode_frame,
)

WINDOW: Final = 0xFFFF
WINDOW_SHIFT: Final = 7  # a window of 8 MiB, which no single read of ours can fill


class Side(enum.Enum):
    """One side of a connection: the side that opened it, or the side that accepted it."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> Side:
        return Side.SERVER if self is Side.CLIENT else Side.CLIENT


class Segments:
    """The segments of one connection.

    A segment acknowledges the bytes that, according to the caller, have reached its sender. Use this class if you know
    when things arrive; TcpConversation is easier if everything arrives at once.

    Args:
        client, server: the addresses to show.
        segment_bytes: the largest payload of one segment, 1 to 65,495.
        client_sequence, server_sequence: the initial sequence numbers, 32 bits. Connections with the same addresses and
            ports need different ones; otherwise readers take the second connection for a repetition of the first.

    Raises:
        UsageError: an address, size or number is out of range.
    """

    def __init__(
        self,
        client: Endpoint,
        server: Endpoint,
        *,
        segment_bytes: int = MAX_SEGMENT_BYTES,
        client_sequence: int = 0,
        server_sequence: int = 0,
    ) -> None:
        if not 1 <= segment_bytes <= MAX_SEGMENT_BYTES:
            raise UsageError(f"segments of {segment_bytes} bytes: 1 to {MAX_SEGMENT_BYTES} fit in IPv4")
        self._segment_bytes = segment_bytes
        self._halves = {
            Side.CLIENT: _Half(client.validated(), client_sequence, server_sequence),
            Side.SERVER: _Half(server.validated(), server_sequence, client_sequence),
        }

    def leave(self, sender: Side, flags: int, payload: bytes = b"") -> bytes:
        """Return one segment from `sender` as a frame. Payload, SYN and FIN advance the sender's sequence number."""
        half, other = self._halves[sender], self._halves[sender.other]
        options = b""
        if flags & SYN:
            options = struct.pack("!BBHBBBB", 2, 4, self._segment_bytes, 1, 3, 3, WINDOW_SHIFT)
        segment = Segment(
            half.endpoint,
            other.endpoint,
            half.next_sequence,
            half.received_sequence if flags & ACK else 0,
            flags,
            WINDOW,
            options,
            payload,
        )
        frame = encode_frame(segment, half.identification)
        # SYN and FIN each take one number, as a byte does.
        taken = len(payload) + bool(flags & SYN) + bool(flags & FIN)
        half.next_sequence = (half.next_sequence + taken) % 2**32
        half.identification = (half.identification + 1) % 2**16
        return frame

    def leave_data(self, sender: Side, data: bytes) -> list[bytes]:
        """Return data from `sender` as frames: as many segments as needed, of which the last has the PSH flag."""
        frames = []
        for start in range(0, len(data), self._segment_bytes):
            payload = data[start : start + self._segment_bytes]
            last = start + len(payload) == len(data)
            frames.append(self.leave(sender, ACK | PSH if last else ACK, payload))
        return frames

    def pass_over(self, sender: Side, count: int, payload_bytes: int) -> None:
        """Count `count` segments of `payload_bytes` each from `sender`; their frames are made elsewhere."""
        half = self._halves[sender]
        half.next_sequence = (half.next_sequence + count * payload_bytes) % 2**32
        half.identification = (half.identification + count) % 2**16

    def arrive(self, receiver: Side, count: int | None = None) -> None:
        """Record that `count` more of the other side's bytes have arrived; by default, all bytes that it has sent."""
        half, other = self._halves[receiver], self._halves[receiver.other]
        if count is None:
            half.received_sequence = other.next_sequence
        else:
            half.received_sequence = (half.received_sequence + count) % 2**32


class TcpConversation:
    """One connection as frames; each method states an event and returns the frames that show it, in order.

    The caller keeps the time: all frames that one call returns have the time of that event.

    Args:
        client, server, segment_bytes, client_sequence, server_sequence: as for Segments.

    Raises:
        UsageError: the event cannot happen, such as data after the end; or as for Segments.
    """

    def __init__(
        self,
        client: Endpoint,
        server: Endpoint,
        *,
        segment_bytes: int = MAX_SEGMENT_BYTES,
        client_sequence: int = 0,
        server_sequence: int = 0,
    ) -> None:
        self._segments = Segments(
            client,
            server,
            segment_bytes=segment_bytes,
            client_sequence=client_sequence,
            server_sequence=server_sequence,
        )
        self._finished: set[Side] = set()
        self._opened = False
        self._reset = False

    def open(self) -> list[bytes]:
        """Show the three-way handshake.  [RFC 9293] 3.5"""
        if self._opened:
            raise UsageError("the connection has been opened before")
        self._opened = True
        return [
            self._leave(Side.CLIENT, SYN),
            self._leave(Side.SERVER, SYN | ACK),
            self._leave(Side.CLIENT, ACK),
        ]

    def send(self, sender: Side, data: bytes) -> list[bytes]:
        """Show that `sender` sent `data`: segments, of which the last has the PSH flag, and one acknowledgment."""
        self._require_open(sender)
        if not data:
            return []
        frames = self._segments.leave_data(sender, data)
        self._segments.arrive(sender.other)
        return [*frames, self._leave(sender.other, ACK)]

    def finish(self, sender: Side) -> list[bytes]:
        """Show that `sender` will send no more; the other side may still send."""
        self._require_open(sender)
        self._finished.add(sender)
        return [self._leave(sender, FIN | ACK), self._leave(sender.other, ACK)]

    def reset(self, sender: Side) -> list[bytes]:
        """Show that `sender` broke off the connection.

        Call this for both sides if something between them broke it off.
        """
        if not self._opened:
            raise UsageError("a connection is opened before it is reset")
        self._reset = True
        return [self._leave(sender, RST | ACK)]

    def _require_open(self, sender: Side) -> None:
        if not self._opened or self._reset or sender in self._finished:
            raise UsageError(f"the {sender.value} sends on a connection that is not open for it")

    def _leave(self, sender: Side, flags: int) -> bytes:
        """Return a segment as a frame, and record that it arrives at once."""
        frame = self._segments.leave(sender, flags)
        self._segments.arrive(sender.other)
        return frame


class _Half:
    """The bytes that one side has sent and received."""

    def __init__(self, endpoint: Endpoint, sequence: int, received_sequence: int) -> None:
        if not 0 <= sequence < 2**32:
            raise UsageError(f"an initial sequence number of {sequence}: it has 32 bits")
        self.endpoint = endpoint
        self.next_sequence = sequence
        self.received_sequence = received_sequence
        self.identification = 0

"""Byte streams as the frames of a TCP connection, so that Wireshark can follow a run that was never sniffed.

What a node or a link proxy knows of a connection is who opened it, which bytes went which way, and how it
ended. The rest is made up here, as a network without loss or delay would have shown it: handshake, cutting,
acknowledgments.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

from captures.tcp import ACK, FIN, MAX_SEGMENT_BYTES, PSH, RST, SYN, Endpoint, Segment, encode_frame
from mqproto.errors import UsageError

WINDOW: Final = 0xFFFF
WINDOW_SHIFT: Final = 7  # a window of 8 MiB, which no single read of ours can fill


class Side(enum.Enum):
    """Who sends: the one that opened the connection, or the one that took it."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> Side:
        return Side.SERVER if self is Side.CLIENT else Side.CLIENT


class TcpConversation:
    """One connection as frames. Each method says what happened and returns the frames that show it, in order.

    Time is the caller's: all frames of one call bear the time of what they show.

    Args:
        client, server: the addresses to show.
        segment_bytes: the most payload in one segment, 1 to 65,495.
        client_sequence, server_sequence: the initial sequence numbers, 32 bits. Connections that have the
            same addresses and ports need different ones, else readers take the second for a repetition of the
            first.

    Raises:
        UsageError: an address, size or number is out of range; or what is said to happen cannot, such as data
            after the end.
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
            Side.CLIENT: _Half(client.validated(), client_sequence),
            Side.SERVER: _Half(server.validated(), server_sequence),
        }
        self._opened = False
        self._reset = False

    def open(self) -> list[bytes]:
        """The three-way handshake.  [RFC 9293] 3.5"""
        if self._opened:
            raise UsageError("the connection has been opened before")
        self._opened = True
        options = struct.pack("!BBHBBBB", 2, 4, self._segment_bytes, 1, 3, 3, WINDOW_SHIFT)
        return [
            self._frame(Side.CLIENT, SYN, options=options),
            self._frame(Side.SERVER, SYN | ACK, options=options),
            self._frame(Side.CLIENT, ACK),
        ]

    def send(self, sender: Side, data: bytes) -> list[bytes]:
        """`sender` sent `data`: segments, the last one pushed, and one acknowledgment."""
        self._require_open(sender)
        if not data:
            return []
        frames = []
        for start in range(0, len(data), self._segment_bytes):
            payload = data[start : start + self._segment_bytes]
            last = start + len(payload) == len(data)
            frames.append(self._frame(sender, ACK | PSH if last else ACK, payload))
        return [*frames, self._frame(sender.other, ACK)]

    def finish(self, sender: Side) -> list[bytes]:
        """`sender` will send no more; the other may."""
        self._require_open(sender)
        frames = [self._frame(sender, FIN | ACK), self._frame(sender.other, ACK)]
        self._halves[sender].finished = True
        return frames

    def reset(self, sender: Side) -> list[bytes]:
        """`sender` broke the connection off. Call it for both when something between them did."""
        if not self._opened:
            raise UsageError("a connection is opened before it is reset")
        self._reset = True
        return [self._frame(sender, RST | ACK)]

    def _require_open(self, sender: Side) -> None:
        if not self._opened or self._reset or self._halves[sender].finished:
            raise UsageError(f"the {sender.value} sends on a connection that is not open for it")

    def _frame(self, sender: Side, flags: int, payload: bytes = b"", options: bytes = b"") -> bytes:
        """The next segment of `sender`; it moves its numbers on."""
        half, other = self._halves[sender], self._halves[sender.other]
        segment = Segment(
            half.endpoint,
            other.endpoint,
            half.next_sequence,
            other.next_sequence if flags & ACK else 0,
            flags,
            WINDOW,
            options,
            payload,
        )
        frame = encode_frame(segment, half.identification)
        # SYN and FIN each take a number, as a byte does.
        taken = len(payload) + bool(flags & SYN) + bool(flags & FIN)
        half.next_sequence = (half.next_sequence + taken) % 2**32
        half.identification = (half.identification + 1) % 2**16
        return frame


class _Half:
    """What one side has sent."""

    def __init__(self, endpoint: Endpoint, sequence: int) -> None:
        if not 0 <= sequence < 2**32:
            raise UsageError(f"an initial sequence number of {sequence}: it has 32 bits")
        self.endpoint = endpoint
        self.next_sequence = sequence
        self.identification = 0
        self.finished = False

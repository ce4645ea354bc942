"""Writes the traffic of links to a capture file, as a network sniffer would."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import BinaryIO, Final

from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.tcp import MAX_SEGMENT_BYTES, Endpoint
from mqproto.captures.net.udp import encode_datagram

# Far apart, so that a reader never takes a port's second connection for a repetition of its first.
SEQUENCE_STEP: Final = 0x9E37_79B1
REMEMBERED: Final = 16_384
"""The maximum number of pairs of endpoints whose connections are counted.

It is also the number of connections that `mqproto.captures.net.streams` keeps.
"""


class Recorder:
    """Writes many connections to one pcapng file.

    A full disk stops the recording, but not the run. `failure` then has the error, and `close` raises it.
    `lost_frame_count` counts the frames that did not fit.

    The initial sequence numbers follow from the addresses and ports of a connection. So two nodes that record the same
    connection agree on them, and their files can be merged.

    Args:
        file: stays open; the caller closes it after `close`.
        comment: a comment on the whole capture, with the topology and the seed.
        interface: the name of the interface in Wireshark.
        clock: returns nanoseconds since 1970. The default starts at the wall clock and never goes back.
        segment_bytes: the limit for the payload of one frame.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        comment: str = "",
        interface: str = "",
        clock: Callable[[], int] | None = None,
        segment_bytes: int = MAX_SEGMENT_BYTES,
    ) -> None:
        self.frame_count = 0
        self.lost_frame_count = 0
        self.failure: OSError | None = None
        self._writer = PcapngWriter(file, comment=comment, interface=interface)
        self._clock = clock or steady_clock()
        self._segment_bytes = segment_bytes
        self._connection_counts: dict[tuple[Endpoint, Endpoint], int] = {}

    def connection(self, client: Endpoint, server: Endpoint) -> RecordedConnection:
        """Record that `client` has just opened a connection to `server`.

        Raises:
            UsageError: an address is not IPv4.
        """
        ends = client, server
        count = self._connection_counts.pop(ends, 0)
        self._connection_counts[ends] = count + 1
        if len(self._connection_counts) > REMEMBERED:
            del self._connection_counts[next(iter(self._connection_counts))]
        sequence = zlib.crc32(f"{client} {server}".encode()) + count * SEQUENCE_STEP
        conversation = TcpConversation(
            client,
            server,
            segment_bytes=self._segment_bytes,
            client_sequence=sequence % 2**32,
            server_sequence=~sequence % 2**32,
        )
        return RecordedConnection(self, conversation)

    def datagram(self, source: Endpoint, destination: Endpoint, data: bytes) -> None:
        """Record a datagram from `source` to `destination`.

        Raises:
            UsageError: an address is not IPv4.
        """
        self.write([encode_datagram(source, destination, data)])

    def write(self, frames: list[bytes], comment: str = "") -> None:
        """Append frames, stamped with the current time. The first of them gets the comment."""
        now_ns = self._clock()
        for number, frame in enumerate(frames):
            if self.failure is None:
                try:
                    self._writer.write(Frame(now_ns, frame, "" if number else comment))
                except OSError as error:
                    self.failure = error
            if self.failure is None:
                self.frame_count += 1
            else:
                self.lost_frame_count += 1

    def flush(self) -> None:
        """Hand over everything recorded so far to the operating system.

        Then nothing of it is lost if this process is killed.
        """
        if self.failure is None:
            try:
                self._writer.flush()
            except OSError as error:
                self.failure = error

    def close(self) -> None:
        """Flush for the last time.

        Raises:
            OSError: the file could not take everything.
        """
        self.flush()
        if self.failure is not None:
            raise self.failure


class RecordedConnection:
    """One connection of a recording. Each method records what has just happened on it."""

    def __init__(self, recorder: Recorder, conversation: TcpConversation) -> None:
        self._recorder = recorder
        self._conversation = conversation
        recorder.write(conversation.open())

    def sent(self, sender: Side, data: bytes) -> None:
        """Record that `data` was handed to the other side."""
        self._recorder.write(self._conversation.send(sender, data))

    def finished(self, sender: Side) -> None:
        """Record that `sender` will not send any more data."""
        self._recorder.write(self._conversation.finish(sender))
        self._recorder.flush()

    def reset(self, *senders: Side, comment: str = "") -> None:
        """Record that `senders` reset the connection: both sides, if something between them broke it."""
        for sender in senders:
            self._recorder.write(self._conversation.reset(sender), comment)
        self._recorder.flush()


def steady_clock() -> Callable[[], int]:
    """Return a clock that starts at the wall clock and never goes back, in nanoseconds since 1970."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    return lambda: offset_ns + time.monotonic_ns()

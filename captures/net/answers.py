"""Finds how far apart the clocks of two places are.

It compares the times at which bytes were sent at one place and acknowledged at the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.tcp import ACK, FIN, PROTOCOL_TCP, SYN, Endpoint, Segment, decode_segment, sum_fits
from mqproto.captures.net.tunnels import datagram_in

Place = tuple[Endpoint, Endpoint, int]
"""A place in a stream: the source, the destination, and a sequence number of the source."""


def segment_in(frame: Frame, ip: IpReader) -> Segment | None:
    """Return the segment that a frame holds or completes; None if there is none."""
    datagram = datagram_in(frame.link_type, frame.data, frame.missing_bytes, ip)
    if isinstance(datagram, str) or datagram.protocol != PROTOCOL_TCP:
        return None
    return decode_segment(datagram)


def sum_of(frame: Frame) -> bool | None:
    """Whether the checksum of the segment in a frame is right, as in `sum_fits`.

    None if the frame does not have a whole segment.
    """
    datagram = datagram_in(frame.link_type, frame.data, frame.missing_bytes, IpReader())
    return None if isinstance(datagram, str) or datagram.protocol != PROTOCOL_TCP else sum_fits(datagram)


class Answers:
    """The times at which a capture shows that bytes were sent, and that they were acknowledged."""

    def __init__(self, frames: Iterable[Frame]) -> None:
        self._sent: dict[Place, int] = {}
        self._acknowledged: dict[Place, int] = {}
        ip = IpReader()
        for frame in frames:
            segment = segment_in(frame, ip)
            if segment is None:
                continue
            taken = len(segment.payload) + segment.cut_bytes
            taken += bool(segment.flags & SYN) + bool(segment.flags & FIN)
            if taken:
                end = (segment.sequence_number + taken) % 2**32
                self._sent.setdefault((segment.source, segment.destination, end), frame.time_ns)
            if segment.flags & ACK:
                place = (segment.destination, segment.source, segment.acknowledgment_number)
                self._acknowledged.setdefault(place, frame.time_ns)

    def ahead_ns(self, other: Answers) -> int:
        """Return how far another capture's clock must be ahead of this one's; negative if it must be behind.

        The result is 0 if the bounds allow that. Otherwise, it is halfway between the bounds, or the bound itself if
        there is only one.
        """
        most = self._bound_ns(other)
        least = other._bound_ns(self)
        if most is not None and least is not None:
            return 0 if -least <= 0 <= most else (most - least) // 2
        if most is not None:
            return min(0, most)
        return 0 if least is None else max(0, -least)

    def _bound_ns(self, other: Answers) -> int | None:
        """Return the shortest time from the sending of bytes here to their acknowledgment there.

        Each of the two times is read from the clock of its own place. Return None if there are no such bytes.
        """
        both = self._sent.keys() & other._acknowledged.keys()
        return min((other._acknowledged[place] - self._sent[place] for place in both), default=None)

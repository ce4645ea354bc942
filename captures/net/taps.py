"""A full-duplex TAP: each direction of a line has an interface of its own, and both are read as one.

That is so where no connection has both directions at one interface, and some has one direction at one of them and the
other at another. The first segments of a capture tell. What was caught whole at two places is told apart by the first
connection that an interface shows both directions of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from captures.files.frame import Frame, Interface
from captures.net.ip import IpReader
from captures.net.links import ip_start
from captures.net.tcp import PROTOCOL_TCP, Endpoint, Segment, decode_segment

FRAME_LIMIT: Final = 4_096
"""So many frames are looked at; if none of them tells, the capture has no TAP."""
SEEN_COUNT: Final = 64
"""So many segments have to follow the first that looks like a TAP, and none may say otherwise."""


class Taps:
    """Looks at the first frames of a capture.

    Attributes:
        looked_at: the frames that were taken to find out.
        halves: by the number of an interface of a TAP the other one, which both are taken for. Empty if there is none.
    """

    def __init__(self) -> None:
        self.looked_at: list[Frame] = []
        self.halves: dict[int, Interface] = {}

    def look(self, frames: Iterator[Frame]) -> None:
        """Take as many frames as it needs.

        Raises:
            CaptureError, OSError: `frames` did; what came before that has been looked at.
        """
        ip = IpReader()
        places: dict[tuple[Endpoint, Endpoint], Interface] = {}
        rest = SEEN_COUNT
        for frame in frames:
            self.looked_at.append(frame)
            segment = segment_in(frame, ip)
            if segment is not None:
                ends = (segment.source, segment.destination)
                here, there = places.setdefault(ends, frame.interface), places.get(ends[::-1])
                if there is not None:
                    if frame.interface == there or frame.interface != here:
                        self.halves = {}
                        return
                    first, second = sorted((here, there), key=lambda one: one.number)
                    self.halves[second.number] = first
            rest -= bool(self.halves)
            if not rest or len(self.looked_at) >= FRAME_LIMIT:
                return


def segment_in(frame: Frame, ip: IpReader) -> Segment | None:
    """The segment that a frame holds or completes; None if there is none."""
    start = ip_start(frame.link_type, frame.data)
    datagram = None if start is None else ip.read(frame.data, start)
    if datagram is None or datagram.protocol != PROTOCOL_TCP:
        return None
    return decode_segment(datagram)

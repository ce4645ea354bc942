"""A full-duplex TAP: each direction of a line has an interface of its own, and both are read as one.

That is so where no connection has both directions at one interface, and some has one direction at one of them and the
other at another. The first segments of a capture tell. What was caught whole at two places is told apart by the first
connection that an interface shows both directions of.

Their clocks may be apart; then the times of one are put right by that of the other, so that one clock tells all times.
How far they are apart is known within a round trip, from what was acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from captures.files.frame import Frame, Interface
from captures.net.answers import Answers, segment_in
from captures.net.ip import IpReader
from captures.net.tcp import Endpoint

FRAME_LIMIT: Final = 4_096
"""So many frames are looked at; if none of them tells, the capture has no TAP."""
SEEN_COUNT: Final = 64
"""So many segments have to follow the first that looks like a TAP, and none may say otherwise."""


class Half(NamedTuple):
    """What an interface of a TAP is taken for: the interface of its other half.

    ahead_ns: how far its clock is ahead of that.
    """

    interface: Interface
    ahead_ns: int = 0

    def put_right(self, frame: Frame) -> Frame:
        """A frame of it as one of the other half's."""
        time_ns = frame.time_ns and frame.time_ns - self.ahead_ns
        return frame._replace(interface=self.interface, time_ns=time_ns)


class Taps:
    """Looks at the first frames of a capture.

    Attributes:
        looked_at: the frames that were taken to find out.
        halves: by the number of an interface of a TAP what it is taken for. Empty if there is none.
    """

    def __init__(self) -> None:
        self.looked_at: list[Frame] = []
        self.halves: dict[int, Half] = {}

    def look(self, frames: Iterator[Frame]) -> None:
        """Take as many frames as it needs.

        Raises:
            CaptureError, OSError: `frames` did; what came before that has been looked at.
        """
        try:
            self._look(frames)
        finally:
            self._compare_clocks()

    def _compare_clocks(self) -> None:
        for number, half in self.halves.items():
            ours, theirs = (
                Answers(frame for frame in self.looked_at if frame.interface.number == each)
                for each in (half.interface.number, number)
            )
            self.halves[number] = half._replace(ahead_ns=ours.ahead_ns(theirs))

    def _look(self, frames: Iterator[Frame]) -> None:
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
                    self.halves[second.number] = Half(first)
            rest -= bool(self.halves)
            if not rest or len(self.looked_at) >= FRAME_LIMIT:
                return

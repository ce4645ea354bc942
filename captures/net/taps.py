"""Finds interfaces that each have a part of the traffic, and are read as one.

The first segments of a capture show them. A full-duplex TAP has an interface for each direction of a line. A capture
shows a TAP if no connection has both directions at one interface, and some connection has one direction at one
interface and the other at another.

The interfaces of a bond, or a team, take turns, by segment or by connection and direction. So again and again, a stream
that was seen at one of them continues at another, or is acknowledged there. Almost no segment was seen at both, because
each interface has exactly what the others lack. In contrast, traffic that was captured whole at two places was seen at
both. If a capture is examined to its end, one such turn is enough.

If the clocks of two such interfaces differ, the times of one are corrected, so that one clock tells all times.
Acknowledgments show how far apart the clocks are, to within a round trip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from mqproto.captures.files.frame import Frame, Interface
from mqproto.captures.net.answers import Answers, Place, segment_in
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.tcp import ACK, FIN, SYN, Endpoint, Segment

FRAME_LIMIT: Final = 4_096
"""The number of frames that are examined; if they do not show a TAP, the capture has none."""
SEEN_COUNT: Final = 64
"""How many frames are examined, counted from the first one that suggests a TAP.

None of them may contradict it. Fewer are enough if the capture ends before that.
"""
ALONE_COUNT: Final = 256
"""The number of frames from a single interface after which no second interface is looked for."""
TURNS_COUNT: Final = 8
"""How many times bytes seen at one interface must continue at another to show that both form a bond.

An acknowledgment at the other interface counts, too, and all streams count together. Once is enough if the capture ends
before that.
"""
BOTH_SHARE: Final = 8
"""Interfaces count as taking turns only if there were more than this many turns per segment seen at both interfaces.

Some segments may be seen at both, because resent segments may take the other interface.
"""


class Half(NamedTuple):
    """The interface to which the frames of one half of a TAP or of a bond are attributed.

    ahead_ns: how far this half's own clock is ahead of that interface's clock.
    """

    interface: Interface
    ahead_ns: int = 0

    def put_right(self, frame: Frame) -> Frame:
        """Return a frame of this half as a frame of the interface that the half is read as."""
        time_ns = frame.time_ns and frame.time_ns - self.ahead_ns
        return frame._replace(interface=self.interface, time_ns=time_ns)


class Taps:
    """Looks at the first frames of a capture.

    Attributes:
        looked_at: the frames that were taken so far.
        halves: maps the number of an interface of a TAP or a bond to the interface that it is read as.
    """

    def __init__(self) -> None:
        self.looked_at: list[Frame] = []
        self.halves: dict[int, Half] = {}
        self._is_tap = True

    def look(self, frames: Iterator[Frame]) -> None:
        """Take as many frames as needed.

        Raises:
            CaptureError, OSError: raised by `frames`; the frames before the error have been looked at.
        """
        turns = _Turns()
        try:
            self._look(frames, turns)
        finally:
            if not self._is_tap:
                self.halves = turns.halves()
            self._compare_clocks()

    def _compare_clocks(self) -> None:
        for number, half in self.halves.items():
            ours, theirs = (
                Answers(frame for frame in self.looked_at if frame.interface.number == each)
                for each in (half.interface.number, number)
            )
            self.halves[number] = half._replace(ahead_ns=ours.ahead_ns(theirs))

    def _look(self, frames: Iterator[Frame], turns: _Turns) -> None:
        ip = IpReader()
        places: dict[tuple[Endpoint, Endpoint], Interface] = {}
        rest = SEEN_COUNT
        for frame in frames:
            self.looked_at.append(frame)
            turns.meet(frame.interface)
            segment = segment_in(frame, ip)
            if segment is not None:
                turns.take(segment, frame.interface.number)
                ends = (segment.source, segment.destination)
                here, there = places.setdefault(ends, frame.interface), places.get(ends[::-1])
                if there is not None and self._is_tap:
                    if frame.interface == there or frame.interface != here:
                        self.halves, self._is_tap = {}, False
                    else:
                        first, second = sorted((here, there), key=lambda one: one.number)
                        self.halves[second.number] = Half(first)
            rest -= bool(self.halves)
            if not rest:
                return
            is_told = not self._is_tap and (turns.is_told or turns.is_alone(len(self.looked_at)))
            if is_told or len(self.looked_at) >= FRAME_LIMIT:
                return
        turns.least = 1


class _Turns:
    """Finds out whether interfaces take turns.

    Attributes:
        least: how many turns prove a bond.
    """

    def __init__(self) -> None:
        self.least = TURNS_COUNT
        self._interfaces: dict[int, Interface] = {}
        self._seen: dict[tuple[Endpoint, Endpoint, int, int], int] = {}
        self._ended: dict[Place, int] = {}
        self._turns: Counter[tuple[int, int]] = Counter()
        self._both: Counter[tuple[int, int]] = Counter()

    def meet(self, interface: Interface) -> None:
        """Record that a frame of this interface was seen."""
        self._interfaces.setdefault(interface.number, interface)

    def take(self, segment: Segment, here: int) -> None:
        """Take one more segment, seen at an interface."""
        source, destination, sequence = segment.source, segment.destination, segment.sequence_number
        taken = len(segment.payload) + segment.cut_bytes
        taken += bool(segment.flags & SYN) + bool(segment.flags & FIN)
        what = (source, destination, sequence, -1 if taken else segment.acknowledgment_number)
        there = self._seen.setdefault(what, here)
        if there != here:
            self._both[_in_order(here, there)] += 1
        elif taken:
            self._follow(here, (source, destination, sequence))
        if taken:
            self._ended[source, destination, (sequence + taken) % 2**32] = here
        if segment.flags & ACK:
            self._follow(here, (destination, source, segment.acknowledgment_number))

    def _follow(self, here: int, place: Place) -> None:
        there = self._ended.get(place, here)
        if there != here:
            self._turns[there, here] += 1

    @property
    def is_told(self) -> bool:
        """Whether at least two interfaces are known to take turns, or are known not to."""
        return any(self._both[pair] >= TURNS_COUNT or self._is_bond(pair) for pair in self._pairs())

    def is_alone(self, count: int) -> bool:
        """Whether so many frames came from a single interface that a second interface is not looked for."""
        return len(self._interfaces) < 2 and count >= ALONE_COUNT

    def halves(self) -> dict[int, Half]:
        """Return the halves; all interfaces of a bond are read as its first interface."""
        found: dict[int, Half] = {}
        for first, second in self._pairs():
            if self._is_bond((first, second)) and first not in found:
                found.setdefault(second, Half(self._interfaces[first]))
        return found

    def _pairs(self) -> list[tuple[int, int]]:
        return sorted({_in_order(*pair) for pair in self._turns})

    def _is_bond(self, pair: tuple[int, int]) -> bool:
        turns = self._turns[pair] + self._turns[pair[::-1]]
        return turns >= self.least and BOTH_SHARE * self._both[pair] < turns


def _in_order(one: int, other: int) -> tuple[int, int]:
    return (one, other) if one < other else (other, one)

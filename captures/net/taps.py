"""Interfaces that have a part each of what they saw, and are read as one. The first segments of a capture tell.

A full-duplex TAP has an interface for each direction of a line. That is so where no connection has both directions at
one interface, and some has one direction at one of them and the other at another.

The interfaces of a bond, or a team, take turns, by segment or by connection and direction. That is so where what one of
them has goes on at the other, or is acknowledged there, again and again, while next to nothing was seen at both: each
has just what the other lacks. What was caught whole at two places was seen at both. Of a capture that is looked at to
its end, once is enough.

Their clocks may be apart; then the times of one are put right by that of the other, so that one clock tells all times.
How far they are apart is known within a round trip, from what was acknowledged.
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
"""So many frames are looked at; if none of them tells, the capture has no TAP."""
SEEN_COUNT: Final = 64
"""So many segments have to follow the first that looks like a TAP, and none may say otherwise."""
ALONE_COUNT: Final = 256
"""So many frames of one interface come before another is looked for no more."""
TURNS_COUNT: Final = 8
"""So often what one interface of a bond has goes on at the other, if the capture does."""
BOTH_SHARE: Final = 8
"""Fewer than one of so many may have been seen at both: what was sent again may have gone by the other."""


class Half(NamedTuple):
    """What an interface of a TAP or a bond is taken for: the interface of its other half.

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
        halves: by the number of an interface of a TAP, or of a bond, what it is taken for. Empty if there is none.
    """

    def __init__(self) -> None:
        self.looked_at: list[Frame] = []
        self.halves: dict[int, Half] = {}
        self._is_tap = True

    def look(self, frames: Iterator[Frame]) -> None:
        """Take as many frames as it needs.

        Raises:
            CaptureError, OSError: `frames` did; what came before that has been looked at.
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
    """Whether interfaces take turns.

    Attributes:
        least: how often they have to.
    """

    def __init__(self) -> None:
        self.least = TURNS_COUNT
        self._interfaces: dict[int, Interface] = {}
        self._seen: dict[tuple[Endpoint, Endpoint, int, int], int] = {}
        self._ended: dict[Place, int] = {}
        self._turns: Counter[tuple[int, int]] = Counter()
        self._both: Counter[tuple[int, int]] = Counter()

    def meet(self, interface: Interface) -> None:
        """An interface has a frame."""
        self._interfaces.setdefault(interface.number, interface)

    def take(self, segment: Segment, here: int) -> None:
        """One more segment, at an interface."""
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
        """Whether it is known of two interfaces that they do, or that they do not."""
        return any(self._both[pair] >= TURNS_COUNT or self._is_bond(pair) for pair in self._pairs())

    def is_alone(self, count: int) -> bool:
        """Whether so many frames were of one interface that another is not looked for."""
        return len(self._interfaces) < 2 and count >= ALONE_COUNT

    def halves(self) -> dict[int, Half]:
        """What interfaces are taken for; those of a bond for the first of them."""
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

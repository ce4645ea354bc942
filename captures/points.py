"""Counts the content and the losses of each capture point while its frames and streams are read.

A capture point is an interface of a capture. Each count here is a fact about the capture;
`mqproto.captures.decode.views.quality` explains which conclusions it rules out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from mqproto.captures.files.frame import Frame, Interface
from mqproto.captures.framing import StreamCount

POINTS_LIMIT: Final = 256
"""The number of capture points to count separately. Nobody has more, but a file may name more."""
OTHERS: Final = "all other interfaces"


@dataclass(slots=True)
class Clock:
    """How far the clock of a capture point is ahead of another point's clock.

    reference: the name of the other point. The point that all others are compared with has its own name here.
    uncertainty_ns: the greatest error of the difference; None if the points share packets of one direction only.
    drift_ppb: how much faster this clock runs, in parts per billion; None if unknown.
    packets: how many packets both points saw.
    """

    reference: str
    offset_ns: int
    uncertainty_ns: int | None
    packets: int
    drift_ppb: int | None = None


@dataclass(slots=True)
class Point:
    """Counts for one capture point. Only MSMQ connections are counted.

    cut_frames: the number of frames that the capture cut short.
    snaplen: how many bytes the capture kept of the largest of them; 0 if unknown.
    back_ns: the greatest step back in time from one frame to a later one.
    connections: the number of connections with at least one byte here, captured or missing.
    lossy: the number of these connections that lack bytes other than those that the capture cut from frames.
    headless: the number of connections where the beginning of a direction is missing, although that direction has
        captured or missing bytes.
    one_sided: the number of connections with captured bytes in only one direction, except those where both directions
        were seen to begin.
    halves: the number of one-sided connections whose other direction was captured at another point.
    open: the number of connections whose end was not seen.
    missing_bytes, gaps: the number of bytes, and of gaps, that were sent but are not in the capture.
    snapped_bytes: the number of missing bytes that the capture cut from frames.
    unread_bytes: the number of captured bytes in packets that are not whole.
    cut_packets: the number of packets of which only the beginning is read.
    by_file: whether frames are counted for the whole file, including other points' frames in it.
    compared: whether there is another point to compare clocks with.
    ahead_ns: if this point is one half of a TAP, how far its clock is ahead of the other half's. This point's times are
        corrected by that amount.
    """

    name: str
    frames: int = 0
    cut_frames: int = 0
    snaplen: int = 0
    untimed_frames: int = 0
    back_ns: int = 0
    connections: int = 0
    lossy: int = 0
    headless: int = 0
    one_sided: int = 0
    halves: int = 0
    open: int = 0
    data_bytes: int = 0
    missing_bytes: int = 0
    gaps: int = 0
    snapped_bytes: int = 0
    unread_bytes: int = 0
    cut_packets: int = 0
    by_file: bool = False
    compared: bool = False
    ahead_ns: int = 0
    clock: Clock | None = None


@dataclass(slots=True)
class PointDirection:
    """One direction of a connection as seen at one point.

    client: whether it comes from the end that counts as the connection's client. Within a connection, objects with the
        same flag are the same direction, seen at several points.
    """

    point: str
    client: bool
    data_bytes: int
    missing_bytes: int
    gaps: int
    unread_bytes: int
    from_start: bool
    is_open: bool
    snapped_bytes: int = 0
    cut_packets: int = 0


@dataclass(slots=True)
class Points:
    """All capture points, keyed by name."""

    found: dict[str, Point] = field(default_factory=dict)

    def of(self, name: str) -> Point:
        """Return the point with this name, which is created if necessary.

        If there are too many points, return the point that all further ones share.
        """
        point = self.found.get(name)
        if point is None:
            if len(self.found) >= POINTS_LIMIT:
                name = OTHERS
                if name in self.found:
                    return self.found[name]
            point = self.found[name] = Point(name)
        return point

    def connection(self, sides: Sequence[PointDirection]) -> None:
        """Count an MSMQ connection, given its directions as each point saw them."""
        seen = [side for side in sides if side.data_bytes or side.missing_bytes]
        everywhere = {side.client for side in seen if side.data_bytes}
        for name in dict.fromkeys(side.point for side in seen):
            point = self.of(name)
            here = [side for side in seen if side.point == name]
            directions = {side.client for side in here if side.data_bytes}
            begun = {side.client for side in sides if side.point == name and side.from_start}
            point.connections += 1
            point.lossy += any(side.missing_bytes > side.snapped_bytes for side in here)
            point.headless += any(not side.from_start for side in here)
            # If both sides were seen to begin, one of them had nothing to say.
            is_one_sided = len(directions) == 1 and len(begun) < 2
            point.one_sided += is_one_sided
            point.halves += is_one_sided and len(everywhere) == 2
            point.open += any(side.is_open for side in here)
            for side in here:
                point.data_bytes += side.data_bytes
                point.missing_bytes += side.missing_bytes
                point.gaps += side.gaps
                point.snapped_bytes += side.snapped_bytes
                point.unread_bytes += side.unread_bytes
                point.cut_packets += side.cut_packets


class PointCounter:
    """Counts the points of one capture while it is read."""

    def __init__(self) -> None:
        self.points = Points()
        self._numbered: dict[int, Point] = {}
        self._newest_ns: dict[int, int] = {}
        self._connection = -1
        self._streams: list[StreamCount] = []

    def frame(self, frame: Frame) -> None:
        """Count a frame."""
        point = self._numbered.get(frame.interface.number)
        if point is None:
            point = self._numbered[frame.interface.number] = self.points.of(point_name(frame.interface))
        point.frames += 1
        if frame.missing_bytes:
            point.cut_frames += 1
            point.snaplen = max(point.snaplen, len(frame.data))
        if not frame.time_ns:
            point.untimed_frames += 1
            return
        number = frame.interface.number
        back_ns = self._newest_ns.setdefault(number, frame.time_ns) - frame.time_ns
        if back_ns < 0:
            self._newest_ns[number] = frame.time_ns
        elif back_ns > point.back_ns:
            point.back_ns = back_ns

    def put_right(self, number: int, ahead_ns: int) -> None:
        """Record that the times of an interface are corrected because its clock is ahead by `ahead_ns`."""
        if number in self._numbered:
            self._numbered[number].ahead_ns = ahead_ns

    def stream(self, seen: StreamCount) -> None:
        """Count a stream that has ended. Streams of one connection come one after another."""
        if seen.stream.connection != self._connection:
            self.finish()
            self._connection = seen.stream.connection
        self._streams.append(seen)

    def finish(self) -> None:
        """Count the last connection, after all its streams have been counted with `stream`."""
        if any(seen.is_msmq for seen in self._streams):
            first = self._streams[0].stream.source
            self.points.connection(
                [_side(seen, client=seen.stream.source == first) for seen in self._streams]
            )
        self._streams.clear()


def point_name(interface: Interface) -> str:
    """Return the name of a capture point in a file: `interface 1 (eth0)`."""
    return f"interface {interface.number}" + (f" ({interface.name})" if interface.name else "")


def _side(seen: StreamCount, *, client: bool) -> PointDirection:
    stream = seen.stream
    return PointDirection(
        point_name(stream.interface),
        client,
        stream.data_bytes,
        stream.missing_bytes,
        stream.gap_count,
        seen.headless_bytes + seen.cut_bytes,
        stream.from_start,
        stream.ending.value == "open",
        stream.snapped_bytes,
        seen.cut_count,
    )

"""Says in plain words what is missing at each capture point, and what is unknown for that reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final, NamedTuple

from mqproto.base.words import counted
from mqproto.captures.decode.names import printable
from mqproto.captures.decode.views.words import duration, share
from mqproto.captures.net.tunnels import NOT_READ
from mqproto.captures.points import Clock, Point

WIDTH: Final = 120
INDENT: Final = " " * 13
BACK_NS: Final = 1_000_000_000
"""A step back in time is ordinary if it is smaller than this many nanoseconds.

Such steps come from a card that delivers frames late, or from a clock that was corrected.
"""
NOTHING: Final = "nothing is known to be lacking"
NO_FINDING: Final = "nothing was found to be wrong"
KINDS_SHOWN: Final = 8
"""At most this many kinds of unread frames are named; the most frequent kinds come first."""


class PointLack(NamedTuple):
    """One kind of loss at a capture point.

    what: one of `loss`, `snaplen`, `one side`, `late start`, `no time`, `order`, `clock`.
    fact: the loss in numbers.
    so: what cannot be known because of the loss.
    """

    what: str
    fact: str
    so: str


def lacks(point: Point) -> Iterator[PointLack]:
    """Return all known losses of a capture point."""
    connections = counted(point.connections, "connection")
    lost_bytes = point.missing_bytes - point.snapped_bytes
    if lost_bytes or (point.unread_bytes and not point.cut_frames):
        yield _loss(point, lost_bytes, connections)
    if point.cut_frames:
        kept = f" after {point.snaplen:,} bytes at most" if point.snaplen else ""
        fact = f"{point.cut_frames:,} of {_frames(point)} are cut off{kept}"
        if point.snapped_bytes:
            fact += f"; {counted(point.snapped_bytes, 'byte')} of streams are lacking for that"
        yield PointLack(
            "snaplen",
            fact + _read_in_part(point),
            "What was cut off is not known: bodies, and headers behind the cut. A snaplen of 0 would keep all",
        )
    if point.one_sided:
        yield _one_side(point, connections)
    if point.headless:
        yield PointLack(
            "late start",
            f"{point.headless:,} of {connections}: the first packets are missing, as the capture began later or missed "
            "them",
            "What was said before is not known: neither which queue managers these connections join, unless others "
            "tell, nor what was acknowledged",
        )
    if point.untimed_frames:
        yield PointLack(
            "no time",
            f"{point.untimed_frames:,} of {_frames(point)} have no usable time",
            "How long anything with a packet in them took is not known",
        )
    if point.back_ns >= BACK_NS:
        yield PointLack(
            "order",
            f"the times of frames go back by up to {duration(point.back_ns)}",
            "This happens where captures were joined out of order, as by `mergecap -a`: "
            "`reordercap FILE SORTED` puts that right, and its result tells more. It also happens where a clock was "
            "set back; then there is nothing to do",
        )
    if point.ahead_ns:
        off = "behind" if point.ahead_ns < 0 else "ahead of"
        yield PointLack(
            "clock",
            f"{off} that of the other half of its TAP by {duration(abs(point.ahead_ns))}",
            "Its times are put right by that, within the time in which something is acknowledged",
        )
    if point.clock is not None or point.compared:
        yield from _clock(point.name, point.clock)


def kinds(reasons: Mapping[str, int]) -> str:
    """List the frames that have neither TCP nor a Ping.

    An example is `15 frames are ESP, which is not read; 2 frames are ARP`.
    """
    some = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    said = [f"{counted(n, 'frame')} {'is' if n == 1 else 'are'} {what}" for what, n in some[:KINDS_SHOWN]]
    left = sum(n for _, n in some[KINDS_SHOWN:])
    return "; ".join([*said, *([f"{left:,} more are of other kinds"] if left else [])])


def unread(reasons: Mapping[str, int]) -> str:
    """Describe the frames that were not read although they may contain MSMQ; empty if there are none."""
    return kinds({what: count for what, count in reasons.items() if what.endswith(NOT_READ)})


def found_nothing(reasons: Mapping[str, int]) -> str:
    """Say that there are no findings; if some traffic was not read, say which."""
    left = unread(reasons)
    return f"no findings in what was read; {left}" if left else NO_FINDING


def _frames(point: Point) -> str:
    return counted(point.frames, "frame") + (" of its files" if point.by_file else "")


def _read_in_part(point: Point) -> str:
    if not point.cut_packets:
        return ""
    are, them = ("is", "it") if point.cut_packets == 1 else ("are", "them")
    return f"; {counted(point.cut_packets, 'packet')} {are} read as far as the capture has {them}"


def _loss(point: Point, lost_bytes: int, connections: str) -> PointLack:
    facts = []
    if lost_bytes:
        part = share(lost_bytes, point.data_bytes + point.missing_bytes)
        facts.append(
            f"{counted(lost_bytes, 'byte')} missing in {counted(point.gaps, 'gap')}, on {point.lossy:,} of "
            f"{connections}: {part} of what is known to have been sent"
        )
    if point.unread_bytes:
        facts.append(
            f"{counted(point.unread_bytes, 'byte')} of packets of which a part is missing"
            + ("" if point.cut_frames else _read_in_part(point))
        )
    return PointLack(
        "loss",
        "; ".join(facts),
        "What was in them is not known: a message or an acknowledgment that is not seen here may have crossed",
    )


def _one_side(point: Point, connections: str) -> PointLack:
    fact = f"{point.one_sided:,} of {connections}: bytes of one direction only"
    if point.halves == point.one_sided:
        return PointLack(
            "one side",
            f"{fact}; another point has the other direction of each",
            "Only both points together tell all",
        )
    if point.halves:
        fact += f"; of {point.halves:,} another point has the other direction"
    so = "What the other end sent is not known: a message that has no acknowledgment here may have had one"
    return PointLack("one side", fact, so)


def _clock(name: str, clock: Clock | None) -> Iterator[PointLack]:
    """Yield what is unknown about a point's clock; the reference clock is right by definition."""
    if clock is None:
        yield PointLack(
            "clock",
            "no packet was seen at this point and at another",
            "How far its clock is from others is not known: times of this point and of others cannot be compared",
        )
    elif clock.reference != name:
        yield _compared(clock)


def _compared(clock: Clock) -> PointLack:
    off = f"{'behind' if clock.offset_ns < 0 else 'ahead of'} {printable(clock.reference)} by "
    took = duration(abs(clock.offset_ns))
    drift = "" if clock.drift_ppb is None else f", and gains {clock.drift_ppb / 1000:.3g} µs in each second"
    packets = counted(clock.packets, "packet")
    if clock.uncertainty_ns is None:
        return PointLack(
            "clock",
            f"{off}about {took}{drift}, by {packets} of one direction that both points saw",
            "How long these were on their way is not known: a delay from one point to the other says only by how much "
            "it was longer than the shortest",
        )
    within = duration(clock.uncertainty_ns)
    return PointLack(
        "clock",
        f"{off}{took}{drift}, within {within}, by {packets} that both points saw",
        f"Delays from one point to the other that are below {within} cannot be told, nor the order of what came so "
        "close together",
    )


def lines(points: list[Point], reasons: Mapping[str, int], lacking: Sequence[str] = ()) -> Iterator[str]:
    """Return the quality of a capture in lines for a terminal.

    Args:
        reasons: the number of frames with neither TCP nor a Ping, by kind, for all points together.
        lacking: what the capture as a whole lacks, in words.
    """
    left = unread(reasons)
    for point in points:
        found = list(lacks(point))
        end = "" if found or left or lacking else f"; {NOTHING}"
        yield f"{printable(point.name)}: {_frames(point)}, {counted(point.connections, 'connection')}{end}"
        for each in found:
            yield from wrap(each.fact, WIDTH, initial_indent=f"  {each.what:<10} ", subsequent_indent=INDENT)
            yield from wrap(each.so, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    for text in (left, *map(printable, lacking)):
        yield from wrap(text, WIDTH, subsequent_indent="  ")


def as_json(point: Point) -> dict[str, Any]:
    """Return the quality of one capture point as JSON for programs."""
    clock = point.clock
    return {
        "point": point.name,
        "frames": point.frames,
        "cut_frames": point.cut_frames,
        "snaplen": point.snaplen or None,
        "untimed_frames": point.untimed_frames,
        "back_ns": point.back_ns,
        "frames_by_file": point.by_file,
        "connections": point.connections,
        "lossy": point.lossy,
        "headless": point.headless,
        "one_sided": point.one_sided,
        "halves": point.halves,
        "open": point.open,
        "data_bytes": point.data_bytes,
        "missing_bytes": point.missing_bytes,
        "gaps": point.gaps,
        "snapped_bytes": point.snapped_bytes,
        "cut_packets": point.cut_packets,
        "unread_bytes": point.unread_bytes,
        "ahead_ns": point.ahead_ns,
        "clock": None
        if clock is None
        else {
            "reference": clock.reference,
            "offset_ns": clock.offset_ns,
            "uncertainty_ns": clock.uncertainty_ns,
            "drift_ppb": clock.drift_ppb,
            "packets": clock.packets,
        },
        "lacks": [each._asdict() for each in lacks(point)],
    }

"""Several captures of the same traffic as one: the halves of a TAP in two files, or two capture points.

Frames come in the order of their times, each interface with a number of its own. Clocks may be apart: what acknowledges
bytes crossed the wire behind them, so acknowledgments at one place bound how far its clock is ahead of the other's.
With bounds from both sides that is known within a round trip. It decides the order of frames, and no more: their
times stay what they are.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from captures.files.frame import CaptureError, Frame, Interface
from captures.net.ip import IpReader
from captures.net.taps import segment_in
from captures.net.tcp import ACK, FIN, SYN, Endpoint

LOOK_COUNT: Final = 8_192
"""How many frames of each capture are compared with those of the first."""

Place = tuple[Endpoint, Endpoint, int]
"""From where to where, and a sequence number."""


def merged(
    captures: Sequence[Iterator[Frame]], look: Callable[[Sequence[Sequence[Frame]]], None] | None = None
) -> Iterator[Frame]:
    """The frames of all captures, numbered through, as one that has all their interfaces.

    Args:
        look: is given the first frames of each, and may raise.

    Raises:
        CaptureError: one is damaged; at the end, when all that can be read has been yielded.
    """
    for number, (_, frame) in enumerate(interleaved(captures, look), 1):
        yield frame._replace(number=number)


def interleaved(
    captures: Sequence[Iterator[Frame]], look: Callable[[Sequence[Sequence[Frame]]], None] | None = None
) -> Iterator[tuple[int, Frame]]:
    """The same frames, each with the place of its capture, and the number that it has there; as `merged`."""
    damages: list[CaptureError | OSError] = []
    sources = [_until_damage(capture, damages) for capture in captures]
    heads = [list(islice(source, LOOK_COUNT)) for source in sources]
    if look is not None:
        look(heads)
    places = [_Places(head) for head in heads]
    keyed = [
        _keyed(chain(head, source), place, places[0].ahead_ns(other) if place else 0)
        for place, (head, source, other) in enumerate(zip(heads, sources, places, strict=True))
    ]
    numbers: dict[tuple[int, int], Interface] = {}
    for _, place, frame in heapq.merge(*keyed, key=lambda each: each[0]):
        key = (place, frame.interface.number)
        if key not in numbers:
            numbers[key] = frame.interface._replace(number=len(numbers))
        yield place, frame._replace(interface=numbers[key])
    if damages:
        raise damages[0]


def _keyed(frames: Iterator[Frame], place: int, ahead_ns: int) -> Iterator[tuple[int, int, Frame]]:
    return ((frame.time_ns - ahead_ns, place, frame) for frame in frames)


def _until_damage(frames: Iterator[Frame], damages: list[CaptureError | OSError]) -> Iterator[Frame]:
    try:
        yield from frames
    except (CaptureError, OSError) as damage:
        damages.append(damage)


class _Places:
    """When a capture has what was sent, and what acknowledges it."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._sent: dict[Place, int] = {}
        self._acknowledged: dict[Place, int] = {}
        ip = IpReader()
        for frame in frames:
            segment = segment_in(frame, ip)
            if segment is None:
                continue
            taken = len(segment.payload) + bool(segment.flags & SYN) + bool(segment.flags & FIN)
            if taken:
                end = (segment.sequence_number + taken) % 2**32
                self._sent.setdefault((segment.source, segment.destination, end), frame.time_ns)
            if segment.flags & ACK:
                place = (segment.destination, segment.source, segment.acknowledgment_number)
                self._acknowledged.setdefault(place, frame.time_ns)

    def ahead_ns(self, other: _Places) -> int:
        """How far another capture's clock is ahead of this one's at least; below 0 if it is behind.

        0 if that may be so, and half way between the bounds if not.
        """
        most = self._bound_ns(other)
        least = other._bound_ns(self)
        if most is not None and least is not None:
            return 0 if -least <= 0 <= most else (most - least) // 2
        if most is not None:
            return min(0, most)
        return 0 if least is None else max(0, -least)

    def _bound_ns(self, other: _Places) -> int | None:
        """How long after what was sent here its acknowledgment came there, at least; by the two clocks."""
        both = self._sent.keys() & other._acknowledged.keys()
        return min((other._acknowledged[place] - self._sent[place] for place in both), default=None)

"""Several captures of the same traffic as one: the halves of a TAP in two files, or two capture points.

Frames come in the order of their times, each interface with a number of its own. Clocks may be apart: what acknowledges
bytes crossed the wire behind them, so acknowledgments at one place bound how far its clock is ahead of the other's.
With bounds from both sides that is known within a round trip. It decides the order of frames, and no more: their
times stay what they are, but those of halves of a TAP are put right when they are read (taps.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from captures.files.frame import CaptureError, Frame, Interface
from captures.net.answers import Answers

LOOK_COUNT: Final = 8_192
"""How many frames of each capture are compared with those of the first."""


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
    places = [Answers(head) for head in heads]
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

"""Merges several captures of the same traffic: the halves of a TAP in two files, or two capture points.

Frames come in the order of their times, and each interface has its own number. Clocks may differ. An acknowledgment
crosses the wire after the bytes that it acknowledges. So bytes seen at one place and acknowledged at another limit how
far one clock is ahead of the other. Limits from both sides give the difference to within a round trip. It decides only
the order of frames. Their times stay as they are, except that taps.py corrects the times of a TAP's halves as they are
read.

Files that one sniffer wrote one after another are one capture: connections continue from one into the next.
"""

from __future__ import annotations

import heapq
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Final

from mqproto.captures.files.frame import CaptureError, Frame, Interface
from mqproto.captures.files.series import order_in_series, series_name
from mqproto.captures.net.answers import Answers

LOOK_COUNT: Final = 8_192
"""The number of frames of each capture that are compared with those of the first capture."""


def series_of(files: Iterable[tuple[str, Iterator[Frame]]]) -> list[tuple[str, Iterator[Frame]]]:
    """Return captures, each with the path of its first file.

    The files of a series become one capture, wherever they are listed.
    """
    found: dict[str, list[tuple[str, Iterator[Frame]]]] = defaultdict(list)
    for path, frames in files:
        found[series_name(os.path.abspath(path))].append((path, frames))
    return [some[0] if len(some) == 1 else (some[0][0], _in_succession(some)) for some in found.values()]


def _in_succession(files: Sequence[tuple[str, Iterator[Frame]]]) -> Iterator[Frame]:
    """Yield the frames of one file after another.

    If a file is damaged, reading continues with the next file. The error is raised after all files have been read.
    """
    damages: list[CaptureError | OSError] = []
    begun = []
    for path, frames in files:
        rest = _until_damage(frames, damages)
        first = next(rest, None)
        if first is not None:
            begun.append((order_in_series(path, first.time_ns), chain([first], rest)))
    for _, frames in sorted(begun, key=itemgetter(0)):
        yield from frames
    if damages:
        raise damages[0]


def merged(
    captures: Sequence[Iterator[Frame]], look: Callable[[Sequence[Sequence[Frame]]], None] | None = None
) -> Iterator[Frame]:
    """Yield the frames of all captures, numbered consecutively, as one capture with all interfaces.

    Args:
        look: gets the first frames of each capture, and may raise.

    Raises:
        CaptureError: a capture is damaged; raised at the end, after everything readable has been yielded.
    """
    for number, (_, frame) in enumerate(interleaved(captures, look), 1):
        yield frame._replace(number=number)


def interleaved(
    captures: Sequence[Iterator[Frame]], look: Callable[[Sequence[Sequence[Frame]]], None] | None = None
) -> Iterator[tuple[int, Frame]]:
    """Yield the frames as `merged` does, each with the index of its capture and with its number in that capture."""
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

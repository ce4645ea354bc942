"""Walks through the blocks of a pcapng file, many at a time.

Each block states its length, so the next block can be found only by looking at this one. But nearly all blocks are of
the same type and begin at 32-bit boundaries, so all places that look like the beginning of such a block are found at
once. As long as each of these places leads to the next, they are the blocks that a single-step walk would reach. All
other blocks are visited one by one, so frames may contain anything without confusing the walk.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np

from mqproto.captures.files.pcapng import ENHANCED_PACKET, MAX_BLOCK_BYTES, SECTION_HEADER
from mqproto.captures.pipeline.source.octets import Octets, Vector

SMALLEST_BYTES: Final = 12
"""The size of an empty block."""
STEPS: Final = 32
"""The number of blocks to visit one by one before the next attempt to find many at once."""
WINDOW_BYTES: Final = 1 << 22
"""The greatest number of bytes to search at a time. A search never covers more bytes than have been walked through so
far.
"""


class _Likely(NamedTuple):
    """Places where blocks seem to begin.

    following: for each place, where the next block begins according to the length stated there.
    breaks: the indexes of the places whose next block is not at the next place in the list; this includes the last
        place.
    """

    at: Vector
    following: Vector
    breaks: Vector

    def run_from(self, at: int) -> slice:
        """Return the places, beginning with `at`, each of which leads to the next.

        Return none if `at` is not among them.
        """
        first = int(np.searchsorted(self.at, at))
        if first == len(self.at) or self.at[first] != at:
            return slice(first, first)
        return slice(first, int(self.breaks[np.searchsorted(self.breaks, first)]) + 1)


def chain(data: Octets, order: str, low: int, high: int) -> Vector:
    """Return the places of consecutive blocks whose lengths are sound.

    Their contents may still be damaged.

    Args:
        order: the byte order of their section, "<" or ">".
        low: where the first block begins, at a 32-bit boundary of the file.
        high: all blocks begin before this place. The chain ends earlier at a new section, or at anything that is not a
            block.
    """
    found: list[Vector] = []
    at, likely, searched = low, _search(data, order, low, low), low
    while True:
        steps, at, is_over = _steps(data, order, at, high)
        found.append(steps)
        if is_over:
            return np.concatenate(found)
        if at >= searched:
            searched = min(at + min(at - low, WINDOW_BYTES), high)
            likely = _search(data, order, at, searched)
        run = likely.run_from(at)
        if run.stop > run.start:
            found.append(likely.at[run])
            at = int(likely.following[run.stop - 1])


def _steps(data: Octets, order: str, at: int, high: int) -> tuple[Vector, int, bool]:
    """Return the places of the next few blocks, the place after them, and whether the chain ends there."""
    unpack, view = struct.Struct(order + "II").unpack_from, data.data
    places: list[int] = []
    is_over = False
    for _ in range(STEPS):
        if at >= high or at + SMALLEST_BYTES > len(data):
            is_over = True
            break
        kind, length = unpack(view, at)
        is_sound = not length & 3 and SMALLEST_BYTES <= length <= MAX_BLOCK_BYTES
        if not is_sound or at + length > len(data) or kind == SECTION_HEADER:
            is_over = True
            break
        places.append(at)
        at += length
    return np.array(places, np.int64), at, is_over


def _search(data: Octets, order: str, low: int, high: int) -> _Likely:
    """Return places in the range from `low` to before `high` where blocks with frames probably begin."""
    words = data[: len(data) & ~3].view(order + "u4")
    last = max(len(words) - SMALLEST_BYTES // 4 + 1, 0)
    place = (low >> 2) + np.flatnonzero(words[low >> 2 : min(high + 3 >> 2, last)] == ENHANCED_PACKET)
    length = words[place + 1].astype(np.int64)
    at = place << 2
    good = (length & 3 == 0) & (length >= SMALLEST_BYTES) & (length <= MAX_BLOCK_BYTES)
    good &= at + length <= len(data)
    at, length = at[good], length[good]
    # The repeated length rules out most frame contents; whether it must be there is checked elsewhere.
    good = words[(at + length >> 2) - 1] == length
    at, following = at[good], (at + length)[good]
    is_break = np.ones(len(at), np.bool_)
    is_break[:-1] = following[:-1] != at[1:]
    return _Likely(at, following, np.flatnonzero(is_break))

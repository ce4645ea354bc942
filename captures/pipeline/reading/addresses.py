"""Determines to which tasks of each stage the rows of a series go."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from mqproto.captures.net.streams import Ends

SEGMENTS: Final = "segments"
"""The exchange of TCP segments, from ranges to pairs of ends."""
FOUND_ROWS: Final = "found"
"""The exchange of packets that become readable in a range, and of Pings.

It leads from pairs and from ranges to the tasks that write ranges.
"""
FRAGMENTS: Final = "fragments"
"""The exchange of IP fragments, from ranges to their series."""
CLOSED_STREAMS: Final = "closed"
"""The exchange of streams that are over, from pairs to tables."""
OPEN_STREAMS: Final = "open"
"""The exchange of streams that would be over if the series ended here, from pairs to tables."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """The buckets for the rows of one series, which differ from those of other series in the same run.

    series: the bucket for the fragments of the series.
    ranges: the bucket for range 0; those for other ranges follow.
    pairs: the first of `count` buckets for pairs of ends.
    streams: the first of `count` buckets for the streams of these pairs. They come after the buckets for the ranges of
        all series.
    """

    series: int
    ranges: int
    pairs: int
    streams: int
    count: int

    def range(self, place: int) -> int:
        """Return the bucket for a range's rows; rows that only the end reveals have a bucket after the last range."""
        return self.ranges + place

    def pair(self, ends: Ends) -> int:
        """Return the bucket for a pair of ends; the same in every process."""
        return self.pairs + hash_of(ends) % self.count


def hash_of(ends: Ends) -> int:
    """Return a number for a pair of ends, which determines the bucket of the pair."""
    return zlib.crc32(repr(ends).encode())

"""Where the rows of a series go: the tasks of each stage."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from mqproto.captures.net.streams import Ends

SEGMENTS: Final = "segments"
"""From ranges to pairs of ends: TCP segments."""
FOUND_ROWS: Final = "found"
"""From pairs and ranges to the task that writes each range: packets that become readable in it, and its Pings."""
FRAGMENTS: Final = "fragments"
"""From ranges to their series: fragments of IP packets."""
CLOSED_STREAMS: Final = "closed"
"""From pairs to tables: streams that are over."""
OPEN_STREAMS: Final = "open"
"""From pairs to tables: streams that would be over if the series ended here."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """The buckets for the rows of one series, besides other series that are read in the same run.

    series: for its fragments.
    ranges: for range 0; the others follow.
    pairs: the first of `count` buckets for pairs of ends.
    streams: the first of as many for the streams of these pairs, behind the ranges of all series.
    """

    series: int
    ranges: int
    pairs: int
    streams: int
    count: int

    def range(self, place: int) -> int:
        """Return the bucket for a range's rows; those that only the end reveals go behind the last range."""
        return self.ranges + place

    def pair(self, ends: Ends) -> int:
        """Return the bucket for a pair of ends; the same in every process."""
        return self.pairs + hash_of(ends) % self.count


def hash_of(ends: Ends) -> int:
    """Return a number for a pair of ends, from which its bucket follows."""
    return zlib.crc32(repr(ends).encode())

"""Which tasks the rows of a series go to, from stage to stage."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from mqproto.captures.net.streams import Ends

FOUND_ROWS: Final = "found"
"""Packets as ranges show them, to the task that writes the range."""
SUMMARIES: Final = "summaries"
"""From ranges to pairs of ends: what each range says of each pair."""
FRAGMENTS: Final = "fragments"
"""From ranges to their series: fragments of IP packets."""
CORRECTIONS: Final = "corrections"
"""From pairs to ranges: what becomes of the streams that a range has."""
JOINED_ROWS: Final = "joined"
"""From pairs to ranges: packets that no range has by itself."""
CLOSED_STREAMS: Final = "closed"
"""From pairs to tables: streams that are over."""
OPEN_STREAMS: Final = "open"
"""And those that would be, if the series ended here."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """The buckets that the rows of one series go to, beside those of other series that are read in the same run.

    series: of its fragments.
    ranges: of range 0, and so on.
    pairs: of the first of `count` buckets of pairs of ends.
    streams: of the first of as many, of the streams of these, behind the ranges of all series.
    """

    series: int
    ranges: int
    pairs: int
    streams: int
    count: int

    def range(self, place: int) -> int:
        """Where the rows of a range go; what only the end of the series lets be read goes to one behind the last."""
        return self.ranges + place

    def pair(self, ends: Ends) -> int:
        """Where a pair of ends goes; the same in every process."""
        return self.pairs + hash_of(ends) % self.count


def hash_of(ends: Ends) -> int:
    """A number for a pair of ends, by which it goes to its bucket."""
    return zlib.crc32(repr(ends).encode())

"""Where the stages leave what they have found in a series, for one another."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

from captures.net.streams import Ends
from captures.pipeline.exchange import Exchange


@dataclass(frozen=True, slots=True)
class SeriesFolder:
    """Where the stages leave what they have found in a series.

    path: in the folder of the run.
    buckets: into how many parts the pairs of ends are put.
    texts: whether packets are found with what their bodies say.
    """

    path: Path
    buckets: int
    texts: bool = False

    @property
    def found(self) -> Exchange:
        """Packets as ranges show them, by range."""
        return Exchange(self.path, "found")

    @property
    def summaries(self) -> Exchange:
        """From ranges to pairs: what each range says of each pair."""
        return Exchange(self.path, "summaries")

    @property
    def corrections(self) -> Exchange:
        """From pairs to ranges: what becomes of the streams that a range has."""
        return Exchange(self.path, "corrections")

    @property
    def joined(self) -> Exchange:
        """From pairs to ranges: packets that no range has by itself."""
        return Exchange(self.path, "joined")

    @property
    def closed(self) -> Exchange:
        """From pairs to tables: streams that are over."""
        return Exchange(self.path, "closed")

    @property
    def open(self) -> Exchange:
        """And those that would be, if the series ended here."""
        return Exchange(self.path, "open")

    def bucket_of(self, ends: Ends) -> int:
        """Where a pair of ends goes; the same in every process."""
        return hash_of(ends) % self.buckets

    def fragments(self, place: int) -> Path:
        """The fragments of a range, if it has any."""
        return self.path / "fragments" / f"{place:06d}"

    def waiting(self, place: int) -> Path:
        """What waits for fragments before a range, if anything does."""
        return self.path / "waiting" / f"{place:06d}"


def hash_of(ends: Ends) -> int:
    """A number for a pair of ends, by which it goes to its bucket."""
    return zlib.crc32(repr(ends).encode())

"""A log of the events in a world. All runs of one scenario have the same trace, on any machine."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator

from mqproto.simulator.world.network.glimpse import Glimpse
from mqproto.simulator.world.network.links import End


class WorldTrace:
    """Keeps the events of a world if they are wanted, and turns them into lines of text on demand."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._entries: list[tuple[object, ...]] = []

    def add(self, *facts: object) -> None:
        """Keep an event: the time in milliseconds, the node, a word, and further facts."""
        if self._wanted:
            self._entries.append(facts)

    def sent(self, now_ms: int, end: End, glimpses: list[Glimpse]) -> None:
        """Record that packets left a node, with a checksum of each."""
        if self._wanted:
            sums = [f"{zlib.crc32(glimpse.packet):08x}" for glimpse in glimpses]
            self._entries.append((now_ms, end.host.name, "send", end.peer.host.name, *sums))

    def lines(self) -> Iterator[str]:
        """Yield the lines of the trace."""
        return (" ".join(map(str, entry)) for entry in self._entries)

    def digest(self) -> str:
        """Return a hash of the trace. Equal traces have the same hash, and different traces have different ones."""
        summed = hashlib.sha256()
        for line in self.lines():
            summed.update(line.encode() + b"\n")
        return summed.hexdigest()[:16]

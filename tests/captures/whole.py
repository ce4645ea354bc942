"""Streams with all their bytes, read from the captures of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.net.answers import segment_in
from mqproto.captures.net.direction import Arrival, Chunk, Stream
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.streams import Reassembler


@dataclass(slots=True, eq=False)
class WholeStream(Stream):
    """A stream and its chunks."""

    chunks: list[Chunk] = field(default_factory=list)

    @property
    def data(self) -> bytes:
        """All bytes of the stream; missing ones are left out, without a gap."""
        return b"".join(chunk.data for chunk in self.chunks)


def streams(path: str | os.PathLike[str]) -> list[WholeStream]:
    """Return the streams of a capture file: two for each connection; the opener's stream comes first.

    Raises:
        CaptureError: the file is damaged.
    """
    return reassemble(read_capture(path))


def reassemble(frames: Iterable[Frame]) -> list[WholeStream]:
    """Return the streams in `frames`, as `streams` does; frames without a TCP segment are skipped."""
    reader = IpReader()
    reassembler = Reassembler(connection_limit=sys.maxsize)
    arrivals: list[Arrival] = []
    for frame in frames:
        segment = segment_in(frame, reader)
        if segment is not None:
            arrivals += reassembler.feed(frame, segment)
    arrivals += reassembler.finish()
    found = sorted((stream for stream, chunk in arrivals if chunk is None), key=lambda one: one.connection)
    return [
        WholeStream(
            **{each.name: getattr(stream, each.name) for each in fields(Stream)},
            chunks=[chunk for whose, chunk in arrivals if whose is stream and chunk is not None],
        )
        for stream in found
    ]

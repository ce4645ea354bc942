"""Finds damaged copies among segments, as mqproto.captures.net.recent does, and removes their content."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mqproto.captures.net.recent import AHEAD_COUNT, Caught, DamagedCopies
from mqproto.captures.net.tcp import Segment
from mqproto.captures.pipeline.reading.packets.reassembly import SegmentPart, distance


def pass_over_damaged(part: SegmentPart) -> None:
    """Remove the content of damaged segments of which there are intact copies."""
    segments = part.segments
    row, count = np.flatnonzero(segments.size > 0), len(segments.ends)
    way = (segments.interface[row].astype(np.int64) * count + segments.source[row]) * count
    way += segments.destination[row]
    frame, sequence, size = segments.frame[row], segments.sequence[row], segments.size[row]
    by = np.argsort(way, kind="stable")
    is_first = np.ones(len(by), np.bool_)
    is_first[1:] = way[by[1:]] != way[by[:-1]]
    group = np.cumsum(is_first) - 1
    start = distance(sequence[by], sequence[by][is_first][group]) + (group << 34)
    reached = np.maximum.accumulate(start + size[by])
    behind = np.flatnonzero(~is_first[1:] & (start[1:] < reached[:-1])) + 1
    if not len(behind):
        return
    firsts = np.flatnonzero(is_first)[group]
    copies = DamagedCopies()

    def at(place: int) -> Caught:
        return _segment_at(part, int(row[by[place]]))

    def before(place: int) -> Iterator[Caught]:
        for other in range(place - 1, int(firsts[place]) - 1, -1):
            if frame[by[other]] < frame[by[place]] - AHEAD_COUNT:
                break
            yield at(other)

    for place in behind.tolist():
        copies.compare(*at(place), before(place))
    for number, whole in copies.passed.items():
        segments.pass_over(number, whole)


def _segment_at(part: SegmentPart, row: int) -> Caught:
    segments = part.segments
    source, destination = segments.ends[segments.source[row]], segments.ends[segments.destination[row]]
    payload = segments.payload(part.data, row)
    segment = Segment(source, destination, int(segments.sequence[row]), 0, 0, 0, b"", payload)
    return segments.frame_of(part.data, row), segment

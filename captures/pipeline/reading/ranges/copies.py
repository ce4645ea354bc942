"""Damaged copies in a range, found as in mqproto.captures.net.recent: their content is taken away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mqproto.captures.net.recent import AHEAD_COUNT, Caught, DamagedCopies
from mqproto.captures.net.tcp import Segment
from mqproto.captures.pipeline.reading.ranges.reassembly import RangeSegments, distance


def pass_over_damaged(part: RangeSegments, ahead: RangeSegments | None = None) -> None:
    """Take away the content of segments that others have intact.

    Args:
        ahead: some of what follows the range.
    """
    parts = [part] if ahead is None else [part, ahead]
    ends = {
        end: place for place, end in enumerate({end: None for each in parts for end in each.segments.ends})
    }
    columns = []
    for number, each in enumerate(parts):
        some = each.segments
        row = np.flatnonzero(some.size > 0)
        index = np.array([ends[end] for end in some.ends], np.int64)
        way = (some.interface[row].astype(np.int64) * len(ends) + index[some.source[row]]) * len(ends)
        way += index[some.destination[row]]
        frame = some.frame[row] + each.first_number
        columns.append((np.full(len(row), number), row, way, frame, some.sequence[row], some.size[row]))
    whose, row, way, frame, sequence, size = map(np.concatenate, zip(*columns, strict=True))
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
        return _segment_at(parts[whose[by[place]]], int(row[by[place]]))

    def before(place: int) -> Iterator[Caught]:
        for other in range(place - 1, int(firsts[place]) - 1, -1):
            if frame[by[other]] < frame[by[place]] - AHEAD_COUNT:
                break
            yield at(other)

    for place in behind.tolist():
        copies.compare(*at(place), before(place))
    for number, whole in copies.passed.items():
        if number < part.first_number + part.segments.frame_count:
            part.segments.pass_over(number - part.first_number, whole)


def _segment_at(part: RangeSegments, row: int) -> Caught:
    segments = part.segments
    source, destination = segments.ends[segments.source[row]], segments.ends[segments.destination[row]]
    payload = segments.payload(part.data, row)
    segment = Segment(source, destination, int(segments.sequence[row]), 0, 0, 0, b"", payload)
    return segments.frame_of(part.data, row, part.first_number), segment

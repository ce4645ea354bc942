"""The beginnings of connections in a range, which show whether connections are the same.

These are the segments for mqproto.captures.translation.Translations. For each pair of ends, they are the first segment,
the segments with a SYN, and the first segment with payload after each of these.
"""

from __future__ import annotations

import zlib

import numpy as np

from mqproto.captures.net.tcp import SYN
from mqproto.captures.pipeline.reading.packets.reassembly import Pairs
from mqproto.captures.pipeline.source.records import Data
from mqproto.captures.translation import COMPARED_COUNT, PROOF_BYTES, TellingSegment


def openings(pairs: Pairs, data: Data, first_number: int) -> list[TellingSegment]:
    """Return the openings of a range, in the order of the capture."""
    segments, by = pairs.segments, pairs.by_pair
    if not len(by):
        return []
    begins = segments.flags[by] & SYN != 0
    begins[pairs.first_places] = True
    is_proof = segments.size[by] >= PROOF_BYTES
    count = np.cumsum(is_proof)
    before = np.maximum.accumulate(np.where(begins, count - is_proof, 0))
    is_early = begins | (is_proof & (count - before <= COMPARED_COUNT))
    rows = np.sort(by[is_early])
    found = []
    ends = segments.ends
    columns = (
        rows,
        segments.frame[rows] + first_number,
        segments.time_ns[rows],
        segments.source[rows],
        segments.destination[rows],
        segments.sequence[rows],
        segments.acknowledgment[rows],
        segments.flags[rows],
        segments.size[rows],
        segments.cut[rows],
    )
    for row, number, time_ns, source, destination, sequence, acknowledgment, flags, size, cut in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        content = zlib.crc32(segments.payload(data, row)) if size >= PROOF_BYTES else 0
        found.append(
            TellingSegment(
                number,
                time_ns,
                ends[source],
                ends[destination],
                sequence,
                acknowledgment,
                flags,
                size + cut,
                size,
                content,
            )
        )
    return found

"""The stage that reads: each range of a capture into the packets that it shows, all ranges at the same time."""

from __future__ import annotations

import pickle
import zlib
from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from captures.frame import CaptureError
from captures.ip import IpReader
from captures.packets import Totals
from captures.pipeline.exchange import Exchange
from captures.pipeline.files import mapped
from captures.pipeline.flows import Flows, PairSummary, read_flows
from captures.pipeline.records import Data
from captures.pipeline.rows import FOUND, packet_rows, ping_rows
from captures.pipeline.runner import Count
from captures.pipeline.scan import Reading
from captures.pipeline.segments import segments
from captures.pipeline.whole import whole
from captures.streams import Ends

SUMMARY: Final = pa.schema([("summary", pa.large_binary())])


@dataclass(frozen=True, slots=True)
class Place:
    """A range of a series.

    number: counted from 0 over the series.
    frames_before: in the files of the series that come before this one.
    """

    number: int
    reading: Reading
    frames_before: int

    @property
    def first_number(self) -> int:
        """That of the range's first frame, counted from 1 over the series."""
        return self.frames_before + self.reading.first_number

    def __str__(self) -> str:
        return f"{self.reading.file.where}, bytes {self.reading.start} to {self.reading.end}"


@dataclass(frozen=True, slots=True)
class SeriesFolder:
    """Where the stages leave what they have found in a series.

    path: in the folder of the run.
    buckets: into so many parts the pairs of ends are put.
    """

    path: Path
    buckets: int

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

    def bucket_of(self, ends: Ends) -> int:
        """Where a pair of ends goes; the same in every process."""
        return hash_of(ends) % self.buckets

    def fragments(self, place: int) -> Path:
        """What waits for fragments at the end of a range, if anything does."""
        return self.path / "fragments" / f"{place:06d}"


def hash_of(ends: Ends) -> int:
    """A number for a pair of ends, by which it goes to its bucket."""
    return zlib.crc32(repr(ends).encode())


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Ranges of one file, several only if it is packed.

    fragments_of: the range by whose end packets wait for fragments that may be in this one.
    """

    folder: SeriesFolder
    places: tuple[Place, ...]
    fragments_of: int | None = None

    def __str__(self) -> str:
        return str(self.places[0])


@dataclass(frozen=True, slots=True)
class CountedPair:
    """A pair's summary; how many rows of its packets the range has, and how many of these are framed."""

    summary: PairSummary
    rows: int
    framed: int


@dataclass(slots=True)
class RangeRead:
    """What became of a range.

    totals: of its frames; what becomes of streams is known later.
    rows, framed: of its packets, Pings among them, if all that it assumed is right.
    fragment_count: frames of it that hold fragments.
    waiting_fragments: packets that wait for more of them at its end.
    """

    place: int
    totals: Totals
    rows: int
    framed: int
    fragment_count: int
    waiting_fragments: int
    damage: CaptureError | None


def read_ranges(task: ReadTask, count: Count) -> list[RangeRead]:
    """Read ranges, and leave what was found in the folder of the series.

    Raises:
        CaptureError, OSError: as `captures.pipeline.files.mapped`.
    """
    results = []
    with mapped(task.places[0].reading.file) as source:
        for place in task.places:
            result = _read(task, place, source.data)
            results.append(result)
            count(result.framed, place.reading.end - place.reading.start)
    return results


def waiting_fragments(folder: SeriesFolder, fragments_of: int | None) -> IpReader:
    """What waited for fragments at the end of a range; nothing, if that is None."""
    if fragments_of is None:
        return IpReader()
    ip: IpReader = pickle.loads(folder.fragments(fragments_of).read_bytes())
    return ip


def _read(task: ReadTask, place: Place, data: Data) -> RangeRead:
    folder = task.folder
    ip = waiting_fragments(folder, task.fragments_of)
    given_up_before = ip.given_up_count
    found = segments(place.reading, data, ip)
    if found.open_fragments:
        with whole(folder.fragments(place.number)) as path:
            path.write_bytes(pickle.dumps(found.ip, pickle.HIGHEST_PROTOCOL))
    flows = read_flows(found, data, place.first_number)
    packets = flows.packets
    rows = packet_rows(packets)
    if found.pings:
        rows = chain(rows, [ping_rows(found.pings, place.frames_before)])
    folder.found.put_all(place.number, FOUND, rows)
    folder.summaries.put(place.number, _by_bucket(folder, flows))
    totals = Totals(
        frames=found.frame_count,
        segment_frames=len(found),
        ping_frames=len(found.pings),
        other_frames=found.other_frames,
        cut_frames=found.cut_frames,
        untimed_frames=found.untimed_frames,
        first_ns=found.first_ns,
        last_ns=found.last_ns,
        given_up_fragments=found.ip.given_up_count - given_up_before,
    )
    return RangeRead(
        place=place.number,
        totals=totals,
        rows=len(packets) + len(found.pings),
        framed=int(packets.framed.sum()) + len(found.pings),
        fragment_count=found.ip.fragment_count,
        waiting_fragments=found.ip.waiting_count,
        damage=place.reading.damage,
    )


def _by_bucket(folder: SeriesFolder, flows: Flows) -> dict[int, pa.RecordBatch]:
    packets = flows.packets
    rows = np.bincount(packets.stream, minlength=len(packets.streams))
    framed = np.bincount(packets.stream[packets.framed], minlength=len(packets.streams))
    buckets: defaultdict[int, list[bytes]] = defaultdict(list)
    for summary in flows.summaries:
        counted = CountedPair(summary, int(rows[summary.places].sum()), int(framed[summary.places].sum()))
        pickled = pickle.dumps(counted, pickle.HIGHEST_PROTOCOL)
        buckets[folder.bucket_of(summary.ends)].append(pickled)
    return {
        bucket: pa.record_batch([pa.array(some, pa.large_binary())], schema=SUMMARY)
        for bucket, some in buckets.items()
    }

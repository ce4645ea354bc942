"""Finds the series that are the halves of a TAP, and makes one capture of them.

A full-duplex TAP may write one file for each direction. Two series are its halves under three conditions. Each has only
one direction of its connections, they share a connection in opposite directions, and each acknowledges bytes that the
other may have sent. Their first frames show this.

One task puts the frames of both in order, as `mqproto decode A B` does (mqproto.captures.net.merging). It writes a
capture that all later stages read like any other, and a table that shows where each frame is in its own file. Both are
deleted after the run. So halves that have grown are read again from the beginning.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

import numpy as np

from mqproto.captures.files.frame import CaptureError, Frame
from mqproto.captures.files.pcapng import Dropped, PcapngWriter
from mqproto.captures.net.answers import segment_in
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.merging import interleaved
from mqproto.captures.net.recent import JUMP_LIMIT_BYTES, signed
from mqproto.captures.net.taps import FRAME_LIMIT
from mqproto.captures.net.tcp import ACK, Endpoint, Segment
from mqproto.captures.packets import Totals, content_of
from mqproto.captures.pipeline.engines.engine import Inbox, Outbox
from mqproto.captures.pipeline.source.files import CaptureFile, frames_in, look_at, readable_frames
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.source.storage import opened, place_of, whole
from mqproto.captures.pipeline.tables.parts import Store

Halves = tuple[tuple[CaptureFile, ...], tuple[CaptureFile, ...]]
"""The files of both halves, each in order."""

ORIGIN: Final = np.dtype([("file", "<i4"), ("frame", "<i8"), ("offset", "<i8")])
"""The origin of a frame in a merged capture.

It consists of the place of the frame's file among the files of both halves, and of the frame's number and offset in
that file.
"""
BUFFER_BYTES: Final = 1 << 20
"""The number of bytes that are sent at a time to the storage of the tables."""
ROWS: Final = 65_536
"""The number of origins that are written at a time."""


class Numbers(NamedTuple):
    """The sequence and acknowledgment numbers in the first segment of a direction."""

    sent: int
    acknowledged: int


class Ways(dict[tuple[Endpoint, Endpoint], Numbers]):
    """The directions in the first frames of a series, each with the numbers of its first segment with an ACK."""

    def belong_to(self, other: Ways) -> int:
        """Return how many connections have one direction here and the other direction in `other`.

        Return 0 if any connection does not fit.
        """
        if self.keys() & other.keys():
            return 0
        shared = [(numbers, other[ends[::-1]]) for ends, numbers in self.items() if ends[::-1] in other]
        fits = all(_follows(one, two) and _follows(two, one) for one, two in shared)
        return len(shared) if fits else 0


def _follows(one: Numbers, two: Numbers) -> bool:
    return abs(signed(one.acknowledged - two.sent)) <= JUMP_LIMIT_BYTES


def ways_of(files: Iterable[CaptureFile]) -> Ways:
    """Return the directions in a series' first frames; none if a connection has both directions there."""
    ip = IpReader()
    ways = Ways()
    for number, frame in enumerate(readable_frames(files), 1):
        segment = segment_in(frame, ip)
        if segment is not None and segment.flags & ACK:
            ends = (segment.source, segment.destination)
            if ends[::-1] in ways:
                return Ways()
            ways.setdefault(ends, Numbers(segment.sequence_number, segment.acknowledgment_number))
        if number >= FRAME_LIMIT:
            break
    return ways


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Two halves, and the file to merge them into; the origins of its frames are stored next to it.

    name: the name of the file, which is kept with the tables, where every task can reach it.
    """

    halves: Halves
    store: Store
    name: str

    def __str__(self) -> str:
        return " and ".join(half[0].path for half in self.halves)


@dataclass(slots=True)
class Merged:
    """The result of merging two halves.

    file: the merged capture.
    origins: the path or URI of the file with an ORIGIN for each frame of the capture.
    totals: the counts of frames in each file, keyed by path.
    damage: the damage that ended the reading of a file, keyed by path.
    dropped: what each file says about dropped frames, keyed by path.
    """

    file: CaptureFile
    origins: str
    totals: dict[str, Totals]
    damage: dict[str, CaptureError]
    dropped: dict[str, Dropped]


class Origins(NamedTuple):
    """The origins of some frames, as columns: the place of each one's file, and its number and offset there."""

    file: Integers
    frame: Integers
    offset: Integers


def origins_at(path: str, numbers: Integers) -> Origins:
    """Return the origins of frames with these numbers; `path` is `Merged.origins`."""
    first, last = (int(numbers.min()), int(numbers.max())) if len(numbers) else (1, 0)
    with opened(path) as (file, _):
        file.seek((first - 1) * ORIGIN.itemsize)
        rows = np.frombuffer(file.read((last - first + 1) * ORIGIN.itemsize), ORIGIN)
    table = rows[numbers - first]
    return Origins(*(table[name].astype(np.int64) for name in Origins._fields))


class _Half:
    """The frames of one half, and the file of the next frame.

    Frames of one half come out in the order in which they went in, but later.
    """

    def __init__(self, files: Sequence[CaptureFile], first: int) -> None:
        self.damage: dict[str, CaptureError] = {}
        self.dropped: dict[str, Dropped] = {}
        self._files = files
        self._first = first
        self._ends: list[int] = []
        self._count = 0

    def frames(self) -> Iterator[Frame]:
        """Yield all frames."""
        count = 0
        for file in self._files:
            try:
                dropped = self.dropped[file.path] = Dropped()
                for frame in frames_in(file.path, dropped):
                    count += 1
                    yield frame
            except CaptureError as damage:
                self.damage[file.path] = damage
            self._ends.append(count)

    def file_of_next(self) -> int:
        """Return which file the next frame comes from, as an index into the files of both halves."""
        self._count += 1
        return self._first + bisect_left(self._ends, self._count)


def merge(task: MergeTask, inbox: Inbox, outbox: Outbox) -> Merged:
    """Merge two halves into one capture.

    Raises:
        OSError: a file cannot be read, or the disk has no room.
    """
    one, other = task.halves
    halves = (_Half(one, 0), _Half(other, len(one)))
    totals = [Totals() for _ in (*one, *other)]
    readers = (IpReader(), IpReader())
    origins = f"{task.name}.origins"
    rows: list[tuple[int, int, int]] = []
    with _written(task.store, task.name) as capture, _written(task.store, origins) as table:
        writer: PcapngWriter | None = None
        for half, frame in interleaved([half.frames() for half in halves]):
            writer = writer or PcapngWriter(capture, interface=frame.interface)
            writer.write(frame._replace(comment="", options=()))
            source = halves[half].file_of_next()
            _add(totals[source], frame, readers[half])
            rows.append((source, frame.number, frame.offset))
            if len(rows) == ROWS:
                table.write(np.array(rows, ORIGIN).tobytes())
                rows.clear()
        table.write(np.array(rows, ORIGIN).tobytes())
    return Merged(
        look_at(task.store.path(task.name)),
        task.store.path(origins),
        {each.path: found for each, found in zip((*one, *other), totals, strict=True)},
        {path: damage for half in halves for path, damage in half.damage.items()},
        {path: dropped for half in halves for path, dropped in half.dropped.items()},
    )


@contextmanager
def _written(store: Store, name: str) -> Iterator[BinaryIO]:
    """Provide a file of any size to write to in the block."""
    target = store.path(name)
    if store.folder is None:
        place = place_of(target)
        with place.system.open_output_stream(place.path, buffer_size=BUFFER_BYTES) as remote:
            yield cast(BinaryIO, remote)
        return
    with whole(Path(target)) as path, path.open("wb") as file:
        yield file


def _add(totals: Totals, frame: Frame, ip: IpReader) -> None:
    """Count a frame of a file, as mqproto.captures.packets does."""
    totals.frames += 1
    totals.cut_frames += frame.missing_bytes > 0
    totals.see(frame.time_ns)
    content = content_of(frame, ip)
    if isinstance(content, Segment):
        totals.segment_frames += 1
    elif isinstance(content, str):
        totals.other_frames[content] += 1
    else:
        totals.ping_frames += 1

"""The frames of a stretch of a capture as columns.

The records are read one by one, and then all headers at once. Sound records are read here. Descriptions of interfaces,
and the first damaged record or block, are left to the readers of mqproto.captures.files.pcap and
mqproto.captures.files.pcapng. So there is only one set of rules about damage, and one wording.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from mqproto.captures.files.frame import MAX_FRAME_BYTES, NANOSECONDS, CaptureError, Interface
from mqproto.captures.files.pcap import RECORD_HEADER, read_records, why_no_head
from mqproto.captures.files.pcapng import (
    DROP_COUNT,
    ENHANCED_PACKET,
    INTERFACE_DESCRIPTION,
    INTERFACE_STATISTICS,
    OBSOLETE_PACKET,
    SECTION_HEADER,
    SIMPLE_PACKET,
    Clock,
    Dropped,
    PcapngReader,
    Section,
    Source,
)
from mqproto.captures.pipeline.source.chain import chain
from mqproto.captures.pipeline.source.octets import windows

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Data = mmap.mmap | bytes
"""A mapped capture file; for a packed file, its unpacked bytes."""

SECTION_BEGINS: Final = struct.pack("<I", SECTION_HEADER)
FRAME_KINDS: Final = (ENHANCED_PACKET, SIMPLE_PACKET, OBSOLETE_PACKET)
RECORD_BYTES: Final = struct.calcsize("=" + RECORD_HEADER)
ENHANCED_BYTES: Final = 28
"""The distance from the start of an Enhanced Packet Block, or of an obsolete Packet Block, to its frame."""
SIMPLE_BYTES: Final = 12
FEW_BLOCKS: Final = 32
"""Sections with fewer blocks than this are read block by block, because columns would take longer."""
OPTION_LIMIT: Final = 16
"""Blocks with more options than this are checked one by one."""
TIME_LIMIT_NS: Final = 2**62
"""The limit for the distance of a time from 1970. It allows times from 1823 to 2116, so that the difference of any two
fits in a column.
"""


@dataclass(slots=True)
class Frames:
    """The frames that begin in a stretch of a capture, as columns, in the order of the capture.

    offset: the place of the record or block.
    time_ns: the time since 1970, UTC; 0 if the file does not say, or if the time is beyond TIME_LIMIT_NS.
    start, size: the place and size of the frame in the file.
    missing: the number of bytes at the end of the frame that the capture left out.
    interface: the number of the interface, a key of `interfaces`.
    dropped: what the stretch says about dropped frames.
    """

    offset: Integers
    time_ns: Integers
    start: Integers
    size: Integers
    missing: Integers
    interface: Integers
    interfaces: dict[int, Interface]
    dropped: Dropped = field(default_factory=Dropped)

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(slots=True)
class Walked:
    """The result of walking through a stretch from record to record.

    following: where the record after the last one begins.
    section: the state there.
    damage: the fault at `following`, if any.
    """

    following: int
    section: Section
    frame_count: int = 0
    damage: CaptureError | None = None
    columns: list[Frames] = field(default_factory=list)
    dropped: Dropped = field(default_factory=Dropped)

    def frames(self) -> Frames:
        """Return all frames; none if they were not requested."""
        parts = self.columns or [_frames_of([], {})]
        if len(parts) == 1:
            return replace(parts[0], dropped=self.dropped)
        return Frames(
            offset=np.concatenate([part.offset for part in parts]),
            time_ns=np.concatenate([part.time_ns for part in parts]),
            start=np.concatenate([part.start for part in parts]),
            size=np.concatenate([part.size for part in parts]),
            missing=np.concatenate([part.missing for part in parts]),
            interface=np.concatenate([part.interface for part in parts]),
            interfaces={number: one for part in parts for number, one in part.interfaces.items()},
            dropped=self.dropped,
        )


_Row = tuple[int, int, int, int, int, int]
"""One frame: the columns of `Frames`, in the same order."""


def _frames_of(rows: list[_Row], interfaces: dict[int, Interface]) -> Frames:
    offset, time_ns, start, size, missing, interface = np.array(rows, np.int64).reshape(-1, 6).T.copy()
    return Frames(offset, time_ns, start, size, missing, interface, interfaces)


class Stretch(NamedTuple):
    """The stretch of a capture to walk through.

    form: "pcap" or "pcapng".
    where: the name of the file as shown in errors.
    low: where the first record begins.
    high: all records begin before this place.
    section: the state at `low`.
    cut_by: the fault that ends `data` before the end of the file.
    """

    data: Data
    form: str
    where: str
    low: int
    high: int
    section: Section
    cut_by: CaptureError | None = None


def walk(stretch: Stretch, with_columns: bool) -> Walked:
    """Walk through a stretch. Damage is part of the result, never raised.

    Args:
        with_columns: whether to return the frames, rather than only facts about them.
    """
    if stretch.form == "pcap":
        return _walk_records(stretch, with_columns)
    return _BlockWalker(stretch, with_columns).walk()


def gather(data: Data, at: Integers, layout: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Return the items at many places, each read as `layout`.

    Places need not be aligned, but must be within `data`.
    """
    if len(at) == 0:
        return np.empty(0, layout)
    rows: npt.NDArray[np.void] = windows(np.frombuffer(data, np.uint8), at, layout.itemsize).view(layout)[
        :, 0
    ]
    return rows


class _View:
    """A file object over the data of a stretch, for readers that need one.

    At the end of the data, it raises `cut_by`, if that is set.
    """

    def __init__(self, data: Data, cut_by: CaptureError | None) -> None:
        self._data = data
        self._cut_by = cut_by
        self._at = 0

    def seek(self, offset: int) -> None:
        self._at = offset

    def read(self, size: int) -> bytes:
        read = self._data[self._at : self._at + size]
        if len(read) < size and self._cut_by is not None:
            raise self._cut_by
        self._at += len(read)
        return read


def _view(stretch: Stretch) -> BinaryIO:
    return cast(BinaryIO, _View(stretch.data, stretch.cut_by))


def _walk_records(stretch: Stretch, with_columns: bool) -> Walked:
    """Walk through the records of a pcap file."""
    data, section, at, high = stretch.data, stretch.section, stretch.low, stretch.high
    unpack_size = struct.Struct(section.order + "I").unpack_from
    end = len(data)
    offsets = array("q")
    try:
        while at < high:
            (size,) = unpack_size(data, at + 8)
            after = at + RECORD_BYTES + size
            is_odd = not 0 < size <= MAX_FRAME_BYTES
            if after > end or (is_odd and why_no_head(data[at : at + RECORD_BYTES], section.order)):
                break
            offsets.append(at)
            at = after
    except struct.error:
        pass
    # The last frame counts if another head, or the end, follows. For columns it has been counted.
    head = data[at : at + RECORD_BYTES]
    if offsets and not with_columns and len(head) == RECORD_BYTES and why_no_head(head, section.order):
        at = offsets.pop()
    walked = Walked(at, section, frame_count=len(offsets))
    if at < high:
        view = _view(stretch)
        view.seek(at)
        try:
            next(read_records(view, section, stretch.where, at), None)
        except CaptureError as damage:
            walked.damage = damage
    if with_columns:
        walked.columns.append(_record_columns(data, section, np.frombuffer(offsets, np.int64)))
    return walked


def _record_columns(data: Data, section: Section, offset: Integers) -> Frames:
    (source,) = section.sources
    names = ("seconds", "ticks", "size", "wire")
    head = gather(data, offset, np.dtype([(name, section.order + "u4") for name in names]))
    size = head["size"].astype(np.int64)
    seconds, ticks = head["seconds"].astype(np.int64), head["ticks"].astype(np.int64)
    return Frames(
        offset=offset,
        time_ns=seconds * NANOSECONDS + ticks * (NANOSECONDS // source.clock.ticks_per_second),
        start=offset + RECORD_BYTES,
        size=size,
        missing=np.maximum(head["wire"].astype(np.int64) - size, 0),
        interface=np.zeros(len(offset), np.int64),
        interfaces={0: source.interface},
    )


class _Blocks(NamedTuple):
    """Blocks of one section, together with the file as 32-bit words; each block begins with such a word."""

    order: str
    words: npt.NDArray[np.uint32]
    offset: Integers
    kind: Integers
    length: Integers

    @classmethod
    def at(cls, offset: Integers, data: Data, order: str) -> _Blocks:
        words = np.frombuffer(data, np.dtype(order + "u4"), len(data) // 4)
        kind, length = (words[(offset >> 2) + place].astype(np.int64) for place in (0, 1))
        return cls(order, words, offset, kind, length)

    def word(self, at: Integers) -> Integers:
        """Return the words at these places of the file."""
        words: Integers = self.words[at >> 2].astype(np.int64)
        return words

    def of(self, some: Flags | Integers | slice) -> _Blocks:
        """Return some of the blocks."""
        return self._replace(offset=self.offset[some], kind=self.kind[some], length=self.length[some])

    def interface_ids(self) -> Integers:
        """Return the number of the interface that each frame names.

        Simple packets belong to the first interface.
        """
        ids = self.word(self.offset + 8)
        ids[self.kind == SIMPLE_PACKET] = 0
        obsolete = self.kind == OBSOLETE_PACKET
        ids[obsolete] = ids[obsolete] & 0xFFFF if self.order == "<" else ids[obsolete] >> 16
        return ids

    def frame_sizes(self, snapshot_bytes: int) -> Integers:
        """Return the sizes of the frames.

        Those of simple packets are limited to `snapshot_bytes` if that is not 0.
        """
        simple = self.kind == SIMPLE_PACKET
        sizes = self.word(self.offset + np.where(simple, 8, 20))
        if snapshot_bytes:
            sizes[simple] = np.minimum(sizes[simple], snapshot_bytes)
        return sizes


class _BlockWalker:
    """Walks the blocks of a pcapng file, section by section."""

    def __init__(self, stretch: Stretch, with_columns: bool) -> None:
        self._stretch = stretch
        self._data = stretch.data
        self._with_columns = with_columns
        self._reader = PcapngReader(_view(stretch), stretch.where, stretch.section)
        self._walked = Walked(stretch.low, stretch.section, dropped=self._reader.dropped)

    def walk(self) -> Walked:
        walked = self._walked
        try:
            while walked.following < self._stretch.high:
                if self._data[walked.following : walked.following + 4] == SECTION_BEGINS:
                    self._reader.take_block(walked.following)
                    walked.following += self._length_at(walked.following)
                    continue
                octets = np.frombuffer(self._data, np.uint8)
                offsets = chain(octets, self._reader.order, walked.following, self._stretch.high)
                if not len(offsets):
                    # It ends here, or the reader reports the damage.
                    self._reader.take_block(walked.following)
                    assert walked.following == len(self._data), "the reader takes what the chain does not"
                    break
                if len(offsets) < FEW_BLOCKS:
                    self._take_one_by_one(offsets)
                else:
                    self._take_together(offsets)
        except CaptureError as damage:
            walked.damage = damage
        walked.section = self._reader.section
        return walked

    def _length_at(self, offset: int) -> int:
        length: int = struct.unpack_from(self._reader.order + "I", self._data, offset + 4)[0]
        return length

    def _take_one_by_one(self, offsets: Integers) -> None:
        frames: list[_Row] = []
        interfaces: dict[int, Interface] = {}
        try:
            for offset in offsets.tolist():
                frame = self._reader.take_block(offset)
                self._walked.following = offset + self._length_at(offset)
                if frame is None:
                    continue
                (kind,) = struct.unpack_from(self._reader.order + "I", self._data, offset)
                start = offset + (SIMPLE_BYTES if kind == SIMPLE_PACKET else ENHANCED_BYTES)
                number = frame.interface.number
                interfaces[number] = frame.interface
                time_ns = within(frame.time_ns)
                frames.append((offset, time_ns, start, len(frame.data), frame.missing_bytes, number))
        finally:
            self._walked.frame_count += len(frames)
            if frames and self._with_columns:
                self._walked.columns.append(_frames_of(frames, interfaces))

    def _take_together(self, offsets: Integers) -> None:
        known = self._reader.section
        blocks = _Blocks.at(offsets, self._data, known.order)
        whole_count = _first(blocks.word(blocks.offset + blocks.length - 4) != blocks.length)
        described = blocks.kind[:whole_count] == INTERFACE_DESCRIPTION
        described_count = len(known.sources) + np.cumsum(described)
        fault: CaptureError | None = None
        told = described | (blocks.kind[:whole_count] == INTERFACE_STATISTICS)
        for at in np.flatnonzero(told).tolist():
            try:
                self._reader.take_block(int(offsets[at]))
            except CaptureError as error:
                fault, whole_count = error, at
                break
        blocks_whole = blocks.of(slice(whole_count))
        sources = self._reader.section.sources

        is_frame = np.isin(blocks_whole.kind, FRAME_KINDS)
        head_bytes = np.where(blocks_whole.kind == SIMPLE_PACKET, SIMPLE_BYTES, ENHANCED_BYTES)
        is_short = is_frame & (blocks_whole.length < head_bytes + 4)
        place = np.flatnonzero(is_frame & ~is_short)
        frames = blocks_whole.of(place)
        ids = frames.interface_ids()
        sizes = frames.frame_sizes(sources[0].snapshot_bytes if sources else 0)
        starts = frames.offset + head_bytes[place]
        ends = frames.offset + frames.length - 4
        is_bad = (starts + sizes > ends) | (ids >= described_count[place])
        fitting = np.flatnonzero(~is_bad)
        leaves, counts = self._options_leave(frames, starts + sizes + (-sizes & 3), ends, fitting)
        is_bad |= leaves

        is_fault = is_short
        is_fault[place] |= is_bad
        good_count = _first(is_fault)
        frame_count = int(np.searchsorted(place, good_count))
        walked = self._walked
        walked.frame_count += frame_count
        if self._with_columns and frame_count:
            some = slice(frame_count)
            walked.columns.append(
                _block_columns(frames.of(some), ids[some], starts[some], sizes[some], sources)
            )
            self._drop(frames.of(some), ids, counts[counts[:, 0] < frame_count])
        if good_count < len(offsets):
            walked.following = int(offsets[good_count])
        else:
            walked.following = int(blocks.offset[-1] + blocks.length[-1])
        if good_count < whole_count:
            self._raise_at(int(offsets[good_count]), known, int(described_count[good_count]))
        if fault is not None:
            raise fault
        if whole_count < len(offsets):
            self._raise_at(int(offsets[whole_count]), known, len(sources))

    def _raise_at(self, offset: int, known: Section, source_count: int) -> None:
        """Raise the reader's error for a damaged block.

        The reader knows only the first `source_count` interfaces.

        Raises:
            CaptureError: always.
        """
        section = known._replace(sources=self._reader.section.sources[:source_count])
        PcapngReader(_view(self._stretch), self._stretch.where, section).take_block(offset)
        raise AssertionError(f"the reader takes the block at {offset}, and the columns do not")

    def _drop(self, frames: _Blocks, ids: Integers, counts: Integers) -> None:
        """Count the dropped frames that blocks report, in the same way as the reader.

        Args:
            counts: for each option that counts dropped frames, the row of its frame, and the place of the option.
        """
        some = counts[(frames.word(counts[:, 1] + 4) | frames.word(counts[:, 1] + 8)) != 0]
        for row, at in some.tolist():
            self._reader.drop(int(ids[row]), *struct.unpack_from(frames.order + "Q", self._data, at + 4))
        heads = frames.word(frames.offset + 8)
        dropped = heads >> 16 if frames.order == "<" else heads & 0xFFFF
        for row in np.flatnonzero((frames.kind == OBSOLETE_PACKET) & (dropped > 0)).tolist():
            self._reader.drop(int(ids[row]), int(dropped[row]))

    def _options_leave(
        self, frames: _Blocks, at: Integers, ends: Integers, rows: Integers
    ) -> tuple[Flags, Integers]:
        """Return, for each frame, whether it has an option that extends beyond the frame's block.

        Also return the row and the place of each option that counts dropped frames.
        """
        counts = [np.empty((0, 2), np.int64)]
        leaves = np.zeros(len(frames.offset), np.bool_)
        rows = rows[(at[rows] < ends[rows]) & (frames.kind[rows] != SIMPLE_PACKET)]
        at = at.copy()
        code, size = (0, 16) if frames.order == "<" else (16, 0)
        for _ in range(OPTION_LIMIT):
            if len(rows) == 0:
                break
            head = frames.word(at[rows])
            rows, head = rows[head >> code & 0xFFFF != 0], head[head >> code & 0xFFFF != 0]
            length = head >> size & 0xFFFF
            is_bad = at[rows] + 4 + length > ends[rows]
            leaves[rows[is_bad]] = True
            is_count = (head >> code & 0xFFFF == DROP_COUNT) & (length == 8) & ~is_bad
            is_count &= frames.kind[rows] == ENHANCED_PACKET
            counts.append(np.stack([rows[is_count], at[rows[is_count]]], axis=1))
            at[rows] += 4 + length + (-length & 3)
            rows = rows[~is_bad & (at[rows] < ends[rows])]
        reader = PcapngReader(_view(self._stretch), self._stretch.where, self._reader.section)
        for row in rows.tolist():
            try:
                reader.take_block(int(frames.offset[row]))
            except CaptureError:
                leaves[row] = True
        return leaves, np.concatenate(counts)


def _block_columns(
    frames: _Blocks, ids: Integers, starts: Integers, sizes: Integers, sources: Sequence[Source]
) -> Frames:
    simple = frames.kind == SIMPLE_PACKET
    wire = frames.word(frames.offset + np.where(simple, 8, 24))
    used, begins = np.unique(np.sort(ids), return_index=True)
    groups = np.split(np.argsort(ids, kind="stable"), begins[1:])
    time_ns = np.zeros(len(ids), np.int64)
    numbers = np.zeros(len(ids), np.int64)
    for number, rows in zip(used.tolist(), groups, strict=True):
        source = sources[number]
        numbers[rows] = source.interface.number
        rows = rows[~simple[rows]]
        at = frames.offset[rows]
        time_ns[rows] = _times(frames.word(at + 12), frames.word(at + 16), source.clock)
    interfaces = {sources[number].interface.number: sources[number].interface for number in used.tolist()}
    return Frames(frames.offset, time_ns, starts, sizes, np.maximum(wire - sizes, 0), numbers, interfaces)


def _times(high: Integers, low: Integers, clock: Clock) -> Integers:
    """Return times as `Clock.time_ns` does: micro- and nanoseconds all at once, other units one by one."""
    tick_ns, rest = divmod(NANOSECONDS, clock.ticks_per_second)
    if rest == 0 and clock.offset_s == 0 and (len(high) == 0 or int(high.max()) < (2**30 - 1) // tick_ns):
        return (high << 32 | low) * tick_ns
    ticks = zip(high.tolist(), low.tolist(), strict=True)
    times = (within(clock.time_ns(upper << 32 | lower)) for upper, lower in ticks)
    return np.fromiter(times, np.int64, len(high))


def within(time_ns: int) -> int:
    """Return a time for a column; 0 if it is too far from 1970 to fit."""
    return time_ns if abs(time_ns) < TIME_LIMIT_NS else 0


def _first(flags: Flags) -> int:
    """Return the index of the first flag that is set; the number of flags if none is set."""
    return int(flags.argmax()) if flags.any() else len(flags)

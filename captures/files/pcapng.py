"""Writes and reads pcapng.  draft-ietf-opsawg-pcapng

A file is a series of blocks. Each block states its type and its length, and its length again at its end. We write one
section, and read any number of sections and interfaces, in either byte order. Blocks and options that we do not need
are skipped.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO, Final, Literal, NamedTuple

from mqproto.base.errors import UsageError
from mqproto.captures.files.frame import (
    MAX_FRAME_BYTES,
    NANOSECONDS,
    ONLY_INTERFACE,
    CaptureError,
    Frame,
    Interface,
    Options,
)

SECTION_HEADER: Final = 0x0A0D0D0A
INTERFACE_DESCRIPTION: Final = 1
OBSOLETE_PACKET: Final = 2
SIMPLE_PACKET: Final = 3
INTERFACE_STATISTICS: Final = 5
ENHANCED_PACKET: Final = 6

BYTE_ORDER_MAGIC: Final = 0x1A2B3C4D

END_OF_OPTIONS: Final = 0
COMMENT: Final = 1
USER_APPLICATION: Final = 4  # in a section header
INTERFACE_NAME: Final = 2  # these three in an interface description
TIME_RESOLUTION: Final = 9
TIME_OFFSET: Final = 14
DROP_COUNT: Final = 4  # of an enhanced packet: how many frames were dropped right before it
DROPPED: Final = (5, 7)  # in statistics: how many frames the interface dropped, and the system
OURS: Final = (INTERFACE_NAME, TIME_RESOLUTION, TIME_OFFSET)
"""The options of an interface that the writer sets itself."""

MAX_BLOCK_BYTES: Final = 16 * 1024 * 1024  # nobody writes larger blocks; the length may be damaged
MAX_INTERFACES: Final = (
    65_536  # as many as the obsolete block could name; nobody describes more than a few dozen
)
NO_NUMBER: Final = 0xFFFF_FFFF_FFFF_FFFF  # the length of a section that is still being written


class PcapngWriter:
    """Writes frames to a file, or to anything that takes bytes.

    An interface is described before its first frame. So frames from several interfaces, with their options, are written
    as they were read.

    Args:
        file: stays open, and is flushed by `flush` and at the end of a `with`.
        ticks_per_second: 1,000,000,000 or 1,000,000; times are truncated to this resolution.
        comment: a text about the whole capture.
        interface: the first interface, or the name that Wireshark shows for frames without an interface.

    Raises:
        OSError: the file took no more bytes.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        ticks_per_second: Literal[1_000_000_000, 1_000_000] = NANOSECONDS,
        comment: str = "",
        interface: str | Interface = "",
    ) -> None:
        self._file = file
        self._tick_ns = NANOSECONDS // ticks_per_second
        self._numbers: dict[Interface, int] = {}
        section = _option(COMMENT, comment.encode()) + _option(USER_APPLICATION, b"mqproto")
        file.write(
            _block(SECTION_HEADER, struct.pack("<IHHQ", BYTE_ORDER_MAGIC, 1, 0, NO_NUMBER) + _ended(section))
        )
        self._only = interface if isinstance(interface, Interface) else Interface(name=interface)
        self._describe(self._only)

    def write(self, frame: Frame) -> None:
        """Append one frame.

        Raises:
            UsageError: the frame is longer than 256 KiB, its time is before 1970, or its comment does not
                fit.
        """
        size_bytes = len(frame.data)
        ticks = frame.time_ns // self._tick_ns
        if size_bytes > MAX_FRAME_BYTES:
            raise UsageError(f"a frame of {size_bytes} bytes: at most {MAX_FRAME_BYTES} fit")
        if not 0 <= ticks < 2**64:
            raise UsageError(f"a frame at {frame.time_ns} ns: pcapng counts from 1970 in 64 bits")
        interface = self._only if frame.interface == ONLY_INTERFACE else frame.interface
        number = self._numbers.get(interface)
        if number is None:
            number = self._describe(interface)
        head = struct.pack(
            "<IIIII", number, ticks >> 32, ticks & 0xFFFF_FFFF, size_bytes, size_bytes + frame.missing_bytes
        )
        options = _option(COMMENT, frame.comment.encode())
        options += b"".join(_option(code, value) for code, value in frame.options)
        self._file.write(
            _block(
                ENHANCED_PACKET,
                head + frame.data + _padding(size_bytes) + (_ended(options) if options else b""),
            )
        )

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        self._file.flush()

    def _describe(self, interface: Interface) -> int:
        """Describe an interface in the file, and return its number there."""
        number = self._numbers[interface] = len(self._numbers)
        resolution = bytes([9 if self._tick_ns == 1 else 6])
        options = _option(INTERFACE_NAME, interface.name.encode()) + _option(TIME_RESOLUTION, resolution)
        options += b"".join(_option(code, value) for code, value in interface.options if code not in OURS)
        head = struct.pack("<HHI", interface.link_type, 0, MAX_FRAME_BYTES)
        self._file.write(_block(INTERFACE_DESCRIPTION, head + _ended(options)))
        return number

    def __enter__(self) -> PcapngWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()


def read_pcapng(file: BinaryIO, where: str = "capture", dropped: Dropped | None = None) -> Iterator[Frame]:
    """Yield every frame of a pcapng stream, in order; the stream need not be seekable.

    One block is held at a time, so memory does not grow with the file.

    Args:
        file: positioned at a section header.
        where: the name for errors.
        dropped: takes what the file says about dropped frames.

    Raises:
        CaptureError: at the first damage; the frames before it have been yielded.
    """
    return PcapngReader(file, where, dropped=dropped).frames()


class Clock(NamedTuple):
    """How frames from one interface record their time."""

    ticks_per_second: int
    offset_s: int

    def time_ns(self, ticks: int) -> int:
        return ticks * NANOSECONDS // self.ticks_per_second + self.offset_s * NANOSECONDS


class Source(NamedTuple):
    """One interface of a section."""

    interface: Interface
    clock: Clock
    snapshot_bytes: int


class Section(NamedTuple):
    """What a file has declared so far; a reader that begins in the middle needs it.

    order: the byte order, in the notation of `struct`.
    sources: the interfaces that the section has described so far.
    interface_count: the number of interfaces in all sections of the file so far.
    """

    order: str = "<"
    sources: tuple[Source, ...] = ()
    interface_count: int = 0


@dataclass(slots=True)
class Dropped:
    """How many frames a file says were dropped at its interfaces.

    stated: for each interface, the number since the capture began, from statistics about the interface.
    counted: for each interface, the sum of the numbers that are given for single frames, each of which says how many
        frames were dropped right before that frame.
    """

    stated: Counter[Interface] = field(default_factory=Counter)
    counted: Counter[Interface] = field(default_factory=Counter)

    def add(self, other: Dropped) -> None:
        """Add what another part of the same file says."""
        self.stated |= other.stated
        self.counted += other.counted

    def join(self, number: int, earlier: Interface) -> None:
        """Add the counts of the interface with this number to those of the earlier interface that it continues."""
        for one in [each for each in self.most if each.number == number]:
            counts = (Counter({earlier: each.pop(one, 0)}) for each in (self.stated, self.counted))
            self.add(Dropped(*counts))

    @property
    def most(self) -> Counter[Interface]:
        """For each interface, the larger of `stated` and `counted`, because both count the same frames."""
        return self.stated | self.counted


Likeness = tuple[str, int, int]
"""The name and the link type of an interface, and how many earlier ones in its section share both."""
BEGINNING: Final = Section()


class PcapngReader:
    """Reads block by block, and remembers where each block began.

    Args:
        file: as in `read_pcapng`; `take_block` needs it to be seekable.
        where: the name for errors.
        section: what is known about the section that the next block belongs to.
        dropped: takes what the file says about dropped frames.

    Attributes:
        order: the byte order of the section, in the notation of `struct`.
        continued: maps the number of an interface to the interface of an earlier section that it continues.
    """

    def __init__(
        self,
        file: BinaryIO,
        where: str = "capture",
        section: Section = BEGINNING,
        dropped: Dropped | None = None,
    ) -> None:
        self._file = file
        self._where = where
        self._block_start = 0
        self._next_block_start = 0
        self.order = section.order
        self._sources = list(section.sources)
        self._interface_count = section.interface_count
        self._frame_count = 0
        self.continued: dict[int, Interface] = {}
        self.dropped = Dropped() if dropped is None else dropped
        self._earlier: dict[Likeness, Interface] = {}
        self._last_ns: dict[int, int] = {}  # of each interface that had a frame

    @property
    def section(self) -> Section:
        """Return the state after the last block."""
        return Section(self.order, tuple(self._sources), self._interface_count)

    def frames(self) -> Iterator[Frame]:
        """Yield every frame from here on.

        An interface of a later section may have the same name and type as one of an earlier section. If its frames come
        after those of the earlier one, it counts as the same interface. Joined files of a ring look like this.

        Raises:
            CaptureError: at the first damage.
        """
        last_ns = self._last_ns
        for kind, body in self._blocks():
            frame = self._frame_in(kind, body)
            if frame is None:
                continue
            if frame.interface.number not in last_ns and self._earlier:
                frame = frame._replace(interface=self._known(frame))
            last_ns[frame.interface.number] = frame.time_ns
            yield frame

    def _known(self, frame: Frame) -> Interface:
        """Take an interface's first frame in a section; return that interface, or the earlier interface that it
        continues.
        """
        interfaces = [source.interface for source in self._sources]
        earlier = self._earlier.get(
            dict(zip(interfaces, _likenesses(interfaces), strict=True))[frame.interface]
        )
        if earlier is None or frame.time_ns < self._last_ns.get(earlier.number, 0):
            return frame.interface
        place = interfaces.index(frame.interface)
        self._sources[place] = self._sources[place]._replace(interface=earlier)
        self.continued[frame.interface.number] = earlier
        self.dropped.join(frame.interface.number, earlier)
        return earlier

    def take_block(self, offset: int) -> Frame | None:
        """Return the frame in the block at `offset` in the file; None if the block holds no frame.

        Raises:
            CaptureError: the block is damaged.
        """
        self._file.seek(offset)
        self._next_block_start = offset
        for kind, body in self._blocks():
            return self._frame_in(kind, body)
        return None

    def _frame_in(self, kind: int, body: bytes) -> Frame | None:
        if kind == ENHANCED_PACKET:
            return self._packet("IIIII", body)
        if kind == INTERFACE_DESCRIPTION:
            self._sources.append(self._source(body))
        elif kind == SECTION_HEADER:
            self._begin_section(body)
        elif kind == SIMPLE_PACKET:
            return self._simple_packet(body)
        elif kind == OBSOLETE_PACKET:
            return self._packet("HHIIII", body)
        elif kind == INTERFACE_STATISTICS:
            self._take_statistics(body)
        return None

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the type of each block, and the bytes between its two lengths."""
        while head := self._file.read(12):
            self._block_start = self._next_block_start
            if len(head) < 12:
                raise self._error(0, f"the file ends {len(head)} bytes into a block")
            if head[:4] == struct.pack("<I", SECTION_HEADER):
                self.order = self._byte_order(head[8:])
            kind, length = struct.unpack_from(self.order + "II", head)
            if length < 12 or length % 4 or length > MAX_BLOCK_BYTES:
                raise self._error(
                    4, f"a block of {length} bytes; it must be 12 to {MAX_BLOCK_BYTES} and divide by 4"
                )
            block = head + self._file.read(length - 12)
            if len(block) < length:
                raise self._error(0, f"the file ends {len(block)} bytes into a block of {length}")
            (again,) = struct.unpack_from(self.order + "I", block, length - 4)
            if again != length:
                raise self._error(
                    length - 4, f"the block of {length} bytes says {again} where it repeats its length"
                )
            self._next_block_start += length
            yield kind, block[8:-4]

    def _byte_order(self, magic: bytes) -> str:
        for order in "<>":
            if magic == struct.pack(order + "I", BYTE_ORDER_MAGIC):
                return order
        raise self._error(8, f"a section in no byte order: {magic.hex()} is not 1a2b3c4d")

    def _begin_section(self, body: bytes) -> None:
        _, major, minor, _ = self._fields("IHHQ", body)
        if major != 1:
            raise self._error(12, f"pcapng version {major}.{minor}; we know 1.0")
        interfaces = [source.interface for source in self._sources]
        self._earlier.update(zip(_likenesses(interfaces), interfaces, strict=True))
        self._sources = []

    def _source(self, body: bytes) -> Source:
        if len(self._sources) == MAX_INTERFACES:
            raise self._error(0, f"more than {MAX_INTERFACES} interfaces in a section")
        link_type, _, snapshot_bytes = self._fields("HHI", body)
        listed = tuple(self._options(body, 8))
        options = dict(listed)
        resolution = options.get(TIME_RESOLUTION, b"\x06")
        offset = options.get(TIME_OFFSET, bytes(8))
        if len(resolution) != 1 or len(offset) != 8:
            raise self._error(16, "a time resolution that is not 1 byte, or a time offset that is not 8")
        base, exponent = (2, resolution[0] & 0x7F) if resolution[0] & 0x80 else (10, resolution[0])
        (offset_s,) = struct.unpack(self.order + "q", offset)
        name = options.get(INTERFACE_NAME, b"").decode(errors="replace")
        interface = Interface(self._interface_count, link_type, name, listed)
        self._interface_count += 1
        return Source(interface, Clock(base**exponent, offset_s), snapshot_bytes)

    def _packet(self, layout: str, body: bytes) -> Frame:
        """Read an Enhanced Packet Block or an obsolete Packet Block.

        An obsolete one has another field, a count of dropped frames; it follows the interface and precedes the time.
        """
        interface_id, *dropped, high, low, size_bytes, wire_bytes = self._fields(layout, body)
        source = self._source_of(interface_id)
        start = struct.calcsize("<" + layout)
        if size_bytes > len(body) - start:
            raise self._error(
                20, f"a frame of {size_bytes} bytes in a block with room for {len(body) - start}"
            )
        comment = ""
        options: Options = ()
        options_start = start + size_bytes + -size_bytes % 4
        if options_start < len(body):
            comment, options = self._comment_apart(body, options_start)
        if dropped:
            self.drop(interface_id, *dropped)
        for value in (value for code, value in options if code == DROP_COUNT and not dropped):
            if len(value) == 8:
                self.drop(interface_id, *struct.unpack(self.order + "Q", value))
        return self._frame(
            source,
            source.clock.time_ns(high << 32 | low),
            body[start : start + size_bytes],
            max(0, wire_bytes - size_bytes),
            comment,
            options,
        )

    def drop(self, interface_id: int, count: int) -> None:
        """Count frames that were dropped right before a frame; a number with all bits set means that it is unknown."""
        if count not in (0, 0xFFFF, NO_NUMBER):
            self.dropped.counted[self._sources[interface_id].interface] += count

    def _take_statistics(self, body: bytes) -> None:
        """Take the numbers of an Interface Statistics Block; a damaged one says nothing."""
        with suppress(CaptureError):
            interface = self._source_of(self._fields("III", body)[0]).interface
            found = [value for code, value in self._options(body, 12) if code in DROPPED and len(value) == 8]
            counts = [struct.unpack(self.order + "Q", value)[0] for value in found]
            count = sum(each for each in counts if each != NO_NUMBER)
            self.dropped.stated[interface] = max(self.dropped.stated[interface], count)

    def _simple_packet(self, body: bytes) -> Frame:
        """Read a frame without a time, from the first interface."""
        (wire_bytes,) = self._fields("I", body)
        source = self._source_of(0)
        size_bytes = min(wire_bytes, source.snapshot_bytes or wire_bytes)
        if size_bytes > len(body) - 4:
            raise self._error(8, f"a frame of {size_bytes} bytes in a block with room for {len(body) - 4}")
        return self._frame(source, 0, body[4 : 4 + size_bytes], wire_bytes - size_bytes)

    def _frame(
        self,
        source: Source,
        time_ns: int,
        data: bytes,
        missing_bytes: int,
        comment: str = "",
        options: Options = (),
    ) -> Frame:
        self._frame_count += 1
        return Frame(
            time_ns,
            data,
            comment,
            missing_bytes,
            source.interface,
            self._frame_count,
            self._block_start,
            options,
        )

    def _source_of(self, interface_id: int) -> Source:
        if interface_id >= len(self._sources):
            raise self._error(8, f"a frame from interface {interface_id}, which is described nowhere")
        return self._sources[interface_id]

    def _comment_apart(self, body: bytes, start: int) -> tuple[str, Options]:
        """Return the first comment, and the options without it."""
        comment = None
        others = []
        for code, value in self._options(body, start):
            if code == COMMENT and comment is None:
                comment = value.decode(errors="replace")
            else:
                others.append((code, value))
        return comment or "", tuple(others)

    def _fields(self, layout: str, body: bytes) -> tuple[int, ...]:
        fixed = struct.Struct(self.order + layout)
        if len(body) < fixed.size:
            raise self._error(8, f"a block with {len(body)} bytes of content; its type has {fixed.size}")
        return fixed.unpack_from(body)

    def _options(self, body: bytes, start: int) -> Iterator[tuple[int, bytes]]:
        while start < len(body):
            code, length = struct.unpack_from(self.order + "HH", body, start)
            if code == END_OF_OPTIONS:
                return
            if start + 4 + length > len(body):
                raise self._error(8 + start, f"an option of {length} bytes that leaves its block")
            yield code, body[start + 4 : start + 4 + length]
            start += 4 + length + -length % 4

    def _error(self, offset: int, reason: str) -> CaptureError:
        """Return an error for damage at `offset` of the current block."""
        return CaptureError(self._where, self._block_start + offset, reason)


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return b"".join((struct.pack("<II", kind, length), body, struct.pack("<I", length)))


def _option(code: int, value: bytes) -> bytes:
    """Return one option as bytes; no bytes if the value is empty."""
    if len(value) > 0xFFFF:
        raise UsageError(f"a comment or name of {len(value)} bytes: at most 65535 fit")
    return struct.pack("<HH", code, len(value)) + value + _padding(len(value)) if value else b""


def _ended(options: bytes) -> bytes:
    return options + bytes(4)


def _padding(length: int) -> bytes:
    return bytes(-length % 4)


def _likenesses(interfaces: Iterable[Interface]) -> Iterator[Likeness]:
    """Yield the likeness of each interface of a section, which identifies it in other sections."""
    count: Counter[tuple[str, int]] = Counter()
    for each in interfaces:
        like = (each.name, each.link_type)
        yield *like, count[like]
        count[like] += 1

"""Capture files: pcapng, written and read.  draft-ietf-opsawg-pcapng

A file is a row of blocks. Each says its type and its length, and says the length once more at its end. We
write one section with one Ethernet interface, and read any number of both, in either byte order. Blocks and
options that we have no use for are skipped.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Literal, NamedTuple

from mqproto.errors import MqprotoError, UsageError

SECTION_HEADER: Final = 0x0A0D0D0A
INTERFACE_DESCRIPTION: Final = 1
OBSOLETE_PACKET: Final = 2
SIMPLE_PACKET: Final = 3
ENHANCED_PACKET: Final = 6

BYTE_ORDER_MAGIC: Final = 0x1A2B3C4D
CLASSIC_MAGICS: Final = {bytes.fromhex(magic) for magic in ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1")}
ETHERNET: Final = 1

END_OF_OPTIONS: Final = 0
COMMENT: Final = 1
USER_APPLICATION: Final = 4  # in a section header
INTERFACE_NAME: Final = 2  # these three in an interface description
TIME_RESOLUTION: Final = 9
TIME_OFFSET: Final = 14

MAX_FRAME_BYTES: Final = 0x40000  # the snapshot length that tcpdump and Wireshark use
MAX_BLOCK_BYTES: Final = 16 * 1024 * 1024  # nobody writes larger ones; the length may be damaged
NANOSECONDS: Final = 1_000_000_000

NO_NUMBER: Final = 0xFFFF_FFFF_FFFF_FFFF  # the length of a section that is still being written


class CaptureError(MqprotoError, ValueError):
    """A capture that is damaged, or holds what we cannot read.

    Args:
        where: the file, or the stream inside it.
        offset: of the first byte that is wrong, counted from the first byte of `where`.
        reason: what is wrong there, in words.
    """

    def __init__(self, where: str, offset: int, reason: str) -> None:
        super().__init__(where, offset, reason)
        self.where = where
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.where}: byte {self.offset}: {self.reason}"


class Frame(NamedTuple):
    """One frame as it crossed the wire.

    time_ns: since 1970, UTC.
    data: from the destination's hardware address on.
    missing_bytes: how many bytes at the end of the frame the capture left out.
    """

    time_ns: int
    data: bytes
    comment: str = ""
    missing_bytes: int = 0


class PcapngWriter:
    """Writes frames to a file, or to anything that takes bytes.

    Args:
        file: stays open, and is flushed by `flush` and at the end of a `with`.
        ticks_per_second: a thousand million or a million; times are cut to it.
        comment: about the whole capture.
        interface: the name that Wireshark shows for the interface.

    Raises:
        OSError: the file took no more.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        ticks_per_second: Literal[1_000_000_000, 1_000_000] = NANOSECONDS,
        comment: str = "",
        interface: str = "",
    ) -> None:
        self._file = file
        self._tick_ns = NANOSECONDS // ticks_per_second
        section = _option(COMMENT, comment.encode()) + _option(USER_APPLICATION, b"mqproto")
        file.write(
            _block(SECTION_HEADER, struct.pack("<IHHQ", BYTE_ORDER_MAGIC, 1, 0, NO_NUMBER) + _ended(section))
        )
        resolution = bytes([9 if ticks_per_second == NANOSECONDS else 6])
        description = _option(INTERFACE_NAME, interface.encode()) + _option(TIME_RESOLUTION, resolution)
        file.write(
            _block(
                INTERFACE_DESCRIPTION,
                struct.pack("<HHI", ETHERNET, 0, MAX_FRAME_BYTES) + _ended(description),
            )
        )

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
        head = struct.pack(
            "<IIIII", 0, ticks >> 32, ticks & 0xFFFF_FFFF, size_bytes, size_bytes + frame.missing_bytes
        )
        options = _ended(_option(COMMENT, frame.comment.encode())) if frame.comment else b""
        self._file.write(_block(ENHANCED_PACKET, head + frame.data + _padding(size_bytes) + options))

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        self._file.flush()

    def __enter__(self) -> PcapngWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()


def read_capture(path: str | os.PathLike[str]) -> Iterator[Frame]:
    """Every frame of the file at `path`, in the file's order.

    Raises:
        CaptureError: as `read_frames`.
        OSError: the file cannot be opened or read.
    """
    with Path(path).open("rb", buffering=1 << 20) as file:
        yield from read_frames(file, os.fspath(path))


def read_frames(file: BinaryIO, where: str = "capture") -> Iterator[Frame]:
    """Every frame in a pcapng stream that need not be seekable, in its order.

    One block is held at a time, so memory does not grow with the file.

    Args:
        file: positioned at a section header.
        where: the name for errors.

    Raises:
        CaptureError: at the first damage; the frames before it have been yielded.
    """
    return _Reader(file, where).frames()


@dataclass(frozen=True, slots=True)
class _Interface:
    """How to read the time of a frame that came through one interface."""

    ticks_per_second: int
    offset_s: int

    def time_ns(self, ticks: int) -> int:
        return ticks * NANOSECONDS // self.ticks_per_second + self.offset_s * NANOSECONDS


class _Reader:
    """Reads block by block, and knows where each began."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file = file
        self._where = where
        self._block_start = 0
        self._next_block_start = 0
        self._order = "<"  # as struct writes it; each section header sets it
        self._interfaces: list[_Interface] = []

    def frames(self) -> Iterator[Frame]:
        for kind, body in self._blocks():
            if kind == ENHANCED_PACKET:
                yield self._enhanced_packet(body)
            elif kind == INTERFACE_DESCRIPTION:
                self._interfaces.append(self._interface(body))
            elif kind == SECTION_HEADER:
                self._begin_section(body)
            elif kind in (SIMPLE_PACKET, OBSOLETE_PACKET):
                # Skipping it would lose traffic and say nothing.
                raise self._error(0, f"a packet block of type {kind}, which has no time or is obsolete")

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        """The type of each block, and what stands between its two lengths."""
        while head := self._file.read(12):
            self._block_start = self._next_block_start
            if self._block_start == 0 and head[:4] != struct.pack("<I", SECTION_HEADER):
                raise self._error(0, _no_pcapng(head))
            if len(head) < 12:
                raise self._error(0, f"the file ends {len(head)} bytes into a block")
            if head[:4] == struct.pack("<I", SECTION_HEADER):
                self._order = self._byte_order(head[8:])
            kind, length = struct.unpack_from(self._order + "II", head)
            if length < 12 or length % 4 or length > MAX_BLOCK_BYTES:
                raise self._error(
                    4, f"a block of {length} bytes; it must be 12 to {MAX_BLOCK_BYTES} and divide by 4"
                )
            block = head + self._file.read(length - 12)
            if len(block) < length:
                raise self._error(0, f"the file ends {len(block)} bytes into a block of {length}")
            (again,) = struct.unpack_from(self._order + "I", block, length - 4)
            if again != length:
                raise self._error(
                    length - 4, f"the block of {length} bytes says {again} where it repeats its length"
                )
            self._next_block_start += length
            yield kind, block[8:-4]
        if self._next_block_start == 0:
            raise self._error(0, "the file is empty")

    def _byte_order(self, magic: bytes) -> str:
        for order in "<>":
            if magic == struct.pack(order + "I", BYTE_ORDER_MAGIC):
                return order
        raise self._error(8, f"a section in no byte order: {magic.hex()} is not 1a2b3c4d")

    def _begin_section(self, body: bytes) -> None:
        _, major, minor, _ = self._fields("IHHQ", body)
        if major != 1:
            raise self._error(12, f"pcapng version {major}.{minor}; we know 1.0")
        self._interfaces = []

    def _interface(self, body: bytes) -> _Interface:
        link_type, _, _ = self._fields("HHI", body)
        if link_type != ETHERNET:
            raise self._error(8, f"link type {link_type}; only Ethernet (1) is read")
        options = dict(self._options(body, 8))
        resolution = options.get(TIME_RESOLUTION, b"\x06")
        offset = options.get(TIME_OFFSET, bytes(8))
        if len(resolution) != 1 or len(offset) != 8:
            raise self._error(16, "a time resolution that is not 1 byte, or a time offset that is not 8")
        base, exponent = (2, resolution[0] & 0x7F) if resolution[0] & 0x80 else (10, resolution[0])
        (offset_s,) = struct.unpack(self._order + "q", offset)
        return _Interface(base**exponent, offset_s)

    def _enhanced_packet(self, body: bytes) -> Frame:
        interface_id, high, low, size_bytes, wire_bytes = self._fields("IIIII", body)
        if interface_id >= len(self._interfaces):
            raise self._error(8, f"a frame from interface {interface_id}, which is described nowhere")
        if size_bytes > len(body) - 20:
            raise self._error(20, f"a frame of {size_bytes} bytes in a block with room for {len(body) - 20}")
        comment = b""
        options_start = 20 + size_bytes + -size_bytes % 4
        if options_start < len(body):
            comment = dict(self._options(body, options_start)).get(COMMENT, b"")
        return Frame(
            self._interfaces[interface_id].time_ns(high << 32 | low),
            body[20 : 20 + size_bytes],
            comment.decode(errors="replace"),
            max(0, wire_bytes - size_bytes),
        )

    def _fields(self, layout: str, body: bytes) -> tuple[int, ...]:
        fixed = struct.Struct(self._order + layout)
        if len(body) < fixed.size:
            raise self._error(8, f"a block with {len(body)} bytes of content; its type has {fixed.size}")
        return fixed.unpack_from(body)

    def _options(self, body: bytes, start: int) -> Iterator[tuple[int, bytes]]:
        while start < len(body):
            code, length = struct.unpack_from(self._order + "HH", body, start)
            if code == END_OF_OPTIONS:
                return
            if start + 4 + length > len(body):
                raise self._error(8 + start, f"an option of {length} bytes that leaves its block")
            yield code, body[start + 4 : start + 4 + length]
            start += 4 + length + -length % 4

    def _error(self, offset: int, reason: str) -> CaptureError:
        """Damage at `offset` of the current block."""
        return CaptureError(self._where, self._block_start + offset, reason)


def _no_pcapng(head: bytes) -> str:
    if head[:4] in CLASSIC_MAGICS:
        return "a classic pcap file; convert it with: editcap -F pcapng OLD NEW"
    return f"no pcapng file: it begins with {head[:4].hex()}, not 0a0d0d0a"


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return b"".join((struct.pack("<II", kind, length), body, struct.pack("<I", length)))


def _option(code: int, value: bytes) -> bytes:
    """One option, or nothing for an empty value."""
    if len(value) > 0xFFFF:
        raise UsageError(f"a comment or name of {len(value)} bytes: at most 65535 fit")
    return struct.pack("<HH", code, len(value)) + value + _padding(len(value)) if value else b""


def _ended(options: bytes) -> bytes:
    return options + bytes(4)


def _padding(length: int) -> bytes:
    return bytes(-length % 4)

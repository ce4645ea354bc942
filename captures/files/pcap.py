"""Capture files of any format: pcap and pcapng, unpacked or packed by gzip or zstd.

A pcap file, which is a head and a series of records, is read here; pcapng.py reads pcapng. draft-ietf-opsawg-pcap
"""

from __future__ import annotations

import gzip
import io
import os
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from mqproto.base.errors import UsageError
from mqproto.captures.files.frame import MAX_FRAME_BYTES, NANOSECONDS, CaptureError, Frame, Interface
from mqproto.captures.files.pcapng import Clock, Dropped, Section, Source, read_pcapng

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

PCAPNG: Final = bytes.fromhex("0a0d0d0a")
GZIP: Final = bytes.fromhex("1f8b")
ZSTANDARD: Final = bytes.fromhex("28b52ffd")
ZSTANDARD_HEAD_BYTES: Final = 18
"""The largest size of the head of a Zstandard frame, in bytes.  [RFC 8878] 3.1.1.1"""

TICKS_PER_SECOND: Final = {0xA1B2C3D4: 1_000_000, 0xA1B23C4D: NANOSECONDS}
"""The ticks per second, keyed by the number at the start of a pcap file, read in the file's byte order."""
FILE_HEADER: Final = "IHHiIII"
FILE_HEADER_BYTES: Final = struct.calcsize("=" + FILE_HEADER)
RECORD_HEADER: Final = "IIII"
LONGER_BYTES: Final = (4, 8)
"""How many bytes longer the heads of records are in variants of pcap."""
HEADS_COMPARED: Final = 3
NEAR_S: Final = 366 * 24 * 3600
LEFT_OUT: Final = "the frame before it, whose bytes may be damaged as well, is left out"
LINK_TYPE: Final = 0x03FF_FFFF  # the bits above say how long the frame check sequence is

MAGICS: Final = (
    PCAPNG,
    GZIP,
    ZSTANDARD,
    *(struct.pack(order + "I", magic) for magic in TICKS_PER_SECOND for order in "<>"),
)
"""The first bytes of each kind of file that may be a capture, packed or not."""

_EDITCAP: Final = "editcap -F pcapng IN OUT, which comes with Wireshark, makes one of it that is read"
EXPANSION: Final = 1_000
EXPANDED_BYTES: Final = 256 << 20
_UNPACKS: Final = "unpacks it"
_GIVE: Final = "give a capture, or packets as bytes or hex"
FOREIGN: Final = {
    b"GMBU": ("a capture of Microsoft's Network Monitor", _EDITCAP),
    b"RTSS": ("a capture of Microsoft's Network Monitor 1", _EDITCAP),
    b"snoop\0": ("a capture of Sun's snoop", _EDITCAP),
    b"TRSNIFF data": ("a capture of Sniffer for DOS", _EDITCAP),
    b"XCP\0": ("a capture of NetXray or Sniffer", _EDITCAP),
    b"\x05VNF": ("a capture of Visual Networks", _EDITCAP),
    b"\xaa\xaa\xaa\xaa": ("a capture of 5View", _EDITCAP),
    b"ObserverPktBuffer": ("a capture of Observer", _EDITCAP),
    b"iptrace ": ("a capture of AIX's iptrace", _EDITCAP),
    b"TR\0d\0": ("a trace of HP-UX's nettl", _EDITCAP.replace(" IN", " -T ether IN")),
    b"\x01\x10L\0\x01\x05": ("a capture of LANalyzer", _EDITCAP),
    b"\x34\xcd\xb2\xa1": ("Kuznetzov's variant of pcap", _EDITCAP),
    b"\xa1\xb2\xcd\x34": ("Kuznetzov's variant of pcap", _EDITCAP),
    b"PK": ("a ZIP archive", f"unzip IN {_UNPACKS}"),
    b"BZh": ("packed with bzip2", f"bzip2 -dc IN > OUT {_UNPACKS}"),
    b"\xfd7zXZ\0": ("packed with xz", f"xz -dc IN > OUT {_UNPACKS}"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", f"7z x IN {_UNPACKS}"),
    b"Rar!\x1a\x07": ("a RAR archive", f"unrar x IN {_UNPACKS}"),
    b"\x04\x22\x4d\x18": ("packed with lz4", f"lz4 -dc IN > OUT {_UNPACKS}"),
    b"LZIP": ("packed with lzip", f"lzip -dc IN > OUT {_UNPACKS}"),
    b"\x1f\x9d": ("packed with compress", f"gzip -dc < IN > OUT {_UNPACKS}"),
    b"MSCF": ("a cabinet", f"cabextract IN, or on Windows expand IN -F:* FOLDER, {_UNPACKS}"),
    b"ElfFile\0": ("an event log of Windows, which has no packets", _GIVE),
    b"%PDF": ("a PDF document", _GIVE),
    **dict.fromkeys((b"<!", b"<?", b"<html", b"<HTML"), ("HTML or XML", _GIVE)),
}
"""The first bytes of other files, what these files are, and what to do with them.

This advice was tested: editcap with files of Network Monitor and snoop; unzip, xz, bzip2 and tar with files that these
tools had made.
"""
_TAR_AT: Final = 257
_TRACE_HEAD: Final = re.compile(rb".{72}\x02\x00[\x01\x02]\xc0", re.DOTALL)
"""Matches the start of an ETL file: the first 72 bytes belong to its first buffer, and the head of the trace follows.
"""
HEAD_BYTES: Final = _TAR_AT + 5
"""How many bytes at the start of a file suffice to tell all of these kinds of files apart."""


def foreign(head: bytes) -> str | None:
    """Return what an unreadable file with this head is, and what to do with it; None if that is unknown.

    An example is `a ZIP archive: ...`.
    """
    if _TRACE_HEAD.match(head):
        return "an event trace of Windows (ETL): etl2pcapng IN OUT makes a capture of it"
    if head[_TAR_AT:HEAD_BYTES] == b"ustar":
        return f"a tar archive: tar -xf IN {_UNPACKS}"
    found = (said for begin, said in FOREIGN.items() if head.startswith(begin))
    return next((f"{what}: {remedy}" for what, remedy in found), None)


def read_capture(path: str | os.PathLike[str]) -> Iterator[Frame]:
    """Yield every frame of the file at `path`, in the file's order.

    Raises:
        CaptureError: as from `read_frames`.
        OSError: the file cannot be opened or read.
    """
    with Path(path).open("rb") as file:
        yield from read_frames(file, os.fspath(path))


def read_frames(file: BinaryIO, where: str = "capture", dropped: Dropped | None = None) -> Iterator[Frame]:
    """Yield every frame of a capture, in order; the file need not be seekable.

    One record is held at a time, so memory does not grow with the file.

    Args:
        file: positioned at its start; it may be a pipe.
        where: the name for errors.
        dropped: takes what the file says about dropped frames.

    Raises:
        CaptureError: at the first damage; the frames before it have been yielded.
    """
    with unpacked(file, where) as (plain, name):
        magic = plain.peek(4)[:4]
        if magic == PCAPNG:
            yield from read_pcapng(plain, name, dropped)
        else:
            yield from read_records(plain, read_head(plain, name), name)


@contextmanager
def unpacked(file: BinaryIO, where: str) -> Iterator[tuple[io.BufferedReader, str]]:
    """Yield a capture, unpacked if necessary, and the name that it has in errors.

    Reading raises CaptureError where the packed data is damaged.
    """
    buffered = io.BufferedReader(cast(Any, file), 1 << 20)
    try:
        magic = buffered.peek(4)[:4]
        packed = cast(Any, _PackedBytes(buffered))
        if magic.startswith(GZIP):
            with gzip.GzipFile(fileobj=packed) as gzipped:
                yield _unpacked(gzipped, packed, where, "gzip")
        elif magic == ZSTANDARD:
            with zstd.ZstdFile(packed) as compressed:
                yield _unpacked(compressed, packed, where, "zstd")
        else:
            yield buffered, where
    finally:
        buffered.detach()  # Otherwise the file would be closed with it.


def packed_size(file: BinaryIO) -> int | None:
    """Return the unpacked size that a packed file states, modulo 2**32; None if it states none.

    The size is wrong if several packed files were joined.
    """
    file.seek(0)
    head = file.read(ZSTANDARD_HEAD_BYTES)
    if head.startswith(GZIP):
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")
    try:
        size_bytes = zstd.get_frame_info(head).decompressed_size
    except zstd.ZstdError:
        return None
    return None if size_bytes is None else size_bytes % 2**32


def _unpacked(
    file: gzip.GzipFile | zstd.ZstdFile, packed: _PackedBytes, where: str, tool: str
) -> tuple[io.BufferedReader, str]:
    name = f"{where} (unpacked)"
    advice = f"; to read all of it, `{tool} -dc < IN > OUT` {_UNPACKS}: then name OUT"
    return io.BufferedReader(_Unpacked(file, packed, name, advice), 1 << 20), name


class _PackedBytes:
    """Reads a packed file and counts the bytes read."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self.read_bytes = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.read_bytes += len(data)
        return data


def read_head(file: io.BufferedReader, where: str = "capture") -> Section:
    """Read the head of a pcap file, which describes its frames.

    Raises:
        CaptureError: the file is not a capture, or has a version that we do not know.
    """
    magic = file.peek(4)[:4]
    order = next((order for order in "<>" if _ticks_per_second(order, magic)), None)
    if order is None:
        if not magic:
            raise CaptureError(where, 0, "the file is empty")
        why = foreign(file.peek(HEAD_BYTES)[:HEAD_BYTES])
        begins = f"no capture: it begins with {magic.hex()}, and neither pcap, pcapng, gzip nor zstd do"
        raise CaptureError(where, 0, f"it is {why}" if why else begins)
    header = struct.Struct(order + FILE_HEADER)
    head = file.read(header.size)
    if len(head) < header.size:
        raise CaptureError(where, 0, f"the file ends {len(head)} bytes into its head of {header.size}")
    _, major, minor, _, _, _, link = header.unpack(head)
    if major != 2:
        raise CaptureError(where, 4, f"pcap version {major}.{minor}; we know 2.4")
    if _has_longer_heads(file.peek(1), order):
        reason = "a variant of pcap with longer heads of records, as of Nokia or Red Hat 6.1"
        raise CaptureError(where, 0, f"it is {reason}: {_EDITCAP}")
    clock = Clock(_ticks_per_second(order, magic), offset_s=0)
    return Section(order, (Source(Interface(link_type=link & LINK_TYPE), clock, MAX_FRAME_BYTES),), 1)


def _has_longer_heads(data: bytes, order: str) -> bool:
    """Whether the first records make no sense as plain pcap, but do if each record has a longer head.

    Args:
        data: what follows the head of the file, or the beginning of that.
    """
    record = struct.Struct(order + RECORD_HEADER)

    def fits(more_bytes: int) -> bool:
        at, first_s = 0, None
        for _ in range(HEADS_COMPARED):
            if at and (at == len(data) or (at > len(data) and not more_bytes)):
                return True
            if at + record.size > len(data):
                return False
            seconds, ticks, size_bytes, wire_bytes = record.unpack_from(data, at)
            first_s = seconds if first_s is None else first_s
            if size_bytes > MAX_FRAME_BYTES:
                return False
            # What is plain pcap is read, however odd it is.
            is_odd = (
                not 0 < size_bytes <= wire_bytes or ticks >= NANOSECONDS or abs(seconds - first_s) > NEAR_S
            )
            if more_bytes and is_odd:
                return False
            at += record.size + more_bytes + size_bytes
        return True

    return not fits(0) and any(map(fits, LONGER_BYTES))


def _ticks_per_second(order: str, magic: bytes) -> int:
    """Return the ticks per second of a pcap file with this beginning; 0 if no pcap file begins like this."""
    return TICKS_PER_SECOND.get(struct.unpack(order + "I", magic)[0], 0) if len(magic) == 4 else 0


def read_records(
    file: BinaryIO, section: Section, where: str = "capture", offset: int = FILE_HEADER_BYTES
) -> Iterator[Frame]:
    """Yield the frames of a pcap file.

    Only a record's own head states where the record ends. So if no head follows a frame, the bytes of this frame may be
    damaged, and the frame is left out.

    Args:
        file: positioned at a record, which is at `offset` in the file.
        section: the content of the file's head.

    Raises:
        CaptureError: at the first damage.
    """
    (source,) = section.sources
    tick_ns = NANOSECONDS // source.clock.ticks_per_second
    record = struct.Struct(section.order + RECORD_HEADER)
    number = 0
    last: Frame | None = None
    damage: CaptureError | None = None
    try:
        while head := file.read(record.size):
            if len(head) < record.size:
                reason = f"the file ends {len(head)} bytes into the head of a frame"
                raise CaptureError(where, offset, reason)
            seconds, ticks, size_bytes, wire_bytes = record.unpack(head)
            is_odd = not 0 < size_bytes <= MAX_FRAME_BYTES
            if is_odd and (reason := why_no_head(head, section.order)):
                reason, last = reason if last is None else f"{reason}; {LEFT_OUT}", None
                raise CaptureError(where, offset + 8, reason)
            data = file.read(size_bytes)
            if len(data) < size_bytes:
                reason = f"the file ends {len(data)} bytes into a frame of {size_bytes} bytes"
                raise CaptureError(where, offset, reason)
            if last is not None:
                yield last
            number += 1
            missing_bytes = max(0, wire_bytes - size_bytes)
            time_ns = seconds * NANOSECONDS + ticks * tick_ns
            last = Frame(time_ns, data, "", missing_bytes, source.interface, number, offset)
            offset += record.size + size_bytes
    except CaptureError as error:
        damage = error
    if last is not None:
        yield last
    if damage is not None:
        raise damage


def why_no_head(head: bytes, order: str) -> str:
    """Return why these bytes cannot be the head of a record; empty if they may be one."""
    (size_bytes,) = struct.unpack_from(order + "I", head, 8)
    if size_bytes > MAX_FRAME_BYTES:
        return f"a frame of {size_bytes} bytes: at most {MAX_FRAME_BYTES}"
    return "" if size_bytes or any(head) else "zeros, where a frame should begin"


class _Unpacked(io.RawIOBase):
    """Unpacks a file, and reports damaged packing as a CaptureError at the last good byte.

    If data unpacks to more than EXPANSION times its size, and to more than EXPANDED_BYTES, reading stops.

    advice: how to read the file anyway, appended to the reason.
    """

    def __init__(
        self, file: gzip.GzipFile | zstd.ZstdFile, packed: _PackedBytes, where: str, advice: str
    ) -> None:
        super().__init__()
        self._file = file
        self._packed = packed
        self._where = where
        self._advice = advice
        self._offset = 0
        self._fault: CaptureError | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._fault is not None:
            raise self._fault
        try:
            data = self._file.read1(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile, zstd.ZstdError) as error:
            self._fault = CaptureError(self._where, self._offset, f"the packing is damaged: {error}")
            raise self._fault from None
        buffer[: len(data)] = data
        self._offset += len(data)
        read_bytes = self._packed.read_bytes
        if self._offset > max(EXPANDED_BYTES, EXPANSION * read_bytes):
            reason = f"{read_bytes:,} bytes have become more than {EXPANSION:,} times as many{self._advice}"
            self._fault = CaptureError(self._where, self._offset, reason)
        return len(data)


class PcapWriter:
    """Writes frames as a classic pcap file, in nanoseconds, without comments or interfaces.

    Args:
        file: stays open; the caller flushes it.
        link_type: the kind of header that every frame begins with.
        byte_order: "<" or ">".
        ticks_per_second: 1,000,000,000 or 1,000,000; times are truncated to this resolution.

    Raises:
        OSError: the file took no more bytes.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        link_type: int = 1,
        byte_order: str = "<",
        ticks_per_second: int = NANOSECONDS,
    ) -> None:
        magics = {ticks: magic for magic, ticks in TICKS_PER_SECOND.items()}
        self._file = file
        self._link_type = link_type
        self._record = struct.Struct(byte_order + RECORD_HEADER)
        self._tick_ns = NANOSECONDS // ticks_per_second
        head = (magics[ticks_per_second], 2, 4, 0, 0, MAX_FRAME_BYTES, link_type)
        file.write(struct.pack(byte_order + FILE_HEADER, *head))

    def write(self, frame: Frame) -> None:
        """Append one frame.

        Raises:
            UsageError: the frame is longer than 256 KiB, has another link type, or has a time that is not between 1970
                and 2106.
        """
        size_bytes = len(frame.data)
        seconds, rest_ns = divmod(frame.time_ns, NANOSECONDS)
        if size_bytes > MAX_FRAME_BYTES:
            raise UsageError(f"a frame of {size_bytes} bytes: at most {MAX_FRAME_BYTES} fit")
        if frame.link_type != self._link_type:
            raise UsageError(f"a frame of link type {frame.link_type} in a file of {self._link_type}")
        if not 0 <= seconds < 2**32:
            raise UsageError(f"a frame at {frame.time_ns} ns: pcap counts seconds from 1970 in 32 bits")
        wire_bytes = size_bytes + frame.missing_bytes
        self._file.write(self._record.pack(seconds, rest_ns // self._tick_ns, size_bytes, wire_bytes))
        self._file.write(frame.data)

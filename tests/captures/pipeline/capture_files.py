"""Captures of every form, valid and not, for tests of whoever reads them in parts."""

from __future__ import annotations

import gzip
import io
import struct
from typing import Any

from backports import zstd
from hypothesis import strategies as st

from captures.frame import CaptureError, Frame
from captures.pcap import PcapWriter, read_frames

ORDERS = st.sampled_from("<>")


def block(order: str, kind: int, body: bytes) -> bytes:
    """A block of pcapng."""
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + length + body + length


def option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section_header(order: str, major: int = 1) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, major, 0, -1))


@st.composite
def interface_descriptions(draw: st.DrawFn, order: str) -> bytes:
    options = b""
    if draw(st.booleans()):
        options += option(order, 2, draw(st.binary(min_size=1, max_size=5)))
    if draw(st.booleans()):
        resolution = draw(st.sampled_from([0, 3, 6, 9, 12, 20, 0x80, 0x8A, 0xBF]))
        options += option(order, 9, bytes([resolution]))
    if draw(st.integers(0, 3)) == 0:
        options += option(order, 14, struct.pack(order + "q", draw(st.integers(-(2**63), 2**63 - 1))))
    link_type = draw(st.sampled_from([0, 1, 101, 113, 276]))
    snapshot_bytes = draw(st.sampled_from([0, 7, 0x40000]))
    return block(order, 1, struct.pack(order + "HHI", link_type, 0, snapshot_bytes) + options)


@st.composite
def packet_blocks(draw: st.DrawFn, order: str, interface_count: int, data: bytes) -> bytes:
    """A block with a frame: enhanced nearly always, or simple, or obsolete."""
    interface_id = draw(st.integers(0, max(0, interface_count - 1)))
    ticks = draw(st.integers(1_700_000_000_000_000, 1_700_000_000_100_000) | st.integers(0, 2**64 - 1))
    wire_bytes = len(data) + draw(st.sampled_from([0, 0, 100]))
    rest = struct.pack(order + "IIII", ticks >> 32, ticks & 0xFFFF_FFFF, len(data), wire_bytes) + data
    kind = draw(st.sampled_from([6, 6, 6, 6, 6, 3, 2]))
    if kind == 3:
        return block(order, 3, struct.pack(order + "I", len(data)) + data)
    options = b""
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2, 20]))):
        options += option(order, draw(st.sampled_from([1, 2, 2988])), draw(st.binary(max_size=5)))
    if options and draw(st.booleans()):
        options += bytes(4)
    rest += bytes(-len(data) % 4) + options
    head = struct.pack(order + "I", interface_id) if kind == 6 else struct.pack(order + "HH", interface_id, 9)
    return block(order, kind, head + rest)


@st.composite
def pcapng_files(draw: st.DrawFn, contents: st.SearchStrategy[bytes]) -> bytes:
    """Sections in either byte order, interfaces described where they like, and blocks that hold no frame."""
    parts: list[bytes] = []
    for _ in range(draw(st.integers(1, 3))):
        order = draw(ORDERS)
        parts.append(section_header(order))
        interface_count = 0
        for _ in range(draw(st.integers(0, 12))):
            what = draw(st.sampled_from(["frame"] * 8 + ["interface", "other"]))
            if what == "interface" or (what == "frame" and not interface_count):
                parts.append(draw(interface_descriptions(order)))
                interface_count += 1
            elif what == "frame":
                # Many alike, so that columns are made of them.
                one = draw(packet_blocks(order, interface_count, draw(contents)))
                parts.extend([one] * draw(st.sampled_from([1, 1, 3, 40])))
            else:
                kind = draw(st.sampled_from([4, 5, 10, 0xBAD, 0x8000_0001]))
                parts.append(block(order, kind, draw(st.binary(max_size=30))))
    return b"".join(parts)


@st.composite
def pcap_files(draw: st.DrawFn, contents: st.SearchStrategy[bytes]) -> bytes:
    file = io.BytesIO()
    settings: dict[str, Any] = {
        "byte_order": draw(ORDERS),
        "ticks_per_second": draw(st.sampled_from([1_000_000, 1_000_000_000])),
    }
    writer = PcapWriter(file, **settings)
    times = st.integers(1_700_000_000 * 10**9, 1_700_000_100 * 10**9) | st.integers(0, 2**32 * 10**9 - 1)
    for _ in range(draw(st.integers(0, 30))):
        missing_bytes = draw(st.sampled_from([0, 0, 9]))
        writer.write(Frame(draw(times), draw(contents), "", missing_bytes))
    return file.getvalue()


plain_contents = st.binary(max_size=80)
plain_files = pcap_files(plain_contents) | pcapng_files(plain_contents)
files = pcap_files(plain_contents | plain_files) | pcapng_files(plain_contents | plain_files)
"""Captures, some of whose frames carry captures."""


@st.composite
def damaged(draw: st.DrawFn, some: st.SearchStrategy[bytes]) -> bytes:
    """Captures that were cut off, or some bytes of which were changed."""
    data = bytearray(draw(some))
    if draw(st.booleans()):
        del data[draw(st.integers(min(24, len(data)), len(data))) :]
    for _ in range(draw(st.integers(0, 3))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


def packed(data: bytes, packing: str) -> bytes:
    return gzip.compress(data) if packing == "gzip" else zstd.compress(data)


def read_whole(data: bytes, where: str) -> tuple[list[Frame], CaptureError | None]:
    """All frames as one reader finds them, and the damage that ends them."""
    found = []
    try:
        for frame in read_frames(io.BytesIO(data), where):
            found.append(frame)
    except CaptureError as error:
        return found, error
    return found, None

"""Captures of every form, valid and not, for tests of code that reads captures in parts.

Each frame and block is made from one number, and hypothesis draws only that number. So examples are made fast, and a
failing one shrinks to the few pieces that it needs.
"""

from __future__ import annotations

import gzip
import io
import random
import struct
from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st

from mqproto.captures.files.frame import CaptureError, Frame
from mqproto.captures.files.pcap import PcapWriter, read_frames, zstd

T = TypeVar("T")


def made(make: Callable[[random.Random], T]) -> st.SearchStrategy[T]:
    """Use a random number generator to draw what `make` builds."""
    return st.integers(0, 2**32 - 1).map(lambda seed: make(random.Random(seed)))


def block(order: str, kind: int, body: bytes) -> bytes:
    """Return a block of pcapng."""
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + length + body + length


def option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section_header(order: str, major: int = 1) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, major, 0, -1))


def interface_description(dice: random.Random, order: str) -> bytes:
    options = b""
    if dice.random() < 0.5:
        options += option(order, 2, dice.randbytes(dice.randint(1, 5)))
    if dice.random() < 0.5:
        options += option(order, 9, bytes([dice.choice([0, 3, 6, 9, 12, 20, 0x80, 0x8A, 0xBF])]))
    if dice.random() < 0.2:
        options += option(order, 14, struct.pack(order + "q", dice.choice([-1, 1, 2**62, -(2**63)])))
    link_type, snapshot_bytes = dice.choice([0, 1, 101, 113, 276]), dice.choice([0, 7, 0x40000])
    return block(order, 1, struct.pack(order + "HHI", link_type, 0, snapshot_bytes) + options)


def packet_block(dice: random.Random, order: str, interface_count: int) -> bytes:
    """Return a block with a frame: nearly always enhanced, sometimes simple or obsolete."""
    data = content(dice)
    kind = dice.choice([6, 6, 6, 6, 3, 2])
    if kind == 3:
        return block(order, 3, struct.pack(order + "I", len(data)) + data)
    options = b""
    for _ in range(dice.choice([0, 0, 0, 1, 2, 20])):
        options += option(order, dice.choice([1, 2, 2988]), dice.randbytes(dice.randint(0, 5)))
    if dice.random() < 0.3:
        options = option(order, 4, struct.pack(order + "Q", dice.choice([0, 3, 2**63, 2**64 - 1]))) + options
    if options and dice.random() < 0.5:
        options += bytes(4)
    ticks = dice.choice([0, 1_700_000_000_000_000 + dice.randrange(10**9), dice.getrandbits(64)])
    wire_bytes = len(data) + dice.choice([0, 0, 100])
    interface_id = dice.randrange(max(1, interface_count))
    names = ("I", interface_id) if kind == 6 else ("HH", interface_id, dice.choice([0, 9, 0xFFFF]))
    head = struct.pack(order + str(names[0]), *names[1:])
    head += struct.pack(order + "IIII", ticks >> 32, ticks & 0xFFFF_FFFF, len(data), wire_bytes)
    return block(order, kind, head + data + bytes(-len(data) % 4) + options)


def content(dice: random.Random) -> bytes:
    """Return the contents of a frame. Sometimes they are themselves a capture."""
    nested = dice.random()
    if nested < 0.1:
        frames = [Frame(1_700_000_000 * 10**9, dice.randbytes(dice.randint(0, 40))) for _ in range(7)]
        return pcap_of(frames, dice.choice("<>"))
    if nested < 0.2:
        order = dice.choice("<>")
        head = struct.pack(order + "IIIII", 0, 0, 1, 8, 8)
        return section_header(order) + block(order, 6, head + bytes(8)) * 7
    return dice.randbytes(dice.randint(0, 80)) if nested < 0.9 else bytes(dice.randint(0, 80))


class _Sections:
    """A file to which blocks are appended, each in the form that the earlier blocks require."""

    def __init__(self, seeds: list[int]) -> None:
        self._parts: list[bytes] = []
        self._order = "<"
        self._interface_count = 0
        for seed in seeds:
            self._add(random.Random(seed))
        self.data = b"".join(self._parts)

    def _add(self, dice: random.Random) -> None:
        what = dice.random()
        if what < 0.05 or not self._parts:
            self._order = dice.choice("<>")
            self._interface_count = 0
            self._parts.append(section_header(self._order))
        elif what < 0.15 or not self._interface_count:
            self._interface_count += 1
            self._parts.append(interface_description(dice, self._order))
        elif what < 0.25:
            kind = dice.choice([4, 5, 10, 0xBAD, 0x8000_0001])
            body = dice.randbytes(dice.randint(0, 30))
            if kind == 5 and dice.random() < 0.7:
                body = bytes(12) + option(self._order, 5, dice.randbytes(8)) + body[:8]
            self._parts.append(block(self._order, kind, body))
        else:
            # Many alike, so that columns are made of them.
            one = packet_block(dice, self._order, self._interface_count)
            self._parts.extend([one] * dice.choice([1, 1, 3, 40]))


def pcap_of(frames: list[Frame], order: str = "<", ticks_per_second: int = 10**9) -> bytes:
    file = io.BytesIO()
    writer = PcapWriter(file, byte_order=order, ticks_per_second=ticks_per_second)
    for frame in frames:
        writer.write(frame)
    return file.getvalue()


def pcap_frame(dice: random.Random) -> Frame:
    time_ns = dice.choice([1_700_000_000 * 10**9 + dice.getrandbits(36), dice.randrange(2**32 * 10**9)])
    return Frame(time_ns, content(dice), "", dice.choice([0, 0, 9]))


pcapng_files = st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=25).map(
    lambda seeds: _Sections(seeds).data
)
"""A strategy for files with sections in either byte order.

An interface may be described anywhere in its section, and some blocks have no frame.
"""
pcap_files = st.builds(
    pcap_of,
    st.lists(made(pcap_frame), max_size=25),
    st.sampled_from("<>"),
    st.sampled_from([1_000_000, 1_000_000_000]),
)
files = pcap_files | pcapng_files


@st.composite
def damaged(draw: st.DrawFn, some: st.SearchStrategy[bytes]) -> bytes:
    """Draw captures that were cut off, or in which some bytes were changed."""
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
    """Return all frames that a single reader finds, and the damage that ends them."""
    found = []
    try:
        for frame in read_frames(io.BytesIO(data), where):
            found.append(frame)
    except CaptureError as error:
        return found, error
    return found, None

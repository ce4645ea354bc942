"""Capture files of every format are read alike, and errors name what is wrong with them."""

from __future__ import annotations

import gzip
import io
import os
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.captures.files import pcap
from mqproto.captures.files.frame import MAX_FRAME_BYTES, CaptureError, Frame, Interface
from mqproto.captures.files.pcap import PcapWriter, read_capture, read_frames, zstd
from mqproto.captures.files.pcapng import PcapngWriter
from tests.captures.frames import bare, read
from tests.conformance import ROOT

frames = st.builds(
    lambda time_ns, data, missing_bytes: Frame(time_ns, data, "", missing_bytes),
    st.integers(0, 2**32 * 10**9 - 1),
    st.binary(min_size=1, max_size=60),
    st.integers(0, 2000),
)
ORDERS = pytest.mark.parametrize("order", ["<", ">"])
TWO_FRAMES = [Frame(1_000_000_001, b"first frame"), Frame(2_000_000_000, b"second", "", 5)]


def written(some: list[Frame], **settings: Any) -> bytes:
    file = io.BytesIO()
    writer = PcapWriter(file, **settings)
    for frame in some:
        writer.write(frame)
    return file.getvalue()


def pcapng(some: list[Frame]) -> bytes:
    file = io.BytesIO()
    with PcapngWriter(file) as writer:
        for frame in some:
            writer.write(frame)
    return file.getvalue()


@ORDERS
@given(some=st.lists(frames, max_size=8))
def test_what_is_written_is_read_back(order: str, some: list[Frame]) -> None:
    assert read(written(some, byte_order=order)) == (some, None)


@ORDERS
@given(some=st.lists(frames, max_size=8))
def test_microseconds_cut_the_times_and_nothing_else(order: str, some: list[Frame]) -> None:
    expected = [frame._replace(time_ns=frame.time_ns // 1000 * 1000) for frame in some]
    assert read(written(some, byte_order=order, ticks_per_second=1_000_000)) == (expected, None)


def test_the_link_type_and_each_frames_place_are_told() -> None:
    some = [Frame(0, data, interface=Interface(link_type=276)) for data in (b"one", b"two")]
    file = written(some, link_type=276)
    found = list(read_frames(io.BytesIO(file)))
    assert [(frame.link_type, frame.number, file[frame.offset + 16 :][:3]) for frame in found] == [
        (276, 1, b"one"),
        (276, 2, b"two"),
    ]


def test_a_frame_check_sequence_in_the_link_type_is_no_part_of_it() -> None:
    file = bytearray(written(TWO_FRAMES))
    file[20:24] = struct.pack("<I", 1 | 0x2400_0000)
    assert [frame.link_type for frame in read_frames(io.BytesIO(file))] == [1, 1]


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
@pytest.mark.parametrize("make", [written, pcapng])
def test_what_is_packed_is_read_as_it_was(pack: Any, make: Any) -> None:
    assert read(pack(make(TWO_FRAMES))) == (TWO_FRAMES, None)
    halves = make(TWO_FRAMES)
    assert read(pack(halves[:30]) + pack(halves[30:])) == (TWO_FRAMES, None)


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_damaged_packing_is_named_after_what_came_before_it(pack: Any) -> None:
    some = [Frame(number, os.urandom(1000)) for number in range(1000)]
    packed = pack(written(some))
    found, error = read(packed[: len(packed) // 2])
    assert found == some[: len(found)]
    assert len(found) > 300
    assert error is not None
    assert error.offset >= 24 + 1016 * len(found)
    assert str(error).startswith("capture (unpacked): byte ")
    assert "\n" not in str(error)
    spoilt = bytearray(packed)
    spoilt[len(packed) // 2 :] = bytes(len(packed) // 2)
    assert read(bytes(spoilt))[1] is not None


def test_a_file_that_unpacks_to_a_thousand_times_its_size_costs_no_memory() -> None:
    packed = zstd.compress(written([Frame(0, bytes(100_000))] * 1000))
    assert len(packed) < 100_000
    tracemalloc.start()
    try:
        frame_count = sum(1 for _ in read_frames(io.BytesIO(packed)))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (frame_count, peak_bytes < 10_000_000) == (1000, True), peak_bytes


HEAD = written([])


@pytest.mark.parametrize(
    ("file", "offset", "reason"),
    [
        (b"", 0, "the file is empty"),
        (b"\xd4", 0, "begins with d4"),
        (b"GET / HTTP/1.1\r\n", 0, "begins with 47455420, and neither pcap, pcapng, gzip nor zstd do"),
        (HEAD[:23], 0, "ends 23 bytes into its head of 24"),
        (HEAD[:4] + b"\3" + HEAD[5:], 4, "version 3.4; we know 2.4"),
        (HEAD + bytes(15), 24, "ends 15 bytes into the head of a frame"),
        (HEAD + struct.pack("<IIII", 0, 0, 9, 9) + b"12345678", 24, "ends 8 bytes into a frame of 9"),
        (HEAD + struct.pack("<IIII", 0, 0, 0xFFFF_FFFF, 0), 32, "4294967295 bytes: at most 262144"),
    ],
)
def test_damage_is_named_by_its_byte_and_in_one_line(file: bytes, offset: int, reason: str) -> None:
    found, error = read(file)
    assert not found
    assert error is not None
    assert reason in str(error)
    assert str(error).startswith(f"capture: byte {offset}: ")


@given(st.data())
def test_any_change_of_bytes_is_read_or_refused(data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from([written(TWO_FRAMES), gzip.compress(written(TWO_FRAMES))])))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    _, error = read(bytes(damaged))
    assert error is None or "\n" not in str(error)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (Frame(-1, b"before 1970"), "counts seconds"),
        (Frame(2**32 * 10**9, b"too late"), "counts seconds"),
        (Frame(0, bytes(MAX_FRAME_BYTES + 1)), "at most 262144"),
        (Frame(0, b"", interface=Interface(link_type=113)), "link type 113 in a file of 1"),
    ],
)
def test_what_pcap_cannot_hold_is_refused_before_a_byte_is_written(frame: Frame, reason: str) -> None:
    file = io.BytesIO()
    writer = PcapWriter(file)
    before = file.getvalue()
    with pytest.raises(UsageError, match=reason):
        writer.write(frame)
    assert file.getvalue() == before


@pytest.mark.parametrize("make", [written, pcapng])
def test_a_file_is_named_in_its_error(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.pcap"
    path.write_bytes(make(TWO_FRAMES)[:-1])
    reader = read_capture(path)
    assert bare(next(reader)) == TWO_FRAMES[0]
    with pytest.raises(CaptureError, match=r"run\.pcap: byte \d+: the file ends"):
        next(reader)


def test_a_pipe_can_be_read_and_stays_open() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as source:
        with os.fdopen(writer, "wb") as sink:
            sink.write(written(TWO_FRAMES))
        assert [bare(frame) for frame in read_frames(source)] == TWO_FRAMES
        assert not source.closed


INSIDE: Final = [Frame((number + 1) * 10**9, bytes([number + 1]) * 40) for number in range(6)]


@pytest.mark.parametrize("damage", [bytes(4_096), random.Random(7).randbytes(512)], ids=["zeros", "garbage"])
@pytest.mark.parametrize("at", range(24, 24 + 56 * 4, 5))
def test_a_frame_beside_the_damage_is_left_out(damage: bytes, at: int) -> None:
    whole = written(INSIDE)
    found, error = read(whole[:at] + damage + whole[at + len(damage) :])
    assert error is not None
    assert found == INSIDE[: len(found)], "no frame has a byte of the damage"


def test_what_comes_before_the_end_of_a_file_that_was_cut_is_whole() -> None:
    whole = written(TWO_FRAMES)
    found, error = read(whole[:-1])
    assert (found, error is None) == (TWO_FRAMES[:1], False)


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_what_unpacks_to_a_thousand_times_its_size_is_read_that_far_and_says_how_to_read_the_rest(
    pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pcap, "EXPANDED_BYTES", 4 << 20)
    window = (ROOT / "captures" / "samples" / "window.pcapng").read_bytes()
    nothing = struct.pack("<II", 0x0BAD, 1 << 20) + bytes((1 << 20) - 12) + struct.pack("<I", 1 << 20)
    assert len(list(read_frames(io.BytesIO(pack(window + 3 * nothing)), "a"))) == 142
    bomb = pack(pcapng(TWO_FRAMES) + nothing * 60)
    read: list[Frame] = []
    with pytest.raises(
        CaptureError, match=r"^a \(unpacked\): byte [0-9]+: [0-9,]+ bytes have become more than"
    ) as said:
        read.extend(read_frames(io.BytesIO(bomb), "a"))
    tool = "gzip" if pack is gzip.compress else "zstd"
    assert str(said.value).endswith(
        f"times as many; to read all of it, `{tool} -dc < IN > OUT` unpacks it: then name OUT"
    )


@pytest.mark.parametrize(("more_bytes", "is_variant"), [(0, False), (4, True), (8, True)])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_variant_with_longer_heads_of_records_is_named(
    more_bytes: int, is_variant: bool, count: int
) -> None:
    file = written([Frame(1_700_000_000 * 10**9, b"\xaa" * 60)] * count)
    head, rest = file[:24], file[24:]
    records = [rest[at : at + 76] for at in range(0, len(rest), 76)]
    found, damage = read(head + b"".join(each[:16] + bytes(more_bytes) + each[16:] for each in records))
    assert len(found) == (0 if is_variant else count)
    assert ("editcap -F pcapng IN OUT" in str(damage)) is is_variant


def test_what_is_odd_but_plain_pcap_is_read() -> None:
    times, sizes = (0, 31_622_401, 0, 0, 0, 0, 0), (1, 1, 1, 2, 4, 4, 14)
    some = [Frame(each * 10**9, bytes(size)) for each, size in zip(times, sizes, strict=True)]
    some[1] = some[1]._replace(data=b"b", missing_bytes=97)
    found, damage = read(written(some, ticks_per_second=1_000_000))
    assert ([each.data for each in found], damage) == ([each.data for each in some], None)

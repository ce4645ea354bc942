"""All ranges together have what one reader finds in the whole file, however the file is cut."""

from __future__ import annotations

import io
import pickle
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.files.frame import CaptureError, Frame, Interface
from mqproto.captures.files.pcap import PcapWriter, read_frames
from mqproto.captures.files.pcapng import Dropped
from mqproto.captures.pipeline.source.files import look_at, mapped
from mqproto.captures.pipeline.source.records import within
from mqproto.captures.pipeline.source.scan import frames, readings
from tests.captures.pipeline.capture_files import block, damaged, files, packed, read_whole, section_header

# Ranges with a few records each, and with so many that columns are made of them.
RANGE_BYTES = st.integers(4, 3000) | st.integers(3000, 100_000)

Row = tuple[int, int, int, int, int, Interface, bytes]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a file that is overwritten by each example."""
    return tmp_path_factory.mktemp("scan") / "capture"


def read_in_parts(path: Path, range_bytes: int) -> tuple[list[Row], CaptureError | None, Dropped]:
    file = look_at(str(path))
    plan = readings(file, range_bytes)
    rows: list[Row] = []
    dropped = Dropped()
    with mapped(file) as source:
        for reading in plan:
            found = frames(reading, source.data)
            assert len(found) == reading.frame_count
            dropped.add(found.dropped)
            for index in range(len(found)):
                start, size = int(found.start[index]), int(found.size[index])
                rows.append(
                    (
                        int(found.offset[index]),
                        reading.first_number + index,
                        int(found.time_ns[index]),
                        size,
                        int(found.missing[index]),
                        found.interfaces[int(found.interface[index])],
                        source.data[start : start + size],
                    )
                )
    return rows, plan[-1].damage if plan else None, dropped


def check(data: bytes, path: Path, range_bytes: int) -> None:
    expected, damage = read_whole(data, str(path))
    path.write_bytes(data)
    if not expected and damage is not None:
        with pytest.raises(CaptureError) as refusal:
            look_at(str(path))
        assert str(refusal.value) == str(damage)
        return
    # Enough to cut between any two bytes; more would only take longer.
    found, found_damage, dropped = read_in_parts(path, max(range_bytes, len(data) // 25))
    assert found == [
        (
            frame.offset,
            frame.number,
            within(frame.time_ns),
            len(frame.data),
            frame.missing_bytes,
            frame.interface,
            frame.data,
        )
        for frame in expected
    ]
    assert str(found_damage) == str(damage)
    told = Dropped()
    with suppress(CaptureError):
        deque(read_frames(io.BytesIO(data), dropped=told), 0)
    assert dropped.counted == told.counted
    assert dropped.stated <= told.stated  # Statistics in a range without frames are not read.


@given(data=files, range_bytes=RANGE_BYTES)
def test_a_capture_read_in_ranges_is_the_capture(data: bytes, range_bytes: int, path: Path) -> None:
    check(data, path, range_bytes)


@given(data=damaged(files), range_bytes=RANGE_BYTES)
def test_a_damaged_one_ends_where_and_as_one_reader_has_it(data: bytes, range_bytes: int, path: Path) -> None:
    check(data, path, range_bytes)


@given(
    data=damaged(files),
    packing=st.sampled_from(["gzip", "zstd"]),
    cut=st.integers(0, 40),
    range_bytes=RANGE_BYTES,
)
def test_what_is_packed_is_read_in_ranges_too(
    data: bytes, packing: str, cut: int, range_bytes: int, path: Path
) -> None:
    packed_bytes = packed(data, packing)
    check(packed_bytes[: len(packed_bytes) - cut], path, range_bytes)


def pcap(*some: bytes) -> bytes:
    file = io.BytesIO()
    writer = PcapWriter(file)
    for data in some:
        writer.write(Frame(1_700_000_000 * 10**9, data))
    return file.getvalue()


def pcapng(*some: bytes) -> bytes:
    head = section_header("<") + block("<", 1, struct.pack("<HHI", 1, 0, 0))
    return head + b"".join(enhanced("<", data) for data in some)


def enhanced(order: str, data: bytes, interface_id: int = 0) -> bytes:
    head = struct.pack(order + "IIIII", interface_id, 0, 1, len(data), len(data))
    return block(order, 6, head + data + bytes(-len(data) % 4))


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_a_capture_within_a_frame_leads_no_range_astray(make: Callable[..., bytes], path: Path) -> None:
    inner = make(*[bytes([number]) * 60 for number in range(40)])
    check(make(b"one", inner, b"two", b"three"), path, 1000)


def test_interfaces_and_byte_orders_that_come_later_are_known_to_the_ranges_behind_them(path: Path) -> None:
    described = block("<", 1, struct.pack("<HHI", 1, 0, 0))
    second = [enhanced("<", bytes(100), 1) for _ in range(30)]
    other = section_header(">") + block(">", 1, struct.pack(">HHI", 1, 0, 0))
    third = [enhanced(">", bytes(100)) for _ in range(30)]
    check(b"".join([pcapng(b"one"), described, *second, other, *third]), path, 1_200)


def test_an_interface_that_nobody_described_is_damage_in_any_range(path: Path) -> None:
    check(pcapng(*[bytes(100)] * 30) + b"".join(enhanced("<", bytes(100), 7) for _ in range(30)), path, 1000)


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_ranges_are_of_equal_size_and_none_begins_within_a_record(
    make: Callable[..., bytes], path: Path
) -> None:
    path.write_bytes(make(*[bytes(100)] * 100))
    found = readings(look_at(str(path)), 3_000)
    assert len({one.frame_count for one in found[:-1]}) <= 2
    path.write_bytes(make(b"one", bytes(5000), b"two", bytes(100)))
    found = readings(look_at(str(path)), 1000)
    assert [one.frame_count for one in found] == [2, 2]


def test_damage_behind_many_blocks_is_where_one_reader_finds_it(path: Path) -> None:
    good = pcapng(*[bytes(100)] * 50)
    check(good + enhanced("<", b"from nowhere", 1) + good, path, 1 << 20)
    ends_otherwise = bytearray(enhanced("<", bytes(100)))
    ends_otherwise[-4] ^= 4
    check(good + bytes(ends_otherwise) + enhanced("<", bytes(100)) * 50, path, 1 << 20)


def test_a_file_that_changes_between_scan_and_reading_is_an_error(path: Path) -> None:
    path.write_bytes(pcap(*[bytes(100)] * 10))
    (reading,) = readings(look_at(str(path)))
    path.write_bytes(pcap(*[bytes(216)] * 5))
    with mapped(reading.file) as source, pytest.raises(CaptureError, match="the file has changed"):
        frames(reading, source.data)


def test_a_reading_says_all_that_a_task_has_to_know_and_can_be_sent(path: Path) -> None:
    path.write_bytes(pcapng(*[bytes(100)] * 30)[:-1])
    plan = readings(look_at(str(path)), 1000)
    assert sum(reading.frame_count for reading in plan) == 29
    assert [reading.start for reading in plan[1:]] == [reading.end for reading in plan[:-1]]
    assert [reading.damage is None for reading in plan] == [True] * (len(plan) - 1) + [False]
    sent = pickle.loads(pickle.dumps(plan))
    assert str(sent[-1].damage) == str(plan[-1].damage)
    assert sent[:-1] == plan[:-1]

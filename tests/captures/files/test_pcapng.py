"""pcapng: everything that is written is read back, and damage is reported at its first byte."""

from __future__ import annotations

import io
import struct
from typing import Literal

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.captures.files.frame import ONLY_INTERFACE, Frame, Interface
from mqproto.captures.files.pcap import read_frames
from mqproto.captures.files.pcapng import Dropped, PcapngReader, PcapngWriter, Section, read_pcapng
from tests.captures.frames import read

frames = st.builds(
    Frame,
    time_ns=st.integers(0, 2**63),
    data=st.binary(max_size=100),
    comment=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    missing_bytes=st.integers(0, 2000),
    interface=st.just(ONLY_INTERFACE),
    number=st.just(0),
    offset=st.just(0),
    options=st.lists(st.tuples(st.integers(2, 0xFFFF), st.binary(min_size=1, max_size=9)), max_size=3).map(
        tuple
    ),
)

TWO_FRAMES = [Frame(1_000, b"first frame"), Frame(2_000, b"second", "a comment")]


def written(
    frames: list[Frame],
    ticks_per_second: Literal[1_000_000_000, 1_000_000] = 1_000_000_000,
    comment: str = "",
) -> bytes:
    file = io.BytesIO()
    with PcapngWriter(file, ticks_per_second=ticks_per_second, comment=comment, interface="link") as writer:
        for frame in frames:
            writer.write(frame)
    return file.getvalue()


def block(order: str, kind: int, body: bytes) -> bytes:
    length = 12 + len(body)
    return struct.pack(order + "II", kind, length) + body + struct.pack(order + "I", length)


def section(order: str, major: int = 1) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, major, 0, -1))


def interface(order: str, options: bytes = b"", link_type: int = 1) -> bytes:
    return block(order, 1, struct.pack(order + "HHI", link_type, 0, 0) + options)


def packet(
    order: str, ticks: int, data: bytes, interface_id: int = 0, size_bytes: int | None = None
) -> bytes:
    size_bytes = len(data) if size_bytes is None else size_bytes
    head = struct.pack(order + "IIIII", interface_id, ticks >> 32, ticks % 2**32, size_bytes, size_bytes)
    return block(order, 6, head + data + bytes(-len(data) % 4))


@given(st.lists(frames, max_size=8), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_what_is_written_is_read_back(some: list[Frame], comment: str) -> None:
    assert read(written(some, comment=comment)) == (some, None)


@given(st.lists(frames, max_size=8))
def test_microseconds_cut_the_times_and_nothing_else(some: list[Frame]) -> None:
    expected = [frame._replace(time_ns=frame.time_ns // 1000 * 1000) for frame in some]
    assert read(written(some, ticks_per_second=1_000_000)) == (expected, None)


@given(st.data())
def test_a_file_cut_short_gives_the_whole_frames_and_the_byte_where_the_broken_one_begins(
    data: st.DataObject,
) -> None:
    whole = written(TWO_FRAMES)
    starts = [0, len(written([])), len(written(TWO_FRAMES[:1])), len(whole)]
    cut = data.draw(st.integers(1, len(whole)).filter(lambda length: length not in starts))
    frames, error = read(whole[:cut])
    frame_count = sum(cut >= end for end in starts[2:])
    assert frames == TWO_FRAMES[:frame_count]
    if cut >= starts[1]:
        assert error is not None
        assert error.offset == starts[1 + frame_count]


@given(st.data())
def test_any_change_of_bytes_is_read_or_refused(data: st.DataObject) -> None:
    damaged = bytearray(written(TWO_FRAMES, comment="soon damaged"))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    frames, error = read(bytes(damaged))
    assert len(frames) <= 2
    assert error is None or (0 <= error.offset <= len(damaged) and "\n" not in str(error))


@given(st.binary(max_size=200))
def test_any_bytes_after_a_good_frame_leave_it_readable(tail: bytes) -> None:
    frames, _ = read(written(TWO_FRAMES) + tail)
    assert frames[:2] == TWO_FRAMES


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders_are_read(order: str) -> None:
    file = section(order) + interface(order) + packet(order, 5_000_007, b"frame")
    assert read(file) == ([Frame(5_000_007_000, b"frame")], None)


def test_a_second_section_has_its_own_byte_order_and_interfaces() -> None:
    first = section("<") + interface("<") + packet("<", 1, b"one")
    second = section(">") + interface(">") + packet(">", 2, b"two")
    assert read(first + second) == ([Frame(1000, b"one"), Frame(2000, b"two")], None)
    frames, error = read(first + section(">") + packet(">", 2, b"two"))
    assert frames == [Frame(1000, b"one")]
    assert error is not None
    assert "interface 0, which is described nowhere" in str(error)


def test_a_reader_begins_at_any_block_whose_section_is_known() -> None:
    head = section(">") + interface(">") + interface(">", link_type=101)
    file = io.BytesIO(head + packet(">", 1, b"one") + packet(">", 2, b"two", interface_id=1))
    reader = PcapngReader(file)
    whole = list(reader.frames())
    begun = PcapngReader(file, section=reader.section)
    assert begun.take_block(whole[1].offset) == whole[1]._replace(number=1)
    assert begun.take_block(0) is None
    assert begun.section == Section(">", (), 2)


@pytest.mark.parametrize(
    ("options", "time_ns"),
    [
        (b"", 3_000),  # microseconds, when nothing is said
        (struct.pack("<HHBxxx", 9, 1, 3), 3_000_000),  # milliseconds
        (struct.pack("<HHBxxx", 9, 1, 0x80 | 1), 1_500_000_000),  # half seconds
        (struct.pack("<HHq", 14, 8, -2), 3_000 - 2_000_000_000),
    ],
)
def test_an_interface_says_how_its_times_are_counted(options: bytes, time_ns: int) -> None:
    file = section("<") + interface("<", options) + packet("<", 3, b"frame")
    assert read(file) == ([Frame(time_ns, b"frame")], None)


def test_blocks_and_options_without_use_for_us_are_skipped() -> None:
    name_resolution, statistics = block("<", 4, bytes(8)), block("<", 5, bytes(12))
    unknown_option = struct.pack("<HH4s", 0x8001, 3, b"abc\0") + bytes(4)
    file = section("<") + name_resolution + interface("<", unknown_option) + packet("<", 1, b"f") + statistics
    assert read(file) == ([Frame(1000, b"f")], None)


HEAD = section("<") + interface("<")


@pytest.mark.parametrize(
    ("file", "offset", "reason"),
    [
        (b"", 0, "empty"),
        (b"GET / HTTP/1.1\r\n", 0, "begins with 47455420"),
        (section("<", major=2), 12, "version 2.0"),
        (section("<")[:8] + bytes(20), 8, "no byte order"),
        (HEAD + packet("<", 0, b"x", interface_id=1), len(HEAD) + 8, "interface 1"),
        (HEAD + packet("<", 0, b"x", size_bytes=5), len(HEAD) + 20, "5 bytes in a block with room for 4"),
        (HEAD + struct.pack("<III", 6, 13, 0), len(HEAD) + 4, "13 bytes"),
        (HEAD + struct.pack("<III", 6, 0xFFFFFFFC, 0), len(HEAD) + 4, "4294967292 bytes"),
        (HEAD + struct.pack("<IIII", 6, 16, 0, 20), len(HEAD) + 12, "says 20 where it repeats"),
        (HEAD + block("<", 6, bytes(16)), len(HEAD) + 8, "16 bytes of content; its type has 20"),
        (HEAD + block("<", 3, struct.pack("<I", 9) + b"four"), len(HEAD) + 8, "9 bytes in a block with room"),
        (section("<") + interface("<", struct.pack("<HH", 2, 9)), len(section("<")) + 16, "leaves its block"),
        (section("<") + interface("<", struct.pack("<HHH2x", 9, 2, 9)), len(section("<")) + 16, "not 1 byte"),
    ],
)
def test_damage_is_named_by_its_byte_and_in_one_line(file: bytes, offset: int, reason: str) -> None:
    _, error = read(file)
    assert error is not None
    assert error.offset == offset
    assert reason in str(error)
    assert str(error).startswith(f"capture: byte {offset}: ")


@pytest.mark.parametrize(
    "frame",
    [
        Frame(-1, b"before 1970"),
        Frame(2**64, b"too late"),
        Frame(0, bytes(0x40001)),
        Frame(0, b"", "x" * 0x10000),
    ],
)
def test_what_pcapng_cannot_hold_is_refused_before_a_byte_is_written(frame: Frame) -> None:
    file = io.BytesIO()
    writer = PcapngWriter(file)
    before = file.getvalue()
    with pytest.raises(UsageError):
        writer.write(frame)
    assert file.getvalue() == before


def test_frames_without_a_time_and_obsolete_ones_are_read() -> None:
    simple = block("<", 3, struct.pack("<I", 5) + b"frame" + bytes(3))
    cut = section("<") + block("<", 1, struct.pack("<HHI", 1, 0, 4))
    obsolete = block("<", 2, struct.pack("<HHIIII", 0, 7, 0, 3, 5, 9) + b"frame" + bytes(3))
    assert read(HEAD + simple + obsolete) == ([Frame(0, b"frame"), Frame(3_000, b"frame", "", 4)], None)
    assert read(cut + block("<", 3, struct.pack("<I", 5) + b"fram")) == ([Frame(0, b"fram", "", 1)], None)


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=9)), max_size=9))
def test_frames_keep_their_interfaces_and_options_when_they_are_written_again(
    caught: list[tuple[int, bytes]],
) -> None:
    places = [Interface(number, number, f"place {number}", ((3, b"where"),)) for number in range(3)]
    frames = [Frame(0, data, interface=places[place], options=((2988, b"other"),)) for place, data in caught]

    def told(data: bytes) -> list[tuple[object, ...]]:
        return [
            (
                frame.data,
                frame.interface.name,
                frame.link_type,
                frame.options,
                (3, b"where") in frame.interface.options,
            )
            for frame in read_frames(io.BytesIO(data))
        ]

    once = written(frames)
    again = written(list(read_frames(io.BytesIO(once))))
    assert told(once) == told(again)
    assert [(data, name) for data, name, *_ in told(again)] == [
        (data, f"place {place}") for place, data in caught
    ]


def test_frames_are_numbered_and_know_their_block() -> None:
    file = HEAD + packet("<", 1, b"one") + block("<", 5, bytes(12)) + packet("<", 2, b"two")
    assert [(frame.number, file[frame.offset]) for frame in read_frames(io.BytesIO(file))] == [(1, 6), (2, 6)]


def sections(*captures: list[Frame]) -> list[Frame]:
    """Return the frames of several files after the files are joined, as by `cat`, and read again."""
    joined = io.BytesIO()
    for frames in captures:
        with PcapngWriter(joined, interface=frames[0].interface) as writer:
            for frame in frames:
                writer.write(frame)
    joined.seek(0)
    return list(read_pcapng(joined))


def test_interfaces_of_a_ring_that_was_joined_go_on_in_the_next_section() -> None:
    east, west, other = Interface(0, name="east"), Interface(1, name="west"), Interface(1, name="other")
    times = iter(range(1, 99))
    one, two, three = (
        [Frame(next(times), b"", interface=each) for each in some]
        for some in ([east, west, east], [west, east], [other, west])
    )
    read = sections(one, two, three)
    assert [(frame.interface.number, frame.interface.name) for frame in read] == [
        (0, "east"),
        (1, "west"),
        (0, "east"),
        (1, "west"),
        (0, "east"),
        (4, "other"),
        (1, "west"),
    ]


def test_frames_that_were_dropped_before_a_section_s_first_one_count_for_the_interface_that_it_continues() -> (
    None
):
    east, joined, dropped = Interface(0, name="east"), io.BytesIO(), Dropped()
    for time_ns in (1, 2):
        with PcapngWriter(joined, interface=east) as writer:
            writer.write(Frame(time_ns, b"", interface=east, options=((4, bytes([3, *bytes(7)])),)))
    joined.seek(0)
    assert len(list(read_pcapng(joined, dropped=dropped))) == 2
    assert [(each.number, count) for each, count in dropped.counted.items()] == [(0, 6)]


def test_interfaces_that_saw_the_same_time_in_two_sections_are_two() -> None:
    frames = [Frame(time_ns, b"", interface=Interface(0, name="eth0")) for time_ns in (1, 5, 9)]
    assert [frame.interface.number for frame in sections(frames, frames)] == [0, 0, 0, 1, 1, 1]

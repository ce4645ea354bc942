"""A walk from record to record ends, whatever the bytes are, and reports only damage."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mqproto.captures.files.pcap import FILE_HEADER_BYTES
from mqproto.captures.files.pcapng import MAX_INTERFACES, Clock, Section
from mqproto.captures.pipeline.source.records import TIME_LIMIT_NS, Stretch, _times, gather, walk
from tests.captures.pipeline.capture_files import block, files, section_header

SECTION = Section("<")


def stretch_of(data: bytes) -> Stretch:
    return Stretch(data, "pcapng", "here", 0, len(data), SECTION)


@given(data=st.binary(max_size=300) | files, low=st.integers(0, 40), form=st.sampled_from(["pcap", "pcapng"]))
def test_any_bytes_are_frames_or_damage(data: bytes, low: int, form: str) -> None:
    source = stretch_of(section_header("<") + block("<", 1, struct.pack("<HHI", 1, 0, 0)))
    section = walk(source, with_columns=True).section
    low = low // 4 * 4 if form == "pcapng" else low
    walked = walk(Stretch(data, form, "here", low, len(data), section), with_columns=True)
    assert walked.damage is not None or walked.following >= len(data) or low > len(data)
    assert low <= walked.following <= max(low, len(data))
    assert len(walked.frames()) == walked.frame_count


@given(
    ticks=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 2 * 10**18), max_size=5),
    clock=st.builds(
        Clock,
        st.sampled_from([1, 1000, 10**6, 10**9, 10**12, 3, 2**20, 10**127]),
        st.just(0) | st.integers(-(2**63), 2**63 - 1),
    ),
)
def test_times_at_once_are_times_one_by_one(ticks: list[int], clock: Clock) -> None:
    high, low = (np.array([half(tick) for tick in ticks], np.int64) for half in (upper, lower))
    times = [clock.time_ns(tick) for tick in ticks]
    found = _times(high, low, clock)
    assert found.tolist() == [time_ns if abs(time_ns) < TIME_LIMIT_NS else 0 for time_ns in times]
    for one in found.tolist():
        assert (found - one).tolist() == [other - one for other in found.tolist()]


def upper(ticks: int) -> int:
    return ticks >> 32


def lower(ticks: int) -> int:
    return ticks & 0xFFFF_FFFF


@given(data=st.binary(min_size=4, max_size=60), places=st.lists(st.integers(0, 56), max_size=9))
def test_gathered_words_need_not_be_aligned(data: bytes, places: list[int]) -> None:
    places = [place % (len(data) - 3) for place in places]
    found = gather(data, np.array(places, np.int64), np.dtype([("word", ">u4")]))
    assert found["word"].tolist() == [struct.unpack_from(">I", data, place)[0] for place in places]


def test_options_without_end_cost_no_more_than_reading_them() -> None:
    options = struct.pack("<HH", 1, 0) * 5_000
    head = struct.pack("<IIIII", 0, 0, 1, 0, 0)
    described = block("<", 1, struct.pack("<HHI", 1, 0, 0))
    data = section_header("<") + described + block("<", 6, head + options) * 40
    walked = walk(stretch_of(data), with_columns=True)
    assert (walked.frame_count, walked.damage) == (40, None)
    last = bytearray(data)
    last[-8:-4] = struct.pack("<HH", 1, 1)
    walked = walk(stretch_of(bytes(last)), with_columns=True)
    assert walked.frame_count == 39
    assert "an option of 1 bytes that leaves its block" in str(walked.damage)


def test_no_section_describes_interfaces_without_end() -> None:
    described = block("<", 1, struct.pack("<HHI", 1, 0, 0))
    data = section_header("<") + described * (MAX_INTERFACES + 1)
    walked = walk(stretch_of(data), with_columns=False)
    assert len(walked.section.sources) == MAX_INTERFACES
    assert walked.damage is not None
    assert walked.damage.offset == len(data) - len(described)
    assert "more than 65536 interfaces" in str(walked.damage)


@pytest.mark.parametrize("high", [0, FILE_HEADER_BYTES])
def test_a_stretch_without_bytes_has_no_frames(high: int) -> None:
    walked = walk(stretch_of(b"")._replace(low=high, high=high), with_columns=True)
    assert (walked.frame_count, walked.damage, len(walked.frames())) == (0, None, 0)

"""The headers of many frames are read like those of a single frame."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mqproto.captures.net.ip import IPV4_HEADER, IpReader
from mqproto.captures.net.links import ip_start
from mqproto.captures.pipeline.source.heads import (
    IPV4_LAYOUT,
    NO_PLACE,
    Datagrams,
    datagrams_4,
    datagrams_6,
    ip_starts,
)
from mqproto.captures.pipeline.source.records import Integers
from tests.captures.net.test_ip import fragment_6, packet_4, packet_6

TYPES = st.sampled_from([b"\x08\x00", b"\x86\xdd", b"\x81\x00", b"\x88\xa8", b"\x91\x00", b"\x08\x06"])
FAMILIES = st.sampled_from(
    [struct.pack(order + "I", family) for order in "<>" for family in (2, 10, 24, 30, 7)]
)
HEADS = st.tuples(
    st.sampled_from([b"", bytes(12), bytes(14), bytes(18)]), st.lists(TYPES | FAMILIES, max_size=14)
).map(lambda parts: parts[0] + b"".join(parts[1]))


def laid_out(frames: list[bytes]) -> tuple[bytes, Integers, Integers]:
    """Return the frames in one array of bytes, where each one begins, and its length."""
    size = np.array([len(frame) for frame in frames], np.int64)
    return b"".join(frames), np.cumsum(size) - size, size


@given(
    link_type=st.sampled_from([0, 1, 12, 101, 108, 113, 127, 228, 276]),
    frames=st.lists(HEADS | st.binary(max_size=40), max_size=12),
)
def test_the_ip_packet_of_each_frame_begins_where_it_does_for_one(
    link_type: int, frames: list[bytes]
) -> None:
    data, start, size = laid_out(frames)
    found = ip_starts(data, link_type, start, size)
    alone = [ip_start(link_type, frame) for frame in frames]
    assert [None if at == NO_PLACE else at - first for at, first in zip(found, start, strict=True)] == alone


def carried(found: Datagrams, data: bytes, row: int) -> tuple[bytes, bytes, int, bytes, int] | None:
    """Return the contents of the IP packet in one frame if the packet was accepted; otherwise, None."""
    for index in np.flatnonzero(found.row == row):
        payload = data[found.start[index] : found.end[index]]
        ends = bytes(found.source[index]), bytes(found.destination[index])
        return *ends, found.protocol[index], payload, int(found.cut[index])
    return None


@given(
    packets=st.lists(
        st.builds(packet_4, st.binary(max_size=30)) | st.builds(packet_6, st.binary(max_size=30)), max_size=8
    ),
    data=st.data(),
)
def test_what_is_taken_is_what_one_reader_takes(packets: list[bytes], data: st.DataObject) -> None:
    frames = []
    for packet in packets:
        changed = bytearray(packet)
        changed[data.draw(st.sampled_from([0, 2, 3, 5, 6, 7, 9]))] = data.draw(st.integers(0, 255))
        frames.append(bytes(changed[: data.draw(st.integers(1, len(changed)) | st.just(len(changed)))]))
    missing = [data.draw(st.integers(0, 9)) for _ in frames]
    whole, start, size = laid_out(frames)
    rows = np.arange(len(frames))
    for version, read in ((4, datagrams_4), (6, datagrams_6)):
        found = read(whole, rows, start, start + size, np.array(missing, np.int64))
        for row, frame in enumerate(frames):
            taken = carried(found, whole, row)
            alone = IpReader().read(frame, 0, missing[row])
            assert taken is None or (
                not isinstance(alone, str) and taken == alone[:-1] and frame[0] >> 4 == version
            )


def without_length(packet: bytes) -> bytes:
    """Return a packet as it would be caught before the network card splits it: with a length of zero."""
    place = 2 if packet[0] >> 4 == 4 else 4
    return packet[:place] + bytes(2) + packet[place + 2 :]


def test_whole_packets_are_all_taken_and_fragments_none() -> None:
    whole_4 = [
        packet_4(b"one"),
        packet_4(b""),
        without_length(packet_4(b"one")),
        packet_4(b"padded") + bytes(6),
    ]
    whole_6 = [
        packet_6(b"two"),
        packet_6(b""),
        without_length(packet_6(b"two")),
        packet_6(b"padded") + bytes(6),
    ]
    frames = [*whole_4, *whole_6, packet_4(b"three", more=True), fragment_6(b"four", 8, True)]
    data, start, size = laid_out(frames)
    rows = np.arange(len(frames))
    missing = np.zeros(len(frames), np.int64)
    assert datagrams_4(data, rows, start, start + size, missing).row.tolist() == [0, 1, 2, 3]
    assert datagrams_6(data, rows, start, start + size, missing).row.tolist() == [4, 5, 6, 7]


def test_the_layout_of_a_header_is_the_same_for_numpy() -> None:
    packet = packet_4(b"payload", identification=77)
    head = np.frombuffer(packet, IPV4_LAYOUT, 1)[0]
    assert IPV4_LAYOUT.itemsize == IPV4_HEADER.size
    assert tuple(head.tolist()) == IPV4_HEADER.unpack_from(packet)


@pytest.mark.parametrize("link_type", [0, 1, 101, 113, 127, 276])
def test_no_frames_have_no_packets(link_type: int) -> None:
    data, start, size = laid_out([])
    assert len(ip_starts(data, link_type, start, size)) == 0

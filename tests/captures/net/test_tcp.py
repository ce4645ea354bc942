"""Segments become frames and are read back, and the frames' checksums are right."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.captures.net.tcp import MAX_SEGMENT_BYTES, Endpoint, Segment, encode_frame, word_sum
from tests.captures.frames import decode_frame

hosts = st.ip_addresses(v=4).map(str)
endpoints = st.builds(Endpoint, hosts, st.integers(0, 0xFFFF))
words = st.integers(0, 2**32 - 1)
segments = st.builds(
    Segment,
    source=endpoints,
    destination=endpoints,
    sequence_number=words,
    acknowledgment_number=words,
    flags=st.integers(0, 255),
    window=st.integers(0, 0xFFFF),
    options=st.integers(0, 10).flatmap(lambda count: st.binary(min_size=4 * count, max_size=4 * count)),
    payload=st.binary(max_size=200),
    cut_bytes=st.just(0),
)

SEGMENT = Segment(Endpoint("127.0.0.1", 40_000), Endpoint("127.0.0.2", 1801), 1, 2, 0x18, 3, b"", b"payload")


def ones_complement_sum(data: bytes) -> int:
    """Return the sum as [RFC 1071] 1 describes it: add, and add each carry at the low end."""
    total = 0
    for (word,) in struct.iter_unpack("!H", data + bytes(len(data) % 2)):
        total += word
        total = (total & 0xFFFF) + (total >> 16)
    return total


def changed(frame: bytes, offset: int, value: int) -> bytes:
    return frame[:offset] + bytes([value]) + frame[offset + 1 :]


@given(segments, st.integers(0, 0xFFFF))
def test_a_segment_comes_back_from_its_frame(segment: Segment, identification: int) -> None:
    assert decode_frame(encode_frame(segment, identification)) == segment


@given(segments, st.integers(0, 0xFFFF))
def test_both_checksums_are_right(segment: Segment, identification: int) -> None:
    frame = encode_frame(segment, identification)
    assert ones_complement_sum(frame[14:34]) == 0xFFFF
    tcp = frame[34:]
    pseudo_header = frame[26:34] + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(tcp))
    assert ones_complement_sum(pseudo_header + tcp) == 0xFFFF


@given(st.binary(max_size=300))
def test_the_sum_of_words_is_that_of_rfc_1071(data: bytes) -> None:
    assert word_sum(data) % 0xFFFF == ones_complement_sum(data) % 0xFFFF


def test_the_example_of_rfc_1071_comes_out_right() -> None:
    assert word_sum(bytes.fromhex("0001f203f4f5f6f7")) == 0xDDF2


@given(segments, st.integers(0, 60))
def test_ethernet_padding_is_no_payload(segment: Segment, padding_bytes: int) -> None:
    assert decode_frame(encode_frame(segment, 0) + bytes(padding_bytes)) == segment


@given(st.binary(max_size=120))
def test_any_bytes_are_a_segment_or_none(data: bytes) -> None:
    segment = decode_frame(data)
    assert segment is None or len(segment.payload) < len(data)


@given(segments, st.data())
def test_a_broken_header_is_no_segment_or_one_inside_the_frame(segment: Segment, data: st.DataObject) -> None:
    frame = encode_frame(segment, 0)
    offset, value = data.draw(st.integers(12, 53)), data.draw(st.integers(0, 255))
    decoded = decode_frame(changed(frame, offset, value))
    assert decoded is None or 54 + len(decoded.options) + len(decoded.payload) <= len(frame)


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (13, 0x06),  # ARP
        (14, 0x65),  # IP version 6
        (14, 0x44),  # an IP header of 16 bytes
        (20, 0x20),  # a fragment, more follow
        (21, 0x01),  # a later fragment
        (23, 17),  # UDP
        (46, 0x40),  # a TCP header of 16 bytes
        (46, 0xF0),  # a TCP header of 60 bytes, which the frame does not have
    ],
)
def test_what_is_no_whole_tcp_header_over_ipv4_is_no_segment(offset: int, value: int) -> None:
    assert decode_frame(changed(encode_frame(SEGMENT, 0), offset, value)) is None


def test_a_frame_cut_by_the_capture_gives_what_is_left() -> None:
    segment = decode_frame(encode_frame(SEGMENT, 0)[:-3])
    assert segment is not None
    assert segment.payload == b"payl"


def test_an_ip_length_of_zero_means_all_that_follows() -> None:
    frame = changed(changed(encode_frame(SEGMENT, 0), 16, 0), 17, 0)
    assert decode_frame(frame) == SEGMENT


def test_the_longest_segment_fills_ipv4() -> None:
    longest = SEGMENT._replace(payload=bytes(MAX_SEGMENT_BYTES))
    assert len(encode_frame(longest, 0)) == 14 + 0xFFFF


@pytest.mark.parametrize(
    "endpoint", [Endpoint("localhost", 1), Endpoint("::1", 1), Endpoint("127.0.0.1", 65_536)]
)
def test_an_endpoint_that_ipv4_cannot_name_is_refused(endpoint: Endpoint) -> None:
    with pytest.raises(UsageError):
        endpoint.validated()

"""IP packets: fragments in any order make the original packet, and nothing else does."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.net.ip import FRAGMENT_OF_IP, MAX_FRAGMENT_COUNT, MAX_PARTIAL_COUNT, Datagram, IpReader

HERE, THERE = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
HERE_6, THERE_6 = bytes(15) + b"\1", bytes(15) + b"\2"
TCP = 6


def packet_4(payload: bytes, *, offset: int = 0, more: bool = False, identification: int = 7) -> bytes:
    fragment = offset // 8 | (0x2000 if more else 0)
    head = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), identification, fragment, 64, TCP, 0, HERE, THERE
    )
    return head + payload


def packet_6(payload: bytes, *extensions: tuple[int, bytes], last: int = TCP) -> bytes:
    """Return an IPv6 packet.

    Each extension is given as its number and its bytes. Its first byte, which is the number of the next header, is left
    out.
    """
    numbers = [number for number, _ in extensions] + [last]
    body = b"".join(
        bytes([following]) + content for following, (_, content) in zip(numbers[1:], extensions, strict=True)
    )
    body += payload
    return struct.pack("!IHBB16s16s", 6 << 28, len(body), numbers[0], 64, HERE_6, THERE_6) + body


def fragment_6(payload: bytes, offset: int, more: bool, identification: int = 9) -> bytes:
    return packet_6(payload, (44, struct.pack("!BHI", 0, offset | more, identification)))


@given(st.binary(min_size=1, max_size=40), st.binary(max_size=8))
def test_what_a_packet_carries_ends_where_it_says(payload: bytes, padding: bytes) -> None:
    assert IpReader().read(b"head" + packet_4(payload) + padding, 4) == Datagram(HERE, THERE, TCP, payload, 0)
    assert IpReader().read(packet_6(payload) + padding, 0) == Datagram(HERE_6, THERE_6, TCP, payload, 0)


def test_what_the_capture_cut_off_is_counted() -> None:
    for packet in (packet_4(b"ten bytes!"), packet_6(b"ten bytes!")):
        found = IpReader().read(packet[:-4], 0)
        assert not isinstance(found, str)
        assert (found.payload, found.missing_bytes) == (b"ten by", 4)


@pytest.mark.parametrize("header_bytes", [24, 60])
def test_options_are_passed_over(header_bytes: int) -> None:
    packet = bytearray(packet_4(bytes(header_bytes - 20) + b"payload"))
    packet[0] = 0x40 | header_bytes // 4
    found = IpReader().read(bytes(packet), 0)
    assert not isinstance(found, str)
    assert found.payload == b"payload"


def test_a_length_of_zero_means_all_that_was_caught() -> None:
    packet = bytearray(packet_4(b"payload"))
    packet[2:4] = bytes(2)
    found = IpReader().read(bytes(packet), 0)
    assert not isinstance(found, str)
    assert (found.payload, found.missing_bytes) == (b"payload", 0)


def test_extension_headers_are_passed_over() -> None:
    hop_by_hop, routing, authentication = (
        (0, bytes([0]) + bytes(6)),
        (43, bytes([1]) + bytes(14)),
        (51, bytes([1]) + bytes(10)),
    )
    found = IpReader().read(packet_6(b"payload", hop_by_hop, routing, authentication, (60, bytes(7))), 0)
    assert not isinstance(found, str)
    assert (found.protocol, found.payload) == (TCP, b"payload")
    atomic = packet_6(b"payload", (44, bytes(7)))  # a fragment header on a packet that is whole
    found = IpReader().read(atomic, 0)
    assert not isinstance(found, str)
    assert found.payload == b"payload"


@st.composite
def fragmented(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, bytes, bool]]]:
    payload = draw(st.binary(min_size=9, max_size=80))
    cuts = [
        0,
        *sorted(8 * cut for cut in draw(st.sets(st.integers(1, (len(payload) - 1) // 8)))),
        len(payload),
    ]
    pieces = [(start, payload[start:end], end < len(payload)) for start, end in itertools.pairwise(cuts)]
    return payload, draw(st.permutations(pieces + draw(st.lists(st.sampled_from(pieces), max_size=2))))


@given(fragmented(), st.booleans())
def test_fragments_in_any_order_make_the_packet(
    story: tuple[bytes, list[tuple[int, bytes, bool]]], six: bool
) -> None:
    payload, pieces = story
    reader = IpReader()
    make = fragment_6 if six else lambda data, offset, more: packet_4(data, offset=offset, more=more)
    if len({offset for offset, _, _ in pieces}) == 1:
        return  # one piece alone is no fragment
    found = [reader.read(make(data, offset, more), 0) for offset, data, more in pieces]
    whole = [one for one in found if not isinstance(one, str)]
    assert whole[0].payload == payload
    assert reader.given_up_count == 0


@pytest.mark.parametrize(
    "second",
    [
        packet_4(b"overlaps", offset=8, more=True),
        packet_4(b"the end, too soon", offset=8, more=False),
        packet_4(b"", offset=64, more=True),
        packet_4(b"beyond what a packet may have", offset=65_512, more=False),
    ],
)
def test_fragments_that_contradict_one_another_make_nothing(second: bytes) -> None:
    reader = IpReader()
    assert reader.read(packet_4(bytes(16), offset=0, more=True), 0) == FRAGMENT_OF_IP
    assert reader.read(second, 0) == FRAGMENT_OF_IP
    assert (reader.given_up_count, reader.waiting_count) == (1, 0)


def test_fragments_that_never_become_whole_are_bounded() -> None:
    reader = IpReader()
    for number in range(MAX_FRAGMENT_COUNT + 1):
        assert reader.read(packet_4(bytes(8), offset=8 * number, more=True), 0) == FRAGMENT_OF_IP
    assert (reader.given_up_count, reader.waiting_count) == (1, 0)

    reader = IpReader()
    for number in range(3 * MAX_PARTIAL_COUNT):
        assert reader.read(packet_4(bytes(8), more=True, identification=number), 0) == FRAGMENT_OF_IP
    assert reader.waiting_count == MAX_PARTIAL_COUNT
    assert reader.given_up_count == 2 * MAX_PARTIAL_COUNT


@given(st.binary(max_size=80), st.integers(0, 90))
def test_any_bytes_are_a_packet_or_none(data: bytes, start: int) -> None:
    for first in (0x45, 0x60):
        found = IpReader().read(bytes(start) + bytes([first]) + data, start)
        assert isinstance(found, str) or len(found.payload) <= len(data)

"""Link layers: the same IP packet is found after each one's header."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.net.links import KNOWN, ip_start

MAC = bytes(12)
PACKET = b"\x45 and so on"


@pytest.mark.parametrize(
    ("link_type", "head"),
    [
        (1, MAC + b"\x08\x00"),
        (1, MAC + b"\x86\xdd"),
        (1, MAC + b"\x81\x00\x00\x05\x08\x00"),
        (1, MAC + b"\x88\xa8\x00\x05\x81\x00\x00\x06\x86\xdd"),
        (0, b"\x02\x00\x00\x00"),
        (0, b"\x00\x00\x00\x02"),
        (0, b"\x1e\x00\x00\x00"),
        (108, b"\x00\x00\x00\x18"),
        (12, b""),
        (101, b""),
        (228, b""),
        (229, b""),
        (113, bytes(14) + b"\x08\x00"),
        (113, bytes(14) + b"\x81\x00\x00\x05\x08\x00"),
        (276, b"\x08\x00" + bytes(18)),
        (276, b"\x86\xdd" + bytes(18)),
        (276, b"\x81\x00" + bytes(18) + b"\x00\x05\x08\x00"),
    ],
)
def test_the_packet_begins_behind_the_head(link_type: int, head: bytes) -> None:
    assert ip_start(link_type, head + PACKET) == len(head)
    assert all(ip_start(link_type, head[:length]) is None for length in range(len(head) + 1))


@pytest.mark.parametrize(
    ("link_type", "frame"),
    [
        (1, MAC + b"\x08\x06" + bytes(46)),  # ARP
        (1, MAC + b"\x00\x26\x42\x42\x03" + bytes(40)),  # a length instead of a type: 802.3
        (1, MAC + b"\x81\x00\x00\x01" * 9 + bytes(40)),
        (0, b"\x07\x00\x00\x00" + PACKET),
        (276, b"\x08\x06" + bytes(40)),
        (127, PACKET),
    ],
)
def test_frames_without_an_ip_packet_have_none(link_type: int, frame: bytes) -> None:
    assert ip_start(link_type, frame) is None


@given(st.integers(0, 300), st.binary(max_size=60))
def test_any_bytes_have_a_packet_inside_them_or_none(link_type: int, frame: bytes) -> None:
    start = ip_start(link_type, frame)
    assert start is None or (link_type in KNOWN and 0 <= start < len(frame))

"""Datagrams as frames: their checksums follow the standard, and tshark reads them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.captures.net.tcp import Endpoint, word_sum
from mqproto.captures.net.udp import MAX_DATAGRAM_BYTES, encode_datagram

HERE = Endpoint("127.0.0.1", 50_000)
THERE = Endpoint("127.0.0.2", 3_527)


@given(st.binary(max_size=300), st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_a_datagram_sums_to_zero_and_carries_what_it_was_given(
    payload: bytes, port: int, identification: int
) -> None:
    frame = encode_datagram(HERE._replace(port=port), THERE, payload, identification)
    ip, udp = frame[14:34], frame[34:]
    assert word_sum(ip) == 0
    assert word_sum(ip[12:20] + struct.pack("!HH", 17, len(udp)) + udp) == 0
    assert struct.unpack("!HHH", udp[:6]) == (port, 3_527, len(udp))
    assert udp[6:8] != b"\0\0", "which would say that there is no checksum"
    assert udp[8:] == payload


def test_what_does_not_fit_in_a_datagram_or_is_not_ipv4_is_refused() -> None:
    assert len(encode_datagram(HERE, THERE, bytes(MAX_DATAGRAM_BYTES))) == 14 + 65_535
    with pytest.raises(UsageError, match="65,508 bytes"):
        encode_datagram(HERE, THERE, bytes(MAX_DATAGRAM_BYTES + 1))
    with pytest.raises(UsageError, match="not an IPv4 address"):
        encode_datagram(HERE, Endpoint("::1", 3_527), b"")

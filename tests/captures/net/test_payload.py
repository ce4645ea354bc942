"""A frame that was copied with its headers: what MSMQ has in it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.net.payload import payload_in
from mqproto.captures.net.tcp import Endpoint, Segment, encode_frame
from mqproto.captures.net.udp import encode_datagram
from mqproto.wire import encode_packet, ping_packet
from tests.examples import a_ping, a_user_message

HERE, THERE = Endpoint("10.0.0.1", 49_152), Endpoint("10.0.0.2", 1801)
PACKET, PING = encode_packet(a_user_message()), ping_packet.encode(a_ping())


def in_tcp(payload: bytes) -> bytes:
    return encode_frame(Segment(HERE, THERE, 1, 1, 0x18, 64, b"", payload), 1)


@pytest.mark.parametrize("link", ["ethernet", "loopback", "ip"])
@pytest.mark.parametrize("payload", [PACKET, PACKET + PACKET[:40], PACKET[:60], PING])
def test_what_tcp_or_udp_carries_is_found_behind_its_headers(link: str, payload: bytes) -> None:
    frame = encode_datagram(HERE, THERE, payload) if payload == PING else in_tcp(payload)
    frame = {"ethernet": frame, "loopback": b"\2\0\0\0" + frame[14:], "ip": frame[14:]}[link]
    assert payload_in(frame) == (len(frame) - len(payload), payload)


@given(st.binary(max_size=60) | st.just(PACKET) | st.just(PING) | st.binary(max_size=20).map(in_tcp))
def test_all_else_is_as_it_is(data: bytes) -> None:
    assert payload_in(data) == (0, data)

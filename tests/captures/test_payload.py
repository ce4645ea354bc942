"""A frame that was copied together with its headers: the MSMQ bytes in it are found."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.net.tcp import Endpoint, Segment, encode_frame
from mqproto.captures.net.udp import encode_datagram
from mqproto.captures.payload import take_apart
from mqproto.wire import encode_packet, ping_packet
from tests.examples import a_ping, a_session_ack, a_user_message

HERE, THERE = Endpoint("10.0.0.1", 49_152), Endpoint("10.0.0.2", 1801)
PINGED = Endpoint("10.0.0.2", 3527)
PACKET, PING = encode_packet(a_user_message()), ping_packet.encode(a_ping())
ACK = encode_packet(a_session_ack())


def in_tcp(payload: bytes) -> bytes:
    return encode_frame(Segment(HERE, THERE, 1, 1, 0x18, 64, b"", payload), 1)


def as_link(frame: bytes, link: str) -> bytes:
    return {"ethernet": frame, "loopback": b"\2\0\0\0" + frame[14:], "ip": frame[14:]}[link]


def parts(*dumps: bytes) -> list[tuple[int, bytes]]:
    return [(part.place(0), bytes(part.data)) for part in take_apart(dumps).parts]


@pytest.mark.parametrize("link", ["ethernet", "loopback", "ip"])
@pytest.mark.parametrize("payload", [PACKET, PACKET + PACKET[:40], PACKET[:60], PING])
def test_what_tcp_or_udp_carries_is_found_behind_its_headers(link: str, payload: bytes) -> None:
    frame = as_link(encode_datagram(HERE, PINGED, payload) if payload == PING else in_tcp(payload), link)
    assert parts(frame) == [(len(frame) - len(payload), payload)]


@pytest.mark.parametrize("link", ["ethernet", "loopback", "ip"])
def test_eight_frames_are_each_shown_and_what_carries_nothing_is_said(link: str) -> None:
    """The frames are a handshake, a packet in two segments with the answer between them, a repeated segment, and a
    Ping.
    """
    segments = [
        (HERE, 0, 2, b""), (THERE, 0, 0x12, b""), (HERE, 1, 0x10, b""), (HERE, 1, 0x18, PACKET[:100]),
        (THERE, 1, 0x18, ACK), (HERE, 101, 0x18, PACKET[100:] + ACK), (THERE, 1, 0x18, ACK),
    ]  # fmt: skip
    ends = {HERE: THERE, THERE: HERE}
    frames = [
        encode_frame(Segment(end, ends[end], at, 1, flags, 64, b"", data), 1)
        for end, at, flags, data in segments
    ]
    frames = [as_link(frame, link) for frame in (*frames, encode_datagram(HERE, PINGED, PING))]
    found = take_apart(frames)
    assert [bytes(part.data) for part in found.parts] == [PACKET + ACK, ACK, ACK, PING]
    assert found.said == "3 dumps of frames that carry no packet"
    whole = b"".join(frames)
    for part in found.parts:
        assert all(whole[part.place(at)] == part.data[at] for at in range(len(part.data)))


def test_a_stream_that_is_joined_late_begins_with_its_first_head() -> None:
    found = take_apart([in_tcp(b"the rest of another" + PACKET)])
    assert [bytes(part.data) for part in found.parts] == [PACKET]
    assert found.said == "19 bytes that begin no packet"


@given(st.lists(st.binary(max_size=60) | st.just(PACKET) | st.just(PING), max_size=4))
def test_all_else_is_as_it_is_from_its_first_head_on(dumps: list[bytes]) -> None:
    found = take_apart(dumps)
    whole = b"".join(dumps)
    shown = b"".join(bytes(part.data) for part in found.parts)
    assert all(bytes(part.data) in whole for part in found.parts)
    assert found.left_out_bytes + len(shown) == len(whole)
    assert bool(shown) == any(data in (PACKET, PING) for data in dumps)

"""Packets from a stream, no matter how TCP cuts it and what a peer announces."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import WireFormatError
from mqproto.testing import chunked, packets, user_messages
from mqproto.wire import (
    ConnectionParameters,
    EstablishConnection,
    Packet,
    PacketBuffer,
    SessionAck,
    UnwelcomeError,
    UserMessage,
    Welcome,
    decode_packet,
    encode_packet,
    with_session_header,
)
from mqproto.wire.buffer import DroppingBuffer
from tests.examples import (
    EVERY_PACKET,
    a_connection_parameters,
    a_session_ack,
    a_session_header,
    a_user_message,
    an_establish_connection,
    poked,
)
from tests.frames import FRAME_5, FRAME_7, FRAME_8, SESSION_FRAMES

GOOD = encode_packet(a_user_message())


@given(st.lists(packets().map(encode_packet), max_size=5), st.data())
def test_framing_is_blind_to_how_tcp_cut_the_stream(stream: list[bytes], data: st.DataObject) -> None:
    chunks = data.draw(chunked(b"".join(stream)))
    buffer = PacketBuffer()
    assert [packet for chunk in chunks for packet in buffer.feed(chunk)] == stream
    assert buffer.pending_bytes == 0


def test_a_stream_may_come_byte_by_byte() -> None:
    stream = b"".join(EVERY_PACKET)
    buffer = PacketBuffer()
    found = [packet for at in range(len(stream)) for packet in buffer.feed(stream[at : at + 1])]
    assert found == list(EVERY_PACKET)


@given(chunked(FRAME_7 + FRAME_8 + FRAME_7))
def test_lior_inside_a_packet_begins_no_packet(chunks: list[bytes]) -> None:
    buffer = PacketBuffer()
    assert [packet for chunk in chunks for packet in buffer.feed(chunk)] == [FRAME_7, FRAME_8, FRAME_7]


@pytest.mark.spec("[MS-MQMQ] 2.2.19.1")
def test_a_session_header_beyond_packet_size_belongs_to_its_message() -> None:
    riding = with_session_header(GOOD, a_session_header())
    assert PacketBuffer().feed(riding + FRAME_8 + GOOD) == [riding, FRAME_8, GOOD]


def test_a_packet_waits_for_its_session_header() -> None:
    riding = with_session_header(GOOD, a_session_header())
    buffer = PacketBuffer()
    assert buffer.feed(riding[:-16]) == []
    assert (buffer.pending_bytes, buffer.pending) == (len(GOOD), riding[:-16])
    assert buffer.feed(riding[-16:]) == [riding]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_packets_do_not_share_memory_with_what_was_fed(kind: type) -> None:
    received = bytearray(GOOD * 2)
    found = PacketBuffer().feed(kind(received))
    received[:] = bytes(len(received))
    assert found == [GOOD, GOOD]
    assert [type(packet) for packet in found] == [bytes, bytes]


def head(size: int, *, internal: bool = False) -> bytes:
    """Return the first 16 bytes of a packet that claims to have this size."""
    packet = encode_packet(a_session_ack()) if internal else GOOD
    return packet[:8] + size.to_bytes(4, "little") + packet[12:16]


@pytest.mark.spec("[MS-MQMQ] 2.2.19.1")
@pytest.mark.parametrize(
    ("first_bytes", "field"),
    [
        (b"\x11" + GOOD[1:16], "base.version_number"),
        (GOOD[:4] + b"ROIL" + GOOD[8:16], "base.signature"),
        (head(0), "base.packet_size"),
        (head(15), "base.packet_size"),
        (head(119), "base.packet_size"),
        (head(31, internal=True), "base.packet_size"),
        (head(0x00400001), "base.packet_size"),
        (head(0xFFFFFFFF), "base.packet_size"),
    ],
)
def test_the_first_16_bytes_are_judged_before_more_is_kept(first_bytes: bytes, field: str) -> None:
    buffer = PacketBuffer()
    assert buffer.feed(first_bytes[:15]) == []
    with pytest.raises(WireFormatError) as caught:
        buffer.feed(first_bytes[15:])
    assert caught.value.field == field
    assert buffer.pending_bytes == 0


@pytest.mark.parametrize("size", [120, 0x00400000])
def test_a_size_within_limits_is_waited_for(size: int) -> None:
    buffer = PacketBuffer()
    assert buffer.feed(head(size)) == []
    assert buffer.pending_bytes == 16


def test_nothing_is_allocated_for_what_a_peer_only_announces() -> None:
    buffer = PacketBuffer()
    buffer.feed(head(0x00400000) + b"x" * 100)
    assert sys.getsizeof(buffer._kept) < 1000


# What is welcome

ESTABLISH = encode_packet(an_establish_connection())
PARAMETERS = encode_packet(a_connection_parameters())
ACK = encode_packet(a_session_ack())
OF_EACH_KIND: dict[type[Packet], bytes] = {
    EstablishConnection: ESTABLISH,
    ConnectionParameters: PARAMETERS,
    SessionAck: ACK,
    UserMessage: GOOD,
}


@pytest.mark.spec("[MS-MQQB] 3.1.5.1.1")
@given(st.sets(st.sampled_from(list(OF_EACH_KIND))), st.sampled_from(list(OF_EACH_KIND)))
def test_a_packet_that_is_not_welcome_is_refused_on_its_first_16_bytes(
    kinds: set[type[Packet]], kind: type[Packet]
) -> None:
    buffer, packet = PacketBuffer(), OF_EACH_KIND[kind]
    welcome = Welcome.of(*kinds)
    assert buffer.feed(packet[:15], welcome) == []
    if kind in kinds:
        assert buffer.feed(packet[15:], welcome) == [packet]
        return
    with pytest.raises(UnwelcomeError) as caught:
        buffer.feed(packet[15:16], welcome)
    assert caught.value.kind is kind
    assert kind.__name__ in str(caught.value)
    assert buffer.pending_bytes == 0
    assert buffer.fault is caught.value


@pytest.mark.parametrize("kinds", [list(OF_EACH_KIND), [SessionAck, UserMessage], []])
@pytest.mark.parametrize("size", [33, 571, 573, 4_096, 0x00400000])
def test_an_internal_packet_of_a_size_that_none_has_is_refused_whatever_is_welcome(
    kinds: list[type[Packet]], size: int
) -> None:
    with pytest.raises(WireFormatError, match=r"packet_size at byte 8 is .* one of 32, 36, 572") as caught:
        PacketBuffer().feed(head(size, internal=True), Welcome.of(*kinds))
    assert not isinstance(caught.value, UnwelcomeError)


@pytest.mark.parametrize("first_bytes", [b"GET / HTTP/1.1\r\n", head(0x00400001), head(119)])
def test_what_begins_no_packet_is_said_in_its_own_words_where_nothing_is_welcome(first_bytes: bytes) -> None:
    with pytest.raises(WireFormatError) as caught:
        PacketBuffer().feed(first_bytes, Welcome.of())
    assert not isinstance(caught.value, UnwelcomeError)


@given(chunked(ESTABLISH + PARAMETERS + GOOD * 2 + ACK))
def test_what_is_welcome_may_change_between_two_packets_of_one_chunk(chunks: list[bytes]) -> None:
    """Each packet of the handshake is handed out alone; the bytes after it wait for the next call."""
    buffer = PacketBuffer()
    handshake = [Welcome.of(EstablishConnection), Welcome.of(ConnectionParameters)]
    found: list[bytes] = []
    for chunk in chunks:
        packets = buffer.feed(chunk, (handshake or [Welcome.of(UserMessage, SessionAck)])[0])
        while handshake and packets:
            assert len(packets) == 1
            found += packets
            del handshake[0]
            packets = buffer.feed(b"", (handshake or [Welcome.of(UserMessage, SessionAck)])[0])
        found += packets
    assert found == [ESTABLISH, PARAMETERS, GOOD, GOOD, ACK]
    assert buffer.pending_bytes == 0


def test_what_stands_behind_a_packet_that_came_alone_is_pending_and_judged_by_the_next_word() -> None:
    buffer = PacketBuffer()
    assert buffer.feed(ESTABLISH + GOOD, Welcome.of(EstablishConnection)) == [ESTABLISH]
    assert (buffer.pending, buffer.pending_bytes, buffer.missing_bytes) == (GOOD, len(GOOD), 0)
    with pytest.raises(UnwelcomeError, match="UserMessage"):
        buffer.feed(b"", Welcome.of(ConnectionParameters))
    assert buffer.pending_bytes == 0


def test_packets_before_an_unwelcome_one_in_the_same_chunk_are_not_lost() -> None:
    buffer = PacketBuffer()
    assert buffer.feed(GOOD + ACK + GOOD + ESTABLISH, Welcome.of(UserMessage, SessionAck)) == [
        GOOD,
        ACK,
        GOOD,
    ]
    with pytest.raises(UnwelcomeError, match="EstablishConnection"):
        buffer.feed(b"", Welcome.of(UserMessage, SessionAck))


@given(
    st.sampled_from([EstablishConnection, ConnectionParameters, SessionAck]),
    st.binary(max_size=2_000),
    st.data(),
)
def test_no_more_than_one_packet_of_a_handshake_is_kept_whatever_comes(
    kind: type[Packet], noise: bytes, data: st.DataObject
) -> None:
    buffer, welcome = PacketBuffer(), Welcome.of(kind)
    try:
        for chunk in data.draw(chunked(data.draw(st.sampled_from([b"", ESTABLISH[:16], GOOD[:16]])) + noise)):
            if buffer.feed(chunk, welcome):
                return
            assert buffer.pending_bytes < len(OF_EACH_KIND[kind])
    except WireFormatError:
        assert buffer.pending_bytes == 0


@pytest.mark.parametrize("before", [b"", GOOD[:7], GOOD[:50]])
def test_packets_before_a_fault_are_not_lost(before: bytes) -> None:
    buffer = PacketBuffer()
    assert buffer.feed(before) == []
    assert buffer.feed(GOOD[len(before) :] + FRAME_8 + b"no packet at all") == [GOOD, FRAME_8]
    assert buffer.fault is not None
    assert buffer.fault.field == "base.version_number"
    with pytest.raises(WireFormatError):
        buffer.feed(GOOD)


def test_a_stream_that_lost_its_way_stays_closed() -> None:
    buffer = PacketBuffer()
    for _ in range(2):
        with pytest.raises(WireFormatError):
            buffer.feed(b"GET / HTTP/1.1\r\n")
    assert buffer.fault is not None


@given(st.binary(min_size=16, max_size=300), st.data())
def test_any_bytes_come_out_as_packets_or_are_refused(noise: bytes, data: st.DataObject) -> None:
    buffer = PacketBuffer()
    found = []
    try:
        for chunk in data.draw(chunked(GOOD + noise)):
            found += buffer.feed(chunk)
    except WireFormatError:
        assert buffer.fault is not None
    assert found[:1] == [GOOD]


@pytest.mark.parametrize("frame", SESSION_FRAMES)
def test_the_frames_of_the_specification_are_found(frame: bytes) -> None:
    assert PacketBuffer().feed(frame * 3) == [frame] * 3


def test_a_packet_with_a_wrong_field_is_whole_all_the_same() -> None:
    broken = poked(FRAME_5, "ack_timeout_ms", 1)
    assert PacketBuffer().feed(broken + GOOD) == [broken, GOOD]
    with pytest.raises(WireFormatError, match="ack_timeout_ms"):
        decode_packet(broken)


@given(user_messages(), st.lists(packets().map(encode_packet), max_size=3), st.data())
def test_of_what_is_dropped_zeros_are_handed_out_and_all_else_is_as_it_came(
    message: UserMessage, behind: list[bytes], data: st.DataObject
) -> None:
    packet = encode_packet(message)
    came = data.draw(st.integers(17, len(packet) - 1))
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(packet) + 9)] * 2)))
    is_dropped = 16 <= start < came and end <= len(packet)
    buffer = DroppingBuffer()
    assert buffer.feed(packet[:came]) == []
    for _ in range(2):  # Once is enough.
        buffer.drop(start, end)
    assert (buffer.pending_bytes, buffer.missing_bytes) == (came, len(packet) - came)
    chunks = data.draw(chunked(packet[came:] + b"".join(behind)))
    found = []
    for chunk in chunks:
        found += buffer.feed(chunk)
        assert found or buffer.kept_bytes <= len(packet) - (end - start if is_dropped else 0)
    zeros = packet[:start] + bytes(end - start) + packet[end:]
    assert found == [zeros if is_dropped else packet, *behind]
    assert (buffer.pending_bytes, buffer.is_hollow) == (0, False)

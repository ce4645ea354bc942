"""Reassembly: blind to order and repetition, exact about what is missing."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captures import streams as streams_module
from captures.conversation import Side, TcpConversation
from captures.pcap import CaptureError, Frame, PcapngWriter
from captures.streams import Chunk, Ending, Stream, packets, reassemble, streams, timed_packets
from captures.tcp import ACK, PSH, SYN, Endpoint, Segment, encode_frame
from mqproto.errors import WireFormatError

CLIENT = Endpoint("127.0.0.1", 40_001)
SERVER = Endpoint("127.0.0.2", 1801)


def in_time(*moments: list[bytes]) -> list[Frame]:
    """One moment a microsecond, from 1 µs on."""
    return [Frame(number * 1000, frame) for number, frames in enumerate(moments, 1) for frame in frames]


def segment_frame(position: int, payload: bytes, time_ns: int = 0, flags: int = ACK | PSH) -> Frame:
    """A segment of the client by itself, `position` bytes into its stream."""
    return Frame(
        time_ns,
        encode_frame(Segment(CLIENT, SERVER, 1 + position, 1, flags, 0xFFFF, b"", payload), 0),
    )


SYN_FRAME = segment_frame(-1, b"", flags=SYN)


def client_stream(*frames: Frame) -> Stream:
    return reassemble([SYN_FRAME, *frames])[0]


@st.composite
def retold(draw: st.DrawFn) -> tuple[bytes, list[Frame]]:
    """Some bytes, and frames that tell all of them at least once, in any order, cut in any way."""
    data = draw(st.binary(min_size=1, max_size=60))
    cuts = sorted(draw(st.sets(st.integers(1, len(data)))) | {0, len(data)})
    pieces = list(itertools.pairwise(cuts))
    repeated = draw(
        st.lists(st.tuples(st.integers(0, len(data)), st.integers(0, len(data))), max_size=6).map(
            lambda pairs: [(min(pair), max(pair)) for pair in pairs]
        )
    )
    order = draw(st.permutations(pieces + repeated))
    return data, [segment_frame(start, data[start:end], time) for time, (start, end) in enumerate(order)]


@given(retold())
def test_the_bytes_come_in_order_however_the_segments_came(story: tuple[bytes, list[Frame]]) -> None:
    data, frames = story
    stream = client_stream(*frames)
    assert stream.data == data
    assert (stream.gap_count, stream.missing_bytes) == (0, 0)
    times = [chunk.time_ns for chunk in stream.chunks]
    assert times == sorted(times)


@given(st.lists(st.binary(min_size=1, max_size=10), min_size=3, max_size=10), st.data())
def test_a_lost_segment_is_a_gap_of_its_size(pieces: list[bytes], data: st.DataObject) -> None:
    lost = data.draw(st.integers(0, len(pieces) - 2))
    starts = [sum(map(len, pieces[:number])) for number in range(len(pieces))]
    frames = [segment_frame(start, piece) for start, piece in zip(starts, pieces, strict=True)]
    stream = client_stream(*frames[:lost], *frames[lost + 1 :])
    assert stream.data == b"".join(pieces[:lost] + pieces[lost + 1 :])
    assert (stream.gap_count, stream.missing_bytes) == (1, len(pieces[lost]))
    gaps = [chunk.missing_bytes for chunk in stream.chunks]
    assert gaps == [len(pieces[lost]) if number == lost else 0 for number in range(len(pieces) - 1)]


def test_repeated_and_overlapping_segments_are_counted() -> None:
    stream = client_stream(
        segment_frame(0, b"abc"), segment_frame(0, b"abc"), segment_frame(1, b"bcde"), segment_frame(5, b"f")
    )
    assert stream.data == b"abcdef"
    assert stream.retransmission_count == 2


def test_early_bytes_can_be_read_when_those_before_them_have_come() -> None:
    stream = client_stream(segment_frame(3, b"def", 1_000), segment_frame(0, b"abc", 2_000))
    assert stream.chunks == [Chunk(2_000, b"abc"), Chunk(2_000, b"def")]


def test_bytes_before_the_end_that_never_came_are_missing() -> None:
    conversation = TcpConversation(CLIENT, SERVER)
    start, _, finish = (
        conversation.open(),
        conversation.send(Side.CLIENT, b"lost"),
        conversation.finish(Side.CLIENT),
    )
    stream = reassemble(in_time(start, finish))[0]
    assert (stream.data, stream.gap_count, stream.missing_bytes) == (b"", 1, 4)


def test_early_bytes_do_not_wait_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "EARLY_LIMIT_BYTES", 10)
    stream = client_stream(
        segment_frame(4, b"efghij", 1), segment_frame(10, b"klmno", 2), segment_frame(0, b"abcd", 3)
    )
    assert stream.chunks == [Chunk(1, b"efghij", 4), Chunk(2, b"klmno")]
    assert stream.retransmission_count == 1


def test_a_capture_that_begins_late_begins_with_what_it_has() -> None:
    stream, back = reassemble([segment_frame(1_000, b"late")])
    assert (stream.data, stream.from_start, stream.gap_count) == (b"late", False, 0)
    assert (back.source, back.destination, back.data) == (SERVER, CLIENT, b"")


def test_the_answer_to_a_syn_tells_who_opened_the_connection() -> None:
    _, answer, _ = TcpConversation(CLIENT, SERVER).open()
    assert [stream.source for stream in reassemble(in_time([answer]))] == [CLIENT, SERVER]


def test_a_repeated_syn_is_the_same_connection_and_a_new_number_another() -> None:
    first, second = TcpConversation(CLIENT, SERVER), TcpConversation(CLIENT, SERVER, client_sequence=99)
    syn, *rest = first.open()
    frames = in_time([syn, syn, *rest], first.send(Side.CLIENT, b"one"), first.reset(Side.SERVER))
    frames += in_time(second.open(), second.send(Side.CLIENT, b"two"), second.finish(Side.CLIENT))
    told = [(stream.connection, stream.source, stream.data, stream.ending) for stream in reassemble(frames)]
    assert told == [
        (0, CLIENT, b"one", Ending.OPEN),
        (0, SERVER, b"", Ending.RESET),
        (1, CLIENT, b"two", Ending.FINISHED),
        (1, SERVER, b"", Ending.OPEN),
    ]


def test_connections_between_other_ports_are_kept_apart() -> None:
    other = Endpoint("127.0.0.1", 40_002)
    talks = [TcpConversation(CLIENT, SERVER), TcpConversation(other, SERVER)]
    opening = [talk.open() for talk in talks]
    data = [talk.send(Side.CLIENT, text) for talk, text in zip(talks, (b"one", b"two"), strict=True)]
    told = [(str(stream), stream.data) for stream in reassemble(in_time(*opening, *data))]
    assert told == [
        ("127.0.0.1:40001 > 127.0.0.2:1801", b"one"),
        ("127.0.0.2:1801 > 127.0.0.1:40001", b""),
        ("127.0.0.1:40002 > 127.0.0.2:1801", b"two"),
        ("127.0.0.2:1801 > 127.0.0.1:40002", b""),
    ]


def test_frames_without_tcp_are_passed_over() -> None:
    arp = Frame(0, bytes(12) + b"\x08\x06" + bytes(46))
    assert [stream.data for stream in reassemble([arp, SYN_FRAME, arp, segment_frame(0, b"x")])] == [
        b"x",
        b"",
    ]


def user_message(size_bytes: int) -> bytes:
    """The BaseHeader of a UserMessage and zeros; all that framing looks at.  [MS-MQMQ] 2.2.19.1"""
    return (
        bytes.fromhex("1000 0000 4c494f52")
        + size_bytes.to_bytes(4, "little")
        + bytes(4)
        + bytes(size_bytes - 16)
    )


def test_packets_are_found_with_the_time_of_their_last_byte() -> None:
    data = user_message(200) + user_message(300)
    stream = client_stream(
        segment_frame(0, data[:150], 1),
        segment_frame(150, data[150:260], 2),
        segment_frame(260, data[260:], 3),
    )
    assert list(timed_packets(stream)) == [(2, user_message(200)), (3, user_message(300))]
    assert list(packets(stream)) == [user_message(200), user_message(300)]


def test_packets_end_at_a_gap_with_an_error_that_names_stream_and_byte() -> None:
    stream = client_stream(segment_frame(0, user_message(200)), segment_frame(240, user_message(200)))
    found = packets(stream)
    assert next(found) == user_message(200)
    with pytest.raises(
        CaptureError, match=r"127\.0\.0\.1:40001 > 127\.0\.0\.2:1801: byte 200: 40 bytes are not"
    ):
        next(found)


@pytest.mark.parametrize("with_next_segment", [False, True])
def test_something_else_behind_a_packet_is_an_error_after_the_packet(with_next_segment: bool) -> None:
    frames = [segment_frame(0, user_message(200) + b"GET / HTTP/1.1\r\n\r\n")]
    if with_next_segment:
        frames.append(segment_frame(218, b"more"))
    found = packets(client_stream(*frames))
    assert next(found) == user_message(200)
    with pytest.raises(WireFormatError):
        next(found)


def test_the_beginning_of_a_packet_at_the_end_is_left() -> None:
    stream = client_stream(segment_frame(0, user_message(200) + user_message(200)[:150]))
    assert list(packets(stream)) == [user_message(200)]


def test_streams_are_read_from_a_file(tmp_path: Path) -> None:
    conversation = TcpConversation(CLIENT, SERVER)
    path = tmp_path / "run.pcapng"
    with path.open("wb") as file, PcapngWriter(file) as writer:
        for frame in in_time(conversation.open(), conversation.send(Side.SERVER, b"hello")):
            writer.write(frame)
    client, server = streams(path)
    assert [client.source, client.chunks, server.source] == [CLIENT, [], SERVER]
    [(time_ns, data, missing_bytes, number, offset)] = server.chunks
    assert (time_ns, data, missing_bytes, number) == (2_000, b"hello", 0, 4)
    assert b"hello" in path.read_bytes()[offset : offset + 120]

"""Reassembly: order and repetition do not matter, and missing bytes are reported exactly."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.files.frame import Frame, Interface
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net import direction, streams as streams_module
from mqproto.captures.net.answers import segment_in
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.direction import Chunk, Ending
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.tcp import ACK, PSH, SYN, Endpoint, Segment, encode_frame
from tests.captures.frames import decode_frame
from tests.captures.whole import WholeStream, reassemble, streams

CLIENT = Endpoint("127.0.0.1", 40_001)
SERVER = Endpoint("127.0.0.2", 1801)


def in_time(*moments: list[bytes]) -> list[Frame]:
    """Return the frames with times: 1 µs for those of the first moment, and 1 µs more for each later moment."""
    return [Frame(number * 1000, frame) for number, frames in enumerate(moments, 1) for frame in frames]


def segment_frame(position: int, payload: bytes, time_ns: int = 0, flags: int = ACK | PSH) -> Frame:
    """Return a frame with a segment of the client that begins `position` bytes into its stream."""
    return Frame(
        time_ns,
        encode_frame(Segment(CLIENT, SERVER, 1 + position, 1, flags, 0xFFFF, b"", payload), 0),
    )


SYN_FRAME = segment_frame(-1, b"", flags=SYN)


def client_stream(*frames: Frame) -> WholeStream:
    return reassemble([SYN_FRAME, *frames])[0]


@st.composite
def retold(draw: st.DrawFn) -> tuple[bytes, list[Frame]]:
    """Draw bytes, and frames that carry each of them at least once, in any order and cut anywhere."""
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
    monkeypatch.setattr(direction, "EARLY_LIMIT_BYTES", 10)
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


def test_streams_are_read_from_a_file(tmp_path: Path) -> None:
    conversation = TcpConversation(CLIENT, SERVER)
    path = tmp_path / "run.pcapng"
    with path.open("wb") as file, PcapngWriter(file) as writer:
        for frame in in_time(conversation.open(), conversation.send(Side.SERVER, b"hello")):
            writer.write(frame)
    client, server = streams(path)
    assert [client.source, client.chunks, server.source] == [CLIENT, [], SERVER]
    [(time_ns, data, missing_bytes, number, offset, *_)] = server.chunks
    assert (time_ns, data, missing_bytes, number) == (2_000, b"hello", 0, 4)
    assert b"hello" in path.read_bytes()[offset : offset + 120]


def test_a_repetition_with_other_bytes_is_a_conflict_and_the_first_stands() -> None:
    stream = client_stream(
        segment_frame(0, b"abcdef"), segment_frame(2, b"cd"), segment_frame(2, b"xd"), segment_frame(5, b"fg")
    )
    assert (stream.data, stream.retransmission_count, stream.conflict_count) == (b"abcdefg", 3, 1)


def test_a_repetition_is_compared_across_the_chunks_that_it_repeats() -> None:
    stream = client_stream(segment_frame(0, b"abc"), segment_frame(3, b"def"), segment_frame(1, b"bcdxf"))
    assert (stream.data, stream.retransmission_count, stream.conflict_count) == (b"abcdef", 1, 1)


def test_a_keep_alive_is_no_repetition() -> None:
    stream = client_stream(segment_frame(0, b"abc"), segment_frame(2, b"\0"), segment_frame(3, b"d"))
    assert (stream.data, stream.keep_alive_count, stream.retransmission_count) == (b"abcd", 1, 0)


def test_bytes_that_the_receiver_has_acknowledged_are_waited_for_until_many_later_ones_have_come() -> None:
    reassembler = streams_module.Reassembler()
    acknowledgment = Segment(SERVER, CLIENT, 1, 11, ACK, 0xFFFF, b"", b"")

    def feed(frame: Frame) -> list[bytes]:
        segment = segment_in(frame, IpReader())
        assert segment is not None
        return [chunk.data for _, chunk in reassembler.feed(frame, segment) if chunk is not None]

    early = [segment_frame(5 + number, b"e") for number in range(direction.LATER_COUNT + 1)]
    assert [feed(frame) for frame in (SYN_FRAME, *early)] == [[]] * (len(early) + 1)
    assert feed(Frame(0, encode_frame(acknowledgment._replace(acknowledgment_number=5), 0))) == []
    assert feed(Frame(0, encode_frame(acknowledgment, 0))) == [b"e"] * len(early)


@pytest.mark.parametrize("limit", [1, 3])
def test_of_too_many_connections_the_one_that_was_silent_longest_is_given_up(limit: int) -> None:
    reassembler = streams_module.Reassembler(connection_limit=limit)
    ended = []
    for number in range(5):
        [syn, *_] = TcpConversation(Endpoint("127.0.0.1", 40_000 + number), SERVER).open()
        segment = decode_frame(syn)
        assert segment is not None
        ended += [stream.source.port for stream, _ in reassembler.feed(Frame(0, syn), segment)]
    assert ended[::2] == [40_000 + number for number in range(5 - limit)]
    assert reassembler.given_up_count == 5 - limit
    assert len(reassembler.finish()) == 2 * limit


def test_what_all_connections_hold_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "HELD_LIMIT_BYTES", 50_000)
    reassembler = streams_module.Reassembler()
    read_bytes = 0
    for number in range(200):
        ports = (Endpoint("127.0.0.1", 40_000 + number), SERVER)
        for position in (0, 1_000, 3_000):
            segment = Segment(*ports, position, 1, ACK, 0xFFFF, b"", bytes(1_000))
            arrivals = reassembler.feed(Frame(0, b""), segment)
            read_bytes += sum(len(chunk.data) for _, chunk in arrivals if chunk is not None)
        assert reassembler._held.total_bytes <= 50_000
    read_bytes += sum(len(chunk.data) for _, chunk in reassembler.finish() if chunk is not None)
    assert read_bytes == 200 * 3_000
    assert reassembler._held.total_bytes == 0


def test_a_jump_beyond_any_window_begins_another_connection() -> None:
    far = Frame(0, encode_frame(Segment(CLIENT, SERVER, 1 << 30, 1, ACK, 0xFFFF, b"", b"far"), 0))
    found = reassemble([SYN_FRAME, segment_frame(0, b"near"), far])
    assert [(stream.connection, stream.data) for stream in found] == [
        (0, b"near"),
        (0, b""),
        (1, b"far"),
        (1, b""),
    ]


def test_what_two_interfaces_saw_is_counted_at_each() -> None:
    places = [Interface(number, name=name) for number, name in enumerate(("here", "there"))]
    frames = [
        frame._replace(interface=place) for frame in (SYN_FRAME, segment_frame(0, b"abc")) for place in places
    ]
    found = reassemble(frames)
    assert [(stream.interface.name, stream.connection, stream.data) for stream in found] == [
        ("here", 0, b"abc"),
        ("here", 0, b""),
        ("there", 0, b"abc"),
        ("there", 0, b""),
    ]
    assert [stream.retransmission_count for stream in found] == [0] * 4


def test_a_syn_or_the_answer_to_it_tells_who_opened_a_connection_and_nothing_else_does() -> None:
    first, answer, third = in_time(*([frame] for frame in TcpConversation(CLIENT, SERVER).open()))
    for frames in ([first, answer], [answer, third]):
        found = [(each.source, each.opened) for each in reassemble(frames)]
        assert found == [(CLIENT, True), (SERVER, False)]
    assert [each.opened for each in reassemble([third])] == [None, None]


@given(st.integers(0, 2**32 - 1), st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=9))
def test_sequence_numbers_wrap(initial: int, pieces: list[bytes]) -> None:
    talk = TcpConversation(CLIENT, SERVER, client_sequence=initial)
    frames = in_time(talk.open(), *(talk.send(Side.CLIENT, piece) for piece in pieces))
    assert reassemble(frames)[0].data == b"".join(pieces)

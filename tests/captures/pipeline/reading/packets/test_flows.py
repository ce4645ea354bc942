"""However a capture is cut, its connections give the same result as one reader of the whole capture."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.captures import spoil
from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.net import causality, direction, recent
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.tcp import ACK, Endpoint, Segment, encode_frame
from mqproto.captures.pipeline.reading.packets import cutting, reassembly
from mqproto.wire import NULL_GUID, encode_packet, establish_connection
from tests.captures.pipeline.split import assert_same, numbered
from tests.captures.pipeline.worlds import (
    CLIENT,
    ELSEWHERE,
    PACKETS,
    SERVER,
    SMALL,
    conversations,
    user_message,
    worlds,
)

SAMPLES = sorted((Path(spoil.__file__).parents[1] / "samples").glob("*.pcapng"))


@contextmanager
def small_limits() -> Iterator[None]:
    """Make all limits so low that a few packets exceed them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direction, "EARLY_LIMIT_BYTES", 400)
        patch.setattr(direction, "LATER_COUNT", 1)
        patch.setattr(direction, "OPENING_LIMIT_BYTES", 40)
        patch.setattr(causality, "PATIENCE_COUNT", 2)
        patch.setattr(causality, "WAITING_LIMIT_BYTES", 500)
        patch.setattr(causality, "WAITING_LIMIT_COUNT", 2)
        patch.setattr(recent, "COMPARED_BYTES", 200)
        patch.setattr(direction, "PIECE_LIMIT_COUNT", 4)
        patch.setattr(cutting, "WINDOW_BYTES", 300)
        patch.setattr(reassembly, "RUN_COUNT", 2)
        yield


def said(*pieces: bytes, server: Endpoint = SERVER, begun: bool = True) -> list[Frame]:
    """Return a connection on which the client sends these pieces, one per segment.

    If `begun` is true, it begins with a handshake.
    """
    talk = TcpConversation(CLIENT, server)
    opening = talk.open()[:2]
    frames = [frame for piece in pieces for frame in talk.send(Side.CLIENT, piece)[:1]]
    return numbered(Frame(1_000 * time, frame) for time, frame in enumerate(opening * begun + frames, 1))


def cut_up(data: bytes, segment_bytes: int) -> list[bytes]:
    return [data[start : start + segment_bytes] for start in range(0, len(data), segment_bytes)]


def cuts_of(frames: list[Frame]) -> st.SearchStrategy[set[int]]:
    """Draw the places at which a capture is cut: either a few places, or the place before each frame."""
    return st.one_of(st.sets(st.integers(0, len(frames)), max_size=5), st.just(set(range(len(frames)))))


@pytest.mark.long
@given(worlds(), st.data())
def test_however_a_capture_is_cut_it_says_the_same(frames: list[Frame], data: st.DataObject) -> None:
    odd = data.draw(st.sets(st.integers(0, len(frames)), max_size=5))
    assert_same(frames, data.draw(cuts_of(frames)), odd)


@pytest.mark.parametrize(
    ("end", "further"), [(None, -900_000), *itertools.product(Side, (-900_000, -50, 900_000)), ("both", -50)]
)
def test_ports_that_are_used_again_carry_another_connection_though_its_handshake_is_lost(
    end: Side | str | None, further: int
) -> None:
    first = TcpConversation(CLIENT, SERVER, client_sequence=1 << 20, server_sequence=1 << 20)
    sides = (Side.CLIENT, Side.SERVER) * 40
    frames = [*first.open(), *(frame for side in sides for frame in first.send(side, b"one"))]
    if isinstance(end, Side):
        frames += first.reset(end)
    elif end:
        frames += [*first.finish(Side.CLIENT), *first.finish(Side.SERVER)]
    sequence = (1 << 20) + 120 + further
    second = TcpConversation(CLIENT, SERVER, client_sequence=sequence, server_sequence=sequence)
    second.open()
    frames += [frame for side in sides for frame in second.send(side, b"two")]
    result = assert_same(numbered(Frame(time, frame) for time, frame in enumerate(frames, 1)), [20, 100])
    streams = [(seen.stream.data_bytes, seen.stream.missing_bytes) for seen in result.closed]
    assert streams == [(120, 0)] * 4
    assert not any(seen.stream.retransmission_count for seen in result.closed)


@pytest.mark.parametrize(("further", "bare"), [(-700, False), (-700, True), (900_000, False)])
def test_a_session_begins_on_another_connection_though_its_handshake_is_lost_and_no_end_was_seen(
    further: int, bare: bool
) -> None:
    ask = encode_packet(establish_connection(client=NULL_GUID, server=NULL_GUID, time_stamp_ms=0))
    frames: list[bytes] = []
    for start in (1 << 20, (1 << 20) + 2 * 572 + further):
        talk = TcpConversation(CLIENT, SERVER, client_sequence=start, server_sequence=start)
        frames += talk.open()[2 * bool(frames) + (bool(frames) and not bare) :]
        frames += [frame for side in Side for frame in talk.send(side, ask)]
        frames += [frame for side in [*Side] * 40 for frame in talk.send(side, SMALL)]
    result = assert_same(numbered(Frame(time, frame) for time, frame in enumerate(frames, 1)), [20, 100])
    streams = [(seen.stream.data_bytes, seen.stream.missing_bytes) for seen in result.closed]
    assert streams == [(572 + 40 * len(SMALL), 0)] * 4


@pytest.mark.parametrize("stray", [False, True])
def test_connections_that_share_their_ends_are_told_apart_by_their_numbers(stray: bool) -> None:
    """Two VLANs may use the same addresses, and anybody may send a SYN that nobody answers."""
    talks = [
        TcpConversation(CLIENT, SERVER, client_sequence=start, server_sequence=start)
        for start in (9, 5_000_000)
    ]
    lines = [
        [
            *talk.open(),
            *(frame for side in [*Side] * 40 for frame in talk.send(side, b"some")),
            *talk.finish(Side.CLIENT),
        ]
        for talk in talks
    ]
    if stray:
        lines[1] = lines[1][:1]
    mixed = [frame for both in itertools.zip_longest(*lines) for frame in both if frame is not None]
    tagged = [
        frame[:12] + bytes.fromhex("81000005") + frame[12:] if frame in lines[1] else frame for frame in mixed
    ]
    result = assert_same(numbered(Frame(time, frame) for time, frame in enumerate(tagged, 1)), [20, 100])
    streams = [
        (seen.stream.data_bytes, seen.stream.missing_bytes, seen.stream.retransmission_count)
        for seen in result.closed
    ]
    assert sorted(streams) == [(0 if stray else 160, 0, 0)] * 2 + [(160, 0, 0)] * 2


def test_a_syn_begins_another_connection_though_the_byte_behind_it_is_due() -> None:
    """A SYN begins another connection, even if the sequence number after it is expected next.

    A bare segment before the handshake has already begun a connection. That segment has the expected number.
    """
    talk = TcpConversation(CLIENT, SERVER)
    opening, (said_first, acknowledgment) = talk.open(), talk.send(Side.CLIENT, SMALL)
    line = [acknowledgment, *opening, said_first, *talk.send(Side.CLIENT, SMALL)]
    frames = numbered(Frame(1_000 * time, frame) for time, frame in enumerate(line, 1))
    for cut in range(1, len(frames)):
        assert_same(frames, {cut})


def test_what_is_said_before_a_packet_tells_of_a_loss_is_ahead_though_a_later_one_proves_that_it_is_a_packet() -> (
    None
):
    """Data sent before a packet revealed a loss is ahead, even if the packet is recognized only later.

    The packet comes after bytes that are not a packet. The header after the packet, which proves that it is a packet,
    comes in two pieces.
    """
    talk = TcpConversation(CLIENT, SERVER)
    talk.open()
    proof = [(Side.CLIENT, SMALL[:1]), (Side.CLIENT, SMALL[1:])]
    said = [(Side.CLIENT, b"GET / HTTP/1.1\r\n\r\n" + SMALL), (Side.SERVER, SMALL), *proof]
    line = [frame for side, data in said for frame in talk.send(side, data)[:1]]
    result = assert_same(numbered(Frame(1_000 * time, frame) for time, frame in enumerate(line, 1)))
    assert [packet["ahead"] for packet in result.packets] == [True, False, False]


def test_what_is_acknowledged_may_be_half_of_all_numbers_away() -> None:
    """An acknowledgment number may be half of the number space away.

    That distance is counted from the other side's numbers or, if none has been seen, from an earlier acknowledgment.
    """
    far = 2**31
    one = [(CLIENT, 1, 1, SMALL), (SERVER, far + 1, 1, SMALL[:1]), (SERVER, far + 2, 1, SMALL[1:])]
    other = [(CLIENT, 1, far + 1, b""), (CLIENT, 1, 1, SMALL), (CLIENT, 33, far + 33, SMALL)]
    for line in (one, other):
        for cuts in ({0}, {1}, {2}, {1, 2}):
            assert_same(exchanged(line), cuts)


def test_what_a_later_range_proves_to_be_a_packet_is_ahead_as_well() -> None:
    """A packet is ahead even if only a later range proves that it is a packet.

    Before the proof, the other side sent something that the capture has only in part.
    """
    said = [(CLIENT, 2, 1, SMALL[1:] + SMALL), (SERVER, 2, 65, SMALL[1:]), (CLIENT, 65, 33, SMALL)]
    for cuts in ({1}, {2}, {1, 2}):
        assert_same(exchanged(said), cuts)


def test_what_overtook_others_may_have_other_addresses_because_of_a_translation() -> None:
    """The end of a packet comes first, with translated addresses.

    The whole packet follows, captured before address translation.
    """
    packet, behind = user_message(200), Endpoint("10.9.9.9", 40_002)
    segments = [(1, behind, 120), (2, CLIENT, 0), (3, CLIENT, 120)]
    frames = numbered(
        Frame(time, encode_frame(Segment(SERVER, end, at, 1, ACK, 0, b"", packet[at : at + 120]), 0))
        for time, end, at in segments
    )
    assert [found["data"] for found in assert_same(frames).packets] == [packet]


def exchanged(line: Iterable[tuple[Endpoint, int, int, bytes]]) -> list[Frame]:
    """Return segments between two ends.

    Each is given by its sender, its number, its acknowledgment number, and its bytes.
    """
    to = {CLIENT: SERVER, SERVER: CLIENT}
    return numbered(
        Frame(0, encode_frame(Segment(source, to[source], number, known, ACK, 0, b"", data), 0))
        for source, number, known, data in line
    )


@pytest.mark.long
@given(worlds(), st.data())
def test_so_it_does_where_limits_are_exceeded(frames: list[Frame], data: st.DataObject) -> None:
    with small_limits():
        assert_same(frames, data.draw(cuts_of(frames)))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_say_the_same_and_so_they_do_when_they_are_spoilt(path: Path) -> None:
    whole = list(read_capture(path))
    assert_same(numbered(whole), range(0, len(whole), 40))
    spoilt = spoil.delayed(spoil.repeated(spoil.lost(whole, 2, seed=1), 5, seed=2), 10, seed=3)
    assert_same(numbered(spoilt), range(0, len(whole), 40))


@pytest.mark.long
@given(conversations(CLIENT, SERVER, begun=True, said=PACKETS), st.data())
def test_so_it_does_where_all_came_in_order(talk: list[bytes], data: st.DataObject) -> None:
    frames = numbered(Frame(0, frame) for frame in talk)
    assert_same(frames, data.draw(cuts_of(frames)))


def test_the_end_of_a_connection_may_be_cut_anywhere() -> None:
    talk = TcpConversation(CLIENT, SERVER)
    talked = [
        *talk.open(),
        *talk.send(Side.CLIENT, user_message(200)),
        *talk.send(Side.SERVER, user_message(160)),
    ]
    frames = numbered(
        Frame(0, frame) for frame in [*talked, *talk.finish(Side.CLIENT), *talk.finish(Side.SERVER)]
    )
    assert_same(frames, range(len(frames)))


def test_a_range_finds_the_packets_that_no_segment_begins_with() -> None:
    stream = b"".join(user_message(500 + number % 7) for number in range(600))
    frames = said(*cut_up(stream, 1_460))
    assert_same(frames, [len(frames) // 2])


def test_a_range_finds_packets_larger_than_what_is_cut_at_a_time() -> None:
    stream = b"".join(user_message(200_000 + 4 * number) for number in range(8))
    frames = said(*cut_up(stream, 1_460))
    assert_same(frames, [len(frames) // 2])


def test_a_range_may_begin_with_half_a_head() -> None:
    stream = b"".join(user_message(500 + number % 7) for number in range(600))
    frames = said(stream[:500], stream[500:502], *cut_up(stream[502:], 1_460))
    assert_same(frames, [3])


@pytest.mark.long
def test_what_begins_inside_a_segment_and_is_proved_in_another_range_is_found() -> None:
    for seed in range(40):
        dice = random.Random(seed)
        packets = [user_message(4 * dice.randrange(30, 200)) for _ in range(12)]
        borders = list(itertools.accumulate(map(len, packets)))
        cuts = {
            *dice.sample(range(1, borders[-1]), 20),
            *dice.sample(borders, dice.randrange(6)),
            borders[-1],
        }
        stream = b"".join(packets)
        pieces = [stream[start:end] for start, end in itertools.pairwise([0, *sorted(cuts)])]
        frames = numbered(frame for frame in said(*pieces) if dice.randrange(6))
        if seed % 2:
            frames = [frame if dice.randrange(4) else next(spoil.shortened([frame], 60)) for frame in frames]
        assert_same(frames, range(0, len(frames), dice.choice((1, 2, 5))))
        with small_limits():
            assert_same(frames, range(0, len(frames), dice.choice((1, 2, 3))))


@pytest.mark.long
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_side_that_begins_where_a_range_ends_may_have_overtaken_what_the_next_has(path: Path) -> None:
    frames = list(read_capture(path))
    for seed in range(8):
        worse = numbered(spoil.shuffled(frames[seed:], 24, seed))
        assert_same(worse, range(0, len(worse), 3 + 5 * seed))


def test_a_packet_larger_than_a_range_is_joined() -> None:
    stream = user_message(200) + user_message(300_000) + user_message(200)
    frames = said(*cut_up(stream, 10_000))
    assert_same(frames, range(0, len(frames), 3))


def test_other_traffic_is_passed_over_range_by_range() -> None:
    frames = said(*cut_up(b"GET / HTTP/1.1\r\n\r\n" * 10_000, 1_460), server=ELSEWHERE)
    result = assert_same(frames, range(0, len(frames), 50))
    assert result.packets == []


def test_a_packet_at_the_seam_that_only_looked_like_one_is_found_out() -> None:
    looks = user_message(400, filler=user_message(120))
    frames = said(looks[:136], looks[136:256], looks[256:], user_message(200))
    result = assert_same(frames, [3])
    assert len(result.packets) == 2


def test_bytes_of_the_range_before_are_compared_with_what_repeats_them() -> None:
    *opening, first, second, third = said(user_message(200), user_message(200), user_message(200))
    other = spoil.summed(first._replace(data=first.data[:-1] + b"?"))
    frames = numbered([*opening, first, second, third, other])
    result = assert_same(frames, [3, 4, 5])
    assert [seen.stream.conflict_count for seen in result.closed] == [1, 0]


def test_a_repetition_that_a_range_has_in_its_midst_reaches_back_too() -> None:
    *opening, first, second, third = said(user_message(200), user_message(200), user_message(200))
    other = spoil.summed(first._replace(data=first.data[:-1] + b"?"))
    result = assert_same(numbered([*opening, first, second, other, third]), [3])
    assert [seen.stream.conflict_count for seen in result.closed] == [1, 0]


def test_a_way_that_is_lost_behind_the_beginning_of_a_packet_counts_as_resumed_whatever_came_before() -> None:
    frames = said(user_message(200), user_message(200)[:150], bytes(200), user_message(200))
    last = frames[-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direction, "PIECE_LIMIT_COUNT", 0)
        result = assert_same(numbered([*frames[:-2], last]), [3])
    assert [(seen.resumed_count, seen.cut_count) for seen in result.closed] == [(1, 1), (0, 0)]


def test_a_hole_that_begins_where_a_range_ends_belongs_to_the_packet_before_it() -> None:
    frames = said(user_message(200)[:100], bytes(100), user_message(300))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direction, "PIECE_LIMIT_COUNT", 0)
        result = assert_same(numbered([*frames[:3], frames[4]]), [3])
    assert [(packet["cut_bytes"], packet["missing_bytes"]) for packet in result.packets] == [(100, 0), (0, 0)]


def test_what_is_missing_where_a_range_begins_is_missing_before_its_first_packet() -> None:
    opening, (_, *rest) = said()[:2], said(bytes(100), user_message(200), user_message(160))[2:]
    bare = TcpConversation(CLIENT, SERVER).open()[2]
    frames = numbered([*opening, Frame(0, bare), *rest])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direction, "PIECE_LIMIT_COUNT", 0)
        result = assert_same(frames, [2])
    assert [packet["missing_bytes"] for packet in result.packets] == [100, 0]


def test_what_was_skipped_and_missing_before_a_packet_is_told_with_it_however_many_ranges_it_takes() -> None:
    packet = user_message(200)
    said_frames = said(bytes(50), bytes(40), bytes(10), packet[:90], packet[90:], begun=False)
    frames = numbered([said_frames[0], *said_frames[2:]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direction, "PIECE_LIMIT_COUNT", 0)
        patch.setattr(reassembly, "AHEAD_COUNT", 0)
        result = assert_same(frames, [2, 3])
    assert [(found["missing_bytes"], found["skipped_bytes"]) for found in result.packets] == [(40, 60)]

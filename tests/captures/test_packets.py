"""Packets in a capture: each whole one is found in its place, and nothing is silently passed over."""

from __future__ import annotations

import bisect
import io
import itertools
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.files.frame import CaptureError, Frame, Interface
from mqproto.captures.files.pcap import PcapWriter, read_capture, read_frames
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.ip import DONT_FRAGMENT
from mqproto.captures.net.tcp import ACK, Endpoint, Segment, encode_frame
from mqproto.captures.packets import UDP, PacketReader, SeenPacket, Totals, read_packets
from mqproto.captures.spoil import shortened, shuffled
from mqproto.testing import packets as packets_of_any_kind
from mqproto.wire import Ping, UserMessage, encode_packet, ping_packet
from tests.bench.bulk import write_capture
from tests.captures.pipeline.samples import FRAMES

CLIENT = Endpoint("127.0.0.1", 40_001)
SERVER = Endpoint("127.0.0.2", 1801)
ELSEWHERE = Endpoint("127.0.0.2", 8080)


def user_message(size_bytes: int) -> bytes:
    """Return a header and zeros that suffice for framing, but are otherwise malformed."""
    head = bytes.fromhex("1000 0000 4c494f52") + size_bytes.to_bytes(4, "little") + bytes(4)
    return head + bytes(size_bytes - 16)


def said(*pieces: bytes, server: Endpoint = SERVER, begun: bool = True) -> list[Frame]:
    """Return the frames of a connection on which the client sends these pieces, one per segment; frames are numbered
    from 1.
    """
    talk = TcpConversation(CLIENT, server)
    opening = talk.open()
    frames = [frame for piece in pieces for frame in talk.send(Side.CLIENT, piece)[:1]]
    told = [*opening, *frames] if begun else frames
    return [Frame(number * 1_000, frame, number=number) for number, frame in enumerate(told, 1)]


def read(frames: Iterable[Frame]) -> tuple[list[SeenPacket], PacketReader]:
    reader = PacketReader(frames)
    found = list(reader)
    balanced(reader)
    return found, reader


def balanced(reader: PacketReader) -> None:
    """Check that every frame and every byte is accounted for."""
    totals = reader.totals
    assert totals.frames == totals.segment_frames + totals.ping_frames + sum(totals.other_frames.values())
    assert totals.unexplained_bytes == 0


@given(st.lists(packets_of_any_kind(), min_size=1, max_size=4), st.data())
def test_every_packet_is_found_where_it_stands(some: list[UserMessage], data: st.DataObject) -> None:
    encoded = [encode_packet(packet) for packet in some]
    stream = b"".join(encoded)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=6)))
    pieces = [stream[start:end] for start, end in itertools.pairwise([0, *cuts, len(stream)])]
    found, reader = read(said(*pieces))
    assert [one.data for one in found] == encoded
    assert [one.packet for one in found] == some
    assert [one.number for one in found] == list(range(1, len(some) + 1))
    starts = list(itertools.accumulate(map(len, encoded), initial=0))
    assert [one.position for one in found] == starts[:-1]
    edges = [0, *cuts]
    for one, start, end in zip(found, starts, starts[1:], strict=False):
        assert one.first_frame == 3 + sum(edge <= start for edge in edges)
        assert one.frame == 3 + sum(edge < end for edge in edges)
        assert (one.began_ns, one.time_ns) == (1_000 * one.first_frame, 1_000 * one.frame)
    assert reader.totals.packet_bytes == reader.totals.stream_bytes == len(stream)


def test_a_packet_points_at_the_record_of_the_frame_that_began_it() -> None:
    file = io.BytesIO()
    writer = PcapWriter(file)
    for frame in said(user_message(200)[:90], user_message(200)[90:] + user_message(300)):
        writer.write(frame)
    first, second = PacketReader(read_frames(io.BytesIO(file.getvalue())))
    for packet, start in ((first, first.data[:90]), (second, second.data)):
        record = file.getvalue()[packet.file_offset :]
        (size_bytes,) = struct.unpack_from("<I", record, 8)
        assert start in record[16 : 16 + size_bytes]


def test_packets_are_found_on_any_port() -> None:
    found, reader = read(said(user_message(200), server=ELSEWHERE))
    assert [len(one.data) for one in found] == [200]
    assert reader.totals.other_bytes == 0


@pytest.mark.parametrize(
    "pieces", [(b"GET / HTTP/1.1\r\n\r\n",), (b"G", b"ET / HTTP/1.1\r\n\r\n"), (b"short",)]
)
def test_other_traffic_is_counted_and_no_finding(pieces: tuple[bytes, ...]) -> None:
    found, reader = read(said(*pieces, server=ELSEWHERE))
    assert found == []
    assert reader.totals.other_bytes + reader.totals.cut_bytes == len(b"".join(pieces))


@pytest.mark.parametrize("pieces", [(b"GET / HTTP/1.1\r\n\r\n",), (b"GET /", b" HTTP/1.1\r\n\r\n")])
def test_what_is_no_packet_on_the_port_of_msmq_is_shown_with_what_is_wrong(pieces: tuple[bytes, ...]) -> None:
    [one], reader = read(said(*pieces))
    assert (one.framed, one.packet, one.data) == (False, None, b"GET / HTTP/1.1\r\n")
    assert one.fault is not None
    assert one.fault.field == "base.version_number"
    assert (reader.totals.packets, reader.totals.refused_bytes, reader.totals.headless_bytes) == (0, 18, 0)


def test_what_is_framed_and_malformed_is_shown_and_the_next_is_found() -> None:
    bad, good = read(said(user_message(200) + user_message(204)))[0]
    assert (bad.framed, bad.packet, good.position) == (True, None, 200)
    assert bad.fault is not None


def test_of_a_packet_with_a_hole_the_beginning_is_read_and_the_next_is_in_its_place() -> None:
    frames = said(user_message(200)[:100], bytes(50), bytes(50) + user_message(300), user_message(400))
    [first, second, third], reader = read(frames[:4] + frames[5:])
    assert (first.data, first.cut_bytes, first.snapped_bytes) == (user_message(200)[:100], 100, 0)
    assert (first.first_frame, first.frame, first.packet, first.fault) == (4, 6, None, None)
    assert (len(second.data), len(third.data)) == (300, 400)
    assert (second.missing_bytes, second.skipped_bytes, second.position) == (0, 0, 200)
    totals = reader.totals
    assert (totals.cut_packets, totals.cut_bytes, totals.missing_bytes, totals.gap_count) == (1, 150, 50, 1)


def test_of_a_packet_of_which_the_head_is_not_whole_nothing_is_read() -> None:
    frames = said(user_message(200)[:15], bytes(185), user_message(300))
    [second], _ = read(frames[:4] + frames[5:])
    assert (len(second.data), second.missing_bytes) == (300, 185)


def test_a_frame_that_is_cut_says_at_once_that_its_packet_is() -> None:
    """Nothing waits for bytes that are known to be missing: the packet that acknowledges them stays in its place."""
    talk = TcpConversation(CLIENT, SERVER)
    told = [*talk.open(), *talk.send(Side.CLIENT, user_message(200) + user_message(300))[:1]]
    told += talk.send(Side.SERVER, user_message(150))[:1]
    told += talk.send(Side.CLIENT, user_message(200))[:1]
    frames = [Frame(number * 1_000, frame, number=number) for number, frame in enumerate(told, 1)]
    found, reader = read(shortened(frames, 54 + 240))
    assert [(one.source, one.frame, len(one.data), one.cut_bytes, one.snapped_bytes) for one in found] == [
        (CLIENT, 4, 200, 0, 0),
        (CLIENT, 4, 40, 260, 260),
        (SERVER, 5, 150, 0, 0),
        (CLIENT, 6, 200, 0, 0),
    ]
    assert not any(one.ahead or one.missing_bytes for one in found)
    assert (reader.totals.snapped_bytes, reader.totals.missing_bytes, reader.totals.is_complete) == (
        260,
        260,
        True,
    )


def test_what_a_cut_frame_hides_beyond_its_packet_is_missing_before_the_next() -> None:
    frames = said(user_message(200) + user_message(300), user_message(400))
    [first, second], reader = read(shortened(frames, 54 + 120))
    assert (first.cut_bytes, first.snapped_bytes, second.missing_bytes, second.snapped_bytes) == (
        80,
        80,
        300,
        580,
    )
    assert (reader.totals.hidden_bytes, reader.totals.is_complete) == (300, False)


def test_a_packet_is_ahead_until_one_of_the_other_side_has_told_of_the_hole() -> None:
    """The bytes after the hole have arrived, but they belong to the packet that contains the hole."""
    talk = TcpConversation(CLIENT, SERVER)
    whole = user_message(300)
    told = [*talk.open(), *(talk.send(Side.SERVER, whole[at : at + 100])[0] for at in (0, 100, 200))]
    for side in (Side.CLIENT, Side.SERVER, Side.CLIENT):
        told += talk.send(side, user_message(200))[:1]
    frames = [Frame(number * 1_000, frame, number=number) for number, frame in enumerate(told, 1)]
    found, _ = read(frames[:3] + frames[4:])
    assert [(one.source, one.missing_bytes, one.ahead) for one in found] == [
        (CLIENT, 0, True),
        (SERVER, 100, False),
        (CLIENT, 0, False),
    ]
    found, _ = read(frames[:4] + frames[5:])
    assert [(one.source, one.cut_bytes, one.ahead) for one in found] == [
        (SERVER, 200, False),
        (CLIENT, 0, False),
        (SERVER, 0, False),
        (CLIENT, 0, False),
    ]


def test_a_hole_that_ends_with_its_packet_leaves_the_next_in_step() -> None:
    frames = said(user_message(200)[:100], bytes(100), user_message(300)[:10], user_message(300)[10:])
    [first, second], reader = read(frames[:4] + frames[5:])
    assert (len(first.data), first.cut_bytes, len(second.data), second.first_frame) == (100, 100, 300, 6)
    assert reader.totals.cut_bytes == 100


def test_behind_a_hole_that_swallows_a_head_reading_goes_on_where_a_segment_begins_with_one() -> None:
    frames = said(user_message(200), user_message(300)[:50], user_message(300)[50:], user_message(400))
    [first, last], reader = read(frames[:4] + frames[5:])
    assert (len(first.data), len(last.data)) == (200, 400)
    assert (last.missing_bytes, last.skipped_bytes) == (50, 250)
    assert (reader.totals.headless_bytes, reader.totals.resumed_count) == (250, 1)


def test_a_capture_that_begins_in_the_middle_of_a_packet_begins_with_the_next_segment_that_has_a_head() -> (
    None
):
    frames = said(user_message(400)[150:300], user_message(400)[300:], user_message(300), begun=False)
    [one], reader = read(frames)
    assert (len(one.data), one.skipped_bytes, reader.totals.headless_bytes) == (300, 250, 250)


def test_a_head_inside_a_segment_is_not_searched_for() -> None:
    found, reader = read(said(bytes(4) + user_message(200), begun=False))
    assert found == []
    assert reader.totals.headless_bytes == 204


def test_behind_a_lost_head_reading_goes_on_inside_a_segment_where_others_follow_to_its_end() -> None:
    joined = user_message(300)[200:] + user_message(200) + user_message(160) + user_message(400)[:150]
    frames = said(user_message(200), user_message(300)[:200], joined, user_message(400)[150:])
    found, reader = read(frames[:3] + frames[5:])
    assert [(len(one.data), one.position, one.skipped_bytes) for one in found] == [
        (200, 500, 100),
        (160, 700, 0),
        (400, 860, 0),
    ]
    assert (reader.totals.headless_bytes, reader.totals.cut_bytes) == (100, 0)


@pytest.mark.parametrize("cuts", [(), (150,), (150, 200), (150, 205), (30, 150, 210), (202, 214, 230, 450)])
def test_behind_a_lost_head_reading_goes_on_where_another_begins_beyond_the_segment(
    cuts: tuple[int, ...],
) -> None:
    rest = bytes(4) + user_message(200) + user_message(300) + user_message(400)
    ends = [20, *(4 + each for each in cuts), len(rest)]
    pieces = [rest[:20], *(rest[at:end] for at, end in itertools.pairwise(ends))]
    found, reader = read(said(*pieces, begun=False))
    assert [(len(one.data), one.position, one.skipped_bytes) for one in found] == [
        (200, 4, 4),
        (300, 204, 0),
        (400, 504, 0),
    ]
    begins = list(itertools.accumulate([0, *map(len, pieces)]))
    for one in found:
        frames = [bisect.bisect_right(begins, at) for at in (one.position, one.position + len(one.data) - 1)]
        assert (one.first_frame, one.frame) == tuple(frames)
        assert one.time_ns == one.frame * 1_000
    assert (reader.totals.headless_bytes, reader.totals.resumed_count) == (4, 1)


def test_a_head_that_no_other_follows_is_no_packet() -> None:
    pieces = (bytes(4) + user_message(200)[:100], user_message(200)[100:] + bytes(50), bytes(50))
    for rest in (pieces, pieces[:1], pieces[:2], (*pieces[:2], bytes(4) + user_message(60)[:30])):
        found, reader = read(said(*rest, begun=False))
        assert found == []
        assert reader.totals.headless_bytes == sum(map(len, rest))
    # Where a segment begins with one, that is believed.
    found, _ = read(said(pieces[0], user_message(300), user_message(200), begun=False))
    assert [len(one.data) for one in found] == [300, 200]
    frames = said(bytes(4) + user_message(200)[:100], user_message(200)[100:], user_message(300), begun=False)
    found, _ = read(shortened(frames, len(frames[0].data) - 1))
    assert [(one.frame, one.cut_bytes > 0) for one in found] == [(3, True)]


@pytest.mark.parametrize(
    "rest",
    [
        b"LIOR" * 40,
        user_message(200) + b"LIOR" * 40,
        user_message(200) + user_message(160) + b"no packet, and more of it",
        bytes(4) + user_message(1 << 20)[:60_000],
        user_message(16)[:16] * 100,
    ],
    ids=[
        "the signature alone",
        "one packet",
        "two and something else",
        "a large one",
        "heads that are too small",
    ],
)
def test_what_only_looks_like_packets_is_not_taken_for_any(rest: bytes) -> None:
    found, reader = read(said(bytes(4) + rest, begun=False))
    assert found == []
    assert reader.totals.headless_bytes == 4 + len(rest)


def test_a_packet_that_was_never_whole_is_counted() -> None:
    found, reader = read(said(user_message(200) + user_message(300)[:299]))
    assert [len(one.data) for one in found] == [200]
    assert reader.totals.cut_bytes == 299


@given(st.data())
def test_whatever_is_lost_repeated_or_reordered_no_packet_is_made_up(data: st.DataObject) -> None:
    sent = [user_message(data.draw(st.integers(150, 400))) for _ in range(data.draw(st.integers(1, 6)))]
    stream = b"".join(sent)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=12)))
    frames = said(*(stream[start:end] for start, end in itertools.pairwise([0, *cuts, len(stream)])))
    kept = data.draw(st.lists(st.sampled_from(frames), max_size=2 * len(frames)))
    snaplen = data.draw(st.integers(60, 600))
    found, reader = read(shortened(kept, snaplen))
    starts = dict(zip(itertools.accumulate(map(len, sent), initial=0), sent, strict=False))
    assert all(one.data in sent for one in found if one.framed and not one.cut_bytes)
    assert all(
        any(each.startswith(one.data) and len(each) == one.size_bytes for each in sent)
        for one in found
        if one.cut_bytes
    )
    if kept[:1] == frames[:1] and reader.totals.missing_bytes == 0:
        assert all(starts[one.position] == one.data for one in found)


@given(st.lists(st.binary(min_size=30, max_size=120), max_size=12))
def test_any_frames_are_accounted_for(frames: list[bytes]) -> None:
    read(Frame(0, bytes(12) + b"\x08\x00\x45" + frame) for frame in frames)
    read(Frame(0, frame, interface=Interface(link_type=0)) for frame in frames)


def udp(payload: bytes, source: Endpoint, destination: Endpoint) -> bytes:
    """Return a datagram in an Ethernet frame, made from the frame of a segment."""
    segment = Segment(source, destination, 0, 0, ACK, 0, b"", b"")
    frame = encode_frame(segment, 0)
    datagram = struct.pack("!HHHH", source.port, destination.port, 8 + len(payload), 0) + payload
    addresses = frame[26:34]
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(datagram), 0, DONT_FRAGMENT, 64, 17, 0)
    return frame[:14] + head + addresses + datagram


def test_pings_are_packets_and_other_datagrams_are_not() -> None:
    port = Endpoint("127.0.0.2", 3527)
    ping = Ping(cookie=7)
    frames = [
        Frame(5, udp(ping_packet.encode(ping), CLIENT, port), number=1),
        Frame(6, udp(b"no ping", port, CLIENT), number=2),
        Frame(7, udp(ping_packet.encode(ping), CLIENT, Endpoint("127.0.0.2", 53)), number=3),
    ]
    [asked, wrong], reader = read(frames)
    assert (asked.packet, asked.is_ping, asked.source, asked.destination) == (ping, True, CLIENT, port)
    assert (wrong.packet, wrong.fault is not None) == (None, True)
    assert reader.totals.ping_frames == 2
    assert dict(reader.totals.other_frames) == {UDP: 1}


def test_what_is_no_segment_is_counted_by_reason() -> None:
    arp = Frame(0, bytes(12) + b"\x08\x06" + bytes(46))
    icmp = bytearray(encode_frame(Segment(CLIENT, SERVER, 0, 0, ACK, 0, b"", b""), 0))
    icmp[23] = 1
    unknown = Frame(0, b"frame", interface=Interface(link_type=147))
    reader = read([arp, Frame(0, bytes(icmp)), unknown, arp])[1]
    assert dict(reader.totals.other_frames) == {
        "ARP": 2,
        "ICMP": 1,
        "of link type 147, which is not read": 1,
    }


def test_where_no_packet_begins_reading_goes_on_at_the_next_segment_with_a_head() -> None:
    first, bad, second = read(
        said(user_message(200) + b"no packet, and more of it", b"more", user_message(300))
    )[0]
    assert (len(first.data), bad.framed, len(second.data)) == (200, False, 300)
    assert second.skipped_bytes == 29


def test_damage_of_the_file_is_told_after_all_that_came_before_it() -> None:
    def damaged() -> Iterable[Frame]:
        yield from said(user_message(200), user_message(300)[:100])
        raise CaptureError("run.pcap", 700, "the file ends")

    reader = PacketReader(damaged())
    packets = iter(reader)
    assert len(next(packets).data) == 200
    with pytest.raises(CaptureError, match="byte 700"):
        next(packets)
    assert reader.totals.cut_bytes == 100
    balanced(reader)


def test_a_reader_may_be_left_early() -> None:
    packets = iter(PacketReader(said(user_message(200), user_message(300))))
    assert len(next(packets).data) == 200
    packets.close()  # type: ignore[attr-defined]


def test_packets_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.pcap"
    with path.open("wb") as file:
        writer = PcapWriter(file)
        for frame in said(user_message(200)):
            writer.write(frame)
    assert [len(one.data) for one in read_packets(path)] == [200]


@pytest.mark.parametrize("ahead", [0, 5])
def test_who_waits_for_each_frame_is_shown_what_it_holds_before_more_come(ahead: int) -> None:
    """A capture that is piped while it is made has no end."""
    come = 0

    def coming() -> Iterator[Frame]:
        nonlocal come
        for frame in said(*[user_message(200)] * 1_000):
            come += 1
            yield frame

    lags = [come - packet.frame for packet in PacketReader(coming(), ahead=ahead)]
    assert lags[800] == 2 * ahead, "at first it is looked what the interfaces are"


@pytest.mark.parametrize("name", [*FRAMES, "many connections"])
def test_frames_that_have_overtaken_others_cost_no_packet(name: str, tmp_path: Path) -> None:
    """This includes frames that come before the SYN, or before the first frames that their side sent."""
    if name in FRAMES:
        frames = FRAMES[name]
    else:
        write_capture(tmp_path / "many.pcapng", 300, connections=150)
        frames = list(read_capture(tmp_path / "many.pcapng"))
    whole = Counter((each.data, each.source) for each in PacketReader(frames))
    for places, seed in itertools.product((1, 8, 24), range(4)):
        worse = [frame._replace(number=n) for n, frame in enumerate(shuffled(frames, places, seed), 1)]
        assert Counter((each.data, each.source) for each in PacketReader(worse)) == whole


def test_what_was_sent_before_a_capture_began_and_again_in_it_is_no_loss() -> None:
    """Only bytes directly before those in the capture are assumed to have been overtaken."""
    first, _, third, fourth = said(*[user_message(200)] * 4, begun=False)
    reader = PacketReader([frame._replace(number=n) for n, frame in enumerate((third, first, fourth), 1)])
    assert (len(list(reader)), reader.totals.missing_bytes) == (2, 0)


@pytest.mark.parametrize("ended", [(10, 6), (6, 10)])
def test_contradictions_are_told_in_the_order_of_frames_whichever_stream_has_ended_first(
    ended: tuple[int, int],
) -> None:
    totals = Totals()
    for frame in ended:
        totals.add(Totals(conflicts=[("contradiction", f"a > b: frames {frame} and 12 have other bytes")]))
    assert [int(text.split()[4]) for _, text in totals.conflicts] == [6, 10]

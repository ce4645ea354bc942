"""Byte streams as TCP frames: they are read back by us and, if tshark is installed, by tshark."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.conversation import Segments, Side, TcpConversation
from mqproto.captures.net.direction import Ending
from mqproto.captures.net.tcp import ACK, FIN, MAX_SEGMENT_BYTES, PSH, RST, SYN, Endpoint, Segment
from tests.captures.frames import decode_frame
from tests.captures.whole import reassemble, streams

CLIENT = Endpoint("127.0.0.1", 40_001)
SERVER = Endpoint("127.0.0.2", 1801)

sides = st.sampled_from(Side)
sequences = st.one_of(st.integers(0, 2**32 - 1), st.integers(2**32 - 500, 2**32 - 1))
talks = st.lists(st.tuples(sides, st.binary(max_size=300)), max_size=12)


def decoded(frames: list[bytes]) -> list[Segment]:
    segments = [decode_frame(frame) for frame in frames]
    assert None not in segments
    return [segment for segment in segments if segment is not None]


def flags(frames: list[bytes]) -> list[tuple[Endpoint, int]]:
    return [(segment.source, segment.flags) for segment in decoded(frames)]


def said(talk: list[tuple[Side, bytes]], side: Side) -> bytes:
    return b"".join(data for speaker, data in talk if speaker is side)


@given(talks, sequences, sequences, st.integers(1, 400))
def test_a_conversation_is_read_back_as_it_was(
    talk: list[tuple[Side, bytes]], client_sequence: int, server_sequence: int, segment_bytes: int
) -> None:
    conversation = TcpConversation(
        CLIENT,
        SERVER,
        segment_bytes=segment_bytes,
        client_sequence=client_sequence,
        server_sequence=server_sequence,
    )
    moments = [conversation.open(), *(conversation.send(side, data) for side, data in talk)]
    moments += [conversation.finish(Side.CLIENT), conversation.finish(Side.SERVER)]
    to_server, to_client = reassemble(
        Frame(time_ns, frame) for time_ns, frames in enumerate(moments) for frame in frames
    )
    assert (to_server.source, to_server.destination) == (to_client.destination, to_client.source)
    assert (to_server.source, to_server.destination) == (CLIENT, SERVER)
    for stream, side in ((to_server, Side.CLIENT), (to_client, Side.SERVER)):
        assert stream.data == said(talk, side)
        assert stream.from_start
        assert stream.ending is Ending.FINISHED
        assert (stream.gap_count, stream.missing_bytes, stream.retransmission_count) == (0, 0, 0)
        times = {chunk.time_ns for chunk in stream.chunks}
        assert times == {time for time, (speaker, data) in enumerate(talk, 1) if speaker is side and data}


@given(talks, sequences, sequences)
def test_each_side_acknowledges_all_that_it_has_seen(
    talk: list[tuple[Side, bytes]], client_sequence: int, server_sequence: int
) -> None:
    conversation = TcpConversation(
        CLIENT, SERVER, client_sequence=client_sequence, server_sequence=server_sequence
    )
    frames = [
        *conversation.open(),
        *(frame for side, data in talk for frame in conversation.send(side, data)),
    ]
    due = {CLIENT: client_sequence, SERVER: server_sequence}
    for segment in decoded(frames):
        assert segment.sequence_number == due[segment.source]
        if segment.flags & ACK:
            assert segment.acknowledgment_number == due[segment.destination]
        taken = len(segment.payload) + bool(segment.flags & SYN)
        due[segment.source] = (due[segment.source] + taken) % 2**32


@given(st.integers(1, 2_000), st.integers(1, 500))
def test_data_is_cut_to_the_segment_size_and_its_end_is_pushed(size_bytes: int, segment_bytes: int) -> None:
    conversation = TcpConversation(CLIENT, SERVER, segment_bytes=segment_bytes)
    conversation.open()
    *data, acknowledgment = decoded(conversation.send(Side.CLIENT, bytes(size_bytes)))
    assert [len(segment.payload) for segment in data[:-1]] == [segment_bytes] * (len(data) - 1)
    assert 0 < len(data[-1].payload) <= segment_bytes
    assert [segment.flags for segment in data] == [ACK] * (len(data) - 1) + [ACK | PSH]
    assert (acknowledgment.source, acknowledgment.flags) == (SERVER, ACK)


def test_a_connection_opens_with_three_segments() -> None:
    frames = TcpConversation(CLIENT, SERVER).open()
    assert flags(frames) == [(CLIENT, SYN), (SERVER, SYN | ACK), (CLIENT, ACK)]


def test_one_side_may_finish_while_the_other_goes_on() -> None:
    conversation = TcpConversation(CLIENT, SERVER)
    conversation.open()
    assert flags(conversation.finish(Side.CLIENT)) == [(CLIENT, FIN | ACK), (SERVER, ACK)]
    assert flags(conversation.send(Side.SERVER, b"more")) == [(SERVER, ACK | PSH), (CLIENT, ACK)]


def test_both_sides_may_be_shown_to_reset() -> None:
    conversation = TcpConversation(CLIENT, SERVER)
    conversation.open()
    frames = [frame for side in Side for frame in conversation.reset(side)]
    assert flags(frames) == [(CLIENT, RST | ACK), (SERVER, RST | ACK)]


def opened() -> TcpConversation:
    conversation = TcpConversation(CLIENT, SERVER)
    conversation.open()
    return conversation


def finished() -> TcpConversation:
    conversation = opened()
    conversation.finish(Side.CLIENT)
    return conversation


def was_reset() -> TcpConversation:
    conversation = opened()
    conversation.reset(Side.SERVER)
    return conversation


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: TcpConversation(CLIENT, SERVER, segment_bytes=0),
        lambda: TcpConversation(CLIENT, SERVER, segment_bytes=MAX_SEGMENT_BYTES + 1),
        lambda: TcpConversation(CLIENT, SERVER, client_sequence=2**32),
        lambda: TcpConversation(Endpoint("localhost", 1), SERVER),
        lambda: TcpConversation(CLIENT, SERVER).send(Side.CLIENT, b"early"),
        lambda: TcpConversation(CLIENT, SERVER).reset(Side.CLIENT),
        lambda: opened().open(),
        lambda: finished().send(Side.CLIENT, b"late"),
        lambda: finished().finish(Side.CLIENT),
        lambda: was_reset().send(Side.CLIENT, b"late"),
    ],
)
def test_what_cannot_happen_on_a_connection_is_refused(mistake: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        mistake()


needs_tshark = pytest.mark.skipif(
    shutil.which("tshark") is None, reason="tshark is not installed: apt-get install tshark"
)


def tshark(path: Path, *arguments: str) -> list[str]:
    checked = ("-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE")
    command = ["tshark", "-n", "-r", str(path), *checked, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.fixture(scope="module")
def two_connections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two connections on the same ports.

    The first ends normally, and its sequence numbers wrap around. The second is reset.
    """
    path = tmp_path_factory.mktemp("captures") / "two.pcapng"
    first = TcpConversation(CLIENT, SERVER, client_sequence=2**32 - 100_000, server_sequence=2**32 - 2)
    second = TcpConversation(
        CLIENT, SERVER, segment_bytes=1460, client_sequence=7_000_000, server_sequence=9_000_000
    )
    moments = [
        first.open(),
        first.send(Side.CLIENT, bytes(range(256)) * 1024),
        first.send(Side.SERVER, b"odd"),
        first.send(Side.CLIENT, b"even"),
        first.finish(Side.CLIENT),
        first.finish(Side.SERVER),
        second.open(),
        second.send(Side.SERVER, bytes(10_001)),
        second.reset(Side.CLIENT),
        second.reset(Side.SERVER),
    ]
    with path.open("wb") as file, PcapngWriter(file, comment="two connections") as writer:
        for number, frames in enumerate(moments):
            for frame in frames:
                writer.write(Frame(1_700_000_000_000_000_000 + number * 1_000_003, frame, f"moment {number}"))
    return path


@needs_tshark
def test_tshark_finds_every_checksum_good_and_nothing_to_complain_of(two_connections: Path) -> None:
    fields = ("-T", "fields", "-e", "ip.checksum.status", "-e", "tcp.checksum.status")
    frame_count = len(list(read_capture(two_connections)))
    assert tshark(two_connections, *fields) == ["1\t1"] * frame_count
    # "Port numbers reused" is what the second connection does, and a note, no fault.
    assert tshark(two_connections, "-Y", "tcp.analysis.flags && !tcp.analysis.reused_ports") == []


@needs_tshark
def test_tshark_sees_both_handshakes_and_both_ends(two_connections: Path) -> None:
    shape = ("-T", "fields", "-e", "tcp.stream", "-e", "ip.src", "-e", "tcp.dstport", "-e", "tcp.flags.str")
    rows = [line.replace("·", "").split("\t") for line in tshark(two_connections, "-Y", "tcp.len==0", *shape)]
    assert [row for row in rows if row[3] != "A"] == [
        ["0", "127.0.0.1", "1801", "S"],
        ["0", "127.0.0.2", "40001", "AS"],
        ["0", "127.0.0.1", "1801", "AF"],
        ["0", "127.0.0.2", "40001", "AF"],
        ["1", "127.0.0.1", "1801", "S"],
        ["1", "127.0.0.2", "40001", "AS"],
        ["1", "127.0.0.1", "1801", "AR"],
        ["1", "127.0.0.2", "40001", "AR"],
    ]


@needs_tshark
def test_tshark_follows_each_stream_to_the_bytes_that_we_read(two_connections: Path) -> None:
    ours = streams(two_connections)
    for connection in (0, 1):
        lines = tshark(two_connections, "-q", "-z", f"follow,tcp,raw,{connection}")
        # Six lines of heading and a rule at the end; the lines of the second node are indented.
        content = lines[6:-1]
        first, second = (
            b"".join(bytes.fromhex(line) for line in content if line.startswith("\t") is indented)
            for indented in (False, True)
        )
        assert [first, second] == [stream.data for stream in ours if stream.connection == connection]


@needs_tshark
def test_tshark_reads_the_times_and_comments(two_connections: Path) -> None:
    rows = tshark(two_connections, "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.comment")
    assert [row.split("\t") for row in rows] == [
        [f"{frame.time_ns // 10**9}.{frame.time_ns % 10**9:09}", frame.comment]
        for frame in read_capture(two_connections)
    ]


def test_a_segment_acknowledges_what_has_arrived_and_not_what_is_on_its_way() -> None:
    wire = Segments(CLIENT, SERVER, client_sequence=100, server_sequence=900)
    wire.leave(Side.CLIENT, SYN)
    wire.arrive(Side.SERVER)
    wire.leave(Side.SERVER, SYN | ACK)
    wire.arrive(Side.CLIENT)
    sent = decode_frame(wire.leave_data(Side.CLIENT, b"12345")[0])
    crossing = decode_frame(wire.leave_data(Side.SERVER, b"abc")[0])
    wire.arrive(Side.SERVER, 2)
    after_two = decode_frame(wire.leave(Side.SERVER, ACK))
    assert sent is not None
    assert crossing is not None
    assert after_two is not None
    assert (sent.sequence_number, sent.acknowledgment_number) == (101, 901)
    assert (crossing.sequence_number, crossing.acknowledgment_number) == (901, 101)
    assert (after_two.sequence_number, after_two.acknowledgment_number) == (904, 103)


def test_segments_whose_frames_are_made_elsewhere_count_as_those_that_left() -> None:
    left, passed = (Segments(CLIENT, SERVER, client_sequence=2**32 - 7) for _ in range(2))
    for _ in range(3):
        left.leave_data(Side.CLIENT, b"12345")
    passed.pass_over(Side.CLIENT, 3, 5)
    for wire in (left, passed):
        wire.arrive(Side.SERVER)
    assert left.leave(Side.CLIENT, ACK) == passed.leave(Side.CLIENT, ACK)
    assert left.leave(Side.SERVER, ACK) == passed.leave(Side.SERVER, ACK)

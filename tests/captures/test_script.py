"""A captured conversation as the script of one side: which side it is, what it contains, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.captures import script as module
from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.net.conversation import Side
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import PacketReader, SeenPacket
from mqproto.captures.script import Script, choose, read_script, survey
from mqproto.wire import NULL_GUID, MessageClass, Ping, encode_packet, ping_packet
from mqproto.wire.generated import properties_offset
from tests.conversations import (
    CLIENT,
    DESTINATION,
    SENDER,
    SERVER,
    Said,
    a_final_ack,
    a_message,
    acknowledged,
    an_order_ack,
    answered,
    exchange,
    handshake,
    seen,
    write,
)

OTHER = Endpoint("10.0.0.3", 1801)


def part_of(packets: list[SeenPacket], side: str = "", only: int | None = None) -> Script:
    return read_script(packets, choose(survey(packets), side, only))


def bodies(script: Script) -> list[bytes]:
    return [script.message(number).properties.message_body for number in range(len(script.messages))]


# Whose part


def test_who_sent_the_connection_request_is_the_client(tmp_path: Path) -> None:
    odd = CLIENT._replace(port=9), SERVER._replace(port=40_000)
    [connection] = survey(seen(write(tmp_path / "c", answered([1]), client=odd[0], server=odd[1])))
    assert (connection.client, connection.server) == odd
    assert connection.message_counts == {Side.CLIENT: 1, Side.SERVER: 0}


def test_in_a_capture_that_begins_in_the_middle_the_server_is_at_port_1801(tmp_path: Path) -> None:
    path = write(tmp_path / "c", [acknowledged(Side.SERVER, 0), Said(Side.CLIENT, a_message(5))])
    [connection] = survey(seen(path))
    assert (connection.client, connection.server) == (CLIENT, SERVER)


def test_by_default_it_is_the_side_that_sent_most_messages_whatever_it_acknowledged(tmp_path: Path) -> None:
    answers = [an_order_ack(2), a_final_ack(1), a_final_ack(2)]
    path = write(tmp_path / "c", exchange([a_message(1), a_message(2)], answers))
    part = choose(survey(seen(path)))
    assert (part.sides, part.message_count) == ({0: Side.CLIENT}, 2)
    assert str(part) == "the client's side of connection 0, 10.0.0.1:50000 to 10.0.0.2:1801"


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        ("client", Side.CLIENT),
        ("server", Side.SERVER),
        ("10.0.0.1", Side.CLIENT),
        ("10.0.0.2", Side.SERVER),
        ("10.0.0.2:1801", Side.SERVER),
    ],
)
def test_a_side_goes_by_what_it_is_or_where_it_is(tmp_path: Path, side: str, expected: Side) -> None:
    assert choose(survey(seen(write(tmp_path / "c", answered([1])))), side).sides == {0: expected}


def test_a_conversation_is_all_connections_between_two_hosts_whoever_opened_them(tmp_path: Path) -> None:
    there, back = write(tmp_path / "1", answered([1, 2])), write(tmp_path / "2", answered([3]))
    frames = [*read_capture(there)]
    reverse = write(
        tmp_path / "3",
        [
            *handshake(client=DESTINATION, server=SENDER),
            Said(Side.CLIENT, an_order_ack(2)),
            Said(Side.SERVER, a_message(3)),
        ],
        client=SERVER._replace(port=50_007),
        server=CLIENT._replace(port=1801),
    )
    elsewhere = write(tmp_path / "4", answered([1, 2, 3, 4][:2]), server=OTHER)
    packets = list(PacketReader([*frames, *read_capture(reverse), *read_capture(elsewhere)]))
    part = choose(survey(packets), "10.0.0.1")
    assert part.sides == {0: Side.CLIENT, 1: Side.SERVER}
    script = read_script(packets, part)
    assert bodies(script) == [b"body 1", b"body 2", b"body 3"]
    assert [fate.ordered for fate in script.answers.fates] == [True, True, False]
    assert choose(survey(packets), "client").sides == {0: Side.CLIENT}
    assert back.exists()


def test_both_sides_at_one_address_are_told_apart_by_the_servers_port(tmp_path: Path) -> None:
    here = CLIENT._replace(host="127.0.0.1"), SERVER._replace(host="127.0.0.1")
    path = write(tmp_path / "c", answered([1]), answered([2]), client=here[0], server=here[1])
    packets = seen(path)
    assert choose(survey(packets)).sides == {0: Side.CLIENT, 1: Side.CLIENT}
    assert choose(survey(packets), "server").sides == {0: Side.SERVER, 1: Side.SERVER}
    assert choose(survey(packets), "127.0.0.1:50001").sides == {1: Side.CLIENT}


def test_one_connection_may_be_chosen_alone(tmp_path: Path) -> None:
    packets = seen(write(tmp_path / "c", answered([1]), answered([2, 3])))
    assert bodies(part_of(packets, only=0)) == [b"body 1"]
    assert bodies(part_of(packets)) == [b"body 1", b"body 2", b"body 3"]


@pytest.mark.parametrize(
    ("side", "only", "words"),
    [
        ("10.9.9.9", None, "no side of a conversation is 10.9.9.9; name client, server or one of 10.0.0.1"),
        ("", 4, "connection 4 has no MSMQ; these have: 0"),
    ],
)
def test_what_is_not_in_the_capture_is_said_with_what_is(
    tmp_path: Path, side: str, only: int | None, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        choose(survey(seen(write(tmp_path / "c", answered([1])))), side, only)


# What is in it


def test_a_script_has_messages_their_frames_and_what_became_of_them(tmp_path: Path) -> None:
    talk = exchange([a_message(1), a_message(2)], [an_order_ack(1), a_final_ack(1)])
    script = part_of(seen(write(tmp_path / "c", talk)))
    assert bodies(script) == [b"body 1", b"body 2"]
    assert [message.frame for message in script.messages] == sorted({each.frame for each in script.messages})
    first, second = script.answers.fates
    assert (first.acknowledged, first.ordered, first.final) == (True, True, MessageClass.ACK_RECEIVE)
    assert (second.acknowledged, second.ordered, second.final) == (True, False, None)
    assert (script.own_manager, script.peer_manager) == (SENDER, DESTINATION)
    assert script.left_out == []


def test_the_servers_part_has_what_the_client_had_sent_before_each_message(tmp_path: Path) -> None:
    talk = [
        *handshake(),
        Said(Side.SERVER, a_message(1)),
        Said(Side.CLIENT, a_message(2)),
        Said(Side.CLIENT, an_order_ack(1)),
        Said(Side.CLIENT, a_message(2)),
        Said(Side.SERVER, a_message(3)),
    ]
    script = part_of(seen(write(tmp_path / "c", talk)), "server")
    assert [message.step.heard_messages for message in script.messages] == [0, 1]
    assert [message.step.heard for message in script.messages] == [2, 5]
    assert (script.own_manager, script.peer_manager) == (DESTINATION, SENDER)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(0, 12))
def test_a_message_is_played_once_however_often_it_was_sent(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], cut: int
) -> None:
    path = tmp_path_factory.mktemp("captures") / "c"
    first, second = numbers[:cut], numbers[cut:]
    talks = [exchange([a_message(number) for number in part]) for part in (first, second)]
    script = part_of(seen(write(path, *talks)))
    assert bodies(script) == [b"body %d" % number for number in dict.fromkeys(numbers)]
    assert script.resend_count == len(numbers) - len(set(numbers))
    assert sum(len(scene.messages) for scene in script.scenes) == len(set(numbers))
    assert all(fate.acknowledged for fate in script.answers.fates)


def test_acknowledgments_are_no_messages_to_play(tmp_path: Path) -> None:
    talk = exchange([a_message(1)], [an_order_ack(1), a_final_ack(1)])
    script = part_of(seen(write(tmp_path / "c", talk)), "server")
    assert (len(script.messages), script.acknowledgment_count) == (0, 2)
    assert len(script.scenes[0].steps) == 5


def test_a_capture_that_begins_in_the_middle_tells_who_they_are_by_their_messages(tmp_path: Path) -> None:
    script = part_of(seen(write(tmp_path / "c", answered([5, 6])[4:])))
    assert bodies(script) == [b"body 5", b"body 6"]
    assert (script.own_manager, script.peer_manager) == (SENDER, DESTINATION)
    assert [fate.ordered for fate in script.answers.fates] == [True, True]
    assert not any(fate.acknowledged for fate in script.answers.fates), "nobody knows the counts"


def test_the_servers_own_word_counts_for_who_it_is(tmp_path: Path) -> None:
    """The server's own GUID is used, because a request with a direct format name does not name a queue manager."""
    talk = handshake()
    talk[0].packet.server_guid = NULL_GUID  # type: ignore[union-attr]
    talk[1] = handshake()[1]
    script = part_of(seen(write(tmp_path / "c", [*talk, Said(Side.CLIENT, a_message(1))])))
    assert script.peer_manager == DESTINATION


# What is left out


def without(path: Path, frame: int) -> list[SeenPacket]:
    """Return the packets of a capture that lacks a frame."""
    frames = [each for each in read_capture(path) if each.number != frame]
    return list(PacketReader(frames))


def test_a_message_of_which_bytes_are_missing_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "c", answered([1, 2, 3]))
    whole = part_of(seen(path))
    script = part_of(without(path, whole.messages[1].frame))
    assert bodies(script) == [b"body 1", b"body 3"]
    size_bytes = len(encode_packet(a_message(2)))
    assert [text.partition(" bytes")[0] for text in script.left_out] == [f"our {size_bytes}"]


def test_a_message_that_the_capture_has_in_part_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "c", answered([1, 2, 3]))
    long = part_of(seen(path)).messages[1]
    frames = [
        each._replace(data=each.data[:-20], missing_bytes=20) if each.number == long.frame else each
        for each in read_capture(path)
    ]
    script = part_of(list(PacketReader(frames)))
    assert bodies(script) == [b"body 1", b"body 3"]
    [text] = script.left_out
    assert text.startswith(f"our packet in frame {long.frame}: the capture lacks the rest of its ")


def test_a_packet_that_does_not_decode_is_left_out_and_kept_for_who_plays_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "c", answered([1, 2]))
    frames = []
    for frame in read_capture(path):
        at = frame.data.find(encode_packet(a_message(2)))
        data = frame.data
        if at >= 0:  # A label of 251 characters is one too long.
            broken = bytearray(encode_packet(a_message(2)))
            broken[properties_offset(bytes(broken)) + 1] = 251
            data = data[:at] + bytes(broken)
        frames.append(Frame(frame.time_ns, data, number=frame.number))
    script = part_of(list(PacketReader(frames)))
    assert bodies(script) == [b"body 1"]
    assert len(script.left_out) == 1
    assert "our packet in frame" in script.left_out[0]
    assert sum(len(step.data) == len(encode_packet(a_message(2))) for step in script.scenes[0].steps) == 2


def test_more_than_memory_should_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT_BYTES", 2_000)
    with pytest.raises(UsageError, match="choose one connection with --connection"):
        part_of(seen(write(tmp_path / "c", answered(range(1, 20)))))


def test_pings_and_other_connections_are_left_aside(tmp_path: Path) -> None:
    packets = seen(write(tmp_path / "c", answered([1]), answered([2])))
    packets.append(
        SeenPacket(ping_packet.encode(Ping()), source=CLIENT, destination=SERVER, time_ns=1, connection=-1)
    )
    assert bodies(part_of(packets, only=1)) == [b"body 2"]

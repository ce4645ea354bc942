"""A captured conversation is replayed, and differences in the peer's behavior are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mqproto.captures.net.conversation import Side
from mqproto.manager.outbound import Outbound
from mqproto.simulator.replay import talk as talk_module
from mqproto.transfer.incoming import make_final_ack
from mqproto.wire import (
    EstablishConnection,
    MessageClass,
    PacketBuffer,
    SessionAck,
    SessionHeader,
    UserMessage,
    decode_packet,
    encode_packet,
)
from tests.conversations import (
    DESTINATION,
    Said,
    a_message,
    acknowledged,
    an_administration_ack,
    answered,
    handshake,
    write,
)
from tests.plants import planted
from tests.simulator.replay.runs import (
    Peer,
    a_pair,
    a_run_with,
    a_talk,
    acknowledge,
    listening,
    of_pair,
    played,
    saved,
    texts,
    to_orders,
)

# Rules broken on purpose


async def test_a_gap_is_kept_open_as_long_as_in_the_capture_and_the_peer_fills_it(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    talk = a_talk(a_pair(), [1, 2, 4, 5, 3], 0.4)
    report = await a_run_with(tmp_path, talk, speed="captured")
    assert texts(report) == []
    assert report.duration_s >= 0.4


async def test_an_order_ack_beyond_a_gap_is_found(tmp_path: Path, idle_clock: MockClock) -> None:
    talk = a_talk(a_pair(), [1, 2, 4, 5, 3], 0.8)
    with planted("order-ack-beyond-a-gap"):
        report = await a_run_with(tmp_path, talk, speed="captured")
    [frame] = {each.frame for each in report.differences}
    assert f"message 5 (frame {frame}): OrderAck of number 5 before number 3 was sent" in texts(report)


async def test_a_missing_order_ack_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idle_clock: MockClock
) -> None:
    monkeypatch.setattr(Outbound, "_acknowledge", lambda self, message, reply_to: None)
    report = await a_run_with(tmp_path, a_talk(a_pair(), [1, 2]))
    assert [text.partition("): ")[2] or text for text in texts(report)] == [
        "no OrderAck at all, the capture has 1",
        *["no OrderAck, the capture has one"] * 2,
    ]


async def test_an_order_ack_that_stops_short_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idle_clock: MockClock
) -> None:
    """The peer leaves out the last message of each sequence when it acknowledges."""
    sound = Outbound._acknowledge

    def acknowledge(self: Outbound, message: UserMessage, reply_to: Any) -> None:
        body = message.properties.message_body
        number = int.from_bytes(body[8:12], "little") - 1
        message.properties.message_body = body[:8] + number.to_bytes(4, "little") + body[12:]
        sound(self, message, reply_to)

    monkeypatch.setattr(Outbound, "_acknowledge", acknowledge)
    report = await a_run_with(tmp_path, a_talk(a_pair(), [1, 2, 3]))
    assert [(each.message, each.text) for each in report.differences] == [
        (3, "no OrderAck, the capture has one")
    ]


async def test_a_negative_final_ack_instead_of_a_positive_one_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idle_clock: MockClock
) -> None:
    def refuse(message: UserMessage, message_class: int, *others: Any) -> UserMessage:
        del message_class
        return make_final_ack(message, MessageClass.NACK_RECEIVE_REJECTED, *others)

    monkeypatch.setattr("mqproto.manager.outcomes.make_final_ack", refuse)
    report = await a_run_with(tmp_path, a_talk(a_pair(), [1, 2], final_ack=True))
    assert [(each.message, each.text) for each in report.differences] == [
        (1, "FinalAck NACK_RECEIVE_REJECTED, the capture has ACK_RECEIVE"),
        (2, "FinalAck NACK_RECEIVE_REJECTED, the capture has ACK_RECEIVE"),
    ]


async def test_a_queue_that_is_not_there_is_a_difference(tmp_path: Path, idle_clock: MockClock) -> None:
    topology = a_pair()
    talk = [
        *of_pair(topology),
        *(Said(Side.CLIENT, message) for message in to_orders(topology, 1, destination=99)),
    ]
    report = await a_run_with(tmp_path, [*talk, acknowledged(Side.SERVER, 1)])
    assert [each.text for each in report.differences] == ["FinalAck NACK_BAD_DST_Q, the capture has none"]


# Peers of other kinds


async def test_a_session_acknowledgment_of_more_than_was_sent_is_found(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    async def boast(peer: Peer, stream: trio.SocketStream) -> None:
        await stream.send_all(saved(len(peer.messages) + 5))

    async with listening(Peer(boast)) as address:
        report = await played(write(tmp_path / "c", answered([1])), address)
    assert texts(report)[0] == "it acknowledges message 6, the last one sent was 1  [MS-MQQB] 3.1.5.5.1"


async def test_a_wrong_count_of_messages_is_found(tmp_path: Path, idle_clock: MockClock) -> None:
    async def miscount(peer: Peer, stream: trio.SocketStream) -> None:
        header = SessionHeader(ack_sequence_number=len(peer.messages), user_msg_sequence_number=3)
        await stream.send_all(encode_packet(SessionAck(session=header)))

    async with listening(Peer(miscount)) as address:
        report = await played(write(tmp_path / "c", answered([1])), address)
    assert "it has sent 3 messages, 0 of them recoverable; we have received 0 and 0" in texts(report)[0]


async def test_a_peer_that_never_acknowledges_is_given_up_and_found(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    async def be_silent(peer: Peer, stream: trio.SocketStream) -> None:
        pass

    async with listening(Peer(be_silent)) as address:
        report = await played(write(tmp_path / "c", answered(range(1, 9))), address, timeout_s=0.3)
    assert report.sent_count == 4, "no more than the peer's window"
    assert texts(report)[0].endswith("this and 3 more could not be sent: nothing new came of it for 0.3 s")


@pytest.mark.parametrize(("count", "unsent"), [(3, 5), (8, 0)])
async def test_a_peer_that_closes_is_found_with_what_could_not_be_sent(
    tmp_path: Path, count: int, unsent: int, idle_clock: MockClock
) -> None:
    async def take_some(peer: Peer, stream: trio.SocketStream) -> None:
        if len(peer.messages) == count:
            await stream.aclose()
        else:
            await acknowledge(peer, stream)

    async with listening(Peer(take_some)) as address:
        report = await played(write(tmp_path / "c", answered(range(1, 9))), address)
    assert any("the peer closed the connection" in text or "reset" in text for text in texts(report))
    assert report.sent_count >= count


async def test_a_peer_that_refuses_is_found(tmp_path: Path, idle_clock: MockClock) -> None:
    async def refuse(stream: trio.SocketStream) -> None:
        [raw] = PacketBuffer().feed(bytes(await stream.receive_some(65_536)))
        request = decode_packet(raw)
        assert isinstance(request, EstablishConnection)
        request.server_guid, request.internal.refused = DESTINATION, True
        await stream.send_all(encode_packet(request))
        await stream.receive_some()

    async with listening(refuse) as address:
        report = await played(write(tmp_path / "c", answered([1])), address)
    assert "this could not be sent: the acceptor refused the connection" in texts(report)[0]


@pytest.mark.parametrize("asks", [True, False])
async def test_administration_acknowledgments_that_come_over_the_session_are_compared(
    tmp_path: Path, asks: bool, idle_clock: MockClock
) -> None:
    topology = a_pair()
    sender = topology.nodes["sender"]
    messages = to_orders(topology, 1, admin_queue=sender.queue("replies").identifier, acknowledgments=asks)
    ack = an_administration_ack(1, MessageClass.ACK_REACH_QUEUE)
    ack.properties.correlation_id = sender.guid + ack.properties.correlation_id[16:]
    talk = [*of_pair(topology), *(Said(Side.CLIENT, each) for each in messages), Said(Side.SERVER, ack)]
    report = await a_run_with(tmp_path, talk)
    assert [each.text for each in report.differences] == (
        [] if asks else ["no administration acknowledgment ACK_REACH_QUEUE, the capture has one"]
    )


async def test_a_peer_that_takes_a_connection_and_reads_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idle_clock: MockClock
) -> None:
    monkeypatch.setattr(talk_module, "FAREWELL_S", 0.1)

    async def stuff_the_ears(peer: Peer, stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    body = bytes(3_000_000)
    talk = [*handshake(), *(Said(Side.CLIENT, a_message(number, body=body)) for number in (1, 2, 3))]
    capture = write(tmp_path / "c", talk)
    for options in ({}, {"as_captured": True}):
        async with listening(Peer(stuff_the_ears)) as address:
            report = await played(capture, address, timeout_s=0.3, speed="max", **options)
        assert texts(report)


async def test_what_is_no_msmq_is_found(tmp_path: Path, idle_clock: MockClock) -> None:
    async def be_a_web_server(stream: trio.SocketStream) -> None:
        await stream.receive_some(65_536)
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with listening(be_a_web_server) as address:
        report = await played(write(tmp_path / "c", answered([1])), address)
    assert "base.version_number" in texts(report)[0]

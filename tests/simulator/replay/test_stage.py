"""A captured conversation is spoken anew to live queue managers, and their answers are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from captures.conversation import Side
from mqproto.outbound import Outbound
from mqproto.transfer.acknowledgments import make_final_ack
from mqproto.wire import (
    EstablishConnection,
    MessageClass,
    PacketBuffer,
    SessionHeader,
    UserMessage,
    decode_packet,
    encode_packet,
    guid_text,
    session_ack,
)
from simulator.client import connect
from simulator.replay import talk as talk_module
from simulator.replay.report import Report
from simulator.replay.rewrite import read_map
from simulator.replay.stage import ReplayError
from simulator.topology import Topology, load
from simulator.world.plants import planted
from tests.conversations import (
    DESTINATION,
    SENDER,
    Said,
    a_message,
    acknowledged,
    an_administration_ack,
    an_order_ack,
    answered,
    handshake,
    write,
)
from tests.simulator.replay.runs import (
    Peer,
    a_destination,
    a_pair,
    a_talk,
    acknowledge,
    consuming,
    contents,
    listening,
    nodes,
    of_pair,
    played,
    received,
    recorded,
    saved,
    settled,
    texts,
    to_orders,
)

COUNT = 25


# Record, then replay


async def record(topology: Topology, tmp_path: Path, *, final_ack: bool = False) -> tuple[Path, list[Any]]:
    """A run of a topology, and what was delivered in it."""
    capture, folder = tmp_path / "run.pcapng", tmp_path / "recorded"
    folder.mkdir()
    async with (
        recorded(topology, folder, capture),
        connect(topology, "sender", folder) as sender,
        connect(topology, "destination", folder) as destination,
    ):
        for number in range(COUNT):
            await sender.send(
                r"destination\orders",
                b"order %d" % number,
                label=f"order {number}",
                transactional=True,
                final_ack=final_ack,
            )
            label, priority = f"note {number}", number % 8
            await sender.send(r"destination\notes", b"note %d" % number, label=label, priority=priority)
        delivered = contents(await received(destination, "orders", COUNT))
        delivered += contents(await received(destination, "notes", COUNT))
        await settled(sender)
    return capture, delivered


@pytest.mark.parametrize(("name", "peer"), [("pair", "destination"), ("three-node", "intermediate")])
async def test_a_recorded_run_is_played_to_a_fresh_topology_and_the_same_messages_arrive(
    tmp_path: Path, name: str, peer: str
) -> None:
    capture, delivered = await record(load(name).with_free_ports(), tmp_path, final_ack=True)
    topology, folder = load(name).with_free_ports(), tmp_path / "fresh"
    folder.mkdir()
    async with (
        nodes(topology, folder),
        consuming(topology, "destination", folder, "orders", "notes") as came,
    ):
        report = await played(capture, topology.nodes[peer].address)
        assert texts(report) == []
        with trio.fail_after(20):
            while len(came) < 2 * COUNT:
                await trio.lowlevel.checkpoint()
    assert sorted(contents(came)) == sorted(delivered)
    orders = [body for _, _, body in contents(came) if body.startswith(b"order")]
    assert orders == [b"order %d" % number for number in range(COUNT)]
    assert report.answers["OrderAcks"] == report.answers["FinalAcks"] == (COUNT, COUNT)
    assert report.answers["session acknowledgments"] == (2 * COUNT, 2 * COUNT)
    assert {"user.message_id", "transaction.tx_sequence_id"} <= set(report.changes)


async def test_what_was_played_once_may_be_played_again(tmp_path: Path) -> None:
    """Neither is taken for a duplicate of the other, nor of the captured one."""
    async with a_destination(tmp_path) as (topology, address):
        notes = topology.nodes["destination"].queue("notes").identifier
        messages = [
            *to_orders(topology, 1, 2),
            *to_orders(topology, 3, destination=notes, transaction=None),
        ]
        talk = [*of_pair(topology), *(Said(Side.CLIENT, message) for message in messages)]
        capture = write(tmp_path / "c", talk)
        async with connect(topology, "destination", tmp_path / "fresh") as client:
            for _ in range(2):
                assert (await played(capture, address)).sent_count == 3
                assert len(await received(client, "orders", 2)) == 2
                assert len(await received(client, "notes", 1)) == 1


# Rules broken on purpose


async def a_run_with(tmp_path: Path, talk: list[Said], **options: Any) -> Report:
    """A capture in which all went well, played to a destination of the pair."""
    async with (
        a_destination(tmp_path) as (topology, address),
        consuming(topology, "destination", tmp_path / "fresh", "orders"),
    ):
        return await played(write(tmp_path / "c", talk), address, timeout_s=1.5, **options)


async def test_a_gap_is_kept_open_as_long_as_in_the_capture_and_the_peer_fills_it(tmp_path: Path) -> None:
    talk = a_talk(a_pair(), [1, 2, 4, 5, 3], 0.4)
    report = await a_run_with(tmp_path, talk, speed="captured")
    assert texts(report) == []
    assert report.duration_s >= 0.4


async def test_an_order_ack_beyond_a_gap_is_found(tmp_path: Path) -> None:
    talk = a_talk(a_pair(), [1, 2, 4, 5, 3], 0.8)
    with planted("order-ack-beyond-a-gap"):
        report = await a_run_with(tmp_path, talk, speed="captured")
    [frame] = {each.frame for each in report.differences}
    assert f"message 5 (frame {frame}): OrderAck of number 5 before number 3 was sent" in texts(report)


async def test_a_missing_order_ack_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outbound, "acknowledge", lambda self, message, reply_to: None)
    report = await a_run_with(tmp_path, a_talk(a_pair(), [1, 2]))
    assert [text.partition("): ")[2] or text for text in texts(report)] == [
        "no OrderAck at all, the capture has 1",
        *["no OrderAck, the capture has one"] * 2,
    ]


async def test_an_order_ack_that_stops_short_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer forgets the last message of each sequence."""
    sound = Outbound.acknowledge

    def acknowledge(self: Outbound, message: UserMessage, reply_to: Any) -> None:
        body = message.properties.message_body
        number = int.from_bytes(body[8:12], "little") - 1
        message.properties.message_body = body[:8] + number.to_bytes(4, "little") + body[12:]
        sound(self, message, reply_to)

    monkeypatch.setattr(Outbound, "acknowledge", acknowledge)
    report = await a_run_with(tmp_path, a_talk(a_pair(), [1, 2, 3]))
    assert [(each.message, each.text) for each in report.differences] == [
        (3, "no OrderAck, the capture has one")
    ]


async def test_a_negative_final_ack_instead_of_a_positive_one_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(message: UserMessage, message_class: int, *others: Any) -> UserMessage:
        del message_class
        return make_final_ack(message, MessageClass.NACK_RECEIVE_REJECTED, *others)

    monkeypatch.setattr("mqproto.outcomes.make_final_ack", refuse)
    report = await a_run_with(tmp_path, a_talk(a_pair(), [1, 2], final_ack=True))
    assert [(each.message, each.text) for each in report.differences] == [
        (1, "FinalAck NACK_RECEIVE_REJECTED, the capture has ACK_RECEIVE"),
        (2, "FinalAck NACK_RECEIVE_REJECTED, the capture has ACK_RECEIVE"),
    ]


async def test_a_queue_that_is_not_there_is_a_difference(tmp_path: Path) -> None:
    topology = a_pair()
    talk = [
        *of_pair(topology),
        *(Said(Side.CLIENT, message) for message in to_orders(topology, 1, destination=99)),
    ]
    report = await a_run_with(tmp_path, [*talk, acknowledged(Side.SERVER, 1)])
    assert [each.text for each in report.differences] == ["FinalAck NACK_BAD_DST_Q, the capture has none"]


# Peers of other kinds


async def test_a_session_acknowledgment_of_more_than_was_sent_is_found(tmp_path: Path) -> None:
    async def boast(peer: Peer, stream: trio.SocketStream) -> None:
        await stream.send_all(saved(len(peer.messages) + 5))

    async with listening(Peer(boast)) as address:
        report = await played(write(tmp_path / "c", answered([1])), address)
    assert texts(report)[0] == "it acknowledges message 6, the last one sent was 1  [MS-MQQB] 3.1.5.5.1"


async def test_a_wrong_count_of_messages_is_found(tmp_path: Path) -> None:
    async def miscount(peer: Peer, stream: trio.SocketStream) -> None:
        header = SessionHeader(ack_sequence_number=len(peer.messages), user_msg_sequence_number=3)
        await stream.send_all(encode_packet(session_ack(header)))

    async with listening(Peer(miscount)) as address:
        report = await played(write(tmp_path / "c", answered([1])), address)
    assert "it has sent 3 messages, 0 of them recoverable; we have received 0 and 0" in texts(report)[0]


async def test_a_peer_that_never_acknowledges_is_given_up_and_found(tmp_path: Path) -> None:
    async def be_silent(peer: Peer, stream: trio.SocketStream) -> None:
        pass

    async with listening(Peer(be_silent)) as address:
        report = await played(write(tmp_path / "c", answered(range(1, 9))), address, timeout_s=0.3)
    assert report.sent_count == 4, "no more than the peer's window"
    assert texts(report)[0].endswith("this and 3 more could not be sent: nothing new came of it for 0.3 s")


@pytest.mark.parametrize(("count", "unsent"), [(3, 5), (8, 0)])
async def test_a_peer_that_closes_is_found_with_what_could_not_be_sent(
    tmp_path: Path, count: int, unsent: int
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


async def test_a_peer_that_refuses_is_found(tmp_path: Path) -> None:
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


async def test_nobody_there_is_an_error_in_one_line(tmp_path: Path) -> None:
    async with listening(Peer(acknowledge)) as address:
        pass
    with pytest.raises(ReplayError, match="connection refused by"):
        await played(write(tmp_path / "c", answered([1])), address)


async def test_the_peers_guid_is_learnt_and_a_session_is_opened_for_each_captured_one(tmp_path: Path) -> None:
    peer = Peer(acknowledge)
    talks = [answered([1, 2])[:6], answered([1, 2])[:6], [*handshake(), Said(Side.CLIENT, a_message(3))]]
    for talk in talks:  # In the capture it was somebody else.
        for said in talk[:2]:
            said.packet.server_guid = SENDER[::-1]  # type: ignore[union-attr]
        for said in talk[4:]:
            said.packet.user.queue_manager_address = SENDER[::-1]  # type: ignore[union-attr]
    counts: list[int] = []

    async def take(stream: trio.SocketStream) -> None:
        try:
            await peer(stream)
        finally:
            counts.append(len(peer.messages))
            assert {each.user.queue_manager_address for each in peer.messages} == {DESTINATION}

    async with listening(take) as address:
        report = await played(write(tmp_path / "c", *talks), address)
    assert counts == [2, 1], "the second connection had resends alone"
    assert (report.session_count, report.resend_count) == (2, 2)
    assert texts(report) == []


async def test_a_peer_that_is_gone_before_the_second_session_is_found(tmp_path: Path) -> None:
    done = trio.Event()

    async def take_one(stream: trio.SocketStream) -> None:
        await Peer(acknowledge)(stream)
        done.set()

    capture = write(tmp_path / "c", answered([1])[:6], [*handshake(), Said(Side.CLIENT, a_message(2), 0.5)])
    reports: list[Report] = []
    async with trio.open_nursery() as nursery:

        async def play() -> None:
            reports.append(await played(capture, address, speed="captured"))

        async with listening(take_one) as address:
            nursery.start_soon(play)
            await done.wait()
    assert "this could not be sent: connection refused by" in texts(reports[0])[0]


async def test_a_capture_begun_in_the_middle_is_played_from_there(tmp_path: Path) -> None:
    topology = a_pair()
    talk = a_talk(topology, [7, 8])[4:]
    report = await a_run_with(tmp_path, talk)
    assert texts(report) == []
    assert report.answers["OrderAcks"] == (2, 2)


async def test_what_would_be_too_late_by_now_is_sent_as_new(tmp_path: Path) -> None:
    """TimeToReachQueue counts from SentTime, which is years ago in the capture."""
    topology = a_pair()
    messages = to_orders(topology, 1, time_to_reach_queue_s=60)
    capture = write(tmp_path / "c", [*of_pair(topology), *(Said(Side.CLIENT, each) for each in messages)])
    async with a_destination(tmp_path) as (_, address):
        report = await played(capture, address)
        assert texts(report) == []
        async with connect(topology, "destination", tmp_path / "fresh") as client:
            assert len(await received(client, "orders", 1)) == 1


@pytest.mark.parametrize("asks", [True, False])
async def test_administration_acknowledgments_that_come_over_the_session_are_compared(
    tmp_path: Path, asks: bool
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


async def test_what_waits_at_the_peer_for_the_captured_queue_manager_is_taken(tmp_path: Path) -> None:
    topology = a_pair()
    async with (
        a_destination(tmp_path) as (_, address),
        connect(topology, "destination", tmp_path / "fresh") as client,
    ):
        await client.send(r"sender\replies", b"a reply", transactional=True, final_ack=True)
        talk = [*of_pair(topology), *(Said(Side.CLIENT, each) for each in to_orders(topology, 1))]
        report = await played(write(tmp_path / "c", talk), address)
        await settled(client)
    assert (report.received_count, texts(report)) == (1, [])


async def test_a_peer_that_takes_a_connection_and_reads_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


async def test_what_is_no_msmq_is_found(tmp_path: Path) -> None:
    async def be_a_web_server(stream: trio.SocketStream) -> None:
        await stream.receive_some(65_536)
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with listening(be_a_web_server) as address:
        report = await played(write(tmp_path / "c", answered([1])), address)
    assert "base.version_number" in texts(report)[0]


@pytest.mark.parametrize("new", [r"DIRECT=OS:destination\private$\notes", "PRIVATE={}\\{:08X}"])
async def test_messages_go_to_another_queue_if_it_is_mapped(tmp_path: Path, new: str) -> None:
    async with a_destination(tmp_path) as (topology, address):
        node = topology.nodes["destination"]
        orders, notes = (node.queue(name).identifier for name in ("orders", "notes"))
        guid = guid_text(node.guid)
        maps = (read_map(f"PRIVATE={guid}\\{orders:08X}=" + new.format(guid, notes)),)
        [message] = to_orders(topology, 1, transaction=None)
        capture = write(tmp_path / "c", [*of_pair(topology), Said(Side.CLIENT, message)])
        report = await played(capture, address, maps=maps)
        async with connect(topology, "destination", tmp_path / "fresh") as client:
            assert [each.label for each in await received(client, "notes", 1)] == ["label 1"]
    assert texts(report) == []
    assert report.changes["user.destination_queue"].count == 1


# Time


async def test_the_capture_is_played_at_its_own_speed_or_another(tmp_path: Path) -> None:
    talk = [*handshake(), Said(Side.CLIENT, a_message(1)), Said(Side.CLIENT, a_message(2), 0.6)]
    capture = write(tmp_path / "c", talk)
    async with listening(Peer(acknowledge)) as address:
        durations = [(await played(capture, address, speed=speed)).duration_s for speed in ("1", "3", "max")]
    assert durations[0] >= 0.6
    assert durations[2] < durations[0]
    assert durations[1] >= 0.2


# A live client


def to_replies(topology: Topology, *numbers: int) -> list[UserMessage]:
    """Messages of the pair's destination to its sender's replies."""
    sender, destination = topology.nodes["sender"], topology.nodes["destination"]
    return to_orders(
        topology,
        *numbers,
        source=destination.guid,
        destination_manager=sender.guid,
        destination=sender.queue("replies").identifier,
    )


@pytest.mark.parametrize("known", [True, False])
async def test_the_captured_server_is_played_to_a_live_client(tmp_path: Path, known: bool) -> None:
    """It takes what the client sends, acknowledges it, and sends its own, as whoever the client asks for."""
    topology = a_pair()
    replies = to_replies(topology, 1, 2)
    talk = [
        *of_pair(topology),
        *(Said(Side.CLIENT, message) for message in to_orders(topology, 1, 2, 3)),
        *(Said(Side.SERVER, message) for message in replies),
        acknowledged(Side.CLIENT, 2, 3, 3),
    ]
    if not known:
        for said in talk[:2]:
            said.packet.server_guid = DESTINATION  # type: ignore[union-attr]
        for message in replies:
            message.user.source_queue_manager = DESTINATION
    capture = write(tmp_path / "c", talk)
    host, port = topology.nodes["destination"].address
    reports: list[Report] = []

    async def listen() -> None:
        reports.append(await played(capture, listen=f"{host}:{port}"))

    folder = tmp_path / "live"
    folder.mkdir()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        async with (
            nodes(topology, folder, only="sender"),
            connect(topology, "sender", folder) as client,
        ):
            for number in range(3):
                await client.send(
                    r"destination\orders", b"live %d" % number, transactional=True, final_ack=True
                )
            bodies = [message.body for message in await received(client, "replies", 2)]
            await settled(client)
    [report] = reports
    assert bodies == [b"body 1", b"body 2"]
    assert texts(report) == []
    assert (report.received_count, report.sent_count) == (3, 2)
    assert report.own == topology.nodes["destination"].guid


async def test_answers_on_the_peers_own_connections_are_taken_at_listen(tmp_path: Path) -> None:
    """A direct format name leads back to port 1801 of our address, if the peer does not use our session."""
    topology = a_pair()

    async def answer(peer: Peer, stream: trio.SocketStream) -> None:
        await acknowledge(peer, stream)
        if len(peer.messages) == 2:
            header = peer.messages[0].transaction
            assert header is not None
            back = await trio.open_tcp_stream(*topology.nodes["sender"].address)
            async with back:
                ack = an_order_ack(2, sequence=header.tx_sequence_id)
                packets = [*handshake(client=DESTINATION, server=SENDER)[0::2], Said(Side.CLIENT, ack)]
                for said in packets:
                    await back.send_all(encode_packet(said.packet))
                    await back.receive_some(65_536)

    host, port = topology.nodes["sender"].address
    async with listening(Peer(answer)) as address:
        report = await played(write(tmp_path / "c", answered([1, 2])), address, listen=f"{host}:{port}")
    assert texts(report) == []
    assert report.answers["OrderAcks"] == (2, 2)


async def test_a_client_that_never_comes_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    host, port = a_pair().nodes["sender"].address
    with pytest.raises(ReplayError, match="nobody connected within"):
        await played(write(tmp_path / "c", answered([1])), listen=f"{host}:{port}", timeout_s=0.2)

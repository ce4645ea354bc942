"""A capture is played to live queue managers, from its first connection to its last, for either side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mqproto.captures.net.conversation import Side
from mqproto.simulator.client import connect
from mqproto.simulator.replay.report import Report
from mqproto.simulator.replay.stage import ReplayError
from mqproto.simulator.topology import Topology, load
from mqproto.wire import (
    UserMessage,
    encode_packet,
    guid_text,
)
from tests.conversations import (
    DESTINATION,
    SENDER,
    Said,
    a_message,
    acknowledged,
    an_order_ack,
    answered,
    handshake,
    write,
)
from tests.simulator.replay.runs import (
    Peer,
    a_destination,
    a_pair,
    a_run_with,
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
    settled,
    texts,
    to_orders,
    until,
)

COUNT = 25


# Record, then replay


async def record(topology: Topology, tmp_path: Path, *, final_ack: bool = False) -> tuple[Path, list[Any]]:
    """Record a run of a topology; return what was delivered in it."""
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
    tmp_path: Path, name: str, peer: str, idle_clock: MockClock
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
        await until(lambda: len(came) == 2 * COUNT)
    assert sorted(contents(came)) == sorted(delivered)
    orders = [body for _, _, body in contents(came) if body.startswith(b"order")]
    assert orders == [b"order %d" % number for number in range(COUNT)]
    assert report.answers["OrderAcks"] == report.answers["FinalAcks"] == (COUNT, COUNT)
    assert report.answers["session acknowledgments"] == (2 * COUNT, 2 * COUNT)
    assert {"user.message_id", "transaction.tx_sequence_id"} <= set(report.changes)


async def test_what_was_played_once_may_be_played_again(tmp_path: Path, idle_clock: MockClock) -> None:
    """Neither replay's messages are taken for duplicates of the other's, or of the captured ones."""
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


async def test_nobody_there_is_an_error_in_one_line(tmp_path: Path, idle_clock: MockClock) -> None:
    async with listening(Peer(acknowledge)) as address:
        pass
    with pytest.raises(ReplayError, match="connection refused by"):
        await played(write(tmp_path / "c", answered([1])), address)


async def test_the_peers_guid_is_learnt_and_a_session_is_opened_for_each_captured_one(
    tmp_path: Path, idle_clock: MockClock
) -> None:
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


async def test_a_peer_that_is_gone_before_the_second_session_is_found(
    tmp_path: Path, idle_clock: MockClock
) -> None:
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


async def test_a_capture_begun_in_the_middle_is_played_from_there(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    topology = a_pair()
    talk = a_talk(topology, [7, 8])[4:]
    report = await a_run_with(tmp_path, talk)
    assert texts(report) == []
    assert report.answers["OrderAcks"] == (2, 2)


async def test_what_would_be_too_late_by_now_is_sent_as_new(tmp_path: Path, idle_clock: MockClock) -> None:
    """TimeToReachQueue counts from SentTime, which is years ago in the capture."""
    topology = a_pair()
    messages = to_orders(topology, 1, time_to_reach_queue_s=60)
    capture = write(tmp_path / "c", [*of_pair(topology), *(Said(Side.CLIENT, each) for each in messages)])
    async with a_destination(tmp_path) as (_, address):
        report = await played(capture, address)
        assert texts(report) == []
        async with connect(topology, "destination", tmp_path / "fresh") as client:
            assert len(await received(client, "orders", 1)) == 1


async def test_what_waits_at_the_peer_for_the_captured_queue_manager_is_taken(
    tmp_path: Path, idle_clock: MockClock
) -> None:
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


@pytest.mark.parametrize("new", [r"DIRECT=OS:destination\private$\notes", "PRIVATE={}\\{:08X}"])
async def test_messages_go_to_another_queue_if_it_is_mapped(
    tmp_path: Path, new: str, idle_clock: MockClock
) -> None:
    async with a_destination(tmp_path) as (topology, address):
        node = topology.nodes["destination"]
        orders, notes = (node.queue(name).identifier for name in ("orders", "notes"))
        guid = guid_text(node.guid)
        maps = [f"PRIVATE={guid}\\{orders:08X}=" + new.format(guid, notes)]
        [message] = to_orders(topology, 1, transaction=None)
        capture = write(tmp_path / "c", [*of_pair(topology), Said(Side.CLIENT, message)])
        report = await played(capture, address, maps=maps)
        async with connect(topology, "destination", tmp_path / "fresh") as client:
            assert [each.label for each in await received(client, "notes", 1)] == ["label 1"]
    assert texts(report) == []
    assert report.changes["user.destination_queue"].count == 1


# Time


async def test_the_capture_is_played_at_its_own_speed_or_another(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    talk = [*handshake(), Said(Side.CLIENT, a_message(1)), Said(Side.CLIENT, a_message(2), 0.6)]
    capture = write(tmp_path / "c", talk)
    async with listening(Peer(acknowledge)) as address:
        durations = [(await played(capture, address, speed=speed)).duration_s for speed in ("1", "3", "max")]
    assert durations[0] >= 0.6
    assert durations[2] < durations[0]
    assert durations[1] >= 0.2


# A live client


def to_replies(topology: Topology, *numbers: int) -> list[UserMessage]:
    """Return messages from the pair's destination to the sender's queue `replies`."""
    sender, destination = topology.nodes["sender"], topology.nodes["destination"]
    return to_orders(
        topology,
        *numbers,
        source=destination.guid,
        destination_manager=sender.guid,
        destination=sender.queue("replies").identifier,
    )


@pytest.mark.parametrize("known", [True, False])
async def test_the_captured_server_is_played_to_a_live_client(
    tmp_path: Path, known: bool, idle_clock: MockClock
) -> None:
    """The replay accepts messages, acknowledges them, and sends its own, under the identity of the queue manager that
    the client asks for.
    """
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


async def test_answers_on_the_peers_own_connections_are_taken_at_listen(
    tmp_path: Path, idle_clock: MockClock
) -> None:
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


async def test_a_client_that_never_comes_is_not_waited_for_for_ever(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    host, port = a_pair().nodes["sender"].address
    with pytest.raises(ReplayError, match="nobody connected within"):
        await played(write(tmp_path / "c", answered([1])), listen=f"{host}:{port}", timeout_s=0.2)

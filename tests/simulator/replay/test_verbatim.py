"""A part is played as it was captured: every byte, in order, with the pauses of the capture."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mqproto.captures.net.conversation import Side
from mqproto.simulator.base.recorder import Recorder
from mqproto.simulator.client import connect
from mqproto.simulator.replay import talk
from mqproto.simulator.replay.report import Report
from mqproto.wire import encode_packet
from mqproto.wire.generated import properties_offset
from tests.conversations import (
    CLIENT,
    SERVER,
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
    a_talk,
    listening,
    nodes,
    of_pair,
    played,
    received,
    saved,
    texts,
    to_orders,
    until,
)


async def test_as_captured_every_byte_is_as_it_was_resends_included(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    talk = answered([1, 2])
    talk.insert(6, Said(Side.CLIENT, a_message(2)))
    expected = [said.packet for said in talk if said.side is Side.CLIENT][:5]

    async def answer(peer: Peer, stream: trio.SocketStream) -> None:
        if len(peer.messages) == 3:
            await stream.send_all(saved(3) + encode_packet(an_order_ack(2)))

    peer = Peer(answer)
    async with listening(peer) as address:
        report = await played(write(tmp_path / "c", talk), address, as_captured=True)
    assert peer.packets[:5] == expected
    assert (report.sent_count, report.as_captured, dict(report.changes)) == (2, True, {})


async def test_as_captured_the_peer_is_waited_for_where_the_capture_waits(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    async with a_destination(tmp_path) as (topology, address):
        report = await played(write(tmp_path / "c", a_talk(topology, [1, 2])), address, as_captured=True)
    assert texts(report) == []
    assert report.remarks == []


async def test_as_captured_a_peer_with_another_guid_refuses_and_that_is_found(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    async with a_destination(tmp_path) as (_, address):
        report = await played(write(tmp_path / "c", answered([1])), address, as_captured=True)
    assert any("the acceptor refused the connection" in text for text in texts(report))


async def test_as_captured_a_peer_that_says_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idle_clock: MockClock
) -> None:
    monkeypatch.setattr(talk, "FAREWELL_S", 0.1)

    async def be_silent(stream: trio.SocketStream) -> None:
        await stream.receive_some(65_536)
        await trio.sleep_forever()

    async with listening(be_silent) as address:
        report = await played(write(tmp_path / "c", answered([1])), address, as_captured=True, timeout_s=0.2)
    assert "the peer said nothing for 0.2 s, before frame" in texts(report)[0]
    assert len(report.remarks) == 2


async def test_as_captured_the_server_is_played_to_a_live_client(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    topology, folder = a_pair(), tmp_path / "live"
    folder.mkdir()
    host, port = topology.nodes["destination"].address
    ends = {"source": topology.nodes["destination"].guid, "to": topology.nodes["sender"].guid}
    [reply] = to_orders(
        topology,
        1,
        source=ends["source"],
        destination_manager=ends["to"],
        destination=topology.nodes["sender"].queue("replies").identifier,
    )
    talk = [
        *of_pair(topology),
        Said(Side.CLIENT, to_orders(topology, 1)[0]),
        acknowledged(Side.SERVER, 1),
        Said(Side.SERVER, reply),
        acknowledged(Side.CLIENT, 1, 1, 1),
    ]
    capture = write(tmp_path / "c", talk)
    async with trio.open_nursery() as nursery:
        reports: list[Report] = []

        async def listen() -> None:
            reports.append(await played(capture, listen=f"{host}:{port}", as_captured=True, side="server"))

        nursery.start_soon(listen)
        async with (
            nodes(topology, folder, only="sender"),
            connect(topology, "sender", folder) as client,
        ):
            await client.send(r"destination\orders", b"live", transactional=True)
            [message] = await received(client, "replies", 1)
            assert message.label == "label 1"
            await until(lambda: bool(reports))
    assert texts(reports[0]) == []
    assert reports[0].answers["session acknowledgments"] == (1, 1)


async def test_malformed_packets_are_played_as_well(tmp_path: Path, idle_clock: MockClock) -> None:
    """A label has 251 characters, one too many: framing accepts it, and so do readers that only look at bytes."""
    packet = bytearray(encode_packet(a_message(2)))
    packet[properties_offset(bytes(packet)) + 1] = 251
    capture = tmp_path / "c"
    with capture.open("wb") as file:
        recorder = Recorder(file)
        connection = recorder.connection(CLIENT, SERVER)
        for said in handshake():
            connection.sent(said.side, encode_packet(said.packet))
        connection.sent(Side.CLIENT, bytes(packet))
        recorder.close()
    heard: list[bytes] = []

    async def listen(stream: trio.SocketStream) -> None:
        for said in handshake()[1::2]:
            heard.append(bytes(await stream.receive_some(65_536)))
            await stream.send_all(encode_packet(said.packet))
        heard.append(bytes(await stream.receive_some(65_536)))

    async with listening(listen) as address:
        report = await played(capture, address, as_captured=True, timeout_s=1)
    assert heard[-1] == bytes(packet)
    assert "our packet in frame" in report.left_out[0]

"""A part played as it was captured: every byte, in order, and waiting where the capture waits."""

from __future__ import annotations

from pathlib import Path

import trio

from captures.conversation import Side
from mqproto.wire import encode_packet
from tests.conversations import Said, a_message, an_order_ack, answered, write
from tests.simulator.replay.runs import Peer, a_destination, a_talk, listening, played, saved, texts


async def test_as_captured_every_byte_is_as_it_was_resends_included(tmp_path: Path) -> None:
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


async def test_as_captured_the_peer_is_waited_for_where_the_capture_waits(tmp_path: Path) -> None:
    async with a_destination(tmp_path) as (topology, address):
        report = await played(write(tmp_path / "c", a_talk(topology, [1, 2])), address, as_captured=True)
    assert texts(report) == []
    assert report.remarks == []


async def test_as_captured_a_peer_with_another_guid_refuses_and_that_is_found(tmp_path: Path) -> None:
    async with a_destination(tmp_path) as (_, address):
        report = await played(write(tmp_path / "c", answered([1])), address, as_captured=True)
    assert any("the acceptor refused the connection" in text for text in texts(report))


async def test_as_captured_a_peer_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    async def be_silent(stream: trio.SocketStream) -> None:
        await stream.receive_some(65_536)
        await trio.sleep_forever()

    async with listening(be_silent) as address:
        report = await played(write(tmp_path / "c", answered([1])), address, as_captured=True, timeout_s=0.2)
    assert "the peer said nothing for 0.2 s, before frame" in texts(report)[0]
    assert len(report.remarks) == 2

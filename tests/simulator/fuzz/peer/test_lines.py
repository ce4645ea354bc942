"""Connections to a peer that fail, are not read, or are not answered; and Pings without a proper answer."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from dataclasses import replace

import pytest
import trio

from mqproto.simulator.fuzz.peer import lines
from mqproto.simulator.fuzz.peer.conduct import Fault, PeerFailure
from mqproto.simulator.fuzz.peer.lines import (
    HELD_UP,
    JudgedLine,
    Place,
    connected,
    datagrams,
    elsewhere,
    judge_datagrams,
)
from mqproto.simulator.fuzz.tactics.packets import connection_request
from tests.simulator.fuzz.peers import Peer, serving


def a_place(port: int, patience_s: float = 5.0, ping_port: int = 9) -> Place:
    return Place(socket.AF_INET, ("127.0.0.1", port), ping_port, patience_s)


def a_listener(backlog: int = 8) -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(backlog)
    return listener


async def test_where_nobody_listens_the_peer_is_gone() -> None:
    with closing(a_listener()) as listener:
        place = a_place(listener.getsockname()[1])
    assert await connected(place) == Fault(
        PeerFailure.CRASHES, "no connection can be had", "connection refused"
    )


async def test_a_peer_that_accepts_nobody_or_answers_nobody_is_given_up_in_time() -> None:
    with closing(a_listener()) as listener:  # The kernel accepts; nobody reads.
        place = a_place(listener.getsockname()[1], patience_s=0.05)
        stream = await connected(place)
        assert isinstance(stream, trio.SocketStream)
        async with trio.open_nursery() as nursery:
            line = JudgedLine(place, stream)
            nursery.start_soon(line.listen)
            assert await line.say(connection_request()) is None
            fault = await line.settle()
            assert fault is not None
            assert (fault.oracle, fault.detail) == (PeerFailure.HANGS, "0.05 s long")
            fault = await line.say(bytes(50_000_000))
            assert fault is not None
            assert fault.rule == "it reads no more"
            line.close()


async def test_one_who_is_made_to_wait_goes_on_when_it_is_his_turn() -> None:
    with closing(a_listener()) as listener:
        place = a_place(listener.getsockname()[1], patience_s=0.05)
        stream = await connected(place)
        assert isinstance(stream, trio.SocketStream)
        with listener.accept()[0] as accepted:
            accepted.setblocking(False)

            async def its_turn() -> bool:
                with suppress(BlockingIOError):
                    while accepted.recv(2**20):
                        pass
                return True

            async with trio.open_nursery() as nursery:
                place.holds_up = its_turn
                line = JudgedLine(place, stream)
                nursery.start_soon(line.listen)
                assert await line.say(bytes(2_000_000)) is None
                line.close()
    assert place.counts[HELD_UP]


async def test_to_read_nothing_from_one_who_reads_nothing_is_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "DEAF_PATIENCE_S", 0.05)
    with closing(a_listener()) as listener:
        place = a_place(listener.getsockname()[1])
        stream = await connected(place)
        assert isinstance(stream, trio.SocketStream)
        with listener.accept()[0] as accepted:
            async with trio.open_nursery() as nursery:
                line = JudgedLine(place, stream)
                nursery.start_soon(line.listen)
                line.deafen()
                accepted.sendall(b"what it says is heard by nobody, and judged by nobody")
                assert await line.say(connection_request()) is None
                assert await line.say(bytes(50_000_000)) is None
                assert await line.settle() is None
                assert not line.closed
                line.close()
    assert place.counts["answers"] == 0


async def test_connections_leave_from_the_address_that_is_asked_for() -> None:
    with closing(a_listener()) as listener:
        place = replace(a_place(listener.getsockname()[1]), source="127.0.0.99")
        stream = await connected(place)
        assert isinstance(stream, trio.SocketStream)
        accepted, (host, _) = listener.accept()
        assert host == "127.0.0.99"
        accepted.close()
        await stream.aclose()
        async with datagrams(place) as asking:
            assert asking.getsockname()[0] == "127.0.0.99"


def test_another_host_is_there_where_the_peer_is_on_loopback() -> None:
    host = elsewhere(a_place(9))
    assert host.startswith("127.")
    assert host != "127.0.0.1"
    assert elsewhere(Place(socket.AF_INET, ("192.0.2.1", 9), 9, 1.0)) == ""
    assert elsewhere(Place(socket.AF_INET6, ("::1", 9, 0, 0), 9, 1.0)) == ""


async def test_a_peer_may_close_at_any_time_and_owes_nothing_then() -> None:
    with closing(a_listener()) as listener:
        place = a_place(listener.getsockname()[1])
        stream = await connected(place)
        assert isinstance(stream, trio.SocketStream)
        listener.accept()[0].close()
        async with trio.open_nursery() as nursery:
            line = JudgedLine(place, stream)
            nursery.start_soon(line.listen)
            assert await line.say(connection_request()) is None
            assert await line.settle() is None
            assert line.closed
            await line.finish()
            line.close()
    assert {name: count for name, count in place.counts.items() if count} == {
        "connections": 1,
        "closed by the peer": 1,
        "closed before a word": 1,
    }


async def test_an_answer_is_heard_and_counted() -> None:
    async with serving(Peer()) as address, trio.open_nursery() as nursery:
        place = a_place(int(address.rpartition(":")[2]))
        stream = await connected(place)
        assert isinstance(stream, trio.SocketStream)
        line = JudgedLine(place, stream)
        nursery.start_soon(line.listen)
        assert await line.say(connection_request(), piece_bytes=100) is None
        assert await line.settle() is None
        assert line.conduct.answered_by is not None
        assert place.counts["answers"] == 1
        line.close(reset=True)


@pytest.mark.spec("[MS-MQQB] 2.2.7")
async def test_what_answers_a_ping_is_one_or_a_fault() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as port:
        port.bind(("127.0.0.1", 0))
        async with datagrams(a_place(1, ping_port=port.getsockname()[1])) as asking:
            await asking.send(b"ping?")
            _, whence = port.recvfrom(100)
            assert judge_datagrams(asking) is None
            port.sendto(b"no ping", whence)
            fault = judge_datagrams(asking)
            assert fault is not None
            assert (fault.oracle, fault.rule) == (PeerFailure.WRONG, "what answers a Ping is none (2.2.7)")

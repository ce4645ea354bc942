"""Pings with real sockets: which nodes are asked, and which callers are answered."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mqproto.base.errors import UsageError
from mqproto.simulator.client import connect
from mqproto.simulator.node.node import run_node
from mqproto.simulator.node.pings import PAUSE_S, ROUND, ROUND_OF_STRANGERS
from mqproto.simulator.topology import Topology, load
from mqproto.wire import Guid, Ping, ping_packet
from tests.simulator.running import DESTINATION, Log, running

STRANGER = Guid(b"a stranger's guid"[:16])


def a_chain(*asking: str, silent: Collection[str] = ()) -> Topology:
    """Return sender, intermediate and destination on free ports.

    The nodes in `asking` send a Ping first; those in `silent` do not answer Pings.
    """
    topology = load("three-node").with_free_ports()
    nodes = {
        name: replace(
            node,
            settings=replace(node.settings, require_pings=name in asking, answer_pings=name not in silent),
        )
        for name, node in topology.nodes.items()
    }
    return replace(topology, nodes=nodes)


def a_request(cookie: int, *, manager: Guid = STRANGER) -> bytes:
    return ping_packet.encode(Ping(cookie=cookie, qm_guid=manager))


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    """A socket of a stranger that no topology declares."""
    with socket.socket(type=socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.setblocking(False)
        yield stranger


async def hear(stranger: socket.socket) -> Ping:
    """Return the next response that the stranger receives."""
    await trio.lowlevel.wait_readable(stranger)
    return ping_packet.decode(stranger.recv(100))


@pytest.mark.parametrize("asking", [("sender", "intermediate", "destination"), ("sender",), ()])
async def test_a_chain_delivers_whoever_of_it_asks_first(tmp_path: Path, asking: tuple[str, ...]) -> None:
    chain = a_chain(*asking)
    async with AsyncExitStack() as nodes:
        for name in chain.nodes:
            await nodes.enter_async_context(running(chain, name, tmp_path))
        sender = await nodes.enter_async_context(connect(chain, "sender", tmp_path))
        destination = await nodes.enter_async_context(connect(chain, "destination", tmp_path))
        await sender.send(DESTINATION, b"asked for", transactional=True)
        async with destination.transaction("orders", timeout_s=20) as [message]:
            assert message.body == b"asked for"


async def test_a_neighbour_that_answers_no_ping_is_not_called_until_it_does(tmp_path: Path) -> None:
    """At first nothing listens on the port, then a silent program does, and then the neighbour itself."""
    chain = a_chain("sender")
    address = chain.nodes["intermediate"].ping_address
    log = Log()
    async with running(chain, "sender", tmp_path, log), connect(chain, "sender", tmp_path) as client:
        await client.send(DESTINATION, b"waits", transactional=True)
        nobody = await log.line("session-closed")
        where = "{}:{} (UDP)".format(*address)
        assert nobody["reason"] == f"nobody answers pings at {where}"
        with closing(socket.socket(type=socket.SOCK_DGRAM)) as silent:
            silent.bind(address)
            silent.setblocking(False)
            while (await log.line("session-closed"))["section"] != "3.1.6.8":
                await log.at_least(len(log.lines("session-closed")) + 1, "session-closed")
        async with running(chain, "intermediate", tmp_path):
            await log.line("session-open")


async def test_a_node_answers_with_its_guid_and_only_what_is_a_ping(
    tmp_path: Path, stranger: socket.socket
) -> None:
    chain = a_chain()
    node = chain.nodes["sender"]
    malformed = [
        b"",
        b"\0",
        a_request(1)[:-1],
        a_request(2) + b"\0",
        a_request(3) * 2,
        b"\0" * 24,
        bytes(65_000),
    ]
    async with running(chain, "sender", tmp_path):
        for datagram in [*malformed, a_request(7), a_request(8, manager=node.guid)]:
            stranger.sendto(datagram, node.ping_address)
        assert await hear(stranger) == Ping(cookie=7, qm_guid=node.guid)
        refusal = await hear(stranger)
        assert (refusal.cookie, refusal.refused) == (8, True)


async def test_nothing_is_sent_to_a_ping_port_since_it_would_be_answered(
    tmp_path: Path, stranger: socket.socket
) -> None:
    chain = a_chain()
    node, other = chain.nodes["sender"], chain.nodes["destination"]
    async with running(chain, "sender", tmp_path):
        with closing(socket.socket(type=socket.SOCK_DGRAM)) as forged:
            forged.bind(other.ping_address)
            forged.setblocking(False)
            forged.sendto(a_request(1), node.ping_address)
            stranger.sendto(a_request(2), node.ping_address)
            assert (await hear(stranger)).cookie == 2
            with pytest.raises(BlockingIOError):
                forged.recv(100)


async def test_a_flood_is_looked_at_a_round_at_a_time_and_neighbours_are_answered_in_it(
    tmp_path: Path, stranger: socket.socket, mock_clock: MockClock
) -> None:
    chain = a_chain()
    node = chain.nodes["sender"]
    elsewhere = {
        name: replace(chain.nodes[name], host="127.0.0.2") for name in ("intermediate", "destination")
    }
    chain = replace(chain, nodes={**chain.nodes, **elsewhere})
    async with running(chain, "sender", tmp_path):
        with closing(socket.socket(type=socket.SOCK_DGRAM)) as known:
            known.bind(("127.0.0.2", 0))
            known.setblocking(False)
            for cookie in range(ROUND - 1):
                stranger.sendto(a_request(cookie), node.ping_address)
            for cookie in (ROUND, ROUND + 1):
                known.sendto(a_request(cookie), node.ping_address)
            assert (await hear(known)).cookie == ROUND
            heard = [(await hear(stranger)).cookie for _ in range(ROUND_OF_STRANGERS)]
            await wait_all_tasks_blocked()
            for asking in (known, stranger):
                with pytest.raises(BlockingIOError):
                    asking.recv(100)
            mock_clock.jump(PAUSE_S)
            assert (await hear(known)).cookie == ROUND + 1
    assert heard == list(range(ROUND_OF_STRANGERS))


async def test_a_node_that_answers_no_pings_has_no_ping_port(tmp_path: Path, stranger: socket.socket) -> None:
    chain = a_chain(silent=["sender"])
    log = Log()
    async with running(chain, "sender", tmp_path, log):
        started = await log.line("started")
        assert (started["answer_pings"], started["require_pings"]) == ("off", "off")
        stranger.connect(chain.nodes["sender"].ping_address)
        stranger.send(a_request(1))
        await trio.lowlevel.wait_readable(stranger)
        with pytest.raises(ConnectionRefusedError):
            stranger.recv(100)


async def test_a_node_that_stops_does_not_wait_for_responses(
    tmp_path: Path, stranger: socket.socket, mock_clock: MockClock
) -> None:
    """The clock stands still, so the second that a response may take never passes."""
    chain = a_chain("sender")
    silent = replace(chain.nodes["intermediate"], ping=stranger.getsockname())
    chain = replace(chain, nodes={**chain.nodes, "intermediate": silent})
    async with running(chain, "sender", tmp_path), connect(chain, "sender", tmp_path) as client:
        await client.send(DESTINATION, b"waits", transactional=True)
        await trio.lowlevel.wait_readable(stranger)
    assert mock_clock.current_time() == 0


async def test_a_declared_ping_port_that_is_taken_or_reached_from_outside_is_refused_in_one_line(
    tmp_path: Path,
) -> None:
    chain = a_chain()
    host, port = chain.nodes["sender"].ping_address
    with closing(socket.socket(type=socket.SOCK_DGRAM)) as other:
        other.bind((host, port))
        with pytest.raises(UsageError, match=rf"^{host}:{port} \(UDP\) is taken by another program"):
            await run_node(chain, "sender", tmp_path, log=Log())
    outside = replace(chain.nodes["sender"], ping=("0.0.0.0", port))
    chain = replace(chain, nodes={**chain.nodes, "sender": outside})
    with pytest.raises(UsageError, match="--allow-remote"):
        await run_node(chain, "sender", tmp_path, log=Log())


async def test_a_node_whose_usual_ping_port_is_taken_says_so_and_starts(tmp_path: Path) -> None:
    """The node's user has not requested that port, so the node starts. It sends no Pings before it calls, even if it
    should.
    """
    chain = a_chain("sender")
    sender = replace(chain.nodes["sender"], ping=None, host="127.0.77.1")
    chain = replace(chain, nodes={**chain.nodes, "sender": sender})
    log = Log()
    async with AsyncExitStack() as held:
        other = held.enter_context(closing(socket.socket(type=socket.SOCK_DGRAM)))
        other.bind(("127.0.77.1", 3527))
        await held.enter_async_context(running(chain, "sender", tmp_path, log))
        started, unanswered = await log.line("started"), await log.line("pings-unanswered")
        assert (started["answer_pings"], started["require_pings"]) == ("off", "on")
        assert str(unanswered["reason"]).startswith("127.0.77.1:3527 (UDP) is taken by another program")
        await held.enter_async_context(running(chain, "intermediate", tmp_path))
        client = await held.enter_async_context(connect(chain, "sender", tmp_path))
        await client.send(DESTINATION, b"asked for", transactional=True)
        await log.line("session-open")


async def test_nobody_at_a_blocked_host_is_answered(tmp_path: Path, stranger: socket.socket) -> None:
    chain = a_chain()
    address = chain.nodes["destination"].ping_address
    async with running(chain, "destination", tmp_path), connect(chain, "destination", tmp_path) as client:
        await client.block("127.0.0.1", forced=True)
        stranger.sendto(a_request(1), address)
        await client.queues()
        await client.unblock("127.0.0.1")
        while True:
            stranger.sendto(a_request(2), address)
            with trio.move_on_after(1):
                assert (await hear(stranger)).cookie == 2
                break

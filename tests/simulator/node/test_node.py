"""Queue managers as processes: acknowledged data is never lost, whatever is killed, and every error is reported in one
line.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import socket
import sqlite3
import stat
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from mqproto.base.errors import UsageError
from mqproto.messages.drafts import Draft
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.client import Client, InDoubt, connect
from mqproto.simulator.node.node import DESCRIPTORS, RunningNode, run_node
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.log import REMOVALS, LogLimits
from mqproto.simulator.topology import Topology, load, places
from mqproto.turn.effects import Writes
from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    EstablishConnection,
    Guid,
    PacketBuffer,
    decode_packet,
    encode_packet,
    establish_connection,
)
from tests.examples import EVERY_PACKET, a_user_message
from tests.simulator.running import DESTINATION, Log, NodeProcess, processes, running

ORDERS = r".\private$\orders"
STRANGER = Guid(b"a stranger's guid"[:16])


def shake_hands(client: Guid = STRANGER) -> bytes:
    """Return the packets that open a session under the identity of a queue manager."""
    parameters = ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64)
    request = establish_connection(client=client, server=NULL_GUID, time_stamp_ms=0)
    return encode_packet(request) + encode_packet(parameters)


def spoilt(dice: random.Random) -> bytes:
    """Return a packet of any kind with a few bytes overwritten, its end cut off, or bytes inserted."""
    packet = bytearray(dice.choice(EVERY_PACKET))
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(packet))
        match dice.randrange(4):
            case 0:
                packet[at : at + 4] = dice.choice([b"\xff" * 4, bytes(4), b"\xff\xff\xff\x7f"])
            case 1:
                packet[at:at] = dice.randbytes(dice.randint(1, 9))
            case 2:
                del packet[max(at, 16) :]
            case _:
                packet[at] = dice.randrange(256)
    return bytes(packet)


@pytest.fixture
def chain() -> Topology:
    """Return the nodes sender, intermediate and destination, on ports that were free a moment ago."""
    return load("three-node").with_free_ports()


async def test_the_log_has_the_waypoints_of_each_message_if_the_topology_asks(
    chain: Topology, tmp_path: Path
) -> None:
    """From "Keep the Logs Clean": "search the logs by the message ID and restore the whole history of the message"."""
    logs = {name: Log() for name in chain.nodes}
    async with AsyncExitStack() as nodes:
        for name, log in logs.items():
            await nodes.enter_async_context(running(chain.with_waypoints(), name, tmp_path, log))
        async with connect(chain, "sender", tmp_path) as client:
            message = await client.send(DESTINATION, b"hello", transactional=True)
        async with (
            connect(chain, "destination", tmp_path) as client,
            client.transaction("orders", timeout_s=20) as [_],
        ):
            pass
        for name, waypoint in (
            ("sender", "accepted"),
            ("intermediate", "sent"),
            ("destination", "committed"),
        ):
            line = await logs[name].line(waypoint)
            assert (line["node"], line["message"]) == (name, str(message))


async def test_a_chain_delivers_once_and_in_order_while_its_nodes_are_killed(
    chain: Topology, tmp_path: Path
) -> None:
    drafts = [Draft(body=f"order {number}".encode(), transactional=True) for number in range(500)]
    received: list[bytes] = []

    async def receive_until(node: NodeProcess, count: int) -> None:
        async with node.client() as client:
            while len(received) < count:
                async with client.transaction("orders", limit=20) as messages:
                    batch = [message.body for message in messages]
                received.extend(batch)

    async def send_one_by_one(client: Client) -> None:
        for draft in drafts[300:]:
            await client.send_many(DESTINATION, [draft])

    async with processes(chain, tmp_path) as nodes, nodes["sender"].client() as sender:
        intermediate, destination = nodes["intermediate"], nodes["destination"]
        await sender.send_many(DESTINATION, drafts[:150])
        await receive_until(destination, 50)
        assert await intermediate.end(signal.SIGKILL) == -signal.SIGKILL
        await sender.send_many(DESTINATION, drafts[150:300])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_one_by_one, sender)
            await intermediate.start()
            await receive_until(destination, 350)
            await destination.end(signal.SIGKILL)
            await destination.start()
            await receive_until(destination, 500)
        async with destination.client() as client:
            assert await client.peek("orders") == []
    assert received == [draft.body for draft in drafts]


async def test_what_was_accepted_survives_the_kill_that_follows_at_once(
    chain: Topology, tmp_path: Path
) -> None:
    alone = replace(chain, nodes={"destination": chain.nodes["destination"]}, links=(), routes={})
    async with processes(alone, tmp_path) as nodes:
        node = nodes["destination"]
        async with node.client() as client:
            sent = [await client.send(ORDERS, b"kept", transactional=True) for _ in range(3)]
            await node.end(signal.SIGKILL)
        await node.start()
        async with node.client() as client:
            assert [message.id for message in await client.receive("orders", limit=10)] == sent


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_stop_ends_a_node_with_status_0(
    chain: Topology, tmp_path: Path, number: signal.Signals
) -> None:
    node = NodeProcess(chain, "sender", tmp_path)
    await node.start()
    async with node.client() as client:
        await client.send(DESTINATION, b"waits", transactional=True)
        assert await node.end(number) == 0
    events = [json.loads(line)["event"] for line in (tmp_path / "sender.log").read_text().splitlines()]
    assert (events[0], events[-1]) == ("started", "stopped")


@pytest.mark.parametrize("says", [b"", shake_hands()], ids=["nothing", "hello"])
async def test_who_calls_as_a_node_stops_does_not_keep_it(
    chain: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: bytes
) -> None:
    """Such callers are accepted after the last turn, in which the core has closed all sessions that it knew."""
    callers: list[socket.socket] = []
    pump = RunningNode.pump

    async def called_at_the_end(node: RunningNode) -> None:
        await pump(node)
        host, port = chain.nodes["destination"].host, chain.nodes["destination"].port
        callers.append(socket.create_connection((host, port)))
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(places.socket_path(tmp_path, "destination")))
        callers.append(client)
        for caller in callers:
            caller.sendall(says)
        for _ in range(5):
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr(RunningNode, "pump", called_at_the_end)
    async with running(chain, "destination", tmp_path):
        pass
    for caller in callers:
        with caller, suppress(ConnectionResetError):
            while caller.recv(1_000):
                pass


async def test_a_supervised_node_ends_with_its_standard_input(chain: Topology, tmp_path: Path) -> None:
    node = NodeProcess(chain, "sender", tmp_path)
    await node.start()
    assert node.process is not None
    assert node.process.stdin is not None
    await node.process.stdin.aclose()
    assert await node.wait() == 0


async def test_garbage_closes_its_connection_with_a_reason_and_nothing_else(
    chain: Topology, tmp_path: Path
) -> None:
    log = Log()
    async with (
        running(chain, "destination", tmp_path, log),
        connect(chain, "destination", tmp_path) as client,
        await trio.open_tcp_stream(*chain.nodes["destination"].address) as stranger,
    ):
        await stranger.send_all(b"GET / HTTP/1.1\r\nHost: destination\r\n\r\n")
        assert [chunk async for chunk in stranger] == []
        closed = await log.line("session-closed")
        assert (closed["section"], closed["peer"]) == ("3.1.5.1.3", "127.0.0.1")
        assert closed["reason"].startswith("base.version_number at byte 0 is 0x47, must be 0x10")
        await client.send(r".\private$\notes", b"still here")


@pytest.mark.long
async def test_a_thousand_hostile_packets_close_a_thousand_sessions_each_with_a_reason(
    chain: Topology, tmp_path: Path
) -> None:
    """Each stranger completes the handshake, and then sends one packet that is damaged at random, whole or in
    pieces.
    """
    dice = random.Random(2026)
    hostile = [spoilt(dice) for _ in range(1_000)]
    log = Log()
    address = chain.nodes["destination"].address
    async with (
        running(chain, "destination", tmp_path, log),
        connect(chain, "destination", tmp_path) as client,
    ):
        await client.send(r".\private$\notes", b"before")
        places_left = trio.CapacityLimiter(20)

        async def attack(packet: bytes) -> None:
            async with places_left, await trio.open_tcp_stream(*address) as stranger:
                await stranger.send_all(shake_hands())
                await stranger.send_all(packet)
                await stranger.send_eof()
                with suppress(trio.BrokenResourceError):  # The node may close while we have more to say.
                    assert [len(chunk) async for chunk in stranger]

        async with trio.open_nursery() as nursery:
            for packet in hostile:
                nursery.start_soon(attack, packet)
        assert [message.body for message in await client.receive("notes", limit=10)] == [b"before"]
    closed = log.lines("session-closed")
    assert all(line["section"] and line["reason"] for line in closed)
    assert times(closed) >= len(hostile)
    refused = times(line for line in closed if line["section"] == "3.1.5.1.3")
    assert refused > len(hostile) // 3, "too few of the packets were wrong in themselves"


async def test_a_refusal_reaches_the_peer_before_its_connection_is_closed(
    chain: Topology, tmp_path: Path
) -> None:
    request = establish_connection(client=STRANGER, server=STRANGER, time_stamp_ms=0)
    async with (
        running(chain, "destination", tmp_path),
        await trio.open_tcp_stream(*chain.nodes["destination"].address) as stranger,
    ):
        # What comes after the request is unread when the node closes, which must not cost us the answer.
        await stranger.send_all(encode_packet(request) + bytes(300_000))
        assert len(b"".join([chunk async for chunk in stranger])) == len(encode_packet(request))


def times(lines: Iterable[dict[str, Any]]) -> int:
    """Return how often the events in these lines happened; repetitions that a line reports are counted."""
    return sum(line.get("repeated", 1) for line in lines)


async def test_silent_connections_are_closed_when_their_handshake_is_overdue(
    chain: Topology, tmp_path: Path
) -> None:
    node = chain.nodes["destination"]
    hasty = replace(node, settings=replace(node.settings, session_initialization_timeout_ms=50))
    chain = replace(chain, nodes={**chain.nodes, "destination": hasty})
    log = Log()
    async with running(chain, "destination", tmp_path, log), trio.open_nursery() as nursery:

        async def stay_silent() -> None:
            async with await trio.open_tcp_stream(*node.address) as stranger:
                assert [chunk async for chunk in stranger] == []

        for _ in range(30):
            nursery.start_soon(stay_silent)
    assert {line["section"] for line in log.lines("session-closed")} == {"3.1.6.6"}
    assert times(log.lines("session-closed")) == 30


async def test_a_neighbour_that_is_not_there_is_named_and_tried_again(
    chain: Topology, tmp_path: Path
) -> None:
    log = Log()
    where = "{}:{}".format(*chain.nodes["intermediate"].address)
    async with running(chain, "sender", tmp_path, log), connect(chain, "sender", tmp_path) as client:
        await client.send(DESTINATION, b"waits", transactional=True)
        assert (await log.line("session-closed"))["reason"] == f"connection refused by {where}"
        [queue] = (await client.queues()).outgoing
        assert (queue.state, queue.last_failure) == ("disconnected", f"connection refused by {where}")
        async with running(chain, "intermediate", tmp_path):
            await log.line("session-open")


async def test_connections_leave_from_the_address_of_their_node(chain: Topology, tmp_path: Path) -> None:
    sender = replace(chain.nodes["sender"], host="127.0.0.2")
    chain = replace(chain, nodes={**chain.nodes, "sender": sender})
    log = Log()
    async with (
        running(chain, "sender", tmp_path),
        running(chain, "intermediate", tmp_path, log),
        connect(chain, "sender", tmp_path) as client,
    ):
        await client.send(DESTINATION, b"one", transactional=True)
        async with connect(chain, "intermediate", tmp_path) as watcher:
            while not (await watcher.queues()).sessions_open:
                await trio.lowlevel.checkpoint()
    assert "127.0.0.2" in {line["peer"] for line in log.lines("session-closed")}


async def test_a_commit_that_fails_ends_the_node_and_nothing_of_its_batch_is_said(
    chain: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    commit = Store.commit

    def fail(store: Store, writes: Writes) -> None:
        if writes.messages:
            raise StoreError("the disk is full")
        commit(store, writes)

    monkeypatch.setattr(Store, "commit", fail)
    answers = []

    async def send() -> None:
        async with connect(chain, "destination", tmp_path, patience_s=0.1) as client:
            with pytest.raises(InDoubt):
                await client.send(ORDERS, b"lost", transactional=True)
            answers.append("in doubt")

    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[object]) -> None:
            with pytest.raises(StoreError, match=r"^the disk is full$"):
                await run_node(chain, "destination", tmp_path, log=log, task_status=task_status)

        await nursery.start(run)
        nursery.start_soon(send)
    assert answers == ["in doubt"]
    assert log.lines("failed")[0]["reason"] == "the disk is full"


async def test_of_a_batch_whose_commit_fails_a_neighbour_hears_nothing(
    chain: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The acknowledgment leaves in the batch that stores the message: if it left earlier, it would be a lie."""
    commit, node = Store.commit, chain.nodes["destination"]

    def fail(store: Store, writes: Writes) -> None:
        if writes.messages:
            raise StoreError("the disk is full")
        commit(store, writes)

    message = a_user_message(
        source=chain.nodes["intermediate"].guid,
        destination_manager=node.guid,
        destination=node.queue("notes").identifier,
        recoverable=True,
    )
    heard = PacketBuffer()
    packets: list[bytes] = []

    async def run(*, task_status: trio.TaskStatus[object]) -> None:
        with pytest.raises(StoreError, match=r"^the disk is full$"):
            await run_node(chain, "destination", tmp_path, log=Log(), task_status=task_status)

    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        async with await trio.open_tcp_stream(*node.address) as stranger:
            await stranger.send_all(shake_hands(chain.nodes["intermediate"].guid))
            while len(packets) < 2:
                packets += heard.feed(await stranger.receive_some())
            monkeypatch.setattr(Store, "commit", fail)
            await stranger.send_all(encode_packet(message))
            with suppress(trio.BrokenResourceError):
                async for chunk in stranger:
                    packets += heard.feed(chunk)
    kinds = [type(decode_packet(packet)) for packet in packets]
    assert kinds == [EstablishConnection, ConnectionParameters]


async def test_a_taken_port_is_one_line_that_says_what_to_do(chain: Topology, tmp_path: Path) -> None:
    host, port = chain.nodes["sender"].address
    with closing(socket.create_server((host, port))), pytest.raises(UsageError) as refused:
        await run_node(chain, "sender", tmp_path, log=Log())
    assert str(refused.value) == (
        f"{host}:{port} is taken by another program; stop it or name another address in the topology, "
        "or have `mqproto run --free-ports` choose one"
    )


async def test_only_loopback_is_listened_at_unless_asked_for(chain: Topology, tmp_path: Path) -> None:
    # Free ports are kept at 127.0.0.1 alone. At any other address the system may give the same one to somebody who
    # calls, so this port is below those that it gives away.
    open_to_all = replace(chain.nodes["sender"], host="0.0.0.0", port=18_010)
    chain = replace(chain, nodes={**chain.nodes, "sender": open_to_all})
    with pytest.raises(UsageError, match="--allow-remote"):
        await run_node(chain, "sender", tmp_path, log=Log())
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[object]) -> None:
            await run_node(chain, "sender", tmp_path, allow_remote=True, log=Log(), task_status=task_status)

        await nursery.start(run)
        nursery.cancel_scope.cancel()


async def test_two_nodes_do_not_share_a_store(chain: Topology, tmp_path: Path) -> None:
    async with running(chain, "sender", tmp_path):
        with pytest.raises(StoreError, match="another node has it open"):
            await run_node(chain.with_free_ports(), "sender", tmp_path, log=Log())
        # The one that was there first goes on, and its clients still find it.
        async with connect(chain, "sender", tmp_path) as client:
            assert client.node == "sender"


async def test_the_store_of_another_node_is_refused(chain: Topology, tmp_path: Path) -> None:
    async with running(chain, "sender", tmp_path):
        pass
    places.store_path(tmp_path, "sender").rename(places.store_path(tmp_path, "intermediate"))
    with pytest.raises(StoreError, match="it belongs to"):
        await run_node(chain, "intermediate", tmp_path, log=Log())


async def test_the_files_of_a_node_are_its_owner_s_alone_even_if_it_then_does_not_start(
    chain: Topology, tmp_path: Path
) -> None:
    async with running(chain, "sender", tmp_path):
        pass
    path = places.store_path(tmp_path, "sender").rename(places.store_path(tmp_path, "intermediate"))
    path.chmod(0o644)
    with pytest.raises(StoreError, match="it belongs to"):
        await run_node(chain, "intermediate", tmp_path, log=Log())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what another process may do")
async def test_a_node_may_open_more_files_than_a_shell_lets_its_programs(
    chain: Topology, tmp_path: Path
) -> None:
    """Each neighbour and each client needs one open file."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    node = NodeProcess(chain, "sender", tmp_path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
    try:
        await node.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    assert node.process is not None
    allowed, _ = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
    await node.end(signal.SIGTERM)
    assert allowed == min(DESCRIPTORS, most if most != resource.RLIM_INFINITY else DESCRIPTORS)


async def test_what_left_with_one_commit_leaves_the_tables_in_turns_that_commit_nothing(
    chain: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = LogLimits(segment_bytes=10_000, segments=2, memory_bytes=20_000, slice_messages=8)
    monkeypatch.setattr("mqproto.simulator.node.node.Store", partial(Store, limits=small))
    path = places.store_path(tmp_path, "destination")
    async with (
        running(chain, "destination", tmp_path),
        connect(chain, "destination", tmp_path) as client,
    ):
        for _ in range(20):
            await client.send_many(ORDERS, [Draft(body=bytes(100), transactional=True)] * 20)
        await client.purge("orders")
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as shell:
            counts = []
            for _ in range(20):
                await client.queues()
                counts += shell.execute("SELECT count(*) FROM message").fetchone()
    assert counts[0] > counts[-1] <= REMOVALS * small.slice_messages, "as many may wait for the next commit"


async def test_a_node_that_is_cancelled_leaves_neither_socket_nor_lock(
    chain: Topology, tmp_path: Path
) -> None:
    for _ in range(2):
        async with trio.open_nursery() as nursery:

            async def run(*, task_status: trio.TaskStatus[object]) -> None:
                await run_node(chain, "sender", tmp_path, log=Log(), task_status=task_status)

            await nursery.start(run)
            assert places.socket_path(tmp_path, "sender").is_socket()
            nursery.cancel_scope.cancel()
        assert not places.socket_path(tmp_path, "sender").exists()

"""`mqproto peers` with real nodes and real sockets: strangers have a socket each, and the commands are given as a
person types them.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from mqproto.manager.status import NodeStatus, PeersStatus
from mqproto.neighbours.peerstatus import FLOOD_SESSIONS, FloodStatus, Kind, PeerStatus
from mqproto.simulator.client import Client, connect
from mqproto.simulator.client.explain import Explainer
from mqproto.simulator.command.peers import blocked_words, show_peers
from mqproto.simulator.node.control import Blocked, Explanation
from mqproto.simulator.topology import Topology, parse
from mqproto.simulator.topology.views import as_toml
from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    Guid,
    MessageClass,
    UserMessage,
    encode_packet,
    establish_connection,
    guid_text,
    user_message,
)
from tests.simulator.running import NodeProcess, processes, running
from tests.simulator.typed import Done, in_process
from tests.test_readme import how_to

X, Y = Guid(b"a stranger's guid"[:16]), Guid(b"another's guid..")
PAIR = """
name = "pair"
[node.office]
[node.office.queue.inbox]
strangers = true
[node.office.queue.closed]
[node.shop]
from = ["127.0.0.9"]
[[link]]
between = ["office", "shop"]
"""
SHOP, ATTACKER = "127.0.0.9", "127.0.0.66"


@pytest.fixture
def pair(tmp_path: Path) -> Topology:
    """Return `office` and its neighbour `shop`, which has an address of its own and is not running."""
    topology = parse(PAIR, "pair.toml").with_free_ports()
    (tmp_path / "pair.toml").write_text(as_toml(topology))
    return topology


async def typed(folder: Path, *arguments: str) -> Done:
    """Run a command about these nodes while they are running."""
    place = ("--topology", folder / "pair.toml", "--directory", folder)
    return await trio.to_thread.run_sync(partial(in_process, *arguments, *place))


def a_message(client: Guid, server: Guid, queue: int, number: int) -> UserMessage:
    return user_message(
        source=client,
        destination_manager=server,
        destination=queue,
        message_id=number,
        sent_time_s=1_700_000_000,
        body=b"x",
    )


@asynccontextmanager
async def a_peer(
    topology: Topology, host: str = ATTACKER, client: Guid = X, at: str = "office"
) -> AsyncIterator[trio.SocketStream]:
    """Open a session with a node, from a given address and under a given identity."""
    stream = await trio.open_tcp_stream(*topology.nodes[at].address, local_address=host)
    async with stream:
        parameters = ConnectionParameters(
            recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64
        )
        request = establish_connection(client=client, server=NULL_GUID, time_stamp_ms=0)
        await stream.send_all(encode_packet(request) + encode_packet(parameters))
        answer = b""
        while len(answer) < len(encode_packet(request) + encode_packet(parameters)):
            chunk = await stream.receive_some()
            assert chunk, "the session was refused"
            answer += chunk
        yield stream


async def until(client: Client, host: str, **values: Any) -> dict[str, Any]:
    """Return a node's report about a host, as soon as one of its lines has these values."""
    while True:
        for peer in (await client.peers()).peers:
            found = {name: getattr(peer, name) for name in ("kind", "manager", "reason", *values)}
            if peer.host == host and all(found[name] == value for name, value in values.items()):
                return found
        await trio.sleep(0.01)


async def test_who_is_connected_from_where_and_what_it_did(pair: Topology, tmp_path: Path) -> None:
    office, shop = pair.nodes["office"], pair.nodes["shop"]
    inbox, closed = (office.queue(name).identifier for name in ("inbox", "closed"))
    async with running(pair, "office", tmp_path), connect(pair, "office", tmp_path) as client:
        async with (
            a_peer(pair) as stranger,
            a_peer(pair, client=shop.guid, host="127.0.0.67"),
            a_peer(pair, client=shop.guid, host=SHOP),
            await trio.open_tcp_stream(*office.address, local_address="127.0.0.68"),
        ):
            for number, queue in enumerate((inbox, closed, closed), 1):
                await stranger.send_all(encode_packet(a_message(X, office.guid, queue, number)))
            found = await until(client, ATTACKER, messages=3, refused=2, sessions=1)
            assert (found["kind"], found["manager"]) == ("stranger", guid_text(X))
            await until(client, "127.0.0.68", half_open=1)
            shown = (await typed(tmp_path, "peers", "office")).out.splitlines()
            values = json.loads((await typed(tmp_path, "peers", "--json")).out)
        await until(client, ATTACKER, sessions=0)
        later = (await typed(tmp_path, "peers", "office")).out
    assert shown[0] == "office: 4 peers"
    lines = {line.split(": ")[0].strip(): line for line in shown[1:]}
    assert re.match(
        rf"  {ATTACKER}: stranger {guid_text(X)}; 1 open, first seen \d+ s ago; opened 1; received 3 messages, ",
        lines[ATTACKER],
    )
    assert lines[ATTACKER].endswith("; 2 messages refused; last for: NACK_ACCESS_DENIED")
    assert lines["127.0.0.67"].startswith("  127.0.0.67: claims to be shop; 1 open")
    assert lines[SHOP].startswith(f"  {SHOP}: shop; 1 open")
    assert lines["127.0.0.68"].startswith("  127.0.0.68: has not said who it is; 1 half-open")
    assert lines["held for strangers"].startswith("  held for strangers: 0 sequences of 1,000; inbox has ")
    assert [(one["node"], one["running"]) for one in values] == [("office", True), ("shop", False)]
    assert {(peer["host"], peer["kind"], peer["node"]) for peer in values[0]["peers"]} == {
        (ATTACKER, "stranger", None),
        ("127.0.0.67", "claims", "shop"),
        (SHOP, "neighbour", "shop"),
        ("127.0.0.68", "unknown", None),
    }
    assert f"  {ATTACKER}: stranger {guid_text(X)}; gone, last seen " in later


async def test_nobody_from_a_blocked_network_gets_an_answer_over_restarts_as_well(
    pair: Topology, tmp_path: Path
) -> None:
    office = NodeProcess(pair, "office", tmp_path)
    await office.start()
    async with a_peer(pair) as stranger:
        done = await typed(tmp_path, "peers", "block", "127.0.0.64/26", "office")
        assert (done.status, done.out) == (0, "office: 127.0.0.64/26 is blocked, and 1 session ended\n")
        assert [chunk async for chunk in stranger] == []
    await office.end(signal.SIGKILL)
    await office.start()
    async with office.client() as client:
        for _ in range(3):
            stream = await trio.open_tcp_stream(*pair.nodes["office"].address, local_address=ATTACKER)
            async with stream:
                with suppress(trio.BrokenResourceError):
                    assert await stream.receive_some() == b""
        found = await until(client, ATTACKER, opened=3, ended=3, blocked=True, sessions=0, half_open=0)
        assert found["reason"] == "blocked by an operator"
        async with a_peer(pair, host="127.0.0.5", client=Y):
            await until(client, "127.0.0.5", sessions=1, blocked=False)
        shown = (await typed(tmp_path, "peers", "office")).out
        assert (
            "127.0.0.64/26 is blocked; to answer it again: mqproto peers unblock 127.0.0.64/26 office"
            in shown
        )
        done = await typed(tmp_path, "peers", "unblock", "127.0.0.64/26")
        assert (done.status, done.out.splitlines()[0]) == (0, "office: 127.0.0.64/26 is answered again")
        async with a_peer(pair):
            await until(client, ATTACKER, sessions=1, blocked=False)
    await office.end(signal.SIGKILL)


def test_what_the_readme_shows_of_peers_is_what_the_commands_say(
    pair: Topology, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = how_to("peers").partition("$ mqproto peers office\n")[2].partition("```")[0].splitlines()
    shop = PeerStatus(
        host="10.0.0.7",
        kind=Kind.NEIGHBOUR,
        manager=guid_text(pair.nodes["shop"].guid),
        tls=False,
        sessions=1,
        half_open=0,
        first_s=1_000_000 - 7_440,
        last_s=1_000_000,
        opened=1,
        messages=4_210,
        size_bytes=5_912_004,
        sent=64,
        sent_bytes=21_090,
        refused=0,
        ended=0,
        reason="",
        sequences=0,
        held_bytes=0,
        acknowledgments=0,
        blocked=False,
        acknowledged_s=0.0121,
        round_trip_s=0.000_4,
    )
    stranger = replace(
        shop,
        acknowledged_s=None,
        round_trip_s=None,
        host="192.0.2.66",
        kind=Kind.STRANGER,
        manager=guid_text(X),
        sessions=0,
        last_s=1_000_000 - 180,
        messages=900,
        size_bytes=201_301,
        sent=30,
        sent_bytes=1_812,
        refused=899,
        reason=MessageClass.NACK_ACCESS_DENIED.name,
    )
    silent = replace(
        shop,
        acknowledged_s=None,
        round_trip_s=None,
        host="192.0.2.67",
        kind=Kind.UNKNOWN,
        manager="",
        sessions=0,
        half_open=32,
        first_s=1_000_000 - 40,
        opened=1_204,
        messages=0,
        size_bytes=17_100,
        sent_bytes=0,
        ended=1_172,
        reason="too many connections have not said who they are: it is the oldest of its host",
    )
    found = PeersStatus([shop, silent, stranger], [], [("inbox", 229, 2**24)], 1, 1_000, 1_000_000)
    show_peers(pair, {"office": found})
    assert capsys.readouterr().out.splitlines() == shown[: shown.index("$ mqproto explain office")]
    flood = FloodStatus("192.0.2.67", 1_204, 0, 17_100, 1_172, [])
    status = NodeStatus(floods=[flood], quota_bytes=1)
    [line] = Explainer(pair, str).lines({"office": Explanation(status, [])})
    assert line == shown[shown.index("$ mqproto explain office") + 1]
    assert blocked_words(Blocked("192.0.2.67", 32), is_blocked=True) == shown[-1].partition(": ")[2]


async def test_where_a_node_comes_from_is_blocked_with_force_alone(pair: Topology, tmp_path: Path) -> None:
    shop = pair.nodes["shop"]
    async with running(pair, "office", tmp_path), a_peer(pair, client=shop.guid, host=SHOP) as neighbour:
        done = await typed(tmp_path, "peers", "block", "127.0.0.0/28", "office")
        assert done.status == 2
        assert done.complaint == (
            "office: shop may come from 127.0.0.0/28: block them as well with --force; what waits here for them still "
            "goes, as this node calls them"
        )
        done = await typed(tmp_path, "peers", "block", "127.0.0.0/28", "office", "--force")
        assert (done.status, done.out) == (0, "office: 127.0.0.0/28 is blocked, and 1 session ended\n")
        assert [chunk async for chunk in neighbour] == []


async def test_what_is_no_network_and_a_node_that_does_not_run_are_refused_in_one_line(
    pair: Topology, tmp_path: Path
) -> None:
    assert (await typed(tmp_path, "peers")).status == 1
    assert (await typed(tmp_path, "peers", "office")).complaint.startswith("node office is not running")
    async with running(pair, "office", tmp_path):
        done = await typed(tmp_path, "peers", "block", "10.0.0")
        assert done.status == 2
        assert "write an address, or a network as 10.0.0.0/8" in done.complaint
        done = await typed(tmp_path, "peers", "unblock", "10.0.0.7")
        assert done.complaint == "office: 10.0.0.7 is not blocked; blocked are: none"


async def test_explain_names_the_host_that_floods_a_node_and_its_command_blocks_it(
    pair: Topology, tmp_path: Path
) -> None:
    address = pair.nodes["office"].address
    async with running(pair, "office", tmp_path), connect(pair, "office", tmp_path) as client:
        async with a_peer(pair, host="127.0.0.5"):
            assert "floods" not in (await typed(tmp_path, "explain", "office")).out
            for _ in range(FLOOD_SESSIONS):
                with socket.socket() as attacker:
                    attacker.bind((ATTACKER, 0))
                    attacker.connect(address)
                    attacker.sendall(b"GET / HTTP/1.1\r\nHost: office\r\n\r\n")
            await until(client, ATTACKER, opened=FLOOD_SESSIONS)
            [line] = [
                line
                for line in (await typed(tmp_path, "explain", "office")).out.splitlines()
                if "floods" in line
            ]
        assert line.startswith(
            f"{ATTACKER} floods office: in the last minute it opened 100 connections, sent 0 messages and "
        )
        command = line.partition("`mqproto ")[2].partition("`")[0]
        done = await trio.to_thread.run_sync(partial(in_process, *shlex.split(command)))
        assert done.out.startswith(f"office: {ATTACKER} is blocked")


async def test_queues_and_explain_answer_whatever_is_held(pair: Topology, tmp_path: Path) -> None:
    """A neighbour, or a program at its address, makes a node create 20,000 queues for queue managers that do not
    exist.
    """
    count, listed = 20_000, 500
    shop = pair.nodes["shop"]
    made_up = b"".join(
        encode_packet(a_message(shop.guid, Guid(b"made up %08d" % number), 16, number))
        for number in range(1, count + 1)
    )
    async with (
        processes(pair, tmp_path) as nodes,
        nodes["office"].client() as client,
        a_peer(pair, SHOP, shop.guid) as neighbour,
        trio.open_nursery() as nursery,
    ):

        async def drain() -> None:
            async for _ in neighbour:
                pass

        nursery.start_soon(drain)
        await neighbour.send_all(made_up)
        await until(client, SHOP, messages=count)
        status = await client.queues()
        assert len(status.outgoing) == listed
        assert (status.unlisted, status.unlisted_waiting) == (count - listed, count - listed)
        for subject in ("", "office", "shop"):
            assert len((await client.explain(subject)).status.outgoing) <= listed
        name = guid_text(Guid(b"made up %08d" % count))
        found = await client.explain(name)
        assert [(queue.name, queue.waiting) for queue in found.status.outgoing] == [(name, 1)]
        done = await typed(tmp_path, "queues")
        nursery.cancel_scope.cancel()
    assert done.status == 0
    assert "office has 19,500 more outgoing queues, with 19,500 messages; see who made them" in done.out

"""Probes of real nodes, and of other programs that may listen on a port."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE, run_command
from mqproto.simulator.command.handshake import Outcome
from mqproto.simulator.command.probe import Report, as_json, as_lines, probe, target
from mqproto.simulator.topology import TopologyError, load
from mqproto.simulator.topology.ports import reserved_address
from mqproto.wire import Ping, encode_packet, establish_connection, guid_text, ping_packet
from tests.simulator.node.test_pings import a_chain
from tests.simulator.running import running

HASTE_S = 0.2
"""How long, in seconds, a test waits for nodes that will not answer."""
LIOR = encode_packet(establish_connection(client=bytes(16), server=bytes(16), time_stamp_ms=0))[:16]  # type: ignore[arg-type]

Manners = Callable[[trio.SocketStream], Awaitable[None]]


@asynccontextmanager
async def listening(manners: Manners) -> AsyncIterator[int]:
    """Run a server that treats each connection in the given manner; yield its port."""
    async with trio.open_nursery() as nursery:

        async def serve(stream: trio.SocketStream) -> None:
            async with stream:
                with suppress(trio.BrokenResourceError):
                    await manners(stream)

        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def answering(answers: Callable[[Ping], list[bytes]]) -> AsyncIterator[int]:
    """Run a server that gives these answers to a datagram; yield its port."""
    with trio.socket.socket(type=socket.SOCK_DGRAM) as bound:
        await bound.bind(("127.0.0.1", 0))

        async def answer() -> None:
            datagram, address = await bound.recvfrom(100)
            for response in answers(ping_packet.decode(datagram)):
                await bound.sendto(response, address)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            yield bound.getsockname()[1]
            nursery.cancel_scope.cancel()


def a_free_port() -> int:
    """Return a port without a listener for connections or datagrams."""
    _, port = reserved_address()
    return port


async def asked(port: int, ping_port: int | None = None, timeout_s: float = 20) -> Report:
    where = ping_port or a_free_port()
    return await probe("127.0.0.1", port, ping_port=where, timeout_s=timeout_s)


def text(report: Report) -> str:
    return "\n".join(as_lines(report))


# Queue managers


@pytest.mark.parametrize("ping", [True, False])
async def test_a_node_says_who_it_is_and_what_it_would_do(tmp_path: Path, ping: bool) -> None:
    topology = a_chain(silent=[] if ping else ["sender"])
    node = topology.nodes["sender"]
    async with running(topology, "sender", tmp_path):
        report = await asked(node.port, node.ping_address[1])
    assert report.is_msmq
    assert (report.tcp.manager, report.tcp.window_size) == (node.guid, node.settings.window_size)
    assert (report.tcp.ack_timeout_ms, report.tcp.recoverable_ack_timeout_ms) == (20_000, 500)
    assert report.ping.outcome is (Outcome.ACCEPTED if ping else Outcome.UNREACHABLE)
    assert text(report).startswith(f"127.0.0.1:{node.port}: MSMQ, accepts a session\n")
    assert ("the same queue manager would accept a session" in text(report)) is ping
    assert "0x0210, about who asked: the system there is not known" in text(report)


async def test_a_node_that_is_full_is_msmq_and_refuses_by_both_ways(tmp_path: Path) -> None:
    topology = a_chain()
    node = topology.nodes["sender"]
    full = replace(node, settings=replace(node.settings, maximum_sessions=1))
    topology = replace(topology, nodes={**topology.nodes, "sender": full})
    async with running(topology, "sender", tmp_path), await trio.open_tcp_stream(*node.address):
        report = await asked(node.port, node.ping_address[1])
    assert report.is_msmq
    assert (report.tcp.outcome, report.ping.outcome) == (Outcome.REFUSED, Outcome.REFUSED)
    assert "MSMQ, refuses us a session" in text(report)
    assert "would refuse a session" in text(report)


async def test_probing_leaves_nothing_behind(tmp_path: Path) -> None:
    topology = a_chain()
    node = topology.nodes["sender"]
    async with running(topology, "sender", tmp_path) as running_node:
        await asked(node.port, node.ping_address[1])
        while running_node.core.status().sessions_open:
            await trio.lowlevel.checkpoint()
        assert running_node.core.status().outgoing == []


class Names(trio.abc.HostnameResolver):
    """A resolver that knows one name, which has two addresses."""

    async def getaddrinfo(self, host: Any, port: Any, *_: Any) -> Any:
        if host != b"two.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (it, port)) for it in ("127.0.0.9", "127.0.0.1")]

    async def getnameinfo(self, *_: Any) -> Any:
        raise AssertionError


async def test_a_name_with_several_addresses_is_asked_at_each_until_one_answers(tmp_path: Path) -> None:
    topology = a_chain()
    node = topology.nodes["sender"]
    trio.socket.set_custom_hostname_resolver(Names())
    async with running(topology, "sender", tmp_path):
        report = await probe("two.example", node.port, ping_port=a_free_port(), timeout_s=20)
    assert (report.address, report.is_msmq) == ("127.0.0.1", True)
    assert text(report).startswith(f"two.example:{node.port} (127.0.0.1): MSMQ")


# Others


async def be_silent(stream: trio.SocketStream) -> None:
    async for _ in stream:
        pass


async def close_at_once(stream: trio.SocketStream) -> None:
    await stream.receive_some()


async def talk_for_ever(stream: trio.SocketStream) -> None:
    while True:
        await stream.send_all(b"220 mail.example ready\r\n" * 1_000)


async def announce_a_huge_packet(stream: trio.SocketStream) -> None:
    await stream.send_all(LIOR[:8] + b"\xff\xff\xff\xff" + LIOR[12:])
    while True:
        await stream.send_all(bytes(65_536))


async def drip(stream: trio.SocketStream) -> None:
    """Send as slowly as possible without the listener noticing that it is kept waiting."""
    await stream.send_all(LIOR)
    while True:
        await stream.send_all(b"\0")
        await trio.sleep(HASTE_S / 4)


@pytest.mark.parametrize(
    ("manners", "outcome", "words"),
    [
        (be_silent, Outcome.SILENT, "connects, and answers no request within 0.2 s"),
        (close_at_once, Outcome.CLOSED, "closes the connection without an answer"),
        (talk_for_ever, Outcome.FOREIGN, "not MSMQ: it says 32 32 30 20 6d 61 69 6c"),
        (announce_a_huge_packet, Outcome.INVALID, "begins like MSMQ, and gives no answer: base.packet_size"),
        (drip, Outcome.INVALID, "its packet breaks off"),
    ],
)
async def test_whoever_else_listens_is_told_from_msmq_in_the_time_allowed(
    manners: Manners, outcome: Outcome, words: str, idle_clock: MockClock
) -> None:
    began_s = trio.current_time()
    async with listening(manners) as port:
        report = await asked(port, timeout_s=HASTE_S)
    assert report.tcp.outcome is outcome
    assert not report.is_msmq
    assert words in text(report)
    assert trio.current_time() - began_s < 5


async def test_where_nobody_listens_that_is_said() -> None:
    report = await asked(a_free_port())
    assert (report.tcp.outcome, report.ping.outcome) == (Outcome.UNREACHABLE, Outcome.UNREACHABLE)
    assert text(report).count("nobody listens") == 2


async def test_a_connection_that_does_not_come_about_is_given_up(idle_clock: MockClock) -> None:
    """A listener with a full backlog leaves callers waiting."""
    with ExitStack() as held:
        full = held.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        report = await asked(full.getsockname()[1], timeout_s=HASTE_S)
    assert report.tcp.outcome is Outcome.UNREACHABLE
    assert text(report).partition("\n")[0].endswith(": no connection within 0.2 s")


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", "x" * 300])
async def test_a_name_of_nobody_is_said_to_be_one(host: str) -> None:
    trio.socket.set_custom_hostname_resolver(Names())
    report = await probe(host, timeout_s=20)
    assert not report.is_msmq
    assert text(report) == f"{host}:1801: no computer is found under this name"


# Pings


def forged(cookie: int) -> list[bytes]:
    return [
        b"",
        b"x" * 24,
        ping_packet.encode(Ping(cookie=cookie + 1 & 0xFFFFFFFF)),
        ping_packet.encode(Ping(cookie=cookie))[:-1],
    ]


@pytest.mark.parametrize(
    ("answers", "outcome", "words"),
    [
        (lambda _: [], Outcome.SILENT, "no answer within 0.2 s"),
        (lambda ping: forged(ping.cookie)[2:3], Outcome.INVALID, "its cookie is another"),
        (lambda ping: [b"GARBAGE!" * 3], Outcome.FOREIGN, "not a Ping: 47 41 52 42"),
        (lambda ping: [b"\0\0HW" + ping_packet.encode(ping)[4:]], Outcome.FOREIGN, "not a Ping: 00 00 48 57"),
        (lambda ping: forged(ping.cookie) * 30, Outcome.FOREIGN, "not a Ping"),
        (lambda ping: [*forged(ping.cookie), ping_packet.encode(ping)], Outcome.ACCEPTED, "would accept"),
    ],
)
async def test_only_the_answer_to_our_ping_counts(
    answers: Callable[[Ping], list[bytes]], outcome: Outcome, words: str, idle_clock: MockClock
) -> None:
    async with answering(answers) as ping_port:
        report = await asked(a_free_port(), ping_port, timeout_s=HASTE_S)
    assert report.ping.outcome is outcome
    assert words in text(report)
    assert not report.is_msmq
    assert ("but MSMQ answers pings" in text(report)) is (outcome is Outcome.ACCEPTED)


# The command


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("queue.example", ("queue.example", 1801)),
        ("10.0.0.1:1802", ("10.0.0.1", 1802)),
        ("[::1]:9", ("::1", 9)),
        ("[::1]", ("::1", 1801)),
    ],
)
def test_a_target_is_read_as_people_write_it(typed: str, meant: tuple[str, int]) -> None:
    assert target(typed) == meant


@pytest.mark.parametrize("typed", ["", ":1801", "host:", "host:0", "host:65536", "::1", "a b", "a\nb"])
def test_a_target_that_is_none_is_misuse(typed: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TopologyError, match=r"^HOST: "):
        target(typed)
    assert run_command(["probe", typed]) == MISUSE
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_the_command_ends_with_1_where_nobody_is_and_says_it_for_programs_too(
    capfd: pytest.CaptureFixture[str],
) -> None:
    where = f"127.0.0.1:{a_free_port()}"
    ping_port = str(a_free_port())
    assert run_command(["probe", where, "--ping-port", ping_port]) == FINDING
    assert capfd.readouterr().out.splitlines()[0] == f"{where}: nobody listens"
    assert run_command(["probe", where, "--ping-port", ping_port, "--json"]) == FINDING
    found = json.loads(capfd.readouterr().out)
    assert (found["msmq"], found["tcp"]["outcome"]) == (False, "unreachable")


async def test_the_command_ends_with_0_where_msmq_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topology = a_chain()
    node = topology.nodes["sender"]
    arguments = ["probe", f"127.0.0.1:{node.port}", "--ping-port", str(node.ping_address[1]), "--json"]
    async with running(topology, "sender", tmp_path):
        assert await trio.to_thread.run_sync(run_command, arguments) == DONE
    found = json.loads(capfd.readouterr().out)
    assert found["msmq"] is True
    assert found["tcp"]["manager"] == found["ping"]["manager"]


def test_the_example_of_the_help_is_a_node_that_can_be_probed(capfd: pytest.CaptureFixture[str]) -> None:
    node = load("three-node").nodes["intermediate"]
    assert run_command(["probe", "--help"]) == DONE
    shown = capfd.readouterr().out
    assert f"$ mqproto probe {node.host}\n" in shown
    assert f"queue manager   {guid_text(node.guid)}\n" in shown


def test_json_has_every_field_and_null_for_what_is_not_known() -> None:
    report = as_json(Report("h", 1801))
    assert json.loads(json.dumps(report)) == report
    assert report["tcp"]["manager"] is None
    assert report["address"] is None

"""The options of the command, its refusals, and its output."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mqproto.base.errors import UsageError
from mqproto.captures.net.conversation import Side
from mqproto.simulator.base.recorder import Recorder
from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE, run_command
from mqproto.simulator.client import connect
from mqproto.simulator.replay.command import pace_of
from mqproto.simulator.replay.options import ReplayOptions
from mqproto.simulator.rig.links import Links
from mqproto.simulator.rig.supervisor import supervised
from mqproto.simulator.topology import load, parse
from mqproto.wire import Guid, guid_text
from tests.conversations import (
    CLIENT,
    DESTINATION,
    SENDER,
    SERVER,
    a_message,
    answered,
    exchange,
    handshake,
    write,
)
from tests.simulator.replay.runs import (
    Peer,
    a_destination,
    acknowledge,
    listening,
    played,
    received,
    recorded,
    settled,
    texts,
)
from tests.simulator.running import running_with_client
from tests.test_readme import console_blocks

COUNT = 30


class Names(trio.abc.HostnameResolver):
    """A resolver that knows one name, which belongs to a computer elsewhere."""

    async def getaddrinfo(self, host: Any, port: Any, *_: Any) -> Any:
        if host != b"msmq.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))]

    async def getnameinfo(self, *_: Any) -> Any:
        raise AssertionError


# What is refused


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "whom to play to?"),
        (
            {"to": "192.0.2.1"},
            "192.0.2.1 is not on loopback: ask for that with --allow-remote",
        ),
        ({"to": "msmq.example"}, "msmq.example, 192.0.2.1, is not on loopback"),
        ({"to": "nowhere.example"}, "no computer is called nowhere.example"),
        ({"to": "127.0.0.1:port"}, "port"),
        ({"to": "192.0.2.1", "allow_remote": True}, "to a remote peer say who to be: --identity new"),
        ({"listen": "0.0.0.0:1801"}, "0.0.0.0 is not on loopback"),
        ({"to": "127.0.0.1:9", "speed": "fast"}, "--speed fast: write captured, max, or a factor"),
        ({"to": "127.0.0.1:9", "speed": "0"}, "--speed 0"),
        ({"to": "127.0.0.1:9", "speed": "nan"}, "--speed nan"),
        ({"to": "127.0.0.1:9", "identity": "me"}, "--identity me: write captured, new, or a GUID"),
        ({"to": "127.0.0.1:9", "identity": "new", "as_captured": True}, "--as-captured rewrites nothing"),
        ({"to": "127.0.0.1:9", "side": "10.9.9.9"}, "no side of a conversation is 10.9.9.9"),
        ({"to": "127.0.0.1:9", "side": "server"}, "has no message to play; name another side with --side"),
        ({"to": "127.0.0.1:9", "connection": 3}, "connection 3 has no MSMQ"),
        (
            {"to": "127.0.0.1:9", "side": "server", "as_captured": True},
            "is not the client's: with --as-captured name --side client",
        ),
        ({"to": "127.0.0.1:9", "message": ""}, "--message takes a message: its identifier"),
        ({"to": "127.0.0.1:9", "message": "label"}, "--message 'label': no message has this identifier"),
        ({"to": "127.0.0.1:9", "message": "101"}, "the message is transactional: --node NODE sends it"),
        ({"to": "127.0.0.1:9", "message": "101", "as_captured": True}, "leave --message out"),
    ],
)
async def test_what_makes_no_sense_or_is_not_allowed_is_refused_in_one_line(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    trio.socket.set_custom_hostname_resolver(Names())
    capture = write(tmp_path / "c", answered([1]))
    with pytest.raises(UsageError) as refusal:
        await played(capture, **options)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def no_msmq(path: Path) -> None:
    with path.open("wb") as file:
        recorder = Recorder(file)
        recorder.connection(CLIENT._replace(port=5), SERVER._replace(port=80)).sent(
            Side.CLIENT, b"GET / HTTP/1.1"
        )
        recorder.close()


def nothing(path: Path) -> None:
    path.touch()


def text(path: Path) -> None:
    path.write_text("this is not a capture at all")


def absent(path: Path) -> None:
    pass


def handshake_alone(path: Path) -> None:
    write(path, handshake())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (no_msmq, "there is no MSMQ in it"),
        (nothing, "there is no MSMQ in it"),
        (text, "there is no MSMQ in it; "),
        (absent, "No such file or directory; name a capture, pcap or pcapng"),
        (handshake_alone, "has no message to play"),
    ],
)
def test_a_file_without_anything_to_play_is_misuse(
    tmp_path: Path, make: Callable[[Path], None], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "c")
    assert run_command(["replay", str(tmp_path / "c"), "--to", "127.0.0.1:9"]) == MISUSE
    complaint = capsys.readouterr().err
    assert words in complaint
    assert complaint.count("\n") == 1


async def test_what_comes_before_the_damage_of_a_capture_is_played(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    capture = write(tmp_path / "c", answered([1, 2]))
    capture.write_bytes(capture.read_bytes()[:-30])
    async with listening(Peer(acknowledge)) as address:
        report = await played(capture, address, timeout_s=0.3)
    assert report.sent_count == 2
    assert report.left_out[-1].startswith("what comes after the damage: ")


@pytest.mark.parametrize(
    ("speed", "as_captured", "meant"),
    [
        ("", False, math.inf),
        ("", True, 1),
        ("max", True, math.inf),
        ("captured", False, 1),
        ("2.5", False, 2.5),
    ],
)
def test_the_speed_is_the_peers_own_unless_bytes_are_played(
    speed: str, as_captured: bool, meant: float
) -> None:
    options = ReplayOptions(capture=Path(), speed=speed, as_captured=as_captured)
    assert pace_of(options).speed == meant


class TwoAddresses(trio.abc.HostnameResolver):
    """A resolver that gives each name two addresses, the first of which is unused.

    This is the case for localhost if a program listens only on IPv4.
    """

    async def getaddrinfo(self, host: Any, port: Any, *_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (it, port)) for it in ("127.0.0.9", "127.0.0.1")]

    async def getnameinfo(self, *_: Any) -> Any:
        raise AssertionError


async def test_a_name_with_several_addresses_is_tried_at_each(tmp_path: Path, idle_clock: MockClock) -> None:
    trio.socket.set_custom_hostname_resolver(TwoAddresses())
    async with listening(Peer(acknowledge)) as (_, port):
        report = await played(write(tmp_path / "c", answered([1])[:6]), f"two.example:{port}")
    assert (report.peer, texts(report)) == (f"127.0.0.1:{port}", [])


# One message


async def test_one_message_is_played_alone_as_a_transaction_of_its_own(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    middle = a_message(2)
    assert middle.transaction is not None
    middle.transaction.first = middle.transaction.last = False
    capture = write(tmp_path / "c", exchange([a_message(1), middle, a_message(3)]))
    peer = Peer(acknowledge)
    async with listening(peer) as address:
        report = await played(capture, address, message="label 2", identity="captured")
    [message] = peer.messages
    header = message.transaction
    assert header is not None
    assert (message.properties.label, header.first, header.last) == ("label 2", True, True)
    assert (header.tx_sequence_number, header.previous_tx_sequence_number) == (1, 0)
    assert (texts(report), report.part.split(" of ")[0]) == (
        [],
        f"message {guid_text(SENDER)}\\102 'label 2'",
    )
    assert {"transaction.first", "transaction.last"} <= report.changes.keys()


async def test_a_node_sends_one_message_as_a_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has the captured one's content but a new identity; the node's own sequence continues."""
    file = tmp_path / "desk.toml"
    file.write_text('name = "desk"\n[node.desk]\n[node.desk.queue.orders]\ntransactional = true\n')
    topology = parse(file.read_text(), str(file)).with_free_ports()
    capture = write(tmp_path / "c", answered([1, 2]))
    place = ["--topology", str(file), "--directory", str(tmp_path)]
    maps = ["--map", f"PRIVATE={guid_text(DESTINATION)}\\00000011=desk\\private$\\orders"]
    command = ["replay", str(capture), "--message", "label 2", "--node", "desk", *place, *maps, "--json"]
    async with running_with_client(topology, "desk", tmp_path) as client:
        found = await trio.to_thread.run_sync(run_command, command)
        [message] = await client.receive("orders", timeout_s=20)
    said = json.loads(capsys.readouterr().out)
    assert (found, message.label, bytes(message.body)) == (DONE, "label 2", b"body 2")
    assert (said["message"], said["id"]) == (f"{guid_text(SENDER)}\\102", str(message.id))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--message", "label 1", "--to", "127.0.0.1"], "leave --to, --listen, --identity"),
        ([], "--node sends one message of a capture: say which with --message"),
    ],
)
def test_what_makes_no_sense_beside_a_node_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    capture = write(tmp_path / "c", answered([1]))
    assert run_command(["replay", str(capture), "--node", "sender", *options]) == MISUSE
    assert words in capsys.readouterr().err


# Who we are


@pytest.mark.parametrize(
    ("identity", "is_own"),
    [("", lambda own: own == SENDER), ("captured", lambda own: own == SENDER), ("new", lambda own: own not in
     (SENDER, DESTINATION)), (guid_text(DESTINATION[::-1]), lambda own: own == DESTINATION[::-1])],
)  # fmt: skip
async def test_we_are_who_we_are_asked_to_be(
    tmp_path: Path, identity: str, is_own: Callable[[Guid], bool], idle_clock: MockClock
) -> None:
    peer = Peer(acknowledge)
    async with listening(peer) as address:
        report = await played(write(tmp_path / "c", answered([1, 2])[:6]), address, identity=identity)
    assert texts(report) == []
    assert report.own is not None
    assert is_own(report.own)
    assert {message.user.source_queue_manager for message in peer.messages} == {report.own}


async def test_a_stranger_hears_why_no_order_ack_may_come(tmp_path: Path, idle_clock: MockClock) -> None:
    async with listening(Peer(acknowledge)) as address:
        report = await played(write(tmp_path / "c", answered([1])), address, identity="new", timeout_s=0.2)
    assert "an OrderAck comes only if the peer knows the way to" in report.remarks[0]


# The whole, with real processes


async def record(capture: Path, folder: Path) -> None:
    """Record a run of the pair, each node in a separate process."""
    topology = load("pair").with_free_ports()
    with capture.open("wb") as file:
        recorder = Recorder(file)
        links = Links(topology, recorder)
        async with trio.open_nursery() as nursery:
            detours = await nursery.start(links.run)
            async with (
                supervised(topology, folder, detours) as supervisor,
                connect(topology, "sender", supervisor.directory) as sender,
                connect(topology, "destination", supervisor.directory) as destination,
            ):
                for number in range(COUNT):
                    label = f"order {number}"
                    await sender.send(r"destination\orders", b"x" * number, label=label, transactional=True)
                await received(destination, "orders", COUNT)
                await settled(sender)
            nursery.cancel_scope.cancel()
        recorder.close()


@pytest.mark.long
@pytest.mark.usefixtures("forked_programs")
async def test_a_run_of_processes_is_replayed_to_a_fresh_process_by_the_command(tmp_path: Path) -> None:
    """The run is recorded and replayed: the same messages arrive in order, nothing differs, and the status is 0."""
    capture = tmp_path / "run.pcapng"
    await record(capture, tmp_path / "recorded")
    topology = load("pair").with_free_ports()
    async with (
        supervised(topology, tmp_path / "fresh") as supervisor,
        connect(topology, "destination", supervisor.directory) as client,
    ):
        host, port = topology.nodes["destination"].address
        command = ["replay", str(capture), "--to", f"{host}:{port}", "--json"]
        found, shown = await trio.to_thread.run_sync(partial(run_and_read, command))
        messages = await received(client, "orders", COUNT)
    assert found == DONE
    assert [(each.label, bytes(each.body)) for each in messages] == [
        (f"order {number}", b"x" * number) for number in range(COUNT)
    ]
    report = json.loads(shown)
    assert (report["sent"], report["differences"]) == (COUNT, [])
    assert report["answers"]["OrderAcks"] == {"captured": COUNT, "live": COUNT}


def run_and_read(arguments: list[str]) -> tuple[int, str]:
    """Run the command in a separate process; return its status and output."""
    command = [sys.executable, "-m", "mqproto.simulator.cli.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, env=os.environ, check=False)
    return done.returncode, done.stdout


@pytest.mark.long
async def test_a_difference_is_status_1_and_a_line_with_messages_and_frames(tmp_path: Path) -> None:
    capture = write(tmp_path / "c", answered([1, 2]))
    async with listening(Peer(acknowledge)) as (host, port):
        command = ["replay", str(capture), "--to", f"{host}:{port}", "--timeout", "2"]
        found, shown = await trio.to_thread.run_sync(partial(run_and_read, command))
    assert found == FINDING
    assert (
        "differs: messages 1 to 2 (frames 12 to 14): no OrderAck, the capture has one" in shown.splitlines()
    )
    assert "rewritten" in shown


async def test_what_the_readme_shows_is_what_the_command_says(tmp_path: Path, idle_clock: MockClock) -> None:
    """Figures may differ, and so may the fields that depend on the speed of the run."""
    capture = tmp_path / "run.pcapng"
    (tmp_path / "recorded").mkdir()
    topology = load("pair").with_free_ports()
    async with (
        recorded(topology, tmp_path / "recorded", capture),
        connect(topology, "sender", tmp_path / "recorded") as sender,
    ):
        for number in range(3):
            await sender.send(r"destination\orders", b"order %d" % number, transactional=True)
        await sender.send(r"destination\notes", b"a note")
        await settled(sender)
    async with a_destination(tmp_path) as (_, address):
        report = await played(capture, address)
    [[command]] = console_blocks("replay-a-capture")
    assert command.text.startswith("mqproto replay run-sender.pcapng --to ")
    printed, shown = (without_figures(text) for text in ("\n".join(report.as_lines()), command.output or ""))
    fields = {line for line in printed + shown if " -> " in line}
    assert [line for line in printed if line not in fields] == [line for line in shown if line not in fields]
    assert {line.split()[0] for line in printed if line in fields} <= {
        line.split()[0] for line in shown if line in fields
    }


def without_figures(text: str) -> list[str]:
    """Return the lines of a text with # for every number, address and file name made of numbers, whatever their
    width.
    """
    tidy = re.sub(r" +", " ", re.sub(r"\b\d+(?:[.:,]\d+)*\b", "#", text))
    return [line.strip() for line in tidy.splitlines()]

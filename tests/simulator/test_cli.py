"""The command as a person meets it: real processes, what they print, and how they end."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from captures.packets import read_packets
from mqproto.wire import TransactionHeader, encode_packet
from simulator import talk
from simulator.bench import example
from simulator.cli import DONE, FINDING, MISUSE, run_command
from simulator.places import store_path
from simulator.topology import load
from simulator.views import as_toml
from tests.conformance import ROOT
from tests.test_readme import Command, blocks, commands

COMMAND = [sys.executable, "-m", "simulator.cli"]
TIMEOUT_S = 30


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line that was said; that it is one, and no traceback, is part of every test that asks."""
        [line] = self.err.splitlines()
        assert line.startswith("mqproto: ")
        return line.removeprefix("mqproto: ")


def mqproto(*arguments: str | Path, stdin: bytes = b"", limit_bytes: int | None = None) -> Done:
    def limit() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        preexec_fn=limit,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def in_process(*arguments: str | Path, stdin: bytes = b"") -> Done:
    """The same without a new process, which takes half a second each."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        status = run_command([str(argument) for argument in arguments])
    written = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Done(status, *written)


def topology_file(folder: Path, name: str = "three-node") -> Path:
    """A topology at ports of its own, so that tests disturb nobody."""
    path = folder / f"{name}.toml"
    path.write_text(as_toml(load(name).with_free_ports()), "utf-8")
    return path


@dataclass(frozen=True)
class Running:
    file: Path
    directory: Path
    process: subprocess.Popen[str]

    def __call__(self, command: str, *arguments: str | Path, stdin: bytes = b"") -> Done:
        return in_process(command, *arguments, "-t", self.file, "-d", self.directory, stdin=stdin)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("run")
    file = topology_file(folder)
    command = [*COMMAND, "run", str(file), "--directory", str(folder / "stores")]
    command += ["--capture", str(folder / "run.pcapng")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("Ctrl-C"):
                break
        else:
            pytest.fail(said)
        yield Running(file, folder / "stores", process)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == DONE, rest
    assert rest.endswith("all nodes have stopped\n")


def test_what_is_sent_at_one_end_is_received_at_the_other(running: Running) -> None:
    place = ("-t", running.file, "-d", running.directory)
    sent = mqproto("send", r"destination\orders", "--body", "hello", "--label", "greeting", *place)
    assert sent.status == DONE
    assert re.fullmatch(r"[0-9A-F-]{36}\\\d+\n", sent.out)
    received = mqproto("receive", r"destination\orders", "--json", *place)
    message = json.loads(received.out)
    assert (message["body"], message["label"], message["transactional"]) == ("hello", "greeting", True)
    assert message["id"] == sent.out.strip()


def test_each_line_is_a_message_and_they_stay_in_order_until_they_are_committed(running: Running) -> None:
    sent = json.loads(
        running("send", r"destination\orders", "-", "--lines", "--json", stdin=b"one\n\ntwo\n").out
    )
    assert len(sent["sent"]) == 3
    given_back = running("receive", "orders", "--count", "1", "--rollback")
    assert given_back.out == "one\n"
    assert running("receive", "orders", "--count", "1").out == "one\n"
    peeked = running("peek", "ORDERS", "--json")
    assert json.loads(peeked.out)["body"] == ""
    assert running("receive", "orders", "--count", "2").out == "\ntwo\n"
    assert running("peek", "orders").complaint == "orders is empty"
    nothing = running("receive", "orders", "--timeout", "0")
    assert nothing.status == FINDING
    assert "mqproto explain orders" in nothing.complaint


def test_bodies_are_bytes_from_files_as_well(running: Running, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(bytes(range(256)))
    assert running("send", r"destination\notes", "--file", tmp_path / "body", "--recoverable").status == DONE
    message = json.loads(running("receive", "notes", "--json").out)
    assert message["body_base64"].startswith("AAECAwQF")
    assert message["transactional"] is False


def test_queues_shows_every_queue_of_every_node(running: Running) -> None:
    running("send", r"destination\orders", "-b", "x")
    running("receive", "orders")
    table = running("queues").out
    for name in (
        r"sender\replies",
        r"sender to destination\orders",
        r"destination\notes",
        "intermediate to destination",
    ):
        assert name in table
    nodes = json.loads(running("queues", "--json").out)
    assert [(node["node"], node["running"]) for node in nodes] == [
        ("sender", True),
        ("intermediate", True),
        ("destination", True),
    ]
    assert nodes[1]["forwarded"] >= 1


def test_a_bare_name_is_enough_where_one_node_has_such_a_queue(running: Running) -> None:
    assert running("send", "notes", "-b", "short").status == DONE
    assert running("receive", "notes", "--timeout", "20").out == "short\n"
    assert "did you mean 'orders'" in running("send", "ordres", "-b", "x").complaint


def test_one_message_goes_to_several_queues_and_each_copy_lists_them(running: Running) -> None:
    sent = running("send", r"orders, sender\replies", "-b", "to both")
    assert len(set(sent.out.splitlines())) == 2
    for queue, identifier in zip(("orders", "replies"), sent.out.splitlines(), strict=True):
        message = json.loads(running("receive", queue, "--json", "--timeout", "20").out)
        assert (message["body"], message["id"], len(message["destinations"])) == ("to both", identifier, 2)


def test_what_a_closed_pipe_did_not_take_stays_in_the_queue(running: Running) -> None:
    running("send", r"destination\orders", "-", "--lines", stdin=(b"x" * 999 + b"\n") * 300)
    running("receive", "orders", "--rollback", "--timeout", "20")
    command = " ".join([*COMMAND, "receive", "orders", "-c", "300", "-t", str(running.file)])
    command += f" -d {running.directory} | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (DONE, b"x", b"")
    rest = running("receive", "orders", "-c", "300", "--timeout", "2").out.splitlines()
    assert len(rest) >= 1, "the transaction that met the closed pipe was rolled back"


def test_a_second_run_of_a_topology_leaves_the_first_as_it_is(running: Running) -> None:
    again = topology_file(running.directory.parent, "pair")
    again.write_text(as_toml(load(str(running.file)).with_free_ports()), "utf-8")
    assert "stop that one first" in mqproto("run", again, "-d", running.directory).complaint
    # What it left behind tells of other ports; a node that starts again must not follow it.
    os.kill(pid_of(running.directory / "intermediate.toml"), signal.SIGKILL)
    running("send", r"destination\orders", "-b", "through")
    assert running("receive", "orders", "--timeout", "20").out == "through\n"


# For operators


def wait_for(running: Running, queue: str, count: int) -> None:
    """Wait until a local queue has so many messages."""
    for _ in range(400):
        nodes = json.loads(running("queues", "--json").out)
        queues = {rf"{node['node']}\{one['name']}": one for node in nodes for one in node.get("local", [])}
        if queues[queue]["waiting"] == count:
            return
    pytest.fail(f"{queue} has {queues[queue]}")


def wait_until_acknowledged(running: Running) -> None:
    """Wait until the sender awaits nothing more for `orders`: its consumer is ahead of the OrderAck."""
    for _ in range(400):
        if "sender to" not in running("explain", "orders").out:
            return
    pytest.fail(running("explain", "orders").out)


def test_a_paused_queue_is_explained_and_goes_on_when_it_is_resumed(running: Running) -> None:
    running("send", "orders", "-b", "before")
    assert running("receive", "orders", "--timeout", "20").out == "before\n"
    wait_until_acknowledged(running)
    assert running("pause", r"destination\orders").out == "sender to destination\\orders: paused\n"
    sent = running("send", "orders", "-b", "later", "--label", "held back").out.strip()
    explained = running("explain", "orders")
    assert explained.status == DONE
    lines = explained.out.splitlines()
    assert (
        lines[0] == r"sender to destination\orders: 1 message waits, the oldest for 0 s"
        or "for 1 s" in lines[0]
    )
    assert f"mqproto resume 'destination\\orders' --node sender --topology {running.file}" in lines[1]
    assert lines[2].startswith(f"  {sent} 'held back', 5 bytes")
    assert r"destination\orders: empty" in lines
    [found] = [one for one in json.loads(running("explain", sent, "--json").out) if one["messages"]]
    assert (found["node"], found["messages"][0]["spot"]) == ("sender", "unsent")
    assert "paused" in running("explain").out
    assert json.loads(running("resume", "orders", "--json").out)["state"] == "resumed"
    assert running("receive", "orders", "--timeout", "20").out == "later\n"
    wait_until_acknowledged(running)
    gone = running("explain", sent)
    assert gone.status == FINDING
    assert gone.out.startswith(f"no node that runs has {sent}: it was received")


def test_dead_letters_are_explained_and_sent_back(running: Running) -> None:
    running("send", "orders", "-b", "opens the way")
    assert running("receive", "orders", "--timeout", "20").out == "opens the way\n"
    wait_until_acknowledged(running)
    running("pause", "orders")
    sent = running("send", "orders", "-b", "body", "--dead-letter", "--label", "gone").out.strip()
    assert running("purge", "orders", "--node", "sender").out == "1 message deleted\n"
    running("resume", "orders")
    explained = running("explain", "deadxact", "--node", "sender").out
    assert f"{sent} 'gone'" in explained
    assert r"a dead letter to destination\orders: it was deleted on its way (NACK_DELETED)" in explained
    assert "mqproto return 'sender\\system$;deadxact'" in explained
    peeked = json.loads(running("peek", r"sender\deadxact", "--json").out)
    assert (peeked["class"], peeked["body"]) == ("NACK_DELETED", "body")
    assert "kept" in running("queues").out
    refused = running("return", r"sender\deadxact", f"{sent}9")
    assert (refused.status, "has no message" in refused.complaint) == (MISUSE, True)
    assert running("return", r"sender\deadxact", sent).out == "1 message sent once more\n"
    assert running("receive", "orders", "--timeout", "20").out == "body\n"
    assert json.loads(running("return", r"sender\deadxact", "--json").out)["sent"] == 0


def test_what_is_rejected_is_a_dead_letter_of_its_sender(running: Running) -> None:
    running("send", "orders", "-b", "bad", "--dead-letter")
    assert running("receive", "orders", "--reject", "--timeout", "20").out == "bad\n"
    wait_for(running, r"sender\system$;deadxact", 1)
    assert (
        json.loads(running("receive", r"sender\deadxact", "--json").out)["class"] == "NACK_RECEIVE_REJECTED"
    )


def test_a_transaction_and_what_else_can_be_asked_of_a_message(running: Running) -> None:
    sent = json.loads(
        running("send", "orders", "-", "--lines", "--transaction", "--json", stdin=b"1\n2\n").out
    )
    assert len(sent["sent"]) == 2
    assert running("receive", "orders", "-c", "2", "--timeout", "20").out == "1\n2\n"
    options = (
        "--admin-queue",
        r"destination\notes",
        "--ack",
        "arrival",
        "--response-queue",
        r"sender\replies",
    )
    sent = running("send", "notes", "-b", "asks", "--journal", *options).out.strip()
    wait_for(running, r"destination\notes", 2)
    asks, told = (
        json.loads(line) for line in running("receive", "notes", "-c", "2", "--json").out.splitlines()
    )
    assert (told["class"], told["correlation"]) == ("ACK_REACH_QUEUE", sent)
    assert asks["response_queue"].startswith("PRIVATE=")
    wait_for(running, r"sender\system$;journal", 1)
    assert running("receive", r"sender\system$;journal").out == "asks\n"


def test_a_queue_is_purged_and_deleted(running: Running) -> None:
    for body in ("1", "2"):
        running("send", r"destination\notes", "-b", body)
    wait_for(running, r"destination\notes", 2)
    assert json.loads(running("purge", "notes", "--json").out) == {"queue": "notes", "deleted": 2}
    done = running("delete", r"sender\replies")
    assert done.out == "sender\\replies is gone, and 0 messages with it\n"
    assert "no queue replies here" in running("peek", r"sender\replies").complaint


def test_each_node_records_in_a_file_of_its_own(running: Running) -> None:
    running("send", r"destination\orders", "-b", "for the record")
    assert running("receive", "orders", "--timeout", "20").out == "for the record\n"
    for name in ("sender", "intermediate", "destination"):
        packets = list(read_packets(running.file.with_name(f"run-{name}.pcapng")))
        assert {packet.interface.name for packet in packets} == {name}
        assert any(b"for the record" in packet.data for packet in packets)


def test_a_node_that_is_killed_is_started_again(running: Running) -> None:
    status = json.loads(running("queues", "--json").out)[2]
    assert status["running"]
    victim = pid_of(running.directory / "destination.toml")
    os.kill(victim, signal.SIGKILL)
    assert running.process.stdout is not None
    said = iter(running.process.stdout)
    assert any("destination was killed; it starts again" in line for line in said)
    assert any("destination is back" in line for line in said)
    running("send", r"destination\orders", "-b", "after")
    assert running("receive", "orders", "--timeout", "20").out == "after\n"


def pid_of(word: Path) -> int:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            arguments = (entry / "cmdline").read_bytes().split(b"\0") if (entry / "cmdline").exists() else []
            if str(word).encode() in arguments:
                return int(entry.name)
    raise AssertionError(f"no process has {word}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("send", r"destination\ordres", "-b", "x"), "did you mean 'orders'"),
        (("send", r"nowhere\orders", "-b", "x"), "no node 'nowhere'"),
        (("send", r"destination\orders"), "give one body"),
        (("send", "orders,notes", "-b", "x"), r"destination\notes is not transactional"),
        (("send", "orders,", "-b", "x"), "(nothing)"),
        (("receive", "orders", "--rollback", "-c", "501"), "at most 500"),
        (("peek", "orders", "-c", "501"), "less than or equal to 500"),
        (("send", r"destination\orders", "-b", "x", "--no-transactional"), "is transactional"),
        (("send", r"destination\notes", "-b", "x", "--transactional"), "is not transactional"),
        (("send", r"destination\orders", "--file", "/nowhere"), "No such file"),
        (("send", r"destination\orders", "-b", "x", "--label", "x" * 250), "label"),
        (("send", "DIRECT=TCP:host\\q", "-b", "x"), "TCP"),
        (("receive", "orders", "--reject", "--rollback"), "choose one"),
        (
            ("send", "orders", "-b", "x", "--ack", "arival", "--admin-queue", "notes"),
            "did you mean 'arrival'?",
        ),
        (("send", "orders", "-b", "x", "--ack", "arrival"), "--admin-queue"),
        (("send", "orders", "-b", "x", "--admin-queue", "deadxact"), "write 'sender\\deadxact'"),
        (("send", "orders", "-b", "x", "--trace-queue", "notes"), "reports go to a public queue"),
        (("send", "notes", "-b", "x", "--transaction"), "leave --transaction out"),
        (("pause", r"destination\nothing"), r"no node that runs has sent anything to destination\nothing"),
        (("resume", r"sender\replies", "--node", "destination"), "destination has no outgoing queue"),
        (("purge", "nothing"), "no node has a queue 'nothing'"),
        (("delete", r"sender\deadxact"), "belongs to the system"),
        (("return", "orders"), "no dead-letter queue and no journal"),
        (("return", r"sender\deadxact", "hello"), "write GUID\\number"),
        (("explain", "nonsense"), "did you mean 'notes'?"),
        (("explain", "orders", "--count", "0"), "--count"),
        (("receive", "replies", "--node", "destination"), "no queue 'replies'"),
        (("receive", r"sender\replies", "--node", "destination"), "receive from it there"),
        (("peek", "orders", "--count", "0"), "--count"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_misuse(
    running: Running, arguments: tuple[str, ...], words: str
) -> None:
    done = running(*arguments)
    assert done.status == MISUSE
    assert words in done.complaint


def test_a_second_node_on_a_store_is_told_that_it_is_open(running: Running) -> None:
    done = mqproto("node", running.file, "sender", "-d", running.directory)
    assert done.status == FINDING
    assert "sender.sqlite" in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


def test_a_port_that_is_taken_is_said_with_the_way_out(running: Running, tmp_path: Path) -> None:
    done = mqproto("run", running.file, "-d", tmp_path / "other")
    assert done.status == FINDING
    assert "is taken by another program" in done.complaint
    assert "--free-ports" in done.complaint


@pytest.mark.parametrize(
    "command",
    [
        ("queues",),
        ("explain",),
        ("explain", "orders"),
        ("explain", "orders", "--node", "sender"),
        ("pause", "orders"),
        ("resume", "orders", "--node", "sender"),
        ("purge", "orders"),
        ("delete", "orders"),
        ("return", r"sender\deadxact"),
        ("send", r"destination\orders", "-b", "x"),
        ("receive", "orders"),
    ],
)
def test_a_node_that_does_not_run_is_said_with_the_command_that_starts_it(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    done = in_process(*command, "-d", tmp_path)
    assert done.status == FINDING
    assert re.search("mqproto (run|node) three-node", done.complaint)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[node.a", "TOML"),
        ("", "no nodes"),
        ("[node.a]\nadress = 'x'", "did you mean 'address'"),
        ("[node.a]\naddress = '192.0.2.1:1801'", "192.0.2.1"),
    ],
)
def test_a_topology_that_cannot_be_names_the_file_and_the_place(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    done = mqproto("run", path, "-d", tmp_path / "stores")
    assert done.status in (MISUSE, FINDING)
    assert words in done.complaint


def test_a_store_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    file = topology_file(tmp_path)
    path = store_path(tmp_path, "sender")
    path.write_bytes(b"a letter to my mother, which must not be overwritten" * 100)
    before = path.read_bytes()
    done = mqproto("run", file, "-d", tmp_path)
    assert done.status == FINDING
    assert "sender.sqlite" in done.complaint
    assert path.read_bytes() == before


def test_a_full_disk_stops_the_node_with_one_line_and_what_was_accepted_is_there(tmp_path: Path) -> None:
    file = topology_file(tmp_path, "pair")
    # A limit on the size of files is what a full disk looks like to SQLite, and needs no root.
    with node(file, tmp_path, limit_bytes=1_000_000) as limited:
        accepted = 0
        while (done := send_to(file, tmp_path, b"x" * 100_000)).status == DONE:
            accepted += 1
            assert accepted < 100
        assert "Traceback" not in done.err
        assert limited.wait(TIMEOUT_S) == FINDING
    assert accepted
    said = (tmp_path / "stderr").read_text().splitlines()
    assert said[-1].startswith("mqproto: ")
    assert "sender.sqlite" in said[-1]
    with node(file, tmp_path):
        [status, _] = json.loads(mqproto("queues", "--json", "-t", file, "-d", tmp_path).out)
        [sequence] = status["outgoing"]
        # The last one is in doubt: its commit failed, so it must not be there.
        assert sequence["waiting"] == accepted


def send_to(file: Path, directory: Path, body: bytes) -> Done:
    return in_process("send", r"destination\orders", "-", "-t", file, "-d", directory, stdin=body)


class node:  # noqa: N801
    """`mqproto node FILE NAME` as long as the block lasts."""

    def __init__(
        self, file: Path, directory: Path, limit_bytes: int | None = None, name: str = "sender"
    ) -> None:
        self.command = [*COMMAND, "node", str(file), name, "--directory", str(directory)]
        self.stderr = directory / "stderr"
        self.limit_bytes = limit_bytes

    def __enter__(self) -> subprocess.Popen[bytes]:
        def limit() -> None:
            if self.limit_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit_bytes, self.limit_bytes))

        with self.stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                self.command, stdout=subprocess.PIPE, stderr=stderr, preexec_fn=limit
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(b"ready"), self.stderr.read_text()
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_what_the_readme_shows_of_a_stuck_message_is_what_the_commands_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = topology_file(tmp_path)
    monkeypatch.setenv("MQPROTO_TOPOLOGY", str(file))
    monkeypatch.setenv("MQPROTO_DIRECTORY", str(tmp_path))

    def as_in_the_readme(printed: str) -> str:
        for name, there in load("three-node").nodes.items():
            here = load(file).nodes[name]
            printed = printed.replace(f"{here.host}:{here.port}", f"{there.host}:{there.port}")
        return without_times(printed.replace(str(file), "three-node"))

    def type_in(command: Command) -> None:
        shown = without_times(f"{command.output}\n")
        _, name, *arguments = shlex.split(command.text)
        for _ in range(200 if name == "explain" else 1):  # It may look a moment too early.
            done = in_process(name, *arguments)
            if as_in_the_readme(done.out + done.err) == shown:
                return
        assert as_in_the_readme(done.out + done.err) == shown

    readme = (ROOT / "simulator" / "README.md").read_text("utf-8")
    section = readme[
        readme.index("## Why is my message stuck?") : readme.index("## How do I write a topology?")
    ]
    stuck, dead = [list(commands(block)) for block in blocks(section) if block.language == "console"]
    with (
        node(file, tmp_path),
        node(file, tmp_path, name="intermediate"),
    ):
        with node(file, tmp_path, name="destination"):
            in_process("send", "orders", "--body", "hello")
            assert in_process("receive", "orders", "--timeout", "20").out == "hello\n"
            while "sender to" in in_process("explain").out:  # Until the OrderAck is back.
                pass
        in_process("send", "orders", "--body", "hello", "--label", "second")
        for command in stuck:
            type_in(command)
        with node(file, tmp_path, name="destination"):
            assert in_process("receive", "orders", "--timeout", "20").out == "hello\n"
            while "sender to" in in_process("explain").out:  # Until the OrderAck is back.
                pass
            for command in dead:
                type_in(command)


def without_times(text: str) -> str:
    """The text without its figures, which depend on when one looks."""
    figures = re.sub(r"\d+(?:[.,]\d+)*", "#", text)
    spans = re.sub(r"# (?:min|h|d) # (?:s|min|h)|# (?:min|h|d)\b", "# s", figures)
    return re.sub(r"(try|again) now", r"\1 in # s", spans)


def test_decode_shows_a_packet_given_as_hex_as_a_file_or_on_stdin(tmp_path: Path) -> None:
    packet = encode_packet(example(100))
    (tmp_path / "packet").write_bytes(packet)
    shown = [
        in_process("decode", packet.hex()),
        in_process("decode", tmp_path / "packet"),
        mqproto("decode", "-", stdin=packet),
        in_process("decode", "-", stdin=packet.hex(" ", 2).encode()),
        in_process("decode", "-", stdin=" ".join(f"0x{byte:02x}" for byte in packet).encode()),
    ]
    assert len({(done.status, done.out) for done in shown}) == 1
    assert shown[0].status == DONE
    assert "transactional UserMessage" in shown[0].out
    assert "transaction.tx_sequence_number" in shown[0].out
    assert json.loads(mqproto("decode", "--json", packet.hex()).out)["valid"] is True


def test_decode_of_a_broken_packet_says_where_and_is_a_finding() -> None:
    packet = bytearray(encode_packet(example(100)))
    packet[8] += 4
    done = mqproto("decode", packet.hex())
    assert done.status == FINDING
    assert "base.packet_size at byte 8" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("frobnicate",), "No such command"),
        (("decode",), "Missing argument"),
        (("decode", "hello"), "neither a file nor hex"),
        (("decode", "123"), "odd number"),
        (("node", "three-node", "sendr"), "did you mean 'sender'"),
        (("run", "three-nodes"), "did you mean 'three-node'"),
        (("demo", "--input", "/nowhere"), "/nowhere"),
        (("demo", "--count", "0"), "--count"),
        (("demo", "--count", "1", "--capture", "/nowhere/x"), "/nowhere/x"),
        (("send", "q", "--frobnicate"), "--frobnicate"),
    ],
)
def test_misuse_is_one_line_with_what_to_do(
    arguments: tuple[str, ...], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    status = run_command(list(arguments))
    out, err = capfd.readouterr()
    done = Done(status, out, err)
    assert words in done.complaint
    assert (done.status, done.out) == (MISUSE, "")


def test_the_command_alone_shows_what_there_is(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command([]) == MISUSE
    assert run_command(["--help"]) == DONE
    out, err = capfd.readouterr()
    for command in (
        "demo", "crash", "run", "node", "send", "receive", "peek", "queues", "decode", "probe", "bench",
    ):  # fmt: skip
        assert f"\n  {command} " in out
        assert f"\n  {command} " in err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ZeroDivisionError("division by zero"), "a bug in mqproto: ZeroDivisionError"),
        (OSError(28, "No space left on device", "x.log"), "x.log: No space left on device"),
        (ExceptionGroup("", [ValueError("inner")]), "ValueError: inner"),
    ],
)
def test_even_a_bug_is_one_line_unless_its_traceback_is_asked_for(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("simulator.show.read_source", raising(error))
    monkeypatch.delenv("MQPROTO_DEBUG", raising=False)
    assert run_command(["decode", "00"]) == FINDING
    out, err = capfd.readouterr()
    assert words in Done(FINDING, out, err).complaint
    assert "MQPROTO_DEBUG=1" in err
    monkeypatch.setenv("MQPROTO_DEBUG", "1")
    with pytest.raises(type(error)):
        run_command(["decode", "00"])


def raising(error: Exception) -> Callable[[str], bytes]:
    def read_source(_: str) -> bytes:
        raise error

    return read_source


def test_a_reader_who_has_had_enough_is_no_error() -> None:
    packet = encode_packet(example(100)).hex()
    command = f"{' '.join(COMMAND)} decode {packet} | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (DONE, b"")


def test_on_a_terminal_a_body_that_is_no_text_is_shown_with_escapes() -> None:
    assert talk._on_a_terminal(b"a\tb\x1b[2J\xff\xc3\xb6") == b"a\tb\\x1b[2J\\xff\xc3\xb6"


def test_the_example_of_the_benchmarks_is_transactional() -> None:
    assert isinstance(example().transaction, TransactionHeader)

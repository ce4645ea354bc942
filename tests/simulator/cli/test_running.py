"""Commands for a topology that `mqproto run` runs, and how such a run copes with the death of a node."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

import pytest

from mqproto.base.words import counted
from mqproto.captures.packets import read_packets
from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE
from mqproto.simulator.client import Envelope
from mqproto.simulator.topology import load, places
from mqproto.simulator.topology.views import as_toml
from tests.simulator.typed import COMMAND, TIMEOUT_S, Done, eventually, in_process, mqproto, topology_file
from tests.test_readme import Command, console_blocks, shows

RUN: Final = """
from mqproto.simulator.cli.cli import main
from tests.simulator.typed import forked_programs

with forked_programs():
    main()
"""
"""`mqproto run` with forked nodes, which is used in all tests except the one about a node that cannot start."""


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
    command = [
        sys.executable,
        "-c",
        RUN,
        "run",
        "--topology",
        str(file),
        "--directory",
        str(folder / "stores"),
    ]
    command += ["--capture", str(folder / "run.pcapng"), "--breakable"]
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


@pytest.mark.long
def test_the_story_of_start_is_what_the_commands_say(running: Running) -> None:
    for page in ("send", "kill", "look"):
        for block in console_blocks(page, "start"):
            for command in block:
                prints_what_is_shown(running, command)


def prints_what_is_shown(running: Running, command: Command) -> None:
    _, *typed = shlex.split(command.text)
    printed: list[str] = []

    def as_shown() -> bool:
        printed.append(running(*typed).out)
        return shows(command.output or "", printed[-1])

    if typed[0] == "kill":  # Else what is on its way back would wait as well.
        eventually(lambda: "nothing waits" in running("explain").out, lambda: running("explain").out)
    if typed[0] == "explain":  # It may look a moment too early.
        eventually(as_shown, lambda: printed[-1])
    else:
        assert as_shown(), printed[-1]


def test_each_line_is_a_message_and_they_stay_in_order_until_they_are_committed(running: Running) -> None:
    sent = json.loads(
        running("send", r"destination\orders", "-", "--lines", "--json", stdin=b"one\n\ntwo\n").out
    )
    assert len(sent["sent"]) == 3
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


def test_top_in_a_pipe_is_one_look_at_every_node_session_and_queue(running: Running) -> None:
    told = running("top", "--interval", "0.1").out
    for name in (
        "sender ",
        r"sender\replies",
        r"sender to destination\orders",
        "sender to intermediate",
        r"destination\notes",
    ):
        assert f"\n{name}" in told
    assert "\x1b" not in told


def test_a_bare_name_is_enough_where_one_node_has_such_a_queue(running: Running) -> None:
    assert running("send", "notes", "-b", "short").status == DONE
    assert running("receive", "notes", "--timeout", "60").out == "short\n"
    assert "did you mean 'orders'" in running("send", "ordres", "-b", "x").complaint


def test_one_message_goes_to_several_queues_and_each_copy_lists_them(running: Running) -> None:
    sent = running("send", r"orders, sender\replies", "-b", "to both")
    assert len(set(sent.out.splitlines())) == 2
    for queue, identifier in zip(("orders", "replies"), sent.out.splitlines(), strict=True):
        message = json.loads(running("receive", queue, "--json", "--timeout", "60").out)
        assert (message["body"], message["id"], len(message["destinations"])) == ("to both", identifier, 2)


def test_headers_for_a_service_travel_in_the_extension(running: Running) -> None:
    typed = ("--header", "Content-Type: application/json", "--header", "ce-type: order")
    assert running("send", "notes", "-b", "{}", *typed).status == DONE
    message = json.loads(running("receive", "notes", "--timeout", "60", "--json").out)
    assert (message["content_type"], message["headers"]) == (
        "application/json",
        {"sender": "mqproto", "fields": {"ce-type": "order"}},
    )
    assert Envelope.of(message["extension"].encode()).content_type == "application/json"


@pytest.mark.long
def test_what_a_closed_pipe_did_not_take_stays_in_the_queue(running: Running) -> None:
    place = ("-t", running.file, "-d", running.directory)
    mqproto("send", r"destination\orders", "--count", "300", "--body", "x" * 999, *place)
    command = " ".join([*COMMAND, "receive", "orders", "-c", "300", "--timeout", "60", *map(str, place)])
    command += " | head -c 1; exit ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (DONE, b"x", b"")
    rest = running("receive", "orders", "-c", "300", "--timeout", "2").out.splitlines()
    assert len(rest) >= 1, "the transaction that met the closed pipe was rolled back"


def test_a_second_run_of_a_topology_leaves_the_first_as_it_is(running: Running) -> None:
    again = topology_file(running.directory.parent, "pair")
    again.write_text(as_toml(load(str(running.file)).with_free_ports()), "utf-8")
    files = [*running.directory.glob("*.log"), *running.directory.glob("*.seen.toml")]
    before = {file: file.read_bytes() for file in files}
    assert len(before) == 6
    assert "stop that one first" in in_process("run", "-t", again, "-d", running.directory).complaint
    assert {file: file.read_bytes() for file in files} == before
    os.kill(pid_of(running.directory / "intermediate.sqlite"), signal.SIGKILL)
    running("send", r"destination\orders", "-b", "through")
    assert running("receive", "orders", "--timeout", "60").out == "through\n"


# For operators


def wait_for(running: Running, queue: str, count: int) -> None:
    """Wait until a local queue has `count` messages."""

    def waiting() -> int:
        nodes = json.loads(running("queues", "--json").out)
        queues = {rf"{node['node']}\{one['name']}": one for node in nodes for one in node.get("local", [])}
        return int(queues[queue]["waiting"])

    eventually(lambda: waiting() == count, lambda: f"{queue} has {waiting()} messages")


def wait_until_acknowledged(running: Running) -> None:
    """Wait until the sender has nothing more to wait for in `orders`; the consumer may finish before the OrderAck
    arrives.
    """

    def explained() -> str:
        return running("explain", "orders").out

    eventually(lambda: "sender to" not in explained(), explained)


def test_a_paused_queue_is_explained_and_goes_on_when_it_is_resumed(running: Running) -> None:
    running("send", "orders", "-b", "before")
    assert running("receive", "orders", "--timeout", "60").out == "before\n"
    wait_until_acknowledged(running)
    assert running("pause", r"destination\orders").out == "sender to destination\\orders: paused\n"
    sent = running("send", "orders", "-b", "later", "--label", "held back").out.strip()
    explained = running("explain", "orders")
    assert explained.status == DONE
    lines = explained.out.splitlines()
    assert re.fullmatch(r"sender to destination\\orders: 1 message waits, the oldest for \d+ s", lines[0])
    assert f"mqproto resume 'destination\\orders' --node sender --topology {running.file}" in lines[1]
    assert lines[2].startswith(f"  {sent} 'held back', 5 bytes")
    assert r"destination\orders: empty" in lines
    [found] = [one for one in json.loads(running("explain", sent, "--json").out)["nodes"] if one["messages"]]
    assert (found["node"], found["messages"][0]["spot"]) == ("sender", "unsent")
    assert "paused" in running("explain").out
    assert json.loads(running("resume", "orders", "--json").out)["state"] == "resumed"
    assert running("receive", "orders", "--timeout", "60").out == "later\n"
    wait_until_acknowledged(running)
    gone = running("explain", sent)
    assert gone.status == FINDING
    assert gone.out.startswith(f"nobody has {sent}: it was received")


def test_dead_letters_are_explained_and_sent_back(running: Running) -> None:
    running("send", "orders", "-b", "opens the way")
    assert running("receive", "orders", "--timeout", "60").out == "opens the way\n"
    wait_until_acknowledged(running)
    running("pause", "orders")
    sent = running("send", "orders", "-b", "body", "--dead-letter", "--label", "gone").out.strip()
    assert running("purge", "orders", "--node", "sender").out == "sender: 1 message of orders deleted\n"
    running("resume", "orders")
    explained = running("explain", "deadxact", "--node", "sender").out
    assert f"{sent} 'gone'" in explained
    assert r"a dead letter to destination\orders: it was deleted on its way (NACK_DELETED)" in explained
    assert "mqproto return 'sender\\system$;deadxact'" in explained
    peeked = json.loads(running("peek", r"sender\deadxact", "--json").out)
    assert (peeked["class"], peeked["body"]) == ("NACK_DELETED", "body")
    assert "kept" in running("queues").out
    refused = running("return", r"sender\deadxact", sent.rpartition("\\")[0] + r"\7")
    assert (refused.status, "has no message" in refused.complaint) == (MISUSE, True)
    assert running("return", r"sender\deadxact", sent).out == "1 message sent once more\n"
    assert running("receive", "orders", "--timeout", "60").out == "body\n"
    assert json.loads(running("return", r"sender\deadxact", "--json").out)["sent"] == 0


def test_what_is_rejected_is_a_dead_letter_of_its_sender(running: Running) -> None:
    running("send", "orders", "-b", "bad", "--dead-letter")
    assert running("receive", "orders", "--reject", "--timeout", "60").out == "bad\n"
    wait_for(running, r"sender\system$;deadxact", 1)
    assert (
        json.loads(running("receive", r"sender\deadxact", "--json").out)["class"] == "NACK_RECEIVE_REJECTED"
    )


def test_a_transaction_and_what_else_can_be_asked_of_a_message(running: Running) -> None:
    sent = json.loads(running("send", "orders", "--lines", "--transaction", "--json", stdin=b"1\n2\n").out)
    assert len(sent["sent"]) == 2
    assert running("receive", "orders", "-c", "2", "--timeout", "60").out == "1\n2\n"
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
    purged = json.loads(running("purge", "notes", "--json").out)
    assert purged == {"node": "destination", "queue": "notes", "deleted": 2}
    done = running("queue", "delete", r"sender\replies")
    assert done.out == "sender\\replies is gone, and 0 messages with it\n"
    assert "sender has no queue 'replies'" in running("peek", r"sender\replies").complaint


def test_a_queue_that_one_node_has_made_is_one_that_others_send_to(running: Running) -> None:
    """The file mentions none of these queues, but the nodes have them."""
    assert running("queue", "create", r"destination\private$\bills", "--transactional").status == DONE
    assert running("queue", "create", "slips", "-n", "destination", "--quota-kb", "7").status == DONE
    listed = {queue["name"]: queue for queue in json.loads(running("queue", "list", "--json").out)}
    assert (listed["bills"]["node"], listed["bills"]["transactional"]) == ("destination", True)
    assert listed["slips"]["quota_kb"] == 7
    for name, queue in ((r"destination\bills", "bills"), ("bills", "bills"), ("slips", "slips")):
        assert running("send", name, "-b", "to you").status == DONE
        message = json.loads(running("receive", queue, "--json", "--timeout", "60").out)
        assert (message["body"], message["transactional"]) == ("to you", queue == "bills")
    assert (
        "bills is transactional and takes no others"
        in running("send", "bills", "-b", "x", "--no-transactional").complaint
    )
    assert "did you mean 'bills'" in running("send", r"destination\bill", "-b", "x").complaint
    assert running("pause", "bills").out == "sender to bills: paused\n"
    running("send", "bills", "-b", "held back", "--label", "held")
    assert "'held'" in running("explain", r"destination\bills").out
    assert r"sender to destination\bills" in running("queues").out
    assert running("purge", "bills", "--node", "sender").out == "sender: 1 message of bills deleted\n"
    assert running("resume", "bills").status == DONE
    assert running("queue", "delete", "bills").out == "bills is gone, and 0 messages with it\n"
    assert "no node has a queue 'bills'" in running("send", "bills", "-b", "x").complaint


def test_each_node_records_in_a_file_of_its_own(running: Running) -> None:
    running("send", r"destination\orders", "-b", "for the record")
    assert running("receive", "orders", "--timeout", "60").out == "for the record\n"
    for name in ("sender", "intermediate", "destination"):
        packets = list(read_packets(running.file.with_name(f"run-{name}.pcapng")))
        assert {packet.interface.name for packet in packets} == {name}
        assert any(b"for the record" in packet.data for packet in packets)


def test_a_node_that_is_killed_is_started_again(running: Running) -> None:
    status = json.loads(running("queues", "--json").out)[2]
    assert status["running"]
    victim = pid_of(running.directory / "destination.sqlite")
    os.kill(victim, signal.SIGKILL)
    assert running.process.stdout is not None
    said = iter(running.process.stdout)
    assert any("destination: killed by SIGKILL; it starts again" in line for line in said)
    assert any("destination is back" in line for line in said)
    running("send", r"destination\orders", "-b", "after")
    assert running("receive", "orders", "--timeout", "60").out == "after\n"


# By hand


def sessions_of_the_sender(running: Running) -> int:
    [sender, *_] = json.loads(running("queues", "--json").out)
    return int(sender["sessions_open"])


def connected(running: Running) -> int:
    """Wait until a node has a session; it opens one when it has something to send.

    Return the number of its sessions. There may be several: after a kill, the node and its neighbours may have called
    each other at the same time.
    """
    running("send", "orders", "-b", "opens the way")
    assert running("receive", "orders", "--timeout", "60").out == "opens the way\n"
    wait_until_acknowledged(running)
    eventually(lambda: sessions_of_the_sender(running) > 0, lambda: running("queues").out)
    return sessions_of_the_sender(running)


def test_a_link_that_is_cut_carries_nothing_until_it_is_mended(running: Running) -> None:
    reset = counted(connected(running), "connection")
    cut = running("cut", "sender", "intermediate")
    assert cut.out.startswith(f"sender-intermediate is cut, {reset} reset; to undo: mqproto mend sender")
    assert cut.out.endswith(f" --topology {running.file} --directory {running.directory}\n")
    eventually(lambda: sessions_of_the_sender(running) == 0, lambda: running("queues").out)
    running("send", "orders", "-b", "over the cut")
    eventually(
        lambda: "connection refused" in running("explain", "orders").out, lambda: running("explain").out
    )
    by_hand = "sender-intermediate is cut by hand; to undo: mqproto mend sender intermediate --topology"
    assert by_hand in running("explain", "orders").out
    mend = f"mqproto mend sender intermediate --topology {running.file} --directory {running.directory}"
    cut_link = {"nodes": ["sender", "intermediate"], "state": "cut", "undone_by": mend}
    said = {one["node"]: one["broken_links"] for one in json.loads(running("explain", "--json").out)}
    assert said == {"sender": [cut_link], "intermediate": [cut_link], "destination": []}
    assert running("receive", "orders", "--timeout", "0").status == FINDING
    assert running("mend", "sender").out == "sender-intermediate is mended\n"
    assert "by hand" not in running("explain", "orders").out
    assert running("receive", "orders", "--timeout", "60").out == "over the cut\n"
    whole = "sender-intermediate was whole\nintermediate-destination was whole\n"
    assert running("mend").out == whole


def test_a_link_that_is_stalled_carries_nothing_and_loses_no_connection(running: Running) -> None:
    sessions = connected(running)
    assert "sender-intermediate is stalled" in running("stall", "INTERMEDIATE", "sender").out
    running("send", "orders", "-b", "into the stall")
    eventually(lambda: "resend 1" in running("explain").out, lambda: running("explain").out)
    assert running("receive", "orders", "--timeout", "0").status == FINDING
    assert "was stalled before, and stays so" in running("stall", "sender").out
    assert sessions_of_the_sender(running) == sessions
    assert running("mend", "sender", "intermediate").out == "sender-intermediate is mended\n"
    assert running("receive", "orders", "--timeout", "60").out == "into the stall\n"


def test_a_slow_link_carries_all_of_it(running: Running) -> None:
    slow = running("slow", "sender", "intermediate").out
    assert slow.startswith(
        "sender-intermediate is slow, all that crosses it waits for 0.3 s; to undo: mqproto mend"
    )
    running("send", "orders", "-b", "slowly")
    assert running("receive", "orders", "--timeout", "60").out == "slowly\n"
    assert running("mend", "sender").out == "sender-intermediate is mended\n"


@pytest.mark.parametrize(
    "typed",
    [
        ("send", r"annex\bills", "--body", "x"),
        ("send", "bills", "--body", "x"),
        ("receive", "bills"),
        ("peek", r"annex\bills"),
        ("explain", "bills"),
        ("queue", "create", "more", "--node", "annex"),
        ("restart", "annex"),
        ("kill", "annex"),
        ("cut", "destination", "annex"),
        ("send", r"destination\late", "--body", "x"),
        ("receive", "late"),
    ],
)
def test_what_a_run_does_not_know_yet_is_said_to_be_newer_than_its_copy(
    running: Running, tmp_path: Path, typed: tuple[str, ...]
) -> None:
    newer, anew = newer_file(running, tmp_path)
    refused = in_process(*typed, "-t", newer, "-d", running.directory)
    assert f"with {anew} its copy of {newer} is of " in refused.complaint
    assert re.search(r" is of \d{4}-\d\d-\d\d [0-9:]{8} UTC, without (annex|late)$", refused.complaint)
    assert refused.status in (FINDING, MISUSE)
    assert anew not in running("receive", "nowhere").complaint


def test_a_node_that_a_run_does_not_know_yet_is_started_with_the_others(
    running: Running, tmp_path: Path
) -> None:
    newer, anew = newer_file(running, tmp_path)
    explained = in_process("explain", "-t", newer, "-d", running.directory).out
    assert f"annex is not running; start it with {anew}" in explained
    misspelt = in_process("receive", r"anex\bills", "-t", newer, "-d", running.directory).complaint
    assert misspelt.endswith("did you mean 'annex'?"), "no run knows it, whenever it was started"


def newer_file(running: Running, folder: Path) -> tuple[Path, str]:
    """Write a file that has one node and one queue more than the running topology; return its path, and the command
    that restarts the run.
    """
    newer = folder / running.file.name
    newer.write_text(
        running.file.read_text("utf-8").replace(
            "[node.destination.queue.notes]", "[node.destination.queue.late]"
        )
        + '\n[node.annex.queue.bills]\n[node.annex]\naddress = "127.66.0.1:1801"\n'
        '[[link]]\nbetween = ["destination", "annex"]\n',
        "utf-8",
    )
    command = f"`mqproto run --topology {newer} --directory {running.directory}`"
    return newer, f"{command} after you have ended the one that goes on:"


def test_a_node_that_is_killed_by_hand_stays_down_until_it_is_restarted(running: Running) -> None:
    before = pid_of(running.directory / "destination.sqlite")
    killed = running("kill", "destination").out
    assert killed.startswith(
        f"destination: process {before} was killed; to undo: mqproto restart destination"
    )
    assert "destination: did not run, and stays down" in running("kill", "destination").out
    running("send", "orders", "-b", "later", "-n", "sender")
    assert not json.loads(running("queues", "--json").out)[2]["running"]
    again = f"start it with `mqproto restart destination --topology {running.file} --directory {running.directory}`"
    assert again in running("explain").out
    restarted = running("restart", "destination", "intermediate").out.splitlines()
    pids = [pid_of(running.directory / f"{name}.sqlite") for name in ("destination", "intermediate")]
    assert restarted == [
        f"destination: runs, process {pids[0]}",
        f"intermediate: runs, process {pids[1]}",
    ]
    assert running("receive", "orders", "--timeout", "60").out == "later\n"
    assert running.process.stdout is not None
    said = lines_until(iter(running.process.stdout), "intermediate: runs")
    assert not any("destination is back" in line for line in said)
    assert any(line.startswith(f"destination: process {before} was killed") for line in said)


def test_who_gives_no_order_is_told_so_and_ends_nothing(running: Running) -> None:
    path = places.run_socket(running.directory, load(str(running.file)).name)
    for words in (b"", b"hello", b'{"deed":"burn","nodes":[]}', b"[" * 100_000):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(path))
            asking.sendall(words)
            asking.shutdown(socket.SHUT_WR)
            assert b"no order" in asking.recv(1_000)
    assert running("mend").status == DONE


def test_a_run_that_is_not_there_or_cannot_be_broken_is_one_line(running: Running, tmp_path: Path) -> None:
    nobody = in_process("kill", "sender", "-d", tmp_path)
    start = f"mqproto run --directory {tmp_path}"
    assert (nobody.status, nobody.complaint) == (
        FINDING,
        f"no mqproto run has the nodes of three-node; start it: {start}",
    )
    again = in_process("run", "-t", running.file, "-d", running.directory)
    assert (again.status, "stop that one first" in again.complaint) == (MISUSE, True)


def pid_of(store: Path) -> int:
    """Return the id of a process that has a file open."""
    for file in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # It is closed meanwhile, or another user's.
            if file.readlink() == store:
                return int(file.parts[2])
    raise AssertionError(f"no process has {store}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("send", r"destination\ordres", "-b", "x"), "did you mean 'orders'"),
        (("send", r"nowhere\orders", "-b", "x"), "no node 'nowhere'"),
        (("send", r"destination\orders"), "give one body"),
        (("send", "orders,notes", "-b", "x"), r"destination\notes is not transactional"),
        (("send", "orders,", "-b", "x"), "(nothing)"),
        (("peek", "orders", "-c", "501"), "less than or equal to 500"),
        (("send", r"destination\orders", "-b", "x", "--no-transactional"), "is transactional"),
        (("send", r"destination\notes", "-b", "x", "--transactional"), "is not transactional"),
        (("send", r"destination\orders", "--file", "/nowhere"), "No such file"),
        (("send", r"destination\orders", "-b", "x", "--label", "x" * 250), "label"),
        (("send", "DIRECT=TCP:host\\q", "-b", "x"), "TCP"),
        (("send", "orders", "-b", "x", "--ack", "arival", "--admin-queue", "notes"), "mean 'arrival'?"),
        (("send", "orders", "-b", "x", "--ack", "arrival"), "--admin-queue"),
        (("send", "orders", "-b", "x", "--admin-queue", "deadxact"), "write 'sender\\deadxact'"),
        (("send", "orders", "-b", "x", "--trace-queue", "notes"), "reports go to a public queue"),
        (("send", "notes", "-b", "x", "--transaction"), "leave --transaction out"),
        (("send", "notes", "-b", "x", "--final-ack"), "leave --final-ack out"),
        (("send", "notes", "-b", "x", "--lines"), "alone or with --lines"),
        (("queue", "create", r"localhost\private$\orders", "--node", "destination"), "orders has this name"),
        (("queue", "create", "q\n", "--node", "sender"), r"a queue name cannot contain '\n'"),
        (("pause", r"destination\nothing"), r"no running node has sent anything to destination\nothing"),
        (("resume", r"sender\replies", "--node", "destination"), "destination has no outgoing queue"),
        (("purge", "nothing"), "no node has a queue 'nothing'"),
        (("queue", "delete", r"sender\deadxact"), "belongs to the system"),
        (("queue", "create", "more"), "has several nodes: name one of sender, intermediate, destination"),
        (("queue", "create", r"sender\q", "--node", "destination"), "leave --node destination out"),
        (("queue", "create", r"sender\q", "--public", "mine"), "--public 'mine': write a GUID, or `new`"),
        (("queue", "set", "orders"), "say what is to change"),
        (("return", "orders"), "neither a dead-letter queue nor a journal"),
        (("return", r"sender\deadxact", "hello"), "write GUID\\number"),
        (("explain", "nonsense"), "did you mean 'notes'?"),
        (("explain", "orders", "--count", "0"), "--count"),
        (("receive", "replies", "--node", "destination"), "no queue 'replies'"),
        (("receive", r"sender\replies", "--node", "destination"), "receive from it there"),
        (("peek", "orders", "--count", "0"), "--count"),
        (("kill", "sendr"), "no node 'sendr'"),
        (("cut", "sender", "destination"), "no link joins sender and destination; there is: sender-int"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_misuse(
    running: Running, arguments: tuple[str, ...], words: str
) -> None:
    done = running(*arguments)
    assert done.status == MISUSE
    assert words in done.complaint


@pytest.mark.long
def test_a_node_that_cannot_start_takes_no_other_with_it_and_the_end_tells(tmp_path: Path) -> None:
    file, stores = topology_file(tmp_path), tmp_path / "stores"
    (stores / "sender.sqlite").mkdir(parents=True)
    command = [*COMMAND, "run", "--topology", str(file), "--directory", str(stores)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        [why] = [line for line in lines_until(lines, "Ctrl-C") if "sender.sqlite" in line]
        assert why.startswith("sender: ")
        assert why.endswith("; it is tried again\n")
        sent = in_process(
            "send", "notes", "-b", "x", "--recoverable", "--node", "destination", "-t", file, "-d", stores
        )
        assert sent.status == DONE
        cut = in_process("cut", "sender", "-t", file, "-d", stores)
        assert cut.out.startswith("sender-intermediate is cut"), (
            "links are breakable if nobody says otherwise"
        )
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == FINDING
    assert "not running at the end: sender; its log" in rest


def lines_until(lines: Iterator[str], start: str) -> list[str]:
    """Return the lines up to, but not including, one that begins with this text."""
    return list(takewhile(lambda line: not line.startswith(start), lines))


@pytest.mark.long
def test_a_second_node_on_a_store_is_told_that_it_is_open(running: Running) -> None:
    done = mqproto("node", "sender", "-t", running.file, "-d", running.directory)
    assert done.status == FINDING
    assert "sender.sqlite" in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


@pytest.mark.long
def test_a_port_that_is_taken_is_said_with_the_way_out(running: Running, tmp_path: Path) -> None:
    done = mqproto("run", "-t", running.file, "-d", tmp_path / "other")
    assert done.status == FINDING
    assert "is taken by another program" in done.complaint
    assert "--free-ports" in done.complaint
    lines = [line for log in (tmp_path / "other").glob("*.log") for line in log.read_text().splitlines()]
    events = list(map(json.loads, lines))
    assert any("is taken by another program" in event.get("reason", "") for event in events)

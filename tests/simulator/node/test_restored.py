"""Real nodes whose stores are moved away, restored or copied, or that are only killed: messages accepted afterwards
arrive.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from mqproto.messages.drafts import Draft
from mqproto.simulator.cli.cli import DONE, FINDING
from mqproto.simulator.client import Client, connect
from mqproto.simulator.client.submission import SentPart, _digest
from mqproto.simulator.node import control
from mqproto.simulator.topology import Topology, load
from mqproto.simulator.topology.places import store_path
from mqproto.simulator.topology.views import as_toml
from tests.conformance import ROOT
from tests.simulator.running import Log, NodeProcess, processes, running
from tests.simulator.typed import mqproto

NOTES: Final = r"destination\private$\notes"
ORDERS: Final = r"destination\private$\orders"
KILLS: Final = int(os.environ.get("MQPROTO_LIFE_KILLS", "30"))


@pytest.fixture
def pair() -> Topology:
    return load("pair").with_free_ports()


def notes(first: int, count: int) -> list[Draft]:
    return [Draft(body=b"%d" % number, recoverable=True) for number in range(first, first + count)]


async def taken(client: Client, count: int, queue: str = "notes") -> list[int]:
    """Return the numbers in the bodies of `count` messages, in the order in which they arrive."""
    bodies: list[int] = []
    while len(bodies) < count:
        found = await client.receive(queue, limit=500, timeout_s=20)
        assert found, f"{len(bodies)} of {count} came"
        bodies += [int(message.body) for message in found]
    return bodies


def said(node: NodeProcess, event: str) -> list[dict[str, Any]]:
    """Return the entries about an event in a node's log, oldest first."""
    log = (node.directory / f"{node.name}.log").read_text().splitlines()
    lines = [json.loads(line) for line in log if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


async def kill(node: NodeProcess) -> None:
    await node.end(signal.SIGKILL)


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines()


def files_of(node: NodeProcess) -> list[Path]:
    return [*node.directory.glob(f"{node.name}.sqlite*")]


def back_up(node: NodeProcess) -> Path:
    """Copy the store of a node that is not running."""
    (folder := node.directory / "backup").mkdir()
    for each in files_of(node):
        shutil.copy(each, folder)
    return folder


def put_back(node: NodeProcess, folder: Path) -> None:
    for each in files_of(node):
        each.unlink()
    for each in folder.iterdir():
        shutil.copy(each, node.directory)


async def test_what_is_accepted_after_a_store_was_moved_away_arrives(pair: Topology, tmp_path: Path) -> None:
    async with processes(pair, tmp_path) as nodes, nodes["destination"].client() as destination:
        sender = nodes["sender"]
        async with sender.client() as client:
            before = await client.send_many(NOTES, notes(0, 600))
        assert await taken(destination, 600) == [*range(600)]
        await kill(sender)
        (tmp_path / "away").mkdir()
        for each in files_of(sender):
            each.rename(tmp_path / "away" / each.name)
        await sender.start()
        async with sender.client() as client:
            after = await client.send_many(NOTES, notes(600, 500))
        assert await taken(destination, 500) == [*range(600, 1_100)]
        assert not {*before} & {*after}
        [line] = said(sender, "store")
        assert line["notice"].startswith("life 2 begins: sender.sqlite, up to record ")
        assert not said(sender, "in-doubt"), "nothing waits in an empty store"


async def test_what_is_accepted_after_a_copy_was_put_back_arrives_and_what_it_has_is_in_doubt(
    pair: Topology, tmp_path: Path
) -> None:
    """Everything in the copy is still on its way at first, and 300 more messages are delivered after the copy was
    made.
    """
    async with processes(pair, tmp_path) as nodes:
        sender, destination = nodes["sender"], nodes["destination"]
        await kill(destination)
        async with sender.client() as client:
            waiting = await client.send_many(NOTES, notes(0, 5))
            ordered = await client.send_many(ORDERS, [Draft(body=b"5", transactional=True)])
        await kill(sender)
        backup = back_up(sender)
        await destination.start()
        await sender.start()
        async with sender.client() as client, destination.client() as receiver:
            await client.send_many(NOTES, notes(10, 300))
            assert sorted(await taken(receiver, 305)) == [*range(5), *range(10, 310)]
            assert await taken(receiver, 1, "orders") == [5]
        await kill(sender)
        put_back(sender, backup)
        await sender.start()

        async with sender.client() as client, destination.client() as receiver:
            await client.send_many(NOTES, notes(310, 300))
            assert await taken(receiver, 300) == [*range(310, 610)], "and what is old is not delivered again"
            [notice] = [line["notice"] for line in said(sender, "store") if "life 2 begins" in line["notice"]]
            assert "sender.sqlite was put back as it was at record " in notice
            [line] = said(sender, "in-doubt")
            assert (line["messages"], line["transactional"]) == (6, 1)
            file = Path(line["file"])
            assert file.name == "sender.life-2-in-doubt.txt"
            assert any("type `mqproto audit`" in line for line in lines_of(file))
            told = [line.split("\t") for line in lines_of(file) if not line.startswith("#")]
            assert {identifier for _, identifier, *_ in told} == {str(each) for each in (*waiting, *ordered)}
            [(queue, _, sequence, number)] = [line for line in told if len(line) > 2]
            assert queue.startswith("sequence ")
            assert (sequence.count("/"), number) == (1, "1")

            explained = (await client.explain()).status.in_doubt
            assert explained == [file.name]
            await trio.Path(file).unlink()
            assert (await client.explain()).status.in_doubt == []
        await kill(sender)
        await sender.start()
        assert len(said(sender, "in-doubt")) == 1, "the life goes on"


@pytest.mark.long
async def test_a_client_hears_that_it_is_in_doubt_what_it_asked_of_a_life_that_is_lost(
    pair: Topology, tmp_path: Path
) -> None:
    """The client was killed before it heard the answer. It asks a restored store, which knows nothing about the
    request.
    """
    journal, stores = tmp_path / "client.journal", tmp_path / "stores"
    stores.mkdir()
    (file := tmp_path / "topology.toml").write_text(as_toml(pair))
    (lines := tmp_path / "lines").write_text("0\n1\n2")
    async with processes(pair, stores) as nodes:
        sender, destination = nodes["sender"], nodes["destination"]
        async with sender.client() as client, destination.client() as receiver:
            await client.send_many(NOTES, notes(7, 1))
            assert await taken(receiver, 1) == [7]
        await kill(sender)
        backup = back_up(sender)
        await sender.start()
        async with connect(pair, "sender", stores, journal=journal) as client:
            first = [Draft(body=b"%d" % number, recoverable=True) for number in range(3)]
            await client.submit(NOTES, first, control.encode(SentPart(0, 3, _digest(NOTES, first))))
            assert client.journal is not None
            client.journal._ended.clear()
        async with destination.client() as receiver:
            assert await taken(receiver, 3) == [0, 1, 2]
        await kill(sender)
        put_back(sender, backup)
        await sender.start()
        place = ("--node", "sender", "-t", file, "-d", stores)
        again = ("send", NOTES, "--recoverable", "--lines", "--file", lines, "--resume", journal, *place)
        told = await trio.to_thread.run_sync(mqproto, *again)
        assert told.status == FINDING
        assert told.complaint.startswith(
            "in doubt: messages 1 to 3 of 3, which are not sent again: node sender"
        )
        async with sender.client() as client, destination.client() as receiver:
            await client.send_many(NOTES, notes(9, 1))
            assert await taken(receiver, 1) == [9], "and nothing was performed twice"


@pytest.mark.long
async def test_a_store_that_was_copied_starts_when_it_is_said_what_it_is(
    pair: Topology, tmp_path: Path
) -> None:
    (home := tmp_path / "home").mkdir()
    async with AsyncExitStack() as ends:
        nodes = await ends.enter_async_context(processes(pair, home))
        await kill(nodes["destination"])
        async with nodes["sender"].client() as client:
            await client.send_many(NOTES, notes(0, 3))
        await kill(nodes["sender"])
    for how in ("--moved", "--copied"):
        folder = shutil.copytree(home, tmp_path / how.strip("-"), ignore=shutil.ignore_patterns("*.log"))
        (file := folder / "topology.toml").write_text(as_toml(pair))
        place = ("--topology", str(file), "--directory", str(folder))
        refused = mqproto("node", "sender", *place)
        assert refused.status != DONE
        assert refused.complaint.count("\n") <= 1
        assert f"was copied or moved here from {home / 'sender.sqlite'}" in refused.complaint
        for each in ("--moved", "--copied"):
            assert f"`mqproto store adopt sender {' '.join(place)} {each}`" in refused.complaint
        if how == "--copied":
            same = mqproto("store", "adopt", "sender", how, *place)
            assert same.status != DONE
            assert "give this one a GUID of its own" in same.complaint
            other = replace(pair.nodes["sender"], guid=type(pair.nodes["sender"].guid)(bytes(range(16))))
            pair = replace(pair, nodes={**pair.nodes, "sender": other})
            file.write_text(as_toml(pair))
            twin = shutil.copytree(folder, tmp_path / "twin")
            by_file = mqproto("store", "adopt", twin / "sender.sqlite", how)
            assert by_file.status == DONE, by_file.complaint
            assert "needs a GUID of its own" in by_file.out
        adopted = mqproto("store", "adopt", "sender", how, *place)
        assert adopted.status == DONE, adopted.complaint
        assert "needs a GUID" not in adopted.out
        if how == "--moved":
            assert "sender.sqlite: life 2 begins when its node starts" in adopted.out
        else:
            assert len([*folder.glob("sender.sqlite-copied-*")]) == 1
            assert not store_path(folder, "sender").exists()
        sender = NodeProcess(pair, "sender", folder)
        await sender.start()
        async with sender.client() as client:
            outgoing = (await client.queues()).outgoing
            assert sum(queue.waiting for queue in outgoing) == (3 if how == "--moved" else 0)
        assert len(said(sender, "in-doubt")) == (how == "--moved")
        await kill(sender)


# Kills that hurt nothing

CUT = """
import mmap, os, signal, sys
from pathlib import Path
from mqproto.turn.effects import Writes
from mqproto.wire.guid import Guid
from mqproto.simulator.storage import Store

def pwritev(file, parts, offset):
    os.pwrite(file, b"".join(parts)[: mmap.PAGESIZE - offset % mmap.PAGESIZE], offset)
    os.kill(os.getpid(), signal.SIGKILL)

store = Store(Path(sys.argv[1]), Guid(bytes.fromhex(sys.argv[2])))
store.commit(Writes())
os.pwritev = pwritev
store.commit(Writes(counters={"x" * 2 * mmap.PAGESIZE: 1}))
"""


async def test_a_record_that_a_kill_has_cut_short_is_a_line_of_the_log_and_no_warning(
    pair: Topology, tmp_path: Path
) -> None:
    path, log = store_path(tmp_path, "sender"), Log()
    command = [sys.executable, "-c", CUT, str(path), pair.nodes["sender"].guid.hex()]
    killed = await trio.run_process(command, check=False, cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    async with running(pair, "sender", tmp_path, log):
        await log.line("started")
    [line] = log.lines("unfinished-record")
    assert line["level"] == "info"
    assert line["what"].startswith("record 2 in sender.sqlite-log-000001 at byte ")
    assert log.lines("store") == []


LIVES = """
import os, pickle, signal, sys, time
from pathlib import Path
import trio
from tests.simulator.node.test_restored import live

topology, folder = pickle.loads(sys.stdin.buffer.read()), Path(sys.argv[1])
SENT = folder / "sent"
# Each life is a process, forked from this one, which has imported everything.
for delay_s in map(float, sys.argv[2:]):
    before = SENT.stat().st_size if SENT.exists() else 0
    if not (child := os.fork()):
        os._exit(trio.run(live, topology, folder))
    time.sleep(delay_s)
    while delay_s == 0 and not (SENT.exists() and SENT.stat().st_size > before):
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


async def live(topology: Topology, folder: Path) -> int:
    """Run a node, and a client that constantly sends messages and records their identifiers."""
    from mqproto.simulator.node.node import run_node

    with (folder / "node.log").open("a") as log, (folder / "sent").open("ab", buffering=0) as sent:
        async with trio.open_nursery() as nursery:

            async def run(*, task_status: trio.TaskStatus[Any]) -> None:
                await run_node(topology, "sender", folder, log=log, task_status=task_status)

            await nursery.start(run)
            async with connect(topology, "sender", folder) as client:
                while True:
                    accepted = await client.send_many(NOTES, notes(0, 2))
                    accepted += await client.send_many(ORDERS, [Draft(body=b"order", transactional=True)])
                    sent.write(b"".join(b"%d\n" % message.ordinal for message in accepted))
    return 0


def delays(count: int) -> Iterable[float]:
    """Return delays before kills, in seconds: many of them end while the node is starting, and some are much longer.

    Every tenth delay is 0, which means that the kill comes once something was sent, however long that takes.
    """
    dice = random.Random(os.urandom(8))
    return [dice.choice((0.05, 0.4, 1.2)) * dice.random() if each % 10 else 0 for each in range(count)]


@pytest.mark.long
@pytest.mark.timeout(120 + 2 * KILLS)
def test_a_node_that_is_only_killed_never_begins_another_life(pair: Topology, tmp_path: Path) -> None:
    """`make lives` kills the node a thousand times."""
    done = subprocess.run(
        [sys.executable, "-c", LIVES, tmp_path, *map(str, delays(KILLS))],
        input=pickle.dumps(pair),
        capture_output=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stderr == b"", done.stderr.decode()
    assert done.stdout.split() == [b"-9"] * KILLS
    lines = [json.loads(line) for line in (tmp_path / "node.log").read_text().splitlines()]
    assert [line["notice"] for line in lines if line["event"] == "store"] == []
    assert [line for line in lines if line["event"] == "in-doubt"] == []
    started = sum(line["event"] == "started" for line in lines)
    assert started >= KILLS // 10, "most kills fall into the start"
    sent = (tmp_path / "sent").read_text().split()
    assert sent
    assert len(sent) == len({*sent}), "no MessageID is given twice"
    print(f"{KILLS} kills, {started} of them when the node had started: 0 false alarms")

"""A client that has a journal may be killed at any time: nothing is lost, and nothing arrives twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from mqproto.base.errors import UsageError
from mqproto.messages.drafts import Draft
from mqproto.simulator.cli.cli import DONE, FINDING
from mqproto.simulator.client import Client, connect, connect_to
from mqproto.simulator.client.submission import SentPart, _digest, receive_all, send_all, send_runs
from mqproto.simulator.node import control
from mqproto.simulator.node.clients.performers import FORGOTTEN, Performers
from mqproto.simulator.node.connection import Connection
from mqproto.simulator.storage import Store
from mqproto.simulator.topology import Topology, load, places
from mqproto.simulator.topology.places import socket_path
from mqproto.simulator.topology.views import as_toml
from mqproto.turn.effects import Writes
from tests.simulator.running import running, running_with_client
from tests.simulator.typed import mqproto

ORDERS: Final = r".\private$\orders"
KILLS: Final = int(os.environ.get("MQPROTO_CLIENT_KILLS", "20"))
MESSAGES: Final = 1_000

LIVES = """
import os, sys
from pathlib import Path
from tests.simulator.client.test_submission import live

# Each line of the input is a life: its process is forked from this one, which has imported everything.
for line in sys.stdin:
    what, steps, delay_s = line.split()
    if not (child := os.fork()):
        os._exit(live(what, Path(sys.argv[1]), Path(sys.argv[2]), int(steps), float(delay_s)))
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Death(trio.abc.Instrument):
    """Ends the process as a kill would, once its tasks have taken a given number of steps.

    With a delay, the process ends that long after the last of these steps. Without one, it ends right after it next
    sends something, before it hears the answer.
    """

    def __init__(self, steps: int, delay_s: float) -> None:
        self.steps = steps
        self.delay_s = delay_s

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps -= 1
        if self.steps == 0 and self.delay_s:
            # Nobody handles the signal, so the kernel ends the process wherever it is: in a flush, in a write.
            signal.setitimer(signal.ITIMER_REAL, self.delay_s)
        elif self.steps == 0:
            die_when_sent()


def die_when_sent() -> None:
    send = Connection.send

    def send_and_die(self: Connection, data: bytes) -> None:
        send(self, data)
        signal.raise_signal(signal.SIGALRM)

    Connection.send = send_and_die  # type: ignore[method-assign]


def live(what: str, socket: Path, folder: Path, steps: int, delay_s: float) -> int:
    """Run one life of an application that sends or receives messages one by one; return 0 if it finishes."""
    control.BATCH_LIMIT = 1  # type: ignore[misc]
    messages = drafts(MESSAGES)

    async def main() -> None:
        async with connect_to(socket, journal=folder / f"{what}.journal") as client:
            if what == "send":
                await send_all(client, ORDERS, messages)
            elif what == "import":
                await send_runs(client, [(ORDERS, messages[at : at + 7]) for at in range(0, MESSAGES, 7)])
            else:
                taken = [
                    message.body async for message in receive_all(client, "orders", MESSAGES, 0, limit=1)
                ]
                (folder / "taken").write_bytes(b"\n".join(taken))

    trio.run(main, instruments=[Death(steps, delay_s)])
    return 0


def drafts(count: int) -> list[Draft]:
    return [Draft(body=b"%d" % number, transactional=True) for number in range(count)]


@pytest.fixture
def topology() -> Topology:
    return load("pair").with_free_ports()


async def numbers_in(client: Client) -> list[int]:
    """Take all messages from the queue; return the numbers that they contain."""
    numbers: list[int] = []
    while messages := await client.receive("orders", limit=5, timeout_s=0):
        numbers += [int(message.body) for message in messages]
    return numbers


class Lives:
    """An application that is started again whenever it is killed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.killed = 0

    def live(self, what: str, steps: int = -1, delay_s: float = 0.0) -> bool:
        """Start the application, which Death kills after `steps` steps of its tasks.

        Return whether it finished before that.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what} {steps} {delay_s}\n".encode())
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        assert status in (0, -signal.SIGALRM), f"it ended with status {status}"
        self.killed += status != 0
        return status == 0


@contextmanager
def lives(socket: Path, folder: Path) -> Iterator[Lives]:
    process = subprocess.Popen(
        [sys.executable, "-c", LIVES, str(socket), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        yield Lives(process)
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.long
@pytest.mark.parametrize("what", ["send", "import", "receive"])
async def test_a_client_that_is_killed_again_and_again_neither_loses_nor_doubles(
    what: str, topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are 1,000 messages and 20 kills, or 200 kills with `make kills`.  Duplicate Operation Detection Support"""
    repeated = 0
    invoke = Performers.invoke

    def counted(self: Performers, *args: Any, **options: Any) -> bytes | None:
        nonlocal repeated
        outcome = invoke(self, *args, **options)
        repeated += outcome is not None
        return outcome

    monkeypatch.setattr(Performers, "invoke", counted)
    dice = random.Random(f"{what} {KILLS}")
    socket = socket_path(tmp_path, "destination")
    async with running_with_client(topology, "destination", tmp_path) as client:
        if what == "receive":
            await client.send_many(ORDERS, drafts(MESSAGES))
        with lives(socket, tmp_path) as application:
            while application.killed < KILLS:
                steps, delay_s = dice.randint(1, 80), dice.choice([0.0, dice.uniform(1e-6, 2e-3)])
                await trio.to_thread.run_sync(application.live, what, steps, delay_s)
            assert await trio.to_thread.run_sync(application.live, what)
        if what != "receive":
            assert await numbers_in(client) == list(range(MESSAGES))
        else:
            assert (tmp_path / "taken").read_bytes().split(b"\n") == [
                b"%d" % number for number in range(MESSAGES)
            ]
            assert await numbers_in(client) == []
    assert repeated > KILLS / 4, "kills came between an operation and its answer"


async def test_the_same_journal_again_sends_what_is_new_and_says_all_identifiers(
    topology: Topology, tmp_path: Path
) -> None:
    path = tmp_path / "a.journal"
    async with running(topology, "destination", tmp_path):
        said = []
        for count in (3, 3, 5):
            async with connect(topology, "destination", tmp_path, journal=path) as client:
                said.append(await send_all(client, ORDERS, drafts(count)))
        assert said[0] == said[1] == said[2][:3]
        async with connect(topology, "destination", tmp_path) as client:
            assert await numbers_in(client) == list(range(5))


async def test_runs_go_on_where_the_journal_is_whatever_is_behind_that(
    topology: Topology, tmp_path: Path
) -> None:
    path, notes = tmp_path / "a.journal", r"destination\notes"
    others = [Draft(body=b"%d" % number, recoverable=True) for number in range(10, 14)]
    runs = [(ORDERS, drafts(3)), (notes, others[:2]), (ORDERS, drafts(5)[3:]), (notes, others[2:])]
    async with running(topology, "destination", tmp_path):
        said = []
        for count in (2, 3, 4, 4):
            async with connect(topology, "destination", tmp_path, journal=path) as client:
                said.append(await send_runs(client, runs[:count]))
        assert [len(each) for each in said] == [5, 7, 9, 9]
        assert said[3] == said[2]
        assert said[2][:5] == said[0]
        async with connect(topology, "destination", tmp_path, journal=path) as client:
            with pytest.raises(UsageError, match="of other messages, from number 4 on"):
                await send_runs(client, [(ORDERS, drafts(4)), *runs[1:]])
        async with connect(topology, "destination", tmp_path) as client:
            assert await numbers_in(client) == list(range(5))
            found = await client.receive("notes", limit=9)
            assert [int(message.body) for message in found] == [10, 11, 12, 13]


def test_what_earlier_versions_did_not_have_is_in_no_digest_where_it_says_nothing() -> None:
    """The files with which `--resume` continues contain digests that earlier versions made."""
    plain = Draft(body=b"one", label="l", priority=5)
    listed = Draft(body=b"\xff", transactional=True, destinations=("PUBLIC=x",))
    digest = _digest("orders", [plain, listed])
    assert digest.hex() == "f6b9c6b0516c3705b2117b8ce34f56f0aa66102516fb4a72cb12398f8593604c"
    assert _digest("orders", [replace(plain, sender_id="S-1-5-7"), listed]) != digest


async def test_a_journal_of_other_work_is_refused_and_names_where_it_differs(
    topology: Topology, tmp_path: Path
) -> None:
    path = tmp_path / "a.journal"
    async with running(topology, "destination", tmp_path):
        async with connect(topology, "destination", tmp_path, journal=path) as client:
            await send_all(client, ORDERS, drafts(3))
            for destination, other in (
                (ORDERS, drafts(9)[1:]),
                (r".\private$\orderS", drafts(3)),
                (ORDERS, drafts(2)),
            ):
                with pytest.raises(UsageError, match=r"a\.journal is of other messages, from number 1 on"):
                    await send_all(client, destination, other)
            with pytest.raises(UsageError, match="something else than messages received from orders"):
                async for _ in receive_all(client, "orders", 1, 0, 1):
                    pass
        async with connect(topology, "destination", tmp_path, journal=tmp_path / "b.journal") as client:
            assert [message.body async for message in receive_all(client, "orders", 2, 0, 1)] == [b"0", b"1"]
            with pytest.raises(UsageError, match="messages that were received"):
                await send_all(client, ORDERS, drafts(1))


async def test_a_journal_with_tags_of_another_program_is_refused_in_a_line(
    topology: Topology, tmp_path: Path
) -> None:
    async with (
        running(topology, "destination", tmp_path),
        connect(topology, "destination", tmp_path, journal=tmp_path / "a.journal") as client,
    ):
        await client.submit(ORDERS, drafts(1), b"\x93a gateway's")
        with pytest.raises(UsageError, match=r"a\.journal is of something else: name another file to send"):
            await send_all(client, ORDERS, drafts(1))
        with pytest.raises(UsageError, match="something else than messages received from orders"):
            async for _ in receive_all(client, "orders", 1, 0, 1):
                pass


async def test_who_goes_on_after_a_doubt_is_told_which_messages_it_is_about(
    topology: Topology, tmp_path: Path
) -> None:
    doubt = control.failure(control.InDoubt("the connection broke"))
    async with (
        running(topology, "destination", tmp_path),
        connect(topology, "destination", tmp_path, journal=tmp_path / "a.journal") as client,
    ):
        await client.send_many(ORDERS, drafts(2))
        assert [message.body async for message in receive_all(client, "orders", 2, 0, 2)] == [b"0", b"1"]
        journal = client.journal
        assert journal is not None
        journal.flush()
        journal._db.execute("UPDATE operation SET answer = ?, outcome = ?", (doubt.operation, doubt.payload))
        with pytest.raises(
            control.InDoubt,
            match=r"in doubt: messages 1 to 2, which are not taken again: the connection broke\. See if",
        ):
            async for _ in receive_all(client, "orders", 2, 0, 2):
                pass


async def test_what_was_refused_is_asked_for_once_more_when_the_reason_is_gone(tmp_path: Path) -> None:
    text = """
        [node.only]
        [node.only.queue.orders]
        transactional = true
        quota_kb = 4
    """
    (tmp_path / "small.toml").write_text(text)
    small = load(str(tmp_path / "small.toml")).with_free_ports()
    large = [Draft(body=bytes([number]) * 1_000, transactional=True) for number in range(4)]
    path = tmp_path / "a.journal"
    async with running(small, "only", tmp_path):
        async with connect(small, "only", tmp_path, journal=path) as client:
            with pytest.raises(UsageError, match="full"):
                await send_all(client, ORDERS, large)
        async with connect(small, "only", tmp_path, journal=path) as client:
            assert len(await send_all(client, ORDERS, large[:1])) == 1
            assert len(await client.receive("orders", limit=9)) == 1


# A client that comes back after its node has forgotten it


def forget(store: Path, topology: Topology, invoker: bytes) -> None:
    """Make the store forget an invoker, as a node that has waited long enough does."""
    node = topology.node_named("destination")
    with Store(places.store_path(store, node.name), node.guid) as opened:
        opened.load()
        opened.commit(Writes(forgotten_invokers=[invoker], counters={FORGOTTEN[True]: 10**9}))


def move_away(store: Path, topology: Topology, invoker: bytes) -> None:
    """Move a store away, as an operator does with a damaged one."""
    for path in store.glob("destination.sqlite*"):
        path.rename(store / f"old-{path.name}")


@pytest.mark.long
@pytest.mark.parametrize(("happens", "kept"), [(forget, 500), (move_away, 0)])
async def test_send_resume_says_what_is_in_doubt_when_the_node_has_forgotten_its_journal(
    topology: Topology, tmp_path: Path, happens: Callable[[Path, Topology, bytes], None], kept: int
) -> None:
    """The node accepted the first part, but the client was killed before it heard that, and comes back a month
    later.
    """
    stores, journal = tmp_path / "stores", tmp_path / "a.journal"
    (file := tmp_path / "topology.toml").write_text(as_toml(topology))
    (lines := tmp_path / "lines").write_text("\n".join(map(str, range(1_000))))
    place = ("--node", "destination", "-t", file, "-d", stores)
    again = (
        "send",
        r"destination\orders",
        "--lines",
        "--file",
        lines,
        "--label",
        "a lot",
        "--resume",
        journal,
        *place,
    )
    stores.mkdir()
    async with (
        running(topology, "destination", stores),
        connect(topology, "destination", stores, journal=journal) as client,
    ):
        first = [Draft(body=b"%d" % number, label="a lot", transactional=True) for number in range(500)]
        tag = SentPart(0, 500, _digest(r"destination\orders", first))
        await client.submit(r"destination\orders", first, control.encode(tag))
        assert client.journal is not None
        client.journal._ended.clear()
        invoker = client.journal.invoker
    happens(stores, topology, invoker)
    async with running(topology, "destination", stores):
        for _ in range(2):
            told = await trio.to_thread.run_sync(mqproto, *again)
            assert told.status == FINDING
            assert told.complaint.startswith(
                "in doubt: messages 1 to 500 of 1,000, which are not sent again: node dest"
            )
            assert "remembers one with a journal for 30 days" in told.complaint
            assert "what labelled 'a lot' came there" in told.complaint
            assert r"`mqproto explain 'destination\orders' --" in told.complaint
        async with connect(topology, "destination", stores) as client:
            [orders] = [queue for queue in (await client.queues()).local if queue.name == "orders"]
            assert orders.waiting == kept
        other = ("send", r"destination\orders", "--body", "x", "--resume", tmp_path / "new.journal")
        new = await trio.to_thread.run_sync(mqproto, *other, *place)
        assert new.status == DONE

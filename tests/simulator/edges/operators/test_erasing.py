"""Erased data is no longer in any file, unfinished messages are refused, and the trail of each message stays."""

from __future__ import annotations

import io
import random
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Final, cast

import httpx
import pytest
import trio

from mqproto.base.errors import UsageError
from mqproto.edge.custody import End, end_of
from mqproto.messages.drafts import Draft
from mqproto.simulator.client import Client, connect
from mqproto.simulator.edges.operators import erasing
from mqproto.simulator.edges.operators.erasing import erase
from mqproto.simulator.edges.operators.reading import audited
from mqproto.simulator.node.posting import FULL_RECEIVE
from mqproto.simulator.storage import LogLimits, Store
from mqproto.simulator.topology import Topology, parse, places
from mqproto.simulator.topology.places import Place
from mqproto.turn.effects import MessageRow, QueueKind, QueueRow, Writes, message_key
from tests.databases import Server
from tests.simulator.edges.operators.desks import TWO, Typed, fails, rejects
from tests.simulator.gateways import gateway
from tests.simulator.running import running, running_with_client, until
from tests.simulator.typed import in_process
from tests.test_readme import how_to

ONE: Final = """
[node.far]
[node.far.queue.orders]
transactional = true
[node.far.queue.told]
"""
SIZES: Final = {"received": 40, "rejected": 3_000, "failed": 100_000, "waits": 5_000}
PROBE_BYTES: Final = 32
EACH_BYTES: Final = 5_000


def body_of(key: str) -> bytes:
    return random.Random(key).randbytes(SIZES[key])


def files_with(folder: Path, body: bytes) -> list[str]:
    """Return the files that contain any part of a body."""
    probes = [body[at : at + PROBE_BYTES] for at in range(0, len(body) - PROBE_BYTES + 1, EACH_BYTES)]
    return [
        path.name
        for path in sorted(folder.rglob("*"))
        if path.is_file() and any(map(path.read_bytes().__contains__, probes))
    ]


class System:
    """Two nodes and a gateway to the first."""

    def __init__(
        self, place: Place, url: str, near: Client, far: Client, producer: httpx.AsyncClient
    ) -> None:
        self.place, self.url = place, url
        self.near, self.far = near, far
        self.producer = producer

    async def post(self, key: str) -> None:
        answer = await self.producer.post(
            "/queues/orders/messages", content=body_of(key), headers={"Idempotency-Key": key}
        )
        assert answer.status_code == 200, answer.text
        await until(partial(self.far.peek, "orders"))

    async def state(self, key: str) -> str:
        return str((await self.producer.get(f"/queues/orders/messages/{key}")).json()["state"])

    async def until_state(self, key: str, state: str) -> None:
        async def is_so() -> bool:
            return await self.state(key) == state

        await until(is_so)


@asynccontextmanager
async def system(topology: Topology, folder: Path, url: str) -> AsyncIterator[System]:
    async with AsyncExitStack() as held:
        for name in topology.nodes:
            log = held.enter_context((folder / f"{name}.log").open("w"))
            await held.enter_async_context(running(topology, name, folder, cast(io.StringIO, log)))
        near, far = [
            await held.enter_async_context(connect(topology, name, folder)) for name in topology.nodes
        ]
        producer = await held.enter_async_context(gateway(topology, folder, node="near", history=url))
        yield System(Place(topology, folder), url, near, far, producer)


async def all_ends(two: System) -> None:
    """Let one message be received, one become a dead letter, one end in an error queue, and one wait.

    Two of them are also journaled.
    """
    await two.post("received")
    await two.far.receive("orders")
    await two.until_state("received", "received")
    await two.post("rejected")
    await rejects(two.far)
    await two.until_state("rejected", "dead-letter")
    await two.post("failed")
    await fails(two.far, "far")
    await two.until_state("failed", "received")
    await two.post("waits")


@pytest.mark.long
async def test_bodies_are_gone_from_all_files_and_the_trail_stays(
    tmp_path: Path, new_history_url: Callable[[], str], request: pytest.FixtureRequest
) -> None:
    topology, url = parse(TWO, "two.toml").with_free_ports(), new_history_url()
    async with system(topology, tmp_path, url) as two:
        await all_ends(two)
        assert all(files_with(tmp_path, body_of(key)) for key in SIZES)
        with pytest.raises(UsageError, match=r"waits is in its queue, for far\\orders"):
            await erase(two.place, url, ["received", "waits"], "")
        assert files_with(tmp_path, body_of("received"))
        before = audited(two.place, url).answered

        done = await erase(
            two.place, url, ["received", "rejected", "failed", "nobody's"], "a person has asked"
        )
        assert (len(done.messages), done.copies, done.missing) == (3, 4, ["nobody's"])
        assert (done.left, done.trouble) == ([], [])
        assert [files_with(tmp_path, body_of(key)) for key in ("received", "rejected", "failed")] == [[]] * 3
        after = audited(two.place, url).answered
        assert [one.key for one in before.values()] == [one.key for one in after.values()]
        assert {one.key: end_of(one) for one in after.values()} == {
            "received": End.RECEIVED,
            "rejected": End.ERASED,
            "failed": End.ERASED,
            "waits": End.IN_ITS_QUEUE,
        }
        trail = (await two.producer.get("/queues/orders/messages/rejected")).json()
        assert (trail["state"], trail["class"]) == ("dead-letter", "NACK_RECEIVE_REJECTED")
        [waits] = await two.far.receive("orders")
        assert waits.body == body_of("waits")
    if "postgresql" in url:
        server: Server = request.getfixturevalue("postgresql")
        assert [files_with(server.folder, body_of(key)) for key in SIZES] == [[]] * len(SIZES)


async def test_a_node_that_does_not_run_has_its_store_written_anew_by_the_command(tmp_path: Path) -> None:
    topology = parse(TWO, "two.toml").with_free_ports()
    body = body_of("rejected")
    async with running_with_client(topology, "far", tmp_path) as far:
        await far.change("orders", journal=False)
        sent = await far.send("orders", body, transactional=True)
        await far.scrub()  # It is in the tables now, and leaves them.
        await far.receive("orders")
        kept = await far.send("orders", b"kept", transactional=True)
    assert files_with(tmp_path, body) == ["far.sqlite"]
    done = await erase(Place(topology, tmp_path), "", [str(sent)], "")
    assert done.trouble == ["near: its store is not here: type the same where it is"]
    assert files_with(tmp_path, body) == []
    async with running_with_client(topology, "far", tmp_path) as far:
        assert [message.id for message in await far.receive("orders")] == [kept]


async def test_an_acknowledgment_that_repeats_a_body_is_in_the_way_until_somebody_has_received_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "PATIENCE", 1)
    topology, body = parse(ONE, "far.toml").with_free_ports(), body_of("rejected")
    place = Place(topology, tmp_path)
    async with running_with_client(topology, "far", tmp_path) as far:
        asks = Draft(
            body=body,
            transactional=True,
            journal_negative=True,
            admin_queue="told",
            acknowledgments=FULL_RECEIVE,
        )
        [sent] = await far.send_many("orders", [asks])
        await rejects(far)
        await until(partial(far.peek, "told"))
        with pytest.raises(UsageError, match=r"or an acknowledgment that repeats it, is at far: told"):
            await erase(place, "", [str(sent)], "")
        await far.receive("told")
        done = await erase(place, "", [str(sent)], "")
        assert (done.copies, done.is_whole) == (1, True)
        assert files_with(tmp_path, body) == []


async def test_a_store_that_is_written_anew_takes_and_gives_messages_meanwhile(tmp_path: Path) -> None:
    topology = parse(TWO, "two.toml").with_free_ports()
    count = 60
    received: list[bytes] = []
    async with running_with_client(topology, "far", tmp_path) as far, trio.open_nursery() as nursery:

        async def send() -> None:
            for number in range(count):
                await far.send("orders", b"%d" % number, transactional=True)

        async def receive() -> None:
            while len(received) < count:
                received.extend(one.body for one in await far.receive("orders", 7))

        nursery.start_soon(send)
        nursery.start_soon(receive)
        for _ in range(3):
            await far.scrub()
    assert received == [b"%d" % number for number in range(count)]
    with Store(places.store_path(tmp_path, "far"), topology.nodes["far"].guid) as store:
        assert store.notices == []


def test_the_command_says_what_it_does_not_know(tmp_path: Path) -> None:
    typed = Typed(tmp_path, "two.toml", TWO)
    done = in_process("erase", "nobody's", *typed.options)
    assert done.status == 2
    where = f"--topology {typed.file} --directory {tmp_path}"
    assert done.complaint == (
        f"nobody knows nobody's: `mqproto audit --each {where}` has all that was answered 200"
    )
    assert done.out == "0 messages erased, 0 taken out of queues\n"
    assert done.out.replace("0", "2", 1).replace("0", "3") in how_to("erase-data")


def test_a_store_that_goes_on_has_nothing_of_what_has_left_it_in_sqlites_log_either(tmp_path: Path) -> None:
    topology, body = parse(TWO, "two.toml"), body_of("rejected")
    path, node = places.store_path(tmp_path, "far"), topology.nodes["far"].guid
    with Store(path, node, LogLimits(reserve_bytes=0)) as store:
        row = MessageRow(message_key(1, 1), body, 7, final_ack=False)
        store.commit(Writes(queues=[QueueRow(1, QueueKind.LOCAL, "orders")], messages=[row]))
        store.settle()
        store.commit(Writes(removals=[(row.key, row.key)]))
        store.settle()
        assert "far.sqlite-wal" in files_with(tmp_path, body)
        store.overwrite()
        store.overwritten()
        assert files_with(tmp_path, body) == []
        store.commit(Writes(messages=[MessageRow(message_key(1, 2), b"more", 8, final_ack=False)]))
        assert store.counts(QueueKind.LOCAL) == {"orders": 1}


def test_what_is_committed_while_the_tables_are_written_anew_needs_none_of_them(tmp_path: Path) -> None:
    """During that time, SQLite lets nobody else write: a node that had to commit would end."""
    topology = parse(TWO, "two.toml")
    path, node = places.store_path(tmp_path, "far"), topology.nodes["far"].guid
    with Store(path, node) as store:
        store.settle()
        with closing(sqlite3.connect(path, isolation_level=None)) as anew:
            anew.execute("BEGIN IMMEDIATE")
            row = MessageRow(message_key(1, 1), body_of("rejected"), 7, final_ack=False)
            store.commit(Writes(queues=[QueueRow(1, QueueKind.LOCAL, "orders")], messages=[row]))
        assert store.counts(QueueKind.LOCAL) == {"orders": 1}

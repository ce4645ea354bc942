"""A caller is told how its operation ended, whatever happens meanwhile to the connection, the node and the journal."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio

from mqproto.edge.operations import Invoker
from mqproto.messages.drafts import Draft
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.client import Client, InDoubt, NodeUnreachable, connect, connect_to
from mqproto.simulator.client.journal import opened
from mqproto.simulator.node import control
from mqproto.simulator.node.control import FrameBuffer, Operation
from mqproto.simulator.topology import Topology, places
from tests.simulator.running import running

ORDERS = r".\private$\orders"
NOTES = r".\private$\notes"


@contextmanager
def no_room(client: Client) -> Iterator[None]:
    """Keep the client's journal from growing during the block."""
    assert client.journal is not None
    db = client.journal._db
    [(pages,)] = db.execute("PRAGMA page_count").fetchall()
    db.execute(f"PRAGMA max_page_count = {pages}").close()
    yield
    db.execute("PRAGMA max_page_count = 1000000").close()


async def send(client: Client, size_bytes: int) -> None:
    with pytest.raises(StoreError, match="the disk is full: make room, then do the same again"):
        await client.send(ORDERS, bytes(size_bytes), transactional=True)


async def bodies(client: Client) -> list[bytes]:
    return [message.body for message in await client.receive("orders", limit=500)]


async def test_all_who_wait_are_told_that_the_journal_is_full(topology: Topology, tmp_path: Path) -> None:
    """There are more operations than may be outstanding, so some wait for others."""
    async with (
        running(topology, "destination", tmp_path),
        connect(topology, "destination", tmp_path, journal=tmp_path / "a.journal") as client,
    ):
        with no_room(client):
            async with trio.open_nursery() as nursery:
                for _ in range(2 * control.PROFILE + 1):
                    nursery.start_soon(send, client, 100_000)
        await client.send(ORDERS, b"1", transactional=True)
        assert await bodies(client) == [b"1"]


async def test_what_the_journal_could_not_take_leaves_no_gap(topology: Topology, tmp_path: Path) -> None:
    """Duplicate Operation Detection Support: identifiers are consecutive; otherwise, reused ones would be taken for old
    ones.
    """
    async with (
        running(topology, "destination", tmp_path),
        connect(topology, "destination", tmp_path, journal=tmp_path / "a.journal") as client,
    ):
        await client.send(ORDERS, b"0", transactional=True)
        with no_room(client):
            for _ in range(255):
                await send(client, 100_000)
        await client.send(ORDERS, b"1", transactional=True)
        assert await bodies(client) == [b"0", b"1"]


async def taken_in_a_transaction(client: Client) -> object:
    async with client.transaction("orders") as taken:
        return taken


@pytest.mark.parametrize("transactional", [False, True])
async def test_messages_whose_commit_the_journal_could_not_take_are_where_they_were(
    topology: Topology, tmp_path: Path, transactional: bool
) -> None:
    """The messages are back at once, and not only when the client ends."""
    async with (
        running(topology, "destination", tmp_path),
        connect(topology, "destination", tmp_path) as other,
        connect(topology, "destination", tmp_path, journal=tmp_path / "a.journal") as client,
    ):
        await other.send(ORDERS, b"0", transactional=True)
        assert client.journal is not None
        client.journal._db.execute("PRAGMA query_only = 1").close()
        with pytest.raises(StoreError, match="read-only"):
            await (taken_in_a_transaction(client) if transactional else client.receive("orders"))
        assert await bodies(other) == [b"0"]
        client.journal._db.execute("PRAGMA query_only = 0").close()


async def test_a_commit_that_was_cancelled_before_its_turn_came_does_not_happen_later(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.simulator.client.client.SETTLE_TIMEOUT_S", 0.05)
    async with running(topology, "destination", tmp_path):
        async with connect(topology, "destination", tmp_path) as client:
            await client.send(ORDERS, b"0", transactional=True)
            with monkeypatch.context() as full:
                full.setattr(Invoker, "may_begin", property(lambda invoker: False))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.receive, "orders")
                    while not client._exchange._waiting:
                        await trio.lowlevel.checkpoint()
                    nursery.cancel_scope.cancel()
            await client.send(ORDERS, b"1", transactional=True)
        async with connect(topology, "destination", tmp_path) as client:
            assert await bodies(client) == [b"0", b"1"]


@pytest.mark.parametrize("begun", [False, True])
async def test_what_was_never_sent_to_a_node_that_is_gone_is_never_sent(
    topology: Topology, tmp_path: Path, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operation was requested just as the node was given up, or while it was away; callers may rely on its not
    being sent.
    """
    wish = control.Send(ORDERS, [Draft(body=b"0", transactional=True)])
    path = tmp_path / "a.journal"
    async with (
        running(topology, "destination", tmp_path) as node,
        connect(topology, "destination", tmp_path, journal=path) as client,
    ):
        exchange = client._exchange
        asked = []

        async def reconnect() -> None:
            asked.append(exchange.request(Operation.SEND, wish))
            while begun and not exchange._pending:
                await trio.lowlevel.checkpoint()
            raise NodeUnreachable("gone")

        monkeypatch.setattr(exchange, "_reconnect", reconnect)
        node.stop()
        await client.lost()
        with pytest.raises(NodeUnreachable, match="has not answered SEND: connect again"):
            await exchange.answer(asked[0])
        with opened(Path(shutil.copy(path, tmp_path / "copy"))) as copy:
            assert copy.state() == (0, [])


@asynccontextmanager
async def a_node(tmp_path: Path, *, breaks_off: bool) -> AsyncIterator[Path]:
    """Run something like a node, with a new life for each connection.

    The first connection gets no answer: it breaks, or it is silent from some point on.
    """
    lives = 0
    path = places.prepared(places.socket_path(tmp_path, "fake"))

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal lives
        lives = life = lives + 1
        buffer = FrameBuffer()
        async with stream:
            async for chunk in stream:
                for request in buffer.feed(chunk):
                    if request.operation == Operation.HELLO:
                        result: object = control.Hello(
                            control.VERSION, "fake", b"guid", life, control.PROFILE
                        )
                    elif life > 1:
                        result = control.Sent([(1, 1)])
                    elif breaks_off:
                        return
                    else:
                        continue
                    await stream.send_all(control.frame(Operation.DONE, request.request, result))

    listening = trio.socket.socket(trio.socket.AF_UNIX)
    await listening.bind(str(path))
    listening.listen()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, [trio.SocketListener(listening)])
            yield path
            nursery.cancel_scope.cancel()
    finally:
        path.unlink()


async def test_those_behind_operations_in_doubt_have_their_turn(tmp_path: Path) -> None:
    ends: list[str] = []

    async def send_express(client: Client) -> None:
        try:
            await client.send(NOTES, b"")
        except InDoubt:
            ends.append("in doubt")
        else:
            ends.append("sent")

    async with (
        a_node(tmp_path, breaks_off=True) as path,
        connect_to(path) as client,
        trio.open_nursery() as nursery,
    ):
        for _ in range(control.PROFILE + 9):
            nursery.start_soon(send_express, client)
    assert ends == ["in doubt"] * control.PROFILE + ["sent"] * 9


async def test_an_operation_that_a_silent_node_does_not_answer_is_asked_for_over_another_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds if the client had nothing to request when it began to listen."""
    monkeypatch.setattr("mqproto.simulator.client.exchange.SILENCE_S", 0.05)
    async with a_node(tmp_path, breaks_off=False) as path, connect_to(path) as client:
        await trio.testing.wait_all_tasks_blocked()
        assert (await client.send(NOTES, b"", recoverable=True)).ordinal == 1

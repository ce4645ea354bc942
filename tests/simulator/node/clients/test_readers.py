"""Readers: the socket that they use, what they see, and that they change nothing."""

from __future__ import annotations

import grp
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from mqproto.base.errors import UsageError
from mqproto.messages.drafts import Draft
from mqproto.simulator.client import Client, connect
from mqproto.simulator.node import control
from mqproto.simulator.node.clients.readers import LOOKS, listening_for_readers
from mqproto.simulator.node.control import Operation, Settlement
from mqproto.simulator.node.node import run_node
from mqproto.simulator.topology import Topology, places
from mqproto.simulator.topology.alone import node_alone
from tests.simulator.running import Log, running

NOBODY: Final = 65_534
OURS: Final = grp.getgrgid(os.getgid()).gr_name
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user is only to be had by root")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can enter, unlike pytest's; its name is short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="mq-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def topology(tmp_path: Path, folder: Path) -> Topology:
    """A single node that our own group may look at."""
    found, _ = node_alone("shop", tmp_path)
    return with_readers(found.with_free_ports(), OURS, folder / "look")


def with_readers(topology: Topology, group: str, folder: Path) -> Topology:
    return topology.with_readers("shop", group, folder)


async def prepared(client: Client) -> None:
    await client.make("orders", transactional=True)
    await client.send_many("orders", [Draft(body=b"one", transactional=True)] * 2)


WISHES: Final[dict[Operation, Any]] = {
    Operation.HOLD: control.Hold("orders", True),
    Operation.RECEIVE: control.Receive("orders", 1, 0),
    Operation.BLOCK: control.Block("192.0.2.1", True, False),
    Operation.PEER: control.PeerFacts("office", "192.0.2.1"),
    Operation.SCRUB: control.Nothing(),
    Operation.KEYS: control.Nothing(),
    Operation.SEND: control.Send("orders", [Draft(body=b"x", transactional=True)]),
    Operation.SETTLE: control.Settle(1, Settlement.COMMIT),
    Operation.SEND_TOGETHER: control.SendTogether([("orders", Draft(body=b"x", transactional=True))]),
    Operation.PURGE: control.OneQueue("orders"),
    Operation.DELETE: control.OneQueue("orders"),
    Operation.SEND_BACK: control.SendBack("deadxact", None),
    Operation.MAKE: control.QueueWish("more"),
    Operation.CHANGE: control.QueueWish("orders", quota_kb=1),
}
"""Every request that does more than look, keyed by its operation."""


async def test_whatever_a_reader_asks_for_nothing_changes(
    topology: Topology, tmp_path: Path, folder: Path
) -> None:
    assert set(WISHES) == set(control.REQUESTS) - LOOKS, "a new request is a look, or stands here"
    log = Log()
    async with running(topology, "shop", tmp_path, log), connect(topology, "shop", tmp_path) as client:
        await prepared(client)
        before, declared, done = await state(client), await client.declared(), len(log.lines("operated"))
        path = places.reading_socket(folder / "look", "shop")
        async with await trio.open_unix_socket(path) as stream:
            buffer = control.FrameBuffer(2**30)
            introduction = control.InvokerIntroduction(b"x" * 16, lasting=True)
            await stream.send_all(control.frame(Operation.HELLO, 1, introduction))
            [hello] = buffer.feed(await stream.receive_some())
            told = control.result(Operation.HELLO, hello)
            assert (told.node, told.birth) == ("shop", b"")  # Nothing is remembered of it.
            for request, (operation, wish) in enumerate(WISHES.items(), 2):
                identifier = request if operation in control.NUMBERED else None
                await stream.send_all(control.framed(operation, request, control.encode(wish), identifier))
                [answer] = buffer.feed(await stream.receive_some())
                with pytest.raises(
                    UsageError, match="readers of shop may look and change nothing, and"
                ) as no:
                    control.result(operation, answer)
                assert "\n" not in str(no.value)
                assert "be " in str(no.value)
        assert (await state(client), await client.declared()) == (before, declared)
        assert len(log.lines("operated")) == done
        refused = log.lines("not-allowed")
        assert [line["operation"] for line in refused][:2] == ["hold", "receive"]
        assert len(refused) == len(WISHES)
        assert {line["pid"] for line in refused} == {os.getpid()}


async def state(client: Client) -> list[Any]:
    status = await client.queues()
    return [*status.local, *status.outgoing, *(await client.peek("orders", 9))]


async def test_a_reader_sees_what_everybody_sees(topology: Topology, tmp_path: Path, folder: Path) -> None:
    async with running(topology, "shop", tmp_path), connect(topology, "shop", tmp_path) as client:
        await prepared(client)
        async with connect(topology, "shop", folder / "look") as reader:
            assert [message.body for message in await reader.peek("orders", 9)] == [b"one", b"one"]
            assert (await reader.queues()).local == (await client.queues()).local
            assert await reader.declared() == await client.declared()
            assert (await reader.explain("orders", 5)).messages
            await reader.peers()
            with pytest.raises(UsageError, match="and purge does: be "):
                await reader.purge("orders")
            with pytest.raises(UsageError, match="and send does: be "):
                await reader.send("orders", b"x", transactional=True)


async def test_many_questions_of_a_reader_are_all_answered(
    topology: Topology, tmp_path: Path, folder: Path
) -> None:
    async with running(topology, "shop", tmp_path), connect(topology, "shop", tmp_path) as client:
        await prepared(client)
        path = places.reading_socket(folder / "look", "shop")
        async with await trio.open_unix_socket(path) as stream:
            asked = [
                control.frame(Operation.EXPLAIN if request % 2 else Operation.PEEK, request, wish)
                for request in range(40)
                for wish in [control.Explain("orders", 1) if request % 2 else control.Peek("orders", 9)]
            ]
            await stream.send_all(b"".join(asked))
            buffer, answers = control.FrameBuffer(2**30), set[int]()
            while len(answers) < len(asked):
                answers |= {answer.request for answer in buffer.feed(await stream.receive_some())}
        assert answers == set(range(40))


async def test_a_reader_that_does_not_read_is_not_listened_to(
    topology: Topology, tmp_path: Path, folder: Path
) -> None:
    """Otherwise, questions of a few bytes each would fill the node's memory with answers."""
    log = Log()
    async with running(topology, "shop", tmp_path, log), connect(topology, "shop", tmp_path) as client:
        await client.make("large")
        await client.send_many("large", [Draft(body=bytes(2**16))] * 16)
        path = places.reading_socket(folder / "look", "shop")
        async with await trio.open_unix_socket(path) as stream:
            order = control.encode(control.OneQueue("large"))
            asked = [control.frame(Operation.PEEK, 1, control.Peek("large", 16))]
            asked.append(control.framed(Operation.PURGE, 2, order, 0))
            await stream.send_all(b"".join(asked))
            buffer, answers = control.FrameBuffer(2**30), list[int]()
            answers += [answer.request for answer in buffer.feed(await stream.receive_some(1))]
            await client.queues()
            assert log.lines("not-allowed") == []
            while len(answers) < 2:
                answers += [answer.request for answer in buffer.feed(await stream.receive_some())]
    assert answers == [1, 2]
    assert len(log.lines("not-allowed")) == 1


# Users and groups


@contextmanager
def being(uid: int, gid: int, *groups: int) -> Iterator[None]:
    """Make the kernel treat this process as another user's during the block, in which nothing may be awaited."""
    before = os.getgroups(), os.getegid()
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(before[1])
        os.setgroups(before[0])


@as_root
async def test_who_is_of_the_group_gets_in_and_nobody_else_and_each_is_named(
    topology: Topology, tmp_path: Path, folder: Path
) -> None:
    group, log = grp.getgrgid(1), Log()
    topology = with_readers(topology, group.gr_name, folder / "look")
    path = places.reading_socket(folder / "look", "shop")
    async with running(topology, "shop", tmp_path, log):
        own = places.socket_path(tmp_path, "shop")
        for door in (path, own):
            with (
                socket.socket(socket.AF_UNIX) as other,
                being(NOBODY, NOBODY),
                pytest.raises(PermissionError),
            ):
                other.connect(str(door))
        with socket.socket(socket.AF_UNIX) as other, being(NOBODY, NOBODY, 1), pytest.raises(PermissionError):
            other.connect(str(own))
        reader = socket.socket(socket.AF_UNIX)
        with being(NOBODY, NOBODY - 1, 1):
            reader.connect(str(path))
        async with trio.SocketStream(trio.socket.from_stdlib_socket(reader)) as stream:
            await stream.send_all(
                control.framed(Operation.PURGE, 7, control.encode(WISHES[Operation.PURGE]), 0)
            )
            await stream.receive_some()
        line = await log.line("not-allowed")
    assert (line["uid"], line["gid"], line["operation"]) == (NOBODY, NOBODY - 1, "purge")
    modes = [(stat.S_IMODE(each.stat().st_mode), each.stat().st_gid) for each in (path.parent, path)]
    assert modes == [(0o750, 1), (0o660, 1)]
    copy = folder / "look" / "shop.toml"
    assert (stat.S_IMODE(copy.stat().st_mode), copy.stat().st_gid) == (0o640, 1)


async def test_the_folder_of_readers_is_known_for_what_it_is(
    topology: Topology, tmp_path: Path, folder: Path
) -> None:
    look = folder / "look"
    async with running(topology, "shop", tmp_path), connect("shop", "shop", look) as reader:
        with pytest.raises(
            UsageError, match="readers of shop may look and change nothing, and make does: be "
        ):
            await reader.make("more")
    assert (look / "shop.toml").read_text() == (tmp_path / "shop.toml").read_text()
    with pytest.raises(UsageError, match=f"{look} is for those who may only look"):
        await run_node(topology, "shop", look)
    assert [path.name for path in look.iterdir() if path.suffix != ".toml"] == ["shop.read"]


def test_what_cannot_be_given_to_readers_is_one_line(tmp_path: Path, folder: Path) -> None:
    (folder / "stores").mkdir()
    (folder / "stores" / "a.sqlite").touch()
    (folder / "link").symlink_to(folder)
    for group, place, complaint in (
        ("no-such-group", folder / "look", "--readers no-such-group: the system has no such group"),
        (OURS, folder / "stores", "has stores in it: name a folder for readers alone"),
        (OURS, folder / "link", "must be a folder of"),
        (OURS, folder / ("x" * 200), "is too long for a socket: name a shorter --readers-folder"),
        (OURS, Path("/proc/look"), "cannot be given to this group"),
    ):
        with pytest.raises(UsageError) as refused, listening_for_readers(group, place, "shop"):
            pass
        assert complaint in str(refused.value)
        assert "\n" not in str(refused.value)


@as_root
def test_a_folder_belongs_to_one_group(folder: Path) -> None:
    look, other = folder / "look", grp.getgrgid(1).gr_name
    for name in ("a", "b"):
        with listening_for_readers(OURS, look, name):
            pass
    refused = pytest.raises(UsageError, match=r"is for another group, as [ab]\.read is there")
    with refused, listening_for_readers(other, look, "c"):
        pass


async def test_a_node_has_no_such_door_unless_it_is_told_to(topology: Topology, tmp_path: Path) -> None:
    nodes = {"shop": replace(topology.nodes["shop"], readers="", readers_folder=None)}
    log = Log()
    async with running(replace(topology, nodes=nodes), "shop", tmp_path, log):
        assert log.lines("started")[0]["readers"] == "off"
        assert stat.S_IMODE(places.socket_path(tmp_path, "shop").stat().st_mode) == 0o600

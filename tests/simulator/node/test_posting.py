"""Messages that a front hands to its node in the same process: once each, on disk, in order, and told of."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from mqproto.base.errors import QuotaExceeded, UsageError
from mqproto.messages.drafts import Draft
from mqproto.simulator.base.storeerrors import DamageError, StoreError
from mqproto.simulator.client import Client, connect
from mqproto.simulator.edges.history.lives import is_forgotten
from mqproto.simulator.node.node import RunningNode
from mqproto.simulator.node.posting import FULL_RECEIVE, IdInDoubtError, KeyReusedError, Posted
from mqproto.simulator.storage import Store
from mqproto.simulator.topology import Topology
from mqproto.turn.effects import PostedChange, PostedRow, Writes
from mqproto.wire import MessageClass
from tests.simulator.running import Log, running, until

QUEUE = r"destination\orders"


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def node(topology: Topology, tmp_path: Path, log: Log) -> AsyncIterator[RunningNode]:
    async with running(topology, "destination", tmp_path, log) as node:
        yield node


@pytest.fixture
async def client(node: RunningNode, topology: Topology, tmp_path: Path) -> AsyncIterator[Client]:
    async with connect(topology, "destination", tmp_path) as client:
        yield client


async def post(node: RunningNode, key: str = "", body: bytes = b"x", queue: str = QUEUE) -> Posted:
    draft = Draft(
        body=body, transactional=True, admin_queue=node.posting.address, acknowledgments=FULL_RECEIVE
    )
    return await node.posting.post(queue, draft, key, body)


async def test_a_repetition_has_the_same_identifier_before_and_after_a_restart(
    topology: Topology, tmp_path: Path
) -> None:
    async with running(topology, "destination", tmp_path) as node:
        first = await post(node, "17")
        assert not first.is_repeated
        assert await post(node, "17") == Posted(first.message_id, is_repeated=True)
    async with running(topology, "destination", tmp_path) as node:
        assert await post(node, "17") == Posted(first.message_id, is_repeated=True)
        with pytest.raises(KeyReusedError, match="other content"):
            await post(node, "17", b"y")


async def test_of_the_same_id_in_one_turn_the_second_waits_for_the_flush_of_the_first(
    node: RunningNode, client: Client
) -> None:
    found = list[Posted | str]()

    async def one(body: bytes) -> None:
        try:
            found.append(await post(node, "17", body))
        except KeyReusedError:
            found.append("reused")

    commits = list[int]()
    commit = node.commit

    def counted(writes: Writes) -> int:
        assert found == []
        commits.append(len(writes.posted))
        return commit(writes)

    node.commit = counted  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        for body in (b"x", b"x", b"x"):
            nursery.start_soon(one, body)
    node.commit = commit  # type: ignore[method-assign]
    assert commits == [1]
    assert sorted(each.is_repeated for each in found if isinstance(each, Posted)) == [False, True, True]
    assert len({each.message_id for each in found if isinstance(each, Posted)}) == 1
    assert len(await client.receive(QUEUE.partition("\\")[2], 10)) == 1


async def test_what_is_refused_keeps_no_id(node: RunningNode, client: Client) -> None:
    with pytest.raises(UsageError):
        await node.posting.post(QUEUE, Draft(body=b"x", transactional=False), "17", b"x")
    assert not (await post(node, "17")).is_repeated


async def test_messages_without_an_id_are_all_new_and_their_ends_are_known(
    node: RunningNode, client: Client
) -> None:
    one, other = await post(node), await post(node)
    assert one.message_id != other.message_id
    await client.receive("orders", 2)

    async def are_received() -> bool:
        return node.posting.ends["ACK_RECEIVE"] == 2

    await until(are_received)


async def test_the_end_is_in_its_row_and_nothing_waits_anywhere(node: RunningNode, client: Client) -> None:
    await post(node, "17")
    row = node.posting.look(QUEUE, "17")
    assert row is not None
    assert row.message_class == MessageClass.NORMAL
    await client.receive("orders", 1)

    async def is_received() -> bool:
        row = node.posting.look(QUEUE, "17")
        return row is not None and row.message_class == MessageClass.ACK_RECEIVE

    await until(is_received)
    assert not any(queue.waiting for queue in (await client.queues()).local)


class Ordered(Log):
    """A log that notes the events of its lines in `order`."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self.order = order

    def write(self, text: str) -> int:
        self.order += [json.loads(line)["event"] for line in text.splitlines()]
        return super().write(text)


async def test_the_order_of_a_turn_is_flush_lines_answers(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, commit = list[str](), Store.commit

    def committed(store: Store, writes: Writes) -> None:
        commit(store, writes)
        order.extend(["flush"] * bool(writes.posted))

    monkeypatch.setattr(Store, "commit", committed)

    async def one(node: RunningNode, key: str) -> None:
        await post(node, key)
        order.append("answer")

    async with running(topology, "destination", tmp_path, Ordered(order)) as node:
        order.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, node, "1")
            nursery.start_soon(one, node, "2")
        assert order == ["flush", "accepted", "accepted", "answer", "answer"]


async def test_a_row_that_is_damaged_or_that_the_store_cannot_know_is_in_doubt(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(store: Store, queue: str, key: str) -> PostedRow | None:
        raise DamageError("in table posted the row of 1 does not fit its checksum")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "posted", damaged)
        with pytest.raises(IdInDoubtError, match="damaged"):
            await post(node, "17")
        assert not (await post(node)).is_repeated, "without an id nothing is asked"
    node.core.inspect().posted.is_unknown = True
    with pytest.raises(IdInDoubtError, match="put back or repaired"):
        await post(node, "18")


async def test_what_has_not_changed_for_long_is_forgotten_and_then_new(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = node.posting.origin
    first = await post(node, "17")
    node.core.inspect().posted.time._ran_s += node.posting.keep_s + 100
    node._store.settle()
    node.posting.tidy()
    second = await post(node, "17")
    assert not second.is_repeated
    assert second.message_id != first.message_id
    assert is_forgotten(before, node.posting.origin)


async def test_a_queue_elsewhere_that_was_full_counts_as_full_for_a_while(
    node: RunningNode, autojump_clock: trio.testing.MockClock
) -> None:
    posted = await post(node, "17")
    number = int(posted.message_id.rpartition("\\")[2])
    assert node.posting.full_s(QUEUE) == 0
    node.posting.carried_out([], [PostedChange(number, 1, MessageClass.NACK_Q_EXCEED_QUOTA, 0)])
    assert 9 < node.posting.full_s(QUEUE) <= 10
    await trio.sleep(11)
    assert node.posting.full_s(QUEUE) == 0


async def test_a_disk_that_fails_answers_nobody(topology: Topology, tmp_path: Path) -> None:
    answered = list[Posted]()

    def failing(store: Store, writes: Writes) -> None:
        raise StoreError("the disk fails")

    async def until_it_fails() -> None:
        async with running(topology, "destination", tmp_path) as node:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Store, "commit", failing)
                answered.append(await post(node, "17"))

    with pytest.raises(ExceptionGroup) as failed:
        await until_it_fails()
    assert failed.group_contains(StoreError, match="the disk fails")
    assert answered == []


async def test_a_full_disk_refuses_what_is_new_and_takes_what_ends_and_the_same_again(
    node: RunningNode, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await post(node, "17")
    with monkeypatch.context() as patch:
        patch.setattr("mqproto.simulator.node.posting.found_for", lambda *_: False)
        patch.setattr(node.core, "enqueue", _full)
        with pytest.raises(QuotaExceeded):
            await post(node, "18")
        assert await post(node, "17") == Posted(first.message_id, is_repeated=True)
        [_] = await client.receive("orders", 1)

        async def has_ended() -> bool:
            row = node.posting.look(QUEUE, "17")
            return row is not None and row.message_class == MessageClass.ACK_RECEIVE

        await until(has_ended)
    assert not (await post(node, "18")).is_repeated


def _full(*_: object, **__: object) -> list[int]:
    raise QuotaExceeded("the disk is full")

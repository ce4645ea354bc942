"""Ids that gateways of several nodes share: each message is accepted by one of them, whoever is killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio

from mqproto.edge.exactlyonce import Entry
from mqproto.messages.drafts import Draft
from mqproto.simulator.edges.gateway.refusals import Code
from mqproto.simulator.edges.history.history import DocumentHistory, HistoryError, open_history
from mqproto.simulator.node.posting import FULL_RECEIVE
from mqproto.simulator.topology import Topology
from mqproto.wire.guid import guid_text
from tests.simulator.gateways import gateway
from tests.simulator.running import RUNNING, running, until

ORDERS = r"/queues/destination%5Corders/messages"
SCOPE = r"gateway/destination\orders"


@asynccontextmanager
async def two(
    topology: Topology, tmp_path: Path, history_url: str
) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """Run two nodes, each with a gateway; yield a producer of each."""
    async with (
        gateway(topology, tmp_path, node="sender", history=history_url) as one,
        gateway(topology, tmp_path, node="destination", history=history_url) as other,
    ):
        yield one, other


async def test_what_one_has_accepted_is_a_duplicate_at_the_other(
    topology: Topology, tmp_path: Path, history_url: str
) -> None:
    headers = {"Idempotency-Key": "17"}
    async with two(topology, tmp_path, history_url) as (one, other):
        first = (await one.post(ORDERS, content=b"x", headers=headers)).json()
        assert first["duplicate"] is False

        async def is_finished() -> bool:
            return (await other.post(ORDERS, content=b"x", headers=headers)).status_code == 200

        await until(is_finished)
        for each in (one, other):
            answer = await each.post(ORDERS, content=b"x", headers=headers)
            assert answer.json() == {"id": first["id"], "duplicate": True}
        reused = await other.post(ORDERS, content=b"y", headers=headers)
        assert reused.json()["code"] == Code.KEY_REUSED

        async def owes_nothing() -> bool:
            return not RUNNING[tmp_path, "sender"].posting.owed()

        await until(owes_nothing)


async def test_of_many_at_once_at_both_one_is_new(
    topology: Topology, tmp_path: Path, history_url: str
) -> None:
    told = list[bool | str]()

    async def ask(client: httpx.AsyncClient) -> None:
        while True:
            answer = await client.post(ORDERS, content=b"x", headers={"Idempotency-Key": "17"})
            if answer.status_code == 200:
                return told.append(answer.json()["duplicate"])
            assert answer.json()["code"] == Code.IN_PROGRESS
            await trio.sleep(0.01)

    async with two(topology, tmp_path, history_url) as clients, trio.open_nursery() as nursery:
        for client in clients * 3:
            nursery.start_soon(ask, client)
    assert sorted(told) == [False, *[True] * 5]


@pytest.mark.parametrize("has_message", [True, False])
async def test_what_a_killed_gateway_had_begun_is_settled_when_it_starts(
    topology: Topology, tmp_path: Path, history_url: str, has_message: bool
) -> None:
    queue = r"destination\orders"
    async with running(topology, "destination", tmp_path) as node, open_history(history_url) as history:
        owner = f"gateway {guid_text(node.topology.nodes['destination'].guid)}"
        await history.begin(SCOPE, "17", owner)
        if has_message:
            draft = Draft(
                body=b"x",
                transactional=True,
                admin_queue=node.posting.address,
                acknowledgments=FULL_RECEIVE,
            )
            await node.posting.post(queue, draft, "17", b"\1", owed=True)
    async with gateway(topology, tmp_path, history=history_url), open_history(history_url) as history:
        record = await history.look(SCOPE, "17")
        assert record.entry is (Entry.COMPLETED if has_message else Entry.ABSENT)
        posting = RUNNING[tmp_path, "destination"].posting

        async def owes_nothing() -> bool:
            return not posting.owed()

        await until(owes_nothing)


async def test_without_the_history_nothing_with_an_id_is_taken(
    topology: Topology, tmp_path: Path, history_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(history: DocumentHistory, *given: object, **more: object) -> None:
        raise HistoryError("it is away")

    async with gateway(topology, tmp_path, history=history_url) as producer:
        with monkeypatch.context() as patch:
            patch.setattr(DocumentHistory, "begin", gone)
            answer = await producer.post(ORDERS, content=b"x", headers={"Idempotency-Key": "17"})
            assert answer.json()["code"] == Code.HISTORY_UNAVAILABLE
            assert (await producer.post(ORDERS, content=b"x")).status_code == 200

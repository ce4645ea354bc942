"""A message that was answered with 200 never disappears: a gateway hears how each message ended, and reports it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import httpx
import pytest
import trio
from trio.testing import MockClock

from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.base.log import node_log
from mqproto.simulator.client import Client, MessageId, NodeUnreachable, ReceivedMessage, Reject, connect
from mqproto.simulator.edges.gateway.confirmations import COMPANY_S, LIMIT, ConfirmationReader
from mqproto.simulator.edges.gateway.fullness import FullQueues
from mqproto.simulator.edges.history.history import open_history
from mqproto.simulator.edges.trail import ENDS
from mqproto.simulator.topology import Topology, parse, places
from mqproto.wire import MessageClass, encode_packet
from mqproto.wire.guid import guid_text
from tests.examples import a_guid, a_user_message
from tests.simulator.consumers import HttpConsumer, listening
from tests.simulator.gateways import gateway
from tests.simulator.running import Log, running, until

GUID: Final = a_guid(7)
SMALL = """
[node.near]
[node.near.queue.own]
transactional = true
[node.far]
[node.far.queue.orders]
transactional = true
quota_kb = 64
[node.far.queue.notes]
[[link]]
between = ["near", "far"]
"""


@pytest.fixture
def topology() -> Topology:
    return parse(SMALL, "small").with_free_ports()


class Both:
    """Two nodes, a gateway to the first, and a client of the second."""

    def __init__(self, producer: httpx.AsyncClient, far: Client, log: Log) -> None:
        self.producer = producer
        self.far = far
        self.log = log

    async def post(self, key: str, body: bytes = b"x", queue: str = "orders", **headers: str) -> str:
        answer = await self.producer.post(
            f"/queues/{queue}/messages", content=body, headers={"Idempotency-Key": key, **headers}
        )
        assert answer.status_code == 200, answer.text
        identifier: str = answer.json()["id"]
        return identifier

    async def trail(self, key: str, queue: str = "orders") -> dict[str, Any]:
        answer = await self.producer.get(f"/queues/{queue}/messages/{key}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def until(self, key: str, state: str, queue: str = "orders") -> dict[str, Any]:
        found = {}

        async def is_so() -> bool:
            nonlocal found
            found = await self.trail(key, queue)
            return bool(found["state"] == state)

        await until(is_so)
        return found


async def both(held: AsyncExitStack, topology: Topology, folder: Path, **options: Any) -> Both:
    log = Log()
    for name in ("near", "far"):
        await held.enter_async_context(running(topology, name, folder))
    producer = await held.enter_async_context(gateway(topology, folder, log, node="near", **options))
    far = await held.enter_async_context(connect(topology, "far", folder))
    return Both(producer, far, log)


async def test_a_message_is_accepted_until_a_program_has_received_it(
    topology: Topology, tmp_path: Path
) -> None:
    async with AsyncExitStack() as held:
        all_ = await both(held, topology, tmp_path)
        message = await all_.post("one")
        assert await all_.trail("one") == {
            "id": "one",
            "queue": r"far\orders",
            "state": "accepted",
            "message": message,
        }
        await all_.far.receive("orders")
        trail = await all_.until("one", "received")
        assert trail["class"] == "ACK_RECEIVE"
        assert trail["ended"].endswith("Z")


@pytest.mark.parametrize("queue", ["orders", "notes"])
async def test_what_is_refused_or_deleted_is_a_dead_letter_and_says_why(
    queue: str, topology: Topology, tmp_path: Path
) -> None:
    async with AsyncExitStack() as held:
        all_ = await both(held, topology, tmp_path)
        await all_.post("rejected", queue=queue)
        async with all_.far.transaction(queue):
            raise Reject
        await all_.post("purged", queue=queue)
        await until(partial(all_.far.peek, queue))
        await all_.far.purge(queue)
        async with connect(topology, "near", tmp_path) as near:
            # Express and recoverable messages wait for the next hop, transactional ones for their queue.
            way = r"far\orders" if queue == "orders" else "far"
            await near.pause(way)
            deleted = await all_.post("deleted", queue=queue)
            await near.purge(way)
            for key, reason in (
                ("rejected", "NACK_RECEIVE_REJECTED"),
                ("purged", "NACK_Q_PURGED"),
                ("deleted", "NACK_DELETED"),
            ):
                assert (await all_.until(key, "dead-letter", queue))["class"] == reason
            # A message that is not transactional is kept where it ended.
            where = [near] if queue == "orders" else [near, all_.far]
            dead = [
                letter
                for client in where
                for letter in await client.peek("deadxact" if queue == "orders" else "deadletter", limit=10)
            ]
        assert deleted in {str(letter.id) for letter in dead}
        assert len(dead) == 3


async def test_a_producer_has_a_url_of_his_told_how_his_message_ended(
    topology: Topology, tmp_path: Path
) -> None:
    """The producer is told exactly what it could have asked for.

    A producer whose URL names a host that the operator has not allowed is refused.
    """
    told, ours = HttpConsumer(), HttpConsumer()
    secrets = tmp_path / "secrets"
    secrets.touch(0o600)
    secrets.write_text(f"whsec_{'A' * 32}\n")
    async with listening(told), listening(ours), AsyncExitStack() as held:
        host = httpx.URL(told.url).netloc.decode()
        options = {"callback": ours.url, "callback_hosts": (host,), "callback_secrets": secrets}
        all_ = await both(held, topology, tmp_path, **options)
        named = {"MQ-Callback": told.url}
        message = await all_.post("one", b"x", "orders", **named)
        await all_.post("two", body=b"y")
        await all_.far.receive("orders", limit=2)
        await all_.until("two", "received")
        await all_.post("three", b"x", "orders", **named)
        await until(partial(all_.far.peek, "orders"))
        await all_.far.purge("orders")
        await all_.log.at_least(3, "told")
        trails = [await all_.trail(key) for key in ("one", "two", "three")]
        refusals = []
        for headers in (
            {"Idempotency-Key": "four", "MQ-Callback": ours.url},
            {"Idempotency-Key": "four", "MQ-Callback": "http://169.254.169.254/latest/meta-data/"},
            {"Idempotency-Key": "four", "MQ-Callback": told.url, "MQ-Admin-Queue": r"near%5Cown"},
            {"MQ-Callback": told.url},
        ):
            answer = await all_.producer.post("/queues/orders/messages", content=b"x", headers=headers)
            refusals.append((answer.status_code, answer.json()["code"]))
        assert await all_.far.receive("orders", timeout_s=0) == []
    assert [json.loads(body) for body in told.bodies] == [trails[0], trails[2]]
    assert [json.loads(body) for body in ours.bodies] == [trails[1]]
    assert [trail["state"] for trail in trails] == ["received", "received", "dead-letter"]
    assert told.seen[0].headers["webhook-id"] == f"{message}/ended"
    assert told.seen[0].headers["webhook-signature"].startswith("v1,")
    assert refusals == [(400, "bad-header")] * 4


async def test_a_full_queue_far_away_loses_nothing(topology: Topology, tmp_path: Path) -> None:
    """Four POSTs are answered with 200, though the queue has room for only two messages."""
    async with AsyncExitStack() as held:
        all_ = await both(held, topology, tmp_path)
        await all_.post("1", bytes(30_000))
        async with connect(topology, "near", tmp_path) as near:
            await near.pause(r"far\orders")  # So that all of them are accepted before the first is refused.
            for key in "234":
                await all_.post(key, bytes(30_000))
            await near.resume(r"far\orders")
        for key in "34":
            assert (await all_.until(key, "dead-letter"))["class"] == "NACK_Q_EXCEED_QUOTA"
        assert [(await all_.trail(key))["state"] for key in "12"] == ["accepted", "accepted"]
        # What is new is refused now; what was accepted is a duplicate still, and another queue has room.
        answer = await all_.producer.post(
            "/queues/orders/messages", content=b"x", headers={"Idempotency-Key": "5"}
        )
        assert (answer.status_code, answer.json()["code"]) == (503, "queue-full")
        assert 1 <= int(answer.headers["Retry-After"]) <= 10
        await all_.post("3", bytes(30_000))
        await all_.post("5", queue="notes")
        async with connect(topology, "near", tmp_path) as near:
            assert [len(letter.body) for letter in await near.peek("deadxact", limit=10)] == [30_000] * 2


def test_a_queue_is_full_for_a_while_after_a_message_had_no_room() -> None:
    now_s = 100.0
    fullness = FullQueues(lambda: now_s)
    for message, queue in (("a", "orders"), ("b", "orders"), ("c", "notes")):
        fullness.accepted(message, queue)
    fullness.ended("a", "ACK_RECEIVE")
    fullness.ended("unknown", "NACK_Q_EXCEED_QUOTA")
    assert fullness.wait_s("orders") == 0
    fullness.ended("b", "NACK_Q_EXCEED_QUOTA")
    now_s = 104.0
    assert (fullness.wait_s("orders"), fullness.wait_s("notes")) == (6.0, 0.0)
    now_s = 110.0
    assert fullness.wait_s("orders") == 0


async def test_what_is_of_no_queue_manager_is_no_confirmation(topology: Topology, tmp_path: Path) -> None:
    """Applications that may send to the gateway's queue of confirmations cannot claim that a message has ended."""
    async with AsyncExitStack() as held:
        all_ = await both(held, topology, tmp_path)
        await all_.post("one")
        async with connect(topology, "near", tmp_path) as near:
            await near.send(r".\private$\gateway-confirmations", b"", "ACK_RECEIVE", recoverable=True)
        await all_.log.line("no-confirmation")
        assert (await all_.trail("one"))["state"] == "accepted"


async def test_confirmations_wait_while_nobody_takes_them(topology: Topology, tmp_path: Path) -> None:
    async with AsyncExitStack() as held:
        for name in ("near", "far"):
            await held.enter_async_context(running(topology, name, tmp_path))
        async with gateway(topology, tmp_path, node="near") as producer:
            await producer.post("/queues/orders/messages", content=b"x", headers={"Idempotency-Key": "one"})
        async with connect(topology, "far", tmp_path) as far, connect(topology, "near", tmp_path) as near:
            await far.receive("orders")
            await until(partial(near.peek, "gateway-confirmations"))
        async with (
            gateway(topology, tmp_path, node="near") as producer,
            connect(topology, "far", tmp_path) as far,
        ):
            await Both(producer, far, Log()).until("one", "received")


async def test_producers_cannot_send_to_the_queues_in_which_gateways_get_confirmations(
    topology: Topology, tmp_path: Path
) -> None:
    async with AsyncExitStack() as held:
        all_ = await both(held, topology, tmp_path)
        await held.enter_async_context(gateway(topology, tmp_path, name="second", node="far"))
        client = await held.enter_async_context(connect(topology, "near", tmp_path))
        await client.make("order-confirmations")
        own = {queue.name: queue for queue in await client.declared()}["gateway-confirmations"]
        number = f"PRIVATE={guid_text(client.manager)}\\{own.identifier:08x}"

        async def post(name: str) -> httpx.Response:
            return await all_.producer.post(f"/queues/{quote(name, safe='')}/messages", content=b"x")

        async def is_known() -> bool:
            return (await post("order-confirmations")).status_code == 200

        await until(is_known)
        for name in ("gateway-confirmations", r"far\second-confirmations", number):
            answer = await post(name)
            assert answer.status_code == 404, name
            assert "gateway-conf" not in answer.json()["detail"].partition(";")[2]


class NodeWithConfirmations:
    """A client of a node that hands out confirmations in groups of these sizes, and then goes away."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self._sizes = iter(sizes)
        self.asked_s: list[float] = []

    @asynccontextmanager
    async def transaction(self, queue: str, limit: int) -> AsyncIterator[list[ReceivedMessage]]:
        self.asked_s.append(trio.current_time())
        size = next(self._sizes, None)
        if size is None:
            raise NodeUnreachable("it is gone")
        yield [confirmation(number) for number in range(size)]


def confirmation(number: int) -> ReceivedMessage:
    record = a_user_message()
    record.properties.message_class = MessageClass.ACK_RECEIVE
    record.properties.correlation_id = MessageId(GUID, number).correlation_id
    return ReceivedMessage(encode_packet(record))


async def test_few_confirmations_are_followed_by_a_wait_for_more(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A group takes two flushes, however many confirmations are in it: one of the history, and one of the node."""
    node = NodeWithConfirmations([LIMIT, 3, 1])
    async with open_history(places.history_url(tmp_path)) as history:
        reader = ConfirmationReader("the-confirmations", history, node_log(Log(), "gateway"))
        began_s = trio.current_time()
        await reader.take(cast(Client, node))
        assert (await history.look(ENDS, str(MessageId(GUID, 1)))).entry is Entry.COMPLETED
    assert [asked_s - began_s for asked_s in node.asked_s] == pytest.approx([0, 0, COMPANY_S, 2 * COMPANY_S])


async def test_an_id_that_was_not_accepted_is_unknown(topology: Topology, tmp_path: Path) -> None:
    async with AsyncExitStack() as held:
        all_ = await both(held, topology, tmp_path)
        answer = await all_.producer.get("/queues/orders/messages/none")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-message")
        answer = await all_.producer.delete("/queues/orders/messages/none")
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")

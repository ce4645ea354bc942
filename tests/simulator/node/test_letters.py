"""Dead letters in the queue that their application has chosen: real nodes, kills, and commands."""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from mqproto.simulator.client import Reject
from mqproto.simulator.topology import Topology, parse
from mqproto.simulator.topology.views import as_toml
from tests.simulator.running import NodeProcess, running, until
from tests.simulator.typed import in_process

SHOP = """
[node.shop.queue.failed-orders]
transactional = true
[node.shop.queue.failed-notes]
[node.depot.queue.orders]
transactional = true
[[link]]
between = ["shop", "depot"]
"""


@pytest.fixture
def topology() -> Topology:
    return parse(SHOP, "shop.toml").with_free_ports()


async def test_a_choice_survives_the_kills_of_its_node(topology: Topology, tmp_path: Path) -> None:
    """The node is killed once the message is accepted, and again once it is a dead letter."""
    shop = NodeProcess(topology, "shop", tmp_path)
    depot = NodeProcess(topology, "depot", tmp_path)
    await shop.start()
    async with shop.client() as client:
        wishes = {"transactional": True, "dead_letter_queue": r"private$\failed-orders"}
        sent = await client.send(r"depot\orders", b"x", **wishes)
    await shop.end(signal.SIGKILL)
    await depot.start()
    await shop.start()
    async with depot.client() as there, there.transaction("orders", timeout_s=60) as [message]:
        assert (message.id, message.dead_letter_queue) == (sent, "")
        raise Reject
    async with shop.client() as client:
        await until(partial(client.peek, "failed-orders", 9))
    await shop.end(signal.SIGKILL)
    await shop.start()
    async with shop.client() as client:
        [letter] = await client.peek("failed-orders", 9)
        assert (letter.id, letter.message_class, letter.body) == (sent, "NACK_RECEIVE_REJECTED", b"x")
        assert await client.peek("deadxact", 9) == []
        assert await client.send_back("failed-orders") == 1
    async with depot.client() as there:
        [again] = await there.receive("orders", timeout_s=60)
        assert again.body == b"x"
    for node in (shop, depot):
        await node.end(signal.SIGKILL)


async def test_as_it_is_typed(topology: Topology, tmp_path: Path) -> None:
    (file := tmp_path / "shop.toml").write_text(as_toml(topology), "utf-8")
    stores = tmp_path / "stores"

    async def typed(*words: str) -> Any:
        return await trio.to_thread.run_sync(partial(in_process, *words, "-t", str(file), "-d", str(stores)))

    send = ("send", r"depot\orders", "--node", "shop", "--body", "x", "--label", "late")
    async with running(topology, "shop", stores):
        for queue, reason in {
            "failed-notes": "queue failed-notes is not transactional, and its dead letters would be transactional: "
            "choose another queue for them",
            r"depot\orders": r"depot\orders is not at shop: a dead letter stays where its message was sent",
            "elsewhere": "shop has no queue 'elsewhere'; there is failed-orders, failed-notes",
            "deadxact": "system$;deadxact belongs to the system: name a queue of your own for dead letters, or none at "
            "all",
        }.items():
            done = await typed(*send, "--dead-letter-queue", queue)
            assert (done.status, done.complaint) == (2, reason)
        done = await typed(*send, "--dead-letter-queue", r".\private$\failed-orders")
        name = done.out.strip()
        done = await typed("explain", name)
        assert "to be sent; if it fails, a dead letter in failed-orders" in done.out
        assert (await typed("purge", r"depot\orders", "--node", "shop")).status == 0
        done = await typed("explain", name)
        assert r"shop\failed-orders: 1 message" in done.out
        assert r"to send its dead letters once more: `mqproto return 'shop\failed-orders'" in done.out
        assert r"a dead letter to depot\orders: it was deleted on its way (NACK_DELETED)" in done.out
        [letter] = [
            json.loads(line)
            for line in (await typed("peek", r"shop\failed-orders", "--json")).out.splitlines()
        ]
        assert letter["class"] == "NACK_DELETED"
        assert letter["dead_letter_queue"] == r".\private$\failed-orders"
        done = await typed("history", name)
        assert "failed-orders" in done.out
        assert (await typed("return", r"shop\failed-orders")).status == 0
        assert "failed-orders" in (await typed("queues")).out

"""Waiting messages of mixed sizes, in a local queue or for a node that is down, are all received later, in order.

Processes, disks and the default limits of windows and pages are real; four megabytes reach the limits at once. `make
backlogs` runs 20 seeds of each kind.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import trio

from mqproto.manager.status import OutgoingStatus
from mqproto.simulator.client import Client
from mqproto.simulator.topology import Topology, load
from tests.simulator.running import NodeProcess, processes

SEEDS: Final = int(os.environ.get("MQPROTO_BACKLOG_SEEDS", "0"))
MESSAGES: Final = 600
"""The number of messages that wait; the large ones exceed a store's log, so they are also read from its tables."""
KINDS: Final = [
    ("local queue", False),
    ("outgoing queue", True),
    *([("local queue", True), ("outgoing queue", False)] if SEEDS else []),
]
"""Where the messages wait, and whether nodes are killed in the meantime."""
ORDERS: Final = r"destination\orders"
AT_ONCE: Final = 50


def bodies(seed: int) -> list[bytes]:
    """Return bodies; about six in a hundred have 4,000,000 bytes, which is nearly all that a packet may have."""
    dice = random.Random(seed)
    sizes = [
        4_000_000 if dice.random() < 0.06 else dice.choice((100, 1_000, 20_000)) for _ in range(MESSAGES)
    ]
    return [f"{place:6}".encode().ljust(size, b".") for place, size in enumerate(sizes)]


async def until_all_wait(client: Client, nodes: Iterable[NodeProcess]) -> None:
    """Wait until all messages are in their queue, and check that no node ends because it found an error in itself."""
    while True:
        local = (await client.queues()).local
        assert not any(queue.passed_over for queue in local)
        if any(queue.waiting == MESSAGES for queue in local):
            return
        for node in nodes:
            assert node.process is not None
            assert node.process.returncode is None, f"{node.name} has ended: see its log in {node.directory}"
        await trio.sleep(0.05)


async def receive_all(node: NodeProcess, kills: random.Random | None) -> list[bytes]:
    """Receive all available messages, fifty at a time; the node sometimes dies between two transactions."""
    taken: list[bytes] = []
    while True:
        async with node.client() as client:
            while not (kills and kills.random() < 0.05):
                async with client.transaction("orders", AT_ONCE, timeout_s=0) as messages:
                    taken += [message.body for message in messages]
                if not messages:
                    return taken
        await node.end(signal.SIGKILL)
        await node.start()


@pytest.mark.long
@pytest.mark.parametrize(("where", "kills"), KINDS)
@pytest.mark.parametrize("seed", range(max(1, SEEDS)))
async def test_a_backlog_of_mixed_sizes_is_delivered_whole_and_in_order_to_a_consumer_that_comes_late(
    seed: int, where: str, kills: bool, tmp_path: Path
) -> None:
    expected = bodies(seed)
    dice = random.Random(f"{seed}/kills") if kills else None
    async with processes(load("three-node").with_free_ports(), tmp_path) as nodes:
        sender, middle, destination = nodes.values()
        if where == "outgoing queue":
            await middle.end(signal.SIGKILL)
        async with sender.client() as client:
            for body in expected:
                await client.send(ORDERS, body, transactional=True)
        if where == "outgoing queue":
            if dice:
                await sender.end(signal.SIGKILL)
                await sender.start()
            await middle.start()
        if dice:
            await trio.sleep(dice.random())
            await middle.end(signal.SIGKILL)
            await middle.start()
        async with destination.client() as client:
            await until_all_wait(client, nodes.values())
        taken = await receive_all(destination, dice)
    assert [body[:6] for body in taken] == [body[:6] for body in expected]
    assert taken == expected


# Resends


def with_quick_resends() -> Topology:
    topology = load("three-node").with_free_ports()
    quick = {
        name: replace(
            node,
            settings=replace(node.settings, resend_timeouts_short_s=0.3, resend_timeouts_medium_s=0.3),
        )
        for name, node in topology.nodes.items()
    }
    return replace(topology, nodes=quick)


async def until(client: Client, holds: Callable[[OutgoingStatus], bool]) -> None:
    """Wait until a condition holds for an outgoing queue."""
    while True:
        if any(holds(one) for one in (await client.queues()).outgoing):
            return
        await trio.sleep(0.05)


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_intermediate_does_not_store_what_is_sent_again_to_a_destination_that_is_down(
    restarted: bool, tmp_path: Path
) -> None:
    async with processes(with_quick_resends(), tmp_path) as nodes:
        sender, middle, destination = nodes.values()
        await destination.end(signal.SIGKILL)
        async with sender.client() as client:
            for number in range(20):
                await client.send(ORDERS, f"order {number}".encode(), transactional=True)
            if restarted:
                async with middle.client() as other:
                    await until(other, lambda one: one.waiting == 20)
                await middle.end(signal.SIGKILL)
                await middle.start()
            await until(client, lambda one: one.resent >= 80)
        async with middle.client() as client:
            [waiting] = [one.waiting for one in (await client.queues()).outgoing if one.waiting]
        # What waits on disk alone after a restart is not known by name: once more it is stored.
        assert waiting == (40 if restarted else 20)
        await destination.start()
        async with destination.client() as client:
            taken: list[bytes] = []
            while len(taken) < 20:
                async with client.transaction("orders", 50, timeout_s=10) as messages:
                    taken += [message.body for message in messages]
        assert taken == [f"order {number}".encode() for number in range(20)]

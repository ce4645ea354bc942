"""Three nodes as processes, and the honest load between them, which is sent as fast as it arrives.

Orders are transactional and notes recoverable. Direct orders go straight to their node by a direct name, and late ones
have a consumer that pauses. After each attack, the sent messages are compared with the received ones.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from mqproto.base.errors import UsageError
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.client import Client, connect
from mqproto.simulator.rig.load.consumer import Consumer
from mqproto.simulator.rig.load.producer import Producer
from mqproto.simulator.rig.load.workload import Sizes, orders
from mqproto.simulator.rig.proof import Received, Sent
from mqproto.simulator.rig.supervisor import Supervisor, supervised
from mqproto.simulator.topology import Node, Topology, parse

SENDER, INTERMEDIATE, DESTINATION = "sender", "intermediate", "destination"
OPEN_QUEUES: Final = ("inbox", "bids")
"""Queues of each node that strangers may send to; `bids` takes transactions."""
ATTACKERS: Final = 16
BODIES: Final[Sizes] = ((1_000, 200, 1_500),)
NO_END: Final = 10**9
AHEAD: Final = {"orders": 300, "notes": 100, "direct": 100, "late": 50}
"""How many messages for a queue are on their way at a time: the next is sent when one of them has come."""
LATE: Final = "late"
"""The queue whose consumer pauses, which delays its FinalAcks; it does not count towards throughput."""
BEAT_S: Final = 0.02

TOPOLOGY: Final = """
name = "strangers"

[node.sender]
address = "{network}.1:1801"
[node.intermediate]
address = "{network}.2:1801"
[node.destination]
address = "{network}.3:1801"
[node.destination.queue.orders]
transactional = true
[node.destination.queue.notes]
[node.destination.queue.direct]
transactional = true
[node.destination.queue.late]
transactional = true

[[link]]
between = ["sender", "intermediate"]
tls = {tls}
[[link]]
between = ["intermediate", "destination"]
tls = {tls}

[settings]
require_pings = true
try_connect_interval_ms = 200
order_ack_timeout_ms = 50
maximum_order_ack_delay_s = 0.3
resend_timeouts_short_s = 1
resend_timeouts_medium_s = 2
resend_timeouts_long_s = 5
resend_timeouts_final_s = 10
"""
OPEN: Final = """
[node.{node}.queue.inbox]
strangers = true
[node.{node}.queue.bids]
strangers = true
transactional = true
"""
TLS: Final = """
[node.{node}.tls]
certificate = "{node}.pem"
key = "{node}.key"
address = "{host}:1811"
"""
STRAIGHT: Final = """
[[link]]
between = ["sender", "destination"]
tls = true
[route.sender]
destination = "intermediate"
[route.destination]
sender = "intermediate"
"""
"""Messages to a direct name connect to their node directly, which takes TLS, too."""
CERTIFICATE: Final = (
    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
    "-subj /CN={node} -keyout {node}.key -out {node}.pem"
)
"""The arguments of openssl for a node's self-signed certificate."""


def topology_of(network: str, folder: Path, *, tls: bool) -> Topology:
    """Return the chain at addresses of its own, 127.x.y.1 to 3, and at port 1801, where direct names find it.

    Args:
        network: such as `127.7.7`.
        folder: certificates go there if there is TLS.

    Raises:
        UsageError: there is no openssl to make them.
    """
    nodes = (SENDER, INTERMEDIATE, DESTINATION)
    text = TOPOLOGY.format(network=network, tls="true" if tls else "false")
    text += "".join(OPEN.format(node=node) for node in nodes)
    if tls:
        text += STRAIGHT
        for number, node in enumerate(nodes, 1):
            text += TLS.format(node=node, host=f"{network}.{number}")
            _make_certificate(folder, node)
    return parse(text, "strangers.toml", folder)


def _make_certificate(folder: Path, node: str) -> None:
    command = ["openssl", *CERTIFICATE.format(node=node).split()]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    except OSError:
        raise UsageError(
            "openssl, which makes certificates for links with TLS, is not installed: apt-get install openssl"
        ) from None


class Flow:
    """One kind of honest message, from a producer to a consumer."""

    def __init__(self, queue: str, producer: Producer, consumer: Consumer) -> None:
        self.queue = queue
        self.producer = producer
        self.consumer = consumer
        self.is_paused = False

    @property
    def is_empty(self) -> bool:
        """Whether every sent message has come."""
        came = len(self.consumer.received) >= len(self.producer.sent)
        return came and not self.producer.has_due and not self.consumer.is_in_doubt

    def due(self) -> int:
        """Return how many messages should have been sent by now."""
        return 0 if self.is_paused else len(self.consumer.received) + AHEAD[self.queue]

    def taken(self) -> tuple[list[Sent], list[Received]]:
        """Return the messages sent and received since the last call, and forget them."""
        sent, received = self.producer.sent[:], self.consumer.received[:]
        self.producer.sent.clear()
        self.consumer.received.clear()
        return sent, received


class Chain:
    """The nodes while they run, and their load."""

    def __init__(self, topology: Topology, supervisor: Supervisor, seed: int) -> None:
        self.topology = topology
        self.supervisor = supervisor
        direct = rf"DIRECT=TCP:{topology.nodes[DESTINATION].host}\private$\direct"
        self.flows = [
            self._flow("orders", rf"{DESTINATION}\orders", seed),
            self._flow("notes", rf"{DESTINATION}\notes", seed),
            self._flow("direct", direct, seed),
            self._flow(LATE, rf"{DESTINATION}\{LATE}", seed),
        ]

    def _flow(self, queue: str, to: str, seed: int) -> Flow:
        workload = orders(NO_END, seed, BODIES)
        moods = chance(seed, "consumer") if queue == LATE else None
        return Flow(
            queue,
            Producer(partial(self.connect, SENDER), to, workload, transactional=queue != "notes"),
            Consumer(partial(self.connect, DESTINATION), rf"{DESTINATION}\{queue}", moods),
        )

    def connect(self, name: str) -> AbstractAsyncContextManager[Client]:
        """Return a client of a node."""
        return connect(self.topology, name, self.supervisor.directory)

    async def carry(self) -> None:
        """Send and receive until cancelled."""
        async with trio.open_nursery() as nursery:
            for flow in self.flows:
                nursery.start_soon(flow.producer.keep_up, flow.due)
                nursery.start_soon(flow.consumer.run)

    def pause(self, *, paused: bool = True) -> None:
        """Stop sending new messages, or go on."""
        for flow in self.flows:
            flow.is_paused = paused

    async def emptied(self, patience_s: float) -> float | None:
        """Wait until every sent message has come; return the seconds it took, or None if it takes too long."""
        began_s = trio.current_time()
        with trio.move_on_after(patience_s):
            while not all(flow.is_empty for flow in self.flows):  # noqa: ASYNC110 - there is no event to wait for.
                await trio.sleep(BEAT_S)
            return trio.current_time() - began_s
        return None

    def received_between(self, start_s: float, end_s: float) -> int:
        """Return how many messages came in that time to consumers that never pause."""
        return sum(
            start_s <= message.at_s < end_s
            for flow in self.flows
            if flow.queue != LATE
            for message in flow.consumer.received
        )

    def neighbours(self, name: str) -> list[Node]:
        """Return the nodes next to one on the route of the orders."""
        line = list(self.topology.nodes.values())
        at = [node.name for node in line].index(name)
        return [line[index] for index in (at - 1, at + 1) if 0 <= index < len(line)]

    async def purge(self, name: str) -> None:
        """Empty the queues of a node that are open to strangers."""
        async with self.connect(name) as client:
            for queue in OPEN_QUEUES:
                await client.purge(rf"{name}\{queue}")


@asynccontextmanager
async def running(topology: Topology, folder: Path, seed: int) -> AsyncIterator[Chain]:
    """Yield the chain under load.

    Raises:
        NodeError: a node does not start.
    """
    async with supervised(topology, folder) as supervisor, trio.open_nursery() as nursery:
        chain = Chain(topology, supervisor, seed)
        nursery.start_soon(chain.carry)
        yield chain
        nursery.cancel_scope.cancel()

"""Three nodes as processes, under honest load: each message that arrives lets the next one be sent.

Orders are transactional, and notes are recoverable. Direct orders go straight to their node by a direct name, and the
consumer of late orders pauses. After each attack, the messages that were sent are compared with those received.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from mqproto.base.errors import UsageError
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.rig.load.workload import Sizes, orders
from mqproto.simulator.rig.rig import DESTINATION, INTERMEDIATE, SENDER, Rig, until
from mqproto.simulator.topology import Node, Topology, parse
from mqproto.simulator.topology.views import Address

OPEN_QUEUES: Final = ("inbox", "bids")
"""The queues of each node that are open to strangers; `bids` is transactional."""
ATTACKERS: Final = 16
BODIES: Final[Sizes] = ((1_000, 200, 1_500),)
NO_END: Final = 10**9
AHEAD: Final = {"orders": 300, "notes": 100, "direct": 100, "late": 50}
"""The number of messages that are on their way to each queue at a time.

When one arrives, the next one is sent.
"""
LATE: Final = "late"
"""The queue whose consumer pauses, which delays its FinalAcks.

The queue does not count towards throughput.
"""
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
"""The link that messages with direct names take, straight from their sender to the destination.

It is added only if the other links use TLS, and uses TLS, too. The routes keep all other messages on the way through
the intermediate.
"""
CERTIFICATE: Final = (
    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
    "-subj /CN={node} -keyout {node}.key -out {node}.pem"
)
"""The arguments with which openssl makes a self-signed certificate for a node."""


def topology_of(network: str, folder: Path, *, tls: bool) -> Topology:
    """Return the chain of nodes at its own addresses, 127.x.y.1 to 127.x.y.3.

    The port is 1801, as direct names expect.

    Args:
        network: the first three numbers of the addresses, such as `127.7.7`.
        folder: the folder for certificates, if the links use TLS.

    Raises:
        UsageError: openssl, which makes the certificates, is missing.
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


class Chain(Rig):
    """The running nodes, and their load."""

    def __init__(self, topology: Topology, directory: Path, seed: int) -> None:
        super().__init__(topology, directory)
        self.is_paused = False
        """Whether the sending of new messages is paused."""
        for queue in AHEAD:
            self.flow(
                queue,
                orders(NO_END, seed, BODIES),
                chance(seed, "consumer") if queue == LATE else None,
                to=rf"DIRECT=TCP:{topology.nodes[DESTINATION].host}\private$\direct" * (queue == "direct"),
                transactional=queue != "notes",
            )

    @asynccontextmanager
    async def running(
        self, detours: Mapping[tuple[str, str], Address] | None = None
    ) -> AsyncIterator[trio.Nursery]:
        """Run the nodes under load."""
        async with super().running(detours) as nursery:
            for queue, flow in self.flows.items():
                nursery.start_soon(flow.producer.keep_up, partial(self._due, queue))
            yield nursery

    def _due(self, queue: str) -> int:
        """Return how many messages should have been sent by now."""
        return 0 if self.is_paused else len(self.flows[queue].consumer.received) + AHEAD[queue]

    async def emptied(self, patience_s: float) -> float | None:
        """Wait until every message that was sent has arrived.

        Return the number of seconds that this took, or None if it takes longer than `patience_s`.
        """
        began_s = trio.current_time()
        with trio.move_on_after(patience_s):
            await until(lambda: all(flow.is_empty for flow in self.flows.values()), BEAT_S)
            return trio.current_time() - began_s
        return None

    def received_between(self, start_s: float, end_s: float) -> int:
        """Return how many messages reached the consumers that never pause, from `start_s` until `end_s`."""
        return sum(
            start_s <= message.at_s < end_s
            for queue, flow in self.flows.items()
            if queue != LATE
            for message in flow.consumer.received
        )

    def neighbours(self, name: str) -> list[Node]:
        """Return a node's neighbours on the route of the orders."""
        line = list(self.topology.nodes.values())
        at = [node.name for node in line].index(name)
        return [line[index] for index in (at - 1, at + 1) if 0 <= index < len(line)]

    async def purge(self, name: str) -> None:
        """Empty the queues of a node that are open to strangers."""
        async with self.connect(name) as client:
            for queue in OPEN_QUEUES:
                await client.purge(rf"{name}\{queue}")

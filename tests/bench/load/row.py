"""Nodes in a row, each a process with a store, and an application at each end. Most benchmarks use them.

The applications share one process, this one, which is called the client. Like other applications, it takes processor
time from the nodes, but it is not a node, so its time is counted separately. It keeps what it needs to check every
message. As in a real application, the garbage collector does not scan all of that repeatedly.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import trio

from mqproto.simulator.base.processes import Memory, memory_of
from mqproto.simulator.base.program.collector import seldom_collected
from mqproto.simulator.client import Client, connect
from mqproto.simulator.rig.supervisor import Supervisor, supervised
from mqproto.simulator.security.keyfiles import make_keys
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.file import parse
from tests.bench.figures import BenchError
from tests.bench.load.traffic import Bodies, Traffic

BODY_BYTES: Final = 1_024
WINDOW: Final = 64
"""The default WindowSize of every session, which is also MSMQ's."""
WARM_UP_MESSAGES: Final = 2_000
SENDER, INTERMEDIATE, DESTINATION = THREE = ("sender", "intermediate", "destination")
"""The names of the nodes in a row of three."""
CLIENT: Final = "client"
QUEUE: Final = "orders"
PATIENCE_S: Final = 60.0
PATIENCE_PER_MESSAGE_S: Final = 0.002
AWAY_S: Final = 3_600.0
"""The time, in seconds, for which a node may be down before its client gives up.

Measurements give up sooner.
"""
LOOK_S: Final = 0.03
KEY_BITS: Final = 2_048
SETTINGS: Final = """
[settings]
try_connect_interval_ms = 200
order_ack_timeout_ms = 50
maximum_order_ack_delay_s = 0.3
resend_timeouts_short_s = 1
resend_timeouts_medium_s = 2
resend_timeouts_long_s = 5
resend_timeouts_final_s = 10
"""
"""The settings of the shipped topologies.

With them, a broken connection is back within a second or two, whereas Windows waits for minutes.
"""


def in_a_row(
    names: Sequence[str] = THREE, window: int = WINDOW, queues: Mapping[str, Sequence[str]] | None = None
) -> Topology:
    """Return a topology whose nodes are each linked to the next one, on free ports.

    Args:
        window: the WindowSize of every session.
        queues: the names of each node's queues, keyed by node; by default, only the last node has one. All of them are
            transactional.
    """
    return linked(names, list(pairwise(names)), window, queues or {names[-1]: [QUEUE]})


def linked(
    names: Sequence[str], links: Sequence[tuple[str, str]], window: int, queues: Mapping[str, Sequence[str]]
) -> Topology:
    """Return a topology with these nodes and links, on free ports; otherwise like `in_a_row`."""
    lines = [f"{SETTINGS}window_size = {window}"]
    for name in names:
        lines.append(f"[node.{name}]")
        lines += (f"[node.{name}.queue.{queue}]\ntransactional = true" for queue in queues.get(name, ()))
    lines += (f'[[link]]\nbetween = ["{one}", "{other}"]' for one, other in links)
    return parse("\n".join(lines), "bench.toml").with_free_ports()


@dataclass(frozen=True, slots=True)
class Flow:
    """The times and costs of a stretch of traffic.

    duration_s: the time from before the first message was sent until the last was received and committed.
    settled_s: the time until the sender knew that all messages had arrived.
    cpu_s: the user and system time of each process until then; None if the kernel does not report it.
    flushes: the number of times that each node's store had flushed by then.
    delays_ms: for each message, the time from when it was due until its consumer had it; sorted by size.
    """

    messages: int
    duration_s: float
    settled_s: float
    cpu_s: dict[str, float | None]
    flushes: dict[str, int]
    delays_ms: list[float]

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.duration_s

    @property
    def settled_per_s(self) -> float:
        """Return how many messages arrived per second, whether or not they have been received.

        This is for queues in which other messages wait.
        """
        return self.messages / self.settled_s

    def cpu_us(self, *names: str) -> float | None:
        """Return the processor time that these processes took per message, in µs.

        By default, it is that of all processes except the client.
        """
        taken = [self.cpu_s[name] for name in names or self.cpu_s.keys() - {CLIENT}]
        return None if None in taken else 1e6 * sum(filter(None, taken)) / self.messages

    def flushes_per_s(self, name: str) -> float:
        """Return how many times a second this node flushed to disk."""
        return self.flushes[name] / self.settled_s


class Row:
    """Running nodes, and a client for each; `row` makes it."""

    def __init__(self, supervisor: Supervisor, clients: Mapping[str, Client]) -> None:
        self.supervisor = supervisor
        self.clients = clients
        self.names = list(clients)

    def traffic(
        self, bodies: Bodies, to: str = "", queues: Sequence[str] = (QUEUE,), *, together: bool = False
    ) -> Traffic:
        """Return traffic from the first node to queues of another node, which by default is the last one.

        Args:
            together: the same as for `Traffic`.
        """
        to = to or self.names[-1]
        return Traffic(self.clients[self.names[0]], self.clients[to], to, queues, bodies, together=together)

    async def flood(
        self,
        count: int,
        bodies: Bodies,
        to: str = "",
        queues: Sequence[str] = (QUEUE,),
        *,
        together: bool = False,
    ) -> Flow:
        """Send as fast as the sender accepts, and receive all messages. The arguments are those of `traffic`.

        Raises:
            BenchError: a message was lost or altered, or arrived twice or out of order, or it took too long.
        """
        traffic = self.traffic(bodies, to, queues, together=together)
        flow = await self.measured(traffic, count, traffic.send_fast)
        traffic.check()
        return flow

    async def pace(self, count: int, per_s: float, bodies: Bodies) -> Flow:
        """Send `per_s` messages a second, however long each takes; otherwise like `flood`."""
        traffic = self.traffic(bodies)
        flow = await self.measured(
            traffic, count, lambda count: traffic.send_paced(count, per_s), count / per_s
        )
        traffic.check()
        return flow

    async def measured(
        self,
        traffic: Traffic,
        count: int,
        send: Callable[[int], Awaitable[None]],
        takes_s: float = 0.0,
    ) -> Flow:
        """Send and receive `count` messages.

        The caller must check that the messages received are those that were sent.

        Args:
            takes_s: the minimum time that this takes.

        Raises:
            BenchError: it took too long, for example because a message was lost.
        """
        flushes_before = await self.flushes()
        cpu_before_s = {**self.cpu_s(), CLIENT: time.process_time()}
        start_s = trio.current_time()
        with trio.move_on_after(takes_s + patience_s(count)) as patience:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(traffic.receive, count)
                await send(count)
        end_s = trio.current_time()
        if patience.cancelled_caught:
            traffic.check()
            raise BenchError(f"{count:,} messages took more than {patience_s(count):,.0f} s")
        await self.until_settled(count)
        settled_s = trio.current_time()
        cpu_s = {**self.cpu_s(), CLIENT: time.process_time()}
        flushes = await self.flushes()
        return Flow(
            messages=count,
            duration_s=end_s - start_s,
            settled_s=settled_s - start_s,
            cpu_s={name: difference(cpu_before_s[name], cpu_s[name]) for name in cpu_before_s},
            flushes={name: flushes[name] - flushes_before[name] for name in flushes},
            delays_ms=traffic.delays_ms,
        )

    async def until_settled(self, count: int) -> None:
        """Wait until the sender has an OrderAck for each of `count` messages, and no node has one left to pass on.

        Raises:
            BenchError: this did not happen in time.
        """
        # The sender is the last to know, so it is asked first; with many queues an answer takes long.
        for name, client in self.clients.items():
            if not await comes_true(partial(has_nothing, client), patience_s(count)):
                raise BenchError(f"{name} still has messages to pass on, or was not told that they came")

    async def flushes(self) -> dict[str, int]:
        """Return how often each node's store has flushed since the node was started."""
        return {name: (await client.queues()).flushes for name, client in self.clients.items()}

    def memory(self) -> dict[str, Memory]:
        """Return the memory of each running node."""
        running = self.supervisor.running
        return {name: memory_of(running[name].pid) for name in self.names if name in running}

    def cpu_s(self) -> dict[str, float | None]:
        """Return the user and system time of each running node since its start; None if the kernel does not
        report it.
        """
        running = self.supervisor.running
        return {name: running[name].cpu_s() for name in self.names if name in running}


async def waiting(client: Client) -> int:
    """Return how many messages are in a node's outgoing queues, including sent ones without acknowledgment."""
    return sum(queue.waiting for queue in (await client.queues()).outgoing)


async def has_nothing(client: Client) -> bool:
    """Return whether a node has no messages in its outgoing queues."""
    return not await waiting(client)


async def comes_true(condition: Callable[[], Awaitable[bool]], within_s: float) -> bool:
    """Return whether a condition becomes true in time, or already is. It is tested repeatedly."""
    with trio.move_on_after(within_s):
        while True:
            if await condition():
                return True
            await trio.sleep(LOOK_S)
    return False


def patience_s(count: int) -> float:
    """Return how long `count` messages may take before something must be wrong."""
    return PATIENCE_S + count * PATIENCE_PER_MESSAGE_S


def difference(before_s: float | None, after_s: float | None) -> float | None:
    """Return the growth between two values; None if either is unknown."""
    return None if before_s is None or after_s is None else after_s - before_s


@asynccontextmanager
async def row(topology: Topology, *, with_keys: bool = False) -> AsyncIterator[Row]:
    """Run the nodes of a topology for the block, in a temporary folder.

    Args:
        with_keys: whether each node has keys of 2,048 bits, and knows those of the other nodes.

    Raises:
        NodeError: a node does not start.
    """
    with seldom_collected(), tempfile.TemporaryDirectory(prefix="mqproto-bench-") as name:
        folder = Path(name)
        for node in topology.nodes if with_keys else ():
            make_keys(folder, node, KEY_BITS)
        async with supervised(topology, folder) as supervisor, AsyncExitStack() as stack:
            clients = {
                node: await stack.enter_async_context(connect(topology, node, folder, patience_s=AWAY_S))
                for node in topology.nodes
            }
            yield Row(supervisor, clients)

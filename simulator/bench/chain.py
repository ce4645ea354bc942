"""`mqproto bench chain`: transactional messages through three node processes, each of them on disk at every hop.

Two parts on the same nodes: as fast as it goes, several times, and then so many a second. Every message is checked:
once, in order.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import trio

from mqproto.applications import Draft
from mqproto.errors import MqprotoError
from simulator.client import Client, MessageId, connect
from simulator.profiling import profile_of, profiled
from simulator.proof import Received, Sent, compare, delays_ms, percentile
from simulator.supervisor import Supervisor, supervised
from simulator.topology import Topology, load

QUEUE: Final = r"destination\orders"
SENDER: Final = "sender"
DESTINATION: Final = "destination"
CLIENT: Final = "client"
"""Producer and consumer, which share a process: this one."""
REQUEST_MESSAGES: Final = 200
OUTSTANDING: Final = 4
RECEIVE_LIMIT: Final = 500
WARM_UP_MESSAGES: Final = 500
PACED_PER_S: Final = 200
PACED_MESSAGES: Final = 1_000
RUNS: Final = 3
PATIENCE_S: Final = 60.0
FLUSHES: Final = 50
FLUSH_BYTES: Final = 64 * 1_024


class BenchError(MqprotoError):
    """The messages did not arrive as they should, so a figure would mean nothing."""


@dataclass(frozen=True, slots=True)
class ChainFigures:
    """CPU seconds are user and system time for 1,000 messages, by process; None where the kernel does not tell.

    messages: in each run at full speed.
    messages_per_s, cpu_s_per_1000: of the median run; of the slower one, if two are in the middle.
    runs_messages_per_s: of all runs, as they came.
    flush_ms: what the disk took, in the median, to flush 64 KiB before the run. With a window of 64 each hop waits for
        one flush or two in 64 messages, so a figure means nothing without it.
    """

    messages: int
    body_bytes: int
    window: int
    messages_per_s: float
    runs_messages_per_s: list[float]
    cpu_s_per_1000: dict[str, float | None]
    paced_per_s: int
    paced_messages: int
    paced_cpu_s_per_1000: dict[str, float | None]
    p50_ms: float
    p99_ms: float
    flush_ms: float


async def bench_chain(
    messages: int = 30_000,
    window: int = 64,
    body_bytes: int = 1_024,
    paced_messages: int = PACED_MESSAGES,
    runs: int = RUNS,
    profiles: Path | None = None,
) -> ChainFigures:
    """Measure both parts, the first of them in several runs.

    Args:
        profiles: a folder for profiles of the nodes and of the client, which make all of them slower.

    Raises:
        BenchError: a message was lost, came twice or out of order.
        NodeError: a node does not start.
    """
    topology = three_nodes(window)
    with tempfile.TemporaryDirectory(prefix="mqproto-bench-") as folder:
        flush_ms = _flush_ms(folder)
        async with (
            supervised(topology, Path(folder), profiles=profiles) as supervisor,
            connect(topology, SENDER, Path(folder)) as sender,
            connect(topology, DESTINATION, Path(folder)) as destination,
        ):
            chain = _Chain(supervisor, sender, destination, bytes(body_bytes))
            await chain.flood(WARM_UP_MESSAGES)
            with profiled(profiles and profile_of(profiles, CLIENT)):
                floods = [await chain.flood(messages) for _ in range(runs)]
                paced = await chain.pace(paced_messages)
    slowest_first = sorted(floods, key=lambda part: part.duration_s, reverse=True)
    median = slowest_first[(runs - 1) // 2]
    return ChainFigures(
        messages=messages,
        body_bytes=body_bytes,
        window=window,
        messages_per_s=messages / median.duration_s,
        runs_messages_per_s=[messages / part.duration_s for part in floods],
        cpu_s_per_1000=median.cpu_s_per_1000,
        paced_per_s=PACED_PER_S,
        paced_messages=paced_messages,
        paced_cpu_s_per_1000=paced.cpu_s_per_1000,
        p50_ms=percentile(paced.delays_ms, 50),
        p99_ms=percentile(paced.delays_ms, 99),
        flush_ms=flush_ms,
    )


def _flush_ms(folder: str) -> float:
    taken_s = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(FLUSHES):
            file.write(bytes(FLUSH_BYTES))
            file.flush()
            start_s = time.perf_counter()
            os.fsync(file.fileno())
            taken_s.append(time.perf_counter() - start_s)
    return 1_000 * statistics.median(taken_s)


def three_nodes(window: int) -> Topology:
    """The shipped topology on free ports, each session with this WindowSize."""
    topology = load("three-node").with_free_ports()
    nodes = {
        name: replace(node, settings=replace(node.settings, window_size=window))
        for name, node in topology.nodes.items()
    }
    return replace(topology, nodes=nodes)


def check_delivery(sent: Sequence[Sent], received: Sequence[Received], count: int) -> None:
    """See that so many messages were sent, and that each was received once, in order, unaltered.

    Raises:
        BenchError: they were not; the text says how many, and what became of them.
    """
    broken = compare(sent, received).broken()
    if broken or len(sent) != count:
        raise BenchError(f"of {count:,} messages {len(sent):,} were sent; {', '.join(broken) or 'all came'}")


@dataclass(frozen=True, slots=True)
class _Part:
    duration_s: float
    cpu_s_per_1000: dict[str, float | None]
    delays_ms: Sequence[float]


class _Chain:
    """The nodes, and an application at each end."""

    def __init__(self, supervisor: Supervisor, sender: Client, destination: Client, body: bytes) -> None:
        self._supervisor = supervisor
        self._sender = sender
        self._destination = destination
        self._draft = Draft(body=body, label="bench", transactional=True)
        self._sent: list[Sent] = []
        self._received: list[Received] = []

    async def flood(self, count: int) -> _Part:
        """Send as fast as the sender accepts."""
        return await self._measure(count, self._send_fast)

    async def pace(self, count: int) -> _Part:
        """Send one by one, so many a second."""
        return await self._measure(count, self._send_paced)

    async def _measure(self, count: int, send: Callable[[int], Awaitable[None]]) -> _Part:
        self._sent.clear()
        self._received.clear()
        before = self._cpu_s()
        start_s = trio.current_time()
        with trio.move_on_after(PATIENCE_S + count / 1_000):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._receive, count)
                await send(count)
        end_s = max((message.at_s for message in self._received), default=start_s)
        after = self._cpu_s()
        check_delivery(self._sent, self._received, count)
        per_1000 = {name: _per_1000(before[name], after[name], count) for name in before}
        return _Part(end_s - start_s, per_1000, delays_ms(self._sent, self._received))

    async def _send_fast(self, count: int) -> None:
        """Several requests are under way at once, in order; what the node accepted first is first."""
        places = trio.Semaphore(OUTSTANDING)
        accepted: dict[MessageId, float] = {}

        async def send(drafts: list[Draft]) -> None:
            at_s = trio.current_time()
            identifiers = await self._sender.send_many(QUEUE, drafts)
            accepted.update(dict.fromkeys(identifiers, at_s))
            places.release()

        async with trio.open_nursery() as nursery:
            for first in range(0, count, REQUEST_MESSAGES):
                await places.acquire()
                nursery.start_soon(send, [self._draft] * min(REQUEST_MESSAGES, count - first))
        # Tasks of one nursery start in any order, so the node's own numbers say what came first.
        self._sent += [Sent(identifier, b"", at_s) for identifier, at_s in sorted(accepted.items())]

    async def _send_paced(self, count: int) -> None:
        start_s = trio.current_time()
        for number in range(count):
            await trio.sleep_until(start_s + number / PACED_PER_S)
            at_s = trio.current_time()
            [identifier] = await self._sender.send_many(QUEUE, [self._draft])
            self._sent.append(Sent(identifier, b"", at_s))

    async def _receive(self, count: int) -> None:
        while len(self._received) < count:
            async with self._destination.transaction("orders", limit=RECEIVE_LIMIT, timeout_s=1) as messages:
                now_s = trio.current_time()
                self._received += [Received(message.id, b"", now_s) for message in messages]

    def _cpu_s(self) -> dict[str, float | None]:
        nodes = {name: node.cpu_s() for name, node in sorted(self._supervisor.running.items())}
        return {**nodes, CLIENT: time.process_time()}


def _per_1000(before_s: float | None, after_s: float | None, count: int) -> float | None:
    return None if before_s is None or after_s is None else 1_000 * (after_s - before_s) / count

"""`mqproto bench backlog`: what many messages that wait cost, in memory, in throughput, and after a restart.

They wait twice. First the destination is killed, and they pile up at the intermediate. Then it is back and takes all of
them, but nobody receives; and while so many wait in its queue, messages go on flowing, in turns with a second row of
nodes in which nothing waits. A queue manager holds a window of each queue and not the queue, so neither its memory nor
what a message costs may grow with what waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import trio

from simulator.bench.figures import RUNS, BenchError, Figure, Result, Wanted, known, ratios
from simulator.bench.load.row import (
    DESTINATION,
    INTERMEDIATE,
    QUEUE,
    SENDER,
    THREE,
    Flow,
    Row,
    comes_true,
    in_a_row,
    patience_s,
    row,
    waiting,
)
from simulator.bench.load.traffic import Traffic
from simulator.bench.measures.chain import BODY_BYTES, WARM_UP_MESSAGES

MESSAGES: Final = 100_000
FLOW_MESSAGES: Final = 10_000
AFTERMATH: Final = 5
"""One in so many of those that wait is how many flow before they are compared. What has moved on is still cleared from
the stores that it passed, along with what comes later: that has a figure of its own, and is over before the others."""
WINDOW: Final = 64
LIMIT_BYTES: Final = 200 * 10**6
"""The resident memory that no node may need, however much waits."""
MEGABYTE: Final = 10**6
WANTED_RATIO: Final = 0.8
WANTED_SERVES_S: Final = 5


async def bench_backlog(
    messages: int = MESSAGES,
    flow_messages: int = FLOW_MESSAGES,
    runs: int = RUNS,
    told: Callable[[str], None] = lambda text: None,
) -> Result:
    """Pile up messages, restart the nodes that have them, let others flow by, and receive all.

    Args:
        messages: how many wait.
        flow_messages: in each run of those that flow meanwhile.
        told: is told how far it is.

    Raises:
        BenchError: a message was lost, came twice, out of order or altered, or the nodes took too long.
        NodeError: a node does not start.
    """
    body = bytes(BODY_BYTES)
    async with row(in_a_row(window=WINDOW)) as empty, row(in_a_row(window=WINDOW)) as deep:
        await empty.flood(min(flow_messages, WARM_UP_MESSAGES), body)
        traffic = deep.traffic(body)
        bench = _Bench(deep, traffic, messages, runs, told)
        await bench.pile_up()
        await bench.move_on()
        told("backlog: messages flow while the nodes clear up")
        after = await deep.measured(traffic, max(flow_messages, messages // AFTERMATH), traffic.send_fast)
        flows: list[tuple[Flow, Flow]] = []
        for number in range(runs):
            told(f"backlog: {flow_messages:,} messages flow, run {number + 1} of {runs}")
            flows.append(
                (
                    await deep.measured(traffic, flow_messages, traffic.send_fast),
                    await empty.flood(flow_messages, body),
                )
            )
            bench.look("queued")
        await bench.restart()
        await bench.drain()
    return Result(
        name="backlog",
        title=f"three nodes, window {WINDOW}, {messages:,} messages of {BODY_BYTES:,} bytes wait",
        figures=[
            *_compared(flows),
            Figure("throughput, just after all moved on", "messages/s", (after.settled_per_s,)),
            *bench.figures(),
        ],
        notes=[
            f"they waited at {INTERMEDIATE} while {DESTINATION} was down, then at {DESTINATION}, which nobody asked",
            f"{flow_messages:,} messages flowed in each run, in turns with nodes where nothing waited",
            f"before that {after.messages:,} flowed while {SENDER} and {INTERMEDIATE} cleared what had moved on",
            f"copies that {SENDER} sent again meanwhile: {bench.resent:,}",
        ],
        broken=bench.broken(),
    )


class _Bench:
    """One row in which much waits, from the first message to the last."""

    def __init__(
        self, row: Row, traffic: Traffic, messages: int, runs: int, told: Callable[[str], None]
    ) -> None:
        self._row = row
        self._traffic = traffic
        self._messages = messages
        self._runs = runs
        self._told = told
        self._resident: dict[tuple[str, str], list[float | None]] = {}
        self._peak_bytes: dict[str, int] = {}
        self._accepted_per_s = self._moved_per_s = self._drained_per_s = 0.0
        self._listens_s: list[float] = []
        self._serves_s: list[float] = []
        self.resent = 0

    def look(self, when: str) -> None:
        """Note what each node has resident, and has had at most."""
        for name, memory in self._row.memory().items():
            resident = None if memory.resident_bytes is None else memory.resident_bytes / MEGABYTE
            self._resident.setdefault((name, when), []).append(resident)
            if memory.peak_bytes is not None:
                self._peak_bytes[name] = max(self._peak_bytes.get(name, 0), memory.peak_bytes)

    async def pile_up(self) -> None:
        """All messages come to wait at the intermediate, which is killed and started again, and again."""
        supervisor, start_s = self._row.supervisor, trio.current_time()
        self._told(f"backlog: {self._messages:,} messages are sent to a node that is down")
        await supervisor.kill(DESTINATION)
        await self._traffic.send_fast(self._messages)
        self._accepted_per_s = self._messages / (trio.current_time() - start_s)
        await self._until_all_wait()
        self.look("waiting")
        for number in range(self._runs):
            self._told(f"backlog: {INTERMEDIATE} is killed, {number + 1} of {self._runs}")
            await supervisor.kill(INTERMEDIATE)
            started = await supervisor.start(INTERMEDIATE)
            self._listens_s.append(started.ready_s - started.spawned_s)
        await self._until_all_wait()
        self.look("restarted")

    async def move_on(self) -> None:
        """The destination is back, and takes all of them."""
        self._told(f"backlog: {self._messages:,} messages move on to {DESTINATION}")
        started = await self._row.supervisor.start(DESTINATION)
        await self._row.until_settled(self._messages)
        self._moved_per_s = self._messages / (trio.current_time() - started.ready_s)
        self.resent = (await self._row.clients[SENDER].queues()).resent

    async def restart(self) -> None:
        """The destination is killed with all that waits in its queue, and started again; somebody receives from it."""
        for number in range(self._runs):
            self._told(f"backlog: {DESTINATION} is killed, {number + 1} of {self._runs}")
            await self._row.supervisor.kill(DESTINATION)
            started = await self._row.supervisor.start(DESTINATION)
            await self._traffic.take(QUEUE, timeout_s=patience_s(self._messages))
            self._serves_s.append(self._traffic.arrivals_s[-1] - started.spawned_s)
        self.look("restarted")

    async def drain(self) -> None:
        """Receive all that still waits, check all messages, and see that no copy of one comes after it."""
        left = self._traffic.unreceived
        self._told(f"backlog: {left:,} messages are received")
        start_s = trio.current_time()
        with trio.move_on_after(patience_s(left)):
            await self._traffic.receive(left)
        self._drained_per_s = left / (trio.current_time() - start_s)
        self._traffic.check()
        await self._row.until_settled(left)
        await self._traffic.take(QUEUE, timeout_s=0)
        self._traffic.check()
        self.look("drained")

    async def _until_all_wait(self) -> None:
        """Wait until the intermediate has every message.

        It also counts copies that the sender sent again, which it must not tell from first ones (3.1.1.6.2). The
        sender is asked after it, so what it has sent again is never fewer than those copies.
        """
        arrived = 0

        async def all_wait() -> bool:
            nonlocal arrived
            here = await waiting(self._row.clients[INTERMEDIATE])
            arrived = here - (await self._row.clients[SENDER].queues()).resent
            return arrived >= self._messages

        if not await comes_true(all_wait, patience_s(self._messages)):
            raise BenchError(f"of {self._messages:,} messages {max(0, arrived):,} came to {INTERMEDIATE}")

    def figures(self) -> list[Figure]:
        """All but those of what flowed."""
        limit = Wanted(at_most=LIMIT_BYTES / MEGABYTE)
        peaks = {
            name: (self._peak_bytes[name] / MEGABYTE,) if name in self._peak_bytes else () for name in THREE
        }
        places = {
            (SENDER, "waiting"): f"resident, {SENDER}, {DESTINATION} down",
            (INTERMEDIATE, "waiting"): f"resident, {INTERMEDIATE}, {DESTINATION} down",
            (DESTINATION, "queued"): f"resident, {DESTINATION}, all in its queue",
        }
        serves = Wanted(at_most=WANTED_SERVES_S)
        return [
            *(Figure(words, "MB", known(self._resident[place]), limit) for place, words in places.items()),
            *(Figure(f"most that was resident, {name}", "MB", peaks[name], limit) for name in THREE),
            Figure(f"{DESTINATION} killed: from its start to a message", "s", tuple(self._serves_s), serves),
            Figure(
                f"{INTERMEDIATE} killed: from its start until it listens", "s", tuple(self._listens_s), serves
            ),
            Figure("accepted", "messages/s", (self._accepted_per_s,)),
            Figure(f"taken by {DESTINATION} once it was up", "messages/s", (self._moved_per_s,)),
            Figure("received by one consumer at the end", "messages/s", (self._drained_per_s,)),
        ]

    def broken(self) -> list[str]:
        """The nodes that needed more memory than any may, in words."""
        return over_limit(self._peak_bytes)


def over_limit(peak_bytes: Mapping[str, int]) -> list[str]:
    """By name what each node had resident at most: those that had more than any may, in words."""
    return [
        f"{name} had {peak / MEGABYTE:,.0f} MB resident, and may have {LIMIT_BYTES // MEGABYTE}"
        for name, peak in peak_bytes.items()
        if peak > LIMIT_BYTES
    ]


def _compared(flows: list[tuple[Flow, Flow]]) -> list[Figure]:
    deep, empty = zip(*flows, strict=True)
    rates, usual = ([flow.settled_per_s for flow in some] for some in (deep, empty))
    cpu, usual_cpu = (known([flow.cpu_us() for flow in some]) for some in (deep, empty))
    wanted = Wanted(at_least=WANTED_RATIO)
    return [
        Figure("throughput, queued / empty", "ratio", ratios(rates, usual), wanted),
        Figure("throughput, queued", "messages/s", tuple(rates)),
        Figure("throughput, empty", "messages/s", tuple(usual)),
        Figure("CPU of the three nodes, queued / empty", "ratio", ratios(cpu, usual_cpu)),
    ]

"""`bench backlog`: what many messages that wait cost, in memory, in throughput, and after a restart.

They wait twice. First the destination is killed, and they pile up at the intermediate. Then it is back and takes all of
them, but nobody receives. While they wait in its queue, messages go on flowing, in turns with a second row of nodes in
which nothing waits. A queue manager holds a window of each queue and not the queue, so neither its memory nor
what a message costs may grow with what waits.

Then the same with messages of mixed sizes, from nothing to nearly 4 MiB, through nodes of their own: windows and pages
end at their limits in bytes, with a large message between small ones. They wait and are received twice, first without
a restart, since a node that starts anew finds in its store what it had passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import trio

from simulator.demo.workload import HEAVY, orders
from tests.bench.figures import RUNS, BenchError, Figure, Result, Wanted, known, ratios
from tests.bench.load.row import (
    DESTINATION,
    INTERMEDIATE,
    QUEUE,
    SENDER,
    THREE,
    Flow,
    Row,
    comes_true,
    difference,
    in_a_row,
    patience_s,
    row,
    waiting,
)
from tests.bench.load.traffic import Traffic
from tests.bench.measures.chain import BODY_BYTES, WARM_UP_MESSAGES

MESSAGES: Final = 100_000
FLOW_MESSAGES: Final = 10_000
AFTERMATH: Final = 5
"""For how many that wait one flows before they are compared. What has moved on is still cleared from
the stores that it passed, along with what comes later: that has a figure of its own, and is over before the others."""
MIXED_EVERY: Final = 50
MIXED_LEAST: Final = 1_000
MIXED_SEED: Final = 0
"""Those of mixed sizes have some 40 times as many bytes each: one waits for 50 of one size. This is the least."""
WINDOW: Final = 64
LIMIT_BYTES: Final = 200 * 10**6
"""The resident memory that no node may need, however much waits."""
MEGABYTE: Final = 10**6
WANTED_RATIO: Final = 0.8
WANTED_SERVES_S: Final = 5


def mixed_beside(messages: int) -> int:
    """How many messages of mixed sizes wait, where `messages` of one size do."""
    return min(messages, max(MIXED_LEAST, messages // MIXED_EVERY))


async def bench_backlog(
    messages: int = MESSAGES,
    flow_messages: int = FLOW_MESSAGES,
    runs: int = RUNS,
    told: Callable[[str], None] = lambda text: None,
) -> Result:
    """Pile up messages, restart the nodes that have them, let others flow by, and receive all.

    Args:
        messages: how many wait; of those of mixed sizes `mixed_beside` as many.
        flow_messages: in each run of those that flow meanwhile, if they have one size.
        told: is told how far it is.

    Raises:
        BenchError: a message was lost, came twice, out of order or altered, or the nodes took too long.
        NodeError: a node does not start.
    """
    alike = await _alike(messages, flow_messages, runs, told)
    mixed = await _mixed(mixed_beside(messages), runs, told)
    return Result(
        name="backlog",
        title=f"three nodes, window {WINDOW}, {messages:,} messages of {BODY_BYTES:,} bytes wait, then "
        f"{mixed_beside(messages):,} of mixed sizes",
        figures=[*alike.figures, *mixed.figures],
        notes=[*alike.notes, *mixed.notes],
        broken=[*alike.broken, *mixed.broken],
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """What came of messages of one sort."""

    figures: list[Figure]
    notes: list[str]
    broken: list[str]


async def _alike(messages: int, flow_messages: int, runs: int, told: Callable[[str], None]) -> _Part:
    """Messages of one size, in turns with nodes where nothing waits."""
    body = bytes(BODY_BYTES)
    async with row(in_a_row(window=WINDOW)) as empty, row(in_a_row(window=WINDOW)) as deep:
        await empty.flood(min(flow_messages, WARM_UP_MESSAGES), body)
        traffic = deep.traffic(body)
        bench = _Bench(deep, traffic, messages, "backlog", told)
        await bench.pile_up(runs)
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
        await bench.restart(runs)
        await bench.drain()
    return _Part(
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
        broken=over_limit(bench.peak_bytes),
    )


async def _mixed(messages: int, runs: int, told: Callable[[str], None]) -> _Part:
    """Messages of mixed sizes: they wait and are received without a restart, and once more with some."""
    flow_messages = max(1, messages // AFTERMATH)
    rounds = (0, runs)
    async with row(in_a_row(window=WINDOW)) as nodes:
        traffic = nodes.traffic(orders(len(rounds) * (messages + flow_messages), MIXED_SEED, HEAVY))
        bench = _Bench(nodes, traffic, messages, "backlog of mixed sizes", told)
        flows: list[Flow] = []
        for kills in rounds:
            await bench.pile_up(kills)
            await bench.move_on()
            told(f"backlog of mixed sizes: {flow_messages:,} messages flow")
            flows.append(await nodes.measured(traffic, flow_messages, traffic.send_fast))
            bench.look("queued")
            await bench.restart(kills)
            await bench.drain()
    figures = [
        Figure("throughput, queued", "messages/s", tuple(flow.settled_per_s for flow in flows)),
        *bench.figures(),
    ]
    return _Part(
        figures=[replace(figure, name=f"mixed sizes: {figure.name}") for figure in figures],
        notes=[
            f"mixed sizes: {messages:,} messages waited in the same way and {flow_messages:,} flowed by, twice, the "
            f"first time without a restart where they waited; {traffic.sent_bytes / MEGABYTE:,.0f} MB in all, each "
            "message once, in order, unaltered",
            f"mixed sizes: copies that {SENDER} sent again meanwhile: {bench.resent:,}",
        ],
        broken=[f"mixed sizes: {words}" for words in over_limit(bench.peak_bytes)],
    )


class _Bench:
    """One row in which much waits, from the first message to the last; perhaps more than once.

    Args:
        messages: how many wait at once.
        what: is under way, in words.

    Attributes:
        peak_bytes: what each node has had resident at most.
        resent: copies that the sender has sent again, until the messages had moved on.
    """

    def __init__(
        self, row: Row, traffic: Traffic, messages: int, what: str, told: Callable[[str], None]
    ) -> None:
        self.peak_bytes: dict[str, int] = {}
        self.resent = 0
        self._row = row
        self._traffic = traffic
        self._messages = messages
        self._what = what
        self._told = told
        self._resident: dict[tuple[str, str], list[float | None]] = {}
        self._accepted_per_s: list[float] = []
        self._moved_per_s: list[float] = []
        self._drained_per_s: list[float] = []
        self._cpu_us: dict[str, list[float]] = {"accepted": [], "taken": [], "received": []}
        self._listens_s: list[float] = []
        self._serves_s: list[float] = []

    def look(self, when: str) -> None:
        """Note what each node has resident, and has had at most."""
        for name, memory in self._row.memory().items():
            resident = None if memory.resident_bytes is None else memory.resident_bytes / MEGABYTE
            self._resident.setdefault((name, when), []).append(resident)
            if memory.peak_bytes is not None:
                self.peak_bytes[name] = max(self.peak_bytes.get(name, 0), memory.peak_bytes)

    async def pile_up(self, kills: int) -> None:
        """All messages come to wait at the intermediate, which is killed and started again `kills` times."""
        supervisor = self._row.supervisor
        self._tell(f"{self._messages:,} messages are sent to a node that is down")
        start_s = trio.current_time()
        await supervisor.kill(DESTINATION)
        before_s = self._row.cpu_s()
        await self._traffic.send_fast(self._messages)
        self._accepted_per_s.append(self._messages / (trio.current_time() - start_s))
        await self._until_all_wait()
        self._note_cpu("accepted", self._messages, before_s)
        self.look("waiting")
        for number in range(kills):
            self._tell(f"{INTERMEDIATE} is killed, {number + 1} of {kills}")
            await supervisor.kill(INTERMEDIATE)
            started = await supervisor.start(INTERMEDIATE)
            self._listens_s.append(started.ready_s - started.spawned_s)
        await self._until_all_wait()
        self.look("restarted")

    async def move_on(self) -> None:
        """The destination is back, and takes all of them."""
        self._tell(f"{self._messages:,} messages move on to {DESTINATION}")
        started = await self._row.supervisor.start(DESTINATION)
        before_s = self._row.cpu_s()
        await self._row.until_settled(self._messages)
        self._note_cpu("taken", self._messages, before_s)
        self._moved_per_s.append(self._messages / (trio.current_time() - started.ready_s))
        self.resent = await self._resent()

    async def restart(self, kills: int) -> None:
        """The destination is killed with all that waits in its queue, and started again; somebody receives from it."""
        for number in range(kills):
            self._tell(f"{DESTINATION} is killed, {number + 1} of {kills}")
            await self._row.supervisor.kill(DESTINATION)
            started = await self._row.supervisor.start(DESTINATION)
            await self._traffic.take(QUEUE, timeout_s=patience_s(self._messages))
            self._serves_s.append(self._traffic.arrivals_s[-1] - started.spawned_s)
        self.look("restarted")

    async def drain(self) -> None:
        """Receive all that still waits, check all messages, and see that no copy of one comes after it."""
        left = self._traffic.unreceived
        self._tell(f"{left:,} messages are received")
        start_s = trio.current_time()
        before_s = self._row.cpu_s()
        with trio.move_on_after(patience_s(left)):
            await self._traffic.receive(left)
        self._note_cpu("received", left, before_s)
        self._drained_per_s.append(left / (trio.current_time() - start_s))
        self._traffic.check()
        await self._row.until_settled(left)
        await self._traffic.take(QUEUE, timeout_s=0)
        self._traffic.check()
        self.look("drained")

    def _note_cpu(self, what: str, messages: int, before_s: Mapping[str, float | None]) -> None:
        """Note what the nodes have spent on each message since then, all of them together."""
        spent_s = [difference(before_s[name], now_s) for name, now_s in self._row.cpu_s().items()]
        if messages and None not in spent_s:
            self._cpu_us[what].append(1e6 * sum(filter(None, spent_s)) / messages)

    def _tell(self, words: str) -> None:
        self._told(f"{self._what}: {words}")

    async def _resent(self) -> int:
        return (await self._row.clients[SENDER].queues()).resent

    async def _until_all_wait(self) -> None:
        """Wait until the intermediate has every message. What the sender sends again it has once, while it waits."""
        arrived = 0

        async def all_wait() -> bool:
            nonlocal arrived
            arrived = await waiting(self._row.clients[INTERMEDIATE])
            return arrived >= self._messages

        if not await comes_true(all_wait, patience_s(self._messages)):
            raise BenchError(f"of {self._messages:,} messages {max(0, arrived):,} came to {INTERMEDIATE}")

    def figures(self) -> list[Figure]:
        """All but those of what flowed."""
        limit = Wanted(at_most=LIMIT_BYTES / MEGABYTE)
        peaks = {
            name: (self.peak_bytes[name] / MEGABYTE,) if name in self.peak_bytes else () for name in THREE
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
            Figure("accepted", "messages/s", tuple(self._accepted_per_s)),
            Figure(f"taken by {DESTINATION} once it was up", "messages/s", tuple(self._moved_per_s)),
            Figure("received by one consumer at the end", "messages/s", tuple(self._drained_per_s)),
            *(
                Figure(f"CPU of the three nodes, {what}", "µs/message", tuple(taken))
                for what, taken in self._cpu_us.items()
            ),
        ]


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

"""`bench backlog`: what many waiting messages cost in memory, in throughput, and after a restart.

The messages wait at two nodes. First, the destination is killed, and they pile up at the intermediate node. Then the
destination comes back and takes all of them, but nobody receives them there. While they wait in its queue, other
messages flow, alternately through these nodes and through other nodes at which nothing waits. A queue manager has only
a window of each queue in memory. So neither its memory nor the cost of a message may grow with the number of waiting
messages.

Then the same is done with messages of mixed sizes, from nothing to nearly 4 MiB, through a new row of nodes. Large
messages are between small ones, so windows and pages reach their limits in bytes. These messages are piled up and
received twice, the first time without a restart. A restart would hide that a node had skipped a message, because the
restarted node finds the message in its store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import trio

from mqproto.simulator.rig.load.workload import HEAVY, orders
from tests.bench.figures import BenchError, Figure, Options, Result, Told, in_turns, known, ratios
from tests.bench.load.row import (
    BODY_BYTES,
    DESTINATION,
    INTERMEDIATE,
    QUEUE,
    SENDER,
    THREE,
    WARM_UP_MESSAGES,
    WINDOW,
    Row,
    comes_true,
    difference,
    in_a_row,
    patience_s,
    row,
    waiting,
)
from tests.bench.load.traffic import Traffic, alike, mixed

MESSAGES: Final = 100_000
QUICK_MESSAGES: Final = 5_000
FLOW_MESSAGES: Final = 10_000
AFTERMATH: Final = 5
"""How many messages wait for each one that flows right after the waiting messages have moved on.

Meanwhile, the nodes that had the waiting messages are still clearing their stores. This has a figure of its own, and
ends before the two cases are compared.
"""
MIXED_EVERY: Final = 50
MIXED_LEAST: Final = 1_000
MIXED_SEED: Final = 0
"""The seed for the order of the messages of mixed sizes.

They have about 40 times as many bytes as messages of one size. So fewer of them wait: the number of messages of one
size, divided by MIXED_EVERY, but at least MIXED_LEAST.
"""
LIMIT_MB: Final = 200
"""The limit, in megabytes, on the resident memory of a node. It does not depend on the number of waiting messages."""
MEGABYTE: Final = 10**6
WANTED_RATIO: Final = 0.8
WANTED_SERVES_S: Final = 5


async def measure(options: Options, told: Told) -> Result:
    """Pile up messages, restart the nodes that have them, let other messages flow, and receive all of them.

    Raises:
        BenchError: a message was lost or altered, or arrived twice or out of order, or the nodes took too long.
        NodeError: a node does not start.
    """
    messages = options.messages or (QUICK_MESSAGES if options.quick else MESSAGES)
    fewer = min(messages, max(MIXED_LEAST, messages // MIXED_EVERY))
    one_size = await _of_one_size(messages, options.rounds, told)
    sizes = await _of_mixed_sizes(fewer, options.rounds, told)
    return Result(
        f"three nodes, window {WINDOW}, {messages:,} messages of {BODY_BYTES:,} bytes wait, then {fewer:,} of mixed "
        "sizes",
        [
            *one_size.figures,
            *(replace(figure, name=f"mixed sizes: {figure.name}") for figure in sizes.figures),
        ],
        [*one_size.notes, *(f"mixed sizes: {note}" for note in sizes.notes)],
        [*one_size.broken, *(f"mixed sizes: {words}" for words in sizes.broken)],
    )


async def _of_one_size(messages: int, rounds: int, told: Told) -> Result:
    """Measure alternately with nodes in which nothing waits."""
    flowing = min(messages, FLOW_MESSAGES)
    body = bytes(BODY_BYTES)
    async with row(in_a_row()) as empty, row(in_a_row()) as deep:
        await empty.flood(min(flowing, WARM_UP_MESSAGES), alike(body))
        traffic = deep.traffic(alike(body))
        pile = _Pile(deep, traffic, messages, "backlog", told)
        await pile.pile_up(rounds)
        await pile.move_on()
        told("backlog: messages flow while the nodes clear up")
        after = await deep.measured(traffic, max(flowing, messages // AFTERMATH), traffic.send_fast)
        jobs = {
            "queued": partial(deep.measured, traffic, flowing, traffic.send_fast),
            "empty": partial(empty.flood, flowing, alike(body)),
        }
        flows = await in_turns("backlog", rounds, jobs, told)
        await pile.take_all(rounds)
    rates = {name: tuple(flow.settled_per_s for flow in found) for name, found in flows.items()}
    cpu = [known([flow.cpu_us() for flow in found]) for found in flows.values()]
    return pile.result(
        Figure("throughput, queued / empty", "ratio", ratios(*rates.values()), at_least=WANTED_RATIO),
        *(Figure(f"throughput, {name}", "messages/s", values) for name, values in rates.items()),
        Figure("CPU of the three nodes, queued / empty", "ratio", ratios(*cpu) if all(cpu) else ()),
        Figure("throughput, just after all moved on", "messages/s", (after.settled_per_s,)),
        notes=[
            f"they waited at {INTERMEDIATE} while {DESTINATION} was down, then at {DESTINATION}, which nobody asked",
            f"{flowing:,} messages flowed in each round, in turns with nodes where nothing waited",
            f"before that {after.messages:,} flowed while {SENDER} and {INTERMEDIATE} cleared what had moved on",
        ],
    )


async def _of_mixed_sizes(messages: int, rounds: int, told: Told) -> Result:
    """Let messages wait and be received, first without a restart and then with restarts."""
    flowing = max(1, messages // AFTERMATH)
    async with row(in_a_row()) as nodes:
        traffic = nodes.traffic(mixed(orders(2 * (messages + flowing), MIXED_SEED, HEAVY)))
        pile = _Pile(nodes, traffic, messages, "backlog of mixed sizes", told)
        rates = []
        for kills in (0, rounds):
            await pile.pile_up(kills)
            await pile.move_on()
            told(f"backlog of mixed sizes: {flowing:,} messages flow")
            flow = await nodes.measured(traffic, flowing, traffic.send_fast)
            rates.append(flow.settled_per_s)
            await pile.take_all(kills)
    return pile.result(
        Figure("throughput, queued", "messages/s", tuple(rates)),
        notes=[
            f"{messages:,} messages waited in the same way and {flowing:,} flowed by, twice, the first time without a "
            f"restart where they waited; {traffic.sent_bytes / MEGABYTE:,.0f} MB in all"
        ],
    )


class _Pile:
    """Many messages that pile up in a row of nodes, from sending the first to receiving the last.

    This may be done more than once.

    Args:
        messages: the number of messages that wait at once.
        what: the name of the measurement, in words.
    """

    def __init__(self, nodes: Row, traffic: Traffic, messages: int, what: str, told: Told) -> None:
        self._nodes = nodes
        self._traffic = traffic
        self._messages = messages
        self._what = what
        self._told = told
        self._noted: dict[tuple[str, str, float | None], list[float | None]] = {}
        self._peaks_mb: dict[str, float] = {}

    def _note(self, name: str, unit: str, value: float | None, at_most: float | None = None) -> None:
        self._noted.setdefault((name, unit, at_most), []).append(value)

    def _look(self, node: str = "", when: str = "") -> None:
        """Record one node's resident memory, and every node's greatest resident memory."""
        for name, memory in self._nodes.memory().items():
            if name == node:
                resident = memory.resident_bytes
                self._note(f"resident, {name}, {when}", "MB", resident and resident / MEGABYTE, LIMIT_MB)
            if memory.peak_bytes is not None:
                self._peaks_mb[name] = max(self._peaks_mb.get(name, 0.0), memory.peak_bytes / MEGABYTE)

    def _note_cost(
        self, what: str, messages: int, before_s: Mapping[str, float | None], start_s: float
    ) -> None:
        """Record the speed since `start_s`, and the processor time that all nodes together spent per message."""
        self._note(what, "messages/s", messages / (trio.current_time() - start_s))
        spent_s = [difference(before_s[name], now_s) for name, now_s in self._nodes.cpu_s().items()]
        each = None if None in spent_s else 1e6 * sum(filter(None, spent_s)) / messages
        self._note(f"CPU of the three nodes, {what}", "µs/message", each)

    async def pile_up(self, kills: int) -> None:
        """Let all messages pile up at the intermediate, which is killed and started again `kills` times."""
        supervisor = self._nodes.supervisor
        self._tell(f"{self._messages:,} messages are sent to a node that is down")
        await supervisor.kill(DESTINATION)
        before_s, start_s = self._nodes.cpu_s(), trio.current_time()
        await self._traffic.send_fast(self._messages)
        await self._until_all_wait()
        self._note_cost("accepted", self._messages, before_s, start_s)
        for name in (SENDER, INTERMEDIATE):
            self._look(name, f"{DESTINATION} down")
        for number in range(1, kills + 1):
            self._tell(f"{INTERMEDIATE} is killed, {number} of {kills}")
            await supervisor.kill(INTERMEDIATE)
            started = await supervisor.start(INTERMEDIATE)
            name = f"{INTERMEDIATE} killed: from its start until it listens"
            self._note(name, "s", started.ready_s - started.spawned_s, WANTED_SERVES_S)
        await self._until_all_wait()
        self._look()

    async def move_on(self) -> None:
        """Let the destination come back and take all of the messages."""
        self._tell(f"{self._messages:,} messages move on to {DESTINATION}")
        started = await self._nodes.supervisor.start(DESTINATION)
        before_s = self._nodes.cpu_s()
        await self._nodes.until_settled(self._messages)
        self._note_cost(f"taken by {DESTINATION} once it was up", self._messages, before_s, started.ready_s)
        resent = (await self._nodes.clients[SENDER].queues()).resent
        self._note(f"copies that {SENDER} has sent again", "messages", resent)
        self._look(DESTINATION, "all in its queue")

    async def take_all(self, kills: int) -> None:
        """Kill and restart the destination `kills` times with all messages in its queue, then receive them all.

        Each message is checked. After them, no further copy of any message may follow.
        """
        for number in range(1, kills + 1):
            self._tell(f"{DESTINATION} is killed, {number} of {kills}")
            await self._nodes.supervisor.kill(DESTINATION)
            started = await self._nodes.supervisor.start(DESTINATION)
            await self._traffic.take(QUEUE, timeout_s=patience_s(self._messages))
            name = f"{DESTINATION} killed: from its start to a message"
            self._note(name, "s", self._traffic.arrivals_s[-1] - started.spawned_s, WANTED_SERVES_S)
        self._look()
        left = self._traffic.unreceived
        self._tell(f"{left:,} messages are received")
        before_s, start_s = self._nodes.cpu_s(), trio.current_time()
        with trio.move_on_after(patience_s(left)):
            await self._traffic.receive(left)
        if left:
            self._note_cost("received by one consumer at the end", left, before_s, start_s)
        self._traffic.check()
        await self._nodes.until_settled(left)
        await self._traffic.take(QUEUE, timeout_s=0)
        self._traffic.check()
        self._look()

    async def _until_all_wait(self) -> None:
        """Wait until the intermediate node has as many messages to pass on as were sent."""
        arrived = 0

        async def all_wait() -> bool:
            nonlocal arrived
            arrived = await waiting(self._nodes.clients[INTERMEDIATE])
            return arrived >= self._messages

        if not await comes_true(all_wait, patience_s(self._messages)):
            raise BenchError(f"of {self._messages:,} messages {arrived:,} came to {INTERMEDIATE}")

    def _tell(self, words: str) -> None:
        self._told(f"{self._what}: {words}")

    def result(self, *figures: Figure, notes: list[str]) -> Result:
        """Return these figures, followed by those that this pile has recorded."""
        for name in THREE:
            self._note(f"most that was resident, {name}", "MB", self._peaks_mb.get(name), LIMIT_MB)
        noted = [
            Figure(name, unit, known(values), at_most=at_most)
            for (name, unit, at_most), values in self._noted.items()
        ]
        return Result("", [*figures, *noted], notes, over_limit(self._peaks_mb))


def over_limit(peaks_mb: Mapping[str, float]) -> list[str]:
    """Return a text about each node whose greatest resident memory is over the limit."""
    return [
        f"{name} had {peak_mb:,.0f} MB resident, and may have {LIMIT_MB}"
        for name, peak_mb in peaks_mb.items()
        if peak_mb > LIMIT_MB
    ]

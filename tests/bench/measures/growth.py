"""`bench growth`: what a message costs when there is more of something: bytes, queues, sessions, nodes.

The cost is CPU of the nodes, user and system, which other tenants of the machine change less than time. All points of
a series are measured in each round, in turns. A series grows by as much as it costs more at some point than at an
earlier one: that it becomes cheaper, as when more messages share a flush, is no growth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from mqproto.messages.drafts import HEADROOM_BYTES, PACKET_LIMIT_BYTES
from tests.bench.figures import RUNS, Figure, Result, Wanted, known
from tests.bench.load.peers import star_of
from tests.bench.load.row import QUEUE, in_a_row, row
from tests.bench.measures.chain import BODY_BYTES

WANTED_GROWTH: Final = 2
NODES: Final = 3
"""In the row, where nothing else is said."""
WINDOW: Final = 64
BYTES_OF_RUN: Final = 32 * 2**20
"""What the bodies of a run have in all, if it would be more. How many messages are sent at least:"""
LEAST_MESSAGES: Final = 8
SMALL_BYTES: Final = 1_024
LARGE_BYTES: Final = 64 * 1_024
"""Up to the former a message should cost the same whatever its size; from the latter on, a byte should."""

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: sizes of bodies, and numbers of queues, of sessions, and of nodes in a row.

    messages: in each run, but for large ones.
    """

    sizes: tuple[int, ...]
    queues: tuple[int, ...]
    sessions: tuple[int, ...]
    nodes: tuple[int, ...]
    messages: int
    runs: int


FULL: Final = Plan(
    sizes=(100, 1_024, 8 * 1_024, LARGE_BYTES, 512 * 1_024, PACKET_LIMIT_BYTES - HEADROOM_BYTES),
    queues=(1, 10, 100, 1_000),
    sessions=(1, 10, 50, 200),
    nodes=(2, 3, 4, 5, 6, 7),
    messages=8_000,
    runs=RUNS,
)
SHORT: Final = Plan(
    sizes=(100, 1_024, LARGE_BYTES, 2**20),
    queues=(1, 100),
    sessions=(1, 20),
    nodes=(2, 3, 5),
    messages=2_000,
    runs=3,
)


@dataclass(frozen=True, slots=True)
class Series:
    """What something costs at several points.

    of: what there is more and more of.
    costs: by point, in each round; empty where the kernel does not tell.
    """

    of: str
    unit: str
    costs: dict[int, tuple[float, ...]]

    @property
    def growth(self) -> tuple[float, ...]:
        """In each round, the most by which a point costs more than an earlier one; 1 if none does."""
        return tuple(growth_of(costs) for costs in zip(*self.costs.values(), strict=True))

    def between(self, least: int, most: int) -> Series:
        """The same of some points."""
        return Series(self.of, self.unit, {at: self.costs[at] for at in self.costs if least <= at <= most})

    def figures(self) -> list[Figure]:
        """The cost at each point."""
        return [Figure(f"{self.of}: {point:,}", self.unit, costs) for point, costs in self.costs.items()]


def growth_of(costs: Sequence[float]) -> float:
    """The most by which one of them is more than an earlier one, as a ratio; 1 if none is."""
    growth, cheapest = 1.0, costs[0]
    for cost in costs:
        growth, cheapest = max(growth, cost / cheapest), min(cheapest, cost)
    return growth


async def bench_growth(plan: Plan = FULL, told: Told = lambda text: None) -> Result:
    """Measure all series.

    Raises:
        BenchError: a message was lost, came twice, out of order or altered.
        NodeError: a node does not start.
    """
    sizes, nodes = await _sizes_and_nodes(plan, told)
    per_byte = Series(
        sizes.of,
        "ns/byte",
        {size: tuple(1e3 * cost / size for cost in costs) for size, costs in sizes.costs.items()},
    )
    queues, sessions = await _queues(plan, told), await _sessions(plan, told)
    small, large = sizes.between(0, SMALL_BYTES), per_byte.between(LARGE_BYTES, 2**32)
    judged = {
        f"per message, to {SMALL_BYTES:,} bytes": small,
        f"per byte, from {LARGE_BYTES:,} bytes": large,
        "per message, by queues": queues,
        "per message, by sessions": sessions,
        "per message and node, by nodes": nodes,
    }
    wanted = Wanted(at_most=WANTED_GROWTH)
    return Result(
        name="growth",
        title=f"CPU of the nodes, window {WINDOW}; bodies of {BODY_BYTES:,} bytes where nothing else is said",
        figures=[
            *(Figure(f"growth {what}", "ratio", series.growth, wanted) for what, series in judged.items()),
            *sizes.figures(),
            *per_byte.figures(),
            *queues.figures(),
            *sessions.figures(),
            *nodes.figures(),
        ],
    )


async def _sizes_and_nodes(plan: Plan, told: Told) -> tuple[Series, Series]:
    """A row as long as the longest: what goes to a node of it passes those before, and no other."""
    sizes: dict[int, list[float | None]] = {size: [] for size in plan.sizes}
    lengths: dict[int, list[float | None]] = {nodes: [] for nodes in plan.nodes}
    names = [f"node-{number}" for number in range(1, max(*plan.nodes, NODES) + 1)]
    async with row(in_a_row(names, WINDOW, {name: [QUEUE] for name in names})) as nodes:

        async def cost_us(length: int, count: int, size: int) -> float | None:
            flow = await nodes.flood(count, bytes(size), to=names[length - 1])
            return flow.cpu_us(*names[:length])

        await cost_us(len(names), plan.messages, BODY_BYTES)
        for number in range(plan.runs):
            for size in sizes:
                told(f"growth, {size:,} bytes: run {number + 1} of {plan.runs}")
                count = min(plan.messages, max(LEAST_MESSAGES, BYTES_OF_RUN // size))
                sizes[size].append(await cost_us(NODES, count, size))
            for length in lengths:
                told(f"growth, {length} nodes: run {number + 1} of {plan.runs}")
                cpu_us = await cost_us(length, plan.messages, BODY_BYTES)
                lengths[length].append(None if cpu_us is None else cpu_us / length)
    by_size = _series("bytes", "µs/message", sizes)
    return by_size, _series("nodes in a row", "µs/message and node", lengths)


async def _queues(plan: Plan, told: Told) -> Series:
    """Three nodes for each point, as a queue that nobody uses any more may cost something, too."""
    costs: dict[int, list[float | None]] = {queues: [] for queues in plan.queues}
    names = {queues: [f"{QUEUE}-{number}" for number in range(queues)] for queues in costs}
    async with AsyncExitStack() as stack:
        rows = {}
        for queues in costs:
            topology = in_a_row(window=WINDOW, queues={"destination": names[queues]})
            rows[queues] = await stack.enter_async_context(row(topology))

        async def cost_us(queues: int, count: int) -> float | None:
            flow = await rows[queues].flood(count, bytes(BODY_BYTES), queues=names[queues], together=True)
            return flow.cpu_us()

        for queues in costs:
            # Each sequence begins once, and that is not what is measured.
            await cost_us(queues, max(plan.messages, queues))
        for number in range(plan.runs):
            for queues in costs:
                told(f"growth, {queues:,} queues: run {number + 1} of {plan.runs}")
                costs[queues].append(await cost_us(queues, plan.messages))
    return _series("queues", "µs/message", costs)


async def _sessions(plan: Plan, told: Told) -> Series:
    costs: dict[int, list[float | None]] = {sessions: [] for sessions in plan.sessions}
    async with AsyncExitStack() as stack:
        stars = {peers: await stack.enter_async_context(star_of(peers, WINDOW)) for peers in costs}
        for star in stars.values():
            await star.flood(plan.messages, bytes(BODY_BYTES))
        for number in range(plan.runs):
            for sessions in costs:
                told(f"growth, {sessions:,} sessions: run {number + 1} of {plan.runs}")
                costs[sessions].append(await stars[sessions].flood(plan.messages, bytes(BODY_BYTES)))
    return _series("sessions into one node", "µs/message", costs)


def _series(of: str, unit: str, costs: dict[int, list[float | None]]) -> Series:
    return Series(of, unit, {point: known(values) for point, values in costs.items()})

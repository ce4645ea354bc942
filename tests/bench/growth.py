"""`bench growth`: how the cost of a message grows with bytes, queues, sessions and nodes.

The cost is the nodes' processor time, user and system, which other tenants of the machine affect less than wall-clock
time. All points of a series are measured in each round, alternately. The growth of a series is the greatest ratio of a
point's cost to that of an earlier point. If a message becomes cheaper, as when more messages share a flush, there is no
growth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mqproto.messages.drafts import BODY_LIMIT_BYTES, PACKET_LIMIT_BYTES
from tests.bench.figures import Figure, Options, Result, Told, in_turns, known
from tests.bench.load.row import BODY_BYTES, DESTINATION, QUEUE, WINDOW, in_a_row, row
from tests.bench.load.star import star_of
from tests.bench.load.traffic import alike

WANTED_GROWTH: Final = 2
NODES: Final = 3
"""The number of nodes in a row, unless a measurement says otherwise."""
BYTES_OF_ROUND: Final = 32 * 2**20
"""The limit on the total size of the bodies in a round, in bytes. At least LEAST_MESSAGES are sent, however."""
LEAST_MESSAGES: Final = 8
SMALL_BYTES: Final = 1_024
LARGE_BYTES: Final = 64 * 1_024
"""A size in bytes. In messages of at least this size, each byte should cost the same.

For messages of up to SMALL_BYTES, each message should cost the same.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of the measurement: body sizes, and numbers of queues, of sessions, and of nodes in a row.

    messages: the number of messages in each round, unless they are large.
    """

    sizes: tuple[int, ...]
    queues: tuple[int, ...]
    sessions: tuple[int, ...]
    nodes: tuple[int, ...]
    messages: int


FULL: Final = Plan(
    sizes=(100, 1_024, 8 * 1_024, LARGE_BYTES, 512 * 1_024, BODY_LIMIT_BYTES),
    queues=(1, 10, 100, 1_000),
    sessions=(1, 10, 50),
    nodes=(2, 3, 4, 5, 6, 7),
    messages=8_000,
)
QUICK: Final = Plan(
    sizes=(100, 1_024, LARGE_BYTES, 2**20),
    queues=(1, 100),
    sessions=(1, 20),
    nodes=(2, 3, 5),
    messages=2_000,
)

Costs = dict[int, tuple[float, ...]]
"""For each point, the cost in each round. A point has no costs if the kernel does not report them."""


async def measure(options: Options, told: Told, plan: Plan | None = None) -> Result:
    """Measure all series.

    Raises:
        BenchError: a message was lost or altered, or arrived twice or out of order.
        NodeError: a node does not start.
    """
    plan = plan or (QUICK if options.quick else FULL)
    sizes, nodes = await _sizes_and_nodes(plan, options.rounds, told)
    large = {size: tuple(1e3 * cost / size for cost in costs) for size, costs in sizes.items()}
    queues = await _queues(plan, options.rounds, told)
    sessions = await _sessions(plan, options.rounds, told)
    return Result(
        f"CPU of the nodes, window {WINDOW}; bodies of {BODY_BYTES:,} bytes where nothing else is said",
        [
            *_judged(f"per message, to {SMALL_BYTES:,} bytes", within(sizes, 0, SMALL_BYTES)),
            *_judged(f"per byte, from {LARGE_BYTES:,} bytes", within(large, LARGE_BYTES, PACKET_LIMIT_BYTES)),
            *_judged("per message, by queues", queues),
            *_judged("per message, by sessions", sessions),
            *_judged("per message and node, by nodes", nodes),
            *_told_of("bytes", "µs/message", sizes),
            *_told_of("bytes", "ns/byte", large),
            *_told_of("queues", "µs/message", queues),
            *_told_of("sessions into one node", "µs/message", sessions),
            *_told_of("nodes in a row", "µs/message and node", nodes),
        ],
    )


def _judged(what: str, costs: Costs) -> Iterator[Figure]:
    yield Figure(f"growth {what}", "ratio", growth(costs), at_most=WANTED_GROWTH)


def _told_of(what: str, unit: str, costs: Costs) -> Iterator[Figure]:
    for point, values in costs.items():
        yield Figure(f"{what}: {point:,}", unit, values)


def within(costs: Costs, least: int, most: int) -> Costs:
    """Return the costs at the points from `least` to `most`."""
    return {point: values for point, values in costs.items() if least <= point <= most}


def growth(costs: Costs) -> tuple[float, ...]:
    """Return, for each round, the greatest ratio of a point's cost to that of an earlier point; 1 if none grows."""
    return tuple(growth_of(values) for values in zip(*costs.values(), strict=True))


def growth_of(costs: Sequence[float]) -> float:
    """Return the greatest ratio of a cost to an earlier one; 1 if none grows."""
    most, cheapest = 1.0, costs[0]
    for cost in costs:
        most, cheapest = max(most, cost / cheapest), min(cheapest, cost)
    return most


async def _sizes_and_nodes(plan: Plan, rounds: int, told: Told) -> tuple[Costs, Costs]:
    """Measure the growth with sizes, and with nodes, in one row that is as long as the longest one needed.

    Messages to a node of the row pass only through the nodes before it.
    """
    names = [f"node-{number}" for number in range(1, max(*plan.nodes, NODES) + 1)]
    async with row(in_a_row(names, queues={name: [QUEUE] for name in names})) as nodes:

        async def cost_us(length: int, count: int, size: int) -> float | None:
            flow = await nodes.flood(count, alike(bytes(size)), to=names[length - 1])
            return flow.cpu_us(*names[:length])

        await cost_us(len(names), plan.messages, BODY_BYTES)
        jobs: dict[str, Any] = {}
        for size in plan.sizes:
            count = min(plan.messages, max(LEAST_MESSAGES, BYTES_OF_ROUND // size))
            jobs[f"{size} bytes"] = partial(cost_us, NODES, count, size)
        for length in plan.nodes:
            jobs[f"{length} nodes"] = partial(cost_us, length, plan.messages, BODY_BYTES)
        found = await in_turns("growth", rounds, jobs, told)
    lengths = _costs(found, "nodes", plan.nodes)
    each = {length: tuple(cost / length for cost in costs) for length, costs in lengths.items()}
    return _costs(found, "bytes", plan.sizes), each


async def _queues(plan: Plan, rounds: int, told: Told) -> Costs:
    """Measure with three separate nodes for each point, because even a queue that is no longer used may cost
    something.
    """
    jobs: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        for queues in plan.queues:
            names = [f"{QUEUE}-{number}" for number in range(queues)]
            nodes = await stack.enter_async_context(row(in_a_row(queues={DESTINATION: names})))
            flood = partial(nodes.flood, bodies=alike(bytes(BODY_BYTES)), queues=names, together=True)
            # Each sequence begins once, and that is not what is measured.
            await flood(max(plan.messages, queues))
            jobs[f"{queues} queues"] = partial(flood, plan.messages)
        found = await in_turns("growth", rounds, jobs, told)
    costs = {name: [flow.cpu_us() for flow in flows] for name, flows in found.items()}
    return _costs(costs, "queues", plan.queues)


async def _sessions(plan: Plan, rounds: int, told: Told) -> Costs:
    jobs: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        for sessions in plan.sessions:
            star = await stack.enter_async_context(star_of(sessions))
            jobs[f"{sessions} sessions"] = partial(star.flood, plan.messages, bytes(BODY_BYTES))
        found = await in_turns("growth", rounds, jobs, told, warm=True)
    return _costs(found, "sessions", plan.sessions)


def _costs(found: Mapping[str, Sequence[float | None]], of: str, points: Sequence[int]) -> Costs:
    return {point: known(found[f"{point} {of}"]) for point in points}

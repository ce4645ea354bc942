"""`bench latency`: from when a message was due to be sent until its consumer has it, three flushes later.

Messages are sent when they are due, however long those before them take (load/traffic.py): a stall is in the figures of
all that it held up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from simulator.faults.proof import percentile
from tests.bench.figures import RUNS, Figure, Result, Wanted, known
from tests.bench.load.row import CLIENT, THREE, Flow, in_a_row, row
from tests.bench.measures.beside import NODES, Peer, started, table_beside
from tests.bench.measures.chain import BODY_BYTES, FLUSH, WARM_UP_MESSAGES
from tests.bench.measures.machine import flush_ms

RATES: Final = (200, 2_000)
SECONDS: Final = 15.0
"""3,000 messages at 200 a second, of which three are beyond p99.9."""
PERCENTILES: Final = (50, 99, 99.9)
WANTED_MS: Final[dict[tuple[int, float], float]] = {(200, 99): 10}
WINDOW: Final = 64
LINES: Final[dict[str, Callable[[Flow], float | None]]] = {
    "p50, ms": lambda flow: percentile(flow.delays_ms, 50),
    "p99, ms": lambda flow: percentile(flow.delays_ms, 99),
    "CPU of all three, µs/message": lambda flow: flow.cpu_us(*THREE),
}
"""What is told of a run where others' servers are measured as well."""


async def bench_latency(
    rates: Sequence[int] = RATES,
    seconds: float = SECONDS,
    runs: int = RUNS,
    told: Callable[[str], None] = lambda text: None,
    beside: Sequence[Peer] = (),
) -> Result:
    """Measure, with each rate in turn.

    Args:
        seconds: how long each run lasts.
        told: is told how far it is.
        beside: whose servers are measured in the same rounds.

    Raises:
        BenchError: a message was lost, came twice, out of order or altered.
        NodeError: a node does not start, or one of those servers.
        UsageError: they are not here.
    """
    body = bytes(BODY_BYTES)
    flows: dict[int, list[Flow]] = {rate: [] for rate in rates}
    flushes_ms = []
    async with started(beside, BODY_BYTES) as others, row(in_a_row(window=WINDOW)) as nodes:
        theirs: dict[int, dict[str, list[Flow]]] = {
            rate: {title: [] for title in others.chains} for rate in rates
        }
        await nodes.flood(WARM_UP_MESSAGES, body)
        for other in others.chains.values():
            await other.flood(WARM_UP_MESSAGES, BODY_BYTES, WINDOW)
        for number in range(runs):
            flushes_ms.append(flush_ms())
            for rate in flows:
                told(f"latency at {rate:,} messages/s: run {number + 1} of {runs}")
                count = max(1, round(rate * seconds))
                flows[rate].append(await nodes.pace(count, rate, body))
                for title, other in others.chains.items():
                    told(f"latency at {rate:,} messages/s, {title}: run {number + 1} of {runs}")
                    theirs[rate][title].append(await other.pace(count, rate, BODY_BYTES))
    counts = " and ".join(f"{flows[rate][0].messages:,}" for rate in flows)
    return Result(
        name="latency",
        title=f"three nodes, window {WINDOW}, {counts} messages of {BODY_BYTES:,} bytes a run",
        figures=[
            *(figure for rate in flows for figure in _figures(rate, flows[rate])),
            *(
                figure
                for rate, by_title in theirs.items()
                for title, found in by_title.items()
                for figure in _figures(rate, found, title)
            ),
            Figure(FLUSH, "ms", tuple(flushes_ms)),
        ],
        notes=[
            "a message's time begins when it was due to be sent, and ends when its consumer has it",
            *others.notes,
        ],
        beside=table_beside(
            {f"{rate:,}/s": {NODES: flows[rate], **theirs[rate]} for rate in flows}, others.promises, LINES
        )
        if others.chains
        else None,
    )


def _figures(rate: int, flows: list[Flow], other: str = "") -> list[Figure]:
    """Of our nodes, or of others' servers."""
    what = f"{rate:,} messages/s, {other}" if other else f"{rate:,} messages/s"
    latencies = []
    for percent in PERCENTILES:
        limit_ms = None if other else WANTED_MS.get((rate, percent))
        wanted = None if limit_ms is None else Wanted(at_most=limit_ms)
        values = tuple(percentile(flow.delays_ms, percent) for flow in flows)
        latencies.append(Figure(f"{what}: p{percent:g}", "ms", values, wanted))
    three, client = ([flow.cpu_us(*names) for flow in flows] for names in (THREE, (CLIENT,)))
    return [
        *latencies,
        Figure(f"{what}: CPU of the three {'servers' if other else 'nodes'}", "µs/message", known(three)),
        Figure(f"{what}: CPU of {CLIENT}", "µs/message", known(client)),
    ]

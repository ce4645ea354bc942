"""`mqproto bench latency`: from when a message was due to be sent until its consumer has it, three flushes later.

Messages are sent when they are due, however long those before them take (load/traffic.py): a stall is in the figures of
all that it held up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from simulator.bench.figures import RUNS, Figure, Result, Wanted, known
from simulator.bench.load.row import CLIENT, Flow, in_a_row, row
from simulator.bench.measures.chain import BODY_BYTES, FLUSH, WARM_UP_MESSAGES
from simulator.bench.measures.machine import flush_ms
from simulator.faults.proof import percentile

RATES: Final = (200, 2_000)
SECONDS: Final = 15.0
"""3,000 messages at 200 a second, of which three are beyond p99.9."""
PERCENTILES: Final = (50, 99, 99.9)
WANTED_MS: Final[dict[tuple[int, float], float]] = {(200, 99): 10}
WINDOW: Final = 64


async def bench_latency(
    rates: Sequence[int] = RATES,
    seconds: float = SECONDS,
    runs: int = RUNS,
    told: Callable[[str], None] = lambda text: None,
) -> Result:
    """Measure, with each rate in turn.

    Args:
        seconds: how long each run lasts.
        told: is told how far it is.

    Raises:
        BenchError: a message was lost, came twice, out of order or altered.
        NodeError: a node does not start.
    """
    body = bytes(BODY_BYTES)
    flows: dict[int, list[Flow]] = {rate: [] for rate in rates}
    flushes_ms = []
    async with row(in_a_row(window=WINDOW)) as nodes:
        await nodes.flood(WARM_UP_MESSAGES, body)
        for number in range(runs):
            flushes_ms.append(flush_ms())
            for rate in flows:
                told(f"latency at {rate:,} messages/s: run {number + 1} of {runs}")
                flows[rate].append(await nodes.pace(max(1, round(rate * seconds)), rate, body))
    counts = " and ".join(f"{flows[rate][0].messages:,}" for rate in flows)
    return Result(
        name="latency",
        title=f"three nodes, window {WINDOW}, {counts} messages of {BODY_BYTES:,} bytes a run",
        figures=[
            *(figure for rate in flows for figure in _figures(rate, flows[rate])),
            Figure(FLUSH, "ms", tuple(flushes_ms)),
        ],
        notes=["a message's time begins when it was due to be sent, and ends when its consumer has it"],
    )


def _figures(rate: int, flows: list[Flow]) -> list[Figure]:
    latencies = []
    for percent in PERCENTILES:
        limit_ms = WANTED_MS.get((rate, percent))
        wanted = None if limit_ms is None else Wanted(at_most=limit_ms)
        values = tuple(percentile(flow.delays_ms, percent) for flow in flows)
        latencies.append(Figure(f"{rate:,} messages/s: p{percent:g}", "ms", values, wanted))
    nodes, client = ([flow.cpu_us(*names) for flow in flows] for names in ((), (CLIENT,)))
    return [
        *latencies,
        Figure(f"{rate:,} messages/s: CPU of the three nodes", "µs/message", known(nodes)),
        Figure(f"{rate:,} messages/s: CPU of {CLIENT}", "µs/message", known(client)),
    ]

"""`mqproto bench chain`: transactional messages through three node processes, each of them on disk at every hop.

As fast as it goes, in rounds, with each window in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from simulator.base.profiling import profile_of, profiled
from simulator.bench.figures import RUNS, Figure, Result, Wanted, known
from simulator.bench.load.row import CLIENT, THREE, Flow, in_a_row, row
from simulator.bench.measures.machine import flush_ms

MESSAGES: Final = 20_000
BODY_BYTES: Final = 1_024
WINDOWS: Final = (64, 1_024)
"""MSMQ's default, and one between nodes that are both ours."""
WANTED_PER_S: Final = {64: 20_000, 1_024: 30_000}
WANTED_CPU_US: Final = 60
WARM_UP_MESSAGES: Final = 2_000
FLUSH: Final = "a flush of 64 KiB, before each run"


async def bench_chain(
    messages: int = MESSAGES,
    windows: Sequence[int] = WINDOWS,
    body_bytes: int = BODY_BYTES,
    runs: int = RUNS,
    profiles: Path | None = None,
    told: Callable[[str], None] = lambda text: None,
) -> Result:
    """Measure.

    Args:
        messages: in each run.
        profiles: a folder for profiles of the nodes and of the client, which make all of them slower.
        told: is told how far it is.

    Raises:
        BenchError: a message was lost, came twice, out of order or altered.
        NodeError: a node does not start.
    """
    body = bytes(body_bytes)
    flows: dict[int, list[Flow]] = {window: [] for window in windows}
    flushes_ms = []
    async with AsyncExitStack() as stack:
        rows = {}
        for window in flows:
            folder = profiles and profiles / f"window-{window}"
            rows[window] = await stack.enter_async_context(row(in_a_row(window=window), folder))
            await rows[window].flood(min(messages, WARM_UP_MESSAGES), body)
        with profiled(profiles and profile_of(profiles, CLIENT)):
            for number in range(runs):
                flushes_ms.append(flush_ms())
                for window in flows:
                    told(f"chain, window {window:,}: run {number + 1} of {runs}")
                    flows[window].append(await rows[window].flood(messages, body))
    notes = ["each run is checked: every message once, in order, unaltered; the client is no node"]
    if profiles is not None:
        notes.append(f"all of it is slower than it is without profiles, which are in {profiles}")
    return Result(
        name="chain",
        title=f"three nodes, {messages:,} messages of {body_bytes:,} bytes a run, flushed at each node",
        figures=[
            *(figure for window in flows for figure in _figures(window, flows[window])),
            Figure(FLUSH, "ms", tuple(flushes_ms)),
        ],
        notes=notes,
    )


def _figures(window: int, flows: list[Flow]) -> list[Figure]:
    wanted = Wanted(at_least=WANTED_PER_S[window]) if window in WANTED_PER_S else None

    def figure(name: str, unit: str, values: list[float | None], wanted: Wanted | None = None) -> Figure:
        return Figure(f"window {window:,}: {name}", unit, known(values), wanted)

    return [
        figure("throughput", "messages/s", [flow.messages_per_s for flow in flows], wanted),
        figure(
            "CPU of the three nodes",
            "µs/message",
            [flow.cpu_us() for flow in flows],
            Wanted(at_most=WANTED_CPU_US),
        ),
        *(
            figure(f"CPU of {name}", "µs/message", [flow.cpu_us(name) for flow in flows])
            for name in (*THREE, CLIENT)
        ),
        *(
            figure(f"flushes of {name}", "1/s", [flow.flushes_per_s(name) for flow in flows])
            for name in THREE
        ),
    ]

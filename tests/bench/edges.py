"""`bench edges`: the cost of a message at the gateway and the trigger, compared with programs that use no messaging.

All programs do the same work in each round, alternately. A gateway, and uvicorn with SQLite (programs/accepting.py),
take the same POSTs from the same program (posting.py). A trigger, and a worker on a table of SQLite (working.py), call
the same consumer (consuming.py). All programs run all the time, but only one at a time has work.

Everything is measured with stores on the disk of temporary files and, if possible, also in memory, because the cost of
a separate commit depends on the disk.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from tests.bench.figures import Figure, Options, Result, Told, in_turns, known
from tests.bench.load.row import BODY_BYTES
from tests.bench.load.stage import DELIVERERS, GATEWAY, GROUPS, SERVERS, TRIGGERS, WORKER, Measured, staged
from tests.bench.machine import flush_ms
from tests.memory import memory

AT_ONCE: Final = (1, 16, 64)
SECONDS: Final = 1.0
QUICK_SECONDS: Final = 0.3
"""The time, in seconds, for which each server takes POSTs in a quick measurement.

It applies to each number of connections.
"""
DELIVERIES: Final = 500
QUICK_DELIVERIES: Final = 150
FLUSH: Final = "a flush of 64 KiB on disk, in each round"


def places() -> dict[str, str | None]:
    """Return the folders for the stores, keyed by the kind of place. None means the folder of temporary files."""
    return {"disk": None, **({"memory": found} if (found := memory()) else {})}


async def measure(options: Options, told: Told, at_once: Sequence[int] = AT_ONCE) -> Result:
    """Measure, after a round that does not count.

    Raises:
        BenchError: a POST was not answered with 200, or a message was lost, or arrived twice or out of order.
        NodeError: a program does not start.
    """
    seconds, deliveries = (QUICK_SECONDS, QUICK_DELIVERIES) if options.quick else (SECONDS, DELIVERIES)
    jobs: dict[str, Any] = {FLUSH: flush_ms}
    async with AsyncExitStack() as stack:
        for place, parent in places().items():
            stage = await stack.enter_async_context(staged(parent))
            for number in at_once:
                for name in SERVERS:
                    job = partial(stage.posts, name, number, seconds, BODY_BYTES)
                    jobs[f"{place}, {number} at once: {name}"] = job
            for name in DELIVERERS:
                jobs[f"{place}, deliveries: {name}"] = partial(stage.deliveries, name, deliveries, BODY_BYTES)
        found = await in_turns("edges", options.rounds, jobs, told, warm=True)
    flushes_ms = found.pop(FLUSH)
    whats = dict.fromkeys(name.rpartition(": ")[0] for name in found)
    ratios = [figure for what in whats for figure in _ratios(what, found)]
    return Result(
        f"POSTs with an id for {seconds:g} s, and {deliveries:,} deliveries, in order and in {GROUPS} groups; "
        f"{BODY_BYTES:,} bytes, each on disk before it is answered, and before it is done",
        [
            *ratios,
            *(figure for name, measured in found.items() for figure in _told_of(name, measured)),
            Figure(FLUSH, "ms", tuple(flushes_ms)),
        ],
        [
            f"{GATEWAY} is the gateway and its node, {TRIGGERS[0]} the trigger and its node; all share the processors "
            "with the load generator or the consumer, which are busy for the share of the time that is shown",
            f"{SERVERS[1]} has one commit for each POST, {SERVERS[2]} one for all that wait",
            "a ratio is that of the medians of all rounds",
        ],
    )


def _ratios(what: str, found: Mapping[str, Sequence[Measured]]) -> Iterator[Figure]:
    """Yield the ratio of the rates for each pair of one of our programs and one bare program."""
    ours, bare = (TRIGGERS, (WORKER,)) if what.endswith("deliveries") else ((GATEWAY,), SERVERS[1:])
    for name in ours:
        for other in bare:
            value = ratio(found[f"{what}: {name}"], found[f"{what}: {other}"])
            yield Figure(f"{what}: {name} / {other}", "ratio", (value,))


def ratio(ours: Sequence[Measured], bare: Sequence[Measured]) -> float:
    """Return the ratio of the median rates of two programs."""
    return statistics.median(each.per_s for each in ours) / statistics.median(each.per_s for each in bare)


def _told_of(name: str, measured: Sequence[Measured]) -> Iterator[Figure]:
    is_post = measured[0].median_ms is not None
    yield Figure(name, "POSTs/s" if is_post else "messages/s", tuple(each.per_s for each in measured))
    if is_post:
        yield Figure(
            f"{name}: half of its answers within", "ms", known([each.median_ms for each in measured])
        )
    yield Figure(f"{name}: CPU", "µs/message", known([each.cpu_us for each in measured]))
    other = "load generator" if is_post else "consumer"
    yield Figure(f"{name}: {other} busy", "%", tuple(100 * each.busy for each in measured))

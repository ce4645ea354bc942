"""`bench edges`: what a message costs at the gateway and at the trigger, beside programs without messaging.

Whatever is compared does the same work in the same round, in turns: a gateway, and uvicorn with SQLite, take the same
POSTs; a trigger, and a worker on a table of SQLite, call the same consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.bench.figures import RUNS, Figure, Result, Wanted, known, ratios
from tests.bench.load.edges import (
    DELIVERERS,
    GATEWAY,
    GROUPS,
    IN_GROUPS,
    IN_ORDER,
    SERVERS,
    UVICORN,
    WORKER,
    Measured,
    staged,
)
from tests.bench.measures.chain import BODY_BYTES, FLUSH
from tests.bench.measures.machine import flush_ms

WANTED_POSTS: Final = {1: 0.6, 16: 1.0, 64: 1.2}
"""By how many POSTs there are at once, what part of uvicorn's rate a gateway is to take."""
WANTED_DELIVERIES: Final = {IN_ORDER: 0.7, IN_GROUPS: 1.5}
"""What part of a worker's rate triggers are to deliver."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    seconds: how long each server takes POSTs, each number at once.
    deliveries: how many messages each deliverer has.
    """

    seconds: float
    deliveries: int


FULL: Final = Sizes(seconds=2.0, deliveries=1_000)
QUICK: Final = Sizes(seconds=0.5, deliveries=150)

Rounds = dict[str, list[Measured]]


async def bench_edges(
    sizes: Sizes = FULL,
    runs: int = RUNS,
    body_bytes: int = BODY_BYTES,
    told: Callable[[str], None] = lambda text: None,
) -> Result:
    """Measure, each in turn, after a shorter round that does not count.

    Raises:
        BenchError: a POST was not answered 200, or a message was lost, came twice or out of order.
        NodeError: a program does not start.
    """
    posts: dict[int, Rounds] = {at_once: {name: [] for name in SERVERS} for at_once in WANTED_POSTS}
    deliveries: Rounds = {name: [] for name in DELIVERERS}
    flushes_ms = []
    async with staged() as stage:
        for number in range(runs + 1):
            share = 1.0 if number else 0.2
            of_all = f"run {number} of {runs}" if number else "warming up"
            flushes_ms += [flush_ms()] if number else []
            for at_once, rounds in posts.items():
                for name, found in rounds.items():
                    told(f"edges, {at_once} POSTs at once, {name}: {of_all}")
                    measured = await stage.posts(name, at_once, share * sizes.seconds, body_bytes)
                    found += [measured] if number else []
            for name, found in deliveries.items():
                told(f"edges, deliveries, {name}: {of_all}")
                measured = await stage.deliveries(name, max(2, int(share * sizes.deliveries)), body_bytes)
                found += [measured] if number else []
    return Result(
        name="edges",
        title=f"POSTs with an id for {sizes.seconds:g} s, and {sizes.deliveries:,} deliveries, in order and in "
        f"{GROUPS} groups; {body_bytes:,} bytes, each on disk before it is answered, and before it is done",
        figures=[
            *(figure for at_once, rounds in posts.items() for figure in _of_posts(at_once, rounds)),
            *_of_deliveries(deliveries),
            Figure(FLUSH, "ms", tuple(flushes_ms)),
        ],
        notes=[
            f"{GATEWAY} is the gateway and its node, {IN_ORDER} the trigger and its node; all share the processors "
            "with the load generator or the consumer, which are busy for the share of the time that is shown",
        ],
    )


def _of_posts(at_once: int, rounds: Rounds) -> Iterator[Figure]:
    what = f"{at_once} at once"
    wanted = Wanted(at_least=WANTED_POSTS[at_once])
    yield Figure(f"{what}: {GATEWAY} / {UVICORN}", "ratio", _ratio(rounds, GATEWAY, UVICORN), wanted)
    for name, found in rounds.items():
        yield Figure(f"{what}: {name}", "POSTs/s", tuple(each.per_s for each in found))
        yield Figure(
            f"{what}: half of {name}'s answers within", "ms", tuple(each.median_ms for each in found)
        )
        yield from _of_processors(what, name, found, "µs/POST", "load generator")


def _of_deliveries(rounds: Rounds) -> Iterator[Figure]:
    what = "deliveries"
    for name, part in WANTED_DELIVERIES.items():
        wanted = Wanted(at_least=part)
        yield Figure(f"{what}: {name} / {WORKER}", "ratio", _ratio(rounds, name, WORKER), wanted)
    for name, found in rounds.items():
        yield Figure(f"{what}: {name}", "messages/s", tuple(each.per_s for each in found))
        yield from _of_processors(what, name, found, "µs/message", "consumer")


def _of_processors(what: str, name: str, found: list[Measured], unit: str, other: str) -> Iterator[Figure]:
    yield Figure(f"{what}: CPU of {name}", unit, known([each.cpu_us for each in found]))
    yield Figure(f"{what}: {other} of {name} busy", "%", tuple(100 * each.busy for each in found))


def _ratio(rounds: Rounds, one: str, other: str) -> tuple[float, ...]:
    return ratios([each.per_s for each in rounds[one]], [each.per_s for each in rounds[other]])

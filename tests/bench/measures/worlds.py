"""How many worlds a core runs in a second: `bench world`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Final

from simulator.base.program.collector import seldom_collected
from simulator.base.randomness import chance
from simulator.world.draw import Times, draw_faults
from simulator.world.run import simulate
from simulator.world.scenarios.scenario import Burst, Link, Scenario

BURSTS: Final = 10
MESSAGES: Final = 10
"""In each burst."""
ROUNDS: Final = 5
WANTED_PER_S: Final = 30
"""Worlds with faults, on one core of two that others use as well."""


@dataclass(frozen=True, slots=True)
class WorldFigures:
    """How many worlds one core runs in a second of its time, every invariant checked, in each round.

    worlds: of each sort, in each round.
    calm_per_s: without faults, so that each has the same work.
    faulted_per_s: each with at least one of the faults that `draw` draws: resets, stalls, crashes and all others.
    faults: how many a world has of them, on average.
    """

    worlds: int
    messages: int
    nodes: int
    faults: float
    calm_per_s: tuple[float, ...]
    faulted_per_s: tuple[float, ...]
    wanted_per_s: int = WANTED_PER_S

    @property
    def runs_per_s(self) -> float:
        """With faults, the median of the rounds."""
        return statistics.median(self.faulted_per_s)


def a_chain(seed: int) -> Scenario:
    """Three nodes in a row, and transactional messages from one end to the other."""
    return Scenario(
        seed=seed,
        nodes=("a", "b", "c"),
        links=(Link(one="a", other="b"), Link(one="b", other="c")),
        bursts=tuple(
            Burst(at_ms=100 * number, source="a", target="c", kind="transactional", count=MESSAGES)
            for number in range(BURSTS)
        ),
        storm_ms=2_000,
    )


def with_faults(chain: Scenario) -> Scenario:
    """The same with the faults of its seed, which may have none."""
    times = Times(chance(chain.seed, "rush"), chain.storm_ms)
    faults = draw_faults(chain.seed, chain.nodes, chain.links, chain.bursts, times)
    return replace(chain, faults=tuple(faults))


def bench_worlds(worlds: int = 200) -> WorldFigures:
    """Run the same worlds in each round, calm ones and others in turns, in this process.

    Raises:
        AssertionError: an invariant broke, and the figures would mean nothing.
    """
    calm = [a_chain(seed) for seed in range(worlds)]
    storms = (with_faults(a_chain(seed)) for seed in count())
    faulted = list(islice((scenario for scenario in storms if scenario.faults), worlds))
    calm_per_s, faulted_per_s = [], []
    with seldom_collected():
        _per_s(calm[:1])  # The first also compiles and fills caches.
        for _ in range(ROUNDS):
            calm_per_s.append(_per_s(calm))
            faulted_per_s.append(_per_s(faulted))
    return WorldFigures(
        worlds=worlds,
        messages=calm[0].message_count,
        nodes=len(calm[0].nodes),
        faults=statistics.mean(len(scenario.faults) for scenario in faulted),
        calm_per_s=tuple(calm_per_s),
        faulted_per_s=tuple(faulted_per_s),
    )


def _per_s(scenarios: Sequence[Scenario]) -> float:
    begun = time.process_time()
    for scenario in scenarios:
        result = simulate(scenario)
        assert result.breach is None, f"seed {scenario.seed}: {result.breach}"
    return len(scenarios) / (time.process_time() - begun)

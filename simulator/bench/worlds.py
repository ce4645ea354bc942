"""How many worlds a core runs in a second: `mqproto bench world`."""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import dataclass
from typing import Final

from simulator.world.scenario import Burst, Link, Scenario
from simulator.world.world import simulate

BURSTS: Final = 10
MESSAGES: Final = 10
"""In each burst."""


@dataclass(frozen=True, slots=True)
class WorldFigures:
    """Worlds without faults, so that each has the same work: CPU time of one, every invariant checked.

    fastest_ms: of all runs; on a machine with other tenants it says more of the program, the median more of the day.
    """

    runs: int
    messages: int
    nodes: int
    median_ms: float
    fastest_ms: float

    @property
    def runs_per_s(self) -> float:
        """Runs that one core does in a second."""
        return 1_000 / self.median_ms


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


def bench_worlds(runs: int = 200) -> WorldFigures:
    """Run the same world over and over, in this process.

    Raises:
        AssertionError: an invariant broke, and the figures would mean nothing.
    """
    scenario = a_chain(0)
    taken_ms = []
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, *thresholds[1:])
    try:
        for seed in range(runs + 1):
            begun = time.process_time()
            result = simulate(a_chain(seed))
            taken_ms.append(1_000 * (time.process_time() - begun))
            assert result.breach is None, result.breach
    finally:
        gc.set_threshold(*thresholds)
    del taken_ms[0]  # The first also compiles and fills caches.
    return WorldFigures(
        runs=runs,
        messages=scenario.message_count,
        nodes=len(scenario.nodes),
        median_ms=statistics.median(taken_ms),
        fastest_ms=min(taken_ms),
    )

"""`bench world`: how many simulated worlds one core runs per second of processor time.

Every invariant is checked.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Final

from mqproto.simulator.base.program.collector import seldom_collected
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.world.draw import Times, draw_faults
from mqproto.simulator.world.run import simulate
from mqproto.simulator.world.scenarios.scenario import Burst, Cable, Scenario
from tests.bench.figures import Figure, Options, Result, Told, in_turns

WORLDS: Final = 200
QUICK_WORLDS: Final = 20
BURSTS: Final = 10
MESSAGES: Final = 10
"""The number of messages in each burst."""
WANTED_PER_S: Final = 30
"""The desired number of worlds with faults per second, on one of two cores that other programs also use."""


def a_chain(seed: int) -> Scenario:
    """Return three nodes in a row, and transactional messages from one end to the other."""
    return Scenario(
        seed=seed,
        nodes=("a", "b", "c"),
        links=(Cable(one="a", other="b"), Cable(one="b", other="c")),
        bursts=tuple(
            Burst(at_ms=100 * number, source="a", target="c", kind="transactional", count=MESSAGES)
            for number in range(BURSTS)
        ),
        storm_ms=2_000,
    )


def with_faults(chain: Scenario) -> Scenario:
    """Return a scenario with the faults that its seed chooses, if any."""
    times = Times(chance(chain.seed, "rush"), chain.storm_ms)
    faults = draw_faults(chain.seed, chain.nodes, chain.links, chain.bursts, times)
    return replace(chain, faults=tuple(faults))


async def measure(options: Options, told: Told) -> Result:
    """Run the same worlds in each round, alternating calm ones with others, in this process.

    Raises:
        AssertionError: an invariant was broken, so the figures would mean nothing.
    """
    worlds = QUICK_WORLDS if options.quick else WORLDS
    calm = [a_chain(seed) for seed in range(worlds)]
    storms = (with_faults(a_chain(seed)) for seed in count())
    faulted = list(islice((scenario for scenario in storms if scenario.faults), worlds))
    mean = statistics.mean(len(scenario.faults) for scenario in faulted)
    jobs = {
        f"with faults, {mean:.1f} each": partial(_per_s, faulted),
        "without faults": partial(_per_s, calm),
    }
    with seldom_collected():
        _per_s(calm[:1])  # The first also compiles and fills caches.
        found = await in_turns("worlds", options.rounds, jobs, told)
    return Result(
        f"3 nodes and {calm[0].message_count} messages, every invariant checked; {worlds} worlds of each sort a round",
        [
            Figure(name, "worlds/s on a core", tuple(values), wanted)
            for (name, values), wanted in zip(found.items(), (WANTED_PER_S, None), strict=True)
        ],
    )


def _per_s(scenarios: Sequence[Scenario]) -> float:
    begun = time.process_time()
    for scenario in scenarios:
        result = simulate(scenario)
        assert result.breach is None, f"seed {scenario.seed}: {result.breach}"
    return len(scenarios) / (time.process_time() - begun)

"""A table of all planted faults: the first seed that finds each, and the invariant that breaks.

    make plants
    python -m tests.plants [NAME ...]

It takes some minutes, and a quarter of an hour for the rarest fault. The status is 1 if one is not found by the first
five thousand seeds, or if an invariant breaks first that the fault does not name.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.captures import pools
from mqproto.simulator.base.program.collector import seldom_collected
from mqproto.simulator.world.draw import draw
from mqproto.simulator.world.run import simulate
from mqproto.simulator.world.world import Breach
from tests.plants import PLANTS, planted

SEEDS: Final = 5_000
"""Each fault has to be found within this number of worlds."""


def first_found(name: str, seeds: Iterable[int] = range(SEEDS)) -> tuple[int, Breach] | None:
    """The first of these seeds whose world a fault breaks, and how; None if there is none."""
    with planted(name), seldom_collected():
        for seed in seeds:
            breach = simulate(draw(seed)).breach
            if breach is not None:
                return seed, breach
    return None


def main(names: list[str]) -> int:
    """Print the table; the status."""
    if unknown := [name for name in names if name not in PLANTS]:
        raise UsageError(f"no fault is called {unknown[0]!r}; there are: {', '.join(PLANTS)}")
    names = names or list(PLANTS)
    width = max(map(len, names))
    print(f"{'fault':{width}}   seed  invariant")
    is_bad = False
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(names)), context, pools.begin) as pool:
        for name, found in zip(names, pool.map(first_found, names), strict=True):
            if found is None:
                is_bad = True
                print(f"{name:{width}}      -  not found by {SEEDS:,} seeds", flush=True)
                continue
            seed, breach = found
            is_named = breach.invariant in PLANTS[name].found_by
            is_bad |= not is_named
            print(f"{name:{width}} {seed:6}  {breach.invariant}{' (!)' * (not is_named)}", flush=True)
    return int(is_bad)

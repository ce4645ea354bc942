"""A table of all planted faults: for each, the first seed that finds it, and the invariant that breaks.

make plants python -m tests.plants [NAME ...]

This takes some minutes, and for the rarest fault a quarter of an hour. The status is 1 if one of the faults is not
found by the first five thousand seeds. It is also 1 if the first invariant to break is one that the fault does not
name.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.captures import pools
from mqproto.simulator.base.program.collector import seldom_collected
from mqproto.simulator.world import Cable, Fault
from mqproto.simulator.world.draw import draw
from mqproto.simulator.world.run import simulate
from mqproto.simulator.world.scenarios.scenario import from_file
from mqproto.simulator.world.world import Breach
from tests.plants import PLANTS, planted
from tests.simulator.world.worlds import a_burst, a_chain

WORLDS: Final = Path(__file__).parents[1] / "worlds"
SEEDS: Final = 5_000
"""The number of worlds within which each fault has to be found."""


BY_HAND: Final = {
    # A process is killed while its record is flushed; the power goes at the next start, before the tables have it.
    "start-on-what-only-the-system-has": a_chain(
        a_burst(at_ms=1_000, target="b", count=2),
        a_burst(at_ms=3_000, target="b"),
        nodes=("a", "b"),
        links=(Cable(one="a", other="b"),),
        faults=(
            Fault(at_ms=2_500, kind="slow disk", where="b", for_ms=3_000, value=2_000),
            Fault(at_ms=3_100, kind="kill", where="b", for_ms=1_000, value=1),
            Fault(at_ms=3_600, kind="die in commit", where="b", value=4),
        ),
        seed=1,
        storm_ms=8_000,
    ),
    # The second message is lost on its way, and those behind it are held: it comes again, and has no room beside them.
    **dict.fromkeys(
        (
            "hold-whatever-comes-early",
            "let-nothing-give-way",
            "leave-on-disk-what-gives-way",
            "count-what-gave-way-as-held",
        ),
        a_chain(
            a_burst(),
            a_burst(at_ms=1_000, size_bytes=6_000),
            *(a_burst(at_ms=at_ms, size_bytes=1_000) for at_ms in range(1_200, 2_000, 50)),
            rooms={"c": 9_000},
            faults=(Fault(at_ms=900, kind="lossy", where="b", for_ms=200),),
            settings={"resend_timeouts_short_s": 1},
        ),
    ),
    # Two strangers begin a packet, and one is closed.
    "keep-whatever-strangers-begin": a_chain(
        *(a_burst(at_ms=at_ms) for at_ms in range(0, 1_000, 50)),
        faults=tuple(Fault(at_ms=at_ms, kind="stranger", where="c", value=5) for at_ms in (1, 2)),
        settings={"strangers_unfinished_bytes": 1_000},
    ),
    # What closes each session is a message of the other's, and theirs is out on it.
    "blame-a-neighbour-for-what-was-refused-here": from_file(
        WORLDS / "out-when-its-node-refused-the-neighbour-s.json"
    ),
    "decide-right-behind-another": from_file(WORLDS / "drained-at-the-pace-of-the-retries.json"),
    "take-what-came-before-for-a-proof": from_file(WORLDS / "had-before-a-restart-and-no-proof.json"),
    "take-what-is-dropped-for-a-proof": from_file(
        WORLDS / "in-no-sequence-where-early-ones-of-one-pass.json"
    ),
}
"""Worlds that were written for faults that random worlds find only once in 100,000."""


def first_found(name: str, seeds: Iterable[int] = range(SEEDS)) -> tuple[int, Breach] | None:
    """Return the first seed whose world a fault breaks, and how it breaks; None if there is none.

    If BY_HAND has a world for the fault, that one is tried first.
    """
    by_hand = [BY_HAND[name]] if name in BY_HAND else []
    with planted(name), seldom_collected():
        for scenario in chain(by_hand, map(draw, seeds)):
            breach = simulate(scenario).breach
            if breach is not None:
                return scenario.seed, breach
    return None


def main(names: list[str]) -> int:
    """Print the table, and return the exit status."""
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

"""Runs many seeds on all cores. Each process takes a few seeds at a time, and reports its findings."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Final

from mqproto.captures import pools
from mqproto.simulator.base.program.collector import seldom_collected
from mqproto.simulator.world.draw import draw
from mqproto.simulator.world.report import RunTotals
from mqproto.simulator.world.run import simulate
from mqproto.simulator.world.truth import simulate_into

SHARE: Final = 25
"""The number of seeds that a process takes at a time."""
ENOUGH: Final = 10
"""The number of rule-breaking runs after which no new runs begin."""


def run_seeds(
    first: int,
    count: int,
    *,
    captures: Path | None = None,
    processes: int | None = None,
    progress: Callable[[RunTotals], None] = lambda summary: None,
) -> RunTotals:
    """Run the worlds of `count` seeds.

    Args:
        captures: the folder for each world's capture and truth (see truth.py).
        processes: how many processes to run at once; by default, as many as there are cores.
        progress: called repeatedly with the summary so far.
    """
    total = RunTotals()
    shares = [(seed, min(SHARE, first + count - seed)) for seed in range(first, first + count, SHARE)]
    processes = at_once(count, processes)
    if processes <= 1:
        for begin, size in shares:
            total.merge(run_share(begin, size, captures))
            progress(total)
            if len(total.broken) >= ENOUGH:
                break
        return total
    # A spawned process has none of our threads or trio, and is the same on every system.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=pools.begin) as pool:
        waiting = iter(shares)
        running: set[Future[RunTotals]] = set()
        while True:
            while len(running) < 2 * processes and (share := next(waiting, None)) is not None:
                running.add(pool.submit(run_share, *share, captures))
            if not running:
                return total
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                total.merge(future.result())
                progress(total)
            if len(total.broken) >= ENOUGH:
                waiting = iter(())


def at_once(count: int, processes: int | None) -> int:
    """Return how many processes share this many seeds. `processes` is the same argument as for `run_seeds`."""
    return min(processes or os.cpu_count() or 1, -(-count // SHARE))


def run_share(first: int, count: int, captures: Path | None = None) -> RunTotals:
    """Run a few seeds, one after the other, in this process."""
    summary = RunTotals()
    with seldom_collected():
        for seed in range(first, first + count):
            scenario = draw(seed)
            summary.add(simulate(scenario) if captures is None else simulate_into(captures, scenario))
    return summary

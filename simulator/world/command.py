"""`mqproto simulate`, which runs one or many worlds from their seeds, and prints their results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mqproto.base.errors import UsageError
from mqproto.simulator.base.screen import plain_table, wide_console
from mqproto.simulator.command.simulating import WorldOptions
from mqproto.simulator.world.campaign import at_once, run_seeds
from mqproto.simulator.world.draw import draw
from mqproto.simulator.world.report import RunTotals, describe
from mqproto.simulator.world.run import WorldResult, simulate
from mqproto.simulator.world.scenarios.scenario import Scenario, as_json, from_file
from mqproto.simulator.world.shrink import shrink

SEEDS: Final = 100


def run(options: WorldOptions) -> bool:
    """Run the command and print its results; return whether all invariants held.

    Raises:
        UsageError: the options do not fit together.
    """
    if options.seeds is not None or (options.seed is None and options.scenario is None):
        if options.shrink or options.trace or options.save or options.capture:
            raise UsageError(
                "--shrink, --trace, --save and --capture are for one world: give --seed or --scenario"
            )
        return _many(options)
    if options.captures is not None:
        raise UsageError("--captures is for many worlds: --capture FILE is for one")
    return _one(options)


def _many(options: WorldOptions) -> bool:
    if options.captures is not None:
        options.captures.mkdir(parents=True, exist_ok=True)
    began_s, count = time.monotonic(), options.seeds or SEEDS
    with _progress(count, quiet=options.as_json) as show:
        summary = run_seeds(
            options.seed or 0,
            count,
            captures=options.captures,
            processes=options.processes,
            progress=show,
        )
    per_hour = round(3_600 * summary.run_count / (time.monotonic() - began_s))
    if options.as_json:
        print(json.dumps({**summary.as_json(), "seeds_per_hour": per_hour}))
        return not summary.broken
    processes = at_once(count, options.processes)
    pace = f"{per_hour:,} seeds an hour, {processes} at a time"
    table = plain_table("", "", "")
    before = ""
    for sort, name, value in summary.rows():
        table.add_row(sort if sort != before else "", name, value)
        before = sort
    table.columns[1].justify = "left"
    wide_console().print(table)
    print()
    for seed, breach in summary.broken:
        print(f"seed {seed}: {breach}")
    if summary.broken:
        print(
            f"{len(summary.broken)} of {summary.run_count:,} worlds broke an invariant; {pace}; to repeat the first:"
        )
        print(f"  mqproto simulate --seed {summary.broken[0][0]} --shrink")
        return False
    held = f"{summary.run_count:,} worlds, {summary.accepted_count:,} messages: every invariant held"
    print(f"{held}; {pace}")
    return True


def _one(options: WorldOptions) -> bool:
    if options.save is not None:
        options.save.open("a").close()  # Fail before the work if it cannot be written.
    result = _simulate(_scenario(options), options)
    if result.breach is not None and options.shrink:
        result = _shrunk(result, options)
    if options.save is not None:
        options.save.write_text(as_json(result.scenario) + "\n", "utf-8")
    if options.as_json:
        summary = RunTotals()
        summary.add(result)
        scenario_json: dict[str, Any] = json.loads(as_json(result.scenario))
        print(json.dumps({**summary.as_json(), "scenario": scenario_json}))
        return result.breach is None
    if options.trace:
        print("\n".join(result.trace.lines()))
        print(f"trace {result.trace.digest()}")
    print("\n".join(describe(result.scenario)))
    if result.breach is None:
        print(f"every invariant held; it was over after {result.end_ms:,} ms")
        return True
    print(f"broken: {result.breach}")
    print(f"repeat with: {_command(options)}")
    return False


def _scenario(options: WorldOptions) -> Scenario:
    """Return the scenario from the file if there is one; otherwise, return the seed's scenario.

    If a file and a seed are both given, the file's scenario gets the seed.
    """
    if options.scenario is None:
        return draw(options.seed or 0)
    scenario = from_file(options.scenario)
    return scenario if options.seed is None else replace(scenario, seed=options.seed)


def _simulate(scenario: Scenario, options: WorldOptions) -> WorldResult:
    """Run a scenario, with a trace and a capture if the options ask for them."""
    if options.capture is None:
        return simulate(scenario, traced=options.trace)
    with options.capture.open("wb") as file:
        return simulate(scenario, traced=options.trace, capture=file, segment_bytes=options.segment_bytes)


def _shrunk(result: WorldResult, options: WorldOptions) -> WorldResult:
    """Shrink a broken world, and then run the smallest one again.

    That run has a trace and a capture if the options ask for them.
    """
    console = wide_console(stderr=True)

    def show(scenario: Scenario) -> None:
        if console.is_terminal:
            parts = f"{len(scenario.nodes)} nodes, {scenario.message_count} messages"
            console.print(f"shrunk to {parts}, {len(scenario.faults)} faults", end="\r")

    smallest = shrink(result, show)
    return _simulate(smallest.scenario, options)


def _command(options: WorldOptions) -> str:
    """Return the command that repeats this run."""
    parts = ["mqproto simulate"]
    if options.scenario is not None:
        parts.append(f"--scenario {options.scenario}")
    if options.seed is not None:
        parts.append(f"--seed {options.seed}")
    if options.shrink:
        parts.append("--shrink")
    return " ".join(parts)


@contextmanager
def _progress(count: int, *, quiet: bool) -> Iterator[Callable[[RunTotals], None]]:
    """Show a progress bar if the output is a terminal; in a pipe, show nothing."""
    console = wide_console(stderr=True)
    columns = (TextColumn("worlds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("worlds", total=count)
        yield lambda summary: bar.update(task, completed=summary.run_count)

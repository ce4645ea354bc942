"""Measures how fast mqproto is here. `python -m tests.bench chain` takes one measurement; without a name, all are
taken.

The exit status is 1 if something is broken, for example if a message is lost. It is never 1 because something is slow.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.simulator.base.program.output import DONE, FINDING, MISUSE, complain
from mqproto.simulator.base.screen import ProgressScreen
from tests.bench import analyse, backlog, chain, codec, edges, growth, outage, sizes, worlds
from tests.bench.figures import Options, Result, Told, as_json, as_markdown
from tests.bench.machine import machine

MEASURES: Final[dict[str, Callable[[Options, Told], Coroutine[Any, Any, Result]]]] = {
    "chain": chain.measure_chain,
    "latency": chain.measure_latency,
    "backlog": backlog.measure,
    "outage": outage.measure,
    "growth": growth.measure,
    "sizes": sizes.measure,
    "edges": edges.measure,
    "codec": codec.measure,
    "world": worlds.measure,
    "analyse": analyse.measure,
}
"""The measurements, in the order in which all of them run."""
QUICK_ROUNDS: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print one table, and write it to a file if one was named."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    names = ",".join(MEASURES)
    parser.add_argument("names", nargs="*", choices=[[], *MEASURES], metavar=f"{{{names}}}")
    parser.add_argument("--rounds", type=int, help="rounds; the median counts (5, 3 with --quick)")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look: the figures say less")
    parser.add_argument("--out", type=Path, help="write bench.md and bench.json to this folder")
    parser.add_argument(
        "--beside", choices=["nats"], help="chain, latency: servers of NATS in the same rounds"
    )
    parser.add_argument(
        "--window", type=int, action="append", help="chain: WindowSize of sessions (64 and 1024)"
    )
    parser.add_argument("--protected", action="store_true", help="chain: encrypted and signed messages too")
    parser.add_argument("--messages", type=int, help="chain: how many a round; backlog: how many wait")
    parser.add_argument("--mb", type=int, action="append", help="analyse: the size of a capture; repeatable")
    parser.add_argument("--connections", type=int, default=64, help="analyse: how many share a capture (64)")
    asked = parser.parse_args(arguments)
    defaults = Options()
    options = Options(
        rounds=asked.rounds or (QUICK_ROUNDS if asked.quick else defaults.rounds),
        quick=asked.quick,
        messages=asked.messages,
        windows=tuple(asked.window or defaults.windows),
        protected=asked.protected,
        beside_nats=asked.beside == "nats",
        megabytes=tuple(asked.mb or ()),
        connections=asked.connections,
    )
    try:
        return _measure(asked.names or list(MEASURES), options, asked.out)
    except UsageError as error:
        complain(str(error))
        return MISUSE


def _measure(names: Sequence[str], options: Options, out: Path | None) -> int:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    facts, screen = machine(), ProgressScreen(quiet=True)
    results = {}
    for name in names:
        with screen.shown():
            results[name] = _result(partial(MEASURES[name], options, screen.show))
    table = as_markdown(facts, results)
    print(table)
    if out is not None:
        (out / "bench.md").write_text(table, "utf-8")
        (out / "bench.json").write_text(json.dumps(as_json(facts, results), indent=2) + "\n", "utf-8")
    return FINDING if any(result.broken for result in results.values()) else DONE


def _first_of(error: BaseException) -> BaseException:
    """Return the first error within nested groups if there is only one, or if all are our own errors.

    Otherwise, return the group.
    """
    while isinstance(error, BaseExceptionGroup):
        if len(error.exceptions) > 1 and error.split(MqprotoError)[1] is not None:
            return error
        error = error.exceptions[0]
    return error


def _result(measure: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Return the result of one measurement.

    If the measurement failed a check, it has no figures, and the others still run.

    Raises:
        UsageError: the options ask for something that cannot be measured here.
    """
    try:
        return trio.run(measure)
    except (MqprotoError, ExceptionGroup) as error:
        reason = _first_of(error)
        if not isinstance(reason, MqprotoError) or isinstance(reason, UsageError):
            raise reason from None
        return Result("gave no figures", [], broken=[str(reason)])


if __name__ == "__main__":
    sys.exit(main())

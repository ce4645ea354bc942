"""Damages stores with real traffic a thousand times.  `make hurt`

It also kills nodes a thousand times without damaging their stores.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Sequence
from typing import Final

from tests.simulator.hurt.campaign import Asked, table, told, trials
from tests.simulator.hurt.disk import TROUBLES, compiler
from tests.simulator.hurt.trial import KILLS, Result, hurts
from tests.simulator.hurt.verdict import FAILURES

DONE, FINDING, MISUSE = 0, 1, 2
TRIALS: Final = 1_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested trials; the status is 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.hurt", description=__doc__)
    default = int(os.environ.get("MQPROTO_HURT_TRIALS", str(TRIALS)))
    parser.add_argument("--trials", type=int, default=default, help=f"how many hurts (default {default:,})")
    parser.add_argument("--kills", type=int, help="how many kills; by default as many")
    parser.add_argument("--seed", type=int, help="of all dice; drawn by default")
    parser.add_argument("--trial", type=int, help="only this one, and all that was said in it")
    parser.add_argument("--kill", type=int, help="only this one of the kills, and all that was said in it")
    parser.add_argument("--hurt", default="", help="only hurts whose names begin so")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many trials at once")
    options = parser.parse_args(arguments)
    names = [name for name in hurts() if name.startswith(options.hurt)]
    if not names:
        print(f"no hurt begins with {options.hurt!r}: {', '.join(hurts())}", file=sys.stderr)
        return MISUSE
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    is_one = options.trial is not None or options.kill is not None
    print(f"seed {seed}", flush=True)
    if compiler() is None:
        print(
            f"no C compiler here (cc, gcc or clang): the {len(TROUBLES)} hurts of a failing disk are left out"
        )
    began_s = time.monotonic()
    results: list[Result] = []
    try:
        for result in trials(_asked(options, names), seed, options.jobs):
            results.append(result)
            if is_one or result.outcome in FAILURES:
                print(told(result, seed, with_all=is_one), flush=True)
    except KeyboardInterrupt:
        print("broken off; what there was:")
    print(table(results))
    print(f"{len(results):,} trials in {time.monotonic() - began_s:,.0f} s")
    return FINDING if any(result.outcome in FAILURES for result in results) else DONE


def _asked(options: argparse.Namespace, names: list[str]) -> list[Asked]:
    """Return the trials to run: each kind of damage equally often, then the kills."""
    if options.trial is not None:
        return [Asked(options.trial, names[options.trial % len(names)])]
    if options.kill is not None:
        return [Asked(options.kill, KILLS)]
    kills = options.kills if options.kills is not None else 0 if options.hurt else options.trials
    return [
        *(Asked(number, names[number % len(names)]) for number in range(options.trials)),
        *(Asked(number, KILLS) for number in range(kills)),
    ]


if __name__ == "__main__":
    sys.exit(main())

"""Many trials at once: workers, each with a failing disk, and the table of the results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from tests.conformance import ROOT
from tests.memory import memory
from tests.simulator.hurt.disk import TROUBLES, VARIABLE, FailingDisk, compiled, compiler
from tests.simulator.hurt.trial import KILLS, REAL_EVERY, Result, run_trial
from tests.simulator.hurt.verdict import FAILURES, Outcome

WORK: Final = "from tests.simulator.hurt.campaign import work; work()"
SHOWN: Final = 5
"""The largest number of differences that are printed for one trial."""


class Asked(NamedTuple):
    """A trial to run.

    is_real: whether the trial's nodes are separate processes; drawn at random if None.
    """

    number: int
    hurt: str
    is_real: bool | None = None


def trials(asked: Sequence[Asked], seed: int, jobs: int) -> Iterator[Result]:
    """Run trials, several at once; those with failing disks are left out if no compiler is available."""
    waiting, done = SimpleQueue[Asked](), SimpleQueue[Result | BaseException]()
    can_fail = compiler() is not None
    chosen = [one for one in asked if can_fail or one.hurt not in TROUBLES]
    for one in chosen:
        waiting.put(one)
    with tempfile.TemporaryDirectory(prefix="mqproto-hurt-", dir=memory()) as folder:
        library = compiled(Path(folder)) if can_fail else None

        def run(place: int) -> None:
            try:
                _employ(Path(folder, f"disk-{place}"), library, seed, waiting, done)
            except BaseException as error:
                done.put(error)

        jobs = min(jobs, len(chosen))
        with ThreadPoolExecutor(max(1, jobs)) as pool:
            for place in range(jobs):
                pool.submit(run, place)
            try:
                for _ in chosen:
                    result = done.get()
                    if isinstance(result, BaseException):
                        raise result
                    yield result
            finally:
                # Whatever ends this, the workers finish what they are at and begin nothing more.
                with suppress(Empty):
                    while True:
                        waiting.get_nowait()


def _employ(
    disk: Path,
    library: Path | None,
    seed: int,
    waiting: SimpleQueue[Asked],
    done: SimpleQueue[Result | BaseException],
) -> None:
    """Run one worker: a separate process, because a disk fails for a whole process."""
    environment = dict(os.environ)
    if library is not None:
        FailingDisk(disk)
        environment |= {"LD_PRELOAD": str(library), VARIABLE: str(disk)}
    with subprocess.Popen(
        [sys.executable, "-c", WORK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        while True:
            try:
                one = waiting.get_nowait()
            except Empty:
                worker.stdin.close()
                return
            worker.stdin.write(json.dumps([seed, *one]) + "\n")
            worker.stdin.flush()
            if not (line := worker.stdout.readline()):
                raise ChildProcessError(f"the worker with trial {one.number}, {one.hurt}, has ended")
            number, hurt, detail, outcome, *others = json.loads(line)
            done.put(Result(number, hurt, detail, Outcome(outcome), *others))


def work() -> None:
    """Do a worker's job: one trial for each line that it gets."""
    disk = FailingDisk(Path(os.environ[VARIABLE])) if VARIABLE in os.environ else None
    for line in sys.stdin:
        seed, number, hurt, is_real = json.loads(line)
        print(json.dumps(run_trial(seed, number, hurt, disk, is_real=is_real)), flush=True)


def told(result: Result, seed: int, *, with_all: bool = False) -> str:
    """Describe one trial for people, with the command that repeats it."""
    lines = [f"{result.outcome}: {result.hurt}: {result.detail}"]
    lines += [f"  {difference}" for difference in result.silent[: None if with_all else SHOWN]]
    if not with_all and len(result.silent) > SHOWN:
        lines.append(f"  and {len(result.silent) - SHOWN} more")
    if with_all:
        lines += [f"  {difference}, which was told" for difference in result.told]
    if with_all or result.outcome is Outcome.ALARM:
        lines += [f"  said by {said}" for said in result.said]
    lines += [f"  {line}" for line in result.error.splitlines()]
    which = f"--kill {result.number}" if result.hurt == KILLS else f"--trial {result.number}"
    return "\n".join([*lines, f'  repeat with: make hurt ARGS="--seed {seed} {which}"'])


def table(results: Sequence[Result]) -> str:
    """Return how many trials of each kind of damage had each outcome."""
    counts: dict[str, Counter[Outcome]] = {}
    for result in results:
        counts.setdefault(result.hurt, Counter())[result.outcome] += 1
    outcomes = [
        outcome
        for outcome in Outcome
        if outcome not in FAILURES or any(one[outcome] for one in counts.values())
    ]
    if Outcome.SILENT not in outcomes:
        outcomes.append(Outcome.SILENT)
    width = max(map(len, [*counts, "all"]), default=0)
    heads = "".join(f"  {outcome:>{_width(outcome)}}" for outcome in outcomes)
    rows = [f"{'':{width}}{heads}"]
    total = Counter[Outcome]()
    for hurt, count in sorted(counts.items()):
        total += count
        rows.append(_row(hurt, count, outcomes, width))
    rows.append(_row("all", total, outcomes, width))
    hurts = [result for result in results if result.hurt != KILLS]
    kills = [result for result in results if result.hurt == KILLS]
    real = sum(result.is_real for result in results)
    losses = sum(result.outcome is Outcome.SILENT for result in results)
    alarms = sum(result.outcome is Outcome.ALARM for result in kills)
    rows += [
        f"{len(hurts):,} hurts, {len(kills):,} kills that hurt nothing; {real:,} of them with processes of nodes"
        f" and sockets (one in {REAL_EVERY})",
        f"silently altered, lost or doubled in {losses:,}; false alarms after {alarms:,} kills",
    ]
    return "\n".join(rows)


def _width(outcome: Outcome) -> int:
    return max(len(outcome), 6)


def _row(name: str, count: Counter[Outcome], outcomes: Sequence[Outcome], width: int) -> str:
    cells = "".join(f"  {count[outcome] or '-':>{_width(outcome)}}" for outcome in outcomes)
    return f"{name:{width}}{cells}"

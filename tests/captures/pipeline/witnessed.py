"""`mqproto analyse` as a program that has witnesses: `witnessed.py FOLDER [--kill] analyse ...`.

Each task writes into FOLDER which executor carried it out and where that had our code from. With --kill, one executor
dies when it has just done a task of the second job, and before it can say so: the task is done again.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import captures.pipeline.runner
from captures.pipeline.runner import Count, SparkRunner

T = TypeVar("T")
R = TypeVar("R")

KILLED_JOB = 2


@dataclass(frozen=True, slots=True)
class Witness:
    """What a task has seen.

    executor: its process.
    attempt: how often the task had been begun before.
    code, needs: where it had our code from, and construct.
    """

    executor: int
    attempt: int
    code: str
    needs: str


def witnesses(folder: Path) -> list[Witness]:
    """What all tasks have seen."""
    told = (path.read_text().splitlines() for path in folder.iterdir())
    return [Witness(int(executor), int(attempt), code, needs) for executor, attempt, code, needs in told]


def runner_with(folder: str, kill: bool) -> type[SparkRunner]:
    """What takes the place of SparkRunner."""
    jobs: list[str] = []

    class WitnessedRunner(SparkRunner):
        """Has tasks done as SparkRunner does, and witnessed."""

        def __call__(self, stage: str, function: Callable[[T, Count], R], tasks: Sequence[T]) -> list[R]:
            jobs.append(stage)
            deadly = kill and len(jobs) == KILLED_JOB

            def witnessed(task: T, count: Count) -> R:
                import construct
                from pyspark import TaskContext

                import captures

                result = function(task, count)
                context = TaskContext.get()
                assert context is not None
                # A worker is a fork of a daemon, and the executor has started that.
                executor = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
                told = [executor, context.attemptNumber(), captures.__file__, construct.__file__]
                seen = Path(folder) / f"{context.stageId()}-{context.partitionId()}-{context.attemptNumber()}"
                seen.write_text("\n".join(map(str, told)))
                if deadly and context.partitionId() == 0 and context.attemptNumber() == 0:
                    os.kill(executor, signal.SIGKILL)
                return result

            return super().__call__(stage, witnessed, tasks)

    return WitnessedRunner


if __name__ == "__main__":
    from simulator.cli.cli import main

    folder, *arguments = sys.argv[1:]
    kill = arguments[0] == "--kill"
    sys.argv[1:] = arguments[kill:]
    captures.pipeline.runner.SparkRunner = runner_with(folder, kill)  # type: ignore[misc]
    main()

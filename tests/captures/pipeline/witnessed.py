"""`mqproto analyse` as a program that has witnesses: `witnessed.py FOLDER [--kill] analyse ...`.

Each task writes into FOLDER which executor carried it out and where that had our code from. With --kill, one executor
dies when it has just done a task of the second job, and before it can say so: the task is done again.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import captures.pipeline.sparkengine
from captures.pipeline.engine import Count, Inbox, Outbox
from captures.pipeline.sparkengine import SparkEngine

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


def engine_with(folder: str, kill: bool) -> type[SparkEngine]:
    """What takes the place of SparkEngine."""
    jobs: list[str] = []

    class WitnessedEngine(SparkEngine):
        """Has tasks done as SparkEngine does, and witnessed."""

        def carry_out(self, stage: str, function: Any, tasks: Any, reads: Any = (), **how: Any) -> Any:
            jobs.append(stage)
            deadly = kill and len(jobs) == KILLED_JOB

            def witnessed(task: Any, inbox: Inbox, outbox: Outbox, count: Count) -> Any:
                import construct
                from pyspark import TaskContext

                import captures

                result = function(task, inbox, outbox, count)
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

            return super().carry_out(stage, witnessed, tasks, reads, **how)

    return WitnessedEngine


if __name__ == "__main__":
    from simulator.cli.cli import main

    folder, *arguments = sys.argv[1:]
    kill = arguments[0] == "--kill"
    sys.argv[1:] = arguments[kill:]
    captures.pipeline.sparkengine.SparkEngine = engine_with(folder, kill)  # type: ignore[misc]
    main()

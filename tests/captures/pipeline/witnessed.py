"""Runs `mqproto analyse` and makes each of its tasks write a report: `witnessed.py FOLDER [--kill] analyse ...`.

The report, which is written into FOLDER, says which executor carried the task out, and where that executor got our
code. With --kill, one executor dies when it has just written packets, before it can report them. So its task is
repeated, and so are the tasks whose results are lost with it.
"""

from __future__ import annotations

import os
import signal
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mqproto.captures.pipeline.engines.sparkengine
from mqproto.captures.pipeline.engines.engine import Inbox, Outbox
from mqproto.captures.pipeline.engines.sparkengine import SparkEngine

KILLED_STAGE = "writing packets"
KILLED = "killed"
"""The name of the file whose existence says that an executor was killed."""


@dataclass(frozen=True, slots=True)
class Witness:
    """A task's report.

    task: the stage, and the subject of the task.
    executor: the process of the executor that carried the task out.
    code, needs: where the executor got our code, and where it got construct.
    sees: whether the driver's folder of temporary files existed where the task was carried out.
    """

    task: str
    executor: int
    code: str
    needs: str
    sees: str


def witnesses(folder: Path) -> list[Witness]:
    """Return the reports of all tasks."""
    told = (path.read_text().splitlines() for path in folder.iterdir() if path.name != KILLED)
    return [Witness(task, int(executor), *more) for task, executor, *more in told]


def engine_with(folder: str, kill: bool) -> type[SparkEngine]:
    """Return a class that replaces SparkEngine."""
    killed = Path(folder) / KILLED

    class WitnessedEngine(SparkEngine):
        """Carries out tasks as SparkEngine does, and makes each of them write a report."""

        def carry_out(self, stage: str, function: Any, tasks: Any, reads: Any = (), **how: Any) -> Any:
            deadly = kill and stage == KILLED_STAGE

            def witnessed(task: Any, inbox: Inbox, outbox: Outbox) -> Any:
                import construct
                from pyspark import TaskContext

                import mqproto.captures

                result = function(task, inbox, outbox)
                context = TaskContext.get()
                assert context is not None
                # A worker is a fork of a daemon, and the executor has started that.
                executor = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
                done = f"{stage}, {task}"
                sees = Path(os.environ.get("TMPDIR", os.defpath)).exists()
                told = [done, executor, mqproto.captures.__file__, construct.__file__, sees]
                (Path(folder) / uuid.uuid4().hex).write_text("\n".join(map(str, told)))
                if deadly and context.partitionId() == 0 and not killed.exists():
                    killed.touch()
                    os.kill(executor, signal.SIGKILL)
                return result

            if deadly:
                # The other one takes over: Java needs as long for the start of a third as for all of the work.
                jvm: Any = self._spark.sparkContext._jvm
                nowhere = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
                self._spark.sparkContext._jsc.sc().requestTotalExecutors(1, 0, nowhere)
            return super().carry_out(stage, witnessed, tasks, reads, **how)

    return WitnessedEngine


if __name__ == "__main__":
    from mqproto.simulator.cli.cli import main

    folder, *arguments = sys.argv[1:]
    kill = arguments[0] == "--kill"
    sys.argv[1:] = arguments[kill:]
    mqproto.captures.pipeline.engines.sparkengine.SparkEngine = engine_with(folder, kill)  # type: ignore[misc]
    main()

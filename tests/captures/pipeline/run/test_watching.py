"""A watched folder: the tables are those of one run, wherever the watcher was interrupted.

`make rotation` uses an hour of captures, with a file for each minute, and kills the program five times. Each time, it
first kills an executor of the program's cluster, which then has to work without that executor.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.captures.pipeline.engines.engine import Engine
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.engines.sparkengine import SparkEngine
from mqproto.captures.pipeline.run.job import Result, analyse
from mqproto.captures.pipeline.run.watching import watch
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline import processes
from tests.captures.pipeline.clusters import TWO_EXECUTORS, home_of_our_own
from tests.captures.pipeline.contents import rows_of
from tests.captures.pipeline.rotation import rotation
from tests.conformance import ROOT

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

FILES = int(os.environ.get("MQPROTO_ROTATION_FILES", "2"))
KILLS = int(os.environ.get("MQPROTO_ROTATION_KILLS", "1"))
EXECUTORS = "MQPROTO_ROTATION_EXECUTORS" in os.environ
"""Whether the watching programs use a cluster, some of whose executors are killed."""
TIMEOUT_S = 300


def read_at_once(folder: Path, out: Path) -> dict[str, list[str]]:
    tables = Tables(out)
    analyse([str(folder)], tables, LocalEngine())
    return rows_of(tables)


def captures_in(out: Path | str) -> int:
    """Return the number of captures in the tables of a folder."""
    return Tables(out).rows("captures") if Path(out).exists() else 0


def runs(out: Path) -> set[str]:
    """Return the names of changes to the tables that are unfinished.

    They are in progress, or a program was killed during them.
    """
    return {path.name for path in (out / "_work").glob("*")}


def has_begun(out: Path, before: set[str]) -> bool:
    """Return whether the tables have a change in progress that is not in `before`."""
    return not runs(out) <= before


class UnluckyError(MqprotoError):
    """The error that a test raises in the middle of a batch."""


@pytest.mark.long
def test_whenever_a_program_is_killed_or_fails_the_tables_come_to_be_those_of_one_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Whenever a program is killed or fails, the tables eventually become those of one run.

    Programs are killed before a batch is in the tables. Another program fails after its batch is in the tables, without
    Spark's knowledge.

    The other watchers are in this process, where Spark is already running. One of them carries out stages without
    Spark, because that is faster.
    """
    later = rotation(tmp_path / "later", FILES)
    folder, out = tmp_path / "captures", tmp_path / "out"
    folder.mkdir()
    dice = random.Random(FILES)
    # It makes no archive of classes: a Java that does ends long after it was told to.
    environ = processes.marked_environment() | {"XDG_CACHE_HOME": os.devnull}
    master = TWO_EXECUTORS if EXECUTORS else "local[2]"
    if EXECUTORS:
        environ["SPARK_HOME"] = str(home_of_our_own(tmp_path / "home"))
    for turn in range(KILLS):
        log, before = tmp_path / f"watched-{turn}.log", runs(out)
        with log.open("wb") as file, watcher(folder, out, master, environ, file.fileno()) as process:
            share = later[: FILES // (KILLS + 1)]
            del later[: len(share)]
            if EXECUTORS:
                held = captures_in(out)
                shutil.move(share.pop(0), folder)
                wait(partial(has_begun, out, before), process, log)
                time.sleep(dice.uniform(0, 3))
                kill_an_executor(environ, dice)
                wait(lambda held=held: captures_in(out) > held, process, log)  # type: ignore[misc]
                before = runs(out)
            for path in share:
                shutil.move(path, folder)
            wait(partial(has_begun, out, before), process, log)
            if EXECUTORS:
                # Anywhere in it, or behind it.
                time.sleep(dice.uniform(0, 3))
            process.kill()
        processes.wait_until_gone(environ)
        assert "Traceback" not in log.read_text()
    tables, held = Tables(out), captures_in(out)
    new: list[int] = []

    def told(result: Result) -> None:
        new.append(sum(series.new for series in result.series))
        if len(new) == 1:
            raise UnluckyError("what it came to")
        if later:
            shutil.move(later.pop(0), folder)
        elif captures_in(out) == FILES:
            os.kill(os.getpid(), signal.SIGINT)

    def watching(engine: Engine) -> None:
        watch(spark, [str(folder)], tables, engine, told, settle_s=1, interval_s=1)

    with pytest.raises(UnluckyError, match="what it came to"):
        watching(LocalEngine())
    assert captures_in(out) == held + new[0] == FILES - len(later)
    watching(SparkEngine(spark))
    assert new[1] == 0
    assert held + sum(new) == FILES
    assert rows_of(tables) == read_at_once(folder, tmp_path / "at once")


def kill_an_executor(environ: dict[str, str], dice: random.Random) -> None:
    """Kill one of the executors while they are working."""
    os.kill(dice.choice(processes.running("CoarseGrainedExecutorBackend", environ)), signal.SIGKILL)


def watcher(
    folder: Path, out: Path, master: str, environ: dict[str, str], log: int
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "mqproto.simulator.cli.cli", "analyse", str(folder), "--out", str(out)]
    command += ["--watch", "--settle", "1", "--master", master]
    return subprocess.Popen(
        command, env=environ | {"PYTHONPATH": str(ROOT)}, stdout=log, stderr=log, cwd=ROOT
    )


def wait(until: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the condition is true. The program must not end before that."""
    deadline = time.monotonic() + TIMEOUT_S
    while not until():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def test_only_folders_can_be_watched(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        watch(spark, [str(tmp_path / "missing")], Tables(tmp_path / "out"), SparkEngine(spark), print)

"""A cluster on this machine, and jobs that run on it as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.find_spark_home import _find_spark_home

from tests.conformance import ROOT

JOB_TIMEOUT_S = 600
SPARK_HOME = Path(_find_spark_home())
TWO_EXECUTORS = "local-cluster[2,1,2048]"
"""The name of a cluster with its master in the driver, and two executors with one core each.

The executors are separate processes. For us, it is like any other cluster.
"""
SETTINGS: Final = {
    # Nothing is done before both executors are there, however long their Java takes, and then both have a part of it.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{JOB_TIMEOUT_S}s",
    "spark.locality.wait": "0",
    # What an executor had is lost with it: nobody finds it on the disk.
    "spark.shuffle.readHostLocalDisk": "false",
    "spark.shuffle.io.retryWait": "1ms",
    # Nor is anything done so often that it pays to compile it.
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def home_of_our_own(folder: Path) -> Path:
    """Make a home for Spark, with links to the installed one, and return its path.

    This is needed because local-cluster writes next to its own programs.
    """
    folder.mkdir()
    for part in SPARK_HOME.iterdir():
        if part.name != "work":
            (folder / part.name).symlink_to(part)
    (folder / "conf").mkdir()
    defaults = "".join(f"{name} {value}\n" for name, value in SETTINGS.items())
    (folder / "conf" / "spark-defaults.conf").write_text(defaults)
    return folder


def run(command: Sequence[str], environ: dict[str, str], folder: Path) -> str:
    """Return the output of a command, which must succeed.

    No archive of classes is made, because nothing would use it again.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command,
        env={"PYSPARK_PYTHON": sys.executable, **environ, "PYTHONPATH": path, "XDG_CACHE_HOME": os.devnull},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout

"""Clusters on this machine, and jobs on them as processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from captures.pipeline.java import find_java
from tests.conformance import ROOT

START_TIMEOUT_S = 300
JOB_TIMEOUT_S = 600
SPARK_HOME = Path(_find_spark_home())


@dataclass(frozen=True, slots=True)
class Cluster:
    """A standalone cluster.

    master: as spark-submit has it.
    environ: what its processes were started with; jobs want the same Java.
    """

    master: str
    environ: dict[str, str]


@contextmanager
def standalone(folder: Path) -> Iterator[Cluster]:
    """A master and two workers; executors keep their things in `folder`, and end with it."""
    environ = {
        **os.environ,
        # The package's Java, though there may be another: so that it is known to run Spark.
        "JAVA_HOME": str(find_java(folder, {"PATH": os.devnull}).home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
    }
    with ExitStack() as running:

        def start(name: str, what: str, *arguments: str) -> Path:
            log = folder / f"{name}.log"
            command = [f"{SPARK_HOME}/bin/spark-class", f"org.apache.spark.deploy.{what}", *arguments]
            with log.open("wb") as file:
                process = subprocess.Popen(command, stdout=file, stderr=file, env=environ, cwd=folder)
            running.callback(process.wait)
            running.callback(process.terminate)
            return log

        log = start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = _told(log, r"Starting Spark master at (spark://\S+)")
        for name in ("one", "two"):
            place = ["--work-dir", str(folder / name), "--host", "127.0.0.1", "--webui-port", "0"]
            start(name, "worker.Worker", "--cores", "1", "--memory", "2g", *place, master)
        for name in ("one", "two"):
            _told(folder / f"{name}.log", r"(Successfully registered with master)")
        yield Cluster(master, environ)


def _told(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text("utf-8")):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(
        f"no {pattern!r} within {START_TIMEOUT_S} s in {log}:\n{log.read_text('utf-8')[-2_000:]}"
    )


def home_of_our_own(folder: Path) -> Path:
    """A home for Spark that leads to the installed one: local-cluster writes beside its own programs."""
    folder.mkdir()
    for part in SPARK_HOME.iterdir():
        if part.name != "work":
            (folder / part.name).symlink_to(part)
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(
        "spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1\n"
    )
    return folder


def run(command: Sequence[str], environ: dict[str, str], folder: Path) -> str:
    """What a command that succeeds prints. It makes no archive of classes: nobody would use it again."""
    path = os.pathsep.join(filter(None, [str(ROOT), environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command,
        env={**environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "XDG_CACHE_HOME": os.devnull},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout

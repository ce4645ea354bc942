"""A session: its settings, how it ends, and what it reports when it fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mqproto.base.errors import UsageError
from mqproto.captures.pipeline.engines.failures import JobError, naming
from mqproto.captures.pipeline.engines.progress import Progress
from mqproto.captures.pipeline.engines.session import spark_session
from mqproto.captures.pipeline.engines.tally import reported
from tests.captures.pipeline import processes
from tests.conformance import ROOT

# Java is slow to start, and slower on a machine with other work: the limit is for what hangs.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}

Batches = Iterator[pa.RecordBatch]


def test_workers_run_the_interpreter_that_started_the_job(spark: SparkSession) -> None:
    def tell(batches: Batches) -> Batches:
        import sys

        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"told": sys.executable}])

    [row] = spark.range(0, 1, 1, 1).mapInArrow(tell, "told string").collect()
    assert row.told == sys.executable


def test_all_that_listens_listens_on_this_machine_alone(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    addresses = processes.listening(jvm.java.lang.ProcessHandle.current().pid())
    assert addresses
    assert addresses <= LOOPBACK
    assert processes.listening(os.getpid()) <= LOOPBACK


def test_a_listener_hears_of_the_begin_and_of_all_that_workers_have_done(spark: SparkSession) -> None:
    heard: list[Progress] = []
    with reported(spark, "reading", 4, heard.append) as tally:
        assert tally is not None

        def count(batches: Batches) -> Batches:
            for batch in batches:
                tally.add(1)
                yield batch

        spark.range(0, 40, 1, 4).mapInArrow(count, "id long").collect()
    assert heard[0] == Progress("reading", 0, 4)
    assert heard[-1] == Progress("reading", 4, 4)
    assert [one.done for one in heard] == sorted(one.done for one in heard)


def test_a_session_that_is_there_is_taken_and_left_there(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    with spark_session(log=log) as session:
        assert session.sparkContext is spark.sparkContext
    assert session.range(3).count() == 3
    assert not log.exists()
    assert "PYSPARK_GATEWAY_PORT" not in os.environ, "it is set only while a session starts"
    with pytest.raises(UsageError, match="Spark is running already"), spark_session("local[1]", log=log):
        pass


def test_what_failed_in_a_worker_is_one_line_with_the_file(spark: SparkSession, tmp_path: Path) -> None:
    def fail(batches: Batches) -> Batches:
        with naming("a.pcap, bytes 0 to 67108864"):
            for batch in batches:
                raise ValueError("no such\nluck")
                yield batch

    with pytest.raises(JobError) as caught, spark_session(log=tmp_path / "spark.log") as session:
        session.range(1).mapInArrow(fail, "id long").collect()
    assert (
        str(caught.value)
        == "the job failed: a.pcap, bytes 0 to 67108864: ValueError: no such luck; Spark's log has more"
    )


def test_a_worker_that_dies_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    def die(batches: Batches) -> Batches:
        os._exit(3)
        yield from batches

    with pytest.raises(JobError) as caught, spark_session(log=tmp_path / "spark.log") as session:
        session.range(0, 1, 1, 1).mapInArrow(die, "id long").collect()
    assert (
        str(caught.value)
        == "the job failed: Python worker exited unexpectedly (crashed); Spark's log has more"
    )


JOB = """\
import os, signal, sys
from pathlib import Path
from mqproto.captures.pipeline.engines.session import spark_session

log, busy, what = sys.argv[1:]

def work(_):
    if what == "crash":
        # In a local session the executor, which started the daemon that we are a fork of, is all the Java there is.
        executor = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(executor), signal.SIGSEGV)
    Path(busy).touch()
    while True:
        signal.pause()

def say(progress):
    print(progress.stage, flush=True)

with spark_session("local[2]", log=Path(log), listener=say, archive=what == "start") as spark:
    # To Java this is a call as any other, and needs nothing of what plans and compiles queries.
    spark.sparkContext.parallelize(range(2)).foreach(work)
"""


def start_job(folder: Path, environ: dict[str, str], what: str) -> subprocess.Popen[str]:
    """Start a job that never ends by itself. Return its process once it has said that it starts Spark.

    Args:
        what: what the job does. "start" is interrupted at once. The other jobs make no archive of classes. Preparing
            one would take as long as Java's start, and a Java that is killed never writes it.
    """
    (folder / "here").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", JOB, str(folder / "spark.log"), str(folder / "busy"), what],
        env={**environ, "PYTHONPATH": str(ROOT)},
        cwd=folder / "here",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # Whoever runs the tests in the background of a shell ignores it, and so would the job.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "starting Spark\n"
    return process


@pytest.mark.long
@pytest.mark.parametrize("busy", [False, True], ids=["while Spark starts", "in the middle of a job"])
def test_ctrl_c_ends_it_all(tmp_path: Path, busy: bool) -> None:
    environ = processes.marked_environment()
    cache = tmp_path / "cache"
    if not busy:
        # As on a machine that has no archive yet: the one that is to be made is not.
        environ["XDG_CACHE_HOME"] = str(cache)
    process = start_job(tmp_path, environ, "wait" if busy else "start")
    while not (tmp_path / "busy").exists() if busy else len(processes.still_there(environ)) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    # A terminal says it to all that its foreground job has started.
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == -signal.SIGINT
    assert said.splitlines()[-1] == "KeyboardInterrupt"
    processes.wait_until_gone(environ)
    assert not list(cache.rglob("spark-*"))


@pytest.mark.long
def test_a_java_that_crashes_is_one_line_and_leaves_its_last_words_beside_the_log(tmp_path: Path) -> None:
    environ = processes.marked_environment()
    process = start_job(tmp_path, environ, "crash")
    _, said = process.communicate()
    assert process.returncode == 1
    told = f"JobError: the job failed: its Java has ended; Spark's log is {tmp_path / 'spark.log'}"
    assert said.splitlines()[-1] == f"mqproto.captures.pipeline.engines.failures.{told}"
    assert (tmp_path / "spark.log.crash").exists()
    assert list((tmp_path / "here").iterdir()) == []
    processes.wait_until_gone(environ)

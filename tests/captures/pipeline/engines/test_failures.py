"""Failures as people see them: one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from mqproto.captures.pipeline.engines.failures import (
    LIMIT_CHARACTERS,
    TaskError,
    job_error,
    naming,
    reason,
    reason_in_log,
)

WORKER = """
 An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "ranges.py", line 8, in read
    raise ValueError("z")
ValueError: z

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "failures.py", line 40, in naming
    raise TaskError(told) from error
mqproto.captures.pipeline.engines.failures.TaskError: a.pcap, bytes 0 to 99: no record begins at byte 24
"""
LOST = """An error occurred while calling o93.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 1.0 (TID 2) (127.0.0.1 executor 1): ExecutorLostFailure (executor 1 exited caused by \
one of the running tasks) Reason: Command exited with code 137
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$3(DAGScheduler.scala:4568)
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (WORKER, "a.pcap, bytes 0 to 99: no record begins at byte 24"),
        (WORKER.rpartition("\n\n")[0].rpartition("\n\n")[0], "ValueError: z"),
        (
            "Traceback (most recent call last):\n  File ...\nModuleNotFoundError: No module named 'mqproto.captures'\n",
            "ModuleNotFoundError: No module named 'mqproto.captures', which workers need: "
            "docs/how-to/cluster.md says how they get it",
        ),
        (
            LOST,
            "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) "
            "Reason: Command exited with code 137",
        ),
        (
            "An error occurred while calling o1.x.\n: java.lang.OutOfMemoryError: Java heap space\n\tat a.b.C.d(C:1)",
            "Java heap space",
        ),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] no `nowhere`.\nSearch path: [x].\n",
            "[TABLE_OR_VIEW_NOT_FOUND] no `nowhere`.",
        ),
        ("An error occurred while calling o21.sc", "its Java has ended"),
        ("", "its Java has ended"),
    ],
)
def test_the_reason_is_what_the_worker_said_or_else_what_spark_said_last(text: str, line: str) -> None:
    assert reason(RuntimeError(text)) == line


def test_a_connection_that_is_refused_is_that_to_java() -> None:
    assert reason(ConnectionRefusedError(111, "Connection refused")) == "its Java has ended"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (
            "WARNING: Using incubator modules\n"
            'Exception in thread "main" org.apache.spark.SparkException: Master must start with local\n'
            "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)\n",
            "Master must start with local",
        ),
        (
            "Error occurred during initialization of VM\nToo small maximum heap\n",
            "Error occurred during initialization of VM: Too small maximum heap",
        ),
        ("Error: missing `server' JVM\nError: again\n", "Error: missing `server' JVM"),
        ("WARNING: Using incubator modules\n", None),
    ],
)
def test_why_java_did_not_start_is_what_it_said_first(log: str, line: str | None) -> None:
    assert reason_in_log(log) == line


def test_a_reason_is_never_longer_than_a_few_lines_of_a_terminal() -> None:
    assert len(reason(ValueError("a" * 10_000))) == LIMIT_CHARACTERS


def test_the_error_names_what_failed_and_the_log() -> None:
    told = str(job_error("the job failed", "no luck.", Path("/var/spark.log")))
    assert told == "the job failed: no luck; Spark's log is /var/spark.log"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no\nluck"), "a.pcap: ValueError: no luck"),
        (UsageError("leave it out"), "a.pcap: leave it out"),
        (FileNotFoundError(2, "No such file", "a"), "a.pcap: [Errno 2] No such file: 'a'"),
    ],
)
def test_a_worker_says_what_it_was_doing_once(error: Exception, told: str) -> None:
    with pytest.raises(TaskError) as caught, naming("the whole job"), naming("a.pcap"):
        raise error
    assert str(caught.value) == told

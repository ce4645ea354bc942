"""The progress of a stage in Spark: workers count it, and the driver reports it to a listener now and then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark import Accumulator, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mqproto.captures.pipeline.engines.progress import Listener, Progress, nobody

INTERVAL_S: Final = 0.25


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return a session's context; None under Spark Connect, where Spark runs elsewhere."""
    try:
        return spark.sparkContext
    except PySparkException:
        return None


@contextmanager
def reported(
    spark: SparkSession, stage: str, total: int, listener: Listener = nobody
) -> Iterator[Accumulator[int] | None]:
    """Tell the listener the progress of the stage in the block; yield the counter of finished tasks.

    Workers add to the counter, and their counts come back when a task ends. If a task ran twice, as after the loss of
    an executor, both runs may count. The listener is told at the start of the stage, at the end, and a few times a
    second in between. Spark Connect has no counters, so None is yielded; the listener is told only that the stage has
    begun, and that it is over.
    """
    context = context_of(spark)
    if context is None:
        listener(Progress(stage, 0, total))
        yield None
        listener(Progress(stage, total, total))
        return
    tally = context.accumulator(0)
    ended = threading.Event()

    def report() -> None:
        listener(Progress(stage, min(tally.value, total), total))

    def report_often() -> None:
        while not ended.wait(INTERVAL_S):
            report()

    report()
    reporter = threading.Thread(target=report_often, name="progress", daemon=True)
    reporter.start()
    try:
        yield tally
    finally:
        ended.set()
        reporter.join()
    report()

"""The progress of a stage in Spark: workers count it, and the driver reports it to a listener now and then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mqproto.captures.pipeline.engines.progress import Listener, Progress, nobody

INTERVAL_S: Final = 0.25


class Tally:
    """Counts of ranges, packets and bytes for one stage; it travels to workers inside the function that uses it.

    The workers' counts come back when a task ends. If a task ran twice, as after the loss of an executor, both runs may
    count.
    """

    def __init__(self, context: SparkContext) -> None:
        self._counts = [context.accumulator(0) for _ in range(3)]

    def add(self, ranges: int = 0, packets: int = 0, size_bytes: int = 0) -> None:
        """In a worker, add finished work."""
        for each, more in zip(self._counts, (ranges, packets, size_bytes), strict=True):
            each.add(more)

    @property
    def counts(self) -> tuple[int, ...]:
        """In the driver, return the finished work so far."""
        return tuple(each.value for each in self._counts)


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return a session's context; None under Spark Connect, where Spark runs elsewhere."""
    try:
        return spark.sparkContext
    except PySparkException:
        return None


@contextmanager
def reported(
    spark: SparkSession, stage: str, total: int, listener: Listener = nobody
) -> Iterator[Tally | None]:
    """Tell the listener the progress of the stage that runs in the block.

    The listener is told at the start of the stage, at the end, and a few times a second in between. Spark Connect has
    no counters; with it, the listener is told only that the stage has begun, and that it is over.
    """
    context = context_of(spark)
    if context is None:
        listener(Progress(stage, 0, total))
        yield None
        listener(Progress(stage, total, total))
        return
    tally = Tally(context)
    ended = threading.Event()

    def report() -> None:
        done, packets, size_bytes = tally.counts
        listener(Progress(stage, min(done, total), total, packets, size_bytes))

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

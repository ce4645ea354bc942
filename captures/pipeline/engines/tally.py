"""The progress of a stage in Spark: workers count it, and the driver reports it to a listener now and then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mqproto.captures.pipeline.engines.progress import Listener, Progress, nobody

INTERVAL_S: Final = 0.25


class Counts(NamedTuple):
    """The counts of workers."""

    ranges: int = 0
    packets: int = 0
    size_bytes: int = 0


class AddCounts(AccumulatorParam[Counts]):
    """Tells Spark how to add up the counts of its tasks."""

    def zero(self, value: Counts) -> Counts:
        return Counts()

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:  # noqa: N802
        return Counts(*map(sum, zip(value1, value2, strict=True)))


class Tally:
    """Counts for one stage; it travels to workers inside the function that uses it.

    The workers' counts come back when a task ends. If a task ran twice, as after the loss of an executor, both runs may
    count.
    """

    def __init__(self, context: SparkContext) -> None:
        self._counts: Accumulator[Counts] = context.accumulator(Counts(), AddCounts())

    def add(self, ranges: int = 0, packets: int = 0, size_bytes: int = 0) -> None:
        """In a worker, add finished work."""
        self._counts.add(Counts(ranges, packets, size_bytes))

    @property
    def counts(self) -> Counts:
        """In the driver, return the finished work so far."""
        return self._counts.value


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
        counts = tally.counts
        listener(Progress(stage, min(counts.ranges, total), total, counts.packets, counts.size_bytes))

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

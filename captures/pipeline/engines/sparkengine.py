"""Runs stages on Spark, wherever its executors are.

Each stage is one DataFrame, and rows go through Spark's own shuffle. The rows of such a DataFrame are batches in
transit (engine.py) and the results of its tasks. The DataFrame stays on the disks of executors as long as a later stage
reads it; lost parts are made again. Nothing here needs more than Spark Connect offers.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark import Accumulator, StorageLevel
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812
)
from pyspark.sql.pandas.types import from_arrow_schema

from mqproto.captures.pipeline.engines.engine import (
    Engine,
    Function,
    Inbox,
    Outbox,
    collecting_seldom,
    pickled,
    spare_modules,
)
from mqproto.captures.pipeline.engines.failures import naming
from mqproto.captures.pipeline.engines.progress import Listener, nobody
from mqproto.captures.pipeline.engines.tally import context_of, reported

T = TypeVar("T")
R = TypeVar("R")

TASK, RESULT = "task of the stage", "result"
"""The names of two exchanges: one for tasks, and one for their results."""
SENT: Final = pa.schema(
    [
        ("exchange", pa.string()),
        ("bucket", pa.int32()),
        ("source", pa.int32()),
        ("order", pa.int32()),
        ("rows", pa.binary()),
    ]
)
ROWS: Final = from_arrow_schema(SENT)
BATCH_BYTES: Final = 4 << 20
"""The largest number of bytes that Spark hands to Python at a time.

It is also how many bytes of a task's rows are kept in memory; if there are more, they go to disk.
"""
SETTINGS: Final = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
    # The plan is final: reviewing it after its shuffle takes another job, which reads everything that was kept.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
"""Settings of the session while a stage runs; Spark does not pack batches, which are packed already."""
PARALLEL: Final = "spark.sql.leafNodeDefaultParallelism"
"""The number of parts into which Spark splits the tasks, before they join the rows that they read."""


class SparkEngine(Engine):
    """Runs the tasks of each stage as one Spark job.

    Args:
        listener: is called with the progress of each stage, if Spark reports it: Spark Connect does not.
    """

    def __init__(self, spark: SparkSession, listener: Listener = nobody) -> None:
        super().__init__()
        self._spark = spark
        self._listener = listener

    def _run(
        self,
        stage: str,
        function: Function[T, R],
        tasks: Mapping[int, T],
        reads: Sequence[str],
        *,
        puts: bool,
    ) -> tuple[list[R], DataFrame, list[dict[str, set[int]]]]:
        """See Engine."""
        with (
            reported(self._spark, stage, len(tasks), self._listener) as tally,
            _described(self._spark, stage),
            _set(self._spark, SETTINGS | {PARALLEL: str(len(tasks) if not reads else 1)}),
        ):
            found = self._taken(tasks, reads).mapInArrow(_Stage(function, tuple(reads), tally), ROWS)
            results = found
            if puts:
                found = found.persist(StorageLevel.DISK_ONLY)
                results = found.where(f"exchange = '{RESULT}'")
            try:
                done = {row.bucket: pickle.loads(row.rows) for row in results.collect()}
            except BaseException:
                self._free(found)
                raise
        return [done[bucket][0] for bucket in tasks], found, [buckets for _, buckets in done.values()]

    def _free(self, held: DataFrame) -> None:
        with suppress(Exception):  # Its Java may have ended; then that was reported.
            held.unpersist()

    def _taken(self, tasks: Mapping[int, Any], reads: Sequence[str]) -> DataFrame:
        """Return the tasks, each followed by the rows that it reads."""
        count = len(tasks)
        sent = zip(repeat(TASK), tasks, repeat(0), repeat(0), map(pickled, tasks.values()), strict=False)
        rows = self._spark.createDataFrame(pa.Table.from_batches([_sent(*sent)]))
        if not reads:
            return rows
        for output in self._outputs:
            if not output.buckets.keys().isdisjoint(reads):
                gone = ", ".join(map(str, output.gone))
                rows = rows.unionAll(output.held.where(f"source NOT IN ({gone})") if gone else output.held)
        names = ", ".join(f"'{name}'" for name in (TASK, *reads))
        # Few calls, because each one goes to Java.
        rows = rows.where(f"exchange IN ({names})").repartitionById(count, "bucket")
        key = f"struct(bucket, array_position(array({names}), exchange), source, `order`)"
        return rows.sortWithinPartitions(F.expr(key))


@dataclass(frozen=True, slots=True)
class _Stage:
    """The work of a Spark worker on a partition: it runs some tasks, each followed by the rows that it reads."""

    function: Function[Any, Any]
    reads: tuple[str, ...]
    tally: Accumulator[int] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_modules()
        for bucket, rows in groupby(_rows(batches), lambda row: row[1]):
            exchange, _, task = next(rows)
            if exchange == TASK:  # Otherwise nobody takes it.
                taken = ((self.reads.index(exchange), some) for exchange, _, some in rows)
                yield from self._carry_out(bucket, pickle.loads(task), taken)

    def _carry_out(
        self, bucket: int, task: Any, batches: Iterator[tuple[int, Any]]
    ) -> Iterator[pa.RecordBatch]:
        with tempfile.SpooledTemporaryFile(BATCH_BYTES, prefix="mqproto-rows-") as file:
            with naming(str(task)), collecting_seldom():
                outbox = Outbox(bucket, file)
                result = self.function(task, Inbox(self.reads, batches), outbox)
            if self.tally is not None:
                self.tally.add(1)
            file.seek(0)
            for entry in outbox.entries:
                yield _sent((*entry[:4], file.read(entry.size)))
            yield _sent((RESULT, bucket, bucket, 0, pickled((result, outbox.buckets))))


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, Any]]:
    for batch in batches:
        exchanges, buckets, _, _, rows = batch.columns
        for exchange, bucket, row in zip(exchanges.to_pylist(), buckets.to_pylist(), rows, strict=True):
            yield exchange, bucket, row.as_buffer()


def _sent(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    columns = zip(zip(*rows, strict=True), SENT.types, strict=True)
    return pa.record_batch([pa.array(column, kind) for column, kind in columns], schema=SENT)


@contextmanager
def _described(spark: SparkSession, stage: str) -> Iterator[None]:
    """Make Spark's own pages describe the jobs of the block."""
    context = context_of(spark)
    if context is None:
        tag = stage.replace(" ", "-")
        spark.addTag(tag)
        try:
            yield
        finally:
            spark.removeTag(tag)
    else:
        context.setJobDescription(stage)
        try:
            yield
        finally:
            context.setJobDescription(None)  # type: ignore[arg-type]


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session for the block."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, own in before.items():
            if own is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, own)

"""Who carries out the tasks of a stage: Spark, wherever its executors are."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol, TypeVar

from pyspark.sql import SparkSession

from captures.pipeline.failures import naming
from captures.pipeline.progress import Listener, nobody, reported

T = TypeVar("T")
R = TypeVar("R")
Count = Callable[[int, int], None]
"""What a task calls to say how many more packets and bytes it has done."""


class Runner(Protocol):
    """Has every task done, somewhere, perhaps more than once."""

    def __call__(self, stage: str, function: Callable[[T, Count], R], tasks: Sequence[T]) -> list[R]:
        """The results of the tasks, in their order.

        Args:
            stage: what they do, for people.
            function: picklable, with all that the tasks have in common: it is sent out once. What it raises ends the
                stage. Carried out again, a task leaves the same files.
            tasks: small, as each is sent by itself. As text, each says what it reads, for the message if it fails.
        """


class SparkRunner:
    """Tasks as those of one Spark job each."""

    def __init__(self, spark: SparkSession, listener: Listener = nobody) -> None:
        self._spark = spark
        self._listener = listener

    def __call__(self, stage: str, function: Callable[[T, Count], R], tasks: Sequence[T]) -> list[R]:
        if not tasks:
            return []
        with reported(self._spark, stage, len(tasks), self._listener) as tally:

            def count(packets: int, size_bytes: int) -> None:
                tally.add(packets=packets, size_bytes=size_bytes)

            def carry_out(task: T) -> R:
                spare_modules()
                with naming(str(task)):
                    result = function(task, count)
                tally.add(ranges=1)
                return result

            context = self._spark.sparkContext
            return context.parallelize(tasks, len(tasks)).map(carry_out).collect()


@cache
def spare_modules() -> None:
    """Have the garbage collector of this process pass over all that is there by now, once and for all.

    Spark has a worker collect its garbage after each task. To look through all modules for some takes 25 ms.
    """
    gc.freeze()


class LocalRunner:
    """Tasks one by one in this process, without Spark."""

    def __call__(self, stage: str, function: Callable[[T, Count], R], tasks: Sequence[T]) -> list[R]:
        return [function(task, lambda packets, size_bytes: None) for task in tasks]

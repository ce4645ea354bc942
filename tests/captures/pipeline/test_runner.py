"""Tasks come back in their order, from workers that waste no time."""

from __future__ import annotations

import gc

import pytest
from pyspark.sql import SparkSession

from captures.pipeline.runner import SparkRunner

pytestmark = pytest.mark.xdist_group("spark")


def test_workers_do_not_look_for_garbage_among_their_modules(spark: SparkSession) -> None:
    results = SparkRunner(spark)("looking", lambda task, count: (task, gc.get_freeze_count()), range(3))
    assert [task for task, _ in results] == [0, 1, 2]
    assert all(spared > 10_000 for _, spared in results)

"""One Spark session for all tests that need one, and a cluster for the few that need that.

A session takes some ten seconds to start, so whatever can be tested without one is. Tests that use `spark` carry
`pytest.mark.xdist_group("spark")`, which puts them into one of pytest-xdist's processes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from captures.pipeline.session import spark_session
from tests.captures.pipeline.clusters import Cluster, standalone


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores of this machine."""
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    settings = {"spark.sql.shuffle.partitions": "2"}
    with spark_session("local[2]", log=log, settings=settings, archive=False) as session:
        yield session


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers of one core each, as processes of their own on this machine."""
    with standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running

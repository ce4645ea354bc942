"""The tables of captures as Spark DataFrames, in any session, including over Spark Connect.

    from mqproto.captures.spark import read

    told = read(spark, "captures/")
    told.histories.where("order_acked_ns IS NULL").groupBy("queue").count().show()

docs/how-to/spark.md says more, and docs/reference/tables.md has every column.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from mqproto.base.errors import UsageError
from mqproto.captures.pipeline.engines.sparkengine import SparkEngine
from mqproto.captures.pipeline.run.job import analyse, nothing_new
from mqproto.captures.pipeline.source.files import inventory
from mqproto.captures.pipeline.tables.parts import parquet
from mqproto.captures.pipeline.tables.schemas.tables import TABLES
from mqproto.captures.pipeline.tables.tables import Tables, is_there

SPECIAL: Final = re.compile(r"[\\*?\[\]{}]")
"""Matches characters that have a special meaning in the names of files that Spark reads."""
_temporary: Final[list[tempfile.TemporaryDirectory[str]]] = []
"""Temporary folders for tables of callers that named no folder; they are deleted when this process ends."""


def read(spark: SparkSession, *paths: str, tables: str | None = None, run: int | None = None) -> Analysis:
    """Return the tables of captures; nothing is read before a table is used.

    Args:
        paths: captures, folders, patterns and URIs; or one folder of tables, as `mqproto analyse` makes them.
        tables: a folder or URI for the tables, which all machines can reach. Captures that are already in these tables
            stay there, and are not read again. By default, tables are temporary files on this machine.
        run: the number of an earlier run, if `paths` is a folder of tables.
    """
    return Analysis(spark, paths, tables, run)


@dataclass(eq=False)
class Analysis:
    """Tables by name, each a DataFrame: packets, sessions, sequences, histories, findings, and others.

    The first use of a table makes Spark write all of them; the DataFrames then read them. A warning is given for each
    capture that cannot be read, or cannot be read to its end.

    Raises:
        UsageError: there is no capture; a run is given, but the only path is not a folder of tables; or Spark runs on a
            cluster, and no folder is given for its tables.
    """

    _spark: SparkSession
    _paths: tuple[str, ...]
    _place: str | None
    _run: int | None

    def __dir__(self) -> Iterable[str]:
        return TABLES

    def __getattr__(self, name: str) -> DataFrame:
        if name not in TABLES:
            raise AttributeError(f"no table is called {name!r}, but {', '.join(TABLES)}")
        schema = from_arrow_schema(TABLES[name].written)
        paths = self._tables.paths(name)
        if self._tables.store.folder is None or not paths:
            # Spark itself reaches no objects without further Java packages.
            rows = self._spark.createDataFrame([(path,) for path in paths], "path string")
            return rows.mapInArrow(_rows, schema)
        escaped = (SPECIAL.sub(r"\\\g<0>", path) for path in paths)
        return self._spark.read.schema(schema).parquet(*(f"file:{path}" for path in escaped))

    @cached_property
    def _tables(self) -> Tables:
        if len(self._paths) == 1 and is_there(self._paths[0]):
            return Tables(self._paths[0], self._run)
        if self._run is not None:
            raise UsageError(
                f"run {self._run}: name the folder of tables that it is of: read(spark, FOLDER, run=...)"
            )
        if self._place is None:
            if not str(self._spark.conf.get("spark.master")).startswith("local"):
                raise UsageError("on a cluster, say where tables may lie: read(..., tables=FOLDER)")
            _temporary.append(tempfile.TemporaryDirectory(prefix="mqproto-tables-"))
            self._place = _temporary[-1].name
        tables = Tables(self._place)
        found = inventory(self._paths)
        if not found.series:
            raise UsageError(str(found.refused[0]) if found.refused else "there is no capture to read")
        result = nothing_new(found, tables)
        if result is None:
            result = analyse(self._paths, tables, SparkEngine(self._spark), found=found)
        damage = (error for series in result.series for error in series.damage)
        for error in (*result.refused, *damage):
            warnings.warn(str(error), stacklevel=4)  # Where a table was asked for.
        return tables


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path in batch.column(0).to_pylist():
            with parquet(path) as file:
                yield from file.iter_batches()

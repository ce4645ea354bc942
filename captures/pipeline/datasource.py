"""Captures as a data source of Spark: a row for each TCP segment, wherever MSMQ is or is not.

    spark.dataSource.register(CaptureSource)
    spark.read.format("mqcapture").load("captures/")

A large capture is read by many tasks. Where its records begin is found and proved when the query is planned, in one
process: some half a second for each million frames.

Spark does not tell a Python source which columns a query uses, so payloads come only where they are asked for.

Options:
    payload: "true" for a column `payload` with the bytes of each segment.
    mode: "FAILFAST", the default, fails where a file is damaged or none of ours; "PERMISSIVE" reads what there is.
    rangeBytes: how much of a file one task reads; 64 MiB.

A packet that IP cut into fragments is put together if they lie in one range.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from captures.pipeline.files import RANGE_BYTES, inventory, mapped
from captures.pipeline.records import Data
from captures.pipeline.runner import spare_modules
from captures.pipeline.scan import Reading, read_plan
from captures.pipeline.segments import Segments, segments
from mqproto.base.errors import UsageError

BATCH_ROWS: Final = 32_768
"""Each goes to the JVM in one piece."""

COLUMNS: Final = pa.schema(
    [
        ("file", pa.string()),
        ("offset", pa.int64()),  # of the frame's record in the file
        ("frame", pa.int64()),  # counted from 1 over the file
        ("time", pa.timestamp("us", "UTC")),
        ("time_ns", pa.int64()),  # the same, whole; Spark's own times have microseconds
        ("interface", pa.int32()),
        ("interface_name", pa.string()),
        ("source", pa.string()),
        ("source_port", pa.int32()),
        ("destination", pa.string()),
        ("destination_port", pa.int32()),
        ("sequence", pa.int64()),
        ("acknowledgment", pa.int64()),
        ("flags", pa.int32()),
        ("size", pa.int64()),  # of the payload
    ]
)
PAYLOAD: Final = pa.field("payload", pa.binary())


class CaptureSource(DataSource):
    """The format `mqcapture`."""

    @classmethod
    def name(cls) -> str:
        return "mqcapture"

    def schema(self) -> str:
        return ", ".join(f"`{field.name}` {_spark_type(field.type)}" for field in _schema(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options)


class _Part(InputPartition):
    """What one task reads: a range, or all of a packed file."""

    def __init__(self, readings: list[Reading]) -> None:
        super().__init__(None)
        self.readings = readings


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._schema = _schema(options)
        self._paths = _paths(options)
        self._range_bytes = _positive(options, "rangeBytes", RANGE_BYTES)
        mode = options.get("mode", "FAILFAST").upper()
        if mode not in ("FAILFAST", "PERMISSIVE"):
            raise UsageError(f"mode {mode!r}: FAILFAST stops at damage, PERMISSIVE reads what there is")
        self._fails = mode == "FAILFAST"

    def partitions(self) -> list[InputPartition]:
        found = inventory(self._paths)
        damages = [*found.refused]
        parts: list[InputPartition] = []
        for file in found.files:
            readings = read_plan(file, self._range_bytes)
            damages += [reading.damage for reading in readings if reading.damage is not None]
            if file.packing:
                parts.append(_Part(readings))
            else:
                parts += [_Part([reading]) for reading in readings]
        if damages and self._fails:
            more = f" (and {len(damages) - 1} more)" if len(damages) > 1 else ""
            raise UsageError(f"{damages[0]}{more}; mode=PERMISSIVE reads what there is")
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        spare_modules()
        for file, readings in groupby(partition.readings, lambda reading: reading.file):
            with mapped(file) as source:
                for reading in readings:
                    yield from _batches(reading, segments(reading, source.data), source.data, self._schema)


def _batches(reading: Reading, found: Segments, data: Data, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    hosts = pa.array([one.host for one in found.ends], pa.string())
    ports = pa.array([one.port for one in found.ends], pa.int32())
    numbers = sorted(found.interfaces)
    names = pa.array([found.interfaces[number].name for number in numbers], pa.string())
    for low in range(0, len(found), BATCH_ROWS):
        some = slice(low, low + BATCH_ROWS)
        time_ns = found.time_ns[some]
        interfaces = found.interface[some]
        columns = {
            "file": pa.repeat(reading.file.path, len(time_ns)),
            "offset": found.offset[some],
            "frame": found.frame[some] + reading.first_number,
            "time": pa.array(time_ns // 1000).cast(COLUMNS.field("time").type),
            "time_ns": time_ns,
            "interface": interfaces,
            "interface_name": names.take(pa.array(np.searchsorted(numbers, interfaces))),
            "source": hosts.take(pa.array(found.source[some])),
            "source_port": ports.take(pa.array(found.source[some])),
            "destination": hosts.take(pa.array(found.destination[some])),
            "destination_port": ports.take(pa.array(found.destination[some])),
            "sequence": found.sequence[some],
            "acknowledgment": found.acknowledgment[some],
            "flags": found.flags[some].astype(np.int32),
            "size": found.size[some],
        }
        if PAYLOAD.name in schema.names:
            columns[PAYLOAD.name] = found.payloads(data, np.arange(len(found))[some]).cast(PAYLOAD.type)
        yield pa.record_batch([pa.array(columns[name]) for name in schema.names], schema=schema)


def _schema(options: Mapping[str, str]) -> pa.Schema:
    wanted = options.get("payload", "false").lower()
    if wanted not in ("true", "false"):
        raise UsageError(f"payload {wanted!r}: true or false")
    return COLUMNS.append(PAYLOAD) if wanted == "true" else COLUMNS


def _spark_type(kind: pa.DataType) -> str:
    names = {pa.string(): "string", pa.int64(): "bigint", pa.int32(): "int", pa.binary(): "binary"}
    return names.get(kind, "timestamp")


def _paths(options: Mapping[str, str]) -> list[str]:
    """What `load` was given: one path, or several, which Spark hands on as JSON."""
    if "paths" in options:
        return [str(path) for path in json.loads(options["paths"])]
    if "path" in options:
        return [options["path"]]
    raise UsageError("no capture is named: load(path), a file or a folder")


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"{name} {text!r}: a number of bytes")
    return int(text)

"""Makes captures a data source of Spark, with a row for each TCP segment or for each file.

    spark.read.format("mqproto").load("s3://bucket/day-*/*.pcapng")
    spark.readStream.format("mqproto").load("captures/")

For packets and messages, which are assembled from many segments, use mqproto.captures.spark.

Spark finds the format by itself, through the package pyspark_mqproto. Paths are files, folders, patterns with *, ?, []
and {}, and the URIs listed in mqproto.captures.pipeline.source.storage.

Options:
    rows: "segments", the default, has the columns SEGMENTS, for all traffic and not only MSMQ; "files" has the columns
        FILES.
    mode: "FAILFAST", the default, fails at a file that is damaged or not a capture; "PERMISSIVE" reads what it can.
    rangeBytes: how much of a file is read at a time; by default 64 MiB.

Spark does not tell a Python source which columns a query uses. With .schema("file string, frame long"), only these
columns are read. By default, all columns are read except the bytes of segments, which cost most.

Segments are read by many tasks. When the query is planned, one process finds where a capture's records begin, which
takes about half a second for each million frames. It fetches each object once, and the tasks fetch it again. A packet
that IP cut into fragments is put together if all of them are in one range.

A stream watches folders of this machine, and reports each file when it is complete; see
mqproto.captures.pipeline.source.arrivals. Its options:
    maxFilesPerTrigger: the maximum number of files in a batch; by default all complete files.
    settleSeconds: the last file of a series is complete after this time without a write; by default 60.
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mqproto.base.errors import UsageError
from mqproto.captures.files.frame import NANOSECONDS, CaptureError
from mqproto.captures.files.series import series_name
from mqproto.captures.pipeline.engines.engine import spare_modules
from mqproto.captures.pipeline.source.arrivals import SETTLE_S, Arrival, arrivals
from mqproto.captures.pipeline.source.files import (
    RANGE_BYTES,
    CaptureFile,
    Inventory,
    inventory,
    look_at,
    mapped,
)
from mqproto.captures.pipeline.source.records import Data
from mqproto.captures.pipeline.source.scan import Reading, readings
from mqproto.captures.pipeline.source.segments import Segments, segments
from mqproto.captures.pipeline.source.storage import absolute, is_remote

BATCH_ROWS: Final = 32_768
"""The largest number of rows in a batch, which goes to the JVM in one piece."""

SEGMENTS: Final = pa.schema(
    [
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("frame", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("time_ns", pa.int64()),
        ("interface", pa.int32()),
        ("interface_name", pa.string()),
        ("source", pa.string()),
        ("source_port", pa.int32()),
        ("destination", pa.string()),
        ("destination_port", pa.int32()),
        ("sequence", pa.int64()),
        ("acknowledgment", pa.int64()),
        ("flags", pa.int32()),
        ("size", pa.int64()),
        ("payload", pa.binary()),
    ]
)
"""The columns of segments, with a row for each segment.

offset: where the record of the segment's frame begins in the file.
frame: the number of that frame, counted from 1 over the file.
time_ns: the time in nanoseconds since 1970, UTC; `time` is the same in whole microseconds.
flags: the byte with FIN, SYN, RST, PSH and ACK.
size, payload: the size and the bytes of the segment, without headers.
"""

FILES: Final = pa.schema(
    [
        ("file", pa.string()),
        ("series", pa.string()),
        ("size_bytes", pa.int64()),
        ("form", pa.string()),
        ("packing", pa.string()),
        ("fingerprint", pa.string()),
        ("first_ns", pa.int64()),
        ("damage", pa.string()),
    ]
)
"""The columns of files, with a row for each file, as in mqproto.captures.pipeline.run.work.

first_ns: when the file's first frame was captured; null if it has none.
damage: why the file or its first frame cannot be read. If it is not null, the columns from `form` to `first_ns` are
    null.
"""


KINDS: Final = {"segments": SEGMENTS, "files": FILES}
DEAR: Final = "payload"
"""The name of the column that is returned only on request."""
MODES: Final = ("FAILFAST", "PERMISSIVE")
TOLD: Final = "told"
"""The key, in a stream's offset, under which the contents of all reported files that still exist are kept."""


class CaptureSource(DataSource):
    """The format `mqproto`, as the module describes it."""

    @classmethod
    def name(cls) -> str:
        return "mqproto"

    def schema(self) -> StructType:
        return _Options(self.options).schema

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _Options(self.options, schema)
        return READERS[options.rows](options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _StreamReader(_Options(self.options, schema))


class _Options:
    """The options of a query.

    Args:
        schema: the requested columns; by default all but DEAR.

    Raises:
        UsageError: an option has an unknown or impossible value.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType | None = None) -> None:
        self.rows = options.get("rows", "segments").lower()
        if self.rows not in KINDS:
            raise UsageError(
                f"rows {self.rows!r}: {', '.join(KINDS)}; mqproto.captures.spark.read has tables"
            )
        there = {field.name: field for field in from_arrow_schema(KINDS[self.rows])}
        self.schema = schema or StructType([there[name] for name in there if name != DEAR])
        for field in self.schema:
            if field.name not in there:
                raise UsageError(f"schema: {self.rows} have no {field.name!r}, but {', '.join(there)}")
            if field.dataType != (known := there[field.name].dataType):
                raise UsageError(
                    f"schema: {field.name} is {known.simpleString()}, not {field.dataType.simpleString()}"
                )
        mode = options.get("mode", MODES[0]).upper()
        if mode not in MODES:
            raise UsageError(f"mode {mode!r}: FAILFAST stops at damage, PERMISSIVE reads what there is")
        self.fails = mode == "FAILFAST"
        self.range_bytes = _number(options, "rangeBytes", RANGE_BYTES, "bytes")
        self.settle_ns = _number(options, "settleSeconds", SETTLE_S, "seconds") * NANOSECONDS
        self.max_files = _number(options, "maxFilesPerTrigger", 0, "files")
        # Spark hands on several paths as JSON.
        several = [str(path) for path in json.loads(options["paths"])] if "paths" in options else []
        self.paths = several or ([options["path"]] if options.get("path") else [])
        if not self.paths:
            raise UsageError("no capture is named: load(path), a file, a folder, a pattern or a URI")

    def found(self, paths: Sequence[str]) -> Inventory:
        """Return the captures at these paths.

        Raises:
            UsageError: a file cannot be read, and the mode is FAILFAST; or no file can be read.
        """
        found = inventory(paths)
        if self.fails or not found.series:
            self.check(found.refused)
        return found

    def check(self, damages: Sequence[CaptureError]) -> None:
        """Fail if there is any damage."""
        if damages:
            more = f" (and {len(damages) - 1} more)" if len(damages) > 1 else ""
            advice = "; mode=PERMISSIVE reads what there is" if self.fails else ""
            raise UsageError(f"{damages[0]}{more}{advice}")


def _number(options: Mapping[str, str], name: str, default: int, unit: str) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or (int(text) == 0 and name in options):
        raise UsageError(f"{name} {text!r}: a number of {unit}, from 1 on")
    return int(text)


class _Part(InputPartition):
    """The input of one task."""


class _Reader(DataSourceReader):
    """Reads captures that are found when the query is planned."""

    def __init__(self, options: _Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return self.parts(self._options.paths)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _Part):
            return  # Where there is nothing to read, Spark makes a partition of its own.
        spare_modules()
        schema = to_arrow_schema(self._options.schema, timezone="UTC")
        for batch in self._batches(partition.value):
            yield pa.record_batch(
                [batch.column(field.name).cast(field.type) for field in schema], schema=schema
            )

    @abstractmethod
    def parts(self, paths: Sequence[str]) -> list[InputPartition]:
        """Return the inputs of tasks for these files and folders."""

    @abstractmethod
    def _batches(self, value: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, with at least the requested columns."""


class _SegmentReader(_Reader):
    """Reads segments: each part is a range of a file, or all of a packed file."""

    def parts(self, paths: Sequence[str]) -> list[InputPartition]:
        damages: list[CaptureError] = []
        parts: list[InputPartition] = []
        for file in self._options.found(paths).files:
            found = readings(file, self._options.range_bytes)
            damages += [reading.damage for reading in found if reading.damage is not None]
            together = [found] if file.packing and found else [[reading] for reading in found]
            parts += map(_Part, together)
        if self._options.fails:
            self._options.check(damages)
        return parts

    def _batches(self, value: list[Reading]) -> Iterator[pa.RecordBatch]:
        names = self._options.schema.names
        with mapped(value[0].file, value[0].start, value[-1].end) as source:
            for reading in value:
                found = segments(reading, source.data)
                yield from _segment_batches(reading, found, source.data, names)


def _segment_batches(
    reading: Reading, found: Segments, data: Data, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    hosts = pa.array([one.host for one in found.ends], pa.string())
    ports = pa.array([one.port for one in found.ends], pa.int32())
    numbers = sorted(found.interfaces)
    interface_names = pa.array([found.interfaces[number].name for number in numbers], pa.string())

    def column(name: str, some: slice) -> Any:
        match name:
            case "file":
                return pa.repeat(reading.file.path, len(found.time_ns[some]))
            case "frame":
                return found.frame[some] + reading.first_number
            case "time":
                return pa.array(found.time_ns[some] // 1000).cast(SEGMENTS.field(name).type)
            case "interface_name":
                return interface_names.take(pa.array(np.searchsorted(numbers, found.interface[some])))
            case "source" | "destination":
                return hosts.take(pa.array(getattr(found, name)[some]))
            case "source_port" | "destination_port":
                return ports.take(pa.array(getattr(found, name.removesuffix("_port"))[some]))
            case "flags":
                return found.flags[some].astype(np.int32)
            case "payload":
                return found.payloads(data, np.arange(len(found))[some]).cast(SEGMENTS.field(name).type)
        return getattr(found, name)[some]

    for low in range(0, len(found), BATCH_ROWS):
        some = slice(low, low + BATCH_ROWS)
        yield pa.record_batch([pa.array(column(name, some)) for name in names], names=list(names))


class _FileReader(_Reader):
    """Reads files: each part holds rows that exist already, because files are examined when they are found."""

    def parts(self, paths: Sequence[str]) -> list[InputPartition]:
        found = inventory(paths)
        rows = [_file_row(file) for file in (*found.files, *(look_at(path) for path, _ in found.repeated))]
        for error in found.refused:
            damage = f"byte {error.offset}: {error.reason}"
            rows.append({"file": error.where, "series": series_name(error.where), "damage": damage})
        return [_Part(rows)]

    def _batches(self, value: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(value, FILES)


def _file_row(file: CaptureFile) -> dict[str, Any]:
    names = ("size_bytes", "form", "packing", "fingerprint", "first_ns")
    own = {name: getattr(file, name) for name in names}
    return {"file": file.path, "series": series_name(file.path), **own}


READERS: Final[Mapping[str, Callable[[_Options], _Reader]]] = {
    "segments": _SegmentReader,
    "files": _FileReader,
}


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the files that are in one offset but not in an earlier one.

    A file is identified by its unpacked content. So it is reported once, whatever its name, even if it is packed,
    touched or moved. The offsets are in the checkpoint of the query, and leave out files that are gone from the
    folders.
    """

    def __init__(self, options: _Options) -> None:
        for path in map(absolute, options.paths):
            if is_remote(path):
                raise UsageError(f"{path}: a stream watches folders of this machine; spark.read has objects")
        self._options = options
        self._reader = READERS[options.rows](options)
        self._target: set[str] | None = None

    def initialOffset(self) -> dict[str, list[str]]:  # noqa: N802
        return {TOLD: []}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_files
        return ReadMaxFiles(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {each.content for each in self._arrivals() if each.is_complete}

    def latestOffset(self, start: dict[str, list[str]], limit: ReadLimit) -> dict[str, list[str]]:  # noqa: N802
        if TOLD not in start:
            raise UsageError("this checkpoint is of an earlier version: choose another checkpointLocation")
        found = self._arrivals()
        told = set(start[TOLD])
        complete = (each.content for each in found if each.is_complete and each.content not in told)
        new = [each for each in dict.fromkeys(complete) if self._target is None or each in self._target]
        if isinstance(limit, ReadMaxFiles):
            new = new[: limit.max_files]
        return {TOLD: sorted({*new, *told.intersection(each.content for each in found)})} if new else start

    def partitions(self, start: dict[str, list[str]], end: dict[str, list[str]]) -> Sequence[InputPartition]:
        new = set(end[TOLD]).difference(start[TOLD])
        paths = {each.content: each.path for each in self._arrivals() if each.content in new}
        return self._reader.parts([*paths.values()]) if paths else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def _arrivals(self) -> list[Arrival]:
        return arrivals(self._options.paths, time.time_ns(), self._options.settle_ns)

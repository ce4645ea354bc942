"""The format `mqproto`: a query sees what the captures hold, in any session, wherever the captures are."""

from __future__ import annotations

import gzip
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import StructType

from mqproto.base.errors import UsageError
from mqproto.captures.files.frame import NANOSECONDS, CaptureError, Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.tcp import ACK, Endpoint, Segment, encode_frame
from mqproto.captures.packets import content_of
from mqproto.captures.pipeline.datasource import SEGMENTS, TOLD, CaptureSource
from mqproto.captures.pipeline.source.files import look_at, mapped
from mqproto.captures.pipeline.source.scan import readings
from mqproto.captures.pipeline.source.segments import segments
from tests.captures.frames import fragments_of
from tests.conformance import ROOT

SAMPLES = ROOT / "captures" / "samples"


def segment_rows(path: Path) -> list[tuple[object, ...]]:
    """Return the rows that the reader of single frames yields, up to the first damaged place."""
    ip = IpReader()
    rows: list[tuple[object, ...]] = []
    with suppress(CaptureError):
        for frame in read_capture(path):
            content = content_of(frame, ip)
            if isinstance(content, Segment):
                place = (str(path), frame.offset, frame.number, frame.time_ns, frame.interface.name)
                ends = (*content.source, *content.destination)
                numbers = (content.sequence_number, content.acknowledgment_number, content.flags)
                rows.append((*place, *ends, *numbers, len(content.payload), content.payload))
    return rows


SEGMENT_COLUMNS = (
    "file, offset, frame, time_ns, interface_name, source, source_port, destination, destination_port, "
    "sequence, acknowledgment, flags, size, payload"
)


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return [
        tuple(bytes(one) if isinstance(one, bytearray) else one for one in row) for row in frame.collect()
    ]


def only(names: str) -> StructType:
    """Return the schema of some columns of segments, given as names separated by ", "."""
    there = from_arrow_schema(SEGMENTS)
    return StructType([there[name] for name in names.split(", ")])


@pytest.mark.xdist_group("spark")
def test_a_query_sees_the_segments_of_all_files_in_however_many_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    paths = [SAMPLES / "three-hop.pcapng", SAMPLES / "pings.pcapng"]
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(paths[0].read_bytes()[:-5])

    reader = spark.read.format("mqproto").option("rows", "segments").option("rangeBytes", "4096")
    wanted = reader.schema(only(f"{SEGMENT_COLUMNS}, time"))
    frame = wanted.load([paths[0].as_uri(), str(paths[1])])
    found = sorted(rows(frame.withColumn("task", spark_partition_id())))
    assert len({row[15] for row in found}) > 2
    assert [row[:14] for row in found] == sorted(segment_rows(paths[0]) + segment_rows(paths[1]))
    assert all(row[14].timestamp() == row[3] // 1000 / 10**6 for row in found)  # type: ignore[attr-defined, operator]

    with pytest.raises(PySparkException, match=r"cut\.pcapng: byte \d+: the file ends"):
        reader.load(str(cut)).count()
    lenient = CaptureSource({"path": str(cut), "rows": "segments", "mode": "permissive"}).reader(StructType())
    batches = [batch for part in lenient.partitions() for batch in lenient.read(part)]
    assert sum(batch.num_rows for batch in batches) == len(segment_rows(cut))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "no capture is named"),
        (
            {"path": "x", "rows": "gaps"},
            "rows 'gaps': segments, files; mqproto.captures.spark.read has tables",
        ),
        ({"path": "x", "rangeBytes": "0"}, "rangeBytes '0': a number of bytes"),
        ({"path": "x", "mode": "DROPMALFORMED"}, "mode 'DROPMALFORMED': FAILFAST stops at damage"),
        ({"path": "x", "mode": "PERMISSIVE"}, "x: byte 0: No such file or directory$"),
        ({"path": "x"}, "x: byte 0: No such file or directory; mode=PERMISSIVE reads what there is"),
    ],
)
def test_an_option_that_says_nothing_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        CaptureSource(options).reader(StructType()).partitions()


def test_columns_are_those_of_a_schema_and_payloads_come_only_where_one_names_them() -> None:
    source = CaptureSource({"path": str(SAMPLES / "window.pcapng")})
    assert "payload" not in source.schema().names
    reader = source.reader(StructType().add("payload", "binary").add("file", "string"))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert {tuple(batch.schema.names) for batch in batches} == {("payload", "file")}  # type: ignore[union-attr]
    for name, kind, reason in (
        ("frames", "long", "schema: segments have no 'frames', but file, offset, frame"),
        ("frame", "string", "schema: frame is bigint, not string"),
    ):
        with pytest.raises(UsageError, match=reason):
            source.reader(StructType().add(name, kind))


def test_files_are_rows_whether_they_can_be_read_or_not(tmp_path: Path) -> None:
    whole = tmp_path / "net_00001_20261122083000.pcapng"
    whole.write_bytes((SAMPLES / "pings.pcapng").read_bytes())
    (tmp_path / "other.pcap").write_text("no capture")
    reader = CaptureSource({"path": str(tmp_path), "rows": "files"}).reader(StructType())
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]  # type: ignore[union-attr]
    assert [(row["file"], row["form"]) for row in found] == [
        (str(whole), "pcapng"),
        (str(tmp_path / "other.pcap"), None),
    ]
    assert found[0]["series"] == str(tmp_path / "net.pcapng")
    assert found[0]["first_ns"] == next(iter(read_capture(whole))).time_ns
    assert found[1]["damage"].startswith("byte 0: no capture")


def capture(path: Path, count: int) -> Path:
    """Write a capture with `count` segments."""
    with path.open("wb") as file, PcapngWriter(file) as writer:
        for number in range(count):
            writer.write(Frame(number, frame_of(b"some")))
    return path


def test_a_stream_says_the_same_of_the_same_offsets_and_no_more_files_at_a_time_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [capture(tmp_path / f"{number}.pcapng", number + 1) for number in range(3)]
    hour_later_ns = time.time_ns() + 3_600 * NANOSECONDS
    monkeypatch.setattr(time, "time_ns", lambda: hour_later_ns)
    options = {"path": str(tmp_path), "rows": "segments"}
    reader = CaptureSource(options | {"maxFilesPerTrigger": "1"}).streamReader(StructType())
    assert reader.getDefaultReadLimit() == ReadMaxFiles(1)
    reader.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
    later = capture(tmp_path / "3.pcapng", 4)

    def told(reader: Any, start: dict[str, list[str]], end: dict[str, list[str]]) -> list[str]:
        batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
        return [Path(row["file"]).name for batch in batches for row in batch.to_pylist()]

    start = reader.initialOffset()
    for number, path in enumerate(paths):
        end = reader.latestOffset(start, ReadMaxFiles(1))
        assert told(reader, start, end) == [path.name] * (number + 1)
        # Whatever happens to it now: its content was told, and is told of these offsets.
        (path.touch, partial(path.chmod, 0o600), partial(pack, path))[number]()
        name = path.name if path.exists() else f"{path.name}.gz"
        again = CaptureSource(options).streamReader(StructType())
        assert told(again, start, end) == [name] * (number + 1)
        (tmp_path / name).rename(tmp_path / f"moved-{name}")
        start = end
    assert reader.latestOffset(start, ReadMaxFiles(1)) == start
    unlimited = CaptureSource(options).streamReader(StructType())
    end = unlimited.latestOffset(start, ReadAllAvailable())
    assert told(unlimited, start, end) == [later.name] * 4
    # What is no longer there need not be remembered, once something new is.
    (tmp_path / "moved-0.pcapng").unlink()
    assert unlimited.latestOffset(end, ReadAllAvailable()) == end
    capture(tmp_path / "4.pcapng", 5)
    last = unlimited.latestOffset(end, ReadAllAvailable())
    assert len(last[TOLD]) == len(end[TOLD]) == 4
    with pytest.raises(UsageError, match="this checkpoint is of an earlier version"):
        unlimited.latestOffset({"changed_ns": 0}, ReadAllAvailable())


def pack(path: Path) -> None:
    """Pack a file as gzip does."""
    with gzip.open(f"{path}.gz", "wb") as packed:
        packed.write(path.read_bytes())
    path.unlink()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "no capture is named"),
        ({"path": "s3://some/where", "rows": "segments"}, "a stream watches folders of this machine"),
        ({"path": ".", "rows": "files", "settleSeconds": "-1"}, "settleSeconds '-1': a number of seconds"),
        (
            {"path": ".", "rows": "files", "maxFilesPerTrigger": "0"},
            "maxFilesPerTrigger '0': a number of files",
        ),
    ],
)
def test_a_stream_that_cannot_be_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        CaptureSource(options).streamReader(StructType())


@pytest.mark.xdist_group("spark")
def test_a_stream_of_rotated_files_has_each_segment_once(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "rotated"
    folder.mkdir()
    for number in range(3):
        capture(folder / f"run_{number:05d}_2026112208300{number}.pcapng", 2 + number)
    sizes: list[int] = []
    stream = spark.readStream.format("mqproto").option("rows", "segments").schema("frame long, file string")
    stream = stream.option("maxFilesPerTrigger", "1").option("settleSeconds", "1")
    query = (
        stream.load(str(folder))
        .writeStream.foreachBatch(lambda batch, _: sizes.append(batch.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        while sum(sizes) < 9:
            assert not query.awaitTermination(1)
    finally:
        query.stop()
    assert sum(sizes) == 9
    assert max(sizes) < 9


def test_payloads_that_do_not_lie_in_the_file_have_their_place_in_the_column(tmp_path: Path) -> None:
    path = tmp_path / "fragments.pcapng"
    whole = [frame_of(b"first"), *fragments_of(frame_of(b"in two pieces")), frame_of(b""), frame_of(b"last")]
    with path.open("wb") as opened, PcapngWriter(opened) as writer:
        for data in whole:
            writer.write(Frame(0, data))
    file = look_at(str(path))
    (reading,) = readings(file)
    with mapped(file) as source:
        found = segments(reading, source.data)
        column = found.payloads(source.data, np.arange(4))
        assert column.to_pylist() == [b"first", b"in two pieces", b"", b"last"]
        assert found.payloads(source.data, np.array([2, 1])).to_pylist() == [b"", b"in two pieces"]


def frame_of(payload: bytes) -> bytes:
    ends = Endpoint("10.0.0.1", 49152), Endpoint("10.0.0.2", 1801)
    return encode_frame(Segment(*ends, 1, 1, ACK, 100, b"", payload), 7)

"""The format `mqproto`: what a query sees is what the captures say, in whoever's session, wherever they lie."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
from contextlib import redirect_stdout, suppress
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import StructType

from mqproto.base.errors import UsageError
from mqproto.captures.files.frame import NANOSECONDS, CaptureError, Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.tcp import ACK, Endpoint, Segment, encode_frame
from mqproto.captures.packets import content_of, read_packets
from mqproto.captures.pipeline.datasource import TOLD, CaptureSource
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.run.job import analyse
from mqproto.captures.pipeline.source.files import look_at, mapped
from mqproto.captures.pipeline.source.scan import read_plan
from mqproto.captures.pipeline.source.segments import segments
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.frames import fragments_of
from tests.captures.pipeline.objects import BUCKET, ObjectStore
from tests.captures.pipeline.samples import elsewhere
from tests.conformance import ROOT
from tests.test_readme import blocks, how_to

SAMPLES = ROOT / "captures" / "samples"
PROGRAM_TIMEOUT_S = 200


def segment_rows(path: Path) -> list[tuple[object, ...]]:
    """What the reader of single frames says, up to damage."""
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
PACKET_COLUMNS = (
    "file, number, frame, first_frame, file_offset, time_ns, source_address, source_port, connection, position, "
    "size_bytes"
)


def packet_rows(path: Path, name: str) -> list[tuple[object, ...]]:
    """What the reader of single packets says, up to damage."""
    found = []
    with suppress(CaptureError):
        for seen in read_packets(path):
            found.append(seen)
    return [
        (
            *(name, seen.number, seen.frame, seen.first_frame, seen.file_offset, seen.time_ns),
            *(*seen.source, None if seen.connection < 0 else seen.connection, seen.position, len(seen.data)),
        )
        for seen in found
    ]


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return [
        tuple(bytes(one) if isinstance(one, bytearray) else one for one in row) for row in frame.collect()
    ]


@pytest.mark.xdist_group("spark")
def test_a_query_sees_a_table_as_one_run_left_it(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    for system, name in enumerate(("gap-held", "window"), 1):
        analyse([str(elsewhere(name, tmp_path, system))], Tables(out), LocalEngine())
    for table, run in (("histories", None), ("hops", 1)):
        reader = spark.read.format("mqproto").option("rows", table)
        found = (reader.option("run", str(run)) if run else reader).load(out)
        tables = Tables(out, run)
        told = [row.asDict(recursive=True) for row in found.collect()]
        assert sorted(map(repr, told)) == sorted(map(repr, tables.read(table).to_pylist()))
        assert len(told) == tables.rows(table)
        assert Tables(out).rows(table) > Tables(out, 1).rows(table)


@pytest.mark.xdist_group("spark")
def test_a_query_sees_the_segments_of_all_files_in_however_many_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    paths = [SAMPLES / "three-hop.pcapng", SAMPLES / "pings.pcapng"]
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(paths[0].read_bytes()[:-5])

    reader = spark.read.format("mqproto").option("rows", "segments").option("rangeBytes", "4096")
    frame = reader.option("columns", f"{SEGMENT_COLUMNS}, time").load([paths[0].as_uri(), str(paths[1])])
    found = sorted(rows(frame.withColumn("task", spark_partition_id())))
    assert len({row[15] for row in found}) > 2
    assert [row[:14] for row in found] == sorted(segment_rows(paths[0]) + segment_rows(paths[1]))
    assert all(row[14].timestamp() == row[3] // 1000 / 10**6 for row in found)  # type: ignore[attr-defined, operator]

    with pytest.raises(PySparkException, match=r"cut\.pcapng: byte \d+: the file ends"):
        reader.load(str(cut)).count()
    lenient = CaptureSource({"path": str(cut), "rows": "segments", "mode": "permissive"}).reader(StructType())
    batches = [batch for part in lenient.partitions() for batch in lenient.read(part)]
    assert sum(batch.num_rows for batch in batches) == len(segment_rows(cut))  # type: ignore[union-attr]


@pytest.mark.xdist_group("spark")
def test_a_query_sees_the_packets_of_objects_as_one_reader_sees_them(
    spark: SparkSession, objects: ObjectStore
) -> None:
    expected = []
    for name in ("three-hop.pcapng", "pings.pcapng"):
        uri = objects.put(f"packets/day 1/{name}", (SAMPLES / name).read_bytes())
        expected += packet_rows(SAMPLES / name, uri)
    reader = spark.read.format("mqproto").option("columns", PACKET_COLUMNS).option("rangeBytes", "10000")
    frame = reader.load(f"s3://{BUCKET}/packets/day*/*.pcapng")
    assert sorted(rows(frame), key=str) == sorted(expected, key=str)
    assert {"kind", "label"} < set(CaptureSource({"path": f"s3://{BUCKET}/packets"}).schema().names)


STAGES = """
from mqproto.captures.pipeline.engines.sparkengine import SparkEngine
from tests.captures.pipeline.engines.test_engine import EXCHANGES, SOME, expected, taken

engine = SparkEngine(spark)
assert taken(engine, SOME, EXCHANGES, [5, 2, 4, 0]) == expected(SOME, EXCHANGES, [5, 2, 4, 0])
engine.clear()
"""
"""That rows go from stage to stage there as well."""


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_the_program_of_the_readme_runs_in_ones_own_session_and_on_spark_connect(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = list(blocks(how_to("spark")))
    [place] = [number for number, block in enumerate(page) if block.language == "python spark"]
    program, shown = page[place].text, page[place + 1].text
    monkeypatch.chdir(ROOT)
    with redirect_stdout(StringIO()) as printed:
        exec(program, {})
    assert printed.getvalue().strip() == shown.strip()

    # What py4j shows of a Scala object is its static methods; the port is none of these.
    jvm: Any = spark._jvm
    named = jvm.java.lang.Class.forName("org.apache.spark.sql.connect.service.SparkConnectService$")
    service = named.getField("MODULE$").get(None)
    service.start(spark.sparkContext._jsc.sc())
    done = subprocess.run(
        [sys.executable, "-W", "error", "-"],
        input=program + STAGES,
        env=os.environ | {"SPARK_REMOTE": f"sc://127.0.0.1:{service.localPort()}"},
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == (shown.strip(), 0), done.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "no capture is named"),
        ({"path": "x", "rows": "frames"}, "rows 'frames': packets, segments, files"),
        (
            {"path": "x", "rows": "messages"},
            "rows=messages are rows=histories, of tables that mqproto analyse",
        ),
        (
            {"path": "x", "rows": "gaps", "paths": '["x", "y"]'},
            "rows=gaps are of one folder of tables, and not of 2",
        ),
        ({"path": "x", "rows": "files", "columns": "file, payload"}, "columns: files have no 'payload', but"),
        ({"path": "x", "rangeBytes": "0"}, "rangeBytes '0': a number of bytes"),
        ({"path": "x", "mode": "DROPMALFORMED"}, "mode 'DROPMALFORMED': FAILFAST stops at damage"),
        ({"path": "x", "mode": "PERMISSIVE"}, "x: byte 0: No such file or directory$"),
        ({"path": "x"}, "x: byte 0: No such file or directory; mode=PERMISSIVE reads what there is"),
    ],
)
def test_an_option_that_says_nothing_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        CaptureSource(options).reader(StructType()).partitions()


def test_what_costs_most_comes_only_where_it_is_asked_for() -> None:
    for kind, dear in (("packets", "body_text"), ("segments", "payload")):
        assert dear not in CaptureSource({"path": "x", "rows": kind}).schema().names
        assert CaptureSource({"path": "x", "rows": kind, "columns": f"file,{dear}"}).schema().names == [
            "file",
            dear,
        ]


def test_damage_behind_packets_fails_or_ends_them(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcapng"
    path.write_bytes((SAMPLES / "three-hop.pcapng").read_bytes()[:-5])
    options = {"path": str(path), "columns": PACKET_COLUMNS}
    reader = CaptureSource(options).reader(StructType())
    [part] = reader.partitions()
    with pytest.raises(UsageError, match=r"the file ends.*; mode=PERMISSIVE"):
        list(reader.read(part))
    reader = CaptureSource(options | {"mode": "PERMISSIVE"}).reader(StructType())
    [batch] = reader.read(part)
    assert isinstance(batch, pa.RecordBatch)
    assert [tuple(row.values()) for row in batch.to_pylist()] == packet_rows(path, str(path))


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
    """One with so many segments."""
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
    """As gzip does."""
    with gzip.open(f"{path}.gz", "wb") as packed:
        packed.write(path.read_bytes())
    path.unlink()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "no capture is named"),
        ({"path": "."}, "a stream has rows=segments or rows=files"),
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
    stream = spark.readStream.format("mqproto").option("rows", "segments").option("columns", "file, frame")
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
    (reading,) = read_plan(file)
    with mapped(file) as source:
        found = segments(reading, source.data)
        column = found.payloads(source.data, np.arange(4))
        assert column.to_pylist() == [b"first", b"in two pieces", b"", b"last"]
        assert found.payloads(source.data, np.array([2, 1])).to_pylist() == [b"", b"in two pieces"]


def frame_of(payload: bytes) -> bytes:
    ends = Endpoint("10.0.0.1", 49152), Endpoint("10.0.0.2", 1801)
    return encode_frame(Segment(*ends, 1, 1, ACK, 100, b"", payload), 7)

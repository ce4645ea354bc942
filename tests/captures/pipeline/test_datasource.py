"""The format `mqcapture`: what a query sees is what the captures say."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from captures.files.frame import CaptureError, Frame
from captures.files.pcap import read_capture
from captures.files.pcapng import PcapngWriter
from captures.net.ip import IpReader
from captures.net.tcp import ACK, Endpoint, Segment, encode_frame
from captures.packets import content_of
from captures.pipeline.datasource import CaptureSource
from captures.pipeline.files import look_at, mapped
from captures.pipeline.scan import read_plan
from captures.pipeline.segments import segments
from mqproto.base.errors import UsageError
from tests.captures.frames import fragments_of

SAMPLES = Path(__file__).parents[3] / "captures" / "samples"


def rows_of(path: Path) -> list[tuple[object, ...]]:
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


@pytest.mark.xdist_group("spark")
def test_a_query_sees_the_segments_of_all_files_in_however_many_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    paths = [SAMPLES / "three-hop.pcapng", SAMPLES / "pings.pcapng"]
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(paths[0].read_bytes()[:-5])

    spark.dataSource.register(CaptureSource)
    reader = spark.read.format("mqcapture").option("payload", "true").option("rangeBytes", "4096")
    frame = reader.load([str(path) for path in paths])
    assert frame.rdd.getNumPartitions() > 2
    place = ["file", "offset", "frame", "time_ns", "interface_name"]
    ends = ["source", "source_port", "destination", "destination_port"]
    table = frame.select(*place, *ends, "sequence", "acknowledgment", "flags", "size", "payload", "time")
    found = sorted(tuple(row) for row in table.collect())
    assert [(*row[:13], bytes(row[13])) for row in found] == sorted(rows_of(paths[0]) + rows_of(paths[1]))
    assert all(row[14].timestamp() == row[3] // 1000 / 10**6 for row in found)

    with pytest.raises(PySparkException, match=r"cut\.pcapng: byte \d+: the file ends"):
        reader.load(str(cut)).count()
    assert reader.option("mode", "permissive").load(str(cut)).count() == len(rows_of(cut))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "no capture is named"),
        ({"path": "x", "payload": "yes"}, "payload 'yes': true or false"),
        ({"path": "x", "rangeBytes": "0"}, "rangeBytes '0': a number of bytes"),
        ({"path": "x", "mode": "DROPMALFORMED"}, "mode 'DROPMALFORMED': FAILFAST stops at damage"),
    ],
)
def test_an_option_that_says_nothing_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        CaptureSource(options).reader(StructType())


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

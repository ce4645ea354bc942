"""From captures to the table of packets: whatever way they are cut up, it is what one reader finds."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from captures.decode.row import PacketRow, row_of
from captures.decode.sight import sight_of
from captures.packets import PacketReader
from captures.pcap import read_capture
from captures.pipeline.job import Result, analyse
from captures.pipeline.runner import LocalRunner
from captures.pipeline.tables import Tables

SAMPLES = Path(__file__).parents[3] / "captures" / "samples"
OF_OTHERS = {
    "source",
    "destination",
    "session_number",
    "session_recoverable_number",
    "received_packets",
    "received_count",
    "saved_packets",
    "saved_count",
    "queue_name",
    "ended_packets",
    "ended_count",
    "findings",
}
"""What a packet does not say by itself."""


def expected(reader: PacketReader) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in asdict(row_of(sight_of(seen))).items() if name not in OF_OTHERS}
        for seen in reader
    ]


def found(tables: Tables) -> list[dict[str, Any]]:
    rows = tables.read("packets").sort_by("row_id").to_pylist()
    names = set(PacketRow.__dataclass_fields__) - OF_OTHERS
    for row in rows:
        row["time"] = row["time"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        row["number"] = row["number"] if row["framed"] else None
    return [{name: row[name] for name in row if name in names} for row in rows]


def analysed(paths: list[Path], range_bytes: int) -> tuple[list[dict[str, Any]], Result]:
    with tempfile.TemporaryDirectory() as folder:
        tables = Tables(Path(folder) / "out")
        result = analyse([str(path) for path in paths], tables, LocalRunner(), range_bytes=range_bytes)
        return found(tables), result


@pytest.mark.parametrize("range_bytes", [1_500, 20_000, 64 << 20])
@pytest.mark.parametrize("name", sorted(path.stem for path in SAMPLES.glob("*.pcapng")))
def test_the_table_of_packets_is_what_decode_shows(name: str, range_bytes: int) -> None:
    path = SAMPLES / f"{name}.pcapng"
    reader = PacketReader(read_capture(path))
    rows, result = analysed([path], range_bytes)
    assert rows == expected(reader)
    (series,) = result.series
    assert series.totals == reader.totals

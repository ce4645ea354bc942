"""From captures to the table of packets: whatever way they are cut up, it is what one reader finds."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captures import spoil
from captures.decode.row import PacketRow, row_of
from captures.decode.sight import sight_of
from captures.frame import Frame
from captures.packets import PacketReader
from captures.pcap import read_capture
from captures.pcapng import PcapngWriter
from captures.pipeline.job import Result, analyse
from captures.pipeline.runner import LocalRunner
from captures.pipeline.tables import Tables
from tests.captures.pipeline.worlds import worlds

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


@pytest.mark.parametrize("range_bytes", [1_500, 64 << 20])
@pytest.mark.parametrize("name", sorted(path.stem for path in SAMPLES.glob("*.pcapng")))
def test_the_table_of_packets_is_what_decode_shows(name: str, range_bytes: int) -> None:
    path = SAMPLES / f"{name}.pcapng"
    reader = PacketReader(read_capture(path))
    rows, result = analysed([path], range_bytes)
    assert rows == expected(reader)
    (series,) = result.series
    assert series.totals == reader.totals


def in_files(folder: Path, frames: Sequence[Frame], cuts: Sequence[int]) -> list[Path]:
    """A rotating capture: frames in files that follow one another."""
    edges = [0, *sorted(cut % (len(frames) + 1) for cut in cuts), len(frames)]
    paths = []
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        path = folder / f"run_{number:05d}_20261122083000.pcapng"
        with path.open("wb") as file, PcapngWriter(file) as capture:
            for frame in frames[start:end]:
                capture.write(frame)
        paths.append(path)
    return paths


def expected_in_files(paths: Sequence[Path]) -> tuple[list[dict[str, Any]], PacketReader]:
    """What one reader finds in all files one behind the other; frames counted over all of them."""
    frames_before = itertools.accumulate((len(list(read_capture(path))) for path in paths), initial=0)
    reader = PacketReader(
        frame._replace(number=before + frame.number)
        for path, before in zip(paths, frames_before, strict=False)
        for frame in read_capture(path)
    )
    return expected(reader), reader


def counted_over_all(
    tables: Tables, paths: Sequence[Path], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The rows, with their frames counted over all files."""
    places = tables.read("packets").sort_by("row_id").select(["file", "frame_file"]).to_pylist()
    before = dict(
        zip(
            map(str, paths),
            itertools.accumulate((len(list(read_capture(path))) for path in paths), initial=0),
            strict=False,
        )
    )
    for row, place in zip(rows, places, strict=True):
        row["frame"] += before[place["frame_file"] or place["file"]]
        row["first_frame"] += before[place["file"]]
    return rows


FRAMES = {path.stem: list(read_capture(path)) for path in sorted(SAMPLES.glob("*.pcapng"))}
SHORT = [name for name, frames in FRAMES.items() if len(frames) < 150]
cuts = st.lists(st.integers(0, 1_000), max_size=3)
sizes = st.sampled_from([400, 3_000, 64 << 20])


def assert_read_as_one(frames: Sequence[Frame], cuts: Sequence[int], range_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = in_files(folder, [frame._replace(number=0, offset=0) for frame in frames], cuts)
        tables = Tables(folder / "out")
        result = analyse([str(folder)], tables, LocalRunner(), range_bytes=range_bytes)
        wanted, reader = expected_in_files(paths)
        if wanted:
            assert counted_over_all(tables, paths, found(tables)) == wanted
        else:
            assert tables.manifest.rows("packets") == 0
        assert [series.totals for series in result.series] == [reader.totals]


@given(worlds(), cuts, sizes)
@settings(max_examples=settings().max_examples // 10)
def test_a_capture_in_several_files_is_read_as_one(
    frames: list[Frame], cuts: list[int], range_bytes: int
) -> None:
    assert_read_as_one(frames, cuts, range_bytes)


@given(
    st.sampled_from(SHORT),
    st.integers(0, 1_000),
    st.sampled_from([0, 0, 3]),
    st.sampled_from([0, 5]),
    st.sampled_from([0, 10]),
    cuts,
    sizes,
)
@settings(max_examples=settings().max_examples // 20)
def test_so_is_one_with_late_repeated_and_lost_frames(
    name: str, seed: int, lose: int, repeat: int, delay: int, cuts: list[int], range_bytes: int
) -> None:
    late = spoil.delayed(FRAMES[name], delay, seed)
    frames = list(spoil.lost(spoil.repeated(late, repeat, seed), lose, seed))
    assert_read_as_one(frames, cuts, range_bytes)

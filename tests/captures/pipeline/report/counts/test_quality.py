"""The capture points in tables are those that `mqproto decode --summary` counts, with the same clocks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mqproto.captures.decode.views.quality import lacks
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.packets import PacketReader
from mqproto.captures.pipeline.report.gather import gather
from mqproto.captures.pipeline.report.page import page
from mqproto.captures.pipeline.report.summary import as_json, lines
from mqproto.captures.points import Point
from tests.captures.pipeline.report.tables import SAMPLES, Rows, capture, made_up, sample, stream
from tests.captures.pipeline.report.test_page import read


@pytest.mark.parametrize("name", ["loss-and-reordering", "hostile"])
def test_the_tables_have_what_the_reader_of_the_capture_counts(name: str, tmp_path: Path) -> None:
    reader = PacketReader(read_capture(SAMPLES / f"{name}.pcapng"))
    for _ in reader:
        pass
    [seen] = reader.points.points.found.values()
    [found] = gather(sample(name, tmp_path)).points
    assert replace(found, name="", by_file=False, snaplen=0) == replace(seen, name="", snaplen=0)


def two_points() -> dict[str, Rows]:
    """Return rows for the halves of a TAP in two series. The first series has one more interface."""
    clock = {"reference_series": "a", "reference_interface": 0, "packets": 5}
    return {
        "captures": [
            capture(series="a", file="a-1", frames=7),
            capture(series="a", file="a-2", frames=2, cut_frames=1),
        ],
        "streams": [
            stream(0, series="a"),
            stream(0, series="a", client=False, data_bytes=0, from_start=False),
            stream(1, series="a", interface=1),
            stream(1, series="a", interface=1, client=False, missing_bytes=9, gap_count=2),
            stream(1, series="a", source_port=5, destination_port=6),
        ],
        "clocks": [
            clock | {"series": "a", "interface": 0, "offset_ns": 0, "uncertainty_ns": 0},
            clock | {"series": "a", "interface": 1, "offset_ns": 3_000_000, "uncertainty_ns": 2_000},
        ],
    }


def test_each_point_has_its_own_and_the_frames_of_its_files(tmp_path: Path) -> None:
    lossy, one_sided = gather(made_up(tmp_path / "out", two_points())).points
    assert (lossy.name, lossy.missing_bytes, lossy.gaps, lossy.connections) == ("a, interface 1", 9, 2, 1)
    assert (one_sided.name, one_sided.one_sided, one_sided.connections) == ("a, interface 0", 1, 1)
    assert (one_sided.frames, one_sided.cut_frames, one_sided.by_file) == (9, 1, True)
    assert lossy.clock is not None
    assert (lossy.clock.reference, lossy.clock.offset_ns) == ("a, interface 0", 3_000_000)


def test_the_page_begins_with_it_and_says_what_cannot_be_known(tmp_path: Path) -> None:
    facts = gather(made_up(tmp_path / "out", two_points()))
    text = page(facts)
    assert text.index('id="quality"') < text.index('id="search"')
    said = read(text).text
    terminal = "\n".join(lines(facts))
    for point in facts.points:
        for lack in lacks(point):
            assert lack.fact in said
            assert lack.so in said
            assert lack.fact in " ".join(terminal.split())
            assert lack.so in " ".join(terminal.split())
    assert "3 ms ± 2 µs" in said
    assert [each["point"] for each in as_json(facts)["points"]] == ["a, interface 1", "a, interface 0"]


def test_other_traffic_has_no_quality(tmp_path: Path) -> None:
    rows: dict[str, Rows] = {
        "captures": [capture(frames=1)],
        "streams": [stream(0, source_port=5, destination_port=6, missing_bytes=99)],
    }
    assert gather(made_up(tmp_path / "out", rows)).points == [Point("day.pcapng", frames=1, by_file=True)]

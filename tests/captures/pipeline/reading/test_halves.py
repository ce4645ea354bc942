"""The halves of a TAP in two files: the tables contain what both halves show together, whichever file came first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from mqproto.captures import spoil
from mqproto.captures.files.frame import NANOSECONDS, Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.run.job import Wanted, analyse
from mqproto.captures.pipeline.tables.tables import Tables
from mqproto.captures.spoil.points import WAYS
from tests.captures.pipeline.contents import rows_of
from tests.captures.pipeline.objects import ObjectStore
from tests.captures.pipeline.samples import FRAMES, renamed
from tests.captures.truth.kinds import apart
from tests.captures.truth.saying import decoded, written


def halves_of(name: str, offset_s: int) -> list[list[Frame]]:
    """Return the two halves of a sample as a TAP with two clocks would have caught them."""
    frames = spoil.skewed(spoil.halved(FRAMES[name]), offset_s * NANOSECONDS, 0, {1})
    return apart(list(frames))


def in_files(folder: Path, halves: Sequence[Sequence[Frame]], parts: int = 1) -> list[list[Path]]:
    """Write both halves as rotating captures. Return the files of each half."""
    folder.mkdir()
    paths = []
    for way, frames in zip(("east", "west"), halves, strict=True):
        size = -(-len(frames) // parts)
        paths.append(
            [
                written(folder / f"{way}_{number:05d}_20261122083000.pcapng", frames[at : at + size])
                for number, at in enumerate(range(0, len(frames), size))
            ]
        )
    return paths


def analysed(folder: Path, *runs: Sequence[Path]) -> Tables:
    """Return the tables that result from some runs."""
    tables = Tables(folder)
    for paths in runs:
        analyse([str(path) for path in paths], tables, LocalEngine(), Wanted(range_bytes=1 << 12))
    return tables


@pytest.mark.long
@pytest.mark.parametrize(("name", "offset_s"), [("three-hop", 0), ("loss-and-reordering", -3)])
def test_two_files_say_what_decode_says_of_them(name: str, offset_s: int, tmp_path: Path) -> None:
    halves = halves_of(name, offset_s)
    paths = in_files(tmp_path / "two", halves)
    tables = analysed(tmp_path / "tables", [path for (path,) in paths])
    told = decoded([list(read_capture(path)) for (path,) in paths])
    assert [
        (row["number"], row["source_address"], row["connection"], row["time_ns"], row["ahead"])
        for row in tables.read("packets").to_pylist()
    ] == [
        (seen.number, seen.source.host, seen.connection, seen.time_ns, seen.ahead)
        for seen in (sight.seen for sight in told.sights)
    ]
    assert Counter((row["code"], row["text"]) for row in tables.read("findings").to_pylist()) == Counter(
        (finding.code, finding.text) for finding in told.findings
    )
    assert {row["file"]: row["frames"] for row in tables.read("captures").to_pylist()} == {
        str(path): len(half) for (path,), half in zip(paths, halves, strict=True)
    }
    whole = analysed(tmp_path / "of one", [written(tmp_path / "one.pcapng", FRAMES[name])])
    assert outcomes(tables) == outcomes(whole)


def outcomes(tables: Tables) -> dict[str, str]:
    """Return each message's outcome."""
    return {row["message"]: row["outcome"] for row in tables.read("histories").to_pylist()}


def test_each_row_leads_to_its_frame_in_its_own_file(tmp_path: Path) -> None:
    paths = in_files(tmp_path / "two", halves_of("three-hop", 2), parts=2)
    frames = {
        (str(path), frame.number): frame for half in paths for path in half for frame in read_capture(path)
    }
    tables = analysed(tmp_path / "tables", [path for half in paths for path in half])
    rows = tables.read("packets").to_pylist()
    assert {row["file"] for row in rows} == {str(path) for half in paths for path in half}
    for row in rows:
        first = frames[row["file"], row["first_frame"]]
        last = frames[row["frame_file"] or row["file"], row["frame"]]
        assert first.offset == row["file_offset"]
        # Two clocks are one now, within a round trip.
        ahead_ns = 2 * NANOSECONDS if last.interface.name == WAYS[1] else 0
        assert abs(last.time_ns - ahead_ns - row["time_ns"]) < NANOSECONDS // 100


@pytest.mark.long
def test_halves_that_come_run_by_run_make_the_tables_of_one_run(tmp_path: Path) -> None:
    (east, more_east), (west, more_west) = in_files(tmp_path / "two", halves_of("three-hop", -3), parts=2)
    at_once = rows_of(analysed(tmp_path / "at once", [west, more_west, east, more_east]))
    assert rows_of(analysed(tmp_path / "one by one", [west], [east], [more_west], [more_east])) == at_once
    tables = analysed(tmp_path / "in turn", [east, more_east], [west, more_west])
    assert rows_of(tables) == at_once
    again = analyse([str(tmp_path / "two")], tables, LocalEngine())
    assert (again.series, len(again.known)) == ([], 4)
    assert rows_of(tables) == at_once


def test_halves_may_be_objects(objects: ObjectStore, tmp_path: Path) -> None:
    paths = [path for (path,) in in_files(tmp_path / "two", halves_of("three-hop", 2))]
    uris = [objects.put(f"tap/{path.name}", path.read_bytes()) for path in paths]
    tables = Tables(tmp_path / "tables")
    [series] = analyse(uris, tables, LocalEngine()).series
    assert len(series.halves) == 2
    assert outcomes(tables) == outcomes(analysed(tmp_path / "of files", paths))


@pytest.mark.long
def test_two_captures_of_one_traffic_are_no_halves(tmp_path: Path) -> None:
    east, _ = halves_of("three-hop", 0)
    tables = analysed(
        tmp_path / "tables",
        [
            written(tmp_path / "one.pcapng", east),
            written(tmp_path / "same.pcapng", east[1:]),
            written(tmp_path / "other.pcapng", spoil.halved(map(renamed, FRAMES["window"]))),
        ],
    )
    assert len(tables.read("captures").column("series").unique()) == 3

"""A growing series: files that earlier runs have read are not read again, wherever they are by now."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mqproto.captures import spoil
from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcap import zstd
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.reading.growth import FOLDER
from mqproto.captures.pipeline.run import known, work
from mqproto.captures.pipeline.run.job import analyse
from mqproto.captures.pipeline.source.files import CaptureFile
from mqproto.captures.pipeline.tables.parts import parquet_table
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline.contents import rows_of
from tests.captures.pipeline.rotation import in_files
from tests.captures.pipeline.samples import FRAMES, SAMPLES
from tests.captures.pipeline.worlds import SMALL


def test_a_capture_that_is_in_the_tables_already_is_not_read_again(tmp_path: Path) -> None:
    path, moved = tmp_path / "run.pcapng", tmp_path / "elsewhere" / "run.pcapng"
    path.write_bytes((SAMPLES / "resent.pcapng").read_bytes())
    tables = Tables(tmp_path / "out")
    analyse([str(path)], tables, LocalEngine())
    before = rows_of(tables)

    again = analyse([str(path)], tables, LocalEngine())

    assert again.series == []
    assert again.known == [str(path)]
    assert rows_of(Tables(tmp_path / "out")) == before
    moved.parent.mkdir()
    moved.write_bytes(path.read_bytes())
    both = analyse([str(path), str(moved)], tables, LocalEngine())
    assert both.repeated == [(str(moved), str(path))]
    assert rows_of(tables) == before


@pytest.mark.long
def test_of_connections_that_have_long_been_silent_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "SILENT_NS", 5_000)
    frames = []
    for number in range(6):
        talk = TcpConversation(Endpoint("10.0.0.1", 50_000 + number), Endpoint("10.0.0.2", 1801))
        line = [*talk.open(), *talk.send(Side.CLIENT, SMALL)]
        frames += [Frame(1_000_000 * number + 1_000 * at, frame) for at, frame in enumerate(line, 1)]
    paths = in_files(tmp_path, frames, range(5, len(frames), 5))
    at_once, tables = Tables(tmp_path / "at once"), Tables(tmp_path / "out")
    analyse([str(path) for path in paths], at_once, LocalEngine())
    for path in paths:
        analyse([str(path)], tables, LocalEngine())
        saved = [name for name in tables.kept.files if name.startswith(FOLDER) and "-open-" in name]
        assert 1 <= sum(parquet_table(tables.store.path(name)).num_rows for name in saved) <= 2
    assert len(tables.read("sessions")) == 6
    assert rows_of(tables) == rows_of(at_once)


@pytest.mark.long
@pytest.mark.parametrize("is_spoilt", [False, True])
def test_files_go_on_from_earlier_ones_that_are_gone_and_nobody_looks_for_those(
    is_spoilt: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A series continues after files that are gone, and those files are not looked for.

    The files of a ring buffer are gone, but repetitions are still compared with what they contained.
    """

    def fail(file: CaptureFile) -> bool:
        raise AssertionError(file.path)

    monkeypatch.setattr(known, "is_changed", fail)
    spoilt = spoil.repeated(spoil.delayed(FRAMES["resent"], 10), 25)
    frames = [frame._replace(number=0, offset=0) for frame in (spoilt if is_spoilt else FRAMES["window"])]
    at_once, tables = Tables(tmp_path / "at once"), Tables(tmp_path / "out")
    paths = in_files(tmp_path, frames, range(5, len(frames), 16) if is_spoilt else [40, 70, 100])
    analyse(list(map(str, paths)), at_once, LocalEngine())
    for path in paths:
        analyse([str(path)], tables, LocalEngine())
        path.unlink()
    assert rows_of(tables) == rows_of(at_once)


@pytest.mark.long
def test_a_file_that_comes_before_those_that_were_read_has_all_read_again(tmp_path: Path) -> None:
    frames = [frame._replace(number=0, offset=0) for frame in FRAMES["window"]]
    folder = tmp_path / "captures"
    folder.mkdir()
    first, second, third = in_files(folder, frames, [60, 100])
    at_once, tables = Tables(tmp_path / "at once"), Tables(tmp_path / "out")
    analyse([str(folder)], at_once, LocalEngine())
    for path in (first, third, second):
        (series,) = analyse([str(path)], tables, LocalEngine()).series
    assert (len(series.files), series.new) == (3, 3)
    assert rows_of(tables) == rows_of(at_once)


def test_if_those_are_gone_it_is_a_series_of_its_own(tmp_path: Path) -> None:
    frames = [frame._replace(number=0, offset=0) for frame in FRAMES["window"]]
    first, second, third = in_files(tmp_path, frames, [60, 100])
    tables = Tables(tmp_path / "out")
    analyse([str(second)], tables, LocalEngine())
    packets = tables.rows("packets")
    second.unlink()

    result = analyse([str(first)], tables, LocalEngine())

    name = str(tmp_path / "run.pcapng")
    assert [series.name for series in result.series] == [f"{name} (2)"]
    assert tables.rows("packets") == packets + result.series[0].totals.packets
    assert analyse([str(first)], tables, LocalEngine()).series == []
    (grown,) = analyse([str(third)], tables, LocalEngine()).series
    assert grown.name == f"{name} (2)"
    assert [file.path for file in grown.files] == [str(first), str(third)]
    assert tables.rows("packets") == packets + grown.totals.packets


def test_a_file_that_was_not_yet_whole_is_read_again_when_it_is(tmp_path: Path) -> None:
    frames = [frame._replace(number=0, offset=0) for frame in FRAMES["window"]]
    folder = tmp_path / "captures"
    folder.mkdir()
    _, second = in_files(folder, frames, [60])
    whole = second.read_bytes()
    at_once, tables = Tables(tmp_path / "at once"), Tables(tmp_path / "out")
    analyse([str(folder)], at_once, LocalEngine())
    second.write_bytes(whole[: len(whole) // 2])
    assert analyse([str(folder)], tables, LocalEngine()).series[0].damage
    second.write_bytes(whole)
    analyse([str(folder)], tables, LocalEngine())
    assert rows_of(tables) == rows_of(at_once)


def pack(path: Path, packing: str) -> Path:
    """Compress a file, as the command that tcpdump runs on each finished file would. Return the new path."""
    packed, suffix = (gzip.compress, ".gz") if packing == "gzip" else (zstd.compress, ".zst")
    target = path.with_name(path.name + suffix)
    target.write_bytes(packed(path.read_bytes()))
    return target


def test_a_file_that_is_packed_when_it_has_been_read_counts_once(tmp_path: Path) -> None:
    frames = [frame._replace(number=0, offset=0) for frame in FRAMES["window"]]
    folder = tmp_path / "captures"
    folder.mkdir()
    paths = in_files(folder, frames, [60, 100])
    at_once, tables = Tables(tmp_path / "at once"), Tables(tmp_path / "out")
    analyse([str(folder)], at_once, LocalEngine())
    third = tmp_path / "third"
    paths[2].rename(third)
    analyse([str(folder)], tables, LocalEngine())
    for path in paths[:2]:
        pack(path, "zstd")
        path.unlink()
    third.rename(paths[2])
    result = analyse([str(folder)], tables, LocalEngine())
    assert [(each.new, len(each.files)) for each in result.series] == [(1, 3)]
    assert rows_of(tables) == rows_of(at_once)


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_of_a_file_and_what_it_was_packed_to_one_is_read(packing: str, tmp_path: Path) -> None:
    path = tmp_path / "window.pcapng"
    path.write_bytes((SAMPLES / "window.pcapng").read_bytes())
    packed = pack(path, packing)
    result = analyse([str(tmp_path)], Tables(tmp_path / "out"), LocalEngine())
    assert result.repeated == [(str(packed), str(path))]
    assert [file.path for series in result.series for file in series.files] == [str(path)]


def test_another_capture_by_the_name_of_one_that_was_read_is_read(tmp_path: Path) -> None:
    """A different capture is read, even if it has the name of one that has been read already.

    A ring buffer has started over, and the new file was compressed before a run looked at it.
    """
    path = tmp_path / "window.pcapng"
    path.write_bytes((SAMPLES / "window.pcapng").read_bytes())
    tables = Tables(tmp_path / "out")
    analyse([str(path)], tables, LocalEngine())
    path.write_bytes((SAMPLES / "pings.pcapng").read_bytes())
    packed = pack(path, "gzip")
    path.unlink()
    result = analyse([str(packed)], tables, LocalEngine())
    assert [file.path for series in result.series for file in series.files][-1] == str(packed)
    assert tables.rows("captures") == 2

"""Captures that are stored elsewhere: an object gives the same result as a file.

Only the bytes that are needed are fetched.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from mqproto.base.errors import UsageError
from mqproto.captures.files.frame import CaptureError, Frame
from mqproto.captures.files.pcap import PcapWriter
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.report.gather import gather
from mqproto.captures.pipeline.report.summary import as_json
from mqproto.captures.pipeline.run.job import Wanted, analyse, nothing_new
from mqproto.captures.pipeline.source.files import CaptureFile, inventory, look_at, mapped
from mqproto.captures.pipeline.source.scan import Reading, frames, readings
from mqproto.captures.pipeline.source.storage import Found, absolute, files_at, may_be_there
from mqproto.captures.pipeline.tables.queries import answer
from mqproto.captures.pipeline.tables.tables import Tables, is_there
from tests.captures.pipeline.capture_files import damaged, files, packed
from tests.captures.pipeline.contents import rows_of
from tests.captures.pipeline.objects import BUCKET, ObjectStore
from tests.captures.pipeline.rotation import rotation
from tests.conformance import ROOT

pytestmark = pytest.mark.xdist_group("spark")
SAMPLES = ROOT / "captures" / "samples"


def test_a_name_stands_for_something_or_fits_something_or_is_an_objects(tmp_path: Path) -> None:
    (tmp_path / "day[1].pcap").touch()
    (tmp_path / "gone.pcap").symlink_to(tmp_path / "nowhere")
    names = ("day[1].pcap", "day*.pcap", "", "gone.pcap", "day[1].pca", "night*", "s3://nowhere/day")
    paths = [name if "://" in name else str(tmp_path / name) for name in names]
    assert [may_be_there(path) for path in paths] == [True, True, True, True, False, False, True]


def plan_of(path: str, range_bytes: int) -> list[tuple[Reading, str]] | str:
    """Return a capture's reading plan, without its path, and the capture's damage.

    If the file is not a capture, return the reason instead.
    """
    try:
        file = look_at(path)
    except CaptureError as error:
        return f"{error.offset}: {error.reason}"
    assert file.path == path
    return [
        (
            replace(reading, file=replace(reading.file, path=""), damage=None),
            str(reading.damage).replace(path, ""),
        )
        for reading in readings(file, range_bytes)
    ]


def content(file: CaptureFile, reading: Reading) -> list[object]:
    """Return the frames of a range: their bytes, and the values of their columns."""
    with mapped(file, reading.start, reading.end) as source:
        found = frames(replace(reading, file=file), source.data)
        ends = zip(found.start.tolist(), (found.start + found.size).tolist(), strict=True)
        columns = (found.offset, found.time_ns, found.missing, found.interface)
        return [[source.data[first:end] for first, end in ends], *(column.tolist() for column in columns)]


@settings(max_examples=8)
@given(
    data=files | damaged(files),
    range_bytes=st.sampled_from([64, 500, 3_000, 1 << 20]),
    packing=st.sampled_from(["", "", "", "gzip", "zstd"]),
)
def test_an_object_is_read_as_a_file_of_the_same_bytes(
    data: bytes,
    range_bytes: int,
    packing: str,
    objects: ObjectStore,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    written = packed(data, packing) if packing else data
    path = tmp_path_factory.mktemp("same") / "some.pcapng"
    path.write_bytes(written)
    uri = objects.put("same/some.pcapng", written)
    found = plan_of(uri, range_bytes)
    assert found == plan_of(str(path), range_bytes)
    if not isinstance(found, str):
        there, here = look_at(uri), look_at(str(path))
        for reading, _ in found:
            assert content(there, reading) == content(here, reading)


def large_capture(frame_count: int, frame_bytes: int) -> bytes:
    file = io.BytesIO()
    writer = PcapWriter(file)
    for number in range(frame_count):
        writer.write(Frame(1_700_000_000 * 10**9 + number, number.to_bytes(4, "big") * (frame_bytes // 4)))
    return file.getvalue()


@pytest.mark.long
def test_of_a_large_object_ranges_are_fetched_and_no_whole_one(objects: ObjectStore) -> None:
    data = large_capture(300, 40_000)
    file = look_at(objects.put("large.pcap", data))
    found = readings(file, 2 << 20)
    assert sum(reading.frame_count for reading in found) == 300
    assert len(found) == 6
    del objects.asked[:]
    reading = found[3]
    with mapped(file, reading.start, reading.end) as source:
        assert (len(source.data), source.until) == (len(data), reading.end)
        assert source.data[reading.start : reading.end] == data[reading.start : reading.end]
        assert not any(source.data[: reading.start])
    assert [(one.first, one.last) for one in objects.asked if one.method == "GET"] == [
        (reading.start, reading.end - 1)
    ]
    with mapped(file) as source:  # In several requests.
        assert source.data[:] == data


def test_blocks_that_go_far_beyond_their_range_are_fetched_whole(objects: ObjectStore) -> None:
    data = (SAMPLES / "three-hop.pcapng").read_bytes()
    # A block that nobody knows, larger than what is fetched behind a range at first.
    size = (2 << 20).to_bytes(4, "little")
    data += (0xBAD).to_bytes(4, "little") + size + bytes((2 << 20) - 12) + size
    data += (SAMPLES / "pings.pcapng").read_bytes()
    file = look_at(objects.put("long.pcapng", data))
    whole, ranges = readings(file, 8 << 20), readings(file, 256 << 10)
    assert len(ranges) == 2
    assert [one.damage for one in (*whole, *ranges)] == [None] * 3
    assert sum(one.frame_count for one in ranges) == whole[0].frame_count


def test_folders_and_patterns_have_what_fits_and_names_stand_for_themselves(
    objects: ObjectStore, tmp_path: Path
) -> None:
    names = ["day 1/a.pcapng", "day 1/b.pcapng", "day 2/a.pcapng", "day 2/deeper/c.pcapng", "day[3]/d.pcapng"]
    for name in names:
        objects.put(f"found/{name}", b"some")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"some")
    for root in (f"s3://{BUCKET}/found", f"s3a://{BUCKET}/found", str(tmp_path)):

        def found(pattern: str, root: str = root) -> list[str]:
            every = list(files_at(f"{root}/{pattern}".rstrip("/")))
            assert not any(each.is_meant for each in every)
            return [each.path.removeprefix(f"{root}/") for each in every]

        assert found("") == names
        assert found("day 2") == ["day 2/a.pcapng", "day 2/deeper/c.pcapng"]
        assert found("day ?/a*") == ["day 1/a.pcapng", "day 2/a.pcapng"]
        assert found("day*2") == ["day 2/a.pcapng", "day 2/deeper/c.pcapng"]
        assert found("day [12]/b.pcapng") == ["day 1/b.pcapng"]
        assert found("day[3]") == ["day[3]/d.pcapng"]
        assert found("day {2,1,9}/{a,deeper/c}*") == [names[0], *names[2:4]]
        assert found("{day 1/b,night}*") == [names[1]]
        single = f"{root}/day 1/a.pcapng"
        assert list(files_at(single)) == [Found(single, is_meant=True)]
        with pytest.raises(FileNotFoundError, match="has a name that fits"):
            list(files_at(f"{root}/night*"))


def test_a_file_uri_is_a_path(tmp_path: Path) -> None:
    assert absolute("file:///a/b%20c.pcap") == absolute("file:/a/b c.pcap") == "/a/b c.pcap"
    assert absolute("a.pcap") == str(Path.cwd() / "a.pcap")
    with pytest.raises(UsageError, match="a file of elsewhere: three slashes begin one of this machine"):
        absolute("file://elsewhere/a.pcap")


def test_what_cannot_be_reached_is_said_in_one_line(objects: ObjectStore) -> None:
    objects.put("here.pcap", b"some")
    with pytest.raises(UsageError, match=r"^ftp://host/ cannot be reached: Unrecognized[^\n]*; s3, gs, abfs"):
        inventory(["ftp://host/a.pcap"])
    (absent,) = inventory([f"s3://{BUCKET}/absent.pcap"]).refused
    assert "\n" not in str(absent)
    assert f"s3://{BUCKET}/absent.pcap" in str(absent)


def test_tables_of_objects_are_those_of_files(objects: ObjectStore, tmp_path: Path) -> None:
    path = SAMPLES / "three-hop.pcapng"
    uri = objects.put("tables/three-hop.pcapng", path.read_bytes())
    both = []
    for number, source in enumerate((uri, str(path))):
        tables = Tables(tmp_path / str(number))
        analyse([source], tables, LocalEngine(), Wanted(range_bytes=20_000))
        texts = {}
        for name in tables.names:
            rows = [str(row).replace(source, "the capture") for row in tables.read(name).to_pylist()]
            texts[name] = sorted(rows)
        both.append(texts)
    assert both[0] == both[1]
    assert both[0]["packets"]


@pytest.mark.long
def test_tables_may_be_objects_from_run_to_run(objects: ObjectStore, tmp_path: Path) -> None:
    """The tables may be kept in an object store from one run to the next.

    This covers two runs, what remains of the first one, a reader of the first one's tables, a query, and the removal of
    files that are no longer needed.
    """
    paths = [str(path) for path in rotation(tmp_path / "captures", 2)]
    objects.put("started", b"")
    there = Tables(f"s3a://{BUCKET}/tables/out"), Tables(tmp_path / "out")
    for path in paths:
        for tables in there:
            analyse([path], tables, LocalEngine())
            assert nothing_new(inventory([path]), tables) is not None
    remote, local = there
    assert {name: remote.rows(name) for name in remote.names} == {
        name: local.rows(name) for name in local.names
    }
    assert is_there(remote.folder)
    sql = "SELECT count(*), sum(body_bytes) FROM histories JOIN hops USING (message)"
    assert answer(remote, sql).rows == answer(local, sql).rows
    assert as_json(gather(remote)) == as_json(gather(local))
    files = {file.name for file in remote.store.files()}
    assert not any(name.startswith("_work") for name in files)
    assert Tables(remote.folder, run=1).read("captures")["file"].to_pylist() == paths[:1]
    assert remote.vacuum() == local.vacuum() > 10
    assert rows_of(Tables(remote.folder)) == rows_of(local)

"""From captures to the table of packets: however they are cut, the table has what one reader finds."""

from __future__ import annotations

import itertools
import struct
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings, strategies as st

from mqproto.captures import spoil
from mqproto.captures.decode import Analyst, row_of
from mqproto.captures.decode.analyst import sights
from mqproto.captures.decode.row import KEYS
from mqproto.captures.files.frame import CaptureError, Frame, Interface
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.framing import StreamCount
from mqproto.captures.packets import PacketReader, Totals
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.reading.rows import closed_rows
from mqproto.captures.pipeline.report.gather import gather
from mqproto.captures.pipeline.run.job import Wanted, analyse
from mqproto.captures.pipeline.run.work import SeriesResult
from mqproto.captures.pipeline.tables.tables import Tables, TablesError
from tests.captures.frames import fragments_of
from tests.captures.pipeline.contents import rows_of
from tests.captures.pipeline.counting import CountingEngine
from tests.captures.pipeline.rotation import in_files
from tests.captures.pipeline.samples import FRAMES, SAMPLES, SHORT, another_run, elsewhere
from tests.captures.pipeline.worlds import worlds
from tests.captures.tunnels import TUNNELS, by_direction
from tests.memory import memory_folder

FINDING_KEYS = ("severity", "code", "packet", "text", "section")
Rows = list[dict[str, Any]]


def expected(reader: PacketReader) -> tuple[Rows, Rows]:
    """Return the rows of `mqproto decode --json`, and the findings at its end."""
    analyst = Analyst()
    rows = []
    for sight in sights(reader, analyst):
        name = analyst.names.destination(sight.message.user) if sight.message is not None else None
        rows.append(row_of(sight, name).as_json())
    last = analyst.finish(
        lossless=reader.totals.is_complete,
        ends=reader.ends,
        translations=reader.translations.found,
        conflicts=reader.totals.conflicts,
    )
    return rows, [finding.as_json() for finding in last]


def found(tables: Tables) -> tuple[Rows, Rows]:
    """Return the rows and the findings that the tables have."""
    if not tables.paths("packets"):
        return [], []
    relations = by_row(tables, "relations")
    endings = by_row(tables, "endings")
    findings: defaultdict[int | None, list[dict[str, Any]]] = defaultdict(list)
    if tables.paths("findings"):
        for row in tables.read("findings").sort_by("rank").to_pylist():
            row["packet"] = row["number"]
            findings[row["row_id"]].append({name: row[name] for name in FINDING_KEYS})
    rows = []
    for row in tables.read("packets").sort_by("row_id").to_pylist():
        row_id = row["row_id"]
        row |= relations[row_id] | {"ended_packets": None, "ended_count": None} | endings.get(row_id, {})
        row["time"] = row["time"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        row["number"] = row["number"] if row["framed"] else None
        row["findings"] = findings[row_id]
        rows.append({name: row[name] for name in KEYS})
    return rows, findings[None]


def by_row(tables: Tables, name: str) -> dict[int, dict[str, Any]]:
    rows = tables.read(name).to_pylist() if tables.paths(name) else []
    found = {row["row_id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def assert_same(tables: Tables, reader: PacketReader, wanted: tuple[Rows, Rows]) -> None:
    """Check that the tables agree with decode."""
    rows, last = found(tables)
    assert rows == wanted[0]
    assert sorted(map(str, last)) == sorted(map(str, wanted[1]))


@pytest.mark.parametrize("name", sorted(path.stem for path in SAMPLES.glob("*.pcapng")))
def test_tables_say_of_each_packet_what_decode_says(name: str, tmp_path: Path) -> None:
    """The tables say about each packet what decode says about it.

    Here, the capture is read in six ranges; the properties below read it in one range, and in very many.
    """
    path = SAMPLES / f"{name}.pcapng"
    range_bytes = -(-path.stat().st_size // 6)
    reader = PacketReader(read_capture(path))
    wanted = expected(reader)
    tables = Tables(tmp_path / "out")
    result = analyse([str(path)], tables, LocalEngine(), Wanted(range_bytes=range_bytes, body_texts=True))
    assert_same(tables, reader, wanted)
    (series,) = result.series
    assert series.totals == reader.totals


def test_halves_of_a_tap_are_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "tap.pcapng"
    sample = SAMPLES / "three-hop.pcapng"
    with path.open("wb") as file, PcapngWriter(file) as writer:
        for frame in tapped(sample):
            writer.write(frame)
    reader, whole = PacketReader(read_capture(path)), PacketReader(read_capture(sample))
    wanted = expected(reader)
    assert Counter(row["kind"] for row in wanted[0]) == Counter(row["kind"] for row in expected(whole)[0])
    assert not any(row["ahead"] for row in wanted[0])
    tables = Tables(tmp_path / "out")
    analyse([str(path)], tables, LocalEngine(), Wanted(range_bytes=4_000, body_texts=True))
    assert_same(tables, reader, wanted)
    assert set(tables.read("histories")["outcome"].to_pylist()) == {"confirmed"}


@pytest.mark.parametrize("range_bytes", [4_000, 1 << 20])
def test_a_bond_in_the_joined_files_of_a_ring_is_read_as_one(range_bytes: int, tmp_path: Path) -> None:
    frames = list(spoil.bonded(read_capture(SAMPLES / "three-hop.pcapng"), 2))
    parts = in_files(tmp_path, frames, [70, 150])
    path = tmp_path / "joined.pcapng"
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    reader = PacketReader(read_capture(path))
    wanted = expected(reader)
    assert not reader.totals.missing_bytes
    tables = Tables(tmp_path / "out")
    analyse([str(path)], tables, LocalEngine(), Wanted(range_bytes=range_bytes, body_texts=True))
    assert_same(tables, reader, wanted)


@pytest.mark.parametrize("run_by_run", [False, True])
def test_a_tap_may_be_told_by_files_behind_the_first(run_by_run: bool) -> None:
    east, *frames = tapped(SAMPLES / "three-hop.pcapng")
    # In the first file no connection has both directions.
    west = next(frame for frame in frames if frame.interface.number and frame.data[30:34] != east.data[26:30])
    frames.remove(west)
    assert_read_as_one([east, west, *frames[:60]], [2], 3_000, run_by_run=run_by_run)


def tapped(sample: Path) -> list[Frame]:
    """Return a capture's frames as a TAP would catch them.

    Those that servers sent have a separate interface, whose clock is ahead.
    """
    places = [Interface(number, name=name) for number, name in enumerate(("east", "west"))]
    halves = []
    for frame in read_capture(sample):
        # What those say who were called comes later, by its interface's clock.
        served = int(frame.data[34:36] == struct.pack("!H", 1801))
        halves.append(frame._replace(interface=places[served], time_ns=frame.time_ns + served * 10**9))
    return sorted(halves, key=lambda frame: frame.time_ns)


def test_tables_have_what_bodies_say_from_the_first_run_on_or_never(tmp_path: Path) -> None:
    first, second = str(SAMPLES / "three-hop.pcapng"), str(elsewhere("gap-held", tmp_path))
    without, having = Tables(tmp_path / "without"), Tables(tmp_path / "having")
    analyse([first], without, LocalEngine())
    assert without.read("packets")["body_text"].null_count == without.rows("packets")
    with pytest.raises(
        TablesError, match="without what bodies say: analyse all captures into another folder"
    ):
        analyse([second], without, LocalEngine(), Wanted(body_texts=True))
    analyse([first], having, LocalEngine(), Wanted(body_texts=True))
    one = pc.count(having.read("packets")["body_text"]).as_py()
    analyse([second], having, LocalEngine())
    assert pc.count(having.read("packets")["body_text"]).as_py() > one > 0


def first_ns(path: Path) -> int:
    """Return the time of a file's first frame; 0 if it has none. The files of a series are sorted by it."""
    return next((frame.time_ns for frame in read_capture(path)), 0)


def assert_read_as_one(
    frames: Sequence[Frame], cuts: Sequence[int], range_bytes: int, *, run_by_run: bool = False
) -> None:
    """Check that the result is that of one reader that reads all files, one after another.

    Frames are counted over all files.
    """
    with memory_folder() as name:
        folder = Path(name)
        paths = in_files(folder, [frame._replace(number=0, offset=0) for frame in frames], cuts)
        paths.sort(key=first_ns)
        counts = [len(list(read_capture(path))) for path in paths]
        before = dict(zip(map(str, paths), itertools.accumulate(counts, initial=0), strict=False))
        reader = PacketReader(
            frame._replace(number=before[str(path)] + frame.number)
            for path in paths
            for frame in read_capture(path)
        )
        with recorded() as streams:
            wanted, wanted_last = expected(reader)
        tables = Tables(folder / "out")
        series: list[SeriesResult] = []
        for path in paths if run_by_run else [folder]:
            result = analyse(
                [str(path)], tables, LocalEngine(), Wanted(range_bytes=range_bytes, body_texts=True)
            )
            series = result.series or series  # Files without a frame may be the same.

        rows, last = found(tables)
        if rows:
            files = tables.read("packets").sort_by("row_id").select(["file", "frame_file"]).to_pylist()
            for row, place in zip(rows, files, strict=True):
                row["frame"] += before[place["frame_file"] or place["file"]]
                row["first_frame"] += before[place["file"]]
        # Where it turns out later who is at the ends of a hop, decode says at its end what tables say of the packet.
        assert all_findings(rows, last) == all_findings(wanted, wanted_last)
        assert rows == wanted
        assert [each.totals for each in series] == [reader.totals]
        own = tables.read("streams").drop_columns(["series", "file", "frame"]).to_pylist()
        assert sorted(map(repr, own)) == sorted(map(repr, closed_rows(streams).to_pylist()))


def all_findings(rows: Rows, last: Rows) -> list[str]:
    """Remove the findings from the rows of packets, and return them together with those at the end."""
    return sorted(map(str, [*last, *(finding for row in rows for finding in row.pop("findings"))]))


@contextmanager
def recorded() -> Iterator[list[StreamCount]]:
    """Record all streams that a reader counts in the block."""
    streams: list[StreamCount] = []
    add_stream = Totals.add_stream

    def add(totals: Totals, seen: StreamCount) -> None:
        streams.append(seen)
        add_stream(totals, seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Totals, "add_stream", add)
        yield streams


PART_FRAMES = 40
"""The maximum number of frames in a part.

They include handshakes, packets and acknowledgments. More frames would take longer.
"""
cuts = st.lists(st.integers(0, 1_000), max_size=3)
sizes = st.sampled_from([400, 3_000, 64 << 20])


@st.composite
def parts(draw: st.DrawFn) -> list[Frame]:
    """Draw some consecutive frames of a sample, beginning with its first frame or with any other."""
    frames = FRAMES[draw(st.sampled_from(SHORT))]
    start = draw(st.just(0) | st.integers(0, max(0, len(frames) - PART_FRAMES)))
    return frames[start : start + PART_FRAMES]


@pytest.mark.long
@given(worlds(), cuts, sizes)
@settings(max_examples=settings().max_examples // 16)
def test_a_capture_in_several_files_is_read_as_one(
    frames: list[Frame], cuts: list[int], range_bytes: int
) -> None:
    assert_read_as_one(frames, cuts, range_bytes)


@given(
    parts(),
    st.integers(0, 1_000),
    st.sampled_from([0, 0, 3]),
    st.sampled_from([0, 5]),
    st.sampled_from([0, 10]),
    cuts,
    sizes,
)
@settings(max_examples=max(1, settings().max_examples // 40))
def test_so_is_one_with_late_repeated_and_lost_frames(
    part: list[Frame], seed: int, lose: int, repeat: int, delay: int, cuts: list[int], range_bytes: int
) -> None:
    late = spoil.delayed(part, delay, seed)
    frames = list(spoil.lost(spoil.repeated(late, repeat, seed), lose, seed))
    assert_read_as_one(frames, cuts, range_bytes)


@pytest.mark.long
@given(parts(), st.integers(0, 1_000), st.sampled_from([0, 5]), cuts, sizes)
@settings(max_examples=max(1, settings().max_examples // 40))
def test_so_is_one_whose_packets_came_in_fragments(
    part: list[Frame], seed: int, delay: int, cuts: list[int], range_bytes: int
) -> None:
    late = spoil.delayed(in_fragments(part), delay, seed)
    assert_read_as_one(list(spoil.lost(late, 3, seed)), cuts, range_bytes)


def in_fragments(frames: Sequence[Frame]) -> list[Frame]:
    """Return the frames, with each large one split into two fragments."""
    return [
        frame._replace(data=data)
        for frame in frames
        for data in (fragments_of(frame.data) if len(frame.data) > 80 else [frame.data])
    ]


def test_what_waited_for_a_fragment_waits_no_more_when_it_has_come() -> None:
    """A packet that waited for a fragment does not wait any longer once the fragment has arrived.

    It does not wait for a repetition of the fragment, either.
    """
    *before, sent = FRAMES["express-pair"][:4]
    first, second = (sent._replace(data=data) for data in fragments_of(sent.data))
    assert_read_as_one([*before, first, second, first, *FRAMES["express-pair"][4:]], [], range_bytes=100)


@given(worlds(), cuts, sizes)
@settings(max_examples=max(1, settings().max_examples // 40))
def test_a_series_that_grows_file_by_file_is_read_as_one(
    frames: list[Frame], cuts: list[int], range_bytes: int
) -> None:
    assert_read_as_one(frames, cuts, range_bytes, run_by_run=True)


@given(parts(), st.integers(0, 1_000), st.booleans(), cuts, sizes)
@settings(max_examples=max(1, settings().max_examples // 40))
def test_so_is_one_with_late_repeated_and_lost_frames_and_fragments(
    part: list[Frame], seed: int, in_pieces: bool, cuts: list[int], range_bytes: int
) -> None:
    frames = in_fragments(part) if in_pieces else part
    late = spoil.delayed(frames, 5, seed)
    frames = list(spoil.lost(spoil.repeated(late, 5, seed), 2, seed))
    assert_read_as_one(frames, cuts, range_bytes, run_by_run=True)


@pytest.mark.parametrize("range_bytes", [4_000, 1 << 20])
def test_times_go_back_by_as_much_as_decode_says(tmp_path: Path, range_bytes: int) -> None:
    frames = FRAMES["gap-held"]
    joined = [*frames[30:], *frames[10:30], *frames[:10]]
    [path] = in_files(tmp_path, [frame._replace(number=0, offset=0) for frame in joined], [])
    reader = PacketReader(joined)
    list(reader)
    tables = Tables(tmp_path / "out")
    analyse([str(path)], tables, LocalEngine(), Wanted(range_bytes=range_bytes))
    [back_ns] = tables.read("captures").column("back_ns").to_pylist()
    [point] = reader.points.points.found.values()
    assert back_ns == point.back_ns > 10**9
    assert [each.back_ns for each in gather(tables).points] == [back_ns]


@pytest.mark.long
def test_so_is_one_caught_on_both_sides_of_address_translation() -> None:
    frames = list(spoil.translated(FRAMES["intermediate-killed"], 20_000))
    assert_read_as_one(frames, [len(frames) - 5], 6_000, run_by_run=True)
    for without in (5, 7):  # What asks for the first session was caught on one side only.
        assert_read_as_one([*frames[:without], *frames[without + 1 :]], [len(frames) - 5], 300)


@pytest.mark.long
def test_so_is_one_in_tunnels() -> None:
    sent = FRAMES["express-pair"]
    frames = [frame._replace(data=wrap(frame.data)) for frame in sent for wrap in TUNNELS.values()]
    assert_read_as_one(frames, [len(frames) // 2], 6_000, run_by_run=True)
    apart = list(by_direction(FRAMES["intermediate-killed"]))
    assert_read_as_one(apart, [len(apart) // 2], 6_000, run_by_run=True)


@pytest.mark.long
@pytest.mark.parametrize("name", ["vxlan", "gre with a key", "ipv6 in ip"])
def test_so_is_one_in_tunnels_that_came_in_fragments_or_carry_them(name: str) -> None:
    sent, wrap = FRAMES["express-pair"], TUNNELS[name]
    outside = in_fragments([frame._replace(data=wrap(frame.data)) for frame in sent])
    inside = [frame._replace(data=wrap(frame.data)) for frame in in_fragments(sent)]
    for frames in (outside, inside):
        assert_read_as_one(frames, [len(frames) // 2], 300, run_by_run=True)


@pytest.mark.long
def test_however_many_fragments_there_are_no_range_is_read_more_than_twice(tmp_path: Path) -> None:
    [path] = in_files(tmp_path, in_fragments(FRAMES["gap-held"]), [])
    runner = CountingEngine()
    (series,) = analyse([str(path)], Tables(tmp_path / "out"), runner, Wanted(range_bytes=100)).series
    assert series.totals.segment_frames == len(FRAMES["gap-held"])
    assert 20 < runner.counts["reading once more"] < runner.counts["reading segments"]
    assert runner.counts["joining fragments"] == 1


class FailingEngine(LocalEngine):
    """An engine in which one stage fails, as when an executor's disk is full."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self.stage = stage
        self.stages: list[str] = []

    def carry_out(self, stage: str, function: Any, tasks: Any, reads: Any = (), **how: Any) -> Any:
        if tasks:
            self.stages.append(stage)
        results = super().carry_out(stage, function, tasks, reads, **how)
        if stage == self.stage:
            raise OSError(28, "No space left on device")
        return results


@pytest.mark.long
def test_a_run_that_fails_in_any_stage_leaves_the_tables_as_they_were(tmp_path: Path) -> None:
    first, second = str(SAMPLES / "three-hop.pcapng"), str(elsewhere("resent", tmp_path))
    watched = FailingEngine("")
    analyse([first, second], Tables(tmp_path / "whole"), watched)
    tables = Tables(tmp_path / "out")
    analyse([first], tables, LocalEngine())
    before = rows_of(tables)
    for stage in dict.fromkeys(watched.stages):
        with pytest.raises(OSError, match="No space left"):
            analyse([second], tables, FailingEngine(stage))
        assert rows_of(Tables(tmp_path / "out")) == before
    analyse([second], tables, LocalEngine())
    assert rows_of(tables) == rows_of(Tables(tmp_path / "whole"))


class Looking(LocalEngine):
    """An engine that notes which exchanges have rows when a stage begins."""

    def __init__(self) -> None:
        super().__init__()
        self.there: dict[str, set[str]] = {}

    def carry_out(self, stage: str, function: Any, tasks: Any, reads: Any = (), **how: Any) -> Any:
        self.there[stage] = {exchange for output in self._outputs for exchange in output.buckets}
        return super().carry_out(stage, function, tasks, reads, **how)


def test_what_no_later_stage_takes_is_gone_when_the_next_one_begins(tmp_path: Path) -> None:
    looking = Looking()
    analyse([str(SAMPLES / "three-hop.pcapng")], Tables(tmp_path), looking)
    large = {"found", "facts", "sequence-rows", "message-rows"}
    there = {stage: names & large for stage, names in looking.there.items()}
    assert there["writing packets"] == {"found"}
    assert there["judging sessions"] == {"facts"}
    assert there["judging sequences"] == {"sequence-rows", "message-rows"}
    assert there["following messages"] == {"message-rows"}
    assert there["sharing out packets"] == there["placing findings"] == set()


@pytest.mark.long
def test_bad_files_are_findings_and_the_rest_is_read(tmp_path: Path) -> None:
    whole = (SAMPLES / "window.pcapng").read_bytes()
    elsewhere("resent", tmp_path).rename(tmp_path / "whole.pcapng")
    (tmp_path / "cut.pcapng").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "foreign.pcapng").write_bytes(b"\x7fELF, and then much else that is not a capture at all")
    (tmp_path / "empty.pcapng").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("not a capture, and not called one")
    tables = Tables(tmp_path / "out")

    result = analyse([str(tmp_path)], tables, LocalEngine(), Wanted(range_bytes=10_000))

    assert {Path(error.where).name for error in result.refused} == {"foreign.pcapng", "empty.pcapng"}
    assert [Path(path).name for path in result.passed_over] == ["notes.txt"]
    damaged = [error for series in result.series for error in series.damage]
    assert [Path(error.where).name for error in damaged] == ["cut.pcapng"]
    rows = [row for row in tables.read("findings").to_pylist() if row["code"] == "damaged-capture"]
    assert {(Path(row["file"]).name, row["file_offset"]) for row in rows} == {
        *((Path(error.where).name, error.offset) for error in result.refused),
        *(("cut.pcapng", error.offset) for error in damaged),
    }
    captures = {Path(row["file"]).name: row for row in tables.read("captures").to_pylist()}
    assert set(captures) == {"whole.pcapng", "cut.pcapng"}
    assert captures["cut.pcapng"]["damage_offset"] == damaged[0].offset
    for row in captures.values():
        assert row["frames"] == row["segment_frames"] + row["ping_frames"] + row["other_frames"]
    for series in result.series:
        assert series.totals.unexplained_bytes == 0
        reader = PacketReader(read_capture(series.files[0].path))
        with suppress(CaptureError):
            for _ in reader:
                pass
        assert series.totals == reader.totals
    again = analyse([str(SAMPLES / "loss-and-reordering.pcapng")], tables, LocalEngine())
    assert again.codes["note", "damaged-capture"] == 3


def test_all_samples_are_read_into_one_folder(tmp_path: Path) -> None:
    """All samples can be read into one folder.

    Each has its own GUIDs, identifiers and times; one shows the traffic of `window` again.
    """
    tables = Tables(tmp_path / "out")
    result = analyse([str(SAMPLES)], tables, LocalEngine())
    assert result.refused == []
    found = [tomllib.loads(path.read_text("utf-8"))["found"] for path in SAMPLES.glob("*.toml")]
    assert tables.rows("captures") == len(found)
    alike = tomllib.loads((SAMPLES / "loss-and-reordering.toml").read_text("utf-8"))["found"]
    messages = sum(each["messages"] for each in found) - alike["messages"]
    hostile = tomllib.loads((SAMPLES / "hostile.toml").read_text("utf-8"))["found"]["messages"]
    assert messages - hostile < tables.rows("histories") <= messages


@pytest.mark.long
def test_captures_of_two_systems_are_not_mixed(tmp_path: Path) -> None:
    window, both = (str(SAMPLES / f"{name}.pcapng") for name in ("window", "loss-and-reordering"))
    other = str(another_run("three-hop", tmp_path))
    tables, alone = Tables(tmp_path / "out"), Tables(tmp_path / "alone")
    analyse([window, both], alone, LocalEngine())
    analyse([window], tables, LocalEngine())
    result = analyse([both, other], tables, LocalEngine())
    assert [str(error) for error in result.refused] == [
        f"{other}: not of one system with {window}: of 10 messages that both have by their identifiers, 10 "
        "have other contents; analyse it into another folder"
    ]
    rows, expected = rows_of(tables), rows_of(alone)
    codes = [row["code"] for row in tables.read("findings").to_pylist()]
    rows.pop("findings"), expected.pop("findings")
    assert rows == expected
    assert result.codes["note", "other-system"] == codes.count("other-system") == 1
    assert result.codes["note", "damaged-capture"] == codes.count("damaged-capture") == 0

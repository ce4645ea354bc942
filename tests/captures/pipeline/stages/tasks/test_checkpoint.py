"""Judging continues where the previous run ended; the results are those of a single run over everything."""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from mqproto.captures.decode.names import Names
from mqproto.captures.decode.sessions import connections
from mqproto.captures.decode.ways import Lack
from mqproto.captures.files.frame import NANOSECONDS, Frame, Interface
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.direction import LATER_COUNT
from mqproto.captures.net.tcp import SYN, Endpoint
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.run.job import Wanted, analyse
from mqproto.captures.pipeline.stages.messages.histories import Outcome
from mqproto.captures.pipeline.stages.sessions import sessions
from mqproto.captures.pipeline.stages.tasks import buckets, checkpoint, plan
from mqproto.captures.pipeline.stages.tasks.checkpoint import FOLDER, FORM
from mqproto.captures.pipeline.tables import tidying
from mqproto.captures.pipeline.tables.parts import Part, parquet_table
from mqproto.captures.pipeline.tables.tables import Tables
from mqproto.wire import guid_text
from tests.captures.decode.scene import (
    MILLISECOND,
    Scene,
    express,
    guid,
    names,
    ordered,
    passed_on,
    transactional,
)
from tests.captures.pipeline.contents import rows_of
from tests.captures.pipeline.counting import CountingEngine
from tests.captures.pipeline.rotation import in_files, rotation
from tests.captures.pipeline.samples import FRAMES, SHORT, another_run
from tests.memory import memory_folder

HOUR_NS = 3_600 * NANOSECONDS


@pytest.mark.long
@given(st.sampled_from(SHORT), st.lists(st.integers(1, 1_000), min_size=1, max_size=2), st.integers(2, 4))
@settings(max_examples=settings().max_examples // 24)
def test_what_runs_say_of_a_file_each_is_what_one_says_of_all(name: str, cuts: list[int], share: int) -> None:
    """Messages are over after a silence that lasts a given share of the capture."""
    frames = [frame._replace(number=0, offset=0) for frame in FRAMES[name]]
    with memory_folder() as folder_name, pytest.MonkeyPatch.context() as patch:
        folder = Path(folder_name)
        paths = in_files(folder, frames, cuts)
        at_once, tables = Tables(folder / "at once"), Tables(folder / "out")
        patch.setattr(checkpoint, "QUIET_NS", (frames[-1].time_ns - frames[0].time_ns) // share)
        codes = analyse([str(folder)], at_once, LocalEngine()).codes
        for path in paths:
            result = analyse([str(path)], tables, LocalEngine())
        assert rows_of(tables) == rows_of(at_once)
        assert result.codes == codes


class Rotated(NamedTuple):
    """A rotation with late, repeated and lost frames, analyzed both file by file and all at once.

    tasks: the number of tasks that each file needed.
    kept: the number of messages that stayed open after each file.
    """

    tables: Tables
    at_once: Tables
    tasks: list[int]
    kept: list[int]
    codes: tuple[object, object]


@pytest.fixture(scope="module")
def rotated(tmp_path_factory: pytest.TempPathFactory) -> Rotated:
    folder = tmp_path_factory.mktemp("rotated")
    tables, at_once = Tables(folder / "out"), Tables(folder / "at once")
    tasks, kept = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "QUIET_NS", 90 * NANOSECONDS)
        patch.setattr(tidying, "PARTS", 3)
        for path in rotation(folder / "captures", 10):
            runner = CountingEngine()
            result = analyse([str(path)], tables, runner)
            tasks.append(runner.counts["sharing out packets"] - 1)
            kept.append(
                sum(
                    parquet_table(tables.store.path(name)).num_rows
                    for name in tables.kept.files
                    if name.startswith(FOLDER) and "-messages-" in name
                )
            )
        codes = analyse([str(folder / "captures")], at_once, LocalEngine()).codes
    return Rotated(tables, at_once, tasks, kept, (result.codes, codes))


@pytest.mark.long
def test_what_is_judged_and_over_is_not_looked_at_again(rotated: Rotated) -> None:
    """However much has been judged before, each file costs the same."""
    tasks, kept = rotated.tasks, rotated.kept
    assert set(tasks[4:]) <= {1, 2}, tasks  # The file, and what only the end of the series lets be read.
    assert 0 < max(kept[5:]) < 1.5 * max(kept[:5]), kept
    assert rows_of(rotated.tables) == rows_of(rotated.at_once)
    by_file, at_once = rotated.codes
    assert by_file == at_once


@pytest.mark.long
def test_small_parts_are_made_one(rotated: Rotated) -> None:
    """Facts about old messages that were in the small parts are found in the merged part."""
    tables = rotated.tables
    counts = Counter(part.table for part in tables.every_part())
    assert counts.pop("packets") >= 10
    # Those of the last run may be both settled and open, and findings come from three stages.
    assert counts.pop("findings") <= 3 + 2 * 3
    assert max(counts.values()) <= 3 + 3, counts
    [arrivals] = tables.state["judged"]["arrivals"]
    assert set(arrivals) <= {part.name for part in tables.parts("arrivals")}
    assert len(arrivals) < 6


def test_parts_come_together_by_their_keys_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidying, "ROWS", 100)
    monkeypatch.setattr(tidying, "PARTS", 4)
    sizes = [("a", 20), ("b", 1), ("a", 24), ("a", 25), ("a", 23), ("a", 24), ("a", 24), ("b", 2), ("b", 3)]
    parts = [(key, Part(f"{key}/{number}", rows, 0)) for number, (key, rows) in enumerate(sizes)]
    assert [[part.rows for part in group] for group in tidying.groups(parts)] == [[20, 24, 23, 24]]


Talks = dict[int, tuple[Endpoint, TcpConversation]]
"""Clients and their conversations, keyed by the number of the connection."""


def frames_of(scene: Scene, talks: Talks | None = None) -> Iterator[Frame]:
    """Yield the frames of a scene as a sniffer would have caught them.

    Args:
        talks: the dict to which the conversations are added.
    """
    talks = {} if talks is None else talks
    for seen in scene.packets:
        if seen.connection not in talks:
            talks[seen.connection] = seen.source, TcpConversation(seen.source, seen.destination)
            yield from (Frame(seen.time_ns, frame) for frame in talks[seen.connection][1].open())
        client, talk = talks[seen.connection]
        side = Side.CLIENT if seen.source == client else Side.SERVER
        yield from (Frame(seen.time_ns, frame) for frame in talk.send(side, seen.data))


def a_message_and_its_copy(message: bytes, tmp_path: Path, later_ns: int = HOUR_NS) -> Tables:
    """Return the tables of two files: the first has a message, and the second has it again, after another message."""
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", message)
    wire.send("c", ordered(1))
    wire.ack("a")
    wire.ack("c")
    scene.now_ns += later_ns
    wire.send("a", express(message_id=90))
    wire.ack("c")
    copied = len(scene.packets)
    wire.send("a", message)
    wire.ack("c")
    frames = list(frames_of(scene))
    cuts = [
        sum(frame.time_ns < seen.time_ns for frame in frames)
        for seen in (scene.packets[copied - 2], scene.packets[copied])
    ]
    tables = Tables(tmp_path / "out")
    for path in in_files(tmp_path, frames, cuts):
        analyse([str(path)], tables, LocalEngine())
    return tables


def arrivals_of(tables: Tables, message_id: int) -> list[tuple[str, int, int]]:
    """Return the verdict, delivery count and time of each arrival of one of a's messages."""
    name = f"{guid_text(guid('a'))}\\{message_id}"
    rows = [row for row in tables.read("duplicates").to_pylist() if row["message"] == name]
    return [
        (row["verdict"], row["delivery_count"], row["time_ns"])
        for row in sorted(rows, key=lambda row: row["time_ns"])
    ]


def test_a_copy_that_comes_when_its_message_was_over_is_known_for_one(tmp_path: Path) -> None:
    tables = a_message_and_its_copy(transactional(1), tmp_path)
    (first, once, first_ns), (second, twice, second_ns) = arrivals_of(tables, 1)
    assert (first, once) == ("new", 1)
    assert (second, twice) == ("duplicate", 2)
    assert second_ns - first_ns > HOUR_NS
    # It was told, and what has come of it since is told by itself.
    [*told] = [row for row in tables.read("histories").to_pylist() if row["label"] == "order 1"]
    assert sorted(row["outcome"] for row in told) == ["confirmed", "reached"]
    remembered = [
        row["arrivals"] for row in tables.read("arrivals").to_pylist() if row["message"] == told[0]["message"]
    ]
    assert sorted(remembered) == [1, 2]


def test_what_a_queue_manager_may_have_forgotten_is_in_doubt(tmp_path: Path) -> None:
    tables = a_message_and_its_copy(express(message_id=1), tmp_path)
    assert [each[:2] for each in arrivals_of(tables, 1)] == [("new", 1), ("in doubt", 2)]


def test_a_copy_that_comes_soon_is_told_with_its_message(tmp_path: Path) -> None:
    tables = a_message_and_its_copy(transactional(1), tmp_path, later_ns=HOUR_NS // 4)
    [told] = [row for row in tables.read("histories").to_pylist() if row["label"] == "order 1"]
    assert (told["resends"], told["outcome"]) == (1, "confirmed")


def two_hours(folder: Path) -> list[Path]:
    """Write a capture as two files, an hour apart, with separate connections."""
    scene = Scene()
    for hour in range(2):
        wire = scene.wire("a", "c")
        for number in range(5 * hour + 1, 5 * hour + 6):
            wire.send("a", transactional(number))
        wire.send("c", ordered(5 * hour + 5))
        wire.ack("a")
        wire.ack("c")
        scene.now_ns += HOUR_NS
    frames = list(frames_of(scene))
    cut = next(number for number, frame in enumerate(frames) if frame.time_ns - frames[0].time_ns > HOUR_NS)
    folder.mkdir(exist_ok=True)
    return in_files(folder, frames, [cut])


class Hours(NamedTuple):
    """The captures of two hours, the folder with the tables of the first hour, and the rows of both hours."""

    paths: list[Path]
    first: Path
    rows: dict[str, list[str]]


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Hours:
    folder = tmp_path_factory.mktemp("hours")
    paths = two_hours(folder / "captures")
    analyse([str(paths[0])], Tables(folder / "first"), LocalEngine())
    return Hours(paths, folder / "first", rows_of(at_once(folder / "at once", paths)))


def at_once(folder: Path, paths: list[Path], known: Names | None = None) -> Tables:
    """Return the tables that result when several files are analyzed together."""
    tables = Tables(folder)
    analyse(list(map(str, paths)), tables, LocalEngine(), Wanted(names=known or Names()))
    return tables


def shared_out(tables: Tables, path: Path, known: Names | None = None) -> int:
    """Return how many of the parts with packets are distributed to buckets when a second file is added."""
    runner = CountingEngine()
    analyse([str(path)], tables, runner, Wanted(names=known or Names()))
    return runner.counts["sharing out packets"] - 1  # One is for how streams ended.


def tables_of_the_first(hours: Hours, folder: Path) -> Tables:
    return Tables(shutil.copytree(hours.first, folder / "out"))


def test_only_what_is_new_is_shared_out(hours: Hours, tmp_path: Path) -> None:
    tables = tables_of_the_first(hours, tmp_path)
    assert shared_out(tables, hours.paths[1]) == 1
    assert rows_of(tables) == hours.rows


def assert_anew(folder: Path, paths: list[Path]) -> Tables:
    """Check that adding the second file causes everything to be judged again, with the same results as in one run."""
    tables = at_once(folder / "out", paths[:1])
    assert shared_out(tables, paths[1]) > 1
    assert rows_of(tables) == rows_of(at_once(folder / "at once", paths))
    return tables


def test_if_a_series_proves_to_lack_something_all_is_judged_anew(tmp_path: Path) -> None:
    paths = two_hours(tmp_path / "captures")
    frames = [frame._replace(number=0, offset=0) for frame in read_capture(paths[1])]
    with paths[1].open("wb") as file, PcapngWriter(file) as capture:
        lost = max(frames, key=lambda frame: len(frame.data))
        for frame in frames:
            if frame is not lost:
                capture.write(frame)
    tables = assert_anew(tmp_path, paths)
    assert {row["delivery_count"] for row in tables.read("duplicates").to_pylist()} == {None}


@pytest.mark.long
def test_so_it_is_if_another_capture_is_from_before_what_is_over(tmp_path: Path) -> None:
    """A message that was seen at two places counts as one, in whichever order their captures are added."""
    _, later = two_hours(tmp_path / "captures")
    assert_anew(tmp_path, [later, another_run("three-hop", tmp_path)])


def test_so_it_is_with_other_names(hours: Hours, tmp_path: Path) -> None:
    tables, known = tables_of_the_first(hours, tmp_path), names("a", "c")
    assert shared_out(tables, hours.paths[1], known) > 1
    assert rows_of(tables) == rows_of(at_once(tmp_path / "at once", hours.paths, known))
    assert {row["source"] for row in tables.read("relations").to_pylist()} == {"a", "c"}


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(plan, "CONNECTION_ROWS", 4), (plan, "MESSAGE_ROWS", 4), (checkpoint, "FORM", FORM + 1)],
    ids=["more connections", "more messages", "another form"],
)
def test_so_it_is_if_it_wants_more_buckets_or_what_was_saved_is_of_another_form(
    module: ModuleType, name: str, value: int, hours: Hours, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(buckets, "STRETCH_ROWS", 8)  # So several tasks send rows of one sequence.
    tables = tables_of_the_first(hours, tmp_path)
    assert shared_out(tables, hours.paths[1]) > 1
    assert rows_of(tables) == hours.rows


@pytest.mark.long
def test_what_was_known_of_what_is_over_is_known_to_later_runs(tmp_path: Path) -> None:
    """Later runs know what earlier runs learned from traffic that is over.

    This is: addresses from handshakes and messages, losses, the clocks of two places, and findings.
    """
    scene = Scene()
    onward, strange = scene.wire("b", "c"), scene.wire("d", "e", opened=False)
    first = scene.wire("a", "b")
    first.send("a", transactional(1))
    first.ack("b")
    onward.send("b", passed_on(transactional(1)))
    lost = onward.send("b", express(message_id=2, label="lost"))
    for _ in range(LATER_COUNT + 1):
        onward.ack("b")
    onward.ack("c")
    strange.send("d", express(message_id=1, source=guid("d")))
    before = scene.now_ns
    scene.now_ns += 49 * HOUR_NS
    scene.wire("e", "f").ack("e")
    between = scene.now_ns
    scene.now_ns += HOUR_NS
    later, stranger = scene.wire("a", "b", opened=False), scene.wire("d", "f", opened=False)
    later.send("a", express(message_id=3, label="written long before"))
    later.ack("b")
    stranger.send("d", passed_on(express(message_id=4, label="of another")))
    frames = [frame for frame in frames_of(scene) if lost.data not in frame.data]
    places = [Interface(number, name=name) for number, name in enumerate(("here", "there"))]
    cut, later_cut = (sum(frame.time_ns <= time_ns for frame in frames) for time_ns in (before, between))
    seen = [
        frame._replace(interface=place, time_ns=frame.time_ns + place.number * MILLISECOND // 4)
        for frame in frames[:cut]
        for place in places
    ]
    seen += [frame._replace(interface=places[0]) for frame in frames[cut:]]
    paths = in_files(tmp_path, seen, [2 * cut, cut + later_cut])
    tables, at_once = Tables(tmp_path / "out"), Tables(tmp_path / "at once")
    for path in paths:
        result = analyse([str(path)], tables, LocalEngine())
    codes = analyse(list(map(str, paths)), at_once, LocalEngine()).codes
    assert codes == result.codes
    assert {code for _, code in codes} >= {"missing-bytes"}
    assert rows_of(tables) == rows_of(at_once)
    histories = {row["label"]: row for row in tables.read("histories").to_pylist()}
    assert histories["written long before"]["reason"] == Lack.LOST
    assert tables.read("clocks").num_rows == 2
    # A session is closed two days after its last packet. Nothing is kept of it then.
    opened = [part for part in tables.parts("sessions") if "-open-" in part.name]
    assert sum(part.rows for part in opened) == 3


@pytest.mark.long
def test_what_a_session_lacked_is_known_to_later_runs_when_others_have_had_it_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers that may have been sent in the missing bytes are not a gap."""
    for module in (connections, sessions):
        monkeypatch.setattr(module, "CONNECTION_LIMIT", 1)
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", transactional(1))
    lost = wire.send("a", express(message_id=50, label="lost"))
    for _ in range(LATER_COUNT + 1):
        wire.ack("a")
    scene.wire("b", "d").ack("b")
    before = scene.now_ns
    scene.now_ns += NANOSECONDS
    wire.send("a", transactional(5))
    frames = [frame for frame in frames_of(scene) if lost.data not in frame.data]
    paths = in_files(tmp_path, frames, [sum(frame.time_ns <= before for frame in frames)])
    tables, at_once = Tables(tmp_path / "out"), Tables(tmp_path / "at once")
    for path in paths:
        analyse([str(path)], tables, LocalEngine())
    analyse(list(map(str, paths)), at_once, LocalEngine())
    assert {row["code"] for row in tables.read("findings").to_pylist()} == {"missing-bytes"}
    assert rows_of(tables)["findings"] == rows_of(at_once)["findings"]


@pytest.mark.long
def test_how_each_end_ended_is_known_whatever_file_shows_it(tmp_path: Path) -> None:
    scene = Scene()
    for _ in range(3):
        wire = scene.wire("a", "c")
        wire.send("a", express(message_id=len(scene.packets)))
        wire.ack("c")
    talks: Talks = {}
    frames = list(frames_of(scene, talks))
    (_, _), (_, second), (_, third) = talks.values()
    for last in (*second.finish(Side.CLIENT), *third.finish(Side.CLIENT), *third.reset(Side.SERVER)):
        frames.append(Frame(frames[-1].time_ns, last))
    paths = in_files(tmp_path, frames, [len(frames) // 2, len(frames) - 2])
    tables, at_once = Tables(tmp_path / "out"), Tables(tmp_path / "at once")
    for path in paths:
        analyse([str(path)], tables, LocalEngine())
    rows = sorted(tables.read("sessions").to_pylist(), key=lambda row: row["connection"])
    endings = [(row["client_ending"], row["server_ending"]) for row in rows]
    assert endings == [("open", "open"), ("finished", "open"), ("finished", "reset")]
    streams = tables.read("streams").to_pylist()
    assert len(streams) == 6
    for row in streams:
        [first] = [frame for frame in read_capture(row["file"]) if frame.number == row["frame"]]
        ports, flags = struct.unpack("!HH", first.data[34:38]), first.data[47]
        assert (set(ports), flags) == ({row["source_port"], row["destination_port"]}, SYN)
    analyse(list(map(str, paths)), at_once, LocalEngine())
    assert rows_of(tables) == rows_of(at_once)


@pytest.mark.long
def test_behind_the_end_of_a_connection_nothing_came(tmp_path: Path) -> None:
    """On each of three pairs of connections a SessionAck is lost; two pairs end in the last file."""
    scene = Scene()
    lost = []
    for source, hop, target in ("abc", "dec", "fgh"):
        first, other = scene.wire(source, hop), scene.wire(hop, target)
        first.send(source, transactional(1, source=guid(source), destination_manager=guid(target)))
        first.ack(hop)
        lost.append(other.ack(target))
        other.ack(hop)
        other.ack(target)
    talks: Talks = {}
    times_ns = {packet.time_ns for packet in lost}
    frames = [frame for frame in frames_of(scene, talks) if frame.time_ns not in times_ns]
    files = [len(frames) // 2, len(frames)]
    for number, (_, talk) in enumerate(talks.values()):
        match number // 2:
            case 1:
                ends = [*talk.finish(Side.CLIENT), *talk.finish(Side.SERVER)]
            case 2:
                ends = talk.reset(Side.SERVER)
            case _:
                ends = []
        frames += [Frame(frames[-1].time_ns, frame) for frame in ends]
    paths = in_files(tmp_path, frames, files)
    tables, at_once = Tables(tmp_path / "out"), Tables(tmp_path / "at once")
    for path in paths:
        analyse([str(path)], tables, LocalEngine())
    analyse(list(map(str, paths)), at_once, LocalEngine())
    outcomes = {row["message"]: row["outcome"] for row in tables.read("histories").to_pylist()}
    wanted = zip("adf", (Outcome.NOT_KNOWN, Outcome.IN_FLIGHT, Outcome.IN_FLIGHT), strict=True)
    assert outcomes == {f"{guid_text(guid(source))}\\1": outcome for source, outcome in wanted}
    assert rows_of(tables) == rows_of(at_once)

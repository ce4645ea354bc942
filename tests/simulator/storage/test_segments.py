"""The files of the log: changes that a crash can cause, and changes that are damage."""

from __future__ import annotations

import shutil
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st

from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.care.hurtsegment import HurtSegment
from mqproto.simulator.storage.files import SYSTEM_FILES
from mqproto.simulator.storage.segments import HEAD, HEADER, SECTOR_BYTES, Header, SegmentName, segment_path
from mqproto.simulator.storage.witnesses.sqlitelog import Salts
from mqproto.simulator.storage.witnesses.witness import (
    SIZE_BYTES,
    Said,
    StoreWitness,
    said_by_witness,
    witness_path,
)
from mqproto.turn.effects import HurtPacket, ReadBy, ReadPage, Writes
from tests.memory import memory_folder
from tests.simulator.storage.batches import NEIGHBOUR, NODE, QUEUES, TINY, numbers, one


class Left(NamedTuple):
    """The files of a store that a killed process has left, by name.

    last: the name of the last segment.
    ends: the offsets in that segment at which the header and each record end.
    commits: the number of messages that were put into the store, each in a record of its own; an earlier record
        declared the queues.
    """

    files: dict[str, bytes]
    last: str
    ends: list[int]
    commits: int

    def write(self, folder: Path, **changed: bytes) -> Path:
        for name, data in (self.files | changed).items():
            (folder / name).write_bytes(data)
        return folder / "a.sqlite"

    def witness(self, record: int) -> bytes:
        """Return a witness that names this record as the newest one reported to be on disk."""
        with memory_folder() as folder:
            store = Path(folder, "a.sqlite")
            said = said_by_witness(store, self.files["a.sqlite-witness"], NODE)._replace(record=record)
            StoreWitness.create(SYSTEM_FILES, store, NODE, said).close()
            return witness_path(store).read_bytes()


def left_after(folder: Path, commits: int, size_bytes: int) -> Left:
    """Return a store in which each commit has added one message; it has three segments."""
    ends = [HEADER.size]
    last = ""
    limits = TINY._replace(segment_bytes=7_000, segments=9, memory_bytes=1 << 20)
    with Store(folder / "a.sqlite", NODE, limits=limits) as store:
        store.commit(Writes(queues=QUEUES))
        for number in range(1, commits + 1):
            store.commit(Writes(messages=[one(number, (number + 1).to_bytes(1) * size_bytes)]))
            newest = max(path.name for path in folder.iterdir() if "-log-" in path.name)
            if newest != last:
                last, ends = newest, [HEADER.size]
            ends.append(len((folder / newest).read_bytes().rstrip(b"\0")))
        files = {
            path.name: path.read_bytes()
            for path in folder.iterdir()
            if not path.name.endswith(("-lock", "-shm"))
        }
    return Left(files, last, ends, commits)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    left = left_after(tmp_path_factory.mktemp("left"), commits=12, size_bytes=1_300)
    assert len([name for name in left.files if "-log-" in name]) == 3
    assert len(left.ends) > 3
    return left


@pytest.mark.long
@given(data=st.data())
def test_of_a_record_that_was_being_written_any_sectors_may_be_there(left: Left, data: st.DataObject) -> None:
    """The store has everything before the record, and reports the record at the start only if the witness is behind,
    which no kill causes.

    Any of the record's sectors may be zero, and at least one of them is.
    """
    log = bytearray(left.files[left.last])
    start, end = left.ends[-2:]
    sectors = [(start, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)]
    sectors += [(at, min(at + SECTOR_BYTES, end)) for at in range(sectors[0][1], end, SECTOR_BYTES)]
    lost = data.draw(st.sets(st.sampled_from(sectors), min_size=1), label="sectors that were not written")
    for first, behind in lost:
        log[first:behind] = bytes(behind - first)
    known = data.draw(st.integers(0, left.commits), label="witness")
    changed = {left.last: bytes(log), "a.sqlite-witness": left.witness(known)}
    with memory_folder() as folder:
        path = left.write(Path(folder), **changed)
        with Store(path, NODE) as store:
            assert numbers(store) == [*range(1, left.commits)]
            said = f"record {left.commits + 1} in {left.last} at byte {start:,} is half written"
            is_seen, is_behind = len(lost) < len(sectors), known < left.commits
            assert [notice.partition(":")[0] for notice in store.notices] == [said] * (is_seen and is_behind)
            assert store.unfinished.partition(":")[0] == said * (is_seen and not is_behind)
            store.commit(Writes(messages=[one(20)]))
        with Store(path, NODE) as store:
            assert numbers(store) == [*range(1, left.commits), 20]
            assert store.notices == []
        changed["a.sqlite-witness"] = left.files["a.sqlite-witness"]
        complaint = refused_or_hurt(left.write(Path(folder), **changed), left)
        assert f"record {left.commits + 1}" in complaint, "the witness knows that it was on disk"
        assert left.last in complaint


@given(data=st.data())
def test_a_bit_that_flipped_where_nothing_was_written_is_called_that_and_nothing_is_lost(
    left: Left, data: st.DataObject
) -> None:
    log = bytearray(left.files[left.last])
    place = data.draw(st.integers(left.ends[-1], len(log) - 1), label="place")
    log[place] = 1 << data.draw(st.integers(0, 7), label="bit")
    with memory_folder() as folder, Store(left.write(Path(folder), **{left.last: bytes(log)}), NODE) as store:
        assert numbers(store) == [*range(1, left.commits + 1)]
        [notice] = store.notices
        assert notice.startswith(
            f"one bit of {left.last} has flipped, at byte {place:,}, where nothing was written"
        )
        assert store.unfinished == ""


@pytest.mark.long
@given(data=st.data())
def test_a_record_of_which_no_sector_is_missing_was_damaged_whatever_the_witness_says(
    left: Left, data: st.DataObject
) -> None:
    log = bytearray(left.files[left.last])
    at = data.draw(st.integers(left.ends[-2], left.ends[-1] - 1), label="at")
    log[at] ^= data.draw(st.integers(1, 255))
    witness = left.witness(data.draw(st.integers(0, left.commits + 1), label="witness"))
    with memory_folder() as folder:
        path = left.write(Path(folder), **{left.last: bytes(log), "a.sqlite-witness": witness})
        complaint = refused_or_hurt(path, left)
        assert left.last in complaint
        assert f"record {left.commits + 1}" in complaint


@given(data=st.data())
def test_damage_anywhere_in_the_log_is_told_and_nothing_is_touched(left: Left, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(name for name in left.files if "-log-" in name)), label="segment")
    log = bytearray(left.files[name])
    at = data.draw(st.integers(0, len(log.rstrip(b"\0")) - 1), label="at")
    flipped = data.draw(st.integers(0, 255), label="what is flipped there; nothing for a cut")
    if flipped:
        log[at] ^= flipped
    else:
        del log[at:]
    with memory_folder() as folder:
        path = left.write(Path(folder), **{name: bytes(log)})
        complaint = refused_or_hurt(path, left)
        if complaint.startswith("message"):
            return
        assert name in complaint
        assert f"`mqproto store repair {path}`" in complaint
        ours = {
            each: content for each, content in left.files.items() if "-log-" in each or "-witness" in each
        }
        assert {each: (path.parent / each).read_bytes() for each in ours} == ours | {name: bytes(log)}


def refused(path: Path) -> str:
    with pytest.raises(StoreError) as caught:
        Store(path, NODE)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refused_or_hurt(path: Path, left: Left) -> str:
    """Return the error about a damaged log, or the only record whose message is damaged."""
    try:
        with Store(path, NODE) as store:
            rows = store.read(ReadPage(1, 0, 100, 2**30, ReadBy.WINDOW))
    except StoreError as error:
        return str(error)
    assert [position for position, _, _ in rows] == [*range(1, left.commits + 1)]
    [(position, packet)] = [row[:2] for row in rows if isinstance(row[1], HurtPacket)]
    assert all(row[1] == (row[0] + 1).to_bytes(1) * 1_300 for row in rows if row[0] != position)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT packet, message_id FROM quarantine").fetchall() == [(packet, position)]
    return f"message of record {position + 1} in {left.last}"


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_that_is_missing_is_named(left: Left, tmp_path: Path, number: int) -> None:
    path = left.write(tmp_path)
    segment_path(path, number).unlink()
    assert f"a.sqlite-log-00000{number} is missing, which has messages" in refused(path)


def test_the_last_segment_is_missed_as_well(left: Left, tmp_path: Path) -> None:
    path = left.write(tmp_path)
    segment_path(path, 3).unlink()
    first = left.commits + 3 - len(left.ends)
    assert f"records {first} to {left.commits + 1} are gone" in refused(path)


def test_a_log_that_is_missing_altogether_is_told(left: Left, tmp_path: Path) -> None:
    path = left.write(tmp_path)
    for number in (1, 2, 3):
        segment_path(path, number).unlink()
    assert "a.sqlite-log-000001 is missing" in refused(path)


@pytest.mark.parametrize("name", ["a.sqlite-log-000004-new", "a.sqlite-witness-new"])
@pytest.mark.parametrize("content", [b"", b"\0" * 7_000, b"\xa5" * 512])
def test_a_file_that_was_about_to_be_made_is_removed(
    left: Left, tmp_path: Path, name: str, content: bytes
) -> None:
    path = left.write(tmp_path, **{name: content})
    with Store(path, NODE) as store:
        assert numbers(store) == [*range(1, left.commits + 1)]
    assert not (tmp_path / name).exists()


def test_a_segment_that_was_brought_to_the_tables_and_is_still_there_is_removed(
    left: Left, tmp_path: Path
) -> None:
    path = left.write(tmp_path)
    Store(path, NODE).close()
    segment_path(path, 2).write_bytes(left.files["a.sqlite-log-000002"])
    with Store(path, NODE) as store:
        assert numbers(store) == [*range(1, left.commits + 1)]
    assert not segment_path(path, 2).exists()


# The witness


def test_a_witness_that_is_behind_the_log_is_what_a_power_loss_leaves(left: Left, tmp_path: Path) -> None:
    path = left.write(tmp_path, **{"a.sqlite-witness": left.witness(0)})
    with Store(path, NODE) as store:
        assert numbers(store) == [*range(1, left.commits + 1)]
        assert store.notices == []


@pytest.mark.parametrize("sector", [0, SECTOR_BYTES])
def test_one_sector_of_a_witness_is_enough(left: Left, tmp_path: Path, sector: int) -> None:
    witness = bytearray(left.files["a.sqlite-witness"])
    witness[sector : sector + SECTOR_BYTES] = bytes(SECTOR_BYTES)
    path = left.write(tmp_path, **{"a.sqlite-witness": bytes(witness)})
    with Store(path, NODE) as store:
        assert numbers(store) == [*range(1, left.commits + 1)]


@pytest.mark.parametrize("content", [b"", bytes(SIZE_BYTES), bytes(SIZE_BYTES + 1)])
def test_a_damaged_witness_is_told(left: Left, tmp_path: Path, content: bytes) -> None:
    assert "a.sqlite-witness: it is damaged" in refused(left.write(tmp_path, **{"a.sqlite-witness": content}))


def test_a_missing_witness_is_told(left: Left, tmp_path: Path) -> None:
    path = left.write(tmp_path)
    witness_path(path).unlink()
    assert "a.sqlite-witness is missing" in refused(path)


def stopped_twice(folder: Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the files after a clean stop, and after the next one."""
    stops = []
    for number in (1, 2):
        with Store(folder / "a.sqlite", NODE, limits=TINY) as store:
            store.commit(Writes(queues=QUEUES, messages=[one(number)]))
        stops.append({path.name: path.read_bytes() for path in folder.iterdir() if path.name[-5:] != "-lock"})
    return stops[0], stops[1]


@pytest.mark.parametrize(
    ("stale", "complaint"),
    [
        ("a.sqlite", "record 2 is gone: it, or a.sqlite-witness, is of another moment"),
        (
            "a.sqlite-witness",
            "it is of an earlier moment, when record 1 was the newest; a.sqlite has all up to 2",
        ),
    ],
)
def test_after_a_clean_stop_a_file_of_an_earlier_moment_is_told(
    tmp_path: Path, stale: str, complaint: str
) -> None:
    before, after = stopped_twice(tmp_path)
    assert set(before) == set(after) == {"a.sqlite", "a.sqlite-witness", "a.life"}
    (tmp_path / stale).write_bytes(before[stale])
    assert complaint in refused(tmp_path / "a.sqlite")


def test_tables_that_are_gone_are_missed(left: Left, tmp_path: Path) -> None:
    path = left.write(tmp_path)
    for each in tmp_path.iterdir():
        if "-log-" in each.name or each.name in ("a.sqlite", "a.sqlite-wal"):
            each.unlink()
    assert f"it is missing, and a.sqlite-witness knows of {left.commits + 1} records" in refused(path)


def test_where_allocation_is_not_to_be_had_zeros_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has no call for allocation, and some file systems refuse it."""
    monkeypatch.delattr("os.posix_fallocate")
    with Store(tmp_path / "a.sqlite", NODE, limits=TINY) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(1)]))
        assert segment_path(tmp_path / "a.sqlite", 1).stat().st_size == TINY.segment_bytes
        assert numbers(store) == [1]


# What belongs to others


def swapped(left: Left) -> dict[str, bytes]:
    return {
        "a.sqlite-log-000001": left.files["a.sqlite-log-000002"],
        "a.sqlite-log-000002": left.files["a.sqlite-log-000001"],
    }


def of_another_node(left: Left) -> dict[str, bytes]:
    log = left.files["a.sqlite-log-000001"]
    header = Header.decoded(log[: HEADER.size])
    assert header is not None
    return {"a.sqlite-log-000001": header._replace(node=NEIGHBOUR).encoded() + log[HEADER.size :]}


def of_another_version(left: Left) -> dict[str, bytes]:
    log = bytearray(left.files["a.sqlite-log-000001"])
    log[8] = 3
    log[HEADER.size - 4 : HEADER.size] = zlib.crc32(log[: HEADER.size - 4]).to_bytes(4, "little")
    return {"a.sqlite-log-000001": bytes(log)}


def witness_of_another_node(left: Left) -> dict[str, bytes]:
    with memory_folder() as folder:
        StoreWitness.create(SYSTEM_FILES, Path(folder, "a.sqlite"), NEIGHBOUR, Said(13, Salts(0, 0))).close()
        return {"a.sqlite-witness": Path(folder, "a.sqlite-witness").read_bytes()}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (swapped, "it is segment 2 under another's name"),
        (of_another_node, "it belongs to"),
        (witness_of_another_node, "it belongs to"),
        (of_another_version, "it has version 3, this mqproto knows 2: use the mqproto that wrote it"),
    ],
)
def test_a_file_that_does_not_belong_there_is_told(
    left: Left, tmp_path: Path, change: Callable[[Left], dict[str, bytes]], complaint: str
) -> None:
    assert complaint in refused(left.write(tmp_path, **change(left)))


def test_a_packet_that_looks_like_a_record_is_none(tmp_path: Path) -> None:
    """A neighbour sends bytes that it has seen in another log, and the process dies while they are written."""
    other = left_after_in(tmp_path / "other")
    record = other[HEADER.size :].rstrip(b"\0")
    folder = tmp_path / "own"
    folder.mkdir()
    with Store(folder / "a.sqlite", NODE) as store:
        store.commit(Writes(queues=QUEUES))
        witness = witness_path(folder / "a.sqlite").read_bytes()
        store.commit(Writes(messages=[one(1, record * 9)]))
        shutil.copytree(folder, copy := tmp_path / "copy")
    log = segment_path(copy / "a.sqlite", 1)
    data = log.read_bytes()
    end = len(data.rstrip(b"\0"))
    log.write_bytes(data[: end // SECTOR_BYTES * SECTOR_BYTES].ljust(len(data), b"\0"))
    witness_path(copy / "a.sqlite").write_bytes(witness)
    with Store(copy / "a.sqlite", NODE) as store:
        assert numbers(store) == []


def left_after_in(folder: Path) -> bytes:
    folder.mkdir()
    with Store(folder / "a.sqlite", NODE) as store:
        store.commit(Writes(queues=QUEUES))
        return segment_path(folder / "a.sqlite", 1).read_bytes()


def salvaged(left: Left, data: bytes) -> tuple[list[int], list[str]]:
    """Return the record numbers that can be read from a last segment with this content, and the findings."""
    name = SegmentName(3, Path(left.last))
    found = [*HurtSegment(name, data, is_last=True, acknowledged=None, is_written=False).salvaged()]
    return [one.number for one in found if one.writes is not None], [
        one.finding for one in found if one.finding
    ]


@pytest.mark.parametrize("hurt", [{0}, {1}, {0, 1}, {0, 2}])
def test_behind_records_that_are_hurt_the_next_whole_one_is_found(left: Left, hurt: set[int]) -> None:
    data, first = bytearray(left.files[left.last]), left.commits + 3 - len(left.ends)
    for record in hurt:
        data[left.ends[record] + HEAD.size] ^= 1
    numbers, told = salvaged(left, bytes(data))
    assert numbers == [first + record for record in range(len(left.ends) - 1) if record not in hurt]
    places = [left.ends[record] for record in sorted(hurt) if record - 1 not in hurt]
    assert told == [f"{left.last}: at byte {at:,} stands no whole record" for at in places]


def test_without_a_header_that_is_whole_the_first_record_says_how_the_others_begin(left: Left) -> None:
    data, first = bytearray(left.files[left.last]), left.commits + 3 - len(left.ends)
    data[HEADER.size - 1] ^= 1
    data[left.ends[0] + HEAD.size] ^= 1
    numbers, told = salvaged(left, bytes(data))
    assert numbers == [*range(first + 1, left.commits + 2)]
    assert told[0] == f"{left.last}: its header does not fit its checksum"


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("change", ["packet = zeroblob(3)", "checksum = 1", "packet = CAST(packet AS TEXT)"])
def test_what_is_hurt_in_the_tables_and_in_the_log_still_comes_from_there(
    tmp_path: Path, change: str, is_killed: bool
) -> None:
    path = tmp_path / "a.sqlite"
    limits = TINY._replace(segment_bytes=8_000, segments=1, memory_bytes=1 << 20)
    store = Store(path, NODE, limits=limits)
    store.commit(Writes(queues=QUEUES))
    number = 0
    while not (there := in_tables(path)):
        number += 1
        store.commit(Writes(messages=[one(number, number.to_bytes(1) * 700)]))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE message SET {change} WHERE key = ?", (there[0],))
    if is_killed:
        ignored = shutil.ignore_patterns("*-shm")
        path = Path(shutil.copytree(tmp_path, tmp_path / "killed", ignore=ignored)) / path.name
        store.close()
        store = Store(path, NODE, limits=limits, is_adopted=True)
    rows = store.read(ReadPage(1, 0, 100, 2**30, ReadBy.WINDOW))
    assert [row[1] for row in rows] == [each.to_bytes(1) * 700 for each in range(1, number + 1)]
    assert not any(isinstance(row[1], HurtPacket) for row in rows)
    store.close()
    with Store(path, NODE, limits=limits) as again:
        assert numbers(again) == [*range(1, number + 1)]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT 1 FROM sqlite_master WHERE name = 'quarantine'").fetchall() == []


def in_tables(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as db:
        return [key for (key,) in db.execute("SELECT key FROM message ORDER BY key")]

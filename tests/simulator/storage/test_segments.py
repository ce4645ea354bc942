"""The files of the log: what a crash may have done to them, and what is damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.turn.effects import Writes
from simulator.base.storeerrors import StoreError
from simulator.storage import Store, segments
from simulator.storage.segments import HEADER, segment_path
from tests.memory import memory_folder
from tests.simulator.storage.batches import NEIGHBOUR, NODE, QUEUES, TINY, numbers, one


class Left(NamedTuple):
    """What a killed process has left of a store, by the names of its files.

    lengths: of the last segment, after each of its records.
    first: the number of the message that the first of these put into the store.
    """

    files: dict[str, bytes]
    last: str
    lengths: list[int]
    first: int

    def write(self, folder: Path, **changed: bytes) -> Path:
        for name, data in (self.files | changed).items():
            (folder / name).write_bytes(data)
        return folder / "a.sqlite"


def left_after(folder: Path, commits: int, size_bytes: int) -> Left:
    """A store in which each commit has put one message; three segments are there."""
    lengths: list[int] = []
    last = ""
    limits = TINY._replace(segment_bytes=4_000, segments=9, memory_bytes=1 << 20)
    with Store(folder / "a.sqlite", NODE, limits=limits) as store:
        store.commit(Writes(queues=QUEUES))
        for number in range(1, commits + 1):
            store.commit(Writes(messages=[one(number, number.to_bytes(2) * (size_bytes // 2))]))
            newest = max(path.name for path in folder.iterdir() if "-log-" in path.name)
            if newest != last:
                last, first = newest, number
                lengths.clear()
            lengths.append((folder / newest).stat().st_size)
        files = {
            path.name: path.read_bytes()
            for path in folder.iterdir()
            if not path.name.endswith(("-lock", "-shm"))
        }
    return Left(files, last, lengths, first)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    left = left_after(tmp_path_factory.mktemp("left"), commits=12, size_bytes=900)
    assert len([name for name in left.files if "-log-" in name]) == 3
    assert len(left.lengths) > 2
    return left


@given(data=st.data())
def test_a_log_that_ends_within_its_last_record_has_all_before_it(left: Left, data: st.DataObject) -> None:
    """Whatever stands behind the cut, and wherever in the record something is wrong."""
    log = left.files[left.last]
    whole, end = [HEADER.size, *left.lengths][-2:]
    cut = data.draw(st.integers(whole, end), label="cut")
    damaged = bytearray(log[:cut] + data.draw(st.binary(max_size=100), label="what stands behind the cut"))
    if data.draw(st.booleans(), label="damaged") and len(damaged) > whole:
        damaged[data.draw(st.integers(whole, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    is_whole = damaged[:end] == log
    with memory_folder() as folder:
        path = left.write(Path(folder), **{left.last: bytes(damaged)})
        with Store(path, NODE) as store:
            assert numbers(store) == [*range(1, 13 - (not is_whole))]
            store.commit(Writes(messages=[one(20)]))
        with Store(path, NODE) as store:
            assert numbers(store) == [*range(1, 13 - (not is_whole)), 20]


@given(data=st.data())
def test_damage_anywhere_before_the_last_record_is_told_and_nothing_is_touched(
    left: Left, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(name for name in left.files if "-log-" in name)), label="segment")
    log = bytearray(left.files[name])
    limit = left.lengths[-2] if name == left.last else len(log)
    if name != left.last and data.draw(st.booleans(), label="cut"):
        del log[data.draw(st.integers(0, len(log) - 1)) :]
    else:
        log[data.draw(st.integers(0, limit - 1))] ^= data.draw(st.integers(1, 255))
    with memory_folder() as folder:
        path = left.write(Path(folder), **{name: bytes(log)})
        complaint = refused(path)
        assert name in complaint
        assert {each: (path.parent / each).read_bytes() for each in left.files if "-log-" in each} == {
            each: content if each != name else bytes(log)
            for each, content in left.files.items()
            if "-log-" in each
        }


def refused(path: Path) -> str:
    with pytest.raises(StoreError) as caught:
        Store(path, NODE)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_that_is_missing_is_named(left: Left, tmp_path: Path, number: int) -> None:
    path = left.write(tmp_path)
    segment_path(path, number).unlink()
    assert refused(path).endswith(
        f"a.sqlite-log-00000{number} is missing, which has messages: put it back beside it"
    )


def test_a_log_that_is_missing_altogether_is_told(left: Left, tmp_path: Path) -> None:
    path = left.write(tmp_path)
    for number in (1, 2, 3):
        segment_path(path, number).unlink()
    assert "a.sqlite-log-000001 is missing" in refused(path)


@pytest.mark.parametrize("size", [0, 1, HEADER.size - 1, HEADER.size])
@pytest.mark.parametrize("filler", [b"\0", b"\xa5"])
def test_a_new_segment_that_has_no_header_yet_is_no_damage(
    left: Left, tmp_path: Path, size: int, filler: bytes
) -> None:
    path = left.write(tmp_path, **{"a.sqlite-log-000004": filler * size})
    with Store(path, NODE) as store:
        assert numbers(store) == [*range(1, 13)]
        store.commit(Writes(messages=[one(20)]))
    with Store(path, NODE) as store:
        assert numbers(store) == [*range(1, 13), 20]


def test_a_segment_that_was_brought_to_the_tables_and_is_still_there_is_removed(
    left: Left, tmp_path: Path
) -> None:
    path = left.write(tmp_path)
    Store(path, NODE).close()
    segment_path(path, 2).write_bytes(left.files["a.sqlite-log-000002"])
    with Store(path, NODE) as store:
        assert numbers(store) == [*range(1, 13)]
    assert not segment_path(path, 2).exists()


def swapped(left: Left) -> dict[str, bytes]:
    return {
        "a.sqlite-log-000001": left.files["a.sqlite-log-000002"],
        "a.sqlite-log-000002": left.files["a.sqlite-log-000001"],
    }


def of_another_node(left: Left) -> dict[str, bytes]:
    log = left.files["a.sqlite-log-000001"]
    fields = HEADER.unpack(log[: HEADER.size])
    header = segments._header(NEIGHBOUR, fields[3], fields[4], fields[5])
    return {"a.sqlite-log-000001": header + log[HEADER.size :]}


def of_another_version(left: Left) -> dict[str, bytes]:
    log = left.files["a.sqlite-log-000001"]
    fields = HEADER.unpack(log[: HEADER.size])
    header = segments._header(NODE, fields[3], fields[4], fields[5], version=2)
    return {"a.sqlite-log-000001": header + log[HEADER.size :]}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (swapped, "it is segment 2 under another's name"),
        (of_another_node, "it belongs to"),
        (of_another_version, "it has version 2, this mqproto knows 1: use the mqproto that wrote it"),
    ],
)
def test_a_segment_that_does_not_belong_there_is_told(
    left: Left, tmp_path: Path, change: Callable[[Left], dict[str, bytes]], complaint: str
) -> None:
    assert complaint in refused(left.write(tmp_path, **change(left)))


def test_a_packet_that_looks_like_a_record_is_none(tmp_path: Path) -> None:
    """A neighbour sends what it has seen of another log, and the process dies while that is written."""
    other = left_after_in(tmp_path / "other")
    record = other[HEADER.size :]
    folder = tmp_path / "own"
    folder.mkdir()
    with Store(folder / "a.sqlite", NODE) as store:
        store.commit(Writes(queues=QUEUES))
        store.commit(Writes(messages=[one(1, record * 3)]))
        shutil.copytree(folder, copy := tmp_path / "copy")
    log = segment_path(copy / "a.sqlite", 1)
    log.write_bytes(log.read_bytes()[:-1])
    with Store(copy / "a.sqlite", NODE) as store:
        assert numbers(store) == []


def left_after_in(folder: Path) -> bytes:
    folder.mkdir()
    with Store(folder / "a.sqlite", NODE) as store:
        store.commit(Writes(queues=QUEUES))
        return segment_path(folder / "a.sqlite", 1).read_bytes()

"""The simulated files: flushed data lasts, other data may, and a process can end in any step of a store."""

from __future__ import annotations

import errno
import sqlite3
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, strategies as st

from mqproto.simulator.base.randomness import chance
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.disk import Disk
from mqproto.simulator.world.node.files import (
    DEATHS,
    DISK_FAILS,
    FILLERS,
    FULL,
    KILLED,
    POWER_LOST,
    SECTOR_BYTES,
    Death,
    DiedError,
    SimulatedFiles,
)
from mqproto.turn.effects import LIFE, ReadBy, ReadExpired, ReadPage, StoredState, Writes
from tests.simulator.series import LIMITS, NODE, life_of, series

FOLDER: Final = Path("folder")
FILE: Final = FOLDER / "log"
TABLES: Final = FOLDER / "tables"
OLD: Final = b"1" * 700
"""Old content; it ends within a sector."""
NEW: Final = b"2" * 3_000
SIZE_BYTES: Final = 8_000
"""The size of a file; zeros follow the written bytes."""
DICE: Final = 200
"""How many random choices are tried: enough to show everything that can happen."""

Content = tuple[StoredState, list[list[tuple[int, bytes, bool]]]]


MADE: Final[list[SimulatedFiles]] = []


@pytest.fixture(autouse=True)
def leave_all() -> Iterator[None]:
    """Make sure that no test leaves SQLite's memory to the garbage collector."""
    yield
    for files in MADE:
        files.leave()
    MADE.clear()


def new_files(seed: int = 0, *, loses_power: bool = True) -> SimulatedFiles:
    MADE.append(SimulatedFiles(chance(seed, "files"), loses_power=loses_power))
    return MADE[-1]


def with_a_file(seed: int = 0) -> SimulatedFiles:
    """Return files, one of which has the content `OLD`; its content and its name are flushed."""
    files = new_files(seed)
    file = files.create(FILE)
    file.allocate(SIZE_BYTES)
    file.write(0, [OLD])
    file.flush()
    files.flush_folder(FOLDER)
    return files


def written(files: SimulatedFiles) -> bytes:
    """Return the content of the file, without the zeros at its end."""
    content = files.read(FILE)
    assert len(content) == SIZE_BYTES
    return content.rstrip(b"\0")


def opened_tables(files: SimulatedFiles) -> sqlite3.Connection:
    db = files.connect(TABLES)
    if not db.execute("SELECT 1 FROM sqlite_master").fetchall():
        db.executescript("BEGIN; CREATE TABLE number (number INTEGER); COMMIT;")
    return db


def put(db: sqlite3.Connection, number: int, *, flushed: bool) -> None:
    db.execute(f"PRAGMA synchronous = {'FULL' if flushed else 'NORMAL'}")
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO number VALUES (?)", (number,))
    db.execute("COMMIT")


def numbers_in(files: SimulatedFiles) -> list[int]:
    return [number for (number,) in opened_tables(files).execute("SELECT number FROM number")]


# When the power goes


@given(st.integers(0, 2**32), st.lists(st.binary(min_size=1, max_size=2_000), min_size=1), st.data())
def test_what_was_flushed_lasts(seed: int, parts: list[bytes], data: st.DataObject) -> None:
    files = new_files(seed)
    file = files.create(FILE)
    file.allocate(size_bytes := sum(map(len, parts)))
    file.flush()
    files.flush_folder(FOLDER)
    flushed_count = data.draw(st.integers(0, len(parts)), label="flushed")
    offset = 0
    for number, part in enumerate(parts, 1):
        file.write(offset, [part])
        offset += len(part)
        if number == flushed_count:
            file.flush()
    flushed = b"".join(parts[:flushed_count])
    files.crash(kept=None, power_lost=True)
    found = files.read(FILE)
    assert found.startswith(flushed)
    assert len(found) == size_bytes
    files.crash(kept=None, power_lost=True)
    assert files.read(FILE) == found, "what a power loss has left lasts"


def test_of_what_was_not_flushed_each_sector_may_be_lost_by_itself() -> None:
    found = Counter[str]()
    for seed in range(DICE):
        files = with_a_file(seed)
        whole = OLD + NEW
        files._files[FILE.name].write(len(OLD), [NEW])
        files.crash(kept=None, power_lost=True)
        left = written(files)
        assert left[: len(OLD)] == OLD
        new = [left[at : at + 1] == b"2" for at in range(2 * SECTOR_BYTES, len(whole), SECTOR_BYTES)]
        found["all" if left == whole else "nothing" if left == OLD else "torn"] += 1
        found["a hole"] += True in new and not all(new[: new.index(True)])
        found["cut"] += len(OLD) < len(left) < len(whole)
        assert {bytes([byte]) for byte in left} <= {b"1", b"2", b"\0"}
    assert min(found[each] for each in ("all", "nothing", "torn", "a hole", "cut")) > 0


@pytest.mark.parametrize("kept", [False, True])
def test_a_write_whose_flush_lasts_is_kept_or_not_as_its_caller_says(kept: bool) -> None:
    for seed in range(DICE):
        for power_lost in (False, True):
            files = with_a_file(seed)
            files.holds_flush = True
            file = files._files[FILE.name]
            file.write(len(OLD), [NEW])
            file.flush()
            files.crash(kept=kept, power_lost=power_lost)
            assert (written(files) == OLD + NEW) == kept
            assert written(files).startswith(OLD)


def test_a_flush_that_lasts_is_done_with_the_next_step() -> None:
    for seed in range(DICE):
        files = with_a_file(seed)
        files.holds_flush = True
        file = files._files[FILE.name]
        file.write(len(OLD), [NEW])
        file.flush()
        file.write(len(OLD + NEW), [NEW])
        files.crash(kept=None, power_lost=True)
        assert files.read(FILE).startswith(OLD + NEW)


def test_names_come_and_go_for_certain_when_the_folder_is_flushed() -> None:
    found = Counter[tuple[str, ...]]()
    for seed in range(DICE):
        files = with_a_file(seed)
        files.create(FOLDER / "other").flush()
        files.remove(FILE)
        files.crash(kept=None, power_lost=True)
        found[tuple(sorted(files.names(FOLDER)))] += 1
        files = with_a_file(seed)
        files.create(FOLDER / "other").flush()
        files.remove(FILE)
        files.flush_folder(FOLDER)
        files.crash(kept=None, power_lost=True)
        assert files.names(FOLDER) == ["other"]
    assert set(found) == {("log", "other"), ("log",), ("other",), ()}


def test_a_file_that_was_about_to_get_its_room_has_anything_in_it_or_none() -> None:
    found = Counter[bytes]()
    for seed in range(DICE):
        files = new_files(seed)
        file = files.create(FILE)
        files.flush_folder(FOLDER)
        file.allocate(SIZE_BYTES)
        file.write(0, [OLD])
        files.crash(kept=None, power_lost=True)
        found[files.read(FILE)] += 1
    assert set(found) == {b"", *(filler * SIZE_BYTES for filler in FILLERS)}


def test_a_file_has_its_old_name_or_its_new_one_until_the_folder_is_flushed() -> None:
    found = Counter[str]()
    for seed in range(DICE):
        files = with_a_file(seed)
        files.rename(FILE, FOLDER / "new")
        files.crash(kept=None, power_lost=True)
        [name] = files.names(FOLDER)
        assert files.read(FOLDER / name).startswith(OLD)
        found[name] += 1
    assert set(found) == {"log", "new"}


def test_what_is_written_behind_a_flush_that_lasts_comes_after_it() -> None:
    """This ensures that the witness of a log is never ahead of the log."""
    for kept in (False, True):
        for seed in range(DICE):
            files = with_a_file(seed)
            other = files.create(FOLDER / "witness")
            other.allocate(SECTOR_BYTES)
            other.flush()
            files.flush_folder(FOLDER)
            files.holds_flush = True
            file = files._files[FILE.name]
            file.write(len(OLD), [NEW])
            file.flush()
            other.write(0, [b"3"])
            assert files.read(FOLDER / "witness") == bytes(SECTOR_BYTES)
            if kept:
                files.release()
                assert files.read(FOLDER / "witness").startswith(b"3")
            files.holds_flush = False
            files.crash(kept=kept, power_lost=True)
            assert (written(files) == OLD + NEW) == kept
            assert kept or files.read(FOLDER / "witness") == bytes(SECTOR_BYTES)


def test_of_transactions_that_were_not_flushed_the_first_few_may_be_there() -> None:
    found = Counter[tuple[int, ...]]()
    for seed in range(DICE):
        files = new_files(seed)
        db = opened_tables(files)
        for number in range(1, 5):
            put(db, number, flushed=number == 2)
        files.crash(kept=None, power_lost=True)
        found[tuple(numbers_in(files))] += 1
    assert set(found) == {(1, 2), (1, 2, 3), (1, 2, 3, 4)}


def test_what_a_killed_process_has_not_flushed_can_be_lost_with_the_power_after_that() -> None:
    found = Counter[tuple[int, ...]]()
    for seed in range(DICE):
        files = new_files(seed)
        put(opened_tables(files), 1, flushed=False)
        files.crash(kept=None, power_lost=False)
        assert numbers_in(files) == [1], "the system has it"
        files.crash(kept=None, power_lost=True)
        found[tuple(numbers_in(files))] += 1
    assert set(found) == {(), (1,)}


def test_tables_that_were_closed_are_flushed() -> None:
    for seed in range(DICE):
        files = new_files(seed)
        db = opened_tables(files)
        put(db, 1, flushed=False)
        db.close()
        files.crash(kept=None, power_lost=True)
        assert numbers_in(files) == [1]


# When a process is killed


def test_all_that_a_killed_process_has_done_is_there_but_for_the_transaction_that_it_was_in() -> None:
    files = with_a_file()
    db = opened_tables(files)
    put(db, 1, flushed=False)
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO number VALUES (2)")
    files._files[FILE.name].write(len(OLD), [NEW])
    other = files.create(FOLDER / "other")
    other.allocate(1)
    other.write(0, [b"3"])
    files.crash(kept=None, power_lost=False)
    assert numbers_in(files) == [1]
    assert written(files) == OLD + NEW
    assert files.read(FOLDER / "other") == b"3"


def a_life(files: SimulatedFiles) -> None:
    """Use files in steps of all kinds."""
    file = files.create(FILE)
    file.allocate(SIZE_BYTES)
    file.write(0, [OLD, NEW])
    file.flush()
    files.flush_folder(FOLDER)
    put(opened_tables(files), 1, flushed=True)
    files.rename(FILE, FOLDER / "other")
    files.remove(FOLDER / "other")
    files.create(FOLDER / "the next step")


def what_is_there(files: SimulatedFiles) -> str:
    names = files.names(FOLDER)
    content = files.read(FOLDER / names[0]) if names else b""
    assert (OLD + NEW).startswith(content.rstrip(b"\0"))
    size = f"{len(content.rstrip(bytes(1)))} of {len(content)}"
    return f"{names[0]} {size} {numbers_in(files)}" if names else f"no file {numbers_in(files)}"


def test_a_process_can_end_before_within_and_behind_each_of_its_steps() -> None:
    seen = []
    for steps in range(10):
        seen.append(set[str]())
        for seed in range(DICE):
            files = new_files(seed)
            files.dies_by(Death(steps, KILLED))
            with pytest.raises(DiedError) as died:
                a_life(files)
            assert not died.value.power_lost
            with pytest.raises(DiedError):
                files.create(FOLDER / "after its end")
            files.crash(kept=None, power_lost=False)
            seen[-1].add(what_is_there(files))
    none, room, whole = "log 0 of 0 []", "log 0 of 8000 []", "log 3700 of 8000 []"
    assert seen[0] == {"no file []", none}
    assert seen[1] == {none, room}
    assert {room, whole} < seen[2]
    assert len(seen[2]) == 9, "a write can be torn between any two sectors"
    assert seen[3] == seen[4] == seen[5] == {whole}
    assert seen[6] == {whole, whole.replace("[]", "[1]")}
    assert seen[7] == {f"{name} 3700 of 8000 [1]" for name in ("log", "other")}
    assert seen[8] == {"other 3700 of 8000 [1]", "no file [1]"}
    assert seen[9] == {"no file [1]", "the next step 0 of 0 [1]"}


def test_a_disk_that_fails_says_so_once_and_may_have_done_it() -> None:
    found = Counter[bytes]()
    for seed in range(DICE):
        files = with_a_file(seed)
        files.dies_by(Death(0, DISK_FAILS))
        file = files._files[FILE.name]
        with pytest.raises(OSError, match="Input/output error") as failed:
            file.write(2 * SECTOR_BYTES, [b"2" * 600])
        assert failed.value.errno == errno.EIO
        assert files.trouble == DISK_FAILS
        found[written(files)] += 1
        file.write(5_000, [b"4"])
    begins = OLD.ljust(2 * SECTOR_BYTES, b"\0")
    assert set(found) == {OLD, begins + b"2" * SECTOR_BYTES, begins + b"2" * 600}
    db = opened_tables(files)
    files.dies_by(Death(0, DISK_FAILS))
    with pytest.raises(sqlite3.OperationalError) as error:
        put(db, 1, flushed=True)
    assert error.value.sqlite_errorcode == sqlite3.SQLITE_IOERR


def test_a_full_disk_takes_what_has_its_room_no_file_and_no_transaction() -> None:
    files = with_a_file()
    db = opened_tables(files)
    files.room_bytes = files.size_bytes + 10
    other = files.create(FOLDER / "other")
    with pytest.raises(OSError, match="No space left") as full:
        other.allocate(11)
    assert full.value.errno == errno.ENOSPC
    other.allocate(10)
    files._files[FILE.name].write(len(OLD), [NEW])
    assert written(files) == OLD + NEW
    with pytest.raises(sqlite3.OperationalError) as error:
        put(db, 1, flushed=True)
    assert error.value.sqlite_errorcode == sqlite3.SQLITE_FULL
    assert files.trouble == FULL
    db.execute("ROLLBACK")
    files.room_bytes = None
    put(db, 2, flushed=True)
    db.close()
    assert numbers_in(files) == [2]


# With a store


def content(store: Store | Disk) -> Content:
    state = store.load()
    state.outgoing.sort()
    state.incoming.sort()
    pages = [ReadPage(queue.queue, 0, 100_000, 2**40, ReadBy.WINDOW) for queue in state.queues]
    return state, [*map(store.read, pages), store.read(ReadExpired(100_000, 2**40))]


def life(files: SimulatedFiles, batches: list[Writes]) -> tuple[int, str]:
    """Let a store commit, and return how many commits were finished.

    Also return how the process died, or why the disk refused something; empty if neither happened.
    """
    done = 0
    try:
        store = Store(TABLES, NODE, limits=LIMITS, files=files)
        for writes in batches:
            store.commit(writes)
            done += 1
        store.close()
    except DiedError as died:
        return done, POWER_LOST if died.power_lost else KILLED
    except StoreError:
        return done, files.trouble
    return done, files.trouble


@pytest.mark.long
@pytest.mark.parametrize("how", DEATHS)
def test_a_store_has_what_was_committed_in_whatever_step_its_process_ends(how: str) -> None:
    """tests/simulator/storage/test_powerloss.py does the same for a real disk, with each step of a longer life."""
    length = 25
    model, contents = Disk(), []
    batches = life_of(1, length)
    for writes in batches:
        model.commit(writes)
        contents.append(content(model))
    ended = Counter[str]()
    for steps in count():
        files = new_files(steps)
        files.dies_by(Death(steps, how))
        done, death = life(files, batches)
        if not death:
            break
        assert death == how
        files.crash(kept=None, power_lost=how == POWER_LOST)
        with Store(TABLES, NODE, limits=LIMITS, files=files) as again:
            has = again.record_count
            assert has in (done, done + 1)
            assert (again.life is None) == (has > 0), (
                "a kill begins no life, and the first ends with no other"
            )
            assert not any("begins" in notice for notice in again.notices)
            assert content(again) == (contents[has - 1] if has else content(Disk()))
        ended[f"within a commit, {'kept' if has > done else 'gone'}"] += 1
    assert steps > 2 * length
    assert min(ended.values()) > 10
    assert len(ended) == 2


@pytest.mark.long
@pytest.mark.parametrize("how", DEATHS)
@pytest.mark.parametrize("what", ["put back", "moved away"])
def test_a_life_that_is_to_begin_does_so_in_whatever_step_its_process_ends(what: str, how: str) -> None:
    """Until the new life has begun, each start is told to begin it; after that, no other life begins."""
    begun = Counter[bool]()
    for steps in count():
        files = new_files(steps)
        life(files, life_of(1, 10))
        copy = files.copied()
        life(files, [Writes(counters={"more": number}) for number in range(5)])
        files.put_back(copy if what == "put back" else None)
        files.dies_by(Death(steps, how))
        done, death = life(files, [Writes(counters={LIFE: 2}), Writes(counters={"more": 9})])
        if not death:
            break
        files.crash(kept=None, power_lost=how == POWER_LOST)
        for _ in range(2):
            with Store(TABLES, NODE, limits=LIMITS, files=files) as again:
                has_begun = again.load().counters.get(LIFE) == 2
                assert has_begun or not done
                begun[has_begun] += 1
                if has_begun:
                    assert again.life is None
                    assert again.notices == []
                else:
                    assert again.life is not None
                    assert (again.life.number, again.life.is_restored) == (2, what == "put back")
                    [notice] = again.notices
                    assert "record 15 of life 1" in notice
    assert min(begun[True], begun[False]) > 10


def test_the_same_dice_leave_the_same_files() -> None:
    def left(seed: int) -> tuple[dict[str, int], bytes]:
        files = new_files(seed)
        files.dies_by(Death(67, POWER_LOST))
        life(files, list(series(1, 40)))
        files.crash(kept=None, power_lost=True)
        sizes = {name: len(files.read(FOLDER / name)) for name in files.names(FOLDER)}
        return sizes, files._tables  # The salt of a segment is no matter of our dice.

    assert [left(seed) for seed in range(10)] == [left(seed) for seed in range(10)]
    assert len({str(left(seed)) for seed in range(10)}) > 1

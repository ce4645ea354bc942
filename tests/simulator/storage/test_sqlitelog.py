"""SQLite's own log is read if it belongs to the tables as they are now; otherwise that is reported."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, strategies as st

from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.storage import LogLimits, Store
from mqproto.simulator.storage.care import back_up, repair, salvaged
from mqproto.simulator.storage.files import LOG_HEADER_BYTES, PAGE_BYTES, SYSTEM_FILES
from mqproto.simulator.storage.witnesses.sqlitelog import (
    Salts,
    found_salts,
    header_of,
    log_path,
    trouble_with,
)
from mqproto.simulator.storage.witnesses.witness import said_by_witness, witness_path
from mqproto.turn.effects import Writes
from tests.simulator.storage.batches import NODE, QUEUES, numbers, one
from tests.simulator.storage.test_hurt import files_in

LIMITS = LogLimits(segment_bytes=2_000, segments=1, memory_bytes=4_000, slice_messages=3, slice_bytes=1_000)
"""The limits of a store that constantly moves its log to the tables."""
WORDS = st.integers(0, 2**32 - 1)
FRAME_BYTES = 24 + PAGE_BYTES
ELSEWHERE = "it is of another store, or of an earlier moment"


def begun(folder: Path) -> Store:
    folder.mkdir(exist_ok=True)
    store = Store(folder / "a.sqlite", NODE, limits=LIMITS)
    store.commit(Writes(queues=QUEUES))
    return store


def filled(store: Store, first: int, last: int) -> None:
    for number in range(first, last + 1):
        store.commit(Writes(messages=[one(number, bytes([number % 256]) * 400)]))


def put(files: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder / "a.sqlite"


def refused(path: Path) -> str:
    """Return the reason why a store does not start, and check that its files do not change."""
    before = files_in(path.parent)
    with pytest.raises(StoreError) as caught:
        Store(path, NODE, limits=LIMITS)
    after = files_in(path.parent)
    # SQLite's log has room behind what was written.
    assert {name: data.rstrip(b"\0") for name, data in after.items()} == {
        name: data.rstrip(b"\0") for name, data in before.items()
    }
    assert "\n" not in str(caught.value)
    return str(caught.value)


def checkpoint(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0


# Salts


@given(WORDS, WORDS, WORDS)
def test_a_header_says_what_it_was_made_of(number: int, drawn: int, dice: int) -> None:
    salts = Salts(number, drawn)
    header = header_of(salts, PAGE_BYTES)
    assert len(header) == LOG_HEADER_BYTES
    assert found_salts(header) == salts
    assert trouble_with(header, None) == trouble_with(header, salts) == ""
    following = salts.next(Random(dice))
    assert trouble_with(header_of(following, PAGE_BYTES), salts) == ""
    assert trouble_with(header, following) == ELSEWHERE
    assert (trouble_with(header, Salts(number, drawn ^ 1)), trouble_with(b"", salts)) == (ELSEWHERE, "")


@given(WORDS, WORDS, st.integers(0, 8 * LOG_HEADER_BYTES - 1))
def test_a_bit_of_a_header_is_seen(number: int, drawn: int, bit: int) -> None:
    header = bytearray(header_of(Salts(number, drawn), PAGE_BYTES))
    header[bit // 8] ^= 1 << bit % 8
    assert trouble_with(bytes(header), None) == "its header does not fit its checksum"


def test_sqlite_reads_and_writes_the_same_headers(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as db:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        db.execute("CREATE TABLE t (x)")
        header = log_path(tmp_path / "a.sqlite").read_bytes()[:LOG_HEADER_BYTES]
        assert found_salts(header) is not None


def test_the_first_salt_grows_for_as_long_as_there_is_the_store(tmp_path: Path) -> None:
    path, seen = tmp_path / "a.sqlite", []
    with begun(tmp_path):
        pass
    for life in range(5):
        with Store(path, NODE, limits=LIMITS) as store:
            for step in range(3):
                filled(store, 30 * life + 10 * step + 1, 30 * life + 10 * step + 10)
                salts = found_salts(SYSTEM_FILES.head(log_path(path), LOG_HEADER_BYTES))
                assert salts is not None
                assert said_by_witness(path, witness_path(path).read_bytes(), NODE).salts == salts
                seen.append(salts)
                checkpoint(path)
        assert not log_path(path).exists()
    assert all(after.follow(before) and not before.follow(after) for before, after in pairwise(seen))


# What starts


@pytest.mark.long
def test_a_store_that_is_killed_at_any_moment_starts_without_a_word(tmp_path: Path) -> None:
    moments, done = [], []
    for life in range(3):
        with (
            begun(tmp_path / "home")
            if not life
            else Store(tmp_path / "home/a.sqlite", NODE, limits=LIMITS) as store
        ):
            for step in range(6):
                moments.append(files_in(tmp_path / "home"))
                done.append(20 * life + 3 * step)
                filled(store, 20 * life + 3 * step + 1, 20 * life + 3 * step + 3)
                if step % 2:
                    checkpoint(store.path)
            filled(store, 20 * life + 19, 20 * life + 20)
    for number, (files, count) in enumerate(zip(moments, done, strict=True)):
        with Store(put(files, tmp_path / str(number)), NODE, limits=LIMITS) as store:
            assert store.notices == []
            store.load()
            assert numbers(store) == [*range(1, count + 1)]


def test_a_store_that_somebody_has_looked_at_with_sqlite_after_a_kill_starts(tmp_path: Path) -> None:
    with begun(tmp_path / "home") as store:
        filled(store, 1, 20)
        path = put(files_in(tmp_path / "home"), tmp_path / "killed")
    with closing(sqlite3.connect(path)) as db:
        db.execute("SELECT * FROM waiting").fetchall()
    assert not log_path(path).exists(), "SQLite brings it to the tables"
    for _ in range(2):
        with Store(path, NODE, limits=LIMITS) as store:
            store.load()
            assert (store.notices, numbers(store)) == ([], [*range(1, 21)])


# What does not


def test_the_log_of_another_store_is_refused_and_a_repair_keeps_the_tables_without_it(tmp_path: Path) -> None:
    with begun(tmp_path / "home") as store, begun(tmp_path / "other") as other:
        filled(store, 1, 40)
        checkpoint(store.path)
        filled(store, 41, 44)
        filled(other, 101, 150)
        path = put(files_in(tmp_path / "home"), tmp_path / "killed")
        mine = log_path(path).read_bytes()
        foreign = log_path(other.path).read_bytes()
    log_path(path).write_bytes(foreign)
    line = refused(path)
    assert line == (
        f"{path}-wal: {ELSEWHERE}: put back the one that belongs to a.sqlite, or `mqproto store repair {path}`"
        " sets aside what is hurt and keeps the rest"
    )
    with closing(salvaged(SYSTEM_FILES, path)) as found:
        assert found.findings[0] == f"a.sqlite-wal: {ELSEWHERE}; what follows is of a.sqlite without it"
    repaired = repair(SYSTEM_FILES, path, "today")
    assert repaired.quarantine is not None
    assert (repaired.quarantine / "a.sqlite-wal").read_bytes() == foreign
    with Store(path, NODE, limits=LIMITS) as store:
        store.load()
        kept = numbers(store)
    assert max(kept) <= 44, "nothing of the other store is there"
    missing = {*range(1, 45)} - set(kept)
    told = " ".join(repaired.findings)
    # The record of a message has the number that follows the message's, for the first declares the queues.
    assert not missing or "the log: record" in told or "is missing" in told
    # Or its own is put back.
    path = put(files_in(repaired.quarantine), tmp_path / "again")
    log_path(path).write_bytes(mine)
    with Store(path, NODE, limits=LIMITS) as store:
        store.load()
        assert (store.notices, numbers(store)) == ([], [*range(1, 45)])


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_log_of_an_earlier_moment_is_refused(tmp_path: Path, is_stopped: bool) -> None:
    store = begun(tmp_path / "home")
    filled(store, 1, 20)
    earlier = log_path(store.path).read_bytes()
    if is_stopped:
        store.close()
        store = Store(store.path, NODE, limits=LIMITS)
    else:
        checkpoint(store.path)
    filled(store, 21, 40)
    path = put(files_in(tmp_path / "home"), tmp_path / "killed")
    store.close()
    log_path(path).write_bytes(earlier)
    assert ELSEWHERE in refused(path)


def test_a_log_that_was_there_before_a_stop_is_refused_though_there_is_none_now(tmp_path: Path) -> None:
    with begun(tmp_path / "home") as store:
        filled(store, 1, 20)
        earlier = log_path(store.path).read_bytes()
    path = put(files_in(tmp_path / "home"), tmp_path / "stopped")
    with Store(path, NODE, limits=LIMITS):
        pass
    log_path(path).write_bytes(earlier)
    assert ELSEWHERE in refused(path)


def test_a_log_beside_a_backup_is_not_that_of_the_backup(tmp_path: Path) -> None:
    with begun(tmp_path / "home") as store:
        filled(store, 1, 20)
        back_up(SYSTEM_FILES, store.path, tmp_path / "backup")
        path = put(files_in(tmp_path / "backup"), tmp_path / "put-back")
        log_path(path).write_bytes(log_path(store.path).read_bytes())
    assert ELSEWHERE in refused(path)


def test_a_header_that_is_hurt_is_refused_and_a_repair_does_without_the_log(tmp_path: Path) -> None:
    with begun(tmp_path / "home") as store:
        filled(store, 1, 20)
        path = put(files_in(tmp_path / "home"), tmp_path / "killed")
    data = bytearray(log_path(path).read_bytes())
    data[17] ^= 4
    log_path(path).write_bytes(data)
    assert "its header does not fit its checksum" in refused(path)
    findings = repair(SYSTEM_FILES, path, "today").findings
    assert findings[0].startswith(
        "a.sqlite-wal: its header does not fit its checksum; what follows is of a.sqlite"
    )
    Store(path, NODE, limits=LIMITS).close()


@pytest.mark.long
def test_of_a_log_whose_end_is_gone_nothing_gets_to_the_tables_which_have_it_all(tmp_path: Path) -> None:
    """The rest of the log is older than the tables' content."""
    with begun(tmp_path / "home") as store:
        filled(store, 1, 40)
        checkpoint(store.path)
        files = files_in(tmp_path / "home")
    log, said = files["a.sqlite-wal"], set[str]()
    for kept in range(1, 60, 4):
        cut = files | {"a.sqlite-wal": log[: LOG_HEADER_BYTES + kept * FRAME_BYTES]}
        path = put(cut, tmp_path / str(kept))
        try:
            Store(path, NODE, limits=LIMITS).close()
        except StoreError as error:
            said.add(re.sub(r"\d+", "N", str(error).partition("a.sqlite: ")[2].partition(": `")[0]))
            assert files_in(path.parent)["a.sqlite"] == cut["a.sqlite"]
            findings = repair(SYSTEM_FILES, path, "today").findings
            assert findings[0] == (
                "a.sqlite-wal: it is hurt, or of an earlier moment; what follows is of a.sqlite without it"
            )
        with Store(path, NODE, limits=LIMITS) as store:
            store.load()
            assert numbers(store) == [*range(1, 41)]
    assert said == {
        "it is damaged (database disk image is malformed)",
        "a.sqlite-log-N is missing, which has messages",
    }

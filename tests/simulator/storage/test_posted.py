"""Posted messages in a store: found by their ids wherever they are, aged, damaged, upgraded."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mqproto.simulator.base.storeerrors import DamageError
from mqproto.simulator.storage import Store, posted as table
from mqproto.simulator.storage.care.adopt import accept_lost_ids
from mqproto.simulator.storage.care.backup import back_up
from mqproto.simulator.storage.care.repair import repair
from mqproto.simulator.storage.care.salvage import salvaged
from mqproto.simulator.storage.files import SYSTEM_FILES
from mqproto.simulator.storage.tables import BEFORE, see_that_all_is_there
from mqproto.turn.effects import POSTED_LACKS_S, POSTED_UNKNOWN, PostedChange, PostedRow, Writes
from tests.simulator.storage.batches import NODE, QUEUES, TINY, one, posted

ENDED = PostedChange(1, changed_s=9, message_class=0x4000, ended_s=1_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.sqlite"


def filled(path: Path, *rows: PostedRow, ended: tuple[PostedChange, ...] = ()) -> None:
    """Make a store with these rows in its tables, and close it."""
    with Store(path, NODE) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(1)], posted=list(rows), changes=list(ended)))


def altered(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


def test_an_id_is_found_in_the_log_in_the_tables_and_after_a_kill(path: Path) -> None:
    with Store(path, NODE, TINY._replace(segments=1)) as store:
        store.commit(Writes(queues=QUEUES))
        for number in range(1, 30):
            store.commit(Writes(posted=[posted(number)]))
            store.commit(Writes(messages=[one(number, bytes(200))]))
        store.commit(Writes(changes=[ENDED]))
        for name in ("alive", "killed"):
            if name == "killed":
                shutil.copytree(path.parent, path.parent / name)
            for number in range(1, 30):
                wanted = posted(number)
                if number == 1:
                    wanted = PostedRow(1, wanted.queue, wanted.key, b"", b"", 9, 0x4000, 1_000)
                assert store.posted_as(number) == wanted
                assert not wanted.key or store.posted(wanted.queue, wanted.key) == wanted
        assert store.posted("orders", "id 1") is None, "the id is another queue's"
    with Store(path.parent / "killed" / "a.sqlite", NODE) as store:
        for number in range(2, 30):
            assert store.posted_as(number) == posted(number)


def test_an_end_that_comes_when_the_row_is_in_the_tables_is_in_it_after_a_restart(path: Path) -> None:
    filled(path, posted(1))
    filled(path.with_name("b.sqlite"))
    with Store(path, NODE) as store:
        store.commit(Writes(changes=[ENDED, ENDED._replace(message_id=99)]))
    with Store(path, NODE) as store:
        row = store.posted_as(1)
        assert row is not None
        assert (row.message_class, row.ended_s, row.changed_s) == (0x4000, 1_000, 9)
        assert store.posted_as(99) is None


@pytest.mark.parametrize("is_moved", [True, False])
@pytest.mark.parametrize("is_ended_first", [True, False])
def test_who_settles_a_message_that_has_ended_meanwhile_does_not_undo_its_end(
    path: Path, is_moved: bool, is_ended_first: bool
) -> None:
    row = posted(1)._replace(owed=True)
    settled = PostedChange(1, 0, 0, 0, is_settled=True)
    wanted = row._replace(changed_s=9, message_class=0x4000, ended_s=1_000, owed=False)
    if is_moved:
        filled(path, row)
    with Store(path, NODE) as store:
        if not is_moved:
            store.commit(Writes(queues=QUEUES, posted=[row]))
        for change in (ENDED, settled) if is_ended_first else (settled, ENDED):
            store.commit(Writes(changes=[change]))
        assert (store.posted_as(1), store.owed()) == (wanted, [])
    with Store(path, NODE) as store:
        assert (store.posted_as(1), store.owed()) == (wanted, [])


def test_what_has_not_changed_for_long_is_forgotten_in_slices_the_oldest_first(path: Path) -> None:
    filled(path, *(posted(number, changed_s=100 - number) for number in range(1, 21)))
    with Store(path, NODE) as store:
        assert store.forget_posted(since_s=90, limit=4) == 4
        left = [number for number in range(1, 21) if store.posted_as(number) is not None]
        assert left == [*range(1, 17)]
        assert store.forget_posted(since_s=90, limit=100) == 7
        assert store.forget_posted(since_s=90) == 0
    with Store(path, NODE) as store:
        assert [number for number in range(1, 21) if store.posted_as(number) is not None] == [*range(1, 10)]
    with closing(sqlite3.connect(path)) as db:
        assert see_that_all_is_there(db) == []


def test_a_damaged_row_is_in_doubt_and_never_new_and_a_start_does_not_look(path: Path) -> None:
    filled(path, posted(1), posted(2))
    altered(path, "UPDATE posted SET fingerprint = x'00' WHERE message_id = 1")
    with Store(path, NODE) as store:
        with pytest.raises(DamageError, match="posted"):
            store.posted(posted(1).queue, posted(1).key)
        assert store.posted(posted(2).queue, posted(2).key) == posted(2)
        store.commit(Writes(changes=[ENDED, ENDED._replace(message_id=2)]))
    with Store(path, NODE) as store:
        assert store.posted_as(2) != posted(2)
        with pytest.raises(DamageError, match="posted"):
            store.posted_as(1)
    with closing(salvaged(SYSTEM_FILES, path)) as found:
        assert "1 posted messages are not whole" in "\n".join(found.findings)


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM posted WHERE message_id = 1", "UPDATE posted SET name = 7 WHERE message_id = 1"],
)
def test_a_check_misses_a_row_that_is_gone_and_one_that_no_lookup_finds(path: Path, statement: str) -> None:
    filled(path, posted(1), posted(2))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP TRIGGER posted_delete")
        [(trigger,)] = db.execute("SELECT sql FROM sqlite_master WHERE name = 'posted_insert'").fetchall()
        db.execute(statement)
        db.execute(
            trigger.replace("posted_insert AFTER INSERT", "posted_delete AFTER DELETE").replace("+ 1", "+ -1")
        )
    with closing(salvaged(SYSTEM_FILES, path)) as found:
        assert found.findings


def test_a_backup_has_the_rows_of_tables_and_log(path: Path, tmp_path: Path) -> None:
    filled(path, posted(1))
    with Store(path, NODE) as store:
        store.commit(Writes(posted=[posted(2)], changes=[ENDED]))
        copy = back_up(SYSTEM_FILES, path, tmp_path / "copy").path
        wanted = store.posted_as(1), store.posted_as(2)
    with closing(sqlite3.connect(copy)) as db:
        rows = table.PostedTable(db)
        assert (rows.numbered(1), rows.numbered(2)) == wanted


def test_a_repaired_store_has_the_whole_rows_and_says_that_ids_are_unknown(path: Path) -> None:
    filled(path, posted(1), posted(2))
    altered(path, "UPDATE posted SET key = 'another' WHERE message_id = 1")
    repaired = repair(SYSTEM_FILES, path, "today")
    assert repaired.quarantine is not None
    with Store(path, NODE) as store:
        assert (store.posted_as(1), store.posted_as(2)) == (None, posted(2))
        assert store.load().counters[POSTED_UNKNOWN] == 1
    assert accept_lost_ids(SYSTEM_FILES, path, None, 1_000)
    with Store(path, NODE) as store:
        counters = store.load().counters
        assert (counters[POSTED_UNKNOWN], counters[POSTED_LACKS_S]) == (0, 1_000)
    assert not accept_lost_ids(SYSTEM_FILES, path, None, 1_000)


def test_a_store_of_the_layout_before_gets_the_table_and_its_messages_stay(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP TABLE posted")
        db.execute("DELETE FROM total WHERE name = 'posted'")
        db.execute(f"PRAGMA user_version = {BEFORE}")
    with closing(salvaged(SYSTEM_FILES, path)) as found:
        assert found.findings == []
    copy = back_up(SYSTEM_FILES, path, path.with_name("copy.sqlite")).path
    for each in (path, copy):
        with closing(sqlite3.connect(each)) as db:
            db.row_factory = None
    with Store(path, NODE) as store:
        assert store.size_bytes == len(b"packet")
        store.commit(Writes(posted=[posted(1)]))
    with Store(path, NODE) as store:
        assert store.posted_as(1) == posted(1)
    with closing(salvaged(SYSTEM_FILES, path)) as found:
        assert found.findings == []

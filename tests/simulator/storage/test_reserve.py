"""A full disk: the log continues in the reserved space, and a start leaves the log as it is.

The files are those of a simulated world, whose disk has as much room as a test says.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.manager.queuemanager import QueueManager
from mqproto.routing import Routes
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.base.storeerrors import DiskFullError, LifeFullError, StoreError
from mqproto.simulator.storage import LogLimits, Store
from mqproto.simulator.storage.disk import Disk
from mqproto.simulator.storage.files import SYSTEM_FILES, SystemFiles
from mqproto.simulator.storage.reserve import SHARES, reserve_path
from mqproto.simulator.storage.witnesses.life import LifeFile
from mqproto.simulator.world.node.files import SimulatedFiles
from mqproto.turn.effects import LIFE, MESSAGE_ID_CEILING, SEQUENCE_ORDINAL_CEILING, Writes, message_key
from mqproto.wire import Guid, encode_packet, establish_connection
from tests.simulator.storage.batches import (
    EVERYTHING,
    LOCAL,
    NODE,
    QUEUES,
    TINY,
    batches,
    has,
    messages_in,
    numbers,
    one,
)

PATH: Final = Path("a.sqlite")
RESERVE: Final = Path("a.sqlite-reserve")
RESERVE_BYTES: Final = 12_000
LIMITS: Final = LogLimits(segment_bytes=4_000, segments=9, reserve_bytes=RESERVE_BYTES)
BODY: Final = bytes(500)
DECLARED: Final = Writes(queues=QUEUES)
BEGINS: Final = Writes(
    queues=QUEUES, counters={LIFE: 1, MESSAGE_ID_CEILING: 1_000, SEQUENCE_ORDINAL_CEILING: 0}
)
"""A transaction with which a life begins."""
LIFE_FILE: Final = Path("a.life")
MADE: Final[list[SimulatedFiles]] = []


@pytest.fixture(autouse=True)
def _leave() -> Iterator[None]:
    """Make sure that no test leaves SQLite's memory to the garbage collector."""
    yield
    for files in MADE:
        files.leave()
    MADE.clear()


def new_files(seed: int = 0) -> SimulatedFiles:
    MADE.append(SimulatedFiles(chance(seed, "files"), loses_power=False))
    return MADE[-1]


def opened(files: SimulatedFiles, limits: LogLimits = LIMITS) -> Store:
    return Store(PATH, NODE, limits=limits, files=files)


def filled(files: SimulatedFiles, room_bytes: int = 0, *, first: Writes = DECLARED) -> tuple[Store, int]:
    """Fill a disk that has `room_bytes` left; return the store, and the number of messages that it accepted until
    then.
    """
    store = opened(files)
    store.commit(first)
    files.room_bytes = files.size_bytes + room_bytes
    for number in count(1):
        if not store.room_bytes:
            return store, number - 1
        assert number < 100, "it takes as much as it likes"
        store.commit(Writes(messages=[one(number, BODY)]))
    raise AssertionError


def log_of(files: SimulatedFiles) -> set[str]:
    """Return the names of a log's segments."""
    return {name for name in files.names(PATH.parent) if "-log-" in name}


def remove(store: Store, number: int) -> None:
    key = message_key(LOCAL, number)
    store.commit(Writes(removals=[(key, key)]))


def killed(files: SimulatedFiles) -> Store:
    """Kill the process, and start the next one on its files."""
    files.crash(kept=None, power_lost=False)
    return opened(files)


def test_on_a_full_disk_the_log_goes_on_in_the_reserve_for_what_makes_room_and_for_nothing_else() -> None:
    files = new_files()
    store, taken = filled(files)
    assert taken > 5
    assert RESERVE.name not in files.names(PATH.parent)
    for number in range(1, taken + 1):
        remove(store, number)
    assert (numbers(store), store.size_bytes, store.room_bytes) == ([], 0, 0)


def test_strangers_use_up_nothing_of_what_was_set_aside_under_whatever_names_they_call() -> None:
    files = new_files()
    store, _ = filled(files, first=Writes(queues=QUEUES[:1]))
    now = Moment(uptime_ms=0, utc_s=1_700_000_000)
    core = QueueManager(NODE, (), Routes(), Settings(peers_remembered=50), store.load(), now)
    core.has_room(store.room_bytes)
    for number in range(1, 201):
        now = Moment(now.uptime_ms + 1_000, now.utc_s + 1)
        session = core.accepted(f"10.0.0.{number}", now)
        stranger = Guid(number.to_bytes(16, "big"))
        request = establish_connection(client=stranger, server=NODE, time_stamp_ms=0)
        core.receive(session, encode_packet(request), now)
        core.tick(now)
        if (writes := core.take(now).writes) is not None:
            store.commit(writes)
        assert core.inspect().met.get(stranger) is not None
        core.lost(session, "he has gone", now)
    assert store.room_bytes == 0


def test_it_starts_on_a_full_disk_after_any_number_of_kills_and_goes_on_where_it_was() -> None:
    files = new_files()
    store, taken = filled(files)
    state = store.load()
    for number in range(1, taken):
        store = killed(files)
        assert "the disk is full, and the log stays as it is" in store.notices[0]
        assert numbers(store) == [*range(number, taken + 1)]
        assert store.load().identifiers == state.identifiers
        remove(store, number)
    assert store.size_bytes == len(BODY)
    store.close()
    files.room_bytes = None
    with opened(files) as again:
        assert numbers(again) == [taken]
        assert again.notices == []
        assert not log_of(files)


def test_the_place_of_a_message_that_the_tables_have_still_is_not_given_again() -> None:
    """After a start on a full disk, only the log knows that the message has left."""
    files = new_files()
    store = opened(files)
    store.commit(DECLARED)
    store.commit(Writes(messages=[one(number) for number in (1, 2, 3)]))
    store.close()
    files.room_bytes = files.size_bytes
    store = opened(files)
    for number in (1, 2, 3):
        remove(store, number)
    for number in (4, 5, 6):
        store = killed(files)
        known = next(queue for queue in store.load().queues if queue.queue == LOCAL)
        assert (known.message_count, known.last, known.last_used) == (0, 0, number - 1)
        store.commit(Writes(messages=[one(number)]))
        remove(store, number)
    store.close()
    files.room_bytes = None
    with opened(files) as again:
        assert numbers(again) == []


def test_the_reserve_is_used_to_its_end_though_memory_has_more_than_it_should() -> None:
    """The little room that a disk has left is not used for a segment in which the next record would not fit."""
    files = new_files()
    store = opened(files, LIMITS._replace(segment_bytes=1_000, memory_bytes=2_000))
    store.commit(DECLARED)
    files.room_bytes = files.size_bytes + 600
    each = count(1)
    while RESERVE.name in files.names(PATH.parent):
        store.commit(Writes(messages=[one(next(each), BODY)]))
    begun = log_of(files)
    for _ in range(15):
        store.commit(Writes(messages=[one(next(each), BODY)]))
    assert log_of(files) <= begun


def test_it_is_used_to_its_end_also_where_a_segment_that_was_done_with_is_a_short_reserve_now() -> None:
    """The short segment may have no room for the next record, and the tables may have none for the earlier ones."""
    files, limits = new_files(), LIMITS._replace(segment_bytes=2_000, memory_bytes=2_000)
    store = opened(files, limits)
    store.commit(DECLARED)
    store.commit(Writes(messages=[one(number, bytes(1_000)) for number in range(1, 21)]))
    store.close()
    store = opened(files, limits)
    store.commit(Writes(removals=[(message_key(LOCAL, 1), message_key(LOCAL, 20))]))
    files.room_bytes = files.size_bytes + 1
    each = count(21)
    while RESERVE.name not in files.names(PATH.parent) or len(files.read(RESERVE)) == RESERVE_BYTES:
        store.commit(Writes(messages=[one(next(each), BODY)]))
    begun = log_of(files)
    for _ in range(15):
        store.commit(Writes(messages=[one(next(each), BODY)]))
    assert log_of(files) == begun
    assert store.room_bytes


def test_what_has_left_makes_room_in_the_tables_for_what_comes_in_its_place() -> None:
    """This applies to dead letters: each takes as much room as the message that becomes one."""
    files = new_files()
    store = opened(files)
    store.commit(DECLARED)
    size = 3_000
    store.commit(Writes(messages=[one(number, bytes(size)) for number in range(1, 21)]))
    store.close()
    files.room_bytes = files.size_bytes + 300
    store = opened(files)
    for number in range(1, 21):
        key = message_key(LOCAL, number)
        store.commit(Writes(messages=[one(20 + number, bytes(size))], removals=[(key, key)]))
    assert numbers(store) == [*range(21, 41)]


def test_a_segment_that_is_in_the_tables_is_the_reserve_again_so_that_others_cannot_take_its_room() -> None:
    files = new_files()
    store, taken = filled(files, room_bytes=100)
    before_bytes = files.size_bytes
    for number in range(1, taken + 1):
        remove(store, number)
    for _ in range(10):
        store.tidy()
    assert files.size_bytes == before_bytes
    assert store.room_bytes
    assert set(files.read(RESERVE)) == {0}


def test_with_room_again_the_reserve_is_made_again_and_is_no_shorter_than_it_should_be() -> None:
    files = new_files()
    store, taken = filled(files)
    store.make_room()
    assert store.room_bytes == 0
    assert not store.make_room(1)
    files.room_bytes = files.size_bytes + RESERVE_BYTES // 2
    store.make_room()
    assert store.room_bytes == RESERVE_BYTES // 2 // SHARES
    assert store.lacks_room
    files.room_bytes = None
    store.make_room()
    assert store.room_bytes == RESERVE_BYTES // SHARES
    assert not store.lacks_room
    assert len(files.read(RESERVE)) == RESERVE_BYTES
    assert numbers(store) == [*range(1, taken + 1)]


def test_for_a_large_batch_room_is_made_beforehand_if_the_disk_has_it() -> None:
    files = new_files()
    store = opened(files)
    store.commit(Writes(queues=QUEUES))
    assert store.make_room(3_000)
    assert store.make_room(50_000)
    files.room_bytes = files.size_bytes
    store.commit(Writes(messages=[one(1, bytes(50_000))]))
    assert not store.make_room(50_000)
    assert numbers(store) == [1]


def test_what_expires_no_more_does_not_expire_after_a_start_that_leaves_the_log_as_it_is() -> None:
    """A part of the log is already in the tables, where the messages still expire."""
    files = new_files()
    store = opened(files, LIMITS._replace(segments=1, slice_messages=1, slice_bytes=1))
    store.commit(DECLARED)
    rows = [one(number, BODY, expires_s=number) for number in range(1, 16)]
    for row in rows:
        store.commit(Writes(messages=[row]))
    [(in_tables,)] = store._tables._rows("SELECT count(*) FROM message")
    assert 0 < in_tables < len(rows)
    store.commit(Writes(lasting=[row.key for row in rows]))
    files.room_bytes = files.size_bytes
    store = killed(files)
    assert "the log stays as it is" in store.notices[0]
    assert numbers(store) == [*range(1, 16)]
    assert store.read(EVERYTHING) == []


def test_what_a_reserve_held_when_its_process_died_is_gone_when_it_is_used() -> None:
    files = new_files()
    opened(files).close()
    file = files.open(RESERVE)
    file.write(0, [b"the header of a segment, say"])
    assert opened(files).room_bytes
    assert set(files.read(RESERVE)) == {0}


def test_without_any_room_left_a_commit_is_refused_wholly_and_may_be_tried_again() -> None:
    files = new_files()
    store, taken = filled(files)
    with pytest.raises(DiskFullError, match="the disk is full: make room"):
        store.commit(Writes(messages=[one(taken + 1, bytes(RESERVE_BYTES))]))
    assert store.is_usable
    there = numbers(store)
    files.room_bytes = None
    store.commit(Writes(messages=[one(1_000, BODY)]))
    assert numbers(killed(files)) == [*there, 1_000]


@pytest.mark.long
@given(data=st.data())
def test_whatever_is_committed_on_a_disk_that_is_full_now_and_then_a_store_has_it_also_after_kills(
    data: st.DataObject,
) -> None:
    """Each batch is complete or absent. The tables may have any part of the log; a start leaves the log as it is, or
    moves it to the tables.
    """
    files, model, fresh = new_files(), Disk(), count(1)
    limits = TINY._replace(reserve_bytes=data.draw(st.sampled_from([3_000, 9_000])))
    store = opened(files, limits)
    store.commit(Writes(queues=QUEUES))
    model.commit(Writes(queues=QUEUES))
    for _ in range(data.draw(st.integers(1, 12), label="steps")):
        event = data.draw(
            st.sampled_from(["commit", "commit", "commit", "kill", "stop", "full", "room", "tidy"])
        )
        if event == "commit":
            writes = data.draw(batches(set(model.messages), fresh))
            try:
                store.commit(writes)
            except DiskFullError:
                assert store.is_usable
            else:
                model.commit(writes)
        elif event in ("kill", "stop"):
            if event == "stop":
                store.close()
            files.crash(kept=None, power_lost=False)
            store = opened(files, limits)
            assert has(store, model)
        elif event == "tidy":
            store.make_room()
            store.tidy()
        else:
            free_bytes = data.draw(st.sampled_from([0, 0, 100, 2_000]))
            files.room_bytes = None if event == "room" else files.size_bytes + free_bytes
        assert messages_in(store) == messages_in(model)
        assert store.size_bytes == model.size_bytes
    files.room_bytes = None
    files.crash(kept=None, power_lost=False)
    assert has(opened(files, limits), model)
    files.leave()


def test_where_one_connection_alone_has_the_tables_a_question_is_refused_and_not_the_nodes_end(
    tmp_path: Path,
) -> None:
    class Alone(SystemFiles):
        connection_count = 0

        def connect(self, path: Path, begins: bytes = b"") -> sqlite3.Connection:
            db = super().connect(path, begins)
            self.connection_count += 1
            if self.connection_count == 1:  # As where there is no room for what connections share.
                db.close()
                db = sqlite3.connect(path, isolation_level=None)
                db.execute("PRAGMA locking_mode = EXCLUSIVE").close()
            return db

    with Store(tmp_path / "a.sqlite", NODE, limits=TINY, files=Alone()) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(1)]))
        with pytest.raises(UsageError, match="was started on a full disk"):
            store.find(1)
        store.commit(Writes(messages=[one(2)]))
        assert numbers(store) == [1, 2]


# The life of a store


def test_a_life_goes_on_over_starts_on_a_full_disk_that_leave_the_log_as_it_is() -> None:
    files = new_files()
    store, taken = filled(files, first=BEGINS)
    for number in range(1, taken):
        store = killed(files)
        assert (store.life, len(store.notices)) == (None, 1)
        assert store.load().life is None
        remove(store, number)
    store.close()
    files.room_bytes = None
    with opened(files) as again:
        assert (again.life, again.notices, numbers(again)) == (None, [], [taken])


def test_the_file_of_a_life_needs_no_room_to_be_told_that_the_life_has_begun() -> None:
    files = new_files()
    opened(files).close()
    untold = files.read(LIFE_FILE)
    _, taken = filled(files, first=BEGINS)
    told = files.read(LIFE_FILE)
    files.crash(kept=None, power_lost=False)
    file = files.open(LIFE_FILE)
    file.write(0, [untold])
    file.flush()
    file.close()
    store = opened(files)
    assert (store.life, numbers(store)) == (None, [*range(1, taken + 1)])
    assert LifeFile.open(files, PATH, NODE).known.life == 1
    assert len(files.read(LIFE_FILE)) == len(told)


def test_where_another_life_must_begin_a_full_disk_is_refused_in_one_line_until_there_is_room() -> None:
    files = new_files()
    _, taken = filled(files, first=BEGINS)
    files.crash(kept=None, power_lost=False)
    files.remove(LIFE_FILE)
    files.room_bytes = files.size_bytes
    for _ in range(2):
        with pytest.raises(
            DiskFullError,
            match=r"/a\.life: a life of the store must begin, [^\n]* disk is full: make room, [^\n]*$",
        ):
            opened(files)
        assert LIFE_FILE.name not in files.names(PATH.parent)
    files.room_bytes = None
    store = opened(files)
    assert store.life is not None
    assert (store.life.number, store.life.is_restored) == (2, True)
    assert [packet for _, packet in store.everything()] == [BODY] * taken


def test_a_store_that_is_begun_on_a_full_disk_is_refused_as_a_life_must_begin() -> None:
    """The tables and the witness need room, whether they are new or were lost with the store."""
    files = new_files()
    for room_bytes, lacking in ((0, ""), (1, "-witness"), (1, "-witness")):
        files.room_bytes = room_bytes
        with pytest.raises(LifeFullError, match=rf"a\.sqlite{lacking}: a life of the store must begin, "):
            opened(files)
        files.crash(kept=None, power_lost=False)
    files.room_bytes = None
    assert opened(files).life is not None


# The tables, and SQLite's own files


def test_the_tables_have_free_pages_and_sqlites_log_its_room_also_for_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    log, room = tmp_path / "a.sqlite-wal", tmp_path / "a.sqlite-wal-room"
    limits = LIMITS._replace(reserve_bytes=1_200_000)
    with Store(path, NODE, limits=limits) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(1)]))
        assert log.stat().st_size >= 2**21
        inode = log.stat().st_ino
        assert reserve_path(path).stat().st_blocks * 512 >= 1_200_000
    assert room.stat().st_blocks * 512 >= 2**21
    assert not log.exists()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA freelist_count").fetchone()[0] * 8_192 >= 100_000
    db.close()
    assert inode
    inode = room.stat().st_ino
    with Store(path, NODE, limits=limits) as store:
        assert log.stat().st_ino == inode
        assert numbers(store) == [1]


def test_tables_that_may_not_grow_take_what_has_room_in_their_pages_and_undo_what_has_not(
    tmp_path: Path,
) -> None:
    path, limits = tmp_path / "a.sqlite", LIMITS._replace(reserve_bytes=1_200_000)
    with Store(path, NODE, limits=limits) as store:
        store.commit(Writes(queues=QUEUES))
        store.load()
        tables = store._tables
        tables.let_grow(False)
        size_bytes = path.stat().st_size
        with tables.transaction(flushed=True):
            tables.messages.insert([one(1, bytes(50_000))])
        with pytest.raises(sqlite3.Error, match="full"), tables.transaction(flushed=True):
            tables.messages.insert([one(2, bytes(500_000))])
        assert tables.messages.sizes(message_key(LOCAL, 0), message_key(LOCAL, 9)).keys() == {
            message_key(LOCAL, 1)
        }
        tables._rows("PRAGMA wal_checkpoint(TRUNCATE)")
        assert path.stat().st_size == size_bytes
        tables.let_grow(True)
        with tables.transaction(flushed=True):
            tables.messages.insert([one(2, bytes(500_000))])


def test_the_tables_grow_while_something_is_set_aside_and_not_while_the_reserve_is_in_use() -> None:
    """Data that a slice of the log then adds to the tables either finds room in their pages or waits."""
    files, fresh = new_files(), count(1)
    store = opened(files)
    store.commit(DECLARED)

    def pages() -> int:
        [(page_count,)] = store._tables._rows("PRAGMA page_count")
        return int(page_count)

    files.room_bytes = files.size_bytes + 100
    there, used = list[int](), 0
    for _ in range(200):
        before, is_used = pages(), RESERVE.name not in files.names(PATH.parent)
        if store.room_bytes:
            there.append(next(fresh))
            store.commit(Writes(messages=[one(there[-1], BODY)]))
        else:
            remove(store, there.pop(0))
        used += is_used
        assert not is_used or pages() == before
    assert used > 50
    assert numbers(store) == there
    files.room_bytes = None
    store.make_room()
    for _ in range(100):
        store.commit(Writes(messages=[one(next(fresh), BODY)]))
        assert store.room_bytes
    assert pages() > before


def test_where_connections_cannot_share_memory_one_alone_opens_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk SQLite has no room for the file by which connections know about each other."""
    path = tmp_path / "a.sqlite"
    with Store(path, NODE, limits=TINY) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(1)]))
    real, asked = sqlite3.connect, list[str]()

    class Shareless(sqlite3.Connection):
        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            asked.append(statement)
            if len(asked) == 1:
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
                raise error
            return super().execute(statement, *values)

    def connect(path: Path, timeout: float, isolation_level: None) -> sqlite3.Connection:
        return real(path, timeout=timeout, isolation_level=isolation_level, factory=Shareless)

    monkeypatch.setattr("mqproto.simulator.storage.files.sqlite3.connect", connect)
    db = SYSTEM_FILES.connect(path)
    monkeypatch.undo()
    assert asked == ["SELECT 1 FROM sqlite_master", "PRAGMA locking_mode = EXCLUSIVE"]
    assert db.execute("SELECT count(*) FROM message").fetchone() == (1,)
    assert not os.path.exists(f"{path}-shm")
    db.close()


def test_a_lock_writes_nothing_so_that_it_is_had_on_a_full_disk(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite", NODE, limits=TINY):
        assert not (tmp_path / "a.sqlite-lock-journal").exists()
        with pytest.raises(StoreError, match="another node has it open"):
            Store(tmp_path / "a.sqlite", NODE, limits=TINY)

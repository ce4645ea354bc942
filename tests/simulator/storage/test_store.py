"""The store against a model in memory, against `kill -9`, and against damaged files and failing disks."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from hashlib import sha256
from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.storage import LIMITS, LogLimits, Store, base, files
from mqproto.simulator.storage.disk import Disk
from mqproto.simulator.storage.files import SystemFile
from mqproto.simulator.storage.log import REMOVALS
from mqproto.simulator.storage.recent import joined
from mqproto.simulator.storage.tables import (
    BEFORE,
    LAYOUT,
    SCHEMA,
    SCHEMA_BEFORE,
    see_that_all_messages_are_there,
)
from mqproto.simulator.storage.witnesses.life import life_path
from mqproto.turn.effects import (
    LAST_POSITION,
    FinalAckKept,
    IdentifierRow,
    IncomingRow,
    OutgoingRow,
    QueueKind,
    QueueRow,
    ReadBy,
    ReadExpired,
    ReadPage,
    ReadSequences,
    StoredState,
    Writes,
    message_key,
)
from mqproto.wire.guid import NULL_GUID, Guid, guid_text
from tests.conformance import ROOT
from tests.memory import memory_folder
from tests.simulator.storage.batches import (
    EVERYTHING,
    FINAL,
    FINAL_NAME,
    HELD,
    LOCAL,
    NEIGHBOUR,
    NODE,
    QUEUES,
    SEQUENCE,
    TINY,
    URGENT,
    batches,
    deadlines,
    guids,
    in_order,
    messages_in,
    numbers,
    one,
    posted_in,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """An open store with the queues of QUEUES, and with message 1 in the first of them."""
    with Store(path, NODE) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(1)]))
        yield store


def test_what_came_after_a_removal_stays_though_the_tables_had_it_when_the_process_was_killed(
    tmp_path: Path,
) -> None:
    """The removal covers more than the messages that were there. Its record, and that of the later message, are read
    again.
    """
    (tmp_path / "left").mkdir()
    with Store(tmp_path / "left" / "a.sqlite", NODE, limits=TINY._replace(segments=1)) as store:
        store.commit(Writes(queues=QUEUES))
        store.commit(Writes())
        gone = Writes(messages=[one(1, b""), one(2, b""), one(3, b"", queue=2)])
        gone.remove(1, 0, 4)
        store.commit(gone)
        store.commit(Writes())
        store.commit(Writes(messages=[one(4, b""), one(5, b""), one(6, b"")]))
        store.tidy()
        found = messages_in(store)
        killed = shutil.copytree(tmp_path / "left", tmp_path / "killed")
    with Store(killed / "a.sqlite", NODE, limits=TINY) as store:
        assert messages_in(store) == found
        assert [row[0] for row in found[0]] == [4, 5, 6]


@pytest.mark.long
@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_the_store_keeps_what_one_in_memory_would_over_any_transactions_and_restarts(
    data: st.DataObject,
) -> None:
    limits = data.draw(st.sampled_from([TINY, TINY._replace(segments=1), LogLimits()]), label="limits")
    model, fresh = Disk(), count(1)
    model.commit(Writes(queues=QUEUES))
    with memory_folder() as name, ExitStack() as stores:
        folder = Path(name, "0")
        folder.mkdir()
        store = stores.enter_context(Store(folder / "a.sqlite", NODE, limits=limits))
        store.commit(Writes(queues=QUEUES))
        for number in range(1, data.draw(st.integers(1, 12), label="transactions") + 1):
            writes = data.draw(batches(set(model.messages), fresh))
            store.commit(writes)
            model.commit(writes)
            for _ in range(data.draw(st.integers(0, 2), label="turns without a commit")):
                store.tidy()
            next_step = data.draw(st.sampled_from(["", "", "", "load", "close", "kill"]), label="then")
            if next_step == "close":
                store.close()
                assert [path.name for path in folder.iterdir() if "-log-" in path.name] == []
                store = stores.enter_context(Store(folder / "a.sqlite", NODE, limits=limits))
            elif next_step == "kill":
                # What a process leaves that is killed: its files, as they are.
                copy = shutil.copytree(folder, Path(name, str(number)))
                store.close()
                folder = copy
                store = stores.enter_context(Store(folder / "a.sqlite", NODE, limits=limits))
            assert messages_in(store) == messages_in(model)
            assert posted_in(store) == model.posted
            assert store.size_bytes == model.size_bytes
            assert store.counts(QueueKind.FINAL) == (
                {FINAL_NAME: model.count(FINAL)} if model.count(FINAL) else {}
            )
            if next_step:
                assert in_order(store.load()) == in_order(model.load())
        if data.draw(st.booleans(), label="found by message_id"):
            message_id = data.draw(st.integers(1, 20))
            assert store.find(message_id) == [
                (key, row.packet) for key, row in model.messages.items() if row.message_id == message_id
            ]
        store.close()
        with Store(folder / "a.sqlite", NODE) as again:
            assert in_order(again.load()) == in_order(model.load())
            assert messages_in(again) == messages_in(model)
            assert posted_in(again) == model.posted


@given(
    names=st.lists(st.tuples(st.integers(10, 13), st.sampled_from("abcdef")), min_size=2, max_size=24),
    closes=st.sets(st.integers(0, 24)),
)
def test_a_queue_may_have_the_name_that_another_has_given_up(
    names: list[tuple[int, str]], closes: set[int]
) -> None:
    model, fresh = Disk(), count(1)
    with memory_folder() as folder, ExitStack() as stores:
        path = Path(folder, "a.sqlite")
        store = stores.enter_context(Store(path, NODE, limits=TINY))
        for step, (number, name) in enumerate(names):
            if any(row.name == name and row.queue != number for row in model.queues.values()):
                continue
            row = QueueRow(number, QueueKind.LOCAL, name)
            writes = Writes(queues=[row], messages=[one(next(fresh), bytes(200), number) for _ in range(4)])
            store.commit(writes)
            model.commit(writes)
            if step in closes:
                store.close()
                store = stores.enter_context(Store(path, NODE, limits=TINY))
            assert store.counts(QueueKind.LOCAL) == {
                queue.name: model.count(queue.queue) for queue in model.queues.values()
            }
        assert in_order(store.load()) == in_order(model.load())


@given(
    commits=st.lists(
        st.tuples(
            st.lists(st.tuples(guids, st.integers(0, 9), st.integers(0, 9)), max_size=3),
            st.lists(st.tuples(guids, st.integers(0, 9), st.integers(0, 2)), max_size=12),
        ),
        max_size=6,
    ),
    looks=st.booleans(),
)
def test_of_identifiers_those_that_are_not_forgotten_are_kept_and_one_that_comes_again_is_new(
    commits: list[tuple[list[tuple[Guid, int, int]], list[tuple[Guid, int, int]]]], looks: bool
) -> None:
    known: dict[tuple[Guid, int], IdentifierRow] = {}
    time_s = 100
    with memory_folder() as folder, Store(Path(folder, "a.sqlite"), NODE, TINY) as store:
        for forgotten, identifiers in commits:
            writes = Writes()
            for source, first, last in forgotten:
                writes.forgotten_identifiers.append((source, first, last))
                for ordinal in range(first, last + 1):
                    known.pop((source, ordinal), None)
            for source, ordinal, later_s in identifiers:
                time_s += later_s
                known.pop((source, ordinal), None)
                known[source, ordinal] = IdentifierRow(source, ordinal, time_s)
                writes.identifiers.append(known[source, ordinal])
            store.commit(writes)
            if looks:
                assert store.load().identifiers == list(known.values())
        assert store.load().identifiers == list(known.values())


def test_what_is_forgotten_takes_no_memory_for_long(tmp_path: Path) -> None:
    """Forgotten data goes to the tables with the commits, although the log is far from full."""
    with Store(tmp_path / "a.sqlite", NODE) as store:
        for number in range(3_000):
            row = IdentifierRow(NODE, 2 * number + 10, 1)
            gone = (NODE, 2 * number, 2 * number)
            store.commit(Writes(forgotten_identifiers=[gone], identifiers=[row]))
            assert store._recent.removal_count <= 2_000
        assert [row.ordinal for row in store.load().identifiers] == list(range(6_000, 6_010, 2))


@given(
    ranges=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9))),
)
def test_joined_ranges_are_the_same_keys_and_stay_within_their_queues(
    ranges: list[tuple[int, int, int]],
) -> None:
    def every(pairs: list[tuple[int, int]]) -> set[int]:
        return {key for first, last in pairs for key in range(first, last + 1)}

    # The last positions of a queue come before the first of the next: there the temptation is greatest.
    pairs = [
        (message_key(queue, LAST_POSITION - 4 + min(a, b)), message_key(queue, LAST_POSITION - 4 + max(a, b)))
        for queue, a, b in ranges
    ]
    pairs = [(first, last) for first, last in pairs if first >> 40 == last >> 40]
    result = joined(pairs)
    assert every(result) == every(pairs)
    assert all(first >> 40 == last >> 40 for first, last in result)
    assert all(last + 1 < first or last >> 40 != first >> 40 for (_, last), (first, _) in pairwise(result))


@pytest.mark.long
@given(
    sizes=st.lists(st.integers(0, 50), max_size=12),
    after=st.integers(0, 13),
    limit_messages=st.integers(1, 5),
    limit_bytes=st.integers(0, 120),
)
def test_pages_hold_the_whole_queue_in_order_and_keep_both_limits_but_for_one_large_message(
    sizes: list[int], after: int, limit_messages: int, limit_bytes: int
) -> None:
    packets = {position: bytes(size) for position, size in enumerate(sizes, start=1)}
    pages = []
    with memory_folder() as folder, Store(Path(folder, "a.sqlite"), NODE) as store:
        messages = [one(position, packet) for position, packet in packets.items()]
        store.commit(Writes(queues=QUEUES, messages=[*messages, one(1, queue=2)]))
        reached = after
        while rows := store.read(ReadPage(1, reached, limit_messages, limit_bytes, ReadBy.WINDOW)):
            pages.append(rows)
            reached = rows[-1][0]
    assert [row for page in pages for row in page] == [
        (position, packet, False) for position, packet in packets.items() if position > after
    ]
    for page in pages:
        assert len(page) <= limit_messages
        assert len(page) == 1 or sum(len(packet) for _, packet, _ in page) <= limit_bytes
    for page, following in pairwise(pages):
        next_packet = following[0][1]
        full = sum(len(packet) for _, packet, _ in page) + len(next_packet) > limit_bytes
        assert len(page) == limit_messages or full


@pytest.mark.long
@given(times=st.lists(deadlines, max_size=12), limit=st.integers(1, 13), lasting=st.sets(st.integers(1, 12)))
def test_of_what_expires_the_earliest_come_first_and_as_many_as_were_asked_for(
    times: list[int | None], limit: int, lasting: set[int]
) -> None:
    rows = [
        one(number, queue=1 + number % 2, expires_s=time_s) for number, time_s in enumerate(times, start=1)
    ]
    keys = [row.key for row in rows if row.message_id in lasting]
    with memory_folder() as folder, Store(Path(folder, "a.sqlite"), NODE) as store:
        store.commit(Writes(queues=QUEUES, messages=rows))
        store.commit(Writes(lasting=keys))
        found = [key for key, _, _ in store.read(ReadExpired(limit, 2**40))]
    ends = [(row.expires_s, row.key) for row in rows if row.expires_s is not None and row.key not in keys]
    assert found == [key for _, key in sorted(ends)][:limit]


def test_a_message_takes_its_time_along_when_it_moves_only_if_it_is_told_to(store: Store) -> None:
    moved = [message_key(LOCAL, number) for number in (11, 12)]
    store.commit(Writes(messages=[one(number, queue=HELD, expires_s=5) for number in (1, 2, 3)]))
    store.commit(
        Writes(moves=[(message_key(HELD, 1), moved[0], None), (message_key(HELD, 2), moved[1], 9)]),
    )
    assert [key for key, _, _ in store.read(EVERYTHING)] == [message_key(HELD, 3), moved[1]]


def test_what_waits_for_its_final_ack_expires_no_more(store: Store) -> None:
    row = one(8, queue=SEQUENCE, final_ack=True, expires_s=5)
    store.commit(Writes(messages=[row], finals=[FinalAckKept(row.key, row.key, FINAL)]))
    assert numbers(store, FINAL) == [8]
    assert store.read(EVERYTHING) == []


def test_messages_are_found_by_their_identifier_wherever_they_are_and_by_another_thread(store: Store) -> None:
    store.commit(Writes(messages=[one(7, b"held", HELD), one(7, b"here", LOCAL), one(8, b"other", LOCAL)]))
    found: list[tuple[int, bytes]] = []
    thread = threading.Thread(target=lambda: found.extend(store.find(7)))
    thread.start()
    thread.join()
    assert sorted(found) == sorted([(message_key(HELD, 7), b"held"), (message_key(LOCAL, 7), b"here")])
    assert store.find(9) == []


def test_what_waits_for_its_final_ack_is_counted_by_the_name_of_its_sequence(store: Store) -> None:
    assert store.counts(QueueKind.FINAL) == {}
    store.commit(Writes(messages=[one(2, queue=SEQUENCE, final_ack=True), one(3, queue=SEQUENCE)]))
    store.commit(Writes(finals=[FinalAckKept(message_key(SEQUENCE, 1), message_key(SEQUENCE, 3), FINAL)]))
    [name] = [row.name for row in QUEUES if row.queue == FINAL]
    assert store.counts(QueueKind.FINAL) == {name: 1}


def test_a_queue_that_is_paused_stays_so_with_all_that_is_in_it(store: Store, path: Path) -> None:
    before = {queue.queue: queue for queue in store.load().queues}
    store.commit(Writes(queues=[QUEUES[0]._replace(on_hold=True)]))
    store.close()
    with Store(path, NODE) as again:
        after = {queue.queue: queue for queue in again.load().queues}
    assert after == before | {LOCAL: before[LOCAL]._replace(on_hold=True)}
    assert (after[LOCAL].priority, after[URGENT].priority) == (0, 7)
    assert after[LOCAL].message_count == 1


@pytest.mark.parametrize(
    "wrong",
    [
        Writes(messages=[one(2), one(1)]),
        Writes(messages=[one(2)], moves=[(message_key(2, 9), message_key(1, 9), None)]),
        Writes(messages=[one(2), one(1, queue=9)]),
        Writes(messages=[one(2)], removals=[(message_key(1, 1), message_key(2, 1))]),
        Writes(messages=[one(2)], queues=[QueueRow(9, QueueKind.LOCAL, "orders", priority=7)]),
    ],
    ids=[
        "a key used twice",
        "a move of nothing",
        "an undeclared queue",
        "a range over two queues",
        "two lanes of one priority",
    ],
)
def test_a_batch_that_cannot_be_is_a_bug_leaves_nothing_and_the_store_goes_on(
    store: Store, path: Path, wrong: Writes
) -> None:
    before = store.load()
    with pytest.raises(AssertionError):
        store.commit(wrong)
    assert store.load() == before
    assert store.size_bytes == 6
    store.commit(Writes(messages=[one(2)]))
    assert numbers(store) == [1, 2]
    store.close()
    with Store(path, NODE) as again:
        assert again.size_bytes == store.size_bytes == 12


def commit_until_it_fails(store: Store, size_bytes: int) -> None:
    for number in range(1, 100):
        store.commit(Writes(messages=[one(number, bytes(size_bytes))]))


def test_a_full_disk_is_no_trouble_while_the_log_has_room_and_told_when_that_ends(path: Path) -> None:
    with Store(path, NODE, limits=TINY) as store:
        store.commit(Writes(queues=QUEUES))
        [(pages,)] = store._tables.db.execute("PRAGMA page_count").fetchall()
        store._tables.db.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall()
        with pytest.raises(StoreError, match="disk is full: make room"):
            commit_until_it_fails(store, 5_000)
        committed = len(numbers(store))
        assert committed > 2
        assert store.size_bytes == 5_000 * committed
        store._tables.db.execute("PRAGMA max_page_count = 1000000").fetchall()
        store.commit(Writes(messages=[one(101)]))
        assert numbers(store) == [*range(1, committed + 1), 101]
    with Store(path, NODE) as again:
        assert numbers(again) == [*range(1, committed + 1), 101]


def test_what_the_tables_cannot_take_when_the_store_is_closed_stays_in_the_log(path: Path) -> None:
    with Store(path, NODE, limits=LIMITS._replace(reserve_bytes=0)) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(1, bytes(50_000))]))
        store._tables.db.execute("PRAGMA max_page_count = 1").fetchall()
    assert Path(f"{path}-log-000001").stat().st_size > 50_000
    with Store(path, NODE) as again:
        assert numbers(again) == [1]
        assert not Path(f"{path}-log-000001").exists()


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_after_a_disk_error_the_store_refuses_to_go_on_and_a_new_start_finds_all_that_was_committed(
    store: Store, path: Path
) -> None:
    with files_of_at_most(2**20), pytest.raises(StoreError, match="the disk fails"):
        store.commit(Writes(messages=[one(number, b"1" * 100_000) for number in range(2, 32)]))
    with pytest.raises(StoreError, match="it failed before: start the node again"):
        store.commit(Writes(messages=[one(2)]))
    store.close()
    with Store(path, NODE) as again:
        assert (numbers(again), again.size_bytes) == ([1], 6)


def test_a_second_store_on_an_open_file_is_refused_here_and_in_another_process_by_any_name(
    store: Store, path: Path, tmp_path: Path
) -> None:
    other_name = tmp_path / "other-name.sqlite"
    other_name.symlink_to(path)
    for name in (path, other_name):
        with pytest.raises(StoreError, match="another node has it open: stop that one first"):
            Store(name, NODE)
    code = "import pathlib, sys, mqproto.simulator.storage as s; s.Store(pathlib.Path(sys.argv[1]), bytes(range(16)))"
    done = subprocess.run(
        [sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "StoreError" in done.stderr
    assert "another node has it open" in done.stderr
    store.commit(Writes(messages=[one(2)]))


def test_whoever_looks_at_a_store_keeps_no_node_from_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if the process that looks is stopped for longer than anybody waits for a lock."""
    Store(path, NODE).close()
    monkeypatch.setattr(files, "LOCK_WAIT_S", 0)
    tries, locked = [], files._locked
    with closing(sqlite3.connect(f"{path}-lock", isolation_level=None)) as look:
        look.execute("BEGIN").close()
        look.execute("SELECT 1 FROM sqlite_master").close()

        def tried(file: str) -> sqlite3.Connection:
            tries.append(file)
            if len(tries) == 20:
                look.execute("COMMIT").close()
            return locked(file)

        monkeypatch.setattr(files, "_locked", tried)
        Store(path, NODE).close()
        assert len(tries) == 20
        look.execute("BEGIN").close()
        look.execute("SELECT 1 FROM sqlite_master").close()
        assert not files.SYSTEM_FILES.is_locked(path)
        with pytest.raises(StoreError, match="another program keeps it open: stop that program first"):
            Store(path, NODE)


@pytest.mark.parametrize("garbage", [b"garbage", b"SQLite format 3\0" + bytes(range(200)) * 9])
def test_a_lock_file_that_something_has_written_into_locks_as_before(path: Path, garbage: bytes) -> None:
    lock = path.with_name(f"{path.name}-lock")
    lock.write_bytes(garbage)
    with Store(path, NODE) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(1)]))
        lock.write_bytes(garbage)
        with pytest.raises(StoreError, match="another node has it open"):
            Store(path, NODE)
    with Store(path, NODE) as again:
        assert numbers(again) == [1]


def test_a_closed_store_can_be_opened_again_at_once(path: Path) -> None:
    for _ in range(3):
        Store(path, NODE).close()


def refused(path: Path, node: Guid = NODE) -> str:
    with pytest.raises(StoreError) as caught, Store(path, node) as store:
        store.load()
    text = str(caught.value)
    assert str(path) in text or str(life_path(path)) in text
    assert "\n" not in text
    return text


def test_a_file_that_is_not_ours_is_refused_and_not_touched(tmp_path: Path) -> None:
    letter, database = tmp_path / "letter.txt", tmp_path / "browser.sqlite"
    letter.write_text("Dear sir or madam, " * 1_000)
    with closing(sqlite3.connect(database)) as theirs:
        theirs.execute("CREATE TABLE history (url)")
    for path in (letter, database):
        before = path.read_bytes()
        assert "not a store of a node: name another file" in refused(path)
        assert path.read_bytes() == before


def test_a_store_of_another_node_is_refused(store: Store, path: Path) -> None:
    store.close()
    assert f"belongs to {guid_text(NODE)}, not to {guid_text(NEIGHBOUR)}" in refused(path, NEIGHBOUR)


@pytest.mark.parametrize(
    ("layout", "schema", "digest"),
    [(BEFORE, SCHEMA_BEFORE, "a427a3dace6aeaa5"), (LAYOUT, SCHEMA, "63192793302551ca")],
)
def test_the_text_of_a_layout_never_changes_not_even_in_a_comment(
    layout: int, schema: str, digest: str
) -> None:
    # The tables of stores that others wrote are compared with it.
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(schema)
        tables = db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()
    assert sha256(repr(tables).encode()).hexdigest()[:16] == digest, layout


@pytest.mark.parametrize("layout", [1, LAYOUT + 1])
def test_a_store_of_an_older_or_a_newer_mqproto_is_refused_and_not_touched(
    store: Store, path: Path, layout: int
) -> None:
    store.close()
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {layout}")
    before = path.read_bytes()
    assert refused(path).endswith(
        f"it has layout {layout}, and this mqproto knows {LAYOUT}: use the mqproto that wrote it"
    )
    assert path.read_bytes() == before


def test_a_damaged_store_is_told_from_a_good_one(store: Store, path: Path) -> None:
    store.close()
    content = path.read_bytes()
    path.write_bytes(content[:8192] + b"\x55" * (len(content) - 8192))
    assert "it is damaged" in refused(path)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE queue SET kind = 'nonsense'",
        "UPDATE queue SET message_count = 7",
        "DROP TABLE counter",
        "ALTER TABLE outgoing_sequence ADD COLUMN more",
    ],
)
def test_a_store_that_makes_no_sense_is_called_damaged(store: Store, path: Path, damage: str) -> None:
    store.commit(
        Writes(queues=[QueueRow(1, QueueKind.LOCAL, "orders"), QueueRow(2, QueueKind.SEQUENCE, "x")])
    )
    store.commit(Writes(outgoing={2: OutgoingRow(2, NULL_GUID, 1, 1, 0, 1, 0, 0, 0)}))
    store.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(damage)
    assert "it is damaged" in refused(path)


def test_a_missing_folder_and_a_folder_in_the_files_place_are_told(tmp_path: Path) -> None:
    assert "is its folder there" in refused(tmp_path / "nowhere" / "a.sqlite")
    (tmp_path / "b.sqlite").mkdir()
    assert "it cannot be opened" in refused(tmp_path / "b.sqlite")


@contextmanager
def as_nobody() -> Iterator[None]:
    """Drop root's right to write everywhere, if we have it."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_store_that_may_not_be_written_is_told() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.sqlite")
        Store(path, NODE).close()
        for name in Path(folder).iterdir():
            name.chmod(0o444)
        Path(folder).chmod(0o555)
        try:
            with as_nobody():
                assert "may this user write to it" in refused(path) or "read-only" in refused(path)
        finally:
            Path(folder).chmod(0o755)


def test_a_creation_that_was_broken_off_is_made_good(path: Path) -> None:
    with closing(sqlite3.connect(path)) as half:
        half.execute("PRAGMA journal_mode = WAL")
    assert path.stat().st_size > 0
    with Store(path, NODE) as store:
        assert store.load() == StoredState()


def test_each_commit_is_flushed_once_before_it_returns(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(SystemFile, "flush", lambda file: said.append("flushed"))
    before = store.commits.count
    for number in range(2, 5):
        store.commit(Writes(messages=[one(number)]))
        said.append(f"committed {number}")
    assert said == [word for number in range(2, 5) for word in ("flushed", f"committed {number}")]
    assert store.commits.count == before + 3


def test_of_a_node_that_has_stopped_sqlite_tells_all(store: Store, path: Path) -> None:
    store.commit(
        Writes(
            messages=[one(7, b"seven")],
            outgoing={1: OutgoingRow(1, NEIGHBOUR, 5, 6, 0, 8, 7, 7, 7)},
            incoming={(NULL_GUID, 1): IncomingRow(NULL_GUID, 1, 5, 6, 7, 0, 86_400, "")},
        )
    )
    store.close()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as shell:
        assert shell.execute("SELECT kind, name, messages, bytes FROM waiting").fetchall() == [
            ("local", "orders", 2, 11)
        ]
        assert shell.execute("SELECT name, position, bytes FROM messages").fetchall() == [
            ("orders", 1, 6),
            ("orders", 7, 5),
        ]
        assert shell.execute("SELECT destination, queue_manager FROM outgoing").fetchall() == [
            ("orders", guid_text(NEIGHBOUR))
        ]
        assert shell.execute("SELECT source, queue, last_access FROM incoming").fetchall() == [
            (guid_text(NULL_GUID), "orders", "1970-01-02 00:00:00")
        ]


def test_what_leaves_with_one_commit_leaves_the_tables_in_turns_without_one(path: Path) -> None:
    with Store(path, NODE, limits=TINY) as store, closing(sqlite3.connect(path)) as shell:
        store.commit(Writes(queues=QUEUES, messages=[one(number) for number in range(1, 501)]))
        store.load()  # It leaves all in the tables.
        writes = Writes()
        writes.remove(1, 1, 500)
        store.commit(writes)
        counts = []
        for _ in range(30):
            store.tidy()
            counts += shell.execute("SELECT count(*) FROM message").fetchone()
            assert numbers(store) == []
        assert counts == sorted(counts, reverse=True)
        assert max(before - after for before, after in pairwise(counts)) <= REMOVALS * TINY.slice_messages
        assert counts[-1] <= REMOVALS * TINY.slice_messages, "as many may wait for the next commit"


def test_a_message_that_is_lost_under_an_open_store_is_missed_when_its_queue_is_read(path: Path) -> None:
    with Store(path, NODE) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(number) for number in range(1, 4)]))
        store.load()  # It leaves all in the tables.
        with closing(sqlite3.connect(path)) as shell:
            shell.execute("DELETE FROM message WHERE key = ?", (message_key(1, 2),))
            shell.commit()
        with pytest.raises(StoreError, match="queue 1 has 2 messages, and had 3"):
            numbers(store)


def test_a_queue_that_grows_is_counted_again_when_half_of_it_is_new(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, a consumer that reads a queue to its end, past the part in the log, would have all messages counted
    each time.
    """
    counted: list[int] = []

    def see(db: sqlite3.Connection, queue: int) -> None:
        see_that_all_messages_are_there(db, queue)
        counted.append(db.execute("SELECT count(*) FROM message").fetchone()[0])

    monkeypatch.setattr("mqproto.simulator.storage.tables.see_that_all_messages_are_there", see)
    with Store(path, NODE, limits=TINY) as store:
        store.commit(Writes(queues=QUEUES))
        for number in range(1, 401):
            store.commit(Writes(messages=[one(number, bytes(200))]))
            store.read(ReadPage(1, max(0, number - 100), 1_000, 2**20, ReadBy.WINDOW))
    assert len(counted) > 3
    assert all(later >= 2 * earlier - 1 for earlier, later in pairwise(counted))


def test_a_message_in_the_place_of_another_is_noticed_when_its_queue_is_read(path: Path) -> None:
    """The row is undamaged and belongs to this queue, but is not the message that was put there."""
    other = path.with_name("other.sqlite")
    with Store(other, NODE) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(2, b"another packet")]))
    with Store(path, NODE) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(number) for number in range(1, 4)]))
        store.load()  # It leaves all in the tables.
        with closing(sqlite3.connect(path)) as shell:
            shell.execute("ATTACH ? AS other", (str(other),))
            shell.execute("REPLACE INTO message SELECT * FROM other.message")
            shell.commit()
        with pytest.raises(StoreError, match="queue 1 has 3 messages, and they are not those that it had"):
            numbers(store)


def test_what_is_gone_and_expires_no_more_is_counted_out_as_it_was(path: Path) -> None:
    """The message leaves the tables in slices, and its row has another checksum once it no longer expires."""
    rows = [one(number, b"old", expires_s=number) for number in range(1, 41)]
    limits = TINY._replace(slice_messages=1)
    with Store(path, NODE, limits=limits) as store:
        store.commit(Writes(queues=QUEUES, messages=rows))
    with Store(path, NODE, limits=limits) as store:
        gone = Writes(lasting=[row.key for row in rows])
        gone.remove(1, 1, 40)
        store.commit(gone)
        for _ in range(3):
            store.tidy()
    with Store(path, NODE) as again:
        assert numbers(again) == []


def test_people_can_look_on_with_sqlite_while_the_node_runs(path: Path) -> None:
    with Store(path, NODE, limits=TINY) as store:
        store.commit(Writes(queues=QUEUES))
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as shell:
            shell.execute("BEGIN")
            seen = shell.execute("SELECT count(*) FROM messages").fetchall()
            for number in range(1, 30):
                store.commit(Writes(messages=[one(number, bytes(200))]))
            assert shell.execute("SELECT count(*) FROM messages").fetchall() == seen
            shell.execute("COMMIT")
            [(messages,)] = shell.execute("SELECT messages FROM waiting").fetchall()
            assert 10 < messages < 29
        assert numbers(store) == [*range(1, 30)]


def test_another_program_that_writes_for_long_is_told_and_the_store_goes_on_after_it(path: Path) -> None:
    with Store(path, NODE, limits=TINY) as store:
        store.commit(Writes(queues=QUEUES))
        store._tables.db.execute("PRAGMA busy_timeout = 0").fetchall()
        with closing(sqlite3.connect(path, isolation_level=None)) as shell:
            shell.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="another program is writing to it"):
                commit_until_it_fails(store, 200)
        committed = len(numbers(store))
        assert committed > 10
        store.commit(Writes(messages=[one(201)]))
        assert numbers(store) == [*range(1, committed + 1), 201]


def test_of_a_million_sequences_those_of_the_host_that_has_the_most_go_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "SEQUENCES_KEPT", 32)

    def commit(host: str, *numbers: int) -> None:
        rows = [IncomingRow(NEIGHBOUR, -number, 5, 6, 7, 0, number, host) for number in numbers]
        store.commit(Writes(incoming={(row.source, row.queue): row for row in rows}))

    commit("10.0.0.7", *range(1, 9))
    commit("10.0.0.8", *range(10, 40))
    store.settle()
    kept = store.sequences(ReadSequences(NEIGHBOUR, -100, -1))
    assert sorted(-row.queue for row in kept if row.reply_host == "10.0.0.8") == [*range(18, 40)]
    assert sum(row.reply_host == "10.0.0.7" for row in kept) == 8
    assert (store.take_forgotten(), store.take_forgotten()) == (8, 0)

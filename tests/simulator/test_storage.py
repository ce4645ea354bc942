"""The store against a model in memory, against `kill -9`, and against files and disks that are not in order."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.effects import (
    FinalAckKept,
    IdentifierRow,
    IncomingRow,
    MessageRow,
    OutcomeRow,
    OutgoingRow,
    QueueKind,
    QueueRow,
    ReadBy,
    ReadExpired,
    ReadPage,
    StoredState,
    Writes,
    message_key,
)
from mqproto.wire.guid import NULL_GUID, Guid, guid_text
from simulator.disk import Disk
from simulator.storage import Store, joined
from simulator.storeerrors import StoreError
from simulator.tables import LAST_POSITION, LAYOUT
from tests.conformance import ROOT
from tests.memory import memory_folder

NODE = Guid(bytes(range(16)))
NEIGHBOUR = Guid(bytes(range(16, 32)))
LOCAL, HELD, FINAL, SEQUENCE, URGENT, ORDER = 1, 2, 3, 4, 5, 6
QUEUES = [
    QueueRow(LOCAL, QueueKind.LOCAL, "orders"),
    QueueRow(HELD, QueueKind.HELD, "orders, early"),
    QueueRow(FINAL, QueueKind.FINAL, "invoices, acknowledged"),
    QueueRow(SEQUENCE, QueueKind.SEQUENCE, "invoices"),
    QueueRow(URGENT, QueueKind.LOCAL, "orders", priority=7),
    QueueRow(ORDER, QueueKind.ORDER, "order_queue$"),
]
EVERYTHING = ReadExpired(10_000)


def one(
    number: int,
    packet: bytes = b"packet",
    queue: int = 1,
    *,
    final_ack: bool = False,
    expires_s: int | None = None,
) -> MessageRow:
    return MessageRow(message_key(queue, number), packet, number, final_ack, expires_s)


def numbers(store: Store, queue: int = 1) -> list[int]:
    return [position for position, _, _ in store.read(ReadPage(queue, 0, 10_000, 2**30, ReadBy.WINDOW))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """An open store with the queues of QUEUES, and with message 1 in the first of them."""
    with Store(path, NODE) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(1)]))
        yield store


positions = st.integers(0, 40)
integers = st.integers(0, 2**32 - 1)
guids = st.sampled_from([NODE, NEIGHBOUR])
deadlines = st.none() | st.integers(0, 5)
outgoing_rows = st.builds(OutgoingRow, st.integers(1, 4), guids, *[integers] * 7)
incoming_rows = st.builds(IncomingRow, guids, st.just(1), *[integers] * 5, st.text(max_size=9))


outcome_rows = st.builds(
    OutcomeRow,
    st.sampled_from([b"one", b"other"]),
    st.integers(0, 3),
    st.binary(max_size=9),
    st.booleans(),
    integers,
)


@st.composite
def batches(draw: st.DrawFn, there: set[int], fresh: Iterator[int]) -> Writes:
    """One transaction of all that may be in one, over messages that are there. Its keys are new."""
    writes = Writes()
    for known in draw(st.lists(st.sampled_from(QUEUES), unique=True, max_size=2)):
        writes.queues.append(known._replace(on_hold=draw(st.booleans())))
    for _ in range(draw(st.integers(0, 6))):
        queue = draw(st.sampled_from([LOCAL, HELD, SEQUENCE, URGENT, ORDER]))
        packet, final_ack, expires_s = draw(st.binary(max_size=40)), draw(st.booleans()), draw(deadlines)
        writes.messages.append(one(next(fresh), packet, queue, final_ack=final_ack, expires_s=expires_s))
    if draw(st.booleans()):
        first, last = message_key(SEQUENCE, draw(positions)), message_key(SEQUENCE, draw(positions))
        writes.finals.append(FinalAckKept(first, last, FINAL))
    movable = sorted(k for k in there | {message.key for message in writes.messages} if k >> 40 == HELD)
    for old in draw(st.lists(st.sampled_from(movable), unique=True, max_size=3)) if movable else []:
        writes.moves.append((old, message_key(LOCAL, next(fresh)), draw(deadlines)))
    for _ in range(draw(st.integers(0, 3))):
        writes.remove(draw(st.integers(1, len(QUEUES))), draw(positions), draw(positions))
    ever = sorted(there | {message.key for message in writes.messages})
    writes.lasting = draw(st.lists(st.sampled_from(ever), max_size=3)) if ever else []
    writes.outgoing = {row.queue: row for row in draw(st.lists(outgoing_rows, max_size=4))}
    writes.incoming = {(row.source, row.queue): row for row in draw(st.lists(incoming_rows, max_size=2))}
    writes.counters = draw(st.dictionaries(st.sampled_from(["ceiling", "time_stamp"]), integers))
    writes.forgotten_invokers = draw(st.lists(st.sampled_from([b"one", b"other"]), max_size=1))
    rows = draw(st.lists(outcome_rows, max_size=4))
    writes.outcomes = {(row.invoker, row.identifier): row if draw(st.booleans()) else None for row in rows}
    return writes


def in_order(state: StoredState) -> StoredState:
    """The same state; of its tables without an order of their own, sorted."""
    state.outgoing.sort()
    state.incoming.sort()
    state.outcomes.sort()
    return state


@given(data=st.data())
def test_the_store_keeps_what_one_in_memory_would_over_any_transactions_and_restarts(
    data: st.DataObject,
) -> None:
    model, fresh = Disk(), count(1)
    model.commit(Writes(queues=QUEUES))
    with memory_folder() as folder:
        path = Path(folder, "a.sqlite")
        with Store(path, NODE) as store:
            store.commit(Writes(queues=QUEUES))
        for _ in range(data.draw(st.integers(1, 3), label="restarts")):
            with Store(path, NODE) as store:
                assert store.size_bytes == model.size_bytes
                for _ in range(data.draw(st.integers(1, 3), label="batches")):
                    writes = data.draw(batches(set(model.messages), fresh))
                    store.commit(writes)
                    model.commit(writes)
                    assert in_order(store.load()) == in_order(model.load())
                    assert store.read(EVERYTHING) == model.read(EVERYTHING)
                    assert store.size_bytes == model.size_bytes


@given(
    commits=st.lists(
        st.lists(st.tuples(guids, st.integers(0, 9), st.integers(0, 2)), max_size=12), max_size=6
    ),
    limit=st.integers(1, 6),
    forget_after_s=st.none() | st.integers(0, 9),
)
def test_of_identifiers_the_newest_are_kept_and_one_that_comes_again_is_new(
    commits: list[list[tuple[Guid, int, int]]], limit: int, forget_after_s: int | None
) -> None:
    known: dict[tuple[Guid, int], IdentifierRow] = {}
    time_s = 100
    with memory_folder() as folder, Store(Path(folder, "a.sqlite"), NODE, limit) as store:
        for identifiers in commits:
            writes = Writes()
            for source, ordinal, later_s in identifiers:
                time_s += later_s
                known.pop((source, ordinal), None)
                known[source, ordinal] = IdentifierRow(source, ordinal, time_s)
                writes.identifiers.append(known[source, ordinal])
            if forget_after_s is not None:
                writes.identifiers_before_s = time_s - forget_after_s
                known = {
                    key: row for key, row in known.items() if row.time_stamp_s >= time_s - forget_after_s
                }
            store.commit(writes)
            assert store.load().identifiers == list(known.values())[-limit:]
        [(stored,)] = store._db.execute("SELECT count(*) FROM message_id").fetchall()
        assert stored <= limit + max(limit // 4, 1)


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
        found = [key for key, _, _ in store.read(ReadExpired(limit))]
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
    assert store.unread() == {}
    store.commit(Writes(messages=[one(2, queue=SEQUENCE, final_ack=True), one(3, queue=SEQUENCE)]))
    store.commit(Writes(finals=[FinalAckKept(message_key(SEQUENCE, 1), message_key(SEQUENCE, 3), FINAL)]))
    [name] = [row.name for row in QUEUES if row.queue == FINAL]
    assert store.unread() == {name: 1}


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


LOOP = """
import os, random, signal, sys
from pathlib import Path
from mqproto.effects import *
from simulator.storage import Store

path, seed = Path(sys.argv[1]), int(sys.argv[2])
dice = random.Random(seed)
store = Store(path, bytes(range(16)))
batch = store.load().counters.get("batch", 0)
steps = dice.randrange(1, 6_000)

def killed_after_so_many_steps_of_the_database():
    global steps
    steps -= 1
    if steps == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0

store._db.set_progress_handler(killed_after_so_many_steps_of_the_database, 1)
while True:
    batch += 1
    first = message_key(1, 100 * batch)
    writes = Writes(
        messages=[MessageRow(first + i, bytes(1200), i, False) for i in range(batch % 40 + 1)],
        incoming={(bytes(16), 1): IncomingRow(bytes(16), 1, 0, 0, batch, 0, 0, "")},
        counters={"batch": batch},
    )
    if batch > 3:
        writes.remove(1, 100 * (batch - 3), 100 * (batch - 3) + 99)
    store.commit(writes)
    os.write(1, b"%d\\n" % batch)
"""


def test_a_killed_process_leaves_exactly_the_batches_that_were_committed(path: Path) -> None:
    with Store(path, NODE) as store:
        store.commit(Writes(queues=QUEUES))
    committed: list[int] = []
    for seed in range(12):
        done = subprocess.run(
            [sys.executable, "-c", LOOP, path, str(seed)], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == -9, done.stderr
        said = [int(line) for line in done.stdout.split()]
        with Store(path, NODE) as store:
            state = store.load()
            found = numbers(store)
        batch = state.counters.get("batch", 0)
        assert batch - (said or committed or [0])[-1] in (0, 1), f"seed {seed}"
        kept = range(max(1, batch - 2), batch + 1)
        assert found == [100 * kept_batch + i for kept_batch in kept for i in range(kept_batch % 40 + 1)]
        assert state.queues[0].message_count == len(found)
        assert [row.number for row in state.incoming] == ([batch] if batch else [])
        committed.append(batch)
    assert len(set(committed)) > 6, "the kills are too early to show anything"


@pytest.fixture(scope="module")
def log_of_five(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, list[int]]:
    """A store's file and its log, and how long the log was after each of five batches of one message."""
    path = tmp_path_factory.mktemp("log") / "a.sqlite"
    log = Path(f"{path}-wal")
    lengths = []
    with Store(path, NODE) as store:
        store.commit(Writes(queues=QUEUES))
        for number in range(1, 6):
            store.commit(Writes(messages=[one(number, bytes(3_000))]))
            lengths.append(log.stat().st_size)
        return path.read_bytes(), log.read_bytes(), lengths


@given(data=st.data())
def test_a_log_that_was_cut_or_garbled_anywhere_holds_the_batches_before_that(
    log_of_five: tuple[bytes, bytes, list[int]], data: st.DataObject
) -> None:
    content, log, lengths = log_of_five
    cut = data.draw(st.integers(lengths[0], len(log)), label="cut")
    left = log[:cut] + data.draw(st.binary(max_size=100), label="what stands behind the cut")
    differing = (at for at, (was, now) in enumerate(zip(log, left, strict=False)) if was != now)
    intact = next(differing, len(left))
    with memory_folder() as folder:
        path = Path(folder, "a.sqlite")
        path.write_bytes(content)
        Path(f"{path}-wal").write_bytes(left)
        with Store(path, NODE) as store:
            assert numbers(store) == list(range(1, sum(length <= intact for length in lengths) + 1))


def test_a_full_disk_is_told_and_when_there_is_room_again_the_store_goes_on(store: Store) -> None:
    [(pages,)] = store._db.execute("PRAGMA page_count").fetchall()
    store._db.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall()
    with pytest.raises(StoreError, match="disk is full: make room"):
        store.commit(Writes(messages=[one(number, bytes(5_000)) for number in range(2, 12)]))
    assert (numbers(store), store.size_bytes) == ([1], 6)
    store._db.execute("PRAGMA max_page_count = 1000000").fetchall()
    store.commit(Writes(messages=[one(2)]))
    assert numbers(store) == [1, 2]


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
        store.commit(Writes(messages=[one(number, bytes(100_000)) for number in range(2, 32)]))
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
    code = "import sys, simulator.storage as s; s.Store(s.Path(sys.argv[1]), bytes(range(16)))"
    done = subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True)
    assert "StoreError" in done.stderr
    assert "another node has it open" in done.stderr
    store.commit(Writes(messages=[one(2)]))


def test_a_closed_store_can_be_opened_again_at_once(path: Path) -> None:
    for _ in range(3):
        Store(path, NODE).close()


def refused(path: Path, node: Guid = NODE) -> str:
    with pytest.raises(StoreError) as caught:
        Store(path, node).load()
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_a_file_that_is_not_ours_is_refused_and_not_touched(tmp_path: Path) -> None:
    letter, database = tmp_path / "letter.txt", tmp_path / "browser.sqlite"
    letter.write_text("Dear sir or madam, " * 1_000)
    with closing(sqlite3.connect(database)) as theirs:
        theirs.execute("CREATE TABLE history (url)")
    for path in (letter, database):
        before = path.read_bytes()
        assert "no store of a node: name another file" in refused(path)
        assert path.read_bytes() == before


def test_a_store_of_another_node_is_refused(store: Store, path: Path) -> None:
    store.close()
    assert f"belongs to {guid_text(NODE)}, not to {guid_text(NEIGHBOUR)}" in refused(path, NEIGHBOUR)


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
    assert "it is damaged: put back a copy" in refused(path)


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
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(damage)
    with pytest.raises(StoreError, match="it is damaged: put back a copy"):
        store.load()


def test_a_missing_folder_and_a_folder_in_the_files_place_are_told(tmp_path: Path) -> None:
    assert "is its folder there" in refused(tmp_path / "nowhere" / "a.sqlite")
    (tmp_path / "b.sqlite").mkdir()
    assert "it cannot be opened" in refused(tmp_path / "b.sqlite")


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to write anywhere, if we have it."""
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


def test_each_commit_is_flushed(store: Store) -> None:
    settings = {
        name: store._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
    }
    assert settings == {"journal_mode": "wal", "synchronous": 2}
    assert store._db.execute("PRAGMA page_size").fetchone() == (8192,)


def test_people_can_look_on_with_sqlite_while_the_node_runs(store: Store, path: Path) -> None:
    store.commit(
        Writes(
            messages=[one(7, b"seven")],
            outgoing={1: OutgoingRow(1, NEIGHBOUR, 5, 6, 0, 8, 7, 7, 7)},
            incoming={(NULL_GUID, 1): IncomingRow(NULL_GUID, 1, 5, 6, 7, 0, 86_400, "")},
        )
    )
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
        store.commit(Writes(messages=[one(8)]))
        assert shell.execute("SELECT messages FROM waiting").fetchall() == [(3,)]


def test_another_program_that_writes_for_long_is_told_and_the_store_goes_on_after_it(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store._db.execute("PRAGMA busy_timeout = 1").fetchall()
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another program is writing to it"):
            store.commit(Writes(messages=[one(2)]))
    store.commit(Writes(messages=[one(2)]))
    assert numbers(store) == [1, 2]

"""The table of documents: who comes first, what the index is for, and databases that fail midway.

The index is that of "Transactions in OSB. Reliable Messaging.".
"""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg
import pytest
import trio
from hypothesis import given, strategies as st
from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import OperationalError

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.edge.exactlyonce import Attempt, Entry
from mqproto.simulator.edges.history.databases import engine_for, parsed
from mqproto.simulator.edges.history.documents import (
    UNKNOWN,
    Answer,
    Begin,
    Call,
    Change,
    Documents,
    Finish,
    LookUp,
    Record,
    StartedBy,
    rounds,
)
from mqproto.simulator.edges.history.errors import HistoryError
from mqproto.simulator.edges.history.history import DocumentHistory, open_history
from mqproto.simulator.edges.history.moving import inventory
from mqproto.simulator.edges.history.tables import LAYOUT
from tests.conformance import ROOT
from tests.databases import Server
from tests.simulator.node.test_fulldisk import way_to_mount

T = TypeVar("T")
ORDERS = "trigger/orders"
TICKETS = itertools.count(1)


def a_begin(key: str, owner: str = "a") -> Begin:
    return Begin(ORDERS, key, owner, next(TICKETS))


def a_finish(key: str, entry: Entry = Entry.COMPLETED) -> Finish:
    return Finish(ORDERS, key, 0, entry, b"outcome")


@pytest.fixture
def documents(history_url: str) -> Iterator[Documents]:
    with closing(Documents(history_url, 1_000, lambda: 0, lambda: 0)) as documents:
        yield documents


def path_of(url: str) -> str:
    database = make_url(url).database
    assert database is not None
    return database


changes = st.builds(
    lambda key, entry: a_begin(key) if entry is None else a_finish(key, entry),
    st.sampled_from("abc"),
    st.sampled_from([None, Entry.ABSENT, Entry.COMPLETED]),
)


@given(calls=st.lists(changes))
def test_each_round_has_a_document_once_in_order_and_its_ends_come_before_its_beginnings(
    calls: list[Change],
) -> None:
    found = list(rounds(iter(calls)))
    assert Counter(itertools.chain(*found)) == Counter(calls)
    for together in found:
        keys = [call.key for call in together]
        assert keys == sorted(set(keys))
    for key in "abc":
        kinds = [isinstance(call, Begin) for together in found for call in together if call.key == key]
        assert kinds == sorted(kinds)


def test_calls_of_one_moment_on_one_document_all_get_their_answer(documents: Documents) -> None:
    finish, first, second, look = a_finish("1", Entry.ABSENT), a_begin("1"), a_begin("1"), LookUp(ORDERS, "1")
    owned = StartedBy(ORDERS, "a")
    assert documents.carry_out([look, second, first, finish, owned]) == [
        Record(Entry.STARTED, "a", 2, b"outcome"),
        Record(Entry.ABSENT, "", 1, b"outcome"),
        Record(Entry.STARTED, "a", 2, b"outcome"),
        None,
        ["1"],
    ]


def test_eliminating_duplicates_the_check_goes_by_an_index(new_history_url: Callable[[], str]) -> None:
    """From "Eliminating Duplicates on the Consumer": the check is fast, and uses a database's index."""
    sent: list[tuple[str, Any]] = []

    def note(_c: object, _u: object, statement: str, values: Any, _x: object, _m: bool) -> None:
        if "FROM document_history " in " ".join([*statement.split(), ""]):
            sent.append((statement, values))

    url, now_s = new_history_url(), 0.0
    event.listen(Engine, "before_cursor_execute", note)
    try:
        with closing(Documents(url, 1, lambda: now_s, lambda: now_s)) as documents:
            documents.carry_out([a_finish("1"), a_finish("2")])
            documents.carry_out([a_begin("1"), a_begin("2"), LookUp("another", "1"), StartedBy(ORDERS, "a")])
            now_s = 1_000
            assert documents.carry_out([LookUp(ORDERS, "1")]) == [UNKNOWN]
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    kinds = Counter(statement.split()[0] for statement, _ in sent)
    # The newest; what has expired, twice; documents of two scopes and of one; those of an owner.
    assert kinds == {"SELECT": 1 + 2 + 2 + 1 + 1, "DELETE": 1}

    engine = engine_for(parsed(url))
    with engine.begin() as db:
        if not url.startswith("sqlite"):
            db.exec_driver_sql("SET enable_seqscan = off")  # As for a table that is not so short.
        for statement, values in sent:
            explain = "EXPLAIN QUERY PLAN" if url.startswith("sqlite") else "EXPLAIN"
            plan = str(db.exec_driver_sql(f"{explain} {statement}", values).all())
            assert re.search(r"PRIMARY KEY|INDEX document_history_|Index Scan|Index Only Scan", plan), plan
            assert not re.search(
                r"SCAN document_history(?! USING INDEX document_history_age)|Seq Scan", plan
            ), plan
    engine.dispose()


def at_once(task: Callable[[], T]) -> list[T]:
    """Run a task in four threads that start at the same instant; return the results."""
    ready = threading.Barrier(4)

    def run(_: int) -> T:
        ready.wait()
        return task()

    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(run, range(4)))


def test_a_new_database_is_made_once_by_all_who_open_it_at_once(new_history_url: Callable[[], str]) -> None:
    for _ in range(5):
        url = new_history_url()
        opened = at_once(partial(Documents, url, 1, lambda: 0))
        answers = [documents.carry_out([a_begin("1")])[0] for documents in opened]
        assert answers == [UNKNOWN, *[Record(Entry.STARTED, "a", 1, b"")] * 3]
        for documents in opened:
            documents.close()


def test_what_expires_for_several_at_once_is_nobodys_error(
    history_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.simulator.edges.history.forgetting.FORGET_ROWS", 5)
    with closing(Documents(history_url, 1, lambda: 0, lambda: 0)) as documents:
        documents.carry_out([a_finish(str(number)) for number in range(300)])

    def look_often() -> list[Answer | MqprotoError]:
        with closing(Documents(history_url, 1, lambda: 1_000, lambda: 1_000)) as documents:
            return [documents.carry_out([LookUp(ORDERS, "never")])[0] for _ in range(20)]

    assert at_once(look_often) == [[UNKNOWN] * 20] * 4


def test_another_layout_is_refused_and_left_as_it_is(history_url: str) -> None:
    Documents(history_url, 1, lambda: 0, lambda: 0).close()
    engine = create_engine(history_url)
    with engine.begin() as db:
        db.execute(text("UPDATE document_history_layout SET layout = 7"))
    engine.dispose()
    for _ in range(2):
        with pytest.raises(HistoryError) as refused:
            Documents(history_url, 1, lambda: 0, lambda: 0)
        assert str(refused.value).endswith(
            f": it has layout 7, and this mqproto knows {LAYOUT}: use the mqproto that made it"
        )


def test_what_one_database_cannot_keep_does_no_harm_to_what_came_with_it(postgresql: Server) -> None:
    postgresql.execute("CREATE DATABASE western ENCODING 'LATIN1' TEMPLATE template0")
    try:
        with closing(Documents(postgresql.url("western"), 1, lambda: 0, lambda: 0)) as documents:
            good, bad, other = documents.carry_out([a_begin("café"), a_begin("漢字"), a_begin("plain")])
            assert (good, other) == (UNKNOWN, UNKNOWN)
            assert isinstance(bad, UsageError)
            assert "it cannot keep this: character with byte sequence 0xe6 0xbc 0xa2" in str(bad)
            [found] = documents.carry_out([LookUp(ORDERS, "café")])
            assert found == Record(Entry.STARTED, "a", 1, b"")
    finally:
        postgresql.execute("DROP DATABASE western")


# Databases that fail


def failure(documents: Documents) -> str:
    """Return the error that each of two simultaneous calls gets."""
    first, second = documents.carry_out([a_begin("failing"), a_begin("too")])
    assert isinstance(first, HistoryError)
    assert str(first) == str(second)
    assert "\n" not in str(first)
    return str(first).removeprefix(f"{documents.name}: ")


def test_a_file_that_another_program_keeps_locked_is_told_and_then_it_goes_on(
    new_sqlite_url: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.simulator.edges.history.databases.BUSY_S", 0.05)
    monkeypatch.setattr("mqproto.simulator.edges.history.documents.BUSY_S", 0.05)
    url = new_sqlite_url()
    with closing(Documents(url, 1, lambda: 0, lambda: 0)) as documents:
        with closing(sqlite3.connect(path_of(url), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert failure(documents) == "another program keeps it locked: let that end"
            with pytest.raises(HistoryError, match="another program keeps it locked: let that end"):
                Documents(url, 1, lambda: 0, lambda: 0)
        assert documents.carry_out([a_begin("1")]) == [UNKNOWN]


@contextmanager
def disk_of_pages(count: int) -> Iterator[None]:
    """Make SQLite report a full disk once a file has `count` pages."""

    def limit(db: DBAPIConnection, _: object) -> None:
        db.cursor().execute(f"PRAGMA max_page_count = {count}")

    event.listen(Engine, "connect", limit)
    try:
        yield
    finally:
        event.remove(Engine, "connect", limit)


def test_a_full_disk_is_told_and_when_there_is_room_again_it_goes_on(
    new_sqlite_url: Callable[[], str],
) -> None:
    url = new_sqlite_url()
    with disk_of_pages(20), closing(Documents(url, 1, lambda: 0, lambda: 0)) as documents:
        large = [Finish(ORDERS, str(number), 0, Entry.COMPLETED, bytes(60_000)) for number in range(5)]
        errors = documents.carry_out(large)
        assert {str(error) for error in errors} == {
            f"{path_of(url)}: the disk is full: make room; nothing acknowledged is lost"
        }
        assert documents.carry_out([a_begin("small")]) == [UNKNOWN]
        assert documents.carry_out([LookUp(ORDERS, "0")]) == [UNKNOWN]
    with closing(Documents(url, 1, lambda: 0, lambda: 0)) as documents:
        assert documents.carry_out(large) == [None] * 5
        assert documents.carry_out([LookUp(ORDERS, "small")]) == [Record(Entry.STARTED, "a", 1, b"")]


def test_who_only_reads_needs_neither_room_nor_rights_and_changes_nothing(
    new_sqlite_url: Callable[[], str],
) -> None:
    url = new_sqlite_url()
    with pytest.raises(HistoryError, match="no document history is there: name another file or database"):
        Documents(url, None, only_reads=True)
    with closing(Documents(url, 1)) as documents:
        documents.carry_out([a_begin("1")])
        with closing(Documents(url, None, only_reads=True)) as reader:
            assert [key for _, key, _ in reader.everything("")] == ["1"]
    path = Path(path_of(url))
    kept = path.read_bytes()
    Path(f"{path}-shm").mkdir()  # As if there was no room to make this file.
    with closing(Documents(url, None, only_reads=True)) as reader:
        assert [key for _, key, _ in reader.everything("")] == ["1"]
        assert isinstance(reader.carry_out([a_begin("2")])[0], HistoryError)
    assert inventory(url).documents == {(ORDERS, "started"): 1}
    assert path.read_bytes() == kept


def test_a_damaged_file_is_told(new_sqlite_url: Callable[[], str]) -> None:
    url = new_sqlite_url()
    with closing(Documents(url, 1, lambda: 0, lambda: 0)) as documents:
        documents.carry_out([a_finish(str(number)) for number in range(500)])
    with open(path_of(url), "r+b") as file:
        file.seek(4_096)
        file.write(bytes(range(256)) * 100)
    with pytest.raises(HistoryError, match="it is damaged: put back a copy"):
        Documents(url, 1, lambda: 0, lambda: 0)


def backends(postgresql: Server) -> set[int]:
    """Return the ids of the server processes that serve document histories."""
    query = b"SELECT pid FROM pg_stat_activity WHERE application_name = 'mqproto'"
    with psycopg.connect(make_url(postgresql.url()).set(drivername="postgresql").render_as_string()) as db:
        return {pid for (pid,) in db.execute(query)}


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ("53100", "the server's disk is full: make room; nothing acknowledged is lost"),
        ("25006", "it is read-only: name the server that takes writes, and a user who may write"),
        ("57014", "it took too long: another program keeps its rows locked, or the server is overloaded"),
        ("XX001", "the server fails (invalid page): look to it"),
    ],
)
def test_what_a_server_fails_with_is_told_in_one_line_and_then_it_goes_on(
    postgresql: Server, state: str, advice: str
) -> None:
    url = postgresql.new_schema()
    schema = url.rpartition("%3D")[2]
    with closing(Documents(url, 1, lambda: 0, lambda: 0)) as documents:
        postgresql.execute(
            f"CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION E'invalid page\\nof password' USING ERRCODE = '{state}'; END $$",
            f"CREATE TRIGGER fail BEFORE INSERT ON {schema}.document_history EXECUTE FUNCTION {schema}.fail()",
        )
        before = backends(postgresql)
        assert failure(documents) == advice
        postgresql.execute(f"DROP FUNCTION {schema}.fail CASCADE")
        assert documents.carry_out([a_begin("failing")]) == [UNKNOWN]
        # By a new connection, which may lead elsewhere: to the server that takes writes by now.
        assert backends(postgresql) - before


def test_a_file_that_another_program_keeps_locked_is_not_waited_for_if_it_has_to_be_at_once(
    new_sqlite_url: Callable[[], str],
) -> None:
    """Otherwise nothing else would be served meanwhile. Requests that must wait are made in a thread."""
    url, begin = new_sqlite_url(), a_begin("1")
    with (
        closing(Documents(url, 1_000, lambda: 0, lambda: 0)) as documents,
        closing(sqlite3.connect(path_of(url))) as db,
    ):
        db.execute("BEGIN IMMEDIATE")
        assert documents.carry_out_at_once([begin]) is None
        db.rollback()
        assert documents.carry_out([LookUp(ORDERS, "1")]) == [UNKNOWN]
        assert documents.carry_out_at_once([begin]) == [UNKNOWN]
        assert documents.carry_out_at_once([a_begin("1")]) == [Record(Entry.STARTED, "a", 1, b"")]


def test_who_reads_and_who_writes_do_not_wait_for_each_other(history_url: str) -> None:
    """Otherwise an audit of a long history would hold up its gateways, and they would hold up the audit."""
    with closing(Documents(history_url, None)) as writer, closing(Documents(history_url, None)) as reader:
        writer.carry_out([a_finish("1")])
        reads = reader.everything(ORDERS)
        assert next(reads)[1] == "1"
        if writer.is_here:
            assert writer.carry_out_at_once([a_finish("2")]) == [None], "it is not held up"
        else:
            assert writer.carry_out([a_finish("2")]) == [None]
        assert list(reads) == [], "as it was when this began"
        with writer._begun(at_once=True) as db:
            db.execute(text("DELETE FROM document_history"))
            assert [key for _, key, _ in reader.everything(ORDERS)] == ["1", "2"]
            assert [record.entry for record in reader.looked([LookUp(ORDERS, "2")])] == [Entry.COMPLETED]
            assert reader.leaders(ORDERS) == []
            assert reader.forgotten() == (0, 0.0)


def test_rows_that_another_program_keeps_locked_are_told(
    postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.simulator.edges.history.databases.SETTINGS", ["SET lock_timeout = '50ms'"])
    url = postgresql.new_schema()
    with closing(Documents(url, 1, lambda: 0, lambda: 0)) as documents:
        engine = create_engine(url)
        with engine.begin() as other:
            other.execute(text("LOCK TABLE document_history"))
            assert failure(documents) == "another program keeps its tables locked: let that end"
        engine.dispose()
        assert documents.carry_out([a_begin("1")]) == [UNKNOWN]


def test_what_has_expired_waits_for_nobody_who_keeps_it_locked(postgresql: Server) -> None:
    url, now_s = postgresql.new_schema(), 0.0
    with closing(Documents(url, 500, lambda: now_s, lambda: now_s)) as documents:
        documents.carry_out([a_finish("1"), a_finish("2")])
        engine = create_engine(url)
        with engine.begin() as other:
            other.execute(text("SELECT 1 FROM document_history WHERE key = '1' FOR UPDATE"))
            now_s += 500
            first, second = documents.carry_out([LookUp(ORDERS, "1"), LookUp(ORDERS, "2")])
            assert (first, second) == (Record(Entry.COMPLETED, "", 1, b"outcome"), UNKNOWN)
        engine.dispose()
        now_s += 10
        assert documents.carry_out([LookUp(ORDERS, "1")]) == [UNKNOWN]


def test_tables_that_are_gone_are_not_made_anew_in_silence(history_url: str, documents: Documents) -> None:
    engine = create_engine(history_url)
    with engine.begin() as db:
        db.execute(text("DROP TABLE document_history"))
    engine.dispose()
    assert (
        failure(documents)
        == "its tables are gone: restore them, or start again and they are made anew, empty"
    )


def test_a_connection_that_was_lost_is_made_again_and_nobody_hears_of_it(postgresql: Server) -> None:
    with closing(Documents(postgresql.new_schema(), 1, lambda: 0, lambda: 0)) as documents:
        first = a_begin("1")
        assert documents.carry_out([first]) == [UNKNOWN]
        ends: list[Callable[[], None]] = [
            lambda: postgresql.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mqproto'"
            ),
            postgresql.stop,
            postgresql.kill,
        ]
        for end in ends:
            end()
            if end in (postgresql.stop, postgresql.kill):
                postgresql.start()
            assert documents.carry_out([first, a_begin("1")]) == [UNKNOWN, Record(Entry.STARTED, "a", 1, b"")]


def test_a_connection_that_was_lost_before_the_answer_came_does_not_begin_a_second_time(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction, losses = Documents._transaction, iter([True])

    def lost(self: Documents, calls: Sequence[Call]) -> list[Answer]:
        answers = transaction(self, calls)
        if next(losses, False):
            raise OperationalError("COMMIT", None, Exception("gone"), connection_invalidated=True)
        return answers

    monkeypatch.setattr(Documents, "_transaction", lost)
    begin = a_begin("1")
    assert documents.carry_out([begin, a_begin("2")]) == [UNKNOWN, UNKNOWN]
    assert documents.carry_out([begin, a_begin("2")]) == [UNKNOWN, Record(Entry.STARTED, "a", 1, b"")]


@pytest.mark.long
async def test_while_a_server_is_killed_and_started_again_each_document_is_begun_and_finished_once(
    postgresql: Server,
) -> None:
    """A program that gets an error asks again, and the history knows whether the change was already made."""
    is_up, began, errors = trio.Event(), Counter[str](), 0
    is_up.set()

    async def work(history: DocumentHistory, owner: int) -> None:
        for number in range(60):
            key = str(number)
            record = await insist(partial(history.begin, ORDERS, key, str(owner)))
            if record.entry is Entry.ABSENT:
                began[key] += 1
                await insist(partial(history.finish, ORDERS, key, Attempt.SUCCEEDED, key.encode()))

    async def insist(ask: Callable[[], Awaitable[T]]) -> T:
        nonlocal errors
        while True:
            try:
                return await ask()
            except HistoryError:
                errors += 1
                await is_up.wait()

    url = postgresql.new_schema()
    async with open_history(url) as first, open_history(url) as second:
        async with trio.open_nursery() as nursery:
            for owner in range(6):
                nursery.start_soon(work, (first, second)[owner % 2], owner)
            for _ in range(3):
                is_up = trio.Event()
                await trio.to_thread.run_sync(postgresql.kill)
                await trio.to_thread.run_sync(postgresql.start)
                is_up.set()
        assert began == dict.fromkeys(map(str, range(60)), 1)
        for number in range(60):
            record = await first.look(ORDERS, str(number))
            assert (record.entry, record.attempts, record.outcome) == (
                Entry.COMPLETED,
                1,
                str(number).encode(),
            )


def test_of_everything_those_are_read_that_are_meant(history_url: str) -> None:
    with closing(Documents(history_url, None)) as documents:
        for key, said in (("shop/o1", r"A\1"), ("o11", r"A\11"), ("o12", ""), ("shop/o%", r"A\1")):
            outcome = json.dumps({"id": said}).encode()
            documents.carry_out([Finish(ORDERS, key, 0, Entry.COMPLETED, outcome)])

        def keys(**meant: Any) -> list[str]:
            return sorted(key for _, key, _ in documents.everything(ORDERS, **meant))

        assert len(keys()) == 4
        assert keys(keys=["o11", "o12", "o13"]) == ["o11", "o12"]
        assert keys(about="o1") == keys(about="shop/o1") == ["shop/o1"]
        assert keys(about=r"A\1") == ["shop/o%", "shop/o1"]
        assert keys(about="o%") == ["shop/o%"], "no pattern"
        assert keys(about="1") == keys(about="A") == []


FULL_DISK: Final = """
import sys
from contextlib import closing
from pathlib import Path

from mqproto.simulator.edges.history.documents import UNKNOWN, Begin, Documents

folder = Path(sys.argv[1])
url = f"sqlite:///{folder}/history.sqlite"
first = Begin("trigger/orders", "0", "a", 1)
with closing(Documents(url, None)) as gateway, open(folder / "filler", "wb", buffering=0) as filler:
    assert gateway.carry_out([first]) == [UNKNOWN]
    try:
        while filler.write(bytes(4_096)):
            pass
    except OSError:
        pass
    with closing(Documents(url, None)) as trigger:
        for number in range(1, 1_000):
            assert trigger.carry_out([Begin("trigger/orders", f"{number:036}", "a", number)]) == [UNKNOWN]
        together = [Begin("trigger/orders", f"together {number:036}", "a", number) for number in range(500)]
        assert trigger.carry_out(together) == [UNKNOWN] * 500
    with closing(Documents(url, None, only_reads=True)) as reader:
        assert len(list(reader.everything(""))) == 1_500
"""


def test_on_a_full_disk_a_trigger_starts_and_more_than_a_thousand_messages_end(tmp_path: Path) -> None:
    way = way_to_mount()
    if way is None:
        pytest.skip("a small disk cannot be mounted here: run as root, or allow user namespaces")
    script = 'mount -t tmpfs -o size=16m,mode=700 room "$1" && exec "$2" -c "$3" "$1"'
    subprocess.run(
        [*way, "sh", "-c", script, "sh", tmp_path, sys.executable, FULL_DISK], cwd=ROOT, check=True
    )

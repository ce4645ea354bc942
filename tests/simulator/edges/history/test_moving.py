"""A history is copied to another database and continues there, even if programs use it meanwhile, and no matter where
the copying is killed.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, inspect, make_url, select

from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.cli.cli import run_command
from mqproto.simulator.edges.history import moving
from mqproto.simulator.edges.history.databases import name_of
from mqproto.simulator.edges.history.documents import UNKNOWN, Begin, Call, Documents, Finish, LookUp, Record
from mqproto.simulator.edges.history.errors import HistoryError
from mqproto.simulator.edges.history.leaders import BecomeLeader, Leader, WhoLeads
from mqproto.simulator.edges.history.moving import back_up, copy, inventory
from mqproto.simulator.edges.history.outbox import Find, Hook, State, Tell
from mqproto.simulator.edges.history.tables import LAYOUT, MOVED, layouts, metadata
from tests.databases import Server
from tests.simulator.edges.history.test_documents import path_of
from tests.simulator.edges.history.test_tables import make_earlier

ORDERS = "gateway/orders"
BATCH = 3


class Route:
    """The place of a history, and the place that it moves to."""

    def __init__(self, request: pytest.FixtureRequest, source: str, target: str) -> None:
        makers: dict[str, Callable[[], str]] = {"sqlite": request.getfixturevalue("new_sqlite_url")}
        if "postgresql" in (source, target):
            makers["postgresql"] = request.getfixturevalue("postgresql").new_schema
        self.new_source, self.new_target = makers[source], makers[target]


@pytest.fixture(params=["sqlite to postgresql", "postgresql to sqlite", "sqlite to sqlite"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Route:
    monkeypatch.setattr(moving, "BATCH", BATCH)
    source, _, target = request.param.split()
    return Route(request, source, target)


def opened(url: str) -> Documents:
    return Documents(url, None, lambda: 100.0, lambda: 0)


def armed(name: str, body: bytes) -> Hook:
    return Hook(name, "gateway 1", "http://a/", body, state=State.ARMED)


def finish(number: int) -> Finish:
    return Finish(ORDERS, f"{number}", number, Entry.COMPLETED, b"%d" % number)


def fill(documents: Documents, count: int = 8) -> None:
    """Add messages that have ended, one that has begun, reports that are due to a producer, and a leader."""
    documents.carry_out([finish(number) for number in range(count)])
    documents.carry_out([Begin(ORDERS, "begun", "gateway 1", 77)])
    documents.carry_out([Tell(armed(f"hook {number}", b"x")) for number in range(count // 2)])
    documents.carry_out([BecomeLeader("trigger/orders", "t", 5)])


def answer(documents: Documents, call: Call) -> Any:
    [found] = documents.carry_out([call])
    return found


def trouble(url: str) -> str:
    with pytest.raises(HistoryError) as caught:
        opened(url)
    return str(caught.value)


@contextmanager
def meanwhile(monkeypatch: pytest.MonkeyPatch, deed: Callable[[], object]) -> Iterator[None]:
    """Do something before each batch is read."""
    page = moving._page

    def read(db: Connection, *arguments: Any) -> list[dict[str, Any]]:
        deed()
        return page(db, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(moving, "_page", read)
        yield


def test_a_history_goes_on_elsewhere_with_all_that_it_has_and_with_what_was_changed_meanwhile(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes affect rows that were already copied, and other rows: some are new, some are finished, and one is
    deleted.
    """
    source, target = route.new_source(), route.new_target()
    numbers = itertools.count(100)
    with closing(opened(source)) as documents:
        fill(documents)
        documents.carry_out(
            [Begin(ORDERS, "0 begun first", "gateway 1", 7), Begin(ORDERS, "99 last", "g", 8)]
        )

        def change() -> None:
            number = next(numbers)
            key = f"{number:03} new" if number % 2 else f"zz {number}"
            documents.carry_out([finish(number), Begin(ORDERS, key, "gateway 1", number)])
            if number == 102:
                documents.carry_out([Finish(ORDERS, "0 begun first", 7, Entry.COMPLETED, b"late")])
                documents.carry_out([Tell(armed("a hook", b"late"))])
                with documents._begun(at_once=False) as db:
                    db.exec_driver_sql("DELETE FROM document_history WHERE key = '0'")
            assert "not all of the history is here yet: mqproto store copy" in trouble(target)

        with meanwhile(monkeypatch, change):
            made = copy(source, target)
        last = next(numbers)
        assert last > 104

        line = str(answer(documents, LookUp(ORDERS, "1")))
        assert line.endswith(f"the history was moved to {made.target}: name that")
        for call in (
            BecomeLeader("trigger/orders", "t", 5),
            Find("hook 1"),
            finish(1),
            Begin(ORDERS, "n", "g", 9),
        ):
            assert str(answer(documents, call)) == line
        with pytest.raises(HistoryError, match="was moved to"):
            [*documents.everything("")]
    assert trouble(source) == line
    with pytest.raises(HistoryError, match="was moved to"):
        copy(source, target)
    with pytest.raises(HistoryError, match="was moved to"):
        inventory(source)

    with closing(opened(target)) as documents:
        for number in (*range(1, 8), *range(100, last)):
            found = answer(documents, LookUp(ORDERS, f"{number}"))
            assert found == Record(Entry.COMPLETED, "", 1, b"%d" % number)
        assert answer(documents, LookUp(ORDERS, "0")) == UNKNOWN
        assert answer(documents, LookUp(ORDERS, "0 begun first")).outcome == b"late"
        # By its ticket, as if it had not been moved.
        assert answer(documents, Begin(ORDERS, "begun", "gateway 1", 77)) == UNKNOWN
        assert answer(documents, Begin(ORDERS, "99 last", "g", 9)).entry is Entry.STARTED
        assert answer(documents, Find("a hook")) == armed("a hook", b"late")
        assert answer(documents, Find("hook 3")) == armed("hook 3", b"x")
        assert answer(documents, WhoLeads("trigger/orders")) == Leader(100, "t", 5, 0, b"")
        assert (made.documents, made.hooks) == (7 + 3 + 2 * (last - 100), 5)


class Killed(BaseException):
    """Raised where a process would have ended."""


@contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> Iterator[list[int]]:
    """Let the process end in transaction number `moment // 2`.

    It ends right before the commit if `moment` is even, and right after the commit if it is odd.
    """
    begun, number = moving._Database.begun, itertools.count()
    seen = [0]

    @contextmanager
    def begins(self: moving._Database) -> Iterator[Connection]:
        mine = next(number)
        seen[0] = mine + 1
        with begun(self) as db:
            yield db
            if moment == 2 * mine:
                raise Killed
        if moment == 2 * mine + 1:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(moving._Database, "begun", begins)
        yield seen


def layout_of(url: str) -> int | None:
    """Return the layout number, which programs of all versions check; None if there is nothing."""
    engine = create_engine(url)
    try:
        with engine.begin() as db:
            is_there = inspect(db).has_table(layouts.name)
            return db.execute(select(layouts.c.layout)).scalar_one() if is_there else None
    finally:
        engine.dispose()


@pytest.mark.long
def test_wherever_a_copy_is_killed_it_goes_on_and_no_id_is_taken_in_both_places(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in itertools.count():
        source, target = route.new_source(), route.new_target()
        with closing(opened(source)) as documents:
            fill(documents, 4)
            deed = partial(documents.carry_out, [finish(5)])
            with meanwhile(monkeypatch, deed), killed_at(monkeypatch, moment):
                try:
                    copy(source, target)
                    break
                except Killed:
                    pass
            taken = {*"0123"} | {
                key for key in "567" if answer(documents, Begin(ORDERS, key, "g", 1)) == UNKNOWN
            }
        where = [layout_of(url) for url in (source, target)]
        assert where in ([LAYOUT, None], [LAYOUT, MOVED], [MOVED, MOVED], [MOVED, LAYOUT])
        assert where[0] == LAYOUT or taken == {*"0123"}
        if where[1] == MOVED:
            assert "goes on with it" in trouble(target)
        if where[1] != LAYOUT:
            copy(source, target)
        with closing(opened(target)) as documents:
            for key in taken:
                assert answer(documents, Begin(ORDERS, key, "another", 2)).entry is not Entry.ABSENT, (
                    moment,
                    key,
                )
            assert answer(documents, WhoLeads("trigger/orders")).epoch == 100
    assert moment > 15


@pytest.mark.long
def test_of_what_is_begun_while_a_history_moves_nothing_is_lost_or_begun_again(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program never pauses, and continues until it is told that it cannot."""
    monkeypatch.setattr(moving, "BATCH", 500)
    source, target = route.new_source(), route.new_target()
    taken, has_begun, is_over = list[str](), threading.Event(), threading.Event()

    def use() -> None:
        with closing(opened(source)) as documents:
            for number in itertools.count(1):
                if (
                    is_over.is_set()
                    or answer(documents, Begin(ORDERS, f"race {number}", "g", number)) != UNKNOWN
                ):
                    return
                taken.append(f"race {number}")
                has_begun.set()

    thread = threading.Thread(target=use)
    thread.start()
    try:
        assert has_begun.wait(60)
        made = copy(source, target)
        thread.join(60)
    finally:
        is_over.set()
        thread.join()
    with closing(opened(target)) as documents:
        assert made.documents == len(taken)
        for key in taken:
            assert answer(documents, Begin(ORDERS, key, "another", 1 << 40)).entry is Entry.STARTED
        assert answer(documents, Begin(ORDERS, "new", "another", 1 << 40)) == UNKNOWN


def test_a_program_that_closes_after_the_move_goes_on_with_the_new_place(route: Route) -> None:
    """Otherwise, the program would have recorded a later time than the history has in its new place.

    The new place would then look like a restored backup.
    """
    source, target = route.new_source(), route.new_target()
    passed_s = [0.0]
    documents = Documents(source, None, lambda: 100.0, lambda: passed_s[0])
    answer(documents, finish(1))
    copy(source, target)
    passed_s[0] = 60.0
    assert isinstance(answer(documents, finish(2)), HistoryError)
    documents.close()
    with closing(Documents(target, None, lambda: 100.0, lambda: passed_s[0], seen=documents.seen)) as later:
        assert answer(later, LookUp(ORDERS, "1")).entry is Entry.COMPLETED


def test_mqproto_of_before_refuses_by_the_layout_whatever_tables_it_makes_first(route: Route) -> None:
    source, target = route.new_source(), route.new_target()
    opened(source).close()
    make_earlier(source)
    copy(source, target)
    assert (layout_of(source), layout_of(target)) == (MOVED, LAYOUT)
    engine = create_engine(source)
    with engine.begin() as db:
        metadata.create_all(db)
    engine.dispose()


def test_a_place_that_has_a_history_takes_no_other_and_what_both_have_completed_is_named(
    route: Route,
) -> None:
    source, target = route.new_source(), route.new_target()
    with closing(opened(source)) as documents:
        fill(documents)
    with closing(opened(target)) as documents:
        documents.carry_out([finish(number) for number in range(4, 12)])
    with pytest.raises(
        HistoryError, match="it has 8 documents of its own, of which 4 are completed in both"
    ) as caught:
        copy(source, target)
    assert f"({ORDERS} 4, {ORDERS} 5, {ORDERS} 6, ...): name a database that has no history" in str(
        caught.value
    )
    with pytest.raises(HistoryError, match="documents of its own"):
        copy(source, source)
    with closing(opened(source)) as documents:
        assert answer(documents, Begin(ORDERS, "new", "g", 1)) == UNKNOWN


def test_what_was_begun_to_one_place_may_be_begun_anew_to_another(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = route.new_source(), route.new_target()
    with closing(opened(source)) as documents:
        fill(documents)
    with killed_at(monkeypatch, 10), pytest.raises(Killed):
        copy(source, target)
    assert inventory(source).moves_to
    copy(source, other := route.new_target())
    with pytest.raises(HistoryError, match="was moved to"):
        copy(source, target)
    with closing(opened(other)) as documents:
        assert answer(documents, LookUp(ORDERS, "7")).entry is Entry.COMPLETED


def test_two_copies_at_once_do_not_undo_what_the_other_has_done(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = route.new_source(), route.new_target()
    with closing(opened(source)) as documents:
        fill(documents)
    calls = itertools.count()

    def second() -> None:
        if next(calls) == 1:
            copy(source, target)

    with (
        meanwhile(monkeypatch, second),
        pytest.raises(HistoryError, match=r"another `mqproto store copy`|was moved"),
    ):
        copy(source, target)
    with closing(opened(target)) as documents:
        assert answer(documents, LookUp(ORDERS, "7")).entry is Entry.COMPLETED


def test_programs_that_may_only_write_go_on_while_their_history_is_copied(
    postgresql: Server, new_sqlite_url: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = postgresql.new_schema()
    schema = source.rpartition("%3D")[2]
    opened(source).close()
    postgresql.execute(
        "CREATE ROLE writer LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO writer",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO writer",
    )
    try:
        with closing(opened(source.replace("mqproto@", "writer@"))) as documents:

            def write() -> None:
                assert answer(documents, finish(1)) is None

            with meanwhile(monkeypatch, write):
                assert copy(source, new_sqlite_url()).documents == 1
            assert "was moved to" in str(answer(documents, finish(2)))
    finally:
        postgresql.execute("DROP OWNED BY writer", "DROP ROLE writer")


def test_a_backup_is_of_one_moment_and_nothing_is_overwritten(
    history_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(moving, "BATCH", BATCH)
    url, made = history_url, tmp_path / "backup" / "history.sqlite"
    with closing(opened(url)) as documents:
        fill(documents)
        assert answer(documents, finish(20)) is None
        assert run_command(["store", "backup", url, str(made)]) == 0
        assert answer(documents, finish(21)) is None
        assert run_command(["store", "check", url]) == 0
    assert made.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out.splitlines() == [
        f"{made}: the document history",
        "gateway/orders: 10 completed",
        "gateway/orders: 1 started",
        "what has ended is kept for 30 days",
        f"{name_of(make_url(url))}: whole",
    ]
    for taken in (made, made.parent):
        with pytest.raises(HistoryError, match="it is there already: name another"):
            back_up(f"sqlite:///{made}", taken)
    with closing(opened(f"sqlite:///{made}")) as documents:
        assert answer(documents, LookUp(ORDERS, "20")).entry is Entry.COMPLETED
        assert answer(documents, LookUp(ORDERS, "21")) == UNKNOWN
    assert run_command(["store", "check", str(made), "--json"]) == 0
    assert run_command(["store", "repair", str(made)]) == 2
    assert "is a document history: check, backup, copy and adopt are for it" in capsys.readouterr().err
    assert [path.name for path in made.parent.iterdir()] == [made.name]


def test_a_history_that_is_hurt_or_not_there_is_not_backed_up(
    new_sqlite_url: Callable[[], str], tmp_path: Path
) -> None:
    url = new_sqlite_url()
    for look in (inventory, partial(back_up, target=tmp_path), partial(copy, target=new_sqlite_url())):
        with pytest.raises(HistoryError, match="no document history is there: name another"):
            look(url)
    assert not Path(path_of(url)).exists()
    with closing(opened(url)) as documents:
        documents.carry_out([finish(number) for number in range(500)])
    with open(path_of(url), "r+b") as file:
        file.seek(file.read().rindex(b"gateway/orders") // 4_096 * 4_096)
        file.write(bytes(4_096))
    assert inventory(url).findings
    with pytest.raises(HistoryError, match="hurt"):
        back_up(url, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_copy_is_typed(new_sqlite_url: Callable[[], str], capsys: pytest.CaptureFixture[str]) -> None:
    source, target = new_sqlite_url(), new_sqlite_url()
    with closing(opened(source)) as documents:
        fill(documents)
    assert run_command(["store", "copy", source, target]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{target}: 9 documents and 4 hooks; start gateways and triggers with --history {target}",
        f"{source}: what it had is kept, and used by nobody any more",
    ]
    assert run_command(["store", "copy", source, target]) == 1
    assert "the history was moved to" in capsys.readouterr().err

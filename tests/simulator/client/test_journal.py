"""A client's journal of its numbered operations: it contains everything that the client's next life must know, and
nothing that belongs to others.
"""

from __future__ import annotations

import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.edge.operations import Pending
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.client.journal import Journal, opened
from mqproto.simulator.node import control
from mqproto.simulator.node.control import ControlFrame, Operation
from tests.memory import memory_folder

SEND = Operation.SEND


def done(journal: Journal, identifier: int, *ordinals: int) -> None:
    journal.end(identifier, ControlFrame(Operation.DONE, 0, control.encode(control.Sent.of(ordinals))))


def begun(identifier: int, parameter: bytes = b"p", tag: bytes = b"") -> tuple[int, int, bytes, bytes]:
    return (identifier, SEND, parameter, tag)


def as_a_kill_leaves_it(path: Path, folder: Path) -> Path:
    """Copy the journal while its process continues, as a kill at this moment would leave it."""
    for name in (path.name, f"{path.name}-wal"):
        (folder / name).write_bytes(path.with_name(name).read_bytes())
    return folder / path.name


def test_what_has_no_outcome_is_there_for_the_next_life(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    with opened(path) as journal:
        invoker = journal.invoker
        assert journal.state() == (0, [])
        journal.begin([begun(0, b"zero"), begun(1, b"one", b"t"), begun(2, b"two")])
        done(journal, 1, 5, 6)
        journal.withdraw(2)
    with opened(path) as journal:
        assert journal.invoker == invoker
        assert journal.state() == (2, [Pending(0, SEND, b"zero")])
        [operated] = journal.operated()
        assert (operated.tag, operated.result().ordinals) == (b"t", [5, 6])
        journal.forget([b"t"])
    with opened(path) as journal:
        assert list(journal.operated()) == []


def test_outcomes_that_were_not_written_yet_are_asked_for_again(tmp_path: Path) -> None:
    """Outcomes need no separate flush: the node remembers them until the next operation begins."""
    path = tmp_path / "a.journal"
    with memory_folder() as folder, opened(path) as journal:
        journal.begin([begun(0, tag=b"t")])
        done(journal, 0, 5)
        copy = as_a_kill_leaves_it(path, Path(folder))
        with opened(copy) as crashed:
            assert crashed.state() == (1, [Pending(0, SEND, b"p")])


@given(data=st.data())
def test_identifiers_go_round_and_numbers_do_not(data: st.DataObject) -> None:
    with memory_folder() as folder:
        path = Path(folder) / "a.journal"
        following, pending = 0, list[int]()
        for _ in range(data.draw(st.integers(1, 6))):
            with opened(path) as journal:
                state = journal.state()
                assert state[0] == following
                assert [each.identifier for each in state[1]] == pending
                for _ in range(data.draw(st.integers(0, 6))):
                    count = data.draw(st.integers(0, 64 - len(pending)))
                    fresh = [(following + each) % 256 for each in range(count)]
                    journal.begin([begun(each) for each in fresh])
                    following = (following + count) % 256
                    pending += fresh
                    for each in data.draw(st.lists(st.sampled_from(pending), unique=True)) if pending else []:
                        done(journal, each, 1)
                        pending.remove(each)


def test_a_full_disk_loses_no_outcome_and_when_there_is_room_the_journal_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    with opened(path) as journal:
        journal.begin([begun(0, tag=b"t"), begun(1)])
        done(journal, 0, 5)
        [(pages,)] = journal._db.execute("PRAGMA page_count")
        journal._db.execute(f"PRAGMA max_page_count = {pages}").close()
        for _ in range(2):
            with pytest.raises(StoreError, match="the disk is full: make room, then do the same again"):
                journal.begin([begun(2, bytes(100_000))])
        journal._db.execute("PRAGMA max_page_count = 1000000").close()
        journal.begin([begun(2, b"two")])
        done(journal, 1)
        [operated] = journal.operated()
        assert operated.result().ordinals == [5]
    with opened(path) as journal:
        assert journal.state() == (3, [Pending(2, SEND, b"two")])


def test_a_commit_that_fails_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    """The process's limit on file size stands in for a disk that has no room for the flush."""
    path = tmp_path / "a.journal"
    with opened(path) as journal:
        journal.begin([begun(0, tag=b"t")])
        done(journal, 0, 5)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, before[1]))
        try:
            for _ in range(2):
                with pytest.raises(StoreError, match="do the same again; nothing is lost") as refused:
                    journal.begin([begun(1, bytes(100_000))])
                assert "node" not in str(refused.value)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        journal.begin([begun(1)])
        assert [each.result().ordinals for each in journal.operated()] == [[5]]


def test_a_journal_has_one_process_at_a_time(tmp_path: Path) -> None:
    again = r"a\.journal: another client has it open: end that one first"
    with (
        opened(tmp_path / "a.journal"),
        pytest.raises(StoreError, match=again),
        opened(tmp_path / "a.journal"),
    ):
        pass
    with opened(tmp_path / "a.journal"):
        pass


def test_a_journal_is_of_one_node(tmp_path: Path) -> None:
    for node in (b"one", b"one"):
        with opened(tmp_path / "a.journal") as journal:
            journal.belongs_to(node, "one")
    other = pytest.raises(UsageError, match="of a client of another node than two")
    with opened(tmp_path / "a.journal") as journal, other:
        journal.belongs_to(b"two", "two")


def test_a_birth_and_all_that_has_an_outcome_are_on_disk_together(tmp_path: Path) -> None:
    """If only the new birth were on disk, a node would repeat operations for which the journal still has no outcome."""
    with opened(tmp_path / "a.journal") as journal:
        journal.begin([begun(0, tag=b"a"), begun(1, tag=b"b"), begun(2)])
        done(journal, 0, 5)
        doubt = control.failure(control.InDoubt("forgotten"))
        journal.belongs_to(b"one", "one", b"birth", {1: doubt})
        with (
            memory_folder() as folder,
            closing(sqlite3.connect(as_a_kill_leaves_it(journal.path, Path(folder)))) as copy,
        ):
            assert copy.execute("SELECT birth FROM invoker").fetchall() == [(b"birth",)]
            assert copy.execute("SELECT number FROM operation WHERE answer IS NULL").fetchall() == [(2,)]
        assert journal.state()[1][0].identifier == 2
        first, second = journal.operated()
        assert first.result().ordinals == [5]
        with pytest.raises(control.InDoubt, match="forgotten"):
            second.result()


def test_a_file_that_is_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (text := tmp_path / "text").write_text("no database" * 99)
    with closing(sqlite3.connect(other := tmp_path / "other")) as db:
        db.execute("CREATE TABLE t (a)")
    with opened(newer := tmp_path / "newer"):
        pass
    with closing(sqlite3.connect(newer)) as db:
        db.execute("PRAGMA user_version = 9").close()
    for path, reason in (
        (text, "it is not a client's journal"),
        (other, "it is not a client's journal"),
        (newer, "it has layout 9"),
        (tmp_path, "it cannot be opened"),
    ):
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(StoreError, match=reason) as refused, opened(path):
            pass
        assert "\n" not in str(refused.value)
        assert not path.is_file() or path.read_bytes() == before

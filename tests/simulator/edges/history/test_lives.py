"""A gateway continues only with a history that has all its ids, or once a person has declared which are missing.

The tests follow the printed advice exactly.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from mqproto.base.errors import UsageError
from mqproto.edge.exactlyonce import Attempt, Entry
from mqproto.simulator.base.log import node_log
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.cli.cli import run_command
from mqproto.simulator.client.journal import HistorySeen, Journal, opened
from mqproto.simulator.edges.gateway.outlet import history_known_to
from mqproto.simulator.edges.history import HistoryError
from mqproto.simulator.edges.history.documents import UNKNOWN, Documents, Finish, LookUp
from mqproto.simulator.edges.history.lives import is_forgotten
from mqproto.simulator.edges.history.moving import adopt
from tests.simulator.edges.history.test_tables import forget_lives, make_earlier
from tests.simulator.running import Log

ORDERS = "gateway/orders"


class AGateway:
    """A gateway's use of its journal and its history when it starts."""

    def __init__(self, folder: Path, name: str = "gateway") -> None:
        self.journal = folder / f"{name}.journal"
        self.log = Log()

    async def starts(self, url: str, key: str = "17") -> Entry:
        """Start the gateway; return what it finds about an id.

        Afterwards, the gateway has accepted a message with that id.
        """
        async with history_known_to(self.journal, url, None, node_log(self.log, "gateway")) as history:
            record = await history.begin(ORDERS, key, "gateway 1")
            await history.finish(ORDERS, key, Attempt.SUCCEEDED, b"its message id")
        with opened(self.journal) as journal:
            journal.belongs_to(bytes(16), "destination")
        return record.entry

    async def is_refused(self, url: str) -> str:
        """Return why the gateway does not start."""
        with pytest.raises(HistoryError) as caught:
            await self.starts(url)
        return str(caught.value)

    @property
    def said(self) -> list[Any]:
        return [line["reason"] for line in self.log.lines("ids-unknown")]


def command_in(trouble: str, verb: str) -> list[str]:
    [typed] = re.findall(rf"mqproto (store {verb} [^;]*)", trouble)
    return shlex.split(typed)


async def test_a_new_gateway_starts_with_whatever_history_there_is(tmp_path: Path, history_url: str) -> None:
    """A gateway that has lost its journal, like a new pod, also starts."""
    assert await AGateway(tmp_path, "first").starts(history_url) is Entry.ABSENT
    assert await AGateway(tmp_path, "second").starts(history_url) is Entry.COMPLETED
    assert await AGateway(tmp_path, "second").starts(history_url) is Entry.COMPLETED


async def test_history_and_journals_of_before_go_on_together(tmp_path: Path, history_url: str) -> None:
    gateways = [AGateway(tmp_path, name) for name in ("first", "second")]
    for gateway in gateways:
        await gateway.starts(history_url)
        forget_lives(gateway.journal)
    make_earlier(history_url)
    for gateway in gateways:
        assert await gateway.starts(history_url) is Entry.COMPLETED
        assert gateway.said == []


async def test_one_that_is_killed_before_its_journal_knows_the_history_starts(
    tmp_path: Path, history_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, earlier = AGateway(tmp_path, "new"), AGateway(tmp_path, "earlier")
    await earlier.starts(history_url)
    forget_lives(earlier.journal)
    make_earlier(history_url)

    def killed(journal: Journal, seen: HistorySeen) -> None:
        raise StoreError("killed")

    for gateway in (new, earlier):
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "saw", killed)
            with pytest.raises(StoreError):
                await gateway.starts(history_url)
        assert await gateway.starts(history_url) is Entry.COMPLETED


async def test_a_history_that_lacks_all_ids_is_refused_and_can_get_them(
    tmp_path: Path, new_sqlite_url: Callable[[], str], history_url: str
) -> None:
    """A refusal creates nothing in the place where the ids are to go."""
    gateway, old = AGateway(tmp_path), new_sqlite_url()
    await gateway.starts(old)
    trouble = await gateway.is_refused(history_url)
    assert f"start it with --history {old}, or first bring them" in trouble
    assert run_command(command_in(trouble, "copy")) == 0
    assert await gateway.starts(history_url) is Entry.COMPLETED


async def test_somebody_says_once_that_all_ids_are_lost(
    tmp_path: Path, new_sqlite_url: Callable[[], str], history_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """After that, all gateways that had these ids start, and report the loss; no other gateways start."""
    gateways, stranger = [AGateway(tmp_path, name) for name in ("a", "b")], AGateway(tmp_path, "c")
    lost, another = new_sqlite_url(), new_sqlite_url()
    for gateway in gateways:
        await gateway.starts(lost)
    await stranger.starts(another)
    assert run_command(command_in(await gateways[0].is_refused(history_url), "adopt")) == 0
    lacks = "ids of before are unknown: what has one of them is processed again when it is handed in again"
    assert capsys.readouterr().out == f"{history_url}: {lacks}\n".replace("%2F", "/")
    for found, gateway in zip((Entry.ABSENT, Entry.COMPLETED), gateways, strict=True):
        assert await gateway.starts(history_url) is found
        assert await gateway.starts(history_url) is Entry.COMPLETED
        assert gateway.said == [lacks]
    trouble = await stranger.is_refused(history_url)
    assert "copy" not in trouble  # It has documents.
    assert run_command(command_in(trouble, "adopt")) == 0
    for gateway in (*gateways, stranger):
        assert await gateway.starts(history_url) is Entry.COMPLETED


async def test_a_journal_of_before_needs_the_history_of_before(tmp_path: Path, history_url: str) -> None:
    """A gateway with a journal from an earlier version behaves like one whose history was moved by hand."""
    gateway = AGateway(tmp_path)
    await gateway.starts(f"sqlite:///{tmp_path}/history.sqlite")
    forget_lives(gateway.journal)
    trouble = await gateway.is_refused(history_url)
    assert "put back what was there" in trouble
    assert run_command(command_in(trouble, "adopt")) == 0
    assert await gateway.starts(history_url) is Entry.ABSENT


async def test_a_history_that_was_put_back_is_refused_until_somebody_says_what_it_lacks(
    tmp_path: Path, history_url: str
) -> None:
    first, second = AGateway(tmp_path, "first"), AGateway(tmp_path, "second")
    with closing(Documents(history_url, None, lambda: 1_000_000.0)) as documents:
        documents.carry_out([Finish(ORDERS, "16", 0, Entry.COMPLETED, b"")])
    engine = create_engine(history_url)
    with engine.begin() as db:
        kept = dict(db.execute(text("SELECT now_s FROM document_history_layout")).mappings().one())
    for gateway in (first, second):
        await gateway.starts(history_url)
    with engine.begin() as db:  # As the backup has it.
        db.execute(text("DELETE FROM document_history WHERE key <> '16'"))
        db.execute(text("UPDATE document_history_layout SET now_s = :now_s"), kept)
    engine.dispose()
    trouble = await first.is_refused(history_url)
    assert "it was put back, and lacks the newest ids" in trouble
    assert await first.is_refused(history_url) == await second.is_refused(history_url) == trouble
    assert run_command(command_in(trouble, "adopt")) == 0
    assert await first.starts(history_url) is Entry.ABSENT
    assert await second.starts(history_url) is Entry.COMPLETED
    for gateway in (first, second):
        assert [reason[:38] for reason in gateway.said] == ["ids since 1970-01-12 13:46:40 UTC are "]


async def test_it_stays_the_same_when_it_moves(
    tmp_path: Path, new_sqlite_url: Callable[[], str], history_url: str
) -> None:
    gateway, old = AGateway(tmp_path), new_sqlite_url()
    await gateway.starts(old)
    assert run_command(["store", "copy", old, history_url]) == 0
    assert await gateway.starts(history_url) is Entry.COMPLETED
    assert await gateway.starts(history_url) is Entry.COMPLETED
    assert "was moved to" in await gateway.is_refused(old)


def test_a_program_that_has_it_open_does_not_go_on_when_it_is_put_back(history_url: str) -> None:
    passed_s = [0.0]
    with closing(Documents(history_url, None, lambda: 0.0, lambda: passed_s[0])) as documents:
        for passed_s[0] in (5.0, 10.0):
            assert documents.carry_out([LookUp(ORDERS, "17")]) == [UNKNOWN]
        engine = create_engine(history_url)
        with engine.begin() as db:
            db.execute(text("UPDATE document_history_layout SET now_s = 2"))
        engine.dispose()
        for passed_s[0] in (15.0, 20.0):
            [error] = documents.carry_out([LookUp(ORDERS, "17")])
            assert isinstance(error, HistoryError)
            assert "put back while it was used" in str(error)
    with closing(Documents(history_url, None, lambda: 0.0)) as documents:
        assert documents.seen.now_s < 5.0


@pytest.mark.parametrize(
    ("earlier", "later", "forgotten"),
    [
        ("life 5.000 1", "life 100 5.000", True),
        ("life 5.000 1", "life 100 -50", False),
        ("life 5.000 1", "other 100 50", False),
        ("life 5.000 1", "life 5.000 100", False),
        ("life 9.000 1", "life 5.000 100", False),
        ("life 5.000 1", "life 1e999 nan", False),
        ("life 5.000 1", "life x y", False),
        ("life 5.000 1", "life", False),
        ("", "life 100 50", False),
        ("", "", False),
    ],
)
def test_an_earlier_message_is_forgotten_by_its_own_history_alone(
    earlier: str, later: str, forgotten: bool
) -> None:
    assert is_forgotten(earlier, later) is forgotten


def test_what_is_typed_wrong_is_said(history_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        UsageError, match="'no life' is not a life: type the command as the gateway has said it"
    ):
        adopt(history_url, "no life")
    for command in (["a.sqlite", "earlier"], [history_url, "earlier", "--moved"]):
        assert run_command(["store", "adopt", *command]) == 2
        assert "a LIFE is of a document history" in capsys.readouterr().err

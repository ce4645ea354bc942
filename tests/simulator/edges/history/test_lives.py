"""A gateway continues only with a shared history that has all ids that it had when the gateway last saw it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from sqlalchemy import create_engine, text

from mqproto.simulator.cli.cli import run_command
from mqproto.simulator.edges.history import HistoryError
from mqproto.simulator.edges.history.documents import UNKNOWN, Documents, LookUp
from mqproto.simulator.edges.history.lives import LIFE_DIGITS, HistorySeen, is_forgotten

ORDERS = "gateway/orders"


def seen_in(url: str, seen: HistorySeen | None = None) -> HistorySeen:
    """Open a history as a gateway does that has seen it before; return what it sees now."""
    with closing(Documents(url, None, seen=seen)) as documents:
        documents.carry_out([LookUp(ORDERS, "17")])
        return documents.seen


def test_a_history_that_was_seen_is_known_again_by_what_fits_into_a_counter(history_url: str) -> None:
    seen = seen_in(history_url, HistorySeen("", 0.0))
    assert seen_in(history_url, seen._replace(life=seen.life[:LIFE_DIGITS])).life == seen.life


def test_another_history_is_refused(history_url: str) -> None:
    with pytest.raises(HistoryError, match="it does not have the ids of this gateway"):
        seen_in(history_url, HistorySeen("f" * LIFE_DIGITS, 0.0))


def test_a_history_that_was_put_back_is_refused(history_url: str) -> None:
    seen = seen_in(history_url)
    with pytest.raises(HistoryError, match="it was put back, and lacks the newest ids"):
        seen_in(history_url, seen._replace(now_s=seen.now_s + 100))


def test_it_stays_the_same_when_it_moves(new_sqlite_url: Callable[[], str], history_url: str) -> None:
    old = new_sqlite_url()
    seen = seen_in(old)
    assert run_command(["store", "copy", old, history_url]) == 0
    assert seen_in(history_url, seen).life == seen.life
    with pytest.raises(HistoryError, match="was moved to"):
        seen_in(old, seen)


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

"""A history made by an earlier mqproto continues in the current layout, with everything in it."""

from __future__ import annotations

from contextlib import closing

import pytest
from sqlalchemy import create_engine, text

from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.edges.history.documents import UNKNOWN, Documents, Finish, LookUp, Record
from mqproto.simulator.edges.history.forgetting import LEAP_S
from mqproto.simulator.edges.history.tables import KEEP_S, LAYOUT
from tests.simulator.edges.history.test_documents import at_once

ORDERS = "gateway/orders"


def make_earlier(url: str, since_s: float = 0.0) -> None:
    """Give a history the earlier layout 2, in which ids age by dates; `since_s` is its column of this name."""
    engine = create_engine(url)
    with engine.begin() as db:
        db.execute(text("DROP INDEX document_history_age"))
        for table in ("document_history", "document_history_hook"):
            db.execute(text(f"ALTER TABLE {table} DROP COLUMN aged_s"))
        db.execute(text("ALTER TABLE document_history DROP COLUMN origin"))
        db.execute(text("CREATE INDEX document_history_age ON document_history (changed_s)"))
        for name in ("now_s", "life", "lives_before", "lacks"):
            db.execute(text(f"ALTER TABLE document_history_layout DROP COLUMN {name}"))
        db.execute(
            text("UPDATE document_history_layout SET layout = 2, since_s = :since_s"), {"since_s": since_s}
        )
    engine.dispose()


@pytest.mark.long
def test_a_history_of_layout_2_goes_on_and_all_that_it_has_counts_as_new(history_url: str) -> None:
    """The dates in a history of layout 2 come from an unknown clock."""
    passed_s = 0.0

    def opened() -> Documents:
        return Documents(history_url, None, lambda: 9e9, lambda: passed_s)

    with closing(opened()) as documents:
        documents.carry_out([Finish(ORDERS, "17", 0, Entry.COMPLETED, b"")])
    make_earlier(history_url)
    with closing(opened()) as documents:
        for _ in range(int(KEEP_S / LEAP_S)):
            assert documents.carry_out([LookUp(ORDERS, "17")]) != [UNKNOWN]
            passed_s += LEAP_S
        documents.carry_out([LookUp(ORDERS, "17")])
        assert documents.carry_out([LookUp(ORDERS, "17")]) == [UNKNOWN]


def test_a_history_of_layout_2_becomes_one_of_this_once(history_url: str) -> None:
    with closing(Documents(history_url, 100, lambda: 100.0)) as documents:
        documents.carry_out([Finish(ORDERS, "17", 0, Entry.COMPLETED, b"its message id")])
    make_earlier(history_url)

    def opened() -> float:
        with closing(Documents(history_url, None, lambda: 200.0)) as documents:
            found = documents.carry_out([LookUp(ORDERS, "17")])
            assert found == [Record(Entry.COMPLETED, "", 1, b"its message id")]
            assert documents.forgotten() == (0, 0.0)
            return documents.keep_s

    assert at_once(opened) == [100] * 4
    engine = create_engine(history_url)
    with engine.begin() as db:
        assert db.execute(text("SELECT layout FROM document_history_layout")).scalars().all() == [LAYOUT]
    engine.dispose()

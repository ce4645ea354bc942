"""A history that an earlier mqproto has made goes on as one of this layout, with all that is in it."""

from __future__ import annotations

from contextlib import closing

from sqlalchemy import create_engine, text

from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.edges.history.documents import Documents, Finish, Look, Record
from mqproto.simulator.edges.history.tables import KEEP_S, LAYOUT
from tests.simulator.edges.history.test_documents import at_once

ORDERS = "gateway/orders"


def make_earlier(url: str) -> None:
    """Have a history as mqproto 0.5 made it: its layout is 1 and nothing else is said of it."""
    engine = create_engine(url)
    with engine.begin() as db:
        db.execute(text("DROP TABLE document_history_layout"))
        db.execute(text("CREATE TABLE document_history_layout (layout INTEGER NOT NULL)"))
        db.execute(text("INSERT INTO document_history_layout VALUES (1)"))
    engine.dispose()


def test_a_history_of_layout_1_becomes_one_of_this_once(history_url: str) -> None:
    with closing(Documents(history_url, 1, lambda: 100.0)) as documents:
        documents.carry_out([Finish(ORDERS, "17", 0, Entry.COMPLETED, b"its message id")])
    make_earlier(history_url)

    def opened() -> tuple[float, float]:
        with closing(Documents(history_url, None, lambda: 200.0)) as documents:
            found = documents.carry_out([Look(ORDERS, "17")])
            assert found == [Record(Entry.COMPLETED, "", 1, b"its message id")]
            assert documents.forgotten() == (0, 0.0)
            return documents.keep_s, documents.since_s

    assert at_once(opened) == [(KEEP_S, 200.0)] * 4
    with closing(Documents(history_url, None, lambda: 300.0)) as documents:
        assert (documents.keep_s, documents.since_s) == (KEEP_S, 200.0)
    engine = create_engine(history_url)
    with engine.begin() as db:
        assert db.execute(text("SELECT layout FROM document_history_layout")).scalars().all() == [LAYOUT]
    engine.dispose()


def test_a_new_history_never_had_ids_without_producers(history_url: str) -> None:
    with closing(Documents(history_url, None, lambda: 100.0)) as documents:
        assert (documents.keep_s, documents.since_s) == (KEEP_S, 0.0)

"""Databases by URL: which are refused, and the message for one that is not available. No line shows a password."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.simulator.edges.history.databases import engine_for, name_of, parsed
from mqproto.simulator.edges.history.documents import Documents
from mqproto.simulator.edges.history.errors import HistoryError
from mqproto.simulator.storage import Store
from mqproto.turn.effects import Writes
from mqproto.wire.guid import Guid
from tests.databases import GUARDED, Server

SECRET = "s3cr:t/@"
ESCAPED = "s3cr%3At%2F%40"


def refusal(url: str) -> MqprotoError:
    with pytest.raises(MqprotoError) as refused:
        Documents(url, 1, lambda: 0, lambda: 0).close()
    assert "\n" not in str(refused.value)
    assert SECRET not in str(refused.value)
    assert ESCAPED not in str(refused.value)
    return refused.value


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (ESCAPED, "no URL of a database: it is sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE"),
        (f"postgresql://u:{ESCAPED}@host:port/db", "no URL of a database: it is sqlite:///PATH or "),
        (
            f"mysql://u:{ESCAPED}@host/db",
            "no document history is kept in mysql: its URL is sqlite:///PATH or ",
        ),
        (
            f"postgresql+pg8000://u:{ESCAPED}@host/db",
            "no document history is kept in postgresql+pg8000: its URL",
        ),
        ("sqlite://", "an SQLite history is a file on this machine: sqlite:///PATH"),
        ("sqlite:///:memory:", "an SQLite history is a file on this machine: sqlite:///PATH"),
        ("sqlite:///file:a?mode=memory&uri=true", "an SQLite history is a file on this machine"),
        ("sqlite://host/a", "an SQLite history is a file on this machine"),
    ],
)
def test_what_is_no_url_of_a_database_is_refused(url: str, message: str) -> None:
    refused = refusal(url)
    assert isinstance(refused, UsageError)
    assert str(refused).startswith(message)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:////var/lib/a.sqlite", "/var/lib/a.sqlite"),
        (f"postgresql://u:{ESCAPED}@host:5433/db", "postgresql+psycopg://u:***@host:5433/db"),
        (
            f"postgresql://u@/db?password={ESCAPED}&host=/run/postgresql",
            "postgresql+psycopg://u@/db?host=/run/postgresql",
        ),
    ],
)
def test_a_database_is_named_without_its_password(url: str, name: str) -> None:
    assert name_of(parsed(url)) == name


def test_without_psycopg_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match=r"PostgreSQL needs psycopg: pip install 'mqproto\[postgresql\]'"):
        engine_for(make_url("postgresql+psycopg://u@host/db"))


# SQLite


def test_an_sqlite_file_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    assert str(refusal(f"sqlite:///{tmp_path / 'nowhere' / 'a'}")) == (
        f"{tmp_path}/nowhere/a: it cannot be opened: is its folder there, and may this user write to it?"
    )
    assert "it cannot be opened" in str(refusal(f"sqlite:///{tmp_path}"))


def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    text, other, store = (tmp_path / name for name in ("text", "other", "store"))
    text.write_text("This is not a database, and it is long enough to look at. " * 50)
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE precious (x)")
    with Store(store, Guid(bytes(16))) as node_store:
        node_store.commit(Writes(counters={"a": 1}))
    for path in (text, other, store):
        before = path.read_bytes()
        refused = refusal(f"sqlite:///{path}")
        assert isinstance(refused, HistoryError)
        assert str(refused) == f"{path}: it is not a document history: name another file"
        assert path.read_bytes() == before


def test_an_sqlite_file_is_flushed_at_each_commit(new_sqlite_url: Callable[[], str]) -> None:
    """In WAL mode, NORMAL would flush only at a checkpoint."""
    engine = engine_for(make_url(new_sqlite_url()))
    with engine.begin() as db:
        assert db.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert db.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    engine.dispose()


# PostgreSQL


@pytest.mark.parametrize(
    ("asked", "given"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
)
def test_a_server_answers_a_commit_when_it_is_on_disk(postgresql: Server, asked: str, given: str) -> None:
    engine = engine_for(make_url(postgresql.url(more=f"&options=-csynchronous_commit%3D{asked}")))
    with engine.begin() as db:
        assert db.exec_driver_sql("SHOW synchronous_commit").scalar() == given
        assert db.exec_driver_sql("SHOW statement_timeout").scalar() == "10s"
        assert db.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"
    engine.dispose()


def test_a_server_that_does_not_let_us_in_is_told(postgresql: Server) -> None:
    postgresql.execute(f"CREATE ROLE {GUARDED} LOGIN PASSWORD 'another'")
    try:
        with_password = postgresql.url(user=f"{GUARDED}:{ESCAPED}")
        for url, reason in [
            (with_password, 'password authentication failed for user "guarded"'),
            (with_password.replace("/postgres", "/nothing"), "password authentication failed"),
            (postgresql.url(user=GUARDED), "fe_sendauth: no password supplied"),
            (postgresql.url("nothing"), 'database "nothing" does not exist'),
            (postgresql.url(more=f"&pasword={ESCAPED}"), 'invalid connection option "pasword"'),
            (postgresql.url(more="&sslmode=perhaps"), 'invalid sslmode value: "perhaps"'),
            (f"postgresql://u:{ESCAPED}@127.0.0.1:1/db", "Connection refused"),
        ]:
            refused = str(refusal(url))
            assert reason in refused
            assert refused.endswith("): see that the server runs, and that the URL is right")
    finally:
        postgresql.execute(f"DROP ROLE {GUARDED}")


def test_a_password_in_the_file_that_pgpassfile_names_lets_us_in(
    postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgresql.execute(f"CREATE ROLE {GUARDED} LOGIN PASSWORD 'secret'")
    try:
        file = tmp_path / "passwords"
        file.write_text(f"*:*:*:{GUARDED}:secret\n", "utf-8")
        file.chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(file))
        engine = engine_for(make_url(postgresql.url(user=GUARDED)))
        with engine.begin() as db:
            assert db.exec_driver_sql("SELECT current_user").scalar() == GUARDED
        engine.dispose()
    finally:
        postgresql.execute(f"DROP ROLE {GUARDED}")


def test_a_place_where_nothing_can_be_made_is_told(postgresql: Server) -> None:
    postgresql.execute("CREATE ROLE weak LOGIN")
    try:
        for url, reason in [
            (
                postgresql.url(user="weak"),
                "this user may not do that: grant it the tables, and CREATE where ",
            ),
            (postgresql.url(more="&options=-csearch_path%3Dnowhere"), "no schema to make its tables in: "),
            (
                postgresql.url(more="&options=-cdefault_transaction_read_only%3Don"),
                "it is read-only: name the server",
            ),
        ]:
            assert reason in str(refusal(url))
    finally:
        postgresql.execute("DROP ROLE weak")


def test_who_may_use_the_tables_need_not_be_one_who_may_make_them(postgresql: Server) -> None:
    url = postgresql.new_schema()
    schema = url.rpartition("%3D")[2]
    Documents(url, 1, lambda: 0, lambda: 0).close()
    postgresql.execute(
        "CREATE ROLE modest LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO modest",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO modest",
    )
    try:
        Documents(url.replace("mqproto@", "modest@"), 1, lambda: 0, lambda: 0).close()
    finally:
        postgresql.execute("DROP OWNED BY modest", "DROP ROLE modest")

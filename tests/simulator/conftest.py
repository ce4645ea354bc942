"""Settings for tests of the simulator: output as if to a pipe, a clock that is independent of the machine's load, and
databases.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any, Final

import pytest
import trio.testing

from mqproto.simulator.topology import Topology, load
from tests.databases import Server, running_server
from tests.memory import memory_folder


@pytest.fixture(autouse=True)
def no_width_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some programs that run tests set COLUMNS, which would fold our lines."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def topology() -> Topology:
    """Three nodes in a chain. Modules with another topology define their own."""
    return load("three-node").with_free_ports()


IDLE_S: Final = 0.1
"""A silence of this many seconds shows that nothing is under way; on a busy machine the loopback may take 10 ms."""


@pytest.fixture
def idle_clock(monkeypatch: pytest.MonkeyPatch) -> trio.testing.MockClock:
    """A clock for tests that use sockets within this process: time passes only while both sides wait.

    So a busy machine delays nothing, and no test sleeps. Bytes on the loopback arrive as soon as they are sent; a
    moment in which none arrive means that nothing is under way. Work in a thread, such as flushing a journal, counts as
    under way; trio's own clock would not know about it, and would jump.
    """
    clock = trio.testing.MockClock(autojump_threshold=IDLE_S)
    run_sync = trio.to_thread.run_sync
    threads = 0

    async def in_a_thread(*args: Any, **options: Any) -> Any:
        nonlocal threads
        threads += 1
        clock.autojump_threshold = inf
        try:
            return await run_sync(*args, **options)
        finally:
            threads -= 1
            clock.autojump_threshold = inf if threads else IDLE_S

    monkeypatch.setattr(trio.to_thread, "run_sync", in_a_thread)
    return clock


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A running PostgreSQL server. A test that stops the server also starts it again."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def new_sqlite_url() -> Iterator[Callable[[], str]]:
    """A function that makes URLs of SQLite files that do not exist yet."""
    with memory_folder() as folder:
        numbers = itertools.count(1)
        yield lambda: f"sqlite:///{Path(folder) / f'{next(numbers)}.sqlite'}"


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def new_history_url(request: pytest.FixtureRequest) -> Callable[[], str]:
    """A function that makes URLs of empty databases for document histories.

    A test that asks for it runs once for each kind of database.
    """
    if request.param == "sqlite":
        make: Callable[[], str] = request.getfixturevalue("new_sqlite_url")
        return make
    server: Server = request.getfixturevalue("postgresql")
    return server.new_schema


@pytest.fixture
def history_url(new_history_url: Callable[[], str]) -> str:
    """The URL of an empty database. A test that asks for it runs on SQLite and on PostgreSQL."""
    return new_history_url()


@pytest.fixture
def forked_programs() -> Iterator[None]:
    """Speeds up tests of killed nodes, gateways and triggers, which are not about the start of an interpreter."""
    from tests.simulator import typed

    with typed.forked_programs():
        yield

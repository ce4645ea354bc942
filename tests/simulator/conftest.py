"""What tests of the simulator get: output as in a pipe, however they are run, a clock that no load disturbs, and
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
    """Some runners of tests set COLUMNS, which would fold our lines."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def topology() -> Topology:
    """Three nodes in a chain. Modules with another topology have their own."""
    return load("three-node").with_free_ports()


IDLE_S: Final = 0.1
"""On a machine that is busy the loopback may take 10 ms."""


@pytest.fixture
def idle_clock(monkeypatch: pytest.MonkeyPatch) -> trio.testing.MockClock:
    """For tests that talk over sockets within this process: time passes only while both sides wait.

    So a busy machine makes nobody late, and no test sleeps. Bytes on the loopback are there as soon as they are sent;
    a moment without any means that nothing is under way. What a thread does, such as to flush a journal, is under way:
    trio's clock would not know of it, and jump.
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
    """A PostgreSQL server that runs. A test that stops it starts it again."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def new_sqlite_url() -> Iterator[Callable[[], str]]:
    """Makes URLs of SQLite files that are not there yet."""
    with memory_folder() as folder:
        numbers = itertools.count(1)
        yield lambda: f"sqlite:///{Path(folder) / f'{next(numbers)}.sqlite'}"


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def new_history_url(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes URLs of empty databases, for whatever keeps a document history: a test that asks runs on each kind."""
    if request.param == "sqlite":
        make: Callable[[], str] = request.getfixturevalue("new_sqlite_url")
        return make
    server: Server = request.getfixturevalue("postgresql")
    return server.new_schema


@pytest.fixture
def history_url(new_history_url: Callable[[], str]) -> str:
    """The URL of an empty database: a test that asks for it runs on SQLite, and on PostgreSQL."""
    return new_history_url()


@pytest.fixture
def forked_programs() -> Iterator[None]:
    """For tests of what nodes, gateways and triggers do when they are killed, not of how their interpreter starts."""
    from tests.simulator import typed

    with typed.forked_programs():
        yield

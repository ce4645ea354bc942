"""Fixtures for tests of benchmarks. The simulator's tests use some of them, too."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from mqproto.simulator.rig.supervisor import Supervisor
from mqproto.simulator.topology import Topology
from tests.bench.load import row
from tests.simulator.conftest import forked_programs, no_width_from_outside
from tests.simulator.running import running

__all__ = ["forked_programs", "no_width_from_outside"]


@pytest.fixture
def nodes_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run rows of nodes in this process, where they start immediately.

    All their costs then count as this process's.
    """

    @asynccontextmanager
    async def supervised(topology: Topology, folder: Path) -> AsyncIterator[SimpleNamespace]:
        this = SimpleNamespace(pid=os.getpid(), cpu_s=time.process_time)
        async with AsyncExitStack() as stack:
            for name in topology.nodes:
                await stack.enter_async_context(running(topology, name, folder))
            yield SimpleNamespace(running=dict.fromkeys(topology.nodes, this))

    monkeypatch.setattr(row, "supervised", supervised)


@pytest.fixture
def short_lives(forked_programs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start nodes immediately, as forks, and kill them at the end; how they stop is not tested here."""
    monkeypatch.setattr(Supervisor, "stop", Supervisor.kill)

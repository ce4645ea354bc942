"""What tests of the simulator get: output as in a pipe, however they are run, and a clock that no load disturbs."""

from __future__ import annotations

import pytest
import trio.testing


@pytest.fixture(autouse=True)
def no_width_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some runners of tests set COLUMNS, which would fold our lines."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def idle_clock() -> trio.testing.MockClock:
    """For whoever talks over sockets within this process: time passes only while both sides wait.

    So a busy machine makes nobody late, and no test sleeps. Bytes on the loopback are there as soon as they are sent;
    a moment without any means that nothing is under way.
    """
    return trio.testing.MockClock(autojump_threshold=0.01)

"""A clock for tests whose peer lives in the same process."""

from __future__ import annotations

import pytest
import trio.testing


@pytest.fixture
def idle_clock() -> trio.testing.MockClock:
    """Time that passes only while both sides wait: a busy machine makes no peer late, and no test sleeps.

    Bytes on the loopback are there as soon as they are sent, so for a moment without any nothing is under way.
    """
    return trio.testing.MockClock(autojump_threshold=0.01)

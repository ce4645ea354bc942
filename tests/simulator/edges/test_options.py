"""Delays grow up to their limit, and are the same for the same message."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.simulator.edges.options import Retries


def test_each_delay_is_longer_than_the_one_before_up_to_the_limit() -> None:
    retries = Retries(interval_s=1, factor=2, limit_s=10)
    assert [retries.delay_s(attempt, "") for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@given(
    interval_s=st.floats(0, 86_400),
    factor=st.floats(1, 100),
    limit_s=st.floats(0, 86_400),
    jitter=st.floats(0, 1),
    attempt=st.integers(1, 10**9),
    message=st.text(),
)
def test_a_delay_is_within_its_limits_and_the_same_again(
    interval_s: float, factor: float, limit_s: float, jitter: float, attempt: int, message: str
) -> None:
    steady = Retries(interval_s=interval_s, factor=factor, limit_s=limit_s)
    retries = Retries(interval_s=interval_s, factor=factor, limit_s=limit_s, jitter=jitter)
    whole_s = steady.delay_s(attempt, message)
    assert whole_s <= limit_s
    assert (1 - jitter) * whole_s <= retries.delay_s(attempt, message) <= whole_s
    assert retries.delay_s(attempt, message) == retries.delay_s(attempt, message)


def test_messages_that_fail_at_one_time_come_back_at_several() -> None:
    retries = Retries(interval_s=10, jitter=0.5)
    assert len({retries.delay_s(1, str(number)) for number in range(10)}) == 10


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"interval_s": -1}, "interval -1: must be 0 to 86,400"),
        ({"factor": 0.5}, "factor 0.5: must be 1 to 100"),
        ({"limit_s": math.inf}, "limit inf: must be 0 to 86,400"),
        ({"attempts": 0}, "attempts 0: must be 1 to 1,000,000"),
        ({"jitter": math.nan}, "jitter nan: must be 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}$"):
        Retries(**values)

"""Counts of durations, grouped by length."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.durations import BOUNDS_S, Durations


@given(st.lists(st.floats(0, 10) | st.sampled_from(BOUNDS_S)))
def test_each_bound_has_all_that_took_no_longer(took_s: list[float]) -> None:
    durations = Durations()
    for each in took_s:
        durations.add(each)
    assert durations.count == len(took_s)
    # From Python 3.12 on `sum` keeps what adding one float after the other loses.
    assert durations.total_s == pytest.approx(sum(took_s))
    assert durations.within == [(bound, sum(each <= bound for each in took_s)) for bound in BOUNDS_S]


@given(st.floats(0, 10), st.integers(1, 1_000))
def test_what_took_equally_long_is_counted_at_once(took_s: float, count: int) -> None:
    durations = Durations((1.0, 5.0))
    durations.add(took_s, count)
    assert durations.count == count
    assert durations.total_s == took_s * count
    assert durations.within == [(1.0, count * (took_s <= 1)), (5.0, count * (took_s <= 5))]

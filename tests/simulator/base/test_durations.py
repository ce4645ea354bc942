"""How long something takes, counted by size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.base.durations import BOUNDS_S, Durations


@given(st.lists(st.floats(0, 10) | st.sampled_from(BOUNDS_S)))
def test_each_bound_has_all_that_took_no_longer(took_s: list[float]) -> None:
    durations = Durations()
    for each in took_s:
        durations.add(each)
    assert durations.count == len(took_s)
    assert durations.total_s == sum(took_s)
    assert durations.within == [(bound, sum(each <= bound for each in took_s)) for bound in BOUNDS_S]

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.figures import BenchError
from tests.bench.measures import outage
from tests.bench.measures.outage import bench_outage, silences_after


@given(
    steps=st.lists(st.integers(1, 20), min_size=20, max_size=60),
    kills=st.lists(st.integers(0, 18), min_size=1, max_size=3, unique=True),
)
def test_between_two_kills_no_silence_is_longer_than_the_one_that_is_told(
    steps: list[int], kills: list[int]
) -> None:
    arrivals, at = [], 0
    for step in steps:
        at += step
        arrivals.append(float(at))
    killed = sorted(arrivals[number] + 0.5 for number in kills)
    for start, end, silence in zip(
        killed, [*killed[1:], arrivals[-1]], silences_after(arrivals, killed), strict=True
    ):
        within = arrivals[bisect_right(arrivals, start) - 1 : bisect_right(arrivals, end)]
        assert silence.began_s in within
        assert within[within.index(silence.began_s) + 1] == silence.ended_s
        assert all(later - earlier <= silence.lasted_s for earlier, later in pairwise(within))


def test_messages_that_had_passed_the_node_before_do_not_end_the_silence() -> None:
    arrivals = [0.0, 0.9, 1.1, 1.2, 3.0, 3.1]
    [silence] = silences_after(arrivals, [1.0])
    assert silence == (1.2, 3.0)


@pytest.mark.parametrize("arrivals", [[], [0.5], [2.0, 3.0]])
def test_a_kill_without_messages_before_and_after_it_says_nothing(arrivals: list[float]) -> None:
    with pytest.raises(BenchError, match="longer intervals"):
        silences_after(arrivals, [1.0])


async def test_messages_flow_again_after_the_intermediate_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "WARM_UP_MESSAGES", 10)
    result = await bench_outage(kills=1, per_s=50, interval_s=1.5)
    silence, since_spawned = result.figures
    assert len(silence.values) == len(since_spawned.values) == 1
    # It takes a while to start a process, in which nothing can come.
    assert silence.minimum > 0.05
    assert since_spawned.minimum > 0
    assert result.broken == []

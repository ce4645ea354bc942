from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from tests.bench import outage
from tests.bench.figures import BenchError, Options
from tests.bench.outage import silences_after


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
        assert silence in list(pairwise(within))
        assert all(later - earlier <= silence.lasted_s for earlier, later in pairwise(within))


def test_messages_that_had_passed_the_node_before_do_not_end_the_silence() -> None:
    [silence] = silences_after([0.0, 0.9, 1.1, 1.2, 3.0, 3.1], [1.0])
    assert silence == (1.2, 3.0)


@pytest.mark.parametrize("arrivals", [[], [0.5], [2.0, 3.0]])
def test_a_kill_without_messages_before_and_after_it_says_nothing(arrivals: list[float]) -> None:
    with pytest.raises(BenchError, match="longer intervals"):
        silences_after(arrivals, [1.0])


@pytest.mark.usefixtures("short_lives")
async def test_messages_flow_again_after_the_intermediate_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "WARM_UP_MESSAGES", 10)
    monkeypatch.setattr(outage, "SLICE", 10)
    monkeypatch.setattr(outage, "INTERVAL_S", 0.2)
    result = await outage.measure(Options(rounds=1), lambda text: None)
    [silence_s], [since_spawned_s] = (figure.values for figure in result.figures)
    assert 0 < since_spawned_s < silence_s + 1
    assert result.broken == []

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, strategies as st

from tests.bench.figures import Options
from tests.bench.growth import Costs, Plan, growth, growth_of, measure, within

costs = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=8)


@given(costs)
def test_growth_is_the_most_by_which_one_costs_more_than_an_earlier_one(values: list[float]) -> None:
    pairs = [later / earlier for earlier, later in combinations(values, 2)]
    assert growth_of(values) == pytest.approx(max([1.0, *pairs]))
    assert growth_of(sorted(values, reverse=True)) == 1


def test_the_growth_of_a_series_is_that_of_each_round() -> None:
    series: Costs = {1: (10.0, 20.0), 10: (20.0, 10.0), 100: (30.0, 40.0)}
    assert growth(series) == (3.0, 4.0)
    assert growth(within(series, 1, 10)) == (2.0, 1.0)
    assert growth({1: (), 10: ()}) == ()


@pytest.mark.usefixtures("nodes_here", "short_lives")
async def test_a_message_has_a_cost_at_every_point_of_every_series() -> None:
    plan = Plan(sizes=(10, 100_000), queues=(20,), sessions=(3,), nodes=(2, 3), messages=40)
    result = await measure(Options(rounds=1), lambda text: None, plan)
    figures = {figure.name: figure.values for figure in result.figures}
    points = ("bytes: 10", "bytes: 100,000", "queues: 20", "sessions into one node: 3", "nodes in a row: 3")
    assert all(len(figures[name]) == 1 and min(figures[name]) > 0 for name in points)
    assert min(figures["growth per message and node, by nodes"]) >= 1

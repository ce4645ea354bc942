"""Durations in buckets: the values read from them are those that sorting would give, within a bucket."""

from __future__ import annotations

import math

import duckdb
from hypothesis import given, strategies as st

from mqproto.captures.pipeline.report.counts.asking import MACROS, spreads
from mqproto.captures.pipeline.report.facts.spread import Spread

# Powers of two and what is next to them, as buckets begin there.
EDGES = st.builds(
    lambda power, off: max(0, min((1 << power) + off, 2**63 - 1)), st.integers(0, 63), st.integers(-2, 2)
)
DURATIONS = st.one_of(EDGES, st.integers(0, 2**63 - 1), st.integers(0, 10**10))


CONNECTION = duckdb.connect()
CONNECTION.execute(MACROS)


def spread_of(values: list[int]) -> Spread:
    """Return a spread as DuckDB counts it."""
    took = "select 7 as thing, unnest($values::bigint[]) as took_ns"
    return spreads(CONNECTION, took, values=values).get(7, Spread())


@given(st.lists(DURATIONS, max_size=80))
def test_every_duration_lies_in_the_bar_that_counts_it(values: list[int]) -> None:
    spread = spread_of(values)
    bars = spread.bars()
    assert spread.count == len(values) == sum(count for _, _, count in bars)
    for low, high, count in bars:
        assert count == sum(low <= value < high for value in values)
        assert high - low <= max(1, low / 8)


@given(st.lists(DURATIONS, min_size=1, max_size=50), st.floats(0, 1))
def test_a_quantile_is_that_of_the_sorted_durations_within_a_bucket(values: list[int], share: float) -> None:
    spread = spread_of(values)
    exact = sorted(values)[max(0, min(len(values), math.ceil(share * len(values))) - 1)]
    found = spread.quantile(share)
    assert abs(found - exact) <= exact / 8
    assert min(values) <= found <= max(values)
    assert (
        (spread.quantile(0), spread.quantile(1)) == (spread.least, spread.most) == (min(values), max(values))
    )


def test_nothing_has_no_bars_and_is_0_everywhere() -> None:
    spread = spread_of([])
    assert spread.bars() == []
    assert spread.as_json() == {
        "count": 0,
        "least_ns": 0,
        "p50_ns": 0,
        "p95_ns": 0,
        "p99_ns": 0,
        "most_ns": 0,
    }


def test_what_disagreeing_clocks_make_negative_counts_as_0() -> None:
    spread = spread_of([-5, 3])
    assert (spread.count, spread.least, spread.most) == (2, 0, 3)

"""The numbers of a sequence that have crossed a hop: which ones are missing, and how many are remembered."""

from __future__ import annotations

from hypothesis import given, strategies as st

from mqproto.base.ranges import Ranges
from mqproto.captures.decode.ranges import BoundedRanges, first_missing

SPANS = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 8)).map(lambda span: (span[0], span[0] + span[1]))
)


def filled(spans: list[tuple[int, int]], limit: int = 1_000) -> BoundedRanges:
    ranges = BoundedRanges(limit)
    for first, last in spans:
        ranges.add(first, last)
    return ranges


@given(st.lists(SPANS, max_size=3), st.integers(0, 20), st.integers(0, 80))
def test_the_first_missing_number_is_in_none_of_the_sets(
    sets: list[list[tuple[int, int]]], above: int, through: int
) -> None:
    had = {number for spans in sets for first, last in spans for number in range(first, last + 1)}
    expected = next((number for number in range(above + 1, through + 1) if number not in had), None)
    assert first_missing(map(filled, sets), above, through) == expected


@given(SPANS)
def test_within_the_limit_nothing_is_added_that_was_not(spans: list[tuple[int, int]]) -> None:
    unbounded = Ranges()
    for first, last in spans:
        unbounded.add(first, last)
    assert list(filled(spans, limit=max(1, len(spans)))) == list(unbounded)


@given(SPANS)
def test_with_too_many_gaps_the_lowest_are_closed_and_nothing_is_lost(spans: list[tuple[int, int]]) -> None:
    ranges = filled(spans, limit=3)
    assert ranges.range_count <= 3
    assert all(number in ranges for first, last in spans for number in range(first, last + 1))
    if ranges:
        assert ranges.highest == max(last for _, last in spans)

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from captures.decode.ranges import Ranges, first_missing

SPANS = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 8)).map(lambda span: (span[0], span[0] + span[1]))
)


def filled(spans: list[tuple[int, int]], limit: int = 1_000) -> Ranges:
    ranges = Ranges(limit)
    for first, last in spans:
        ranges.add(first, last)
    return ranges


@given(SPANS)
def test_the_numbers_are_those_that_were_added_in_as_few_ranges_as_can_be(
    spans: list[tuple[int, int]],
) -> None:
    ranges = filled(spans)
    numbers = {number for first, last in spans for number in range(first, last + 1)}
    assert {number for number in range(80) if number in ranges} == numbers
    assert ranges.highest == max(numbers, default=0)
    found = list(ranges)
    assert all(first <= last for first, last in found)
    assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(found))


@given(st.lists(SPANS, max_size=3), st.integers(0, 20), st.integers(0, 80))
def test_the_first_missing_number_is_in_none_of_the_sets(
    sets: list[list[tuple[int, int]]], above: int, through: int
) -> None:
    had = {number for spans in sets for first, last in spans for number in range(first, last + 1)}
    expected = next((number for number in range(above + 1, through + 1) if number not in had), None)
    assert first_missing(map(filled, sets), above, through) == expected


@given(SPANS)
def test_with_too_many_gaps_the_lowest_are_closed_and_nothing_is_lost(spans: list[tuple[int, int]]) -> None:
    ranges = filled(spans, limit=3)
    assert len(list(ranges)) <= 3
    assert all(number in ranges for first, last in spans for number in range(first, last + 1))

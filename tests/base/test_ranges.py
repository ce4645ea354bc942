"""A set of numbers that is kept as ranges, compared with a plain set."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mqproto.base.ranges import Ranges

LAST = 40
numbers = st.integers(1, LAST)


class RangesAgainstASet(RuleBasedStateMachine):
    """Ranges join and overlap, the low end is dropped, and all numbers are forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges = Ranges()
        self.model: set[int] = set()

    @rule(first=numbers, count=st.integers(1, 9))
    def add(self, first: int, count: int) -> None:
        last = min(first + count - 1, LAST)
        self.ranges.add(first, last)
        self.model |= set(range(first, last + 1))

    @rule(number=numbers)
    def drop_through(self, number: int) -> None:
        dropped = {n for n in self.model if n <= number}
        assert self.ranges.drop_through(number) == len(dropped)
        self.model -= dropped

    @rule()
    def clear(self) -> None:
        self.ranges.clear()
        self.model.clear()

    @invariant()
    def the_ranges_are_the_set_in_order_and_as_few_as_can_be(self) -> None:
        ranges = list(self.ranges)
        assert len(ranges) == self.ranges.range_count
        assert [n for first, last in ranges for n in range(first, last + 1)] == sorted(self.model)
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))

    @invariant()
    def it_knows_what_is_in_it(self) -> None:
        assert bool(self.ranges) == bool(self.model)
        assert self.ranges.highest == max(self.model, default=0)
        assert {n for n in range(LAST + 2) if n in self.ranges} == self.model

    @invariant()
    def it_leads_over_the_ranges_next_to_a_number_and_counts_those_below(self) -> None:
        others = [n for n in range(LAST + 3) if n not in self.model]
        for number in range(1, LAST + 2):
            assert self.ranges.before(number) == others[bisect_left(others, number) - 1]
            assert self.ranges.after(number) == others[bisect_right(others, number)]
            below = number + 1 - bisect_right(others, number)
            assert self.ranges.count_through(number) == below
            for last in (number - 1, number, LAST):
                between = [n for low, high in self.ranges.gaps(number, last) for n in range(low, high + 1)]
                assert between == [n for n in others if number <= n <= last]


TestRangesAgainstASet = RangesAgainstASet.TestCase


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
@given(order=st.permutations(range(1, 12)))
def test_in_whatever_order_numbers_go_they_end_as_one_range(order: list[int]) -> None:
    ranges = Ranges()
    for number in order:
        ranges.add(number, number)
    assert list(ranges) == [(1, 11)]
    assert ranges.before(12) == 0

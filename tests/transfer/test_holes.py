"""The numbers that no message has any more, against a plain set."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mqproto.transfer.holes import Holes

LAST = 40
numbers = st.integers(1, LAST)


class HolesAgainstASet(RuleBasedStateMachine):
    """Ranges join, the low end is dropped, all is forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.holes = Holes()
        self.model: set[int] = set()

    @precondition(lambda self: len(self.model) < LAST)
    @rule(data=st.data())
    def add(self, data: st.DataObject) -> None:
        """Any range between two numbers that are in the set already, or next to them."""
        first = data.draw(st.sampled_from([n for n in range(1, LAST + 1) if n not in self.model]))
        end = next(n for n in range(first, LAST + 2) if n in self.model or n > LAST)
        last = data.draw(st.integers(first, end - 1))
        self.holes.add(first, last)
        self.model |= set(range(first, last + 1))

    @rule(number=numbers)
    def drop_through(self, number: int) -> None:
        dropped = {n for n in self.model if n <= number}
        assert self.holes.drop_through(number) == len(dropped)
        self.model -= dropped

    @rule()
    def clear(self) -> None:
        self.holes.clear()
        self.model.clear()

    @invariant()
    def the_ranges_are_the_set_in_order_and_as_few_as_can_be(self) -> None:
        ranges = list(self.holes)
        assert [n for first, last in ranges for n in range(first, last + 1)] == sorted(self.model)
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))

    @invariant()
    def it_knows_what_is_in_it(self) -> None:
        assert bool(self.holes) == bool(self.model)
        assert {n for n in range(LAST + 2) if n in self.holes} == self.model

    @invariant()
    def it_leads_over_the_holes_next_to_a_number_and_counts_those_below(self) -> None:
        for number in range(1, LAST + 2):
            assert self.holes.before(number) == max(n for n in range(number) if n not in self.model)
            after = min(n for n in range(number + 1, LAST + 3) if n not in self.model)
            assert self.holes.after(number) == after
            assert self.holes.count_through(number) == len([n for n in self.model if n <= number])


TestHolesAgainstASet = HolesAgainstASet.TestCase


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
@given(order=st.permutations(range(1, 12)))
def test_in_whatever_order_numbers_go_they_end_as_one_range(order: list[int]) -> None:
    holes = Holes()
    for number in order:
        holes.add(number, number)
    assert list(holes) == [(1, 11)]
    assert holes.before(12) == 0

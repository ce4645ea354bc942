"""The search for something smaller that still shows the same fault."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from mqproto.simulator.base.shrinking import anew, fewer, shrunk


def halves_and_one_less(number: int) -> Iterator[int]:
    yield from (number // 2, number - 1) if number else ()


@given(st.integers(0, 1_000), st.integers(0, 1_000))
def test_the_smallest_that_still_shows_it_is_found(one: int, other: int) -> None:
    least, start = sorted((one, min(other, one + 500)))
    assert shrunk(start, [anew(halves_and_one_less)], lambda number: number >= least, 2_000_000) == least


@given(st.lists(st.integers(0, 9), max_size=30), st.sets(st.integers(0, 9), max_size=3))
def test_the_parts_that_matter_are_left(parts: list[int], matter: set[int]) -> None:
    needed = matter & {*parts}

    def shows(some: tuple[int, ...]) -> bool:
        return needed <= {*some}

    least = shrunk(tuple(parts), [fewer], shows, 10_000)
    assert sorted(least) == sorted(needed)


@pytest.mark.parametrize("tries", [0, 1, 7])
def test_it_asks_no_more_often_than_it_may(tries: int) -> None:
    asked: list[tuple[int, ...]] = []

    def shows(some: tuple[int, ...]) -> bool:
        asked.append(some)
        return False

    shrunk(tuple(range(40)), [fewer], shows, tries)
    assert len(asked) == tries

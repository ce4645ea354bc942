from __future__ import annotations

from hypothesis import given, strategies as st

from mqproto.simulator.console.traffic import Count, NumbersSeen


@given(st.lists(st.integers(1, 12), max_size=40))
def test_what_came_out_of_order_or_twice_is_counted(numbers: list[int]) -> None:
    count = Count("a", "b", 1)
    seen = NumbersSeen(count)
    for number in numbers:
        seen.take(number)
    known: set[int] = set()
    wrong = 0
    for number in numbers:
        if number in known:
            continue
        expected = next(each for each in range(1, 100) if each not in known)
        wrong += number != expected
        known.add(number)
    assert (count.received, count.twice, count.wrong) == (len(known), len(numbers) - len(known), wrong)
    assert count.last == next(each for each in range(100) if each + 1 not in known)

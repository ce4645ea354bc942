"""What is kept to read a pair again: enough, and little."""

from __future__ import annotations

from hypothesis import given, strategies as st

from mqproto.captures.pipeline.reading.ranges.lookback import LIMIT_COUNT, Frozen, LookBack

numbers = st.lists(st.integers(1, 9), max_size=200)


def filled(steps: list[int]) -> LookBack:
    """Ranges with these distances between them; the state before each says its place."""
    look_back, place = LookBack(), 0
    for step in steps:
        place += step
        look_back.add(place, Frozen(place))
    return look_back


@given(numbers, st.integers(1, 300))
def test_a_way_back_begins_with_a_state_and_is_long_enough_and_not_much_longer(
    steps: list[int], count: int
) -> None:
    look_back = filled(steps)
    if not steps:
        assert len(look_back) == 0
        return
    state, places = look_back.since(min(count, len(look_back)))
    assert state.thing == places[0]
    assert places == look_back.places[-len(places) :]
    assert min(count, len(steps)) <= len(places) <= 2 * count


def test_of_many_ranges_few_states_are_kept() -> None:
    look_back = filled([1] * 10_000)
    assert LIMIT_COUNT <= len(look_back) <= 2 * LIMIT_COUNT
    assert look_back.places[-1] == 10_000
    assert len(look_back.states) <= 24
    assert all(state.thing == look_back.places[index] for index, state in look_back.states)


@given(numbers, st.sets(st.integers(1, 900)))
def test_what_cannot_be_read_any_more_is_forgotten_and_all_before_it(
    steps: list[int], gone: set[int]
) -> None:
    look_back = filled(steps)
    known = list(look_back.places)
    look_back.without(gone)
    assert not gone.intersection(look_back.places)
    assert look_back.places == known[len(known) - len(look_back) :]
    assert all(state.thing == look_back.places[index] for index, state in look_back.states)
    assert not look_back.places or look_back.states[0][0] == 0

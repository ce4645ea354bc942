"""The event heap and the clock that jumps."""

from __future__ import annotations

from hypothesis import given, strategies as st

from mqproto.simulator.world.network.events import EventQueue


@given(times=st.lists(st.integers(0, 50)))
def test_events_happen_in_order_of_time_and_those_of_one_time_in_order_of_entry(times: list[int]) -> None:
    events = EventQueue()
    happened: list[tuple[int, int]] = []
    for entry, at_ms in enumerate(times):
        events.at(at_ms, lambda entry: happened.append((events.now_ms, entry)), entry)
    events.run_until(100)
    assert happened == sorted((at_ms, entry) for entry, at_ms in enumerate(times))
    assert events.now_ms == 100


def test_what_comes_after_all_comes_after_what_is_entered_later() -> None:
    events = EventQueue()
    happened: list[str] = []
    events.after_all(happened.append, "turn")
    events.at(0, lambda: events.at(0, happened.append, "arrival"))
    events.at(1, happened.append, "next")
    events.run_until(1)
    assert happened == ["arrival", "turn", "next"]


def test_an_event_that_is_past_happens_now() -> None:
    events = EventQueue()
    happened: list[int] = []
    events.run_until(10)
    events.at(3, lambda: happened.append(events.now_ms))
    events.run_until(10)
    assert happened == [10]

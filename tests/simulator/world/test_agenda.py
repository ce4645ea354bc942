"""The event heap and the clock that jumps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.world.agenda import Agenda


@given(times=st.lists(st.integers(0, 50)))
def test_events_happen_in_order_of_time_and_those_of_one_time_in_order_of_entry(times: list[int]) -> None:
    agenda = Agenda()
    happened: list[tuple[int, int]] = []
    for entry, at_ms in enumerate(times):
        agenda.at(at_ms, lambda entry: happened.append((agenda.now_ms, entry)), entry)
    agenda.run_until(100)
    assert happened == sorted((at_ms, entry) for entry, at_ms in enumerate(times))
    assert agenda.now_ms == 100


def test_what_comes_after_all_comes_after_what_is_entered_later() -> None:
    agenda = Agenda()
    happened: list[str] = []
    agenda.after_all(happened.append, "turn")
    agenda.at(0, lambda: agenda.at(0, happened.append, "arrival"))
    agenda.at(1, happened.append, "next")
    agenda.run_until(1)
    assert happened == ["arrival", "turn", "next"]


def test_an_event_that_is_past_happens_now() -> None:
    agenda = Agenda()
    happened: list[int] = []
    agenda.run_until(10)
    agenda.at(3, lambda: happened.append(agenda.now_ms))
    agenda.run_until(10)
    assert happened == [10]

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.figures import Figure, Result, Wanted, known, ratios, shown

measured = st.floats(1e-6, 1e9)
runs = st.lists(measured, min_size=1, max_size=9)


@given(runs)
def test_a_figure_has_the_least_the_most_and_what_lies_between_of_all_its_runs(values: list[float]) -> None:
    figure = Figure("cost", "µs", tuple(values))
    assert figure.minimum in values
    assert figure.maximum in values
    assert figure.minimum <= figure.median <= figure.maximum
    below = sum(value < figure.median for value in values)
    above = sum(value > figure.median for value in values)
    assert max(below, above) <= len(values) / 2
    assert figure.as_json()["runs"] == values


@given(runs, measured)
def test_a_figure_is_judged_by_its_median_however_good_its_best_run_is(
    values: list[float], bound: float
) -> None:
    median = statistics.median(values)
    least = Figure("rate", "1/s", tuple(values), Wanted(at_least=bound))
    most = Figure("cost", "µs", tuple(values), Wanted(at_most=bound))
    assert least.is_reached == (median >= bound)
    assert most.is_reached == (median <= bound)


def test_what_is_met_exactly_is_reached() -> None:
    assert Wanted(at_least=2).is_reached(2)
    assert Wanted(at_most=2).is_reached(2)
    assert not Wanted(at_least=2).is_reached(1.99)
    assert not Wanted(at_most=2).is_reached(2.01)


def test_where_nothing_was_wanted_or_nothing_is_known_nothing_is_said_to_be_reached() -> None:
    assert Figure("a", "b", (1.0,)).is_reached is None
    unknown = Figure("a", "b", (), Wanted(at_most=1))
    assert unknown.is_reached is None
    assert unknown.as_json()["median"] is None


@given(st.lists(st.tuples(measured, measured, st.floats(0.1, 100)), min_size=1, max_size=9))
def test_a_ratio_of_one_round_is_the_same_however_busy_the_machine_was(
    rounds: list[tuple[float, float, float]],
) -> None:
    quiet = ratios([one for one, _, _ in rounds], [other for _, other, _ in rounds])
    busy = ratios([one * slow for one, _, slow in rounds], [other * slow for _, other, slow in rounds])
    assert busy == pytest.approx(quiet)


def test_rounds_of_which_one_is_missing_have_no_ratios() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


@given(st.lists(st.none() | measured, max_size=9))
def test_if_one_run_is_not_known_none_is_said_to_be(values: list[float | None]) -> None:
    assert known(values) == (() if None in values else tuple(values))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1234, "0.123"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (12_345.6, "12,346"), (5.0, "5")],
)
def test_a_value_is_shown_with_three_digits(value: float, text: str) -> None:
    assert shown(value) == text


def test_a_result_for_programs_has_what_was_wanted_and_whether_it_was_reached() -> None:
    figure = Figure("rate", "1/s", (3.0, 1.0, 2.0), Wanted(at_least=3))
    found = Result("chain", "three nodes", [figure], ["a note"], ["a breach"]).as_json()
    assert found["figures"] == [
        {
            "name": "rate",
            "unit": "1/s",
            "runs": [3.0, 1.0, 2.0],
            "min": 1.0,
            "median": 2.0,
            "max": 3.0,
            "wanted": "at least 3",
            "reached": False,
        }
    ]
    assert (found["notes"], found["broken"]) == (["a note"], ["a breach"])

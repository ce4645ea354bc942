from __future__ import annotations

import json
import statistics

import pytest
import trio
from hypothesis import given, strategies as st

from tests.bench.figures import Figure, Result, as_json, as_markdown, in_turns, known, ratios, shown

measured = st.floats(1e-6, 1e9)


@given(st.lists(measured, min_size=1, max_size=9), measured)
def test_a_figure_is_judged_by_its_median_however_good_its_best_round_is(
    values: list[float], bound: float
) -> None:
    median = statistics.median(values)
    assert Figure("rate", "1/s", tuple(values), at_least=bound).is_reached == (median >= bound)
    assert Figure("cost", "µs", tuple(values), at_most=bound).is_reached == (median <= bound)
    assert Figure("cost", "µs", tuple(values)).is_reached is None


def test_what_is_not_known_is_not_judged() -> None:
    unknown = Figure("memory", "MB", (), at_most=200)
    assert unknown.row == ("memory", "MB", "unknown", "unknown", "unknown", "0", "at most 200", "")


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
def test_if_one_round_is_not_known_none_is_said_to_be(values: list[float | None]) -> None:
    assert known(values) == (() if None in values else tuple(values))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1234, "0.123"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (12_345.6, "12,346"), (5.0, "5")],
)
def test_a_value_is_shown_with_three_digits(value: float, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("warm", [True, False])
async def test_each_job_has_its_turn_in_each_round(warm: bool) -> None:
    done: list[str] = []
    told: list[str] = []

    def first() -> int:
        done.append("first")
        return len(done)

    async def second() -> int:
        await trio.lowlevel.checkpoint()
        done.append("second")
        return len(done)

    found = await in_turns("chain", 2, {"first": first, "second": second}, told.append, warm=warm)
    assert done == ["first", "second"] * (2 + warm)
    assert found == ({"first": [3, 5], "second": [4, 6]} if warm else {"first": [1, 3], "second": [2, 4]})
    assert told[-1] == "chain, second: round 2 of 2"


def test_one_table_has_all_that_was_measured() -> None:
    results = {
        "chain": Result(
            "three nodes",
            [
                Figure("throughput", "messages/s", (9_000.0, 8_000.0, 9_500.0), at_least=20_000),
                Figure("CPU", "µs/message", (), at_most=60),
            ],
            ["a note"],
        ),
        "outage": Result("gave no figures", [], broken=["of 3 messages: 1 messages lost"]),
    }
    page = as_markdown({"cores": "2"}, results)
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0][:3] == ["benchmark", "figure", "unit"]
    throughput = [
        "throughput",
        "messages/s",
        "8,000",
        "9,000",
        "9,500",
        "3",
        "at least 20,000",
        "not reached",
    ]
    assert rows[2] == ["**chain**", *throughput]
    for words in ("- **chain**: three nodes", "  - a note", "**broken**: of 3 messages: 1", "- cores: 2"):
        assert words in page
    told = json.loads(json.dumps(as_json({"cores": "2"}, results)))["benchmarks"]
    assert told["chain"]["figures"][0]["rounds"] == [9_000, 8_000, 9_500]
    assert told["outage"]["broken"] == ["of 3 messages: 1 messages lost"]

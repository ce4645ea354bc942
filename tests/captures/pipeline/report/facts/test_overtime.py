"""Durations and backlogs over time: the values are those that sorting and counting would give.

The results also show when something began to be slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import duckdb
import pytest
from hypothesis import example, given, strategies as st

from mqproto.captures.pipeline.report.counts.asking import MACROS, courses
from mqproto.captures.pipeline.report.drawing.figures import sparkline
from mqproto.captures.pipeline.report.facts.facts import Captured, Course
from mqproto.captures.pipeline.report.facts.overtime import (
    Steps,
    slow_spells,
    slow_texts,
    steps_of,
    waiting_since_ns,
    waiting_text,
)

SECOND = 10**9
STEPS = Steps(100 * SECOND, SECOND, 6)
EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(98, 108), st.integers(-2, 9 * SECOND), st.booleans()),
    max_size=30,
)


CONNECTION = duckdb.connect()
CONNECTION.execute(MACROS)
WENT = f"""
select thing, began_s * {SECOND} as began_ns, took_ns, true as waits, if(ended, began_ns + took_ns, null) as until_ns
from (select unnest($events::struct(thing int, began_s bigint, took_ns bigint, ended boolean)[], recursive := true))
"""


@given(EVENTS)
@example([(0, 101, -2, True), (1, 103, SECOND, False)])
def test_each_step_has_what_began_in_it_and_what_waits_at_its_end(
    events: list[tuple[int, int, int, bool]],
) -> None:
    rows = [dict(zip(("thing", "began_s", "took_ns", "ended"), row, strict=True)) for row in events]
    found_each = courses(CONNECTION, STEPS, 3, WENT, events=rows)

    def step(time_ns: int) -> int:
        return max(0, min(5, time_ns // SECOND - 100))

    for thing in range(3):
        spread, course = found_each[thing]
        mine = [row for row in events if row[0] == thing]
        assert spread.count == len(mine)
        for number in range(6):
            took_ns = sorted(max(took, 0) for _, began, took, _ in mine if step(began * SECOND) == number)
            assert course.counts[number] == len(took_ns)
            assert course.most_ns[number] == max(took_ns, default=0)
            for found, share in ((course.half_ns[number], 0.5), (course.slow_ns[number], 0.95)):
                exact = took_ns[math.ceil(share * len(took_ns)) - 1] if took_ns else 0
                assert abs(found - exact) <= exact / 8
            assert course.waiting[number] == sum(
                step(began * SECOND) <= number
                and not (ended and step(began * SECOND + max(took, 0)) <= number)
                for _, began, took, ended in mine
            )


def course(half_ms: Sequence[int | None], waiting: list[int] | None = None, usual_ms: int = 5) -> Course:
    """Return a course with steps of one second. In each step, half of the messages took at most this long."""
    half = [(each or 0) * 10**6 for each in half_ms]
    counts = [0 if each is None else 1 for each in half_ms]
    found = Course(
        100 * SECOND, SECOND, counts, half, half, half, waiting or [0] * len(half), usual_ms * 10**6
    )
    found.spells = slow_spells(found)
    return found


@pytest.mark.parametrize(
    ("half_ms", "said"),
    [
        ([5, 5, 5], []),
        ([5, 49, 5], []),
        ([5, 51, 900, 5, 60], ["from 00:01:41 to 00:01:43: 2 messages", "since 00:01:44: 1 message"]),
        ([5, None, 900, None, 800], ["since 00:01:42: 2 messages"]),
        ([900, None, None, 5], ["from 00:01:40 to 00:01:41: 1 message"]),
        (
            [5, 900, 5, 60, 60, 60, 5],
            ["from 00:01:43 to 00:01:46: 3 messages", "from 00:01:41 to 00:01:42: 1 message"],
        ),
        ([None, None], []),
        ([], []),
    ],
)
def test_it_says_all_times_in_which_it_was_slow_the_longest_first(
    half_ms: list[int | None], said: list[str]
) -> None:
    assert list(slow_texts(course(half_ms))) == [f"slow {text}" for text in said]


def test_of_many_slow_times_five_are_named_and_what_happened_then() -> None:
    found = course([5, 900] * 3 + [5, 900, 900] + [5, 900] * 5 + [5])
    found.spells[0].reset = True
    found.spells[1].reset = False
    found.spells[2].reset, found.spells[2].without = False, {"shop": 31 * SECOND}
    texts = list(slow_texts(found))
    assert len(texts) == 6
    assert texts[0] == "slow from 00:01:47 to 00:01:49: 2 messages; a connection was reset"
    assert texts[1].endswith(": 1 message; no connection was reset or out of use")
    assert texts[2].endswith(": 1 message; shop had no connection in use for 31 s")
    assert texts[5] == "and 4 times more in which it was slow"


@pytest.mark.parametrize(
    ("waiting", "since", "said"),
    [
        ([0, 0, 0], None, ""),
        ([0, 4, 0], None, "at most 4 waiting, at 00:01:42"),
        ([0, 4, 3], 101, "3 waiting, some at all times since 00:01:41, at most 4 at 00:01:42"),
        ([2, 0, 3], 102, "3 waiting, some at all times since 00:01:42"),
        ([1, 1, 1], 100, "1 waiting, some at all times since 00:01:40"),
    ],
)
def test_it_says_since_when_something_waits(waiting: list[int], since: int | None, said: str) -> None:
    found = course([1, 1, 1], waiting)
    assert waiting_since_ns(found) == (None if since is None else since * SECOND)
    assert waiting_text(found, "waiting") == said


def test_what_is_drawn_is_said_as_well_and_names_stay_text() -> None:
    drawn = sparkline(course([5, None, 900], [0, 1, 2]), '"><script>')
    assert (
        'aria-label="slow since 00:01:42: 1 message; slowest at 00:01:42, where 95 % took 900 ms at most; 2'
        in drawn
    )
    assert "<script" not in drawn
    assert drawn.count("h.01") == 4
    assert "nan" not in sparkline(course([None]), "waiting")


@given(st.integers(0, 2**62), st.integers(0, 10**15))
def test_steps_cover_the_captures(first_ns: int, span_ns: int) -> None:
    steps = steps_of(Captured(first_ns=first_ns, last_ns=first_ns + span_ns))
    assert steps.first_ns <= first_ns
    assert first_ns + span_ns < steps.first_ns + steps.length * steps.step_ns
    assert steps.length <= 121

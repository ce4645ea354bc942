"""A ladder as text: no line is wider than requested, whatever its columns and texts are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from mqproto.base.errors import UsageError
from mqproto.captures.drawing.characters import lines
from mqproto.captures.drawing.ladder import Break, Pause, Row, Rung, Span

COLUMNS = st.lists(st.text("abc", min_size=1, max_size=30), min_size=1, max_size=6, unique=True)
TEXTS = st.text("ab ", max_size=60)


@st.composite
def ladders(draw: st.DrawFn) -> tuple[list[str], list[Row]]:
    columns = draw(COLUMNS)
    places = st.integers(0, len(columns) - 1)
    times = st.sampled_from(["0.000001", "12345.000000"])
    untils = st.sampled_from(["", "12345.000001"])
    rungs = st.builds(
        Rung, times, places, places, st.just("message"), TEXTS, shorter=st.just(("x",)), alike=st.integers(1, 9_999),
        until=untils, marks=st.sampled_from(["", "↻", "✗…"]), told=st.lists(TEXTS, max_size=2),
    )  # fmt: skip
    breaks = st.builds(
        Break, times, places, places, TEXTS, st.booleans(), st.integers(1, 9), untils, st.booleans()
    )
    return columns, draw(st.lists(st.one_of(rungs, breaks, st.just(Pause("2.0 s later"))), max_size=6))


def test_a_long_name_of_the_last_column_is_cut() -> None:
    [heads, *_] = lines(["a", "b" * 25], [], 60)
    assert heads.endswith("bb…")
    assert len(heads) <= 60


@settings(max_examples=60)
@given(ladder=ladders(), data=st.data())
def test_no_line_is_wider_than_was_asked_for(
    ladder: tuple[list[str], list[Row]], data: st.DataObject
) -> None:
    columns, rows = ladder
    # Fewer do not fit, as below.
    width = data.draw(st.integers(max(60, 16 * len(columns)), 200), label="width")
    drawn = list(lines(columns, rows, width, [Span(0, 0, len(rows))]))
    assert max(map(len, drawn)) <= width
    assert len(drawn) >= len(rows)


def test_what_happens_at_the_last_column_stands_left_of_it_where_there_is_no_room() -> None:
    drawn = list(lines(["a", "b"], [Break("0.0", 1, 1, "back after 2.0 s", is_cut=False)], 60))
    assert drawn[1].endswith("back after 2.0 s ●│")
    assert len(drawn[1]) <= 60


def test_what_does_not_fit_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"9 queue managers do not fit into 60 columns.*--svg FILE\.svg"):
        list(lines([f"node {number}" for number in range(9)], [], 60))

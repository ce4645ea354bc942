"""Charts: the marks on their axes are easy to read, and their bars and lines are in the right places."""

from __future__ import annotations

from hypothesis import given, strategies as st

from mqproto.captures.drawing.charts import WIDTH, Canvas, Tick, axes, boxes, line, marks, picture

PLOT = Canvas(40, 10, 100, 50)


@given(st.integers(0, 10**18))
def test_marks_are_few_and_even_from_zero_up_to_the_most(most: int) -> None:
    found = marks(most)
    assert found[0] == 0
    assert len(found) in (2, 3, 4) or most == 0
    step = found[1] if most else 1
    assert found == [step * place for place in range(len(found))]
    assert max(found) <= max(most, 1) < max(found) + step


def test_a_line_is_broken_where_nothing_is_known_and_a_bar_of_nothing_is_not_drawn() -> None:
    path = line(PLOT, "half", [(0, 1), (0.5, 0), (0.6, None), (1, 0.5)]).attributes["d"]
    assert path == "M40 10h.01L90 60M140 35h.01"
    assert boxes(PLOT, "bar", [(0, 0.1, 0), (0.5, 1, 0.5)]).attributes["d"] == "M90 60V35H140V60Z"


@given(st.floats(0, 1), st.text(max_size=20))
def test_texts_below_an_axis_keep_within_the_chart_and_stay_text(at: float, said: str) -> None:
    shapes = [*axes(Canvas(0, 0, WIDTH, 50), [Tick(at, said)], [])]
    [x] = [float(each.attributes["x"]) for each in shapes if each.name == "text"]
    assert 7 * len(said) / 2 - 0.1 <= x <= WIDTH - 7 * len(said) / 2 + 0.1
    assert picture("chart", 1, 1, said, shapes).count("<text") == 1

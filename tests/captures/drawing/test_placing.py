from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, strategies as st

from mqproto.captures.drawing.placing import LINE_CHARACTERS, Sheet, along, bend, label_lines, placed


class Way(NamedTuple):
    from_key: str
    to_key: str
    messages: int = 1


SHEET = Sheet(width=1_000, edge=20, side=200, row=100, dense_row=80, column=250)
NARROW = Sheet(width=300, edge=20, side=200, row=100, dense_row=100, column=250, abreast=1)
NAMES = "abcdefgh"


def test_a_chain_goes_from_left_to_right_and_on_a_narrow_sheet_downwards() -> None:
    chain = [Way(*pair) for pair in pairwise("abc")]
    places, height = placed(chain, SHEET)
    assert places == {"a": (250, 60), "b": (500, 60), "c": (750, 60)}
    assert height == 120
    places, height = placed(chain, NARROW)
    assert places == {"a": (150, 60), "b": (150, 160), "c": (150, 260)}
    assert height == 320


@given(
    ways=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(0, 9)), max_size=12),
    alone=st.sets(st.sampled_from(NAMES)),
    sheet=st.sampled_from([SHEET, NARROW]),
)
def test_everybody_has_a_place_of_his_own_within_the_sheet(
    ways: list[tuple[str, str, int]], alone: set[str], sheet: Sheet
) -> None:
    between = [Way(*way) for way in ways if way[0] != way[1]]
    places, height = placed(between, sheet, sorted(alone))
    assert places.keys() == {key for way in between for key in way[:2]} | alone
    assert len(set(places.values())) == len(places)
    assert all(0 <= x <= sheet.width and 0 < y < height for x, y in places.values())


def test_a_way_bends_around_whoever_stands_between_its_ends() -> None:
    start, middle, end = (0, 0), (100, 0), (200, 0)
    assert bend(start, middle, [start, middle, end], is_returned=False) == 0
    around = bend(start, end, [start, middle, end], is_returned=False)
    assert math.dist(along(start, end, around, 0.5), middle) > 30


@given(st.text(max_size=40))
def test_a_label_stays_whole_over_at_most_two_lines(label: str) -> None:
    lines = label_lines(label)
    assert ("".join(lines), len(lines)) == (label, 1 if len(label) <= LINE_CHARACTERS else 2)

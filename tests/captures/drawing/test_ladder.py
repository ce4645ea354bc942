"""A ladder as SVG: its legend, folded rows, broken columns, and its dark colors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from mqproto.captures.drawing.ladder import (
    COLOURS,
    MEANINGS,
    Break,
    Pause,
    Row,
    Rung,
    Span,
    drawn,
    signs_of,
    stylesheet,
)
from mqproto.captures.drawing.shapes import SvgElement

EVERYTHING: list[Row] = [
    Rung("0.0", 0, 1, "message", "order", again=True, marks="↻"),
    Rung("0.1", 0, 1, "message", "orders 1–20", alike=20, until="0.4"),
    Rung("0.5", 1, 0, "wrong", "nonsense", marks="✗…"),
    Break("0.6", 1, 0, "reset", directed=True),
    Break("0.7", 1, 0, "closed", is_cut=False),
    Break("0.8", 1, 1, "back after 0.2 s", is_cut=False),
    Pause("2.0 s later"),
]


def shapes(shape: SvgElement) -> Iterator[SvgElement]:
    yield shape
    if not isinstance(shape.inner, str):
        for each in shape.inner:
            yield from shapes(each)


def of(kind: str, rows: list[Row], gone: list[Span] | None = None) -> list[SvgElement]:
    drawing = drawn(["a", "b"], rows, gone=gone or [])
    return [
        each for each in shapes(drawing.shape) if str(each.attributes.get("class", "")).split(" ")[0] == kind
    ]


def legend(rows: list[Row], gone: list[Span] | None = None) -> list[str]:
    return [str(each.inner[-1].inner) for each in of("legend", rows, gone) if not isinstance(each.inner, str)]


def test_a_legend_says_of_all_that_occurs_what_it_means_and_of_nothing_else() -> None:
    assert legend([Rung("0", 0, 1, "message", "order")]) == [MEANINGS["message"]]
    assert legend([]) == []
    everything = legend(EVERYTHING, [Span(1, 3, 5)])
    assert everything == [
        MEANINGS["message"],
        MEANINGS["wrong"],
        *(meaning for _, meaning in signs_of(EVERYTHING, [Span(1, 3, 5)])),
    ]
    assert [sign for sign, _ in signs_of(EVERYTHING, [Span(1, 3, 5)])] == [
        "↻",
        "✗",
        "…",
        "n ×",
        "✖",
        "╌",
        "╎",
        "┊",
    ]
    assert len(set(everything)) == len(everything)


def test_whoever_draws_says_what_colours_mean() -> None:
    drawing = drawn(["a"], [Rung("0", 0, 0, "message", "sent")], meanings={"message": "it was sent"})
    assert "it was sent" in [each.inner for each in shapes(drawing.shape)]


def test_what_is_folded_has_its_number_and_two_times() -> None:
    texts = [each.inner for each in shapes(drawn(["a", "b"], EVERYTHING).shape) if each.name == "text"]
    assert {"20 × orders 1–20", "0.1", "– 0.4"} <= set(texts)


def test_a_cut_link_is_crossed_out_and_a_column_is_broken_while_it_has_no_connection() -> None:
    [cut] = of("cut", EVERYTHING)
    [closed] = of("closed", EVERYTHING)
    assert cut.attributes["stroke"] == COLOURS["wrong"] != closed.attributes["stroke"]
    [gone] = of("gone", EVERYTHING, [Span(1, 3, 5)])
    assert gone.attributes["y1"] == cut.attributes["y1"]
    columns = [each.attributes for each in of("column", EVERYTHING, [Span(1, 3, 5)])]
    above, below = (each for each in columns if each["x1"] == gone.attributes["x1"])
    assert (above["y2"], below["y1"]) == (gone.attributes["y1"], gone.attributes["y2"])


@pytest.mark.parametrize(
    ("room", "text"),
    [(40, "↻ 3 × orders 1–3 of headquarters"), (20, "↻ 3 × orders 1–3"), (12, "↻ 3 × 1–3"), (8, "↻ 3 × 1…")],
)
def test_of_several_texts_the_first_that_fits_is_shown(room: int, text: str) -> None:
    rung = Rung(
        "0", 0, 1, "message", "orders 1–3 of headquarters", shorter=("orders 1–3", "1–3"), alike=3, marks="↻"
    )
    assert rung.fitting(room) == text


def test_by_night_each_colour_is_another_one() -> None:
    sheet = stylesheet()
    assert sheet.startswith("@media (prefers-color-scheme:dark){")
    for style, colour in COLOURS.items():
        assert f".{style} line" in sheet
        assert colour not in sheet


def test_the_heads_of_columns_are_beside_each_other_and_inside_however_long_names_are() -> None:
    long = ["headquarters-warehouse-gateway-of-the-northern-region-1", "963EBEB9-8A2F-504A-9728-78C61096BF80"]
    drawing = drawn([*long, long[0][:-1] + "2"], [])
    heads = [each for each in shapes(drawing.shape) if each.attributes.get("class") == "head"]
    ends = [(float(head.attributes["x"]), float(head.attributes["width"])) for head in heads]
    assert ends[0][0] >= 0
    assert all(x + width < after for (x, width), (after, _) in pairwise(ends))
    assert ends[-1][0] + ends[-1][1] <= drawing.width
    texts = [each.inner for each in shapes(drawing.shape) if each.attributes.get("font-weight") == "bold"]
    assert texts == [
        "headquarters-wareho…-northern-region-1",
        long[1],
        "headquarters-wareho…-northern-region-2",
    ]
    assert [each.inner for each in shapes(drawing.shape) if each.name == "title"] == [
        long[0],
        long[0][:-1] + "2",
    ]

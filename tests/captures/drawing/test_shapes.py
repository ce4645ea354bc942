from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from captures.drawing.shapes import Shape, as_json, as_svg

TEXTS = st.text(st.characters(codec=None), max_size=30)


@given(TEXTS, TEXTS)
def test_whatever_stands_in_a_shape_it_is_one_element(inside: str, attribute: str) -> None:
    shape = Shape("g", {"class": attribute}, [Shape("text", {"x": 1}, inside), Shape("rect", {})])
    found = ElementTree.fromstring("".join(as_svg(shape)))
    assert [each.tag for each in found.iter()] == ["g", "text", "rect"]


def test_a_page_gets_the_same_as_values() -> None:
    shape = Shape("g", {"x": 0.5, "class": "a"}, [Shape("text", {}, "<b>")])
    assert as_json(shape) == ["g", {"x": "0.5", "class": "a"}, [["text", {}, "<b>"]]]
    assert list(as_svg(shape)) == ['<g x="0.5" class="a">', "<text>&lt;b&gt;</text>", "</g>"]

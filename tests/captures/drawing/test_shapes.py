from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given, strategies as st

from mqproto.captures.drawing.shapes import SVG, SvgElement, as_json, as_svg, document

TEXTS = st.text(st.characters(codec=None), max_size=30)


@given(TEXTS, TEXTS)
def test_whatever_stands_in_a_shape_it_is_one_element(inside: str, attribute: str) -> None:
    shape = SvgElement(
        "g", {"class": attribute}, [SvgElement("text", {"x": 1}, inside), SvgElement("rect", {})]
    )
    found = ElementTree.fromstring("".join(as_svg(shape)))
    assert [each.tag for each in found.iter()] == ["g", "text", "rect"]


def test_a_page_gets_the_same_as_values() -> None:
    shape = SvgElement("g", {"x": 0.5, "class": "a"}, [SvgElement("text", {}, "<b>")])
    assert as_json(shape) == ["g", {"x": "0.5", "class": "a"}, [["text", {}, "<b>"]]]
    assert list(as_svg(shape)) == ['<g x="0.5" class="a">', "<text>&lt;b&gt;</text>", "</g>"]


@given(TEXTS)
def test_a_document_begins_with_its_title(title: str) -> None:
    lines = document(title, 2, 1, as_svg(SvgElement("rect", {})))
    picture = ElementTree.fromstring("".join(lines))
    assert [each.tag for each in picture] == [f"{{{SVG}}}title", f"{{{SVG}}}rect"]
    assert picture.attrib == {"width": "2", "height": "1", "viewBox": "0 0 2 1"}

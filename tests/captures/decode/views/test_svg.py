from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given, strategies as st

from mqproto.captures.decode import Analyst, svg
from mqproto.captures.drawing.ladder import ROW_HEIGHT
from tests.captures.decode.scene import Scene, transactional
from tests.captures.decode.story import KNOWN, ladder, story

SVG = "{http://www.w3.org/2000/svg}"


def parsed(scene: Scene, title: str = "story", limit: int = 1_000) -> ElementTree.Element:
    analyst = Analyst(KNOWN)
    for seen in scene.packets:
        analyst.take(seen)
    return ElementTree.fromstring("\n".join(svg(ladder(scene, limit), analyst.label, title)))


def test_the_picture_has_an_arrow_for_each_packet_and_a_box_for_each_queue_manager() -> None:
    scene = story()
    picture = parsed(scene)
    arrows = [line for line in picture.iter(f"{SVG}line") if line.attrib.get("class") == "arrow"]
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert len(arrows) == len(scene.packets)
    assert {"a", "b", "c", "2.0 s later", "OrderAck 1/2"} <= set(texts)
    dashed = [line for line in arrows if "stroke-dasharray" in line.attrib]
    assert len(dashed) == 1
    assert int(picture.attrib["height"]) > len(scene.packets) * ROW_HEIGHT


def test_everything_lies_within_the_picture_and_needs_no_other_file() -> None:
    picture = parsed(story())
    width, height = int(picture.attrib["width"]), int(picture.attrib["height"])
    for line in picture.iter(f"{SVG}line"):
        assert 0 <= float(line.attrib["x1"]) <= width
        assert 0 <= float(line.attrib["x2"]) <= width
        assert 0 <= float(line.attrib["y1"]) <= height
    assert not [each for each in picture.iter() if "href" in each.attrib]


@given(st.text(max_size=20), st.text(st.characters(max_codepoint=0xFFFF), max_size=20))
def test_whatever_a_label_or_a_name_holds_the_picture_is_xml(title: str, label: str) -> None:
    scene = Scene()
    scene.wire("a", "b").send(
        "a", transactional(1, label=label.replace("\0", "") or "x", destination="OS:<&>\\q")
    )
    assert parsed(scene, title).tag == f"{SVG}svg"


def test_what_is_left_out_is_said_and_nothing_at_all_is_a_picture_too() -> None:
    assert any(
        "15 packets more" in (text.text or "") for text in parsed(story(), limit=10).iter(f"{SVG}text")
    )
    assert parsed(Scene()).tag == f"{SVG}svg"

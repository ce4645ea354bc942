"""The labels of arrows: queues by their known names, and shorter forms where there is less room."""

from __future__ import annotations

from mqproto.captures.decode import Names
from mqproto.captures.decode.views.arrows import Wording, wording
from tests.captures.decode.scene import Scene, express, final, guid, names, ordered, transactional


def said(packet: bytes, known: Names | None = None, *, sender: str = "a", riding: bool = False) -> Wording:
    scene = Scene()
    scene.wire("a", "c").send(sender, packet, riding=riding)
    return wording(scene.sights(known)[0][-1], known or Names())


def labelled(key: str | bytes) -> str:
    assert key == guid("c")
    return "c:1801"


def test_a_queue_has_its_name_where_the_topology_has_one() -> None:
    assert said(transactional(7), names("a", "c")).texts(str) == [
        r"transactional 1/7 c\orders",
        r"tx 1/7 c\orders",
        r"tx 7 c\orders",
        "tx 7 orders",
        "tx 7",
    ]


def test_a_queue_that_has_a_number_is_one_of_its_queue_manager_as_the_column_has_it() -> None:
    assert said(transactional(7)).texts(labelled)[0] == r"transactional 1/7 c:1801\16"
    assert said(express()).texts(labelled) == [r"express #1 c:1801\16", r"#1 c:1801\16", r"#1 \16", "#1"]


def test_a_queue_has_its_name_also_where_its_queue_manager_is_known_by_its_address_alone() -> None:
    here = guid("its own")
    known = Names(managers={here: "c:1801"}, queues={(here, 16): r"c\orders"})
    assert said(transactional(7), known).texts(labelled)[0] == r"transactional 1/7 c\orders"
    assert said(express(), known).texts(labelled) == [
        r"express #1 c\orders",
        r"#1 c\orders",
        "#1 orders",
        "#1",
    ]


def test_a_queue_that_has_its_name_in_the_packet_goes_by_that() -> None:
    found = said(transactional(7, destination=r"OS:c\private$\orders", destination_manager=guid("c")))
    assert found.texts(str)[0].endswith(r"1/7 OS:c\private$\orders")
    assert found.texts(str)[-2] == "tx 7 orders"


def test_several_are_told_from_the_first_to_the_last() -> None:
    found = said(transactional(7), names("a", "c"), riding=True)
    assert found.texts(str)[0].startswith(r"transactional 1/7 c\orders + ack ")
    assert found.texts(str, 9)[0] == r"transactional 1/7–9 c\orders"
    assert found.texts(str, 9, consecutive=False)[-1] == "tx 7…9"
    assert found.texts(str, 7)[-1] == "tx 7"


def test_acknowledgments_say_what_they_acknowledge() -> None:
    assert said(ordered(2), sender="c").texts(str) == ["OrderAck 1/2", "OrderAck 2"]
    assert said(final(2), sender="c").texts(str)[0].startswith("FinalAck 1/2 ")

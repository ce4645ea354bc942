from __future__ import annotations

from typing import Any

from mqproto.captures.pipeline.stages.messages.subjects import keyed
from tests.captures.decode.scene import Scene, express, final, guid, transactional
from tests.captures.pipeline.stages.local import whole
from tests.captures.pipeline.stages.table import packet_table


def rows(scene: Scene) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = keyed(whole(packet_table(scene.packets))).to_pylist()
    return found


def test_an_acknowledgment_comes_for_itself_and_for_the_message_that_it_is_about() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", transactional(1))
    wire.send("a", express(message_id=7))
    wire.send("c", final(1))
    correlation_id = guid("a") + (7).to_bytes(4, "little")
    answer = {"source": guid("c"), "destination_manager": guid("a"), "message_id": 900}
    wire.send("c", express(**answer, message_class=2, correlation_id=correlation_id))
    found = [(row["kind"], row["subject"][-4:], row["about"]) for row in rows(scene)]
    assert found == [
        ("Transactional", r"2E\1", False),
        ("Express", r"2E\7", False),
        ("FinalAck", r"\200", False),
        ("AdminAck", r"\900", False),
        ("AdminAck", r"2E\7", True),
        ("FinalAck", r"2E\1", True),
    ]


def test_packets_that_carry_no_message_are_left_out() -> None:
    scene = Scene()
    scene.wire("a", "c").ack("a")
    assert rows(scene) == []
    assert rows(Scene()) == []

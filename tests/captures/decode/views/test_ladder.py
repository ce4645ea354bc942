from __future__ import annotations

import pytest

from captures.decode import Analyst
from mqproto.base.errors import UsageError
from mqproto.wire import establish_connection
from tests.captures.decode.scene import Scene, express, guid, names, transactional
from tests.captures.decode.story import KNOWN, ladder, story

DRAWN = """
              a                         b                         c
    0.000000  │────── establish ───────►│                         │
    0.001000  │◄─────── welcome ────────│                         │
    0.002000  │────── parameters ──────►│                         │
    0.003000  │◄────── parameters ──────│                         │
    0.004000  │                         │────── establish ───────►│
    0.005000  │                         │◄─────── welcome ────────│
    0.006000  │                         │────── parameters ──────►│
    0.007000  │                         │◄────── parameters ──────│
    0.008000  │ transactional 1/1 c\\… ─►│                         │
"""


def labelled(scene: Scene) -> Analyst:
    analyst = Analyst(KNOWN)
    for seen in scene.packets:
        analyst.take(seen)
    return analyst


def drawn(scene: Scene, width: int, limit: int = 1_000) -> list[str]:
    return list(ladder(scene, limit).lines(labelled(scene).label, width))


def test_packets_are_arrows_between_columns() -> None:
    lines = drawn(story(), 68)
    assert lines[:10] == DRAWN.strip("\n").splitlines()


def test_silence_resends_and_faults_are_marked() -> None:
    lines = drawn(story(), 120)
    assert any("2.0 s" in line and line.count("┊") == 3 for line in lines)
    assert sum("↻" in line for line in lines) == 1
    assert sum("✗" in line for line in lines) == 1
    assert any("fault wrong-count" in line for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 300])
def test_no_line_is_wider_than_was_asked_for(width: int) -> None:
    assert max(map(len, drawn(story(), width))) <= width


def test_what_does_not_fit_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="3 queue managers do not fit into 20 columns"):
        drawn(story(), 20)


def test_what_is_left_out_is_counted_and_nothing_at_all_is_nothing() -> None:
    assert "15 packets more" in drawn(story(), 120, limit=10)[-1]
    assert drawn(Scene(), 120) == []


def test_missing_bytes_are_marked_and_messages_to_oneself_stand_beside_the_line() -> None:
    scene = Scene()
    wire = scene.wire("a", "b")
    wire.send("a", transactional(1)).missing_bytes = 7
    assert any("… transactional 1/1" in line for line in drawn(scene, 120))
    scene = Scene()
    wire = scene.wire("a", "b", opened=False)
    wire.ends["b"].endpoint = wire.ends["a"].endpoint._replace(port=1801)
    wire.put("a", express())
    picture = ladder(scene)
    assert "↺ express #1" in next(line for line in picture.lines(lambda _: "a", 80) if "↺" in line)


def test_a_queue_manager_is_one_column_though_it_opens_and_takes_connections() -> None:
    scene = story()
    scene.wire("c", "a")
    picture = ladder(scene)
    assert picture.nodes(labelled(scene).label) == ["a", "b", "c"]
    assert names("a").managers


def test_somebody_who_claims_to_be_another_and_is_refused_is_nobody_afterwards() -> None:
    scene = story()
    wire = scene.wire("d", "c", opened=False)
    for sender, refused in (("d", False), ("c", True)):
        claim = establish_connection(client=guid("c"), server=guid("c"), time_stamp_ms=0, refused=refused)
        wire.put(sender, claim)
    scene.wire("d", "a", opened=False).ack("d")
    assert ladder(scene).nodes(labelled(scene).label) == ["a", "b", "c", "10.0.0.4"]


def test_without_names_a_queue_manager_goes_by_where_it_listens() -> None:
    scene = story()
    analyst = Analyst()
    for seen in scene.packets:
        analyst.take(seen)
    assert ladder(scene).nodes(analyst.label) == ["10.0.0.1", "10.0.0.2:1801", "10.0.0.3:1801"]

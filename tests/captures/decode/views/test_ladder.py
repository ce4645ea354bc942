from __future__ import annotations

import pytest

from mqproto.base.errors import UsageError
from mqproto.captures.decode import Analyst, Ladder
from mqproto.captures.drawing.ladder import Break, Rung
from mqproto.captures.net.turns import Turn, Turned
from mqproto.wire import establish_connection
from tests.captures.decode.scene import (
    MILLISECOND,
    Scene,
    address,
    express,
    guid,
    names,
    passed_on,
    transactional,
)
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
    0.008000  │─── tx 1/1 c\\orders ────►│                         │
"""


def streamed() -> Scene:
    """Return a scene with many equal packets, and some that differ.

    Two in a row are too few to fold, and numbers may be absent.
    """
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in range(1, 21):
        wire.send("a", transactional(number))
    for _ in range(4):
        wire.ack("c")
    for number in (21, 22):
        wire.send("a", transactional(number))
    wire.ack("c")
    for number in (25, 30, 31):
        wire.send("a", transactional(number, previous=number - 1))
    for number in (20, 21, 22):
        wire.send("a", transactional(number))
    return scene


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
    assert sum("↻ tx" in line or "↻ transactional" in line for line in lines) == 1
    assert "↻  the same on this hop again" in lines
    assert "┊  nothing for some time" in lines
    assert sum("✗ " in line for line in lines if "│" in line) == 1
    assert "✗  a breach of the protocol" in lines
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


STREAMED = """
    0.003000  │◄───────────────────────── parameters ─────────────────────────│
    0.004000  │───────────── 20 × transactional 1/1–20 c\\orders ─────────────►│
  – 0.023000  │                                                               │
    0.024000  │◄────────────────────── ack 20, saved 20 ──────────────────────│
    0.025000  │◄───────────────────────── 3 × ack 20 ─────────────────────────│
  – 0.027000  │                                                               │
    0.028000  │──────────────── transactional 1/21 c\\orders ─────────────────►│
    0.029000  │──────────────── transactional 1/22 c\\orders ─────────────────►│
    0.030000  │◄────────────────────── ack 22, saved 22 ──────────────────────│
    0.031000  │──────────────── transactional 1/25 c\\orders ─────────────────►│
             note gap: #32 numbers 23-24 of sequence 1700000000:1 had not been …
    0.032000  │──────────────── transactional 1/30 c\\orders ─────────────────►│
             note gap: #33 numbers 26-29 of sequence 1700000000:1 had not been …
    0.033000  │──────────────── transactional 1/31 c\\orders ─────────────────►│
    0.034000  │──────────── ↻ 3 × transactional 1/20–22 c\\orders ────────────►│
  – 0.036000  │                                                               │

↻  the same on this hop again
n ×  so many alike in a row; times of the first and the last
"""


def test_equal_packets_in_a_row_are_one_row_with_their_number_and_their_times() -> None:
    assert drawn(streamed(), 80)[4:] == STREAMED.strip("\n").splitlines()


def test_unfolded_each_packet_has_a_row() -> None:
    scene = streamed()
    folded = ladder(scene)
    unfolded = Ladder(KNOWN, unfold=True)
    for sight in scene.sights(KNOWN)[0]:
        unfolded.add(sight)
    label = labelled(scene).label
    rows = [row for row in folded.picture(label).rows if isinstance(row, Rung)]
    assert sum(row.alike for row in rows) == len(scene.packets)
    assert [row.alike for row in unfolded.picture(label).rows if isinstance(row, Rung)] == [1] * len(
        scene.packets
    )


def test_a_long_silence_is_not_folded_away() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in range(1, 7):
        if number == 4:
            scene.now_ns += 2_000 * MILLISECOND
        wire.send("a", transactional(number))
    lines = drawn(scene, 80)
    assert [line.count("3 ×") for line in lines if "tx" in line or "transactional" in line] == [1, 1]
    assert any(line.startswith("       2.0 s") for line in lines)


BROKEN = """
    0.008000  │─── tx 1/1 c\\orders ────►│                         │
    0.009000  │                         │─── tx 1/1 c\\orders ────►│
    0.010000  │◄╌╌╌╌╌╌╌ ✖ reset ╌╌╌╌╌╌╌╌│                         │
    0.011000  │                         ╎╌╌╌╌╌╌╌ ✖ reset ╌╌╌╌╌╌╌╌►│
    0.012000  │◄╌╌╌╌ ✖ 2 × refused ╌╌╌╌╌╎                         │
  – 0.013000  │                         ╎                         │
       1.5 s  ┊                         ┊                         ┊
    1.500000  │                         │● back after 1.5 s
    1.501000  │╌╌╌╌╌╌╌╌ closed ╌╌╌╌╌╌╌╌►│                         │
    1.502000  │╌╌╌ ✖ the link was cut ╌╌│                         │

n ×  so many alike in a row; times of the first and the last
✖  a connection is reset, cut or refused
╌  a connection is closed
╎  a node without any connection, as far as the capture shows
┊  nothing for some time
"""


def broken() -> tuple[Scene, list[Turn]]:
    """Return a scene in which node b loses all its connections, refuses others, and comes back.

    Then a closes one connection, and a link is cut. The list of what the ends did to the connections is returned, too.
    """
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    first.send("a", transactional(1))
    second.send("b", passed_on(transactional(1)))
    a, b, c = (address(letter) for letter in "abc")
    from_a, from_b = first.ends["a"].endpoint, second.ends["b"].endpoint
    began_ns = scene.packets[0].time_ns
    told = [
        (10, b, from_a, Turned.RESETS, 0, ""),
        (11, from_b, c, Turned.RESETS, 1, ""),
        (12, b, a._replace(port=50_001), Turned.REFUSES, 7, ""),
        (13, b, a._replace(port=50_002), Turned.REFUSES, 8, ""),
        (1_500, b, a._replace(port=50_003), Turned.ANSWERS, 9, ""),
        (1_501, a._replace(port=50_003), b, Turned.FINISHES, 9, ""),
        (1_501, b, a._replace(port=50_003), Turned.FINISHES, 9, ""),
        (1_502, a._replace(port=50_004), b, Turned.RESETS, 10, "the link was cut"),
    ]
    return scene, [
        Turn(began_ns + at * MILLISECOND, number, one, other, what, comment)
        for at, one, other, what, number, comment in told
    ]


def test_broken_links_and_nodes_without_a_connection_are_drawn() -> None:
    scene, turns = broken()
    picture = Ladder(KNOWN, turns=turns)
    for sight in scene.sights(KNOWN)[0]:
        picture.add(sight)
    lines = list(picture.lines(labelled(scene).label, 68))
    assert lines[9:] == BROKEN.strip("\n").splitlines()


def test_what_is_not_wanted_and_what_comes_behind_the_last_packet_drawn_is_not_drawn() -> None:
    scene, turns = broken()
    for limit, wanted in ((1_000, lambda turn: turn.connection == 0), (9, lambda _: True)):
        picture = Ladder(KNOWN, limit, turns, wanted)
        for sight in scene.sights(KNOWN)[0]:
            picture.add(sight)
        breaks = [row for row in picture.picture(labelled(scene).label).rows if isinstance(row, Break)]
        assert [row.text for row in breaks] == (["reset"] if limit == 1_000 else [])

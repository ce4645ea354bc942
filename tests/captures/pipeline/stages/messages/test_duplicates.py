"""Whether messages are new, duplicate or in doubt, judged by delivery count and history, including over several
runs.
"""

from __future__ import annotations

from copy import copy
from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from mqproto.captures.files.frame import Interface
from mqproto.captures.pipeline.stages.messages.duplicates import WINDOW_S
from mqproto.edge.exactlyonce import Verdict
from tests.captures.decode.scene import MILLISECOND, Scene, express, passed_on, transactional
from tests.captures.decode.test_analyst import conversations
from tests.captures.decode.test_journeys import encrypted
from tests.captures.pipeline.stages.local import Analysed, Cluster, analyse
from tests.captures.pipeline.stages.table import packet_table


def judged(scene: Scene, **arguments: Any) -> Analysed:
    return analyse(packet_table(scene.packets), **arguments)


def verdicts(found: Analysed) -> list[tuple[str, int]]:
    rows = sorted(found.rows("duplicates"), key=lambda row: row["row_id"])
    return [(row["verdict"], row["delivery_count"]) for row in rows]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.1")
def test_what_comes_again_is_a_duplicate_if_its_receiver_has_answered_for_it_and_in_doubt_if_not() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", express())
    wire.send("a", express())
    wire.ack("c")
    wire.send("a", express())
    assert verdicts(judged(scene)) == [("new", 1), ("in doubt", 2), ("duplicate", 3)]


def test_of_answers_that_are_not_in_the_capture_it_is_not_said_that_there_were_none() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", express())
    wire.ack("c")
    wire.send("a", express())
    scene.packets = [packet for packet in scene.packets if packet.source == wire.ends["a"].endpoint]
    reasons = [row["reason"] for row in judged(scene).rows("duplicates")]
    untold = "it came before, and the captures do not tell that its receiver had answered for it"
    assert sorted(reasons) == ["", untold]


@pytest.mark.parametrize(("lossy", "seldom"), [(0, False), (1, False), (0, True), (1, True)])
def test_of_two_capture_points_the_one_that_has_its_answer_tells(lossy: int, seldom: bool) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", express())
    ack = len(scene.packets)
    wire.ack("c")
    wire.send("a", express())
    twins = list(map(copy, scene.packets))
    for twin in twins:
        twin.interface = Interface(1)
    del (scene.packets, twins)[lossy][ack]
    if seldom:
        del (twins, scene.packets)[lossy][-1]
    scene.packets = [each for both in zip_longest(scene.packets, twins) for each in both if each is not None]
    for number, packet in enumerate(scene.packets, 1):
        packet.number = packet.frame = number
    assert [verdict for verdict, _ in verdicts(judged(scene))] == ["new", "duplicate"]


@pytest.mark.parametrize("answered", [False, True])
def test_arrivals_are_in_the_order_of_their_file_though_the_clock_was_put_back(answered: bool) -> None:
    scene = Scene()
    first, second = scene.wire("a", "c"), scene.wire("a", "c")
    first.send("a", transactional(1))
    if answered:
        first.ack("c")
    for _ in range(2):
        scene.now_ns -= 3_000 * MILLISECOND
        second.send("a", transactional(1))
        scene.now_ns += 2_000 * MILLISECOND
    for frame, packet in enumerate(scene.packets, 1):
        packet.frame = frame
    verdict = "duplicate" if answered else "in doubt"
    assert verdicts(judged(scene)) == [("new", 1), (verdict, 2), (verdict, 3)]


@pytest.mark.parametrize("whole", [False, True])
def test_on_one_connection_of_a_whole_capture_packets_are_in_order_whatever_their_times(whole: bool) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", express())
    wire.ack("c")
    wire.send("a", express()).time_ns -= 3 * MILLISECOND // 2
    found = verdicts(judged(scene, lossless=lambda series: whole))
    assert [verdict for verdict, _ in found] == ["new", "duplicate" if whole else "in doubt"]


def test_each_queue_manager_has_a_history_of_its_own() -> None:
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    first.send("a", transactional(1))
    second.send("b", passed_on(transactional(1)))
    assert verdicts(judged(scene)) == [("new", 1), ("new", 1)]


@pytest.mark.spec("[MS-MQQB] 3.1.6.7")
@pytest.mark.parametrize(
    ("again", "verdict"),
    [
        (express(), Verdict.IN_DOUBT),
        (express(body=b"another"), Verdict.NEW),
        (encrypted(express(body=b"another")), Verdict.IN_DOUBT),
        (transactional(1), Verdict.DUPLICATE),
    ],
)
def test_an_identifier_that_may_be_forgotten_tells_no_duplicate_but_the_number_of_a_sequence_does(
    again: bytes, verdict: Verdict
) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", transactional(1) if verdict is Verdict.DUPLICATE else express())
    wire.ack("c")
    scene.now_ns += (WINDOW_S + 1) * 1_000 * MILLISECOND
    wire.send("a", again)
    assert verdicts(judged(scene)) == [("new", 1), (verdict, 2)]


def test_a_capture_that_lacks_something_knows_no_delivery_count() -> None:
    scene = Scene()
    scene.wire("a", "c").send("a", express())
    [row] = judged(scene, lossless=lambda series: False).rows("duplicates")
    assert row["delivery_count"] is None


@pytest.mark.long
@settings(max_examples=10, deadline=None)
@given(conversations(), st.integers(8, 40))
def test_the_history_of_several_runs_is_that_of_one(scene: Scene, cut: int) -> None:
    whole = judged(scene)
    first, second = Scene(scene.packets[:cut]), Scene(scene.packets[cut:])
    before = judged(first)
    after = judged(second, before=before, cluster=Cluster(3, 7))
    assert counted(before, after) == counted(whole)
    assert remembered(before, after) == remembered(whole)


def counted(*found: Analysed) -> list[tuple[str, str, int | None]]:
    return sorted(
        (row["message"], row["to_key"], row["delivery_count"])
        for each in found
        for row in each.rows("duplicates")
    )


def remembered(*found: Analysed) -> dict[tuple[str, str], int]:
    """Return, for each message, its entry from the last run that has seen it arrive."""
    return {
        (row["message"], row["to_key"]): row["arrivals"] for each in found for row in each.rows("arrivals")
    }

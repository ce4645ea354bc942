from __future__ import annotations

import json
from collections import Counter

import pytest

from mqproto.captures.decode import Analyst, Kind, Summary
from mqproto.captures.decode.views import summary as module
from mqproto.captures.packets import Totals
from mqproto.captures.points import Points
from tests.captures.decode.scene import Scene, express
from tests.captures.decode.story import KNOWN, pinged, story


def counted(scene: Scene) -> Summary:
    analyst, summary = Analyst(KNOWN), Summary(KNOWN)
    for seen in scene.packets:
        summary.add(analyst.take(seen))
    summary.add_findings(analyst.finish())
    return summary


def test_everything_is_counted_by_kind_connection_and_queue() -> None:
    scene = pinged(story())
    summary = counted(scene)
    assert sum(count.packets for count in summary.kinds.values()) == len(scene.packets)
    assert summary.kinds[Kind.TRANSACTIONAL].packets == 5
    assert [(count.client, count.server, count.packets) for count in summary.connections.values()] == [
        ("a", "b", 12),
        ("b", "c", 5),
        ("b", "c", 8),
        ("Pings", "", 1),
    ]
    assert {name: count.packets for name, count in summary.queues.items()} == {"c\\orders": 5}
    assert summary.fault_count == 1
    scene.packets.reverse()
    assert all(count.first_ns <= count.last_ns for count in counted(scene).connections.values())


def test_it_reads_well_and_is_json() -> None:
    summary = counted(story())
    totals = Totals(
        frames=40,
        segment_frames=37,
        other_frames=Counter({"ESP, which is not read": 3}),
        missing_bytes=9,
        gap_count=1,
    )
    text = "\n".join(summary.lines(totals, Points()))
    for words in (
        "40 frames = 37 TCP segments + 0 Pings + 3 other traffic",
        "  3 ESP, which is not read",
        "9 bytes missing in 1 gap",
        "Transactional                   5",
        "   2  b > c",
        "fault wrong-count",
        "note  resend",
    ):
        assert words in text
    shown = json.loads(json.dumps(summary.as_json(totals, Points())))
    assert (shown["faults"], shown["frames"], shown["kinds"]["OrderAck"]["packets"]) == (1, 40, 2)
    assert shown["connections"][0]["client"] == "a"


def test_a_capture_without_packets_has_a_summary() -> None:
    text = "\n".join(counted(Scene()).lines(Totals(), Points()))
    assert text.startswith("no packets")
    assert "nothing was found to be wrong" in text
    assert counted(Scene()).as_json(Totals(), Points())["last_ns"] is None


def test_what_is_counted_by_itself_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNTED_LIMIT", 3)
    monkeypatch.setattr(module, "SHOWN_LIMIT", 2)
    scene = Scene()
    for number in range(6):
        scene.wire("a", "c").send("a", express(message_id=number + 1, destination=100 + number))
    summary = counted(scene)
    assert len(summary.connections) == len(summary.queues) == 4
    assert summary.connections[-2].packets == 15
    assert summary.queues[module.OTHERS].packets == 3
    text = "\n".join(summary.lines(Totals(), Points()))
    assert "... and 2 connections more" in text
    assert "... and 2 queues more" in text

"""The gaps of a capture, in words. Each gap is given with its consequences.

For a capture without gaps, there are no such words.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mqproto.captures.decode.views.quality import (
    NO_FINDING,
    NOTHING,
    as_json,
    found_nothing,
    kinds,
    lacks,
    lines,
)
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.packets import PacketReader
from mqproto.captures.points import Clock, Point
from tests.conformance import ROOT

SAMPLES = ROOT / "captures" / "samples"
LACKING: list[tuple[dict[str, Any], str, str, str]] = [
    (
        {"missing_bytes": 50, "gaps": 1, "lossy": 1, "data_bytes": 150},
        "loss",
        "50 bytes missing in 1 gap, on 1 of 4 connections: 25 % of what is known to have been sent",
        "may have crossed",
    ),
    ({"unread_bytes": 9}, "loss", "9 bytes of packets of which a part is missing", "not known"),
    (
        {"cut_frames": 3, "snaplen": 96},
        "snaplen",
        "3 of 10 frames are cut off after 96 bytes at most",
        "bodies",
    ),
    ({"cut_frames": 3, "by_file": True}, "snaplen", "3 of 10 frames of its files are cut off", "bodies"),
    (
        {"cut_frames": 3, "missing_bytes": 9, "snapped_bytes": 9, "unread_bytes": 4, "cut_packets": 2},
        "snaplen",
        "3 of 10 frames are cut off; 9 bytes of streams are lacking for that; 2 packets are read as far as the capture",
        "bodies",
    ),
    (
        {"one_sided": 2},
        "one side",
        "2 of 4 connections: bytes of one direction only",
        "may have had one",
    ),
    (
        {"one_sided": 2, "halves": 2},
        "one side",
        "another point has the other direction of each",
        "both points together",
    ),
    (
        {"headless": 1},
        "late start",
        "1 of 4 connections: the first packets are missing",
        "which queue managers",
    ),
    ({"untimed_frames": 1}, "no time", "1 of 10 frames have no usable time", "How long"),
    (
        {"back_ns": 3_600_000_000_000},
        "order",
        "the times of frames go back by up to",
        "`reordercap FILE SORTED` puts that right",
    ),
    ({"compared": True}, "clock", "no packet was seen at this point and at another", "cannot be compared"),
    (
        {"clock": Clock("b", -2_000_000, 1_500_000, 7, 12_000)},
        "clock",
        "behind b by 2 ms, and gains 12 µs in each second, within 1.5 ms, by 7 packets that both points saw",
        "below 1.5 ms cannot be told",
    ),
    (
        {"clock": Clock("b", 2_000_000, None, 1)},
        "clock",
        "ahead of b by about 2 ms, by 1 packet of one direction that both points saw",
        "longer than the shortest",
    ),
]


@pytest.mark.parametrize(("counts", "what", "fact", "so"), LACKING, ids=lambda value: str(value)[:20])
def test_what_lacks_is_said_with_what_cannot_be_known(
    counts: dict[str, Any], what: str, fact: str, so: str
) -> None:
    point = Point("a", frames=10, connections=4, **counts)
    [found] = lacks(point)
    assert found.what == what
    assert fact in found.fact
    assert so in found.so
    assert as_json(point)["lacks"] == [found._asdict()]
    assert NOTHING not in "\n".join(lines([point], {}))


def test_the_clock_that_others_are_compared_with_lacks_nothing() -> None:
    assert not [*lacks(Point("a", clock=Clock("a", 0, 0, 9)))]


def test_names_of_strangers_stay_text() -> None:
    hostile = "eth0\x1b[31m\u202e\n"
    for line in lines([Point(hostile, cut_frames=1, clock=Clock(hostile, 1, 1, 1))], {}):
        assert line.isprintable()


def points_of(path: Path) -> list[Point]:
    """Return the counts for each point of a capture."""
    reader = PacketReader(read_capture(path))
    for _ in reader:
        pass
    found = [*reader.points.points.found.values()]
    assert sum(point.frames for point in found) == reader.totals.frames
    assert sum(point.missing_bytes for point in found) == reader.totals.missing_bytes
    return found


def test_of_a_capture_that_has_everything_nothing_is_said_to_lack() -> None:
    [point] = points_of(SAMPLES / "three-hop.pcapng")
    assert not [*lacks(point)]
    assert point.connections == 2
    assert next(lines([point], {"ARP": 3})).endswith(f", 2 connections; {NOTHING}")


def test_frames_that_nobody_looked_into_are_named_instead() -> None:
    reasons = {"ESP, which is not read": 15, "of link type 147, which is not read": 1, "ARP": 3}
    [point] = points_of(SAMPLES / "three-hop.pcapng")
    text = "\n".join(lines([point], reasons))
    assert NOTHING not in text
    said = "15 frames are ESP, which is not read; 1 frame is of link type 147, which is not read"
    assert text.endswith(f", 2 connections\n{said}")
    assert found_nothing(reasons) == f"no findings in what was read; {said}"
    assert found_nothing({"ARP": 3}) == NO_FINDING
    assert kinds({f"EtherType 0x{each:04x}": 2 for each in range(99)}).endswith(
        "; 182 more are of other kinds"
    )


def test_of_a_capture_that_lost_frames_and_began_late_both_are_said() -> None:
    [point] = points_of(SAMPLES / "loss-and-reordering.pcapng")
    assert {each.what for each in lacks(point)} == {"loss", "late start"}
    json.dumps(as_json(point))

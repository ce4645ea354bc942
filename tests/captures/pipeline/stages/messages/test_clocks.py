"""Clocks of capture points, estimated from packets that two of them saw."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mqproto.captures.files.frame import Interface
from mqproto.captures.packets import SeenPacket
from mqproto.captures.pipeline.stages.messages.clocks import CLOCK_PAIRS, CLOCKS, ahead, clocks
from mqproto.captures.pipeline.stages.messages.offsets import DRIFT_LIMIT_PPM, SLACK_NS
from mqproto.captures.pipeline.tables.lists import batch_of
from tests.captures.decode.scene import MILLISECOND, Scene, ordered, transactional
from tests.captures.pipeline.stages.local import analyse
from tests.captures.pipeline.stages.table import packet_table

OFFSETS_NS = st.integers(-(10**12), 10**12)


def seen_twice(scene: Scene, offset_ns: int, transit_ns: list[int]) -> list[SeenPacket]:
    """Return what two capture points see of a connection from a to c: one at a, and one at c with a different clock."""
    there = scene.packets
    scene.packets, scene.now_ns = [], 0
    for place, (packet, way_ns) in enumerate(zip(there, transit_ns, strict=True)):
        from_a = packet.source.port != 1801
        for interface, first in ((Interface(0), from_a), (Interface(1), not from_a)):
            time_ns = packet.time_ns + (0 if first else way_ns) + (offset_ns if interface.number else 0)
            twin = SeenPacket(
                packet.data,
                source=packet.source,
                destination=packet.destination,
                time_ns=time_ns,
                connection=packet.connection,
                interface=interface,
                position=packet.position,
            )
            twin.number = 2 * place + interface.number + 1
            scene.packets.append(twin)
    return scene.packets


def talk(there: int, back: int) -> Scene:
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in range(1, there + 1):
        wire.send("a", transactional(number))
    for number in range(1, back + 1):
        wire.send("c", ordered(number, 100 + number))
    return scene


@settings(max_examples=12, deadline=None)
@given(OFFSETS_NS, st.integers(1, 3), st.integers(1, 3), st.data())
def test_packets_of_both_directions_bound_the_offset(
    offset_ns: int, there: int, back: int, data: st.DataObject
) -> None:
    scene = talk(there, back)
    ways = data.draw(
        st.lists(st.integers(0, 10**9), min_size=len(scene.packets), max_size=len(scene.packets))
    )
    found = analyse(packet_table(seen_twice(scene, offset_ns, ways)))
    reference, other = sorted(found.rows("clocks"), key=lambda row: row["interface"])
    assert (reference["offset_ns"], reference["uncertainty_ns"]) == (0, 0)
    assert abs(other["offset_ns"] - offset_ns) <= other["uncertainty_ns"]
    # By one clock: each may have seen what came first, and what came last.
    times = [packet.time_ns - offset_ns * packet.interface.number for packet in scene.packets]
    drifted_ns = 2 * (max(times) - min(times)) * DRIFT_LIMIT_PPM // 10**6
    rounded_ns = 3
    assert (
        other["uncertainty_ns"]
        <= min(ways[4 : 4 + there]) + min(ways[4 + there :]) + drifted_ns + 5 * SLACK_NS + rounded_ns
    )
    assert other["packets"] == there + back


def test_one_direction_gives_an_offset_without_bounds() -> None:
    scene = talk(2, 0)
    found = analyse(packet_table(seen_twice(scene, 5 * MILLISECOND, [1_000] * len(scene.packets))))
    [row] = [row for row in found.rows("clocks") if row["interface"] == 1]
    assert (row["offset_ns"], row["uncertainty_ns"]) == (5 * MILLISECOND + 1_000, None)


def test_times_of_hops_are_by_one_clock_and_packets_seen_twice_are_no_copies() -> None:
    scene = talk(2, 2)
    found = analyse(packet_table(seen_twice(scene, 3_600 * 10**9, [MILLISECOND] * len(scene.packets))))
    for row in found.rows("hops"):
        assert (row["copies"], row["places"]) == (1, 2)
        assert row["last_ns"] - row["first_ns"] <= MILLISECOND
    assert {row["delivery_count"] for row in found.rows("duplicates")} == {1}


def test_one_capture_point_has_no_clock_to_compare() -> None:
    assert analyse(packet_table(talk(2, 2).packets)).rows("clocks") == []


def pair(a: int, b: int, points: list[tuple[int, int]], *, back: bool = False) -> tuple[Any, ...]:
    """Return what two capture points saw of one direction: how far the second clock was ahead, and when."""
    hop = ("c", "a") if back else ("a", "c")
    times, values = map(list, zip(*points, strict=True))
    return ("s", a, "s", b, *hop, len(points), times, values, times, values)


def test_clocks_are_compared_by_way_of_others_and_parts_are_put_together() -> None:
    parts = [
        [pair(0, 1, [(0, 130_000), (100, 200_000)]), pair(1, 2, [(0, 25_000), (100, 30_000)])],
        [
            pair(0, 1, [(0, 110_000), (100, 180_000)]),
            pair(0, 1, [(0, 70_000), (100, 90_000)], back=True),
            pair(1, 2, [(0, 5_000), (100, 15_000)], back=True),
        ],
    ]
    found = clocks(batch_of(CLOCK_PAIRS, rows) for rows in parts)
    assert found.schema == CLOCKS
    by_place = {row["interface"]: row for row in pa.Table.from_batches([found]).to_pylist()}
    assert (by_place[1]["reference_interface"], by_place[1]["offset_ns"]) == (1, 0)
    assert by_place[0]["offset_ns"] == pytest.approx(-100_000, abs=10)
    assert by_place[0]["uncertainty_ns"] == pytest.approx(10_000 + SLACK_NS, abs=100)
    assert by_place[2]["offset_ns"] == pytest.approx(20_000, abs=10)
    assert by_place[2]["uncertainty_ns"] == pytest.approx(5_000 + SLACK_NS, abs=100)
    assert {place: each.of(0) for place, each in ahead(found).items()} == {
        ("s", place): row["offset_ns"] for place, row in by_place.items()
    }

"""A quota that the disk has no room for is said at the start, and when it comes to that."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.node.room import GROWTH_S, LOOK_S, Room
from simulator.topology import load
from tests.simulator.running import Log, running


def test_it_is_said_at_the_start_and_once_until_it_changes() -> None:
    free = 50
    room = Room(100, lambda: free)
    assert (said := room.look(0, 0)) is not None
    assert said[0] == "room-short"
    assert (said[1]["quota_bytes"], said[1]["free_bytes"]) == (100, 50)
    assert room.look(0, LOOK_S) is None
    assert room.look(60, 2 * LOOK_S) == (
        "room-enough",
        {"quota_bytes": 100, "stored_bytes": 60, "free_bytes": 50},
    )
    free = 30
    assert room.look(60, 2.5 * LOOK_S) is None, "the file system is asked once a minute"
    assert (said := room.look(60, 3 * LOOK_S)) is not None
    assert said[0] == "room-short"


def test_of_a_store_that_grows_it_says_how_long_the_room_lasts() -> None:
    free = 10**6
    room = Room(10_000, lambda: free)
    assert room.look(400, LOOK_S) is None
    assert room.look(1_600, LOOK_S + GROWTH_S) is None
    free = 6_000
    assert (said := room.look(1_600, 2 * LOOK_S + GROWTH_S)) is not None
    assert said[1]["lasts_s"] == 3_000


async def test_a_node_with_a_quota_that_the_disk_does_not_have_warns_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.node.node.free_bytes", lambda folder: 2**20)
    log = Log()
    async with running(load("pair").with_free_ports(), "sender", tmp_path, log):
        line = await log.line("room-short")
    assert line["level"] == "warning"
    assert "quota_bytes" in line["advice"]

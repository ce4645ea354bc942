"""A real disk that another program fills to the last byte, while messages come and go.

It is a small file system in memory, mounted in a namespace that ends with the test. Root may make one, and on most
systems every user may.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Final

import pytest

from tests.conformance import ROOT

WAYS: Final = (["unshare", "-m"], ["unshare", "-rm"], ["sudo", "-n", "unshare", "-m"])
SIZE: Final = "32m"


def way_to_mount() -> list[str] | None:
    """Return the first way in which one process can mount a file system here; None if there is none."""
    for way in WAYS:
        try:
            done = subprocess.run(
                [*way, "mount", "-t", "tmpfs", "room", "/mnt"], capture_output=True, check=False
            )
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return way
    return None


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of the trial."""
    way = way_to_mount()
    if way is None:
        pytest.skip("a small disk cannot be mounted here: run as root, or allow user namespaces")
    folder = tmp_path_factory.mktemp("disk")
    script = (
        f'mount -t tmpfs -o size={SIZE},mode=700 room "$1" && exec "$2" -m tests.simulator.node.fulldisk "$1"'
    )
    done = subprocess.run(
        [*way, "sh", "-c", script, "sh", str(folder), sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5_000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.mark.long
def test_a_node_on_a_full_disk_refuses_in_words_and_lives_on(found: dict[str, Any]) -> None:
    for when in ("refusal", "refused again", "refused after a kill"):
        assert found[when].startswith("the disk is full: make room there, or receive or purge something"), (
            when
        )
    assert found["is full"]
    assert found["accepted"] > 300


def test_receivers_are_served_also_after_a_kill_and_after_a_stop_on_the_full_disk(
    found: dict[str, Any],
) -> None:
    assert (found["received while full"], found["received after a kill"]) == (50, 300)
    assert (found["room was left"], found["status of the stop"]) == (0, 0)
    assert found["received after a stop"] > 0


def test_with_room_again_it_accepts_and_all_that_was_accepted_has_come_once_and_in_order(
    found: dict[str, Any],
) -> None:
    assert (found["refused with room"], found["accepted with room"]) == ("", 100)
    assert not found["is full in the end"]
    assert found["as accepted"]


def test_a_neighbour_keeps_what_the_full_node_does_not_take_and_it_comes_when_there_is_room(
    found: dict[str, Any],
) -> None:
    assert found["as sent"]


def test_a_disk_that_cannot_be_written_is_one_line_and_loses_nothing(found: dict[str, Any]) -> None:
    status, line = found["said about a read-only disk"]
    assert status != "0"
    assert "it is read-only: let this user write to the file and its folder" in line
    assert found["received after it"] == 10

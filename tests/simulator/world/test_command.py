"""The command `mqproto simulate`."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from mqproto.captures.files.pcap import read_capture
from mqproto.captures.packets import read_packets
from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE, run_command
from mqproto.simulator.world import campaign, command as simulating, draw
from mqproto.simulator.world.campaign import run_seeds
from mqproto.simulator.world.report import RunTotals
from mqproto.simulator.world.scenarios.scenario import as_json, from_file
from tests.bench.watch import started_by
from tests.plants import planted
from tests.simulator.typed import COMMAND, TIMEOUT_S, eventually, in_process
from tests.simulator.world.worlds import a_chain


def simulate(*arguments: object) -> int:
    return run_command(["simulate", *map(str, arguments)])


@pytest.mark.long
def test_many_worlds_end_with_a_table_of_what_was_exercised(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 4)
    monkeypatch.setattr(simulating, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert simulate("--seeds", 8, "--processes", 1) == DONE
    printed = capsys.readouterr().out
    for words in (
        "transactional",
        "power loss",
        "duplicates dropped",
        "held behind a gap",
        "outage of a node",
    ):
        assert words in printed
    last = re.fullmatch(
        r"8 worlds, [\d,]+ messages: every invariant held; ([\d,]+) seeds an hour, 1 at a time",
        printed.splitlines()[-1],
    )
    assert last is not None
    # A clock that stands for it: eight worlds in four of its seconds.
    assert last[1] == "7,200"


@pytest.mark.long
def test_processes_share_the_seeds_and_come_to_what_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "SHARE", 3)
    count = 5
    seen: list[int] = []
    shared = run_seeds(0, count, processes=2, progress=lambda summary: seen.append(summary.run_count))
    alone = run_seeds(0, count, processes=1)
    assert shared.run_count == count == seen[-1]
    assert shared.as_json() == alone.as_json()


def test_processes_end_with_the_one_that_started_them() -> None:
    command = [*COMMAND, "simulate", "--seeds", "100000", "--processes", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        # Two that simulate, and one of Python's own that looks after what they share.
        eventually(lambda: len(started_by(process.pid)) == 3, lambda: f"{started_by(process.pid)}")
        started = started_by(process.pid)
        process.terminate()
        try:
            # The pipe ends with the last who has it.
            out, _ = process.communicate(timeout=TIMEOUT_S)
        finally:
            for pid in started:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert (out, process.returncode) == (b"", -signal.SIGTERM)


@pytest.mark.long
def test_broken_worlds_are_named_with_the_command_that_repeats_the_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with planted("forget-to-count-the-hop"):
        assert simulate("--seeds", 60, "--seed", 5, "--processes", 1) == FINDING
        *_, command = capsys.readouterr().out.splitlines()
        assert command.split()[:3] == ["mqproto", "simulate", "--seed"]
        assert run_command(command.split()[1:]) == FINDING
    printed = capsys.readouterr().out
    assert "broken: forwarded as it came, at " in printed
    assert printed.splitlines()[0].startswith("3 nodes, 1 messages, 0 faults")
    assert f"repeat with: {' '.join(command.split())}" in printed


def test_one_world_is_shown_with_its_trace_and_can_be_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "world.json"
    path.write_text(as_json(a_chain()), "utf-8")
    copy = tmp_path / "copy.json"
    assert simulate("--scenario", path, "--trace", "--save", copy) == DONE
    printed = capsys.readouterr().out
    assert "\n0 a start\n" in f"\n{printed}"
    assert "3 nodes, 5 messages, 0 faults, a storm of 5,000 ms" in printed
    assert "every invariant held" in printed
    assert copy.read_text("utf-8").strip() == as_json(a_chain())


@pytest.mark.long
def test_json_is_one_object_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--seeds", 3, "--processes", 1, "--json") == DONE
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 3
    assert found["broken"] == []
    assert found["seeds_per_hour"] > 0
    assert simulate("--seed", 4, "--json") == DONE
    assert json.loads(capsys.readouterr().out)["scenario"] == json.loads(as_json(draw(4)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shrink"], "for one world: give --seed or --scenario"),
        (["--seed", "-1"], "--seed"),
        (["--scenario", "nowhere.json"], "nowhere.json"),
    ],
)
def test_misuse_is_told_in_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["simulate", *arguments]) == MISUSE
    [line] = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_file_that_is_no_scenario_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "world.json"
    path.write_text("{}", "utf-8")
    assert simulate("--scenario", path) == MISUSE
    assert "no scenario" in capsys.readouterr().err


def test_summaries_add_up_and_keep_the_largest() -> None:
    one, other = (
        RunTotals(run_count=2, maxima={"x": 3, "y": 1}),
        RunTotals(run_count=1, maxima={"x": 1, "y": 5}),
    )
    one.tally["received"] = 4
    other.tally["received"] = 3
    one.merge(other)
    assert (one.run_count, one.tally["received"], one.maxima) == (3, 7, {"x": 3, "y": 5})


@pytest.mark.long
def test_one_world_is_written_as_a_capture_the_same_each_time(tmp_path: Path) -> None:
    one, two, cut = (tmp_path / f"{name}.pcapng" for name in ("one", "two", "cut"))
    assert simulate("--seed", 4, "--capture", one) == simulate("--seed", 4, "--capture", two) == DONE
    assert one.read_bytes() == two.read_bytes()
    assert simulate("--seed", 4, "--capture", cut, "--segment-bytes", 500) == DONE
    assert max(len(frame.data) for frame in read_capture(cut)) == 554
    assert [packet.data for packet in read_packets(cut)] == [packet.data for packet in read_packets(one)]


def test_a_scenario_with_a_seed_has_other_dice(tmp_path: Path) -> None:
    path, saved = tmp_path / "world.json", tmp_path / "saved.json"
    path.write_text(as_json(a_chain()), "utf-8")
    assert simulate("--scenario", path, "--seed", 9, "--save", saved) == DONE
    assert from_file(saved) == a_chain(seed=9)


@pytest.mark.long
def test_many_worlds_are_no_capture_and_a_file_that_cannot_be_written_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert simulate("--capture", tmp_path / "all.pcapng") == MISUSE
    assert "--capture are for one world" in capsys.readouterr().err
    assert simulate("--seed", 1, "--captures", tmp_path) == MISUSE
    assert "--captures is for many worlds" in capsys.readouterr().err
    assert simulate("--seeds", 2, "--processes", 1, "--captures", tmp_path / "many") == DONE
    assert len(list((tmp_path / "many").iterdir())) == 4
    capsys.readouterr()
    assert simulate("--seed", 1, "--capture", tmp_path / "nowhere" / "one.pcapng") == MISUSE
    [line] = capsys.readouterr().err.splitlines()
    assert "No such file or directory" in line


def test_a_place_that_cannot_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    file = tmp_path / "no" / "world.json"
    for typed in (["--save", file], [f"--save={file}"]):
        done = in_process("simulate", "--seed", "0", *typed)
        assert (done.status, done.out) == (MISUSE, "")
        assert done.complaint == f"{file}: No such file or directory; make its folder first, or name another"

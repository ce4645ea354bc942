"""A shorter crash run, which also finds faults: a disk that forgets, and a node that does not come back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE, run_command
from mqproto.simulator.rig import crash
from mqproto.simulator.rig.crash import longest_gap_s, run_crash
from mqproto.simulator.rig.observer import NodeCount
from mqproto.simulator.rig.proof import Comparison
from mqproto.simulator.rig.report import CrashReport, FlowReport
from mqproto.simulator.rig.strikes import Stage
from mqproto.simulator.rig.supervisor import NodeProcess, Supervisor
from mqproto.simulator.topology import load, places
from tests.simulator.certificates import over_tls

pytestmark = pytest.mark.usefixtures("forked_programs")

PATIENCE_S = 100.0
"""A time limit in seconds: more than the slowest machine needs for something that takes a few seconds."""


@pytest.mark.long
async def test_nothing_is_lost_though_every_node_is_killed_at_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash, "CATCH_UP_S", PATIENCE_S)
    monkeypatch.setattr(crash, "SETTLE_S", PATIENCE_S)
    report = await run_crash(minutes=0.1, seed=2876, directory=tmp_path)
    assert report.broken == []
    # The first strike of this seed hits all nodes at one instant, and one of them again while it recovers.
    assert all(sum(stages.values()) for stages in report.kills.values()), report.kills
    assert report.at_once
    assert report.again
    for flow in report.flows.values():
        assert flow.comparison.delivered == flow.comparison.sent > 0
    assert stores_in(tmp_path) == []


@pytest.mark.long
async def test_nothing_is_lost_over_tls_either_and_of_what_is_encrypted_and_signed_while_keys_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash, "CATCH_UP_S", PATIENCE_S)
    monkeypatch.setattr(crash, "SETTLE_S", PATIENCE_S)
    topology = over_tls(load("three-node"), tmp_path)
    report = await run_crash(minutes=0.05, seed=2876, directory=tmp_path, topology=topology, keys=True)
    assert report.broken == []
    assert sum(report.rolled.values()), report.rolled
    assert all(sum(stages.values()) for stages in report.kills.values()), report.kills
    for flow in report.flows.values():
        assert flow.comparison.delivered == flow.comparison.sent > 0


async def test_nodes_that_forget_are_found_and_their_stores_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = Supervisor.spawn

    async def spawn_without_memory(supervisor: Supervisor, name: str) -> NodeProcess:
        remove_store(places.store_path(supervisor.directory, name))
        return await spawn(supervisor, name)

    monkeypatch.setattr(Supervisor, "spawn", spawn_without_memory)
    monkeypatch.setattr(crash, "SETTLE_S", 1.0)
    report = await run_crash(minutes=0.05, seed=2876, directory=tmp_path)
    assert any("lost" in promise for promise in report.broken), report.broken
    assert len(stores_in(tmp_path)) == 3


def stores_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.sqlite"))


def remove_store(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


async def test_a_node_that_does_not_come_back_ends_the_run_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = Supervisor.kill

    async def kill_and_take_away(supervisor: Supervisor, name: str) -> NodeProcess:
        node = await kill(supervisor, name)
        replace_by_a_folder(places.store_path(supervisor.directory, name))
        return node

    monkeypatch.setattr(Supervisor, "kill", kill_and_take_away)
    with trio.fail_after(PATIENCE_S):
        report = await run_crash(minutes=10, seed=2876, directory=tmp_path)
    assert any("sqlite: it cannot be opened" in promise for promise in report.broken)
    assert any("is damaged: unable to open" in promise for promise in report.broken)


def replace_by_a_folder(path: Path) -> None:
    if path.is_file():
        path.unlink()
    path.mkdir(exist_ok=True)


def test_a_folder_that_is_not_there_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["crash", "--directory", "/nowhere"]) == MISUSE
    assert (
        "/nowhere: No such file or directory; name another folder with --directory" in capsys.readouterr().err
    )


def test_a_topology_without_the_nodes_and_queues_that_are_used_is_misuse(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_command(["crash", "--topology", "fan-in"]) == MISUSE
    assert "fan-in has no node 'sender'; did you mean 'sender-" in capsys.readouterr().err
    assert run_command(["crash", "--topology", str(tmp_path / "mine.toml")]) == MISUSE
    assert "mine.toml: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("start_s", "end_s", "gap_s"),
    [(10, 13.5, 2.5), (7, 13.5, 3.5), (10, 16, 3), (11, 12, 1), (10.5, 10.5, 0), (14, 15, 1)],
)
def test_a_gap_is_the_longest_part_of_an_interval_in_which_nothing_was_received(
    start_s: float, end_s: float, gap_s: float
) -> None:
    assert longest_gap_s([10.5, 13.0], start_s, end_s) == gap_s


GOOD = Comparison(9, 9, 0, 0, 0, 0, 0, in_doubt=3, in_doubt_delivered=1)


def report_of(
    orders: Comparison = GOOD,
    notes: Comparison = GOOD,
    retained: dict[str, int] | None = None,
    failures: list[str] | None = None,
    rolled: dict[str, int] | None = None,
) -> CrashReport:
    return CrashReport(
        seed=7,
        minutes=10,
        duration_s=612.0,
        flows={
            "orders": FlowReport(True, orders, 4, 1, 3.21, 0.5),
            "notes": FlowReport(False, notes, 0, 0, 1.0, 0.0),
        },
        kills={"sender": dict.fromkeys(Stage, 5)},
        at_once=2,
        again=6,
        nodes={"sender": NodeCount(resent=1_234)},
        retained=retained or {},
        failures=failures or [],
        stores="the/stores",
        rolled=rolled or {},
    )


@pytest.mark.parametrize(
    ("report", "promises"),
    [
        (report_of(replace(GOOD, lost=1)), ["orders: 1 messages lost"]),
        (report_of(replace(GOOD, duplicated=2)), ["orders: 2 messages delivered more than once"]),
        (report_of(replace(GOOD, out_of_order=3)), ["orders: 3 messages out of order"]),
        (report_of(replace(GOOD, torn=1)), ["orders: 1 requests accepted in part"]),
        (report_of(notes=replace(GOOD, lost=1)), ["notes: 1 messages lost"]),
        (report_of(notes=replace(GOOD, duplicated=1, out_of_order=1)), []),
        (
            report_of(retained={"sequence queue 'x' of sender": 1_949}),
            ["1,949 messages still wait in sequence queue 'x' of sender"],
        ),
        (report_of(replace(GOOD, lost=1), failures=["sender: a bug"]), ["sender: a bug"]),
    ],
)
def test_each_broken_promise_is_named_and_is_exit_status_1(
    report: CrashReport,
    promises: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report.broken == promises
    assert status(report, monkeypatch) == (FINDING if promises else DONE)
    out = capsys.readouterr().out
    assert [line.removeprefix("broken: ") for line in out.splitlines() if "broken" in line] == promises
    assert ("mqproto crash --minutes 10 --seed 7" in out) == bool(promises)


def test_the_figures_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(report_of(), monkeypatch) == DONE
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    for line in (
        "sender 5 5 5 5 20",
        "accepted 9 9",
        "lost 0 0",
        "sends in doubt 3 3",
        "of them delivered 1 1",
        "commits in doubt 4 0",
        "longest outage 3.2 s 1.0 s",
        "with all nodes up 0.5 s 0.0 s",
        "retained after calm 0",
    ):
        assert line.split() in lines
    assert ["every", "accepted", "message", "arrived;", "orders", "once", "and", "in", "order"] in lines


def test_with_keys_it_is_said_how_often_they_were_replaced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(failures=["sender: a bug"], rolled={"sender": 5, "destination": 1_002})
    assert status(report, monkeypatch, "--keys") == FINDING
    lines = capsys.readouterr().out.splitlines()
    assert "all encrypted and signed; keys replaced 1,007 times: sender 5, destination 1,002" in lines
    assert lines[-2].endswith("mqproto crash --minutes 10 --seed 7 --keys")


def test_a_program_reads_them_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(report_of(), monkeypatch, "--json") == DONE
    report = json.loads(capsys.readouterr().out)
    assert report["kills"]["sender"]["recovering"] == 5
    assert report["flows"]["orders"]["comparison"]["sent"] == 9
    assert report["broken"] == []


def status(report: CrashReport, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    async def run(*_: object, **__: object) -> CrashReport:
        return report

    monkeypatch.setattr(crash, "run_crash", run)
    return run_command(["crash", *options])

"""In every run, every oracle finds the faults that are planted for it in a node; each blank in the table has a
reason.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mqproto.simulator.fuzz.hostile.plan import HostilePlan
from mqproto.simulator.fuzz.hostile.suite import run_strangers
from mqproto.simulator.rig import crash, demo
from mqproto.simulator.rig.load.workload import orders
from mqproto.simulator.rig.validation import demo as edges, validate
from mqproto.simulator.rig.validation.ends import system
from mqproto.simulator.rig.validation.ends.running import run_ends
from mqproto.simulator.rig.validation.scenario import load as load_scenario
from mqproto.simulator.rig.verdict import BLANKS, RunOracle, judged
from mqproto.simulator.topology import load

WORDS = {
    RunOracle.LOST: "messages lost|are blocked|was accepted, and is lost|no message went this way",
    RunOracle.DOUBLED: "delivered more than once",
    RunOracle.REORDERED: "out of order",
    RunOracle.ALTERED: "messages altered|came out with another body|was never handed in",
    RunOracle.MEMORY: "MB resident, at most 200",
    RunOracle.LOG: "bytes of log",
    RunOracle.THROUGHPUT: "honest throughput was",
}
ELSEWHERE = {
    "edges": {RunOracle.DOUBLED, RunOracle.GROUPS, RunOracle.AUDIT},
    "validate": {RunOracle.DOUBLED, RunOracle.REORDERED, RunOracle.AUDIT},
    "ends": {RunOracle.DOUBLED, RunOracle.ALTERED, RunOracle.AUDIT},
}
"""For each scenario, the oracles that other tests check.

A trigger takes one message at a time, and its history drops repeated messages; test_demo.py plants these faults. The
scenario `ends` stops at the first message that does not arrive; test_ends.py plants the faults that `ends` does not
find before it stops.
"""

PLANTED = {
    "edges": ("altered", "lost"),
    "validate": ("altered", "lost"),
    "ends": ("lost",),
}
"""The faults of messages that are planted in each scenario, which runs once for each string of faults.

A scenario that is not listed runs once, with all faults. Messages after a lost one may not arrive, so a loss hides
other faults.
"""


async def broken_of(scenario: str, folder: Path) -> list[str]:
    """Return the faults that a short run of a scenario finds."""
    if scenario == "demo":
        topology = replace(load("demo"), faults=()).with_free_ports()
        return (await demo.run_demo(orders(400), folder / "demo.pcapng", topology=topology)).broken
    if scenario == "crash":
        return (await crash.run_crash(minutes=0.05, seed=7, directory=folder, kills=False)).broken
    if scenario == "strangers":
        plan = HostilePlan(
            7, 600, ("many sessions",), rounds=1, with_tls=False, patience_s=2, directory=folder
        )
        return (await run_strangers(plan)).broken
    if scenario == "validate":
        [outcome] = await validate.validate({"many": replace(load_scenario("accepted"), messages=40)})
        shutil.rmtree(outcome.logs)
        return list(outcome.promises)
    if scenario == "ends":
        return (await run_ends(folder)).broken
    report = await edges.run_edges_demo(400, seed=3, rounds=0)
    shutil.rmtree(report.folder)
    return report.broken


@pytest.mark.long
@pytest.mark.parametrize("scenario", BLANKS)
async def test_each_oracle_finds_what_is_planted_for_it(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.simulator.rig.supervisor.PROGRAM", "tests.simulator.rig.planted")
    monkeypatch.setattr(demo, "SETTLE_S", 2.0)
    monkeypatch.setattr(edges, "SETTLE_S", 10.0)
    monkeypatch.setattr(system, "PATIENCE_S", 2.0)
    assert all(BLANKS[scenario].values())
    broken: list[str] = []
    for planted in PLANTED.get(scenario, ("lost doubled altered swapped",)):
        monkeypatch.setenv("PLANTED", planted)
        (folder := tmp_path / planted).mkdir()
        broken += await broken_of(scenario, folder)
    for oracle in set(RunOracle) - set(BLANKS[scenario]) - ELSEWHERE.get(scenario, set()):
        assert any(re.search(WORDS[oracle], text) for text in broken), (oracle, broken)


def test_an_oracle_that_did_not_look_is_told_from_one_that_found_nothing() -> None:
    looked = {oracle: list[str]() for oracle in RunOracle}
    assert judged("demo", looked) == []
    del looked[RunOracle.LOG]
    with pytest.raises(AssertionError, match="not all have looked at demo"):
        judged("demo", looked)

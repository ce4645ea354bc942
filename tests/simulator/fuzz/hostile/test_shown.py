"""`mqproto fuzz strangers` on the command line: a line for each attack, the broken bounds, and the status."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE, run_command
from mqproto.simulator.fuzz.hostile import suite
from mqproto.simulator.fuzz.hostile.plan import HostilePlan
from mqproto.simulator.fuzz.hostile.verdict import Ordeal, Report
from mqproto.simulator.fuzz.tactics.outofturn import TACTICS
from tests.conformance import ROOT
from tests.simulator.fuzz.hostile.test_verdict import an_ordeal


def ending_with(monkeypatch: pytest.MonkeyPatch, *ordeals: Ordeal) -> list[HostilePlan]:
    """Make each run end with these attacks; return a list that collects the requested plans."""
    plans = []

    async def run(plan: HostilePlan, show: Callable[[Ordeal], None]) -> Report:
        plans.append(plan)
        for ordeal in ordeals:
            show(ordeal)
        return Report(plan.seed, plan.timed, list(ordeals), seconds=3, stores="/stores")

    monkeypatch.setattr(suite, "run_strangers", run)
    return plans


def test_a_run_in_which_all_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = ending_with(monkeypatch, an_ordeal())
    arguments = ["--minutes", "1", "--seed", "7", "--only", "forged sources", "--only", "Pings", "-d", "here"]
    assert run_command(["fuzz", "strangers", *arguments]) == DONE
    assert plans == [HostilePlan(7, 60, ("forged sources", "Pings"), directory=Path("here"))]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("held   forged sources, one attacker, at sender: 1 cases")
    assert lines[-1] == "nothing honest was lost, doubled, out of order or blocked"
    assert "/stores" not in "\n".join(lines)


def test_what_does_not_hold_is_said_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ordeal = an_ordeal()
    ordeal.recovered_s = None
    ending_with(monkeypatch, an_ordeal(), ordeal)
    assert run_command(["fuzz", "strangers", "--seed", "7"]) == FINDING
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("FAILED")
    assert "stores and logs: /stores" in lines
    assert lines[-1].startswith(
        "broken: forged sources, one attacker, at sender: honest messages are blocked"
    )
    assert lines[-1].endswith("again: mqproto fuzz strangers --seed 7 --only 'forged sources'")


def test_programs_get_json_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ending_with(monkeypatch, an_ordeal())
    assert run_command(["fuzz", "strangers", "--seed", "7", "--json"]) == DONE
    report = json.loads(capsys.readouterr().out)
    assert report["broken"] == []
    assert report["attacks"][0]["spent"]["cases"] == 1


def test_every_attack_is_listed_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["fuzz", "strangers", "--list"]) == DONE
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["attack", "what", "it", "does"]
    listed = dict(line.split("  ", 1) for line in lines)
    assert list(listed) == list(TACTICS)
    assert all(what.strip().endswith(".") for what in listed.values())
    shown = (ROOT / "docs/why/what-an-attack-costs.md").read_text("utf-8")
    assert set(re.findall('strangers --only "(.+)"', shown)) == {"forged sources"} < set(listed)


def test_a_name_that_is_no_attack_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["fuzz", "strangers", "--only", "tickling"]) == MISUSE
    assert "no attack is called 'tickling'" in capsys.readouterr().err

"""A short run of `mqproto fuzz strangers`, and tests that show that it finds harmful faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqproto.simulator.fuzz.hostile import plan as plans, suite
from mqproto.simulator.fuzz.hostile.chain import topology_of
from mqproto.simulator.fuzz.hostile.plan import HostilePlan
from mqproto.simulator.fuzz.hostile.suite import run_strangers
from mqproto.simulator.fuzz.hostile.verdict import Ordeal
from mqproto.simulator.topology import Topology
from tests.simulator.fuzz.hostile.test_verdict import an_ordeal

pytestmark = pytest.mark.usefixtures("forked_programs")

PATIENCE_S = 100.0
"""A time limit in seconds: more than the slowest machine needs for something that takes a few seconds."""


@pytest.fixture(autouse=True)
def short_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "SHORTEST_S", 0.3)


@pytest.mark.long
async def test_honest_messages_come_through_attacks(tmp_path: Path) -> None:
    plan = HostilePlan(seed=7, seconds=1, rounds=2, timed=False, patience_s=PATIENCE_S, directory=tmp_path)
    report = await run_strangers(plan)
    assert report.broken == []
    assert [ordeal.form for ordeal in report.ordeals] == [
        "one attacker",
        "16 attackers at 16 addresses",
        "one at a neighbour's address",
        "one at a neighbour's address",
    ]
    for ordeal in report.ordeals:
        assert ordeal.spent.cases
        assert ordeal.during_per_s
        assert set(ordeal.nodes) == {"sender", "intermediate", "destination"}
        assert all(figures.peak_bytes for figures in ordeal.nodes.values())
    assert entries_of(tmp_path) == [], "stores stay only where something does not hold"


def entries_of(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_harm_is_found_where_an_address_proves_who_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TLS, a caller from a neighbour's own address counts as that neighbour, and may send before the real
    neighbour's messages.
    """

    def without_tls(network: str, folder: Path, *, tls: bool) -> Topology:
        return topology_of(network, folder, tls=False)

    monkeypatch.setattr(suite, "topology_of", without_tls)
    monkeypatch.setattr(plans, "PLAIN_FORMS", plans.TLS_FORMS)
    plan = HostilePlan(
        seed=9,
        seconds=3,
        only=("a sequence beyond a neighbour's",),
        with_tls=False,
        timed=False,
        patience_s=1,
        directory=tmp_path,
    )
    report = await run_strangers(plan)
    assert any("never sent" in wrong for wrong in report.broken), report.broken
    assert all("--seed 9 --only" in wrong for wrong in report.broken)
    assert len(entries_of(tmp_path)) == 1


async def test_an_attack_in_which_too_little_came_is_repeated_and_the_longer_one_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths = []

    class SlowAtFirst:
        def __init__(self, *about: object) -> None:
            self.ordeal = an_ordeal()

        async def run(self, seconds: float) -> Ordeal:
            lengths.append(seconds)
            self.ordeal.during_per_s = 100 if len(lengths) == 1 else 900
            return self.ordeal

    monkeypatch.setattr(suite, "Round", SlowAtFirst)
    anything: Any = None
    ordeal = await suite.tried(
        anything, anything, HostilePlan(seed=7, seconds=600), "Pings", plans.PLAIN_FORMS[0]
    )
    assert lengths == [3, 9]
    assert ordeal.during_per_s == 900
    lengths.clear()
    plan = HostilePlan(seed=7, seconds=600, timed=False)
    await suite.tried(anything, anything, plan, "Pings", plans.PLAIN_FORMS[0])
    assert lengths == [3]

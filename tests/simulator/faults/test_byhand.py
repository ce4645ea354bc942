"""Hands within the process of `mqproto run`; their socket is in tests/simulator/command/test_running.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.faults.byhand import Deed, Hands
from simulator.faults.links import Links
from simulator.faults.supervisor import Supervisor
from simulator.topology import load

TOPOLOGY = load("three-node")
ENDS = ("sender", "intermediate")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def hands(tmp_path: Path, said: list[str]) -> Hands:
    return Hands(Supervisor(TOPOLOGY, tmp_path), Links(TOPOLOGY), said.append)


async def test_what_is_broken_is_known_until_it_is_mended(hands: Hands, said: list[str]) -> None:
    cut = await hands.carry_out(Deed.CUT, ["Intermediate", "sender"])
    assert [effect.undone_by for effect in cut.effects] == ["mend sender intermediate"]
    assert hands.broken == {ENDS: Deed.CUT}
    assert "was cut before" in (await hands.carry_out(Deed.CUT, ["sender"])).effects[0].text
    await hands.carry_out(Deed.STALL, ["sender"])
    assert hands.broken == {ENDS: Deed.STALL}
    mended = await hands.carry_out(Deed.MEND)
    assert (len(mended.effects), hands.broken) == (len(TOPOLOGY.links), {})
    assert said[-2:] == ["sender-intermediate is mended", "intermediate-destination was whole"]


async def test_a_link_that_is_stalled_after_a_cut_is_cut_no_more(tmp_path: Path) -> None:
    links = Links(TOPOLOGY)
    hands = Hands(Supervisor(TOPOLOGY, tmp_path), links, print)
    for deed, refuses in ((Deed.CUT, True), (Deed.STALL, False), (Deed.CUT, True), (Deed.MEND, False)):
        await hands.carry_out(deed, ENDS)
        assert {proxy.is_refusing for proxy in links.between(*ENDS).proxies} == {refuses}


async def test_who_is_killed_though_it_does_not_run_stays_down(hands: Hands) -> None:
    await hands.carry_out(Deed.KILL, ["destination", "DESTINATION"])
    done = await hands.carry_out(Deed.KILL, ["destination"])
    assert (done.effects[0].text, hands.down) == ("destination: did not run, and stays down", ["destination"])


@pytest.mark.parametrize("deed", Deed)
async def test_nothing_is_done_if_one_of_the_nodes_is_not_there(
    hands: Hands, said: list[str], deed: Deed
) -> None:
    done = await hands.carry_out(deed, ["sender", "sendr"])
    assert (done.effects, done.is_misuse) == ([], True)
    assert "did you mean 'sender'" in done.failure
    assert not said


async def test_who_is_to_be_killed_has_to_be_named(hands: Hands) -> None:
    assert (await hands.carry_out(Deed.KILL)).failure == "kill: name a node"


async def test_links_that_have_no_proxies_cannot_be_broken(tmp_path: Path) -> None:
    hands = Hands(Supervisor(TOPOLOGY, tmp_path), None, print)
    assert not hands.has_breakable_links
    assert (await hands.carry_out(Deed.CUT, ENDS)).failure.endswith("start it with --breakable")

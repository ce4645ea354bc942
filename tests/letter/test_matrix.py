"""A short form of the matrix, with one of the cells in which our node and the peer interoperate.

`make letter` runs all cells.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
import trio.testing

from mqproto.simulator.topology import load

from .audit import audit
from .cell import PATIENCE_S
from .endings import Endings
from .matrix import CANNOT, DECLARED, NONE, UNDECLARED, Case, cases, cell, declared_cases, verdict
from .node import OURS
from .peer.switches import Switches

LIVE = [
    case for case in cases() if case.label not in CANNOT and case.story == "exchange" and case.name != NONE
]
SWITCH = os.environ.get("MQPROTO_LETTER_SWITCH", "acks_at_33rd")


@pytest.mark.long
@pytest.mark.parametrize("declared", [True, False], ids=[DECLARED, UNDECLARED])
@pytest.mark.parametrize("name", [SWITCH])
def test_our_node_lives_with_a_switch(name: str, declared: bool, tmp_path: Path) -> None:
    [case] = [case for case in LIVE if (case.name, case.declared) == (name, declared)]
    it = cell(case, tmp_path, messages=5, cuts=2, seed=0)
    trio.run(it.run)
    assert verdict(case.label, it.faults) == "ok", it.faults


@pytest.mark.long
def test_what_our_node_gave_up_and_the_peer_had_is_no_dead_letter_in_the_end(tmp_path: Path) -> None:
    [case] = [case for case in declared_cases() if case.story == "in doubt"]
    it = cell(case, tmp_path, messages=0, cuts=0, seed=0)
    trio.run(it.run)
    assert it.faults == []


@pytest.mark.long
def test_a_stranger_hears_of_what_is_refused_and_is_known_when_it_comes_back(tmp_path: Path) -> None:
    it = cell(Case(NONE, "endings", declared=False), tmp_path, messages=0, cuts=0, seed=0)
    assert isinstance(it, Endings)
    it.node.write_topology()
    trio.run(it.to_ours)
    assert it.faults + audit(OURS, it.heard) == []


async def test_what_holds_when_the_time_for_it_is_over_is_no_fault(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """On a busy machine, the deadline passes at the moment at which the last packet arrives."""
    it, over = Endings(tmp_path, "127.0.0.1", "127.0.0.2", Switches()), trio.current_time() + PATIENCE_S
    await it.wait("late", it.peer(), lambda: trio.current_time() >= over)
    assert it.faults == []


def test_what_cannot_live_with_ours_is_a_case_of_the_matrix() -> None:
    assert CANNOT.keys() <= {case.label for case in cases()}


def test_our_node_knows_the_settings_of_every_cell(tmp_path: Path) -> None:
    for case in cases():
        it = cell(case, tmp_path, messages=1, cuts=0, seed=0)
        it.node.write_topology()
        assert load(it.node.topology).nodes.keys() == {"ours", *["letter"] * case.declared}, case.label

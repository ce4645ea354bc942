"""Nodes that read the specification differently lose nothing, duplicate nothing and stall nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqproto.simulator.world import Fault, draw, simulate
from mqproto.simulator.world.faults.readings import READINGS
from tests.plants import planted
from tests.simulator.world.worlds import a_burst, a_chain


def otherwise(where: str, value: int) -> Fault:
    return Fault(at_ms=0, kind="order acks otherwise", where=where, value=value)


@pytest.mark.parametrize("value", range(len(READINGS)), ids=[reading.__name__ for reading in READINGS])
def test_destinations_that_tell_a_number_alone_lose_nothing_and_stall_nobody(value: int) -> None:
    bursts = [
        a_burst(at_ms=10 + 400 * turn, kind=kind, count=7)
        for turn, kind in enumerate(("transactional", "final ack") * 5)
    ]
    faults = [
        Fault(at_ms=700 + 900 * turn, kind="kill", where=where, for_ms=200)
        for turn, where in enumerate("acbac")
    ]
    scenario = a_chain(
        *bursts, faults=(otherwise("c", value), *faults), settings={"resend_timeouts_short_s": 1}
    )
    result = simulate(scenario)
    assert result.breach is None
    assert result.tally["received"] == 70
    assert result.tally["order ack otherwise"] > 0


@pytest.mark.parametrize("seed", [3, 4, 9, 11])
def test_drawn_worlds_hold_with_all_nodes_of_other_readings(seed: int) -> None:
    scenario = draw(seed)
    drawn = (fault for fault in scenario.faults if fault.kind != "order acks otherwise")
    others = (otherwise(name, seed + place) for place, name in enumerate(scenario.nodes))
    result = simulate(replace(scenario, faults=(*drawn, *others)))
    assert result.breach is None, f"seed {seed}"
    assert result.tally["order ack otherwise"] > 0


def test_if_numbers_began_again_a_late_word_would_confirm_what_has_not_arrived() -> None:
    with planted("begin-numbers-again-whatever-was-said"):
        result = simulate(draw(279))
    assert result.breach is not None
    assert simulate(draw(279)).breach is None

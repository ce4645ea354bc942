"""Each kind of life happens in the worlds of some seeds: not only drawn, but lived through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.world import Consumer, draw, simulate
from tests.simulator.world.worlds import a_burst, a_chain


def test_several_consumers_of_a_queue_give_back_in_any_order() -> None:
    scenario = draw(67)
    assert any(len(consumer.holds_ms) > 1 for consumer in scenario.consumers)
    result = simulate(scenario)
    assert result.breach is None
    assert result.tally["given back behind others"] > 0


@pytest.mark.parametrize("holds_ms", [(), (10, 300, 100)])
def test_a_consumer_holds_what_it_has_as_long_as_it_is_its_turn_to(holds_ms: tuple[int, ...]) -> None:
    """The first one gives back last."""
    common = Consumer(node="c", queue="orders", limit=2, rolls_back_every=1)
    consumers = (replace(common, hold_ms=500), replace(common, holds_ms=holds_ms, hold_ms=5))
    result = simulate(a_chain(a_burst(count=8, together=True), consumers=consumers))
    assert result.breach is None
    assert result.tally["received"] == 8
    assert result.tally["given back behind others"] > 0


def test_what_is_over_leaves_gaps_that_are_bridged_and_bridged_again() -> None:
    result = simulate(draw(31))
    assert result.breach is None
    assert result.tally["bridged"] > 0
    assert result.tally["bridged again"] > 0

"""The checker is checked: each fault planted in the core is found, and a small world is left of it."""

from __future__ import annotations

import pytest

from mqproto.base.errors import UsageError
from mqproto.session import Session
from simulator.world import draw, invariants, simulate
from simulator.world.plants import PLANTS, planted
from simulator.world.shrink import shrink

SEEDS = 1_000
"""Within so many worlds each fault has to be found."""
LIKELY = (5, 7, 21, 47, 3, 8, 172, 14, 37, 17, 2)
"""Seeds that found all of them when this was written, in the order that took least time; they are tried first."""


@pytest.mark.parametrize("name", PLANTS)
def test_each_planted_fault_is_found(name: str) -> None:
    with planted(name) as plant:
        for seed in (*LIKELY, *(seed for seed in range(SEEDS) if seed not in LIKELY)):
            breach = simulate(draw(seed)).breach
            if breach is not None:
                assert breach.invariant in plant.found_by, f"seed {seed}: {breach}"
                return
    pytest.fail(f"{SEEDS} worlds have not found {name}")


def test_each_plant_names_invariants_that_there_are_and_each_invariant_has_one() -> None:
    named = {name for plant in PLANTS.values() for name in plant.found_by}
    assert {name for name in named if not hasattr(invariants, name)} == {"no_error_of_our_own"}
    assert len(PLANTS) >= 12


def test_a_planted_fault_is_gone_when_its_block_ends() -> None:
    sound = vars(Session)["room"]
    with planted("ignore-the-window"):
        assert vars(Session)["room"] is not sound
    assert vars(Session)["room"] is sound


def test_an_unknown_fault_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"no fault is called 'gremlin'; there are: acknowledge-before"):
        planted("gremlin").__enter__()


@pytest.mark.parametrize(
    ("name", "seed"), [("ignore-the-window", 0), ("deliver-duplicates", 0), ("lose-on-withdraw", 3)]
)
def test_a_world_that_breaks_shrinks_to_a_few_nodes_and_messages(name: str, seed: int) -> None:
    with planted(name):
        result = simulate(draw(seed))
        assert result.breach is not None
        smallest = shrink(result)
        assert smallest.breach is not None
        assert smallest.breach.invariant == result.breach.invariant
        assert len(smallest.scenario.nodes) <= 3
        assert smallest.scenario.message_count <= 10
        assert len(smallest.scenario.faults) <= 2
        again = simulate(smallest.scenario)
        assert again.breach == smallest.breach, "what is printed can be repeated"

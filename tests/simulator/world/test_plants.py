"""The checker is checked: each planted fault is found, and a small world is left of it."""

from __future__ import annotations

from types import ModuleType

import pytest

from mqproto.base.errors import UsageError
from mqproto.session import Session
from simulator.world import draw, invariants, simulate
from simulator.world.plants import PLANTS, planted
from simulator.world.plants.table import SEEDS, first_found, main
from simulator.world.shrink import shrink

LIKELY = (0, 2, 4, 3, 11, 7, 5, 8, 6, 100, 83, 14, 17, 47, 22, 49, 42, 163, 181, 10, 82, 43, 15, 16, 538, 20)
"""Seeds that found all of them when this was written, in the order that took least time; they are tried first."""


@pytest.mark.parametrize("name", PLANTS)
def test_each_planted_fault_is_found(name: str) -> None:
    found = first_found(name, (*LIKELY, *(seed for seed in range(SEEDS) if seed not in LIKELY)))
    assert found is not None, f"{SEEDS} worlds have not found it"
    seed, breach = found
    assert breach.invariant in PLANTS[name].found_by, f"seed {seed}: {breach}"


def test_each_plant_names_invariants_that_there_are_and_each_invariant_has_one() -> None:
    named = {name for plant in PLANTS.values() for name in plant.found_by}
    assert {name for name in named if not hasattr(invariants, name)} == {"no_error_of_our_own"}
    assert len(PLANTS) >= 12


def test_what_says_what_a_store_must_have_is_never_damaged() -> None:
    watching = {
        "simulator.storage.disk",
        *(f"simulator.world.{name}" for name in ("files", "invariants", "ledger")),
    }
    for plant in PLANTS.values():
        owner = plant.owner
        module = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
        assert module not in watching


def test_a_table_tells_the_first_seed_that_finds_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forget-to-count-the-hop", "commit-last"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "fault                     seed  invariant",
        "forget-to-count-the-hop      0  forwarded_as_it_came",
        "commit-last                  0  accepted_is_on_disk",
    ]
    with pytest.raises(UsageError, match="no fault is called 'gremlin'; there are: acknowledge-before"):
        main(["gremlin"])


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

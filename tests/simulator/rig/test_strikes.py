from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from mqproto.simulator.rig.strikes import DELAYS_S, SPREAD_S, Stage, strikes

NODES = ("sender", "intermediate", "destination")


def test_a_seed_makes_the_same_strikes_again_and_another_makes_others() -> None:
    first, again, other = (list(islice(strikes(seed, NODES), 50)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


@pytest.mark.parametrize("seed", range(5))
def test_every_node_is_killed_at_every_stage_alone_with_others_and_at_one_instant(seed: int) -> None:
    aims: Counter[tuple[str, Stage]] = Counter()
    victims: Counter[int] = Counter()
    at_once = 0
    for strike in islice(strikes(seed, NODES), 200):
        victims[len(strike.kills)] += 1
        at_once += strike.at_once
        for name, (first, *others) in strike.kills.items():
            assert first.aim is Stage.RUNNING
            assert 0 <= first.after_s <= SPREAD_S
            for kill in others:
                assert 0 <= kill.after_s <= DELAYS_S[kill.aim]
            aims.update((name, kill.aim) for kill in (first, *others))
    assert set(aims) == {(name, stage) for name in NODES for stage in Stage}
    assert set(victims) == {1, 2, 3}
    assert 0 < at_once < victims[2] + victims[3]


def test_a_world_of_one_node_has_strikes_too() -> None:
    assert all(set(strike.kills) == {"alone"} for strike in islice(strikes(7, ["alone"]), 50))

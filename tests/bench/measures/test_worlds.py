"""The measure of simulated worlds."""

from __future__ import annotations

import statistics

import pytest

from simulator.world.faults.table import FAULTS
from simulator.world.plants import planted
from tests.bench.measures.worlds import ROUNDS, WANTED_PER_S, a_chain, bench_worlds, with_faults


def test_worlds_with_and_without_faults_are_measured_in_turns() -> None:
    figures = bench_worlds(worlds=2)
    assert (figures.worlds, figures.nodes, figures.messages) == (2, 3, 100)
    assert figures.faults >= 1
    assert len(figures.calm_per_s) == len(figures.faulted_per_s) == ROUNDS
    assert min(*figures.calm_per_s, *figures.faulted_per_s) > 0
    assert figures.runs_per_s == statistics.median(figures.faulted_per_s)
    assert figures.wanted_per_s == WANTED_PER_S


def test_the_faults_are_those_that_are_drawn_and_belong_to_the_seed() -> None:
    scenarios = [with_faults(a_chain(seed)) for seed in range(200)]
    kinds = {fault.kind for scenario in scenarios for fault in scenario.faults}
    # A chain has no second way: no node can choose, and without one of its links it would be in two. What is accepted
    # before a store goes back need not arrive, and a benchmark counts what does. Impostors, those who read
    # OrderAcks otherwise and those who refuse messages are drawn beside the faults.
    beside = {"impostor", "order acks otherwise", "picky", "new keys", "withdraw keys"}
    assert kinds == {*FAULTS} - {"reroute", "detour", "cut", "put back"} - beside
    assert scenarios[:20] == [with_faults(a_chain(seed)) for seed in range(20)]


def test_no_figure_is_given_of_worlds_that_break_a_promise() -> None:
    with planted("forget-to-count-the-hop"), pytest.raises(AssertionError, match="forwarded as it came"):
        bench_worlds(worlds=1)

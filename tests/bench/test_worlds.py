from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.bench import worlds
from tests.bench.figures import Options


async def test_worlds_with_and_without_faults_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "QUICK_WORLDS", 1)
    result = await worlds.measure(Options(rounds=2, quick=True), lambda text: None)
    faulted, calm = result.figures
    assert (faulted.at_least, calm.name, calm.at_least) == (worlds.WANTED_PER_S, "without faults", None)
    assert len(faulted.values) == len(calm.values) == 2
    assert min(*faulted.values, *calm.values) > 0


def test_the_faults_belong_to_the_seed() -> None:
    scenarios = [worlds.with_faults(worlds.a_chain(seed)) for seed in range(20)]
    assert scenarios == [worlds.with_faults(worlds.a_chain(seed)) for seed in range(20)]
    assert sum(bool(scenario.faults) for scenario in scenarios) > 10


async def test_no_figure_is_given_of_worlds_that_break_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "simulate", lambda scenario: SimpleNamespace(breach="forwarded as it came"))
    with pytest.raises(AssertionError, match="forwarded as it came"):
        await worlds.measure(Options(quick=True), lambda text: None)

"""The attacks to run: those that once did harm come first.

All attacks are run in one form before any attack is run in another form.
"""

from __future__ import annotations

from itertools import islice

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.fuzz.hostile.plan import (
    KNOWN,
    LONGEST_S,
    MANY,
    PLAIN_FORMS,
    RESTARTS,
    SHORTEST_S,
    TLS_FORMS,
    HostilePlan,
)
from mqproto.simulator.fuzz.tactics.outofturn import HELD, TACTICS


def test_every_tactic_is_run_and_then_again_in_another_form() -> None:
    plan = HostilePlan(seed=7, seconds=60)
    first = list(islice(plan.attacks(tls=False), 2 * len(TACTICS)))
    names = [name for name, _ in first]
    assert tuple(names[: len(KNOWN)]) == KNOWN
    assert sorted(names[: len(TACTICS)]) == sorted(TACTICS)
    assert names[len(TACTICS) :] == names[: len(TACTICS)]
    assert all(first[at][1] != first[at + len(TACTICS)][1] for at in range(len(TACTICS)))
    assert {form for _, form in first} == {*PLAIN_FORMS, MANY}
    assert [form for name, form in first if name == HELD] == [MANY, PLAIN_FORMS[1]]


def test_the_seed_makes_the_order() -> None:
    def order(seed: int) -> list[str]:
        return [name for name, _ in islice(HostilePlan(seed, 60).attacks(tls=False), len(TACTICS))]

    assert order(7) == order(7) != order(8)


def test_what_is_asked_for_alone_is_run_in_all_forms() -> None:
    plan = HostilePlan(seed=7, seconds=60, only=("Pings",))
    assert {form for _, form in plan.attacks(tls=False)} == set(PLAIN_FORMS)
    assert list(plan.attacks(tls=True)) == [("Pings", form) for form in TLS_FORMS]
    with pytest.raises(UsageError, match=r"no attack is called 'pings'; there are: .*, Pings, "):
        HostilePlan(seed=7, seconds=60, only=("pings",))


@pytest.mark.parametrize(("seconds", "attack_s"), [(1, SHORTEST_S), (600, 3), (86_400, LONGEST_S)])
def test_an_attack_lasts_as_long_as_there_is_time_for(seconds: float, attack_s: float) -> None:
    assert HostilePlan(seed=7, seconds=seconds).attack_s == attack_s


def test_the_names_that_are_known_are_those_of_tactics() -> None:
    assert set(KNOWN) | set(RESTARTS) <= set(TACTICS)

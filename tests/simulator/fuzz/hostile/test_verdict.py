"""The limits on what an attack may cost: each limit is tested at its value, and just beyond it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqproto.simulator.fuzz.hostile.attackers import Spent
from mqproto.simulator.fuzz.hostile.verdict import (
    ANSWER_S,
    RECOVERY_S,
    Ordeal,
    Report,
)
from mqproto.simulator.rig.observer import LOG_LIMIT_BYTES, MEMORY_LIMIT_BYTES, NodeUsage
from mqproto.simulator.rig.verdict import RunOracle


def an_ordeal() -> Ordeal:
    """Return an attack that reaches every bound, and exceeds none."""
    return Ordeal(
        tactic="forged sources",
        form="one attacker",
        node="sender",
        seconds=2.0,
        spent=Spent(cases=1),
        before_per_s=1_000,
        during_per_s=500,
        recovered_s=RECOVERY_S,
        answer_s=ANSWER_S,
        nodes={"sender": NodeUsage(peak_bytes=MEMORY_LIMIT_BYTES, log_bytes=LOG_LIMIT_BYTES)},
    )


def more_memory(ordeal: Ordeal) -> None:
    ordeal.nodes["destination"] = NodeUsage(peak_bytes=MEMORY_LIMIT_BYTES + 10**6, first_bytes=90 * 10**6)


def more_log(ordeal: Ordeal) -> None:
    ordeal.nodes["sender"].log_bytes += 1


def fewer_messages(ordeal: Ordeal) -> None:
    ordeal.during_per_s = 499


def slower(ordeal: Ordeal) -> None:
    ordeal.recovered_s = RECOVERY_S + 0.1


def blocked(ordeal: Ordeal) -> None:
    ordeal.recovered_s = None


def asked_in_vain(ordeal: Ordeal) -> None:
    ordeal.answer_s = ANSWER_S + 0.1


def not_attacked(ordeal: Ordeal) -> None:
    ordeal.spent = Spent()


def lost(ordeal: Ordeal) -> None:
    ordeal.found[RunOracle.LOST].append("orders: 3 messages lost")


CASES: list[tuple[Callable[[Ordeal], None], str, bool]] = [
    (more_memory, "destination had 201 MB resident, at most 200; 90 when it began", False),
    (more_log, "sender wrote 262,145 bytes of log, at most 262,144", False),
    (fewer_messages, "honest throughput was 499 a second, 50% of 1,000 before, at least 50%", True),
    (slower, "all had come 10.1 s after the attack, at most 10 s", True),
    (blocked, "honest messages are blocked after the attack", False),
    (asked_in_vain, "`queues` of sender took 5.1 s, at most 5 s", True),
    (not_attacked, "nobody attacked: no case was begun", False),
    (lost, "orders: 3 messages lost", False),
]
"""Each change, what is said about it, and whether that depends on the machine's speed."""


def test_what_is_at_its_bounds_holds() -> None:
    assert an_ordeal().broken(timed=True) == []
    assert an_ordeal().line(timed=True).startswith("held   forged sources, one attacker, at sender: 1 cases")


@pytest.mark.parametrize(("change", "wrong", "is_timed"), CASES)
def test_what_is_beyond_a_bound_is_said_with_the_attack_and_how_to_run_it_again(
    change: Callable[[Ordeal], None], wrong: str, is_timed: bool
) -> None:
    ordeal = an_ordeal()
    change(ordeal)
    assert ordeal.broken(timed=True) == [wrong]
    assert ordeal.broken(timed=False) == ([] if is_timed else [wrong])
    assert ordeal.line(timed=True).startswith("FAILED forged sources")
    assert ordeal.line(timed=True).endswith(f"; {wrong}")
    report = Report(seed=7, timed=True, ordeals=[an_ordeal(), ordeal])
    again = "mqproto fuzz strangers --seed 7 --only 'forged sources'"
    assert report.broken == [f"forged sources, one attacker, at sender: {wrong}; again: {again}"]
    assert report.as_json()["attacks"][1]["broken"] == [wrong]


def test_throughput_is_not_judged_while_a_neighbour_restarts() -> None:
    ordeal = an_ordeal()
    ordeal.restarts, ordeal.during_per_s = True, 1
    assert ordeal.broken(timed=True) == []

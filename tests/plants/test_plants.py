"""A check of the checker: each planted fault is found, and its world is reduced to a small one."""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from mqproto.base.errors import UsageError
from mqproto.session import Session
from mqproto.simulator import world as worlds
from mqproto.simulator.world import draw, simulate
from mqproto.simulator.world.oracle import answers, atrest, doubts, intime, invariants, recounts
from mqproto.simulator.world.shrink import shrink
from tests.plants import PLANTS, core, planted, shell
from tests.plants.table import first_found, main

QUICK: Final = {
    "start-where-there-is-room-alone": 5,
    "count-what-the-disk-lost": 139,
    "give-up-what-its-source-repeats": 32,
    "tell-strangers-nothing": 198,
    "give-up-no-place": 22,
    "wait-for-what-the-disk-lost": 29,
    "forget-message-ids-after-a-restart": 8,
    "forget-what-is-held-after-a-restart": 44,
    "order-ack-beyond-a-gap": 14,
    "forget-to-hold": 4,
    "forget-to-resend-after-a-restart": 7,
    "never-resend": 5,
    "keep-everything-in-memory": 20,
    "lose-what-was-in-flight": 11,
    "never-connect-again": 11,
    "ignore-priorities": 6,
    "send-the-lowest-priority-first": 6,
    "ignore-the-quota": 11,
    "lose-dead-letters": 5,
    "leave-letters-to-the-system": 21,
    "send-the-name-as-well": 27,
    "forget-the-journal": 14,
    "forget-administration-acknowledgments": 17,
    "hand-out-what-is-over": 18,
    "expire-too-soon": 8,
    "expire-what-was-sent": 15,
    "give-back-in-front-of-all": 49,
    "resend-as-if-there-were-no-gap": 35,
    "never-make-room-again": 5,
    "resend-what-is-paused": 388,
    "delete-only-what-was-not-sent": 181,
    "forget-all-counts-when-one-message-leaves": 10,
    "drop-what-comes-back": 8,
    "one-page-of-what-is-over": 82,
    "take-flags-for-a-count": 100,
    "remember-by-age-alone": 21,
    "remember-less-than-a-window": 357,
    "drop-what-comes-after-the-first-has-left": 14,
    "compare-counts-that-wrap": 12,
    "forget-when-what-is-passed-on-is-over": 505,
    "resend-only-once": 108,
    "keep-to-a-later-way": 371,
    "pass-on-duplicates": 12,
    "count-one-more-that-is-held": 4,
    "know-only-of-what-is-in-memory": 4,
    "know-one-sender-too-many": 32,
    "clean-up-what-only-sends": 7,
    "take-every-session-for-used": 7,
    "delete-the-names-of-all-queues-with-one": 263,
    "say-late-that-a-queue-is-paused": 11,
    "believe-every-guid": 15,
    "let-a-neighbour-bring-anything": 6,
    "count-claims-as-sessions-of-the-neighbour": 34,
    "use-the-session-of-a-stranger": 15,
    "believe-the-order-ack-of-a-stranger": 4,
    "believe-the-final-ack-of-a-stranger": 43,
    "believe-a-stranger-that-a-message-went-too-far": 43,
    "let-any-neighbour-confirm": 109,
    "answer-strangers-wherever-they-say": 6,
    "remember-what-strangers-send-as-their-names-say": 180,
    "let-a-claim-begin-sequences": 12,
    "let-strangers-speak-in-any-name": 6,
    "open-every-queue-to-strangers": 125,
    "hold-what-strangers-send-early": 6,
    "begin-numbers-again-whatever-was-said": 279,
    "give-every-sequence-the-same-numbers": 9,
    "take-all-numbers-for-ones-own-after-a-restart": 306,
    "take-any-later-number-for-a-proof": 27,
    "believe-that-what-has-arrived-ended-on-its-way": 474,
    "take-the-end-of-a-copy-for-that-of-the-message": 106,
    "take-what-was-set-aside-for-lost": 29,
    "forget-what-is-in-doubt-after-a-restart": 27,
    "keep-what-another-passed-over": 29,
    "believe-nobody-who-was-not-declared": 22,
    "never-call-again-for-answers": 198,
    "have-no-way-to-those-who-were-met": 22,
    "send-in-clear-what-cannot-be-encrypted": 107,
    "keep-session-keys-when-keys-change": 81,
    "lose-the-keys-of-others-with-ones-own": 81,
    "say-of-every-message-that-it-was-verified": 81,
    "forget-to-open-what-was-held": 332,
    "repeat-secrets-in-refusals": 139,
    "send-before-commit": 5,
    "go-on-after-a-commit-that-failed": 7,
    "leave-out-the-flush-of-a-header": 16,
    "remove-a-segment-when-it-is-read": 15,
    "take-a-write-that-failed-for-done": 131,
    "take-a-torn-record-for-whole": 324,
    "take-a-torn-record-for-damage": 63,
    "replay-an-old-segment": 44,
    "lose-what-no-longer-expires": 8,
    "keep-what-went-to-the-tables": 8,
    "pages-that-pass-over-what-does-not-fit": 11,
    "read-what-is-gone": 7,
    "read-the-log-before-the-tables": 4,
    "leave-out-the-flush-of-the-witness": 15,
    "have-the-witness-ahead-of-the-log": 7,
    "have-the-file-of-the-life-ahead-of-the-log": 7,
    "take-only-an-end-for-torn": 1060,
    "never-look-for-what-is-refused": 27,
    "let-no-other-pass-a-suspect": 34,
    "wait-for-what-waits": 807,
    "go-on-with-the-sequence-that-was-found": 51,
    "reuse-the-identifiers-of-another-life": 60,
    "take-a-store-that-was-put-back-for-the-last": 60,
    "ignore-a-destination-that-is-ahead": 121,
    "ignore-a-destination-that-is-behind": 492,
    "say-nothing-of-a-sequence-of-which-nothing-is-here": 492,
}
"""For some faults, the seed that is tried before all others.

It is the lowest seed that found the fault when this was written. Only faults whose seed was above 3 are listed.
"""
SEEDS: Final = 100
"""The number of seeds that are tried after the one in QUICK.

The seed in QUICK may miss its fault, because worlds change with the code. However, most faults are found by many seeds.
"""


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTS)
def test_each_planted_fault_is_found(name: str) -> None:
    found = first_found(name, (QUICK.get(name, 0), *range(SEEDS)))
    assert found is not None, f"put here what `python -m tests.plants {name}` finds"
    seed, breach = found
    assert breach.invariant in PLANTS[name].found_by, f"seed {seed}: {breach}"


def test_each_plant_finds_what_it_replaces() -> None:
    gone = [
        f"{name}: {owner} has no {fault.attribute}"
        for name, fault in PLANTS.items()
        for owner in fault.owners
        if fault.attribute not in vars(owner)
    ]
    assert not gone


def test_each_plant_names_invariants_that_there_are_and_each_invariant_has_one() -> None:
    named = {name for plant in PLANTS.values() for name in plant.found_by}
    sources = "".join(path.read_text("utf-8") for path in Path(worlds.__file__).parent.rglob("*.py"))
    asked = {
        *re.findall(r'check\(\s*"(\w+)"', sources),
        *re.findall(r"\.holds\(\s*(?:\w+\.)?(\w+),", sources),
        *(invariant.__name__ for invariant in atrest.AT_REST),
    }
    assert named == {*asked, "no_error_of_our_own"}
    assert all(
        any(hasattr(module, name) for module in (answers, atrest, doubts, intime, invariants, recounts))
        for name in asked
    )


def test_shell_and_store_have_plants_as_the_core_has() -> None:
    modules = Counter(plant.wrap.__module__ for plant in PLANTS.values())
    assert modules[shell.__name__] >= 12
    assert modules[core.__name__] >= 12


def test_what_says_what_a_store_must_have_is_never_damaged() -> None:
    watching = {
        "mqproto.simulator.storage.disk",
        "mqproto.simulator.world.node.files",
        *(
            f"mqproto.simulator.world.oracle.{name}"
            for name in (
                "answers",
                "atrest",
                "doubts",
                "intime",
                "invariants",
                "ledger",
                "oracle",
                "recounts",
                "watched",
            )
        ),
    }
    for owner in chain.from_iterable(plant.owners for plant in PLANTS.values()):
        module = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
        assert module not in watching


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("name", ["ignore-the-window", "deliver-duplicates"])
def test_a_world_that_breaks_shrinks_to_a_few_nodes_and_messages(name: str) -> None:
    with planted(name):
        result = simulate(draw(QUICK.get(name, 0)))
        assert result.breach is not None
        smallest = shrink(result)
        assert smallest.breach is not None
        assert smallest.breach.invariant == result.breach.invariant
        assert len(smallest.scenario.nodes) <= 3
        assert smallest.scenario.message_count <= 10
        assert len(smallest.scenario.faults) <= 2
        again = simulate(smallest.scenario)
        assert again.breach == smallest.breach, "what is printed can be repeated"

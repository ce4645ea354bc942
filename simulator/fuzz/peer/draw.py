"""Makes cases from their numbers. In a case, one packet of a valid conversation is mutated, or packets are sent out of
turn.

Each case is determined by a seed and its number alone. Case 0 is the valid conversation with nothing wrong.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from mqproto.simulator.base.randomness import chance
from mqproto.simulator.fuzz.mutations import Edit, plan_of
from mqproto.simulator.fuzz.tactics.cases import Case
from mqproto.simulator.fuzz.tactics.outofturn import OUT_OF_TURN, STRANGERS, TACTICS
from mqproto.simulator.fuzz.tactics.packets import MESSAGES, message_of
from mqproto.simulator.fuzz.tactics.talk import PeerTarget, Talk, whole_conversation

AIMED_EVERY: Final = 3
"""Out of this many cases, one lies about a length, a limit or a flag.

When every such lie has been told once, the first one is told again.
"""
MUTATED_SHARE: Final = 0.6
"""The share of the other cases in which a packet is mutated at random.

In the rest, packets are out of turn.
"""
STRANGERS_SHARE: Final = 0.1
"""The share of out-of-turn cases with strangers who send a lot, or slowly. It is small, because each such case takes as
long as a hundred others.
"""
LIES: Final = ("length", "limit", "flags")
"""The classes of mutations that break parsers most often."""


def draw_case(target: PeerTarget, seed: int, number: int) -> Case:
    """Return the case with this number."""
    talk = Talk(target, seed, number)
    if number == 0:
        return unmutated(talk)
    if number % AIMED_EVERY == 0:
        return aimed(talk, seed)
    if talk.dice.random() < MUTATED_SHARE:
        return mutated(talk)
    talk.is_much = talk.dice.random() < STRANGERS_SHARE
    name = talk.dice.choice(list(STRANGERS if talk.is_much else OUT_OF_TURN))
    return talk.case(name, TACTICS[name](talk))


def unmutated(talk: Talk) -> Case:
    """Return the valid case. A peer that fails this case cannot be fuzzed."""
    talk.greet(glued=False)
    for kind in ("express", "recoverable"):
        talk.message(kind)
    talk.acknowledge()
    talk.last_word()
    return talk.case("valid", "nothing is wrong with it")


def mutated(talk: Talk) -> Case:
    """Return a valid conversation in which one packet is mutated."""
    dice = talk.dice
    places = whole_conversation(talk, dice.randint(1, 4))
    # The handshake is two of a few packets; messages have more that can be wrong.
    index = dice.choice(places[2:]) if len(places) > 2 and dice.random() < 0.85 else dice.choice(places)
    what = talk.steps[index].note
    name, kind = talk.mutate(index)
    return talk.case(f"mutated: {kind}", f"{what}: {name}")


def aimed(talk: Talk, seed: int) -> Case:
    """Return a conversation with the next lie about one field of one message."""
    lies = lies_in(talk.target.queues[0], seed)
    kind, edit = lies[talk.number // AIMED_EVERY % len(lies)]
    talk.greet()
    was = message_of(talk.target.queues[0], kind)
    name = f"{kind}: {edit.name}"
    talk.tell(was, name, plain=True)
    talk.steps[-1] = replace(talk.steps[-1], data=edit.of(was), was=was)
    talk.last_word()
    return talk.case(f"mutated: {edit.kind}", name)


@lru_cache(maxsize=8)
def lies_in(queue: str, seed: int) -> list[tuple[str, Edit]]:
    """Return each lie about each field, together with the kind of message that has the field, in an order drawn from
    the seed.
    """
    found = list(all_lies(queue))
    chance(seed, "lies").shuffle(found)
    return found


@lru_cache(maxsize=8)
def all_lies(queue: str) -> tuple[tuple[str, Edit], ...]:
    """Return all lies, grouped by the kind of message."""
    lies: dict[str, tuple[str, Edit]] = {}
    for kind in MESSAGES:
        for edit in plan_of(message_of(queue, kind)).edits:
            if edit.kind in LIES:
                lies.setdefault(edit.name, (kind, edit))
    return tuple(lies.values())

"""Inputs that are not packets: mutated byte by byte and word by word, the same for the same seed, and never too
large.
"""

from __future__ import annotations

import random

from mqproto.simulator.fuzz.mutations import Mutant
from mqproto.simulator.fuzz.parser.material import LARGEST_WRITING, Writings

SEEDS = [b"<a>text</a>", b"<b/>"]


def writings() -> Writings:
    return Writings(SEEDS, [b"</a>", b"&b;"], lambda dice: b"<%d/>" % dice.randrange(9))


def test_each_single_mutation_is_one_and_all_bits_and_words_have_their_turn() -> None:
    singles = list(writings().singles(b"<b/>"))
    assert len({mutant.data for mutant in singles}) > 4 * 8 + 2 * 5
    assert {mutant.kind for mutant in singles} == {"truncated", "removed", "bit", "word"}
    assert b"<b&b;/>" in {mutant.data for mutant in singles}
    assert all(len(mutant.data) <= 4 + 4 for mutant in singles)


def test_mutants_are_of_every_kind_and_repeat() -> None:
    def drawn(seed: int) -> list[Mutant]:
        dice = random.Random(seed)
        return [writings().mutant(SEEDS[0], dice) for _ in range(400)]

    first = drawn(1)
    assert first == drawn(1) != drawn(2)
    kinds = {"truncated", "removed", "byte", "word", "repeated", "number", "spliced"}
    assert {kind for _, kind, _ in first} == kinds


def test_what_grows_is_cut() -> None:
    material, dice, data = writings(), random.Random(3), SEEDS[0]
    sizes = set()
    for _ in range(400):
        data = max(material.mutant(data, dice).data, data, key=len)
        sizes.add(len(data))
    assert max(sizes) == LARGEST_WRITING
    assert writings().generated(dice) in {b"<%d/>" % digit for digit in range(9)}

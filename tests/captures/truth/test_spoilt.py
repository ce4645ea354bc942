"""Damaged captures: nobody who kept to the protocol is accused, and no sentence is false.

What remains is reported as in the whole capture. `make truth` uses 200 worlds and real traffic; MQPROTO_TRUTH_WORLDS
sets the number of worlds. The option -rP prints the table.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.captures.truth.finding import Hunt, hunt
from tests.captures.truth.judging import Score, judged, lines
from tests.captures.truth.kernel import caught
from tests.captures.truth.kinds import KINDS
from tests.captures.truth.knowing import Truth
from tests.captures.truth.worlds import World, world
from tests.programs import needs

WORLDS: Final = int(os.environ.get("MQPROTO_TRUTH_WORLDS", "1"))
IS_LONG: Final = WORLDS > 1
FIRST: Final = 10
"""The number of the first world; it has nearly everything, and is small."""
KINDS_EACH: Final = 6
"""The number of ways in which each world is damaged, if there are many worlds."""
IN_SUITE: Final = (
    "20 % swapped",
    "5 % late",
    "late SYNs",
    "address translation",
    "at each host, handshakes lost",
    "TAP, two files",
)
"""The kinds of damage that are done in the short form, which has only one world.

Only the first and the last kind are done to real traffic. No kind may change anything that is reported.
"""
SHARE: Final = 0.99
FOUND: Final = 0.95
"""The fraction of breaches with evidence that must be found, in both the long form and the short one."""
OF_ONE_FOUND: Final = 0.8
"""For each single rule, the fraction of breaches with evidence that must be found."""
FEWEST_FRAMES: Final = 12
"""The minimum number of frames in a world: a world in which hardly anything was sent cannot be damaged in every way."""
FRAMES: Final = 6_000
"""The maximum number of frames in a world: a larger one takes long, and shows nothing new."""


def kinds_of(seed: int) -> list[str]:
    """Return the kinds of damage for a world. From world to world, each kind has its turn, including no damage at
    all.
    """
    names = list(KINDS)
    return [names[(seed * KINDS_EACH + place) % len(names)] for place in range(KINDS_EACH)]


def complain(scores: dict[str, Score]) -> list[str]:
    """Return a line for each kind of error that must not happen."""
    return [
        f"{kind}: {count} x {complaint}"
        for kind, score in scores.items()
        for complaint, count in score.complaints.items()
        if not complaint.startswith("told ") or score.share < SHARE
    ]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], World]:
    """Return a function that returns the world of a seed, analyzed only once."""
    folder = tmp_path_factory.mktemp("worlds")
    return cache(lambda seed: world(seed, folder))


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_spoilt_worlds_are_told_as_they_are(worlds: Callable[[int], World], tmp_path: Path) -> None:
    scores = {kind: Score() for kind in KINDS}
    for seed in range(FIRST, FIRST + WORLDS):
        one = worlds(seed)
        truth = one.truth
        if not FEWEST_FRAMES <= len(truth.whole.frames) <= FRAMES:
            continue
        for name, outcome in truth.tabled.outcomes.items():
            assert one.facts[name]["arrivals"] or outcome != "confirmed"
        for kind in kinds_of(seed) if IS_LONG else IN_SUITE:
            files = KINDS[kind](truth.whole.frames, seed)
            scores[kind].add(judged(truth, files, tmp_path / f"{seed}-{kind}", runs=IS_LONG and not seed % 5))
    print(*lines(scores), sep="\n")
    assert complain(scores) == []


@needs("dumpcap")
@pytest.mark.timeout(7_200)
async def test_real_traffic_that_was_spoilt_is_told_as_it_is(tmp_path: Path) -> None:
    truth = Truth(await caught(tmp_path, "dumpcap"))
    assert truth.decoded.faults == []
    assert set(truth.tabled.outcomes.values()) == {"confirmed"}
    scores = {kind: Score() for kind in KINDS}
    for seed in range(10 if IS_LONG else 1):
        for kind in KINDS if IS_LONG else (IN_SUITE[0], IN_SUITE[-1]):
            files = KINDS[kind](truth.whole.frames, seed)
            scores[kind].add(judged(truth, files, tmp_path / f"{seed}-{kind}"))
    print(*lines(scores), sep="\n")
    assert complain(scores) == []


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_breaches_are_found_though_frames_are_lost(worlds: Callable[[int], World]) -> None:
    found: dict[str, Hunt] = {}
    for seed in range(FIRST, FIRST + max(1, WORLDS // 5)):
        for code, tally in hunt(worlds(seed).truth, seed, 2 if IS_LONG else 1):
            found.setdefault(code, Hunt()).add(tally)
    total = Hunt()
    for code, tally in found.items():
        total.add(tally)
        print(
            f"{code:<20} planted {tally.planted:4}, there {tally.there:4}, found {tally.found:4}, "
            f"as a contradiction {tally.contradicted:3}"
        )
    assert total.share >= FOUND
    if IS_LONG:
        assert all(tally.planted for tally in found.values())
        few = {code: tally.share for code, tally in found.items() if tally.share < OF_ONE_FOUND}
        assert few == {}

"""Decides which nodes `mqproto crash` kills, and when. Everything is determined by a seed.

A strike hits one node, two nodes or all of them, at one instant or within half a second. Each of them is started again,
and may be killed again as it starts. The dice choose the stage at which a kill aims. The stage that the kill hits is
known only when the process is dead, because a busy machine starts processes more slowly. So a seed repeats the plan,
but not the run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import count
from typing import Final, NamedTuple, TypeVar

from mqproto.simulator.base.randomness import chance

T = TypeVar("T")

JUST_READY_S: Final = 0.25
"""The time, in seconds, within which a ready node finds its neighbours again, and its clients find the node."""


class Stage(StrEnum):
    """The stage of a node."""

    STARTING = "starting"
    """The node's process is running, but its store is not open yet."""
    RECOVERING = "recovering"
    """The node is opening its store, and recovering from the kill."""
    JUST_READY = "just ready"
    RUNNING = "running"


DELAYS_S: Final = {Stage.STARTING: 0.5, Stage.RECOVERING: 0.005, Stage.JUST_READY: JUST_READY_S}
"""For each stage, the maximum time, in seconds, from its beginning until a starting node is killed.

This is about as long as the stage lasts.
"""
AGAIN: Final = 0.5
"""The probability that a node is killed again while it starts. It applies to each start."""
AIMS: Final = ((Stage.STARTING, 2), (Stage.RECOVERING, 5), (Stage.JUST_READY, 3))
VICTIMS: Final = ((1, 5), (2, 3), (3, 2))
PAUSES_S: Final = (((0.0, 0.3), 5), ((0.3, 1.0), 4), ((1.0, 4.0), 1))
"""The ranges of the time, in seconds, for which all nodes run before the next strike, each with its weight."""
OUTAGES_S: Final = (((0.0, 0.0), 5), ((0.0, 0.5), 4), ((0.5, 2.5), 1))
"""The ranges of the time, in seconds, for which a node stays down, each with its weight. The last range is long enough
for a sender to resend.
"""
SPREAD_S: Final = 0.5


class Kill(NamedTuple):
    """One SIGKILL: the stage at which it aims, the delay after the beginning of that stage, and how long the node stays
    down.
    """

    aim: Stage
    after_s: float
    down_s: float


class Strike(NamedTuple):
    """The kills of one strike, keyed by node.

    First, all nodes run for `pause_s`. Then each node gets its first kill, after that kill's `after_s`.
    """

    pause_s: float
    kills: dict[str, list[Kill]]

    @property
    def at_once(self) -> bool:
        """Whether several nodes die at the same instant."""
        return len(self.kills) > 1 and not any(kills[0].after_s for kills in self.kills.values())


def strikes(seed: int, nodes: Sequence[str]) -> Iterator[Strike]:
    """Yield an endless series of strikes."""
    for number in count():
        dice = chance(seed, "strike", str(number))
        victims = dice.sample(nodes, min(_weighted(dice, VICTIMS), len(nodes)))
        spread_s = dice.choice([0.0, SPREAD_S])
        yield Strike(
            dice.uniform(*_weighted(dice, PAUSES_S)),
            {name: list(_kills(chance(seed, "kill", name, str(number)), spread_s)) for name in victims},
        )


def _kills(dice: random.Random, spread_s: float) -> Iterator[Kill]:
    yield Kill(Stage.RUNNING, dice.uniform(0, spread_s), _down_s(dice))
    while dice.random() < AGAIN:
        aim = _weighted(dice, AIMS)
        yield Kill(aim, dice.uniform(0, DELAYS_S[aim]), _down_s(dice))


def _down_s(dice: random.Random) -> float:
    return dice.uniform(*_weighted(dice, OUTAGES_S))


def _weighted(dice: random.Random, choices: Sequence[tuple[T, int]]) -> T:
    """Return one of the values, with the probability given by its weight."""
    things = [thing for thing, _ in choices]
    return dice.choices(things, [weight for _, weight in choices])[0]

"""Draws attacks: the node to call, the caller, and the moment at which the attack can do the most harm.

In one world out of four, strangers present the GUIDs of nodes or speak in their names. In half of these worlds, the
applications' queues are open to strangers, so that allowed messages meet forbidden ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

from mqproto.simulator.fuzz.tactics import forgeries
from mqproto.simulator.world.faults.impostors import PLOTS, Plot, Standing, value_of
from mqproto.simulator.world.scenarios.scenario import Burst, Cable, Fault
from mqproto.simulator.world.scenarios.ways import steps_between

FOR_MAIL: Final = frozenset({forgeries.says_nothing, forgeries.stays_awake})
"""The plots of callers that want another node's messages. They call the node that would send these messages."""
CONFIRMING: Final = frozenset(
    {forgeries.confirms_orders, forgeries.confirms_receipt, forgeries.says_that_it_went_too_far}
)
"""The plots of callers that speak in the name of the messages' destination. They call the source."""
DOWN_MS: Final = (100, 1_000, 5_000)
"""The possible times, in milliseconds, for which the impersonated node is down."""
EARLY_MS: Final = 200
"""The time, in milliseconds, from the moment the impersonated node goes down until the attack."""


def draw_attacks(
    dice: random.Random,
    nodes: tuple[str, ...],
    links: tuple[Cable, ...],
    bursts: Iterable[Burst],
    storm_ms: int,
) -> Iterable[Fault]:
    """In one world out of four, draw a few attacks.

    Each is near the time of a burst, and in some of them a node is down.
    """
    routed = [burst for burst in bursts if burst.source != burst.target]
    if dice.randrange(4) or not routed:
        return
    steps = steps_between(nodes, links)
    for _ in range(dice.choice((2, 4, 8))):
        plot = dice.randrange(len(PLOTS))
        burst = dice.choice(routed)
        called, name = _parties(dice, PLOTS[plot], burst, steps)
        at_ms = min(max(0, burst.at_ms + dice.randrange(-1_000, 1_000)), storm_ms - 1)
        if PLOTS[plot].standing is Standing.CLAIM and dice.randrange(2):
            yield Fault(at_ms=max(0, at_ms - EARLY_MS), kind="kill", where=name, for_ms=dice.choice(DOWN_MS))
        for_ms = dice.choice((1_000, 5_000, 20_000))
        yield Fault(
            at_ms=at_ms, kind="impostor", where=called, for_ms=for_ms, value=value_of(plot, name, nodes)
        )


def draw_visits(
    dice: random.Random, nodes: tuple[str, ...], bursts: Iterable[Burst], storm_ms: int
) -> Iterable[Fault]:
    """Draw strangers that send sequences of their own to queues to which nodes also send.

    A node remembers only `strangers_sequences` sequences of strangers. So it may forget an older one.
    """
    value = next(number for number, plot in enumerate(PLOTS) if plot.says is forgeries.visits)
    for burst in bursts:
        if burst.source != burst.target and dice.randrange(2):
            at_ms = min(max(0, burst.at_ms + dice.randrange(-1_000, 5_000)), storm_ms - 1)
            visit = value_of(value, burst.source, nodes)
            yield Fault(at_ms=at_ms, kind="impostor", where=burst.target, for_ms=1_000, value=visit)


def _parties(
    dice: random.Random, plot: Plot, burst: Burst, steps: dict[tuple[str, str], list[str]]
) -> tuple[str, str]:
    """Return the node to call, and the node at which the attack is aimed."""
    if plot.says in FOR_MAIL:
        return burst.source, dice.choice(steps[burst.source, burst.target])
    if plot.says in CONFIRMING:
        return burst.source, burst.target
    return burst.target, burst.source

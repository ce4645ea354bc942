"""Draws worlds in which messages expire after they were sent.

Their dead letters are in doubt until late acknowledgments arrive.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from mqproto.simulator.world.scenarios.scenario import Burst, Cable, Fault
from mqproto.simulator.world.scenarios.traffic import KINDS

LATE_MS = (2_500, 4_000, 6_000)
"""The delay of the acknowledgments, in milliseconds. TimeToReachQueue is 2 s in these worlds."""
SENT = ("to reach", "to reach", "to reach, journaled", "transactional", "to receive")
"""The kinds of messages sent in these worlds. Some messages will expire, and some will not."""


def draw_doubters(dice: random.Random, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """In one world out of five, make all nodes, or about half, give up messages that expire after sending."""
    if dice.randrange(5):
        return ()
    return nodes if dice.randrange(2) else tuple(name for name in nodes if dice.randrange(2))


def draw_late_words(
    dice: random.Random,
    doubters: tuple[str, ...],
    links: tuple[Cable, ...],
    bursts: Iterable[Burst],
    storm_ms: int,
) -> tuple[tuple[Burst, ...], tuple[Fault, ...]]:
    """Draw a doubter's messages, and faults that delay their acknowledgments until the messages have expired.

    For a while, its neighbours cannot send it anything, or its links break when some of the messages have crossed.
    Occasionally, the doubter dies or its clock jumps meanwhile.
    """
    ends = [
        (burst.source, burst.target)
        for burst in bursts
        if burst.source in doubters
        and burst.source != burst.target
        and KINDS[burst.kind].transactional
        and not KINDS[burst.kind].direct
    ]
    if not ends:
        return (), ()
    source, target = dice.choice(ends)
    at_ms = dice.randrange(storm_ms // 2)
    sent = tuple(
        Burst(
            at_ms=at_ms + number * dice.choice((1, 20, 400)),
            source=source,
            target=target,
            kind=dice.choice(SENT),
            count=dice.choice((1, 2, 5)),
            together=dice.randrange(2) == 0,
        )
        for number in range(dice.choice((2, 4, 6)))
    )
    near = [link for link in links if source in (link.one, link.other)]
    faults: list[Fault] = []
    for_ms = dice.choice(LATE_MS)
    if dice.randrange(3):
        faults += (
            Fault(
                at_ms=at_ms + 1,
                kind="stall",
                where=link.name,
                for_ms=for_ms,
                value=1 if link.other == source else 2,
            )
            for link in near
        )
    else:
        at_ms += dice.choice((5, 50, 300))
        faults += (Fault(at_ms=at_ms, kind="refuse", where=link.name, for_ms=for_ms) for link in near)
    if dice.randrange(3) == 0:
        kind = dice.choice(("kill", "power loss", "jump clock"))
        faults.append(
            Fault(
                at_ms=at_ms + dice.randrange(for_ms + 1_000),
                kind=kind,
                where=source,
                for_ms=1,
                value=dice.choice((0, 1, 3)),
            )
        )
    return sent, tuple(faults)

"""`bench outage`: the node in the middle is killed under load and started again; when do messages flow?"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import trio

from tests.bench.figures import BenchError, Figure, Options, Result, Told
from tests.bench.load.row import (
    BODY_BYTES,
    INTERMEDIATE,
    WARM_UP_MESSAGES,
    WINDOW,
    in_a_row,
    patience_s,
    row,
)
from tests.bench.load.traffic import alike

PER_S: Final = 500
INTERVAL_S: Final = 4.0
"""From one kill to the next."""
WANTED_S: Final = 2


class Silence(NamedTuple):
    """No message came from one moment to another."""

    began_s: float
    ended_s: float

    @property
    def lasted_s(self) -> float:
        return self.ended_s - self.began_s


async def measure(options: Options, told: Told) -> Result:
    """Send at a steady rate, and kill the intermediate with SIGKILL in each round.

    Raises:
        BenchError: a message was lost, came twice, out of order or altered.
        NodeError: a node does not start.
    """
    kills = options.rounds
    count = round(PER_S * INTERVAL_S * (kills + 1))
    killed_s: list[float] = []
    spawned_s: list[float] = []
    async with row(in_a_row()) as nodes:
        await nodes.flood(WARM_UP_MESSAGES, alike(bytes(BODY_BYTES)))
        traffic = nodes.traffic(alike(bytes(BODY_BYTES)))
        began_s = trio.current_time()
        with trio.move_on_after(INTERVAL_S * (kills + 1) + patience_s(count)):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(traffic.receive, count)
                nursery.start_soon(traffic.send_paced, count, PER_S)
                for number in range(1, kills + 1):
                    await trio.sleep_until(began_s + INTERVAL_S * number)
                    told(f"outage: {INTERMEDIATE} is killed, {number} of {kills}")
                    killed_s.append(trio.current_time())
                    await nodes.supervisor.kill(INTERMEDIATE)
                    spawned_s.append((await nodes.supervisor.start(INTERMEDIATE)).spawned_s)
        traffic.check()
        silences = silences_after(traffic.arrivals_s, killed_s)
    since_spawned = [silence.ended_s - at_s for silence, at_s in zip(silences, spawned_s, strict=True)]
    return Result(
        f"three nodes, window {WINDOW}, {PER_S:,} messages/s; {INTERMEDIATE} is killed {kills} times",
        [
            Figure("no message comes for", "s", tuple(each.lasted_s for each in silences), at_most=WANTED_S),
            Figure("from its new process to the first message", "s", tuple(since_spawned)),
        ],
        ["every message came once, in order; what was due while nothing flowed was sent nonetheless"],
    )


def silences_after(arrivals_s: Sequence[float], killed_s: Sequence[float]) -> list[Silence]:
    """After each kill, and before the next, the longest time in which no message came.

    The last messages that had passed the node before may still come after it was killed, so a silence is looked for,
    and not what comes first.

    Args:
        arrivals_s, killed_s: in order.

    Raises:
        BenchError: no message came before a kill, or none after it.
    """
    found = []
    ends = [*killed_s[1:], float("inf")]
    for start_s, end_s in zip(killed_s, ends, strict=True):
        first, after = bisect_right(arrivals_s, start_s) - 1, bisect_right(arrivals_s, end_s)
        silences = [Silence(*pair) for pair in pairwise(arrivals_s[max(0, first) : after])]
        if first < 0 or not silences:
            raise BenchError("no message came between one kill and the next: kill at longer intervals")
        found.append(max(silences, key=lambda silence: silence.lasted_s))
    return found

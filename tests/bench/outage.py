"""`bench outage`: the node in the middle is killed under load, and started again. How soon do messages flow again?"""

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
    PATIENCE_S,
    QUEUE,
    WARM_UP_MESSAGES,
    WINDOW,
    comes_true,
    in_a_row,
    row,
)
from tests.bench.load.traffic import alike

PER_S: Final = 500
SLICE: Final = 100
"""The number of messages that are sent between two checks of whether to continue."""
INTERVAL_S: Final = 3.0
"""The least time, in seconds, for which messages flow before the next kill."""
WANTED_S: Final = 2


class Silence(NamedTuple):
    """A time without any message, from one moment to another."""

    began_s: float
    ended_s: float

    @property
    def lasted_s(self) -> float:
        return self.ended_s - self.began_s


async def measure(options: Options, told: Told) -> Result:
    """Send at a steady rate. In each round, kill the intermediate node with SIGKILL once messages flow.

    Raises:
        BenchError: a message was lost or altered, or arrived twice or out of order, or none arrived for a minute.
        NodeError: a node does not start.
    """
    killed_s: list[float] = []
    spawned_s: list[float] = []
    is_over, is_sent = trio.Event(), trio.Event()
    async with row(in_a_row()) as nodes:
        await nodes.flood(WARM_UP_MESSAGES, alike(bytes(BODY_BYTES)))
        traffic = nodes.traffic(alike(bytes(BODY_BYTES)))

        async def send() -> None:
            while not is_over.is_set():
                await traffic.send_paced(SLICE, PER_S)
            is_sent.set()

        async def receive() -> None:
            while traffic.unreceived or not is_sent.is_set():
                await traffic.take(QUEUE, timeout_s=1)

        async def flow_for_a_while() -> None:
            since_s = trio.current_time()

            async def flows() -> bool:
                return traffic.arrivals_s[-1:] > [since_s]

            await trio.sleep(INTERVAL_S)
            if not await comes_true(flows, PATIENCE_S):
                raise BenchError(f"no message came for {PATIENCE_S:g} s")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(receive)
            for number in range(1, options.rounds + 1):
                await flow_for_a_while()
                told(f"outage: {INTERMEDIATE} is killed, {number} of {options.rounds}")
                killed_s.append(trio.current_time())
                await nodes.supervisor.kill(INTERMEDIATE)
                spawned_s.append((await nodes.supervisor.start(INTERMEDIATE)).spawned_s)
            await flow_for_a_while()
            is_over.set()
            nursery.cancel_scope.deadline = (
                trio.current_time() + PATIENCE_S
            )  # What is lost is not waited for.
        traffic.check()
        silences = silences_after(traffic.arrivals_s, killed_s)
    since_spawned = [silence.ended_s - at_s for silence, at_s in zip(silences, spawned_s, strict=True)]
    return Result(
        f"three nodes, window {WINDOW}, {PER_S:,} messages/s; {INTERMEDIATE} is killed {options.rounds} times",
        [
            Figure("no message comes for", "s", tuple(each.lasted_s for each in silences), at_most=WANTED_S),
            Figure("from its new process to the first message", "s", tuple(since_spawned)),
        ],
        ["every message came once, in order; what was due while nothing flowed was sent nonetheless"],
    )


def silences_after(arrivals_s: Sequence[float], killed_s: Sequence[float]) -> list[Silence]:
    """Return, for each kill, the longest time without a message between that kill and the next one.

    The last messages that had already passed the killed node may still arrive after the kill. So this looks for the
    longest silence instead of the first message.

    Args:
        arrivals_s, killed_s: the times of arrivals and of kills, in order.

    Raises:
        BenchError: no message arrived before a kill, or none after it.
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

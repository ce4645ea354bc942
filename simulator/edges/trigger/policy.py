"""What a trigger does with the messages of its queue: when one is attempted again, how often, in which order."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.edges.trigger.schedule import LEASE_LIMIT

EXPONENT_LIMIT = 100
BREAKER_LIMIT: Final = 1_000_000
CORRELATION: Final = "correlation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Attempts come after growing delays.

    interval_s: after the first attempt that failed.
    factor: how many times the delay before it each delay is.
    limit_s: no delay is longer.
    attempts: how often a message may be delivered.
    jitter: 0 to 1, by what share a delay may be shorter, so that not all messages come back at one time. How much it is
        follows from the message and the attempt: the same message has the same delays again.

    Raises:
        UsageError: a value is beyond its limits.
    """

    interval_s: float = 1.0
    factor: float = 2.0
    limit_s: float = 60.0
    attempts: int = 20
    jitter: float = 0.0

    def __post_init__(self) -> None:
        for what, value, least, most in (
            ("the interval", self.interval_s, 0, 86_400),
            ("the factor", self.factor, 1, 100),
            ("the longest delay", self.limit_s, 0, 86_400),
            ("the attempts", self.attempts, 1, 1_000_000),
            ("the jitter", self.jitter, 0, 1),
        ):
            if not least <= value <= most or math.isnan(value):
                raise UsageError(f"{what} of a retry: {value:g}, must be {least:,} to {most:,}")

    def delay_s(self, attempt: int, message: str) -> float:
        """How long to wait after an attempt that failed, counted from 1."""
        delay_s = min(self.interval_s * self.factor ** min(attempt - 1, EXPONENT_LIMIT), self.limit_s)
        if not self.jitter:
            return delay_s
        return delay_s * (1 - self.jitter * chance(0, "retry", message, str(attempt)).random())


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a trigger treats the messages of its queue.

    error_queue, in_doubt_queue: transactional queues, by any name; empty for none.
    timeout_s: how long a consumer or resolver may take to answer.
    stop_s: how much longer those may take that are being asked when the trigger is to stop.
    group_by: CORRELATION for the unit of order by correlation id, those without one being a unit as well; empty for
        the whole queue.
    parallel: how many groups at once.
    breaker: after how many failures in a row, with one cause, the queue is held (breaker.py); 0 for never.
    """

    error_queue: str = ""
    in_doubt_queue: str = ""
    timeout_s: float = 30.0
    stop_s: float = 5.0
    retries: Retries = field(default_factory=Retries)
    group_by: str = ""
    parallel: int = 1
    breaker: int = 5

    def __post_init__(self) -> None:
        if self.group_by not in ("", CORRELATION):
            raise UsageError(
                f"messages cannot be grouped by {self.group_by!r}: by {CORRELATION}, or not at all"
            )
        if not self.group_by and self.parallel > 1:
            raise UsageError(f"{self.parallel} at once would change the order: say how they are grouped")
        if not 1 <= self.parallel <= LEASE_LIMIT:
            raise UsageError(f"{self.parallel} groups at once: must be 1 to {LEASE_LIMIT}")
        if not 0 <= self.breaker <= BREAKER_LIMIT:
            raise UsageError(f"a breaker after {self.breaker:,} failures: 1 to {BREAKER_LIMIT:,}, 0 for none")
        if not self.timeout_s > 0:
            raise UsageError(f"a time-out of {self.timeout_s:g} s: it takes more than 0")

"""When a message that could not be processed is attempted again, and how often."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mqproto.base.errors import UsageError
from simulator.base.randomness import chance

EXPONENT_LIMIT = 100


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

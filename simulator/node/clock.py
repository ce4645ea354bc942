"""The clock of a node. Only this module reads the time for the core."""

from __future__ import annotations

import math
import time

import trio

from mqproto.base.moment import Moment


class Clock:
    """Takes the uptime from trio's clock, which a test may control, and the date from the system's clock, which may
    jump.
    """

    def now(self) -> Moment:
        """Return this instant."""
        return Moment(uptime_ms=int(trio.current_time() * 1_000), utc_s=int(time.time()))

    def at(self, deadline_ms: int | None) -> float:
        """Return the time, on trio's clock, of a deadline of the core. Half a millisecond is added, so that rounding
        never wakes us early.
        """
        return math.inf if deadline_ms is None else deadline_ms / 1_000 + 0.0005

"""The clock of a node: the only place where the core's time is read."""

from __future__ import annotations

import math
import time

import trio

from mqproto.base.moment import Moment


class Clock:
    """Uptime from trio's clock, so that a test may own it; the date from the system's, which may jump."""

    def now(self) -> Moment:
        """This instant."""
        return Moment(uptime_ms=int(trio.current_time() * 1_000), utc_s=int(time.time()))

    def at(self, deadline_ms: int | None) -> float:
        """A deadline of the core on trio's clock; half a millisecond later, lest rounding wake us too soon."""
        return math.inf if deadline_ms is None else deadline_ms / 1_000 + 0.0005

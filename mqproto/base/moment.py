"""The time of an event, passed as an argument."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """One instant on the two clocks that the protocol uses.

    uptime_ms: milliseconds on a clock that never goes back; every timer uses it.
    utc_s: whole seconds since 1970, UTC; SentTime and expiry use it. It may jump.
    """

    uptime_ms: int
    utc_s: int

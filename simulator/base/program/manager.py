"""Tells a service manager such as systemd that we are ready, alive, or stopping.  man 3 sd_notify

The manager's address is in the environment. If there is none, nothing is sent.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG: Final = "WATCHDOG_USEC"
PROCESS: Final = "WATCHDOG_PID"
MICROSECONDS: Final = 1_000_000


def tell(*states: str, environment: Mapping[str, str] = os.environ) -> None:
    """Send states, such as `READY=1`, to the service manager. Errors are ignored."""
    where = environment.get(SOCKET, "")
    if not where.startswith(("/", "@")):
        return
    address = "\0" + where[1:] if where.startswith("@") else where
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
        told.setblocking(False)
        told.connect(address)
        told.send("\n".join(states).encode())


def watchdog_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return how many seconds we may be silent; None if no watchdog is watching us."""
    time_us = environment.get(WATCHDOG, "")
    process = environment.get(PROCESS, "")
    if not time_us.isdigit() or int(time_us) == 0 or process not in ("", str(os.getpid())):
        return None
    return int(time_us) / MICROSECONDS


def silent_for(time_s: float | None) -> list[str]:
    """Return the states that restart the watchdog with this time limit; none if there is no watchdog."""
    if time_s is None or watchdog_s() is None:
        return []
    return [f"{WATCHDOG}={int(time_s * MICROSECONDS)}"]


async def keep_telling() -> None:
    """Report that we are ready, and then, twice per watchdog interval, that our loop still runs.

    This continues until it is cancelled.
    """
    import trio  # Commands without a loop do without it.

    interval_s = watchdog_s()
    tell("READY=1", *silent_for(interval_s))
    while interval_s is not None:
        await trio.sleep(interval_s / 2)
        tell("WATCHDOG=1")
    await trio.sleep_forever()

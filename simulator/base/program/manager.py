"""What a service manager is told, as systemd asks for it: that we are ready, still turn, or stop.  man 3 sd_notify

It says in the environment where it listens; where nobody has, nobody is told.
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
    """Tell it, such as `READY=1`. That it does not hear is no reason to fail."""
    where = environment.get(SOCKET, "")
    if not where.startswith(("/", "@")):
        return
    address = "\0" + where[1:] if where.startswith("@") else where
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
        told.setblocking(False)
        told.connect(address)
        told.send("\n".join(states).encode())


def watchdog_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """How long we may say nothing; None if nobody waits for us to say something."""
    time_us = environment.get(WATCHDOG, "")
    process = environment.get(PROCESS, "")
    if not time_us.isdigit() or int(time_us) == 0 or process not in ("", str(os.getpid())):
        return None
    return int(time_us) / MICROSECONDS


def silent_for(time_s: float | None) -> list[str]:
    """What tells it that we may say nothing for so long, from now on; nothing if it does not wait for us."""
    if time_s is None or watchdog_s() is None:
        return []
    return [f"{WATCHDOG}={int(time_s * MICROSECONDS)}"]


async def keep_telling() -> None:
    """We are ready; and from now on that our loop turns, twice in the time that we have for that, until cancelled."""
    import trio  # Commands that have no loop are had without it.

    interval_s = watchdog_s()
    tell("READY=1", *silent_for(interval_s))
    while interval_s is not None:
        await trio.sleep(interval_s / 2)
        tell("WATCHDOG=1")
    await trio.sleep_forever()

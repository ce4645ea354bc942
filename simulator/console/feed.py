"""Sends the newest state to all browsers; a slow browser skips some states."""

from __future__ import annotations

from typing import Final

import trio

CLIENTS: Final = 16
"""The number of browsers that may receive the state at the same time."""


class Feed:
    """The newest event. It replaces the one before."""

    def __init__(self) -> None:
        self._number = 0
        self._event = b""
        self._changed = trio.Event()

    def put(self, event: bytes) -> None:
        """Replace the current event with a newer one."""
        self._number += 1
        self._event = event
        self._changed.set()
        self._changed = trio.Event()

    async def newer(self, number: int) -> tuple[int, bytes]:
        """Wait until there is an event with a number above `number`; return the newest number and its event.

        All events have numbers above 0.
        """
        while self._number <= number:
            await self._changed.wait()
        return self._number, self._event


def event(name: str, data: bytes) -> bytes:
    """Return a server-sent event with data on one line."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)

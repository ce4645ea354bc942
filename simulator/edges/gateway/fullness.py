"""Remembers which remote queues are full.

New messages for them are refused for a while instead of becoming dead letters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from mqproto.wire import MessageClass

FULL: Final = MessageClass.NACK_Q_EXCEED_QUOTA.name
FULL_S: Final = 10.0
"""The number of seconds for which a queue counts as full after a message did not fit into it."""
REMEMBERED: Final = 100_000
"""The number of messages whose queues are remembered; they are the most recently accepted ones."""


class FullQueues:
    """Remembers the queue of each message, and which queues were full."""

    def __init__(self, now_s: Callable[[], float] = trio.current_time) -> None:
        self._now_s = now_s
        self._queues: dict[str, str] = {}
        """The queue of each message, keyed by the message's identifier."""
        self._full_until_s: dict[str, float] = {}

    def accepted(self, message: str, queue: str) -> None:
        """Record that a message was accepted for a queue."""
        self._queues[message] = queue
        if len(self._queues) > REMEMBERED:
            del self._queues[next(iter(self._queues))]

    def ended(self, message: str, message_class: str) -> None:
        """Record that the confirmation of a message has arrived."""
        queue = self._queues.pop(message, None)
        if queue is not None and message_class == FULL:
            self._full_until_s[queue] = self._now_s() + FULL_S

    def wait_s(self, queue: str) -> float:
        """Return the seconds until a message for a queue may be handed in; 0 if it may be handed in now."""
        wait_s = self._full_until_s.get(queue, 0.0) - self._now_s()
        if wait_s <= 0:
            self._full_until_s.pop(queue, None)
        return max(wait_s, 0.0)

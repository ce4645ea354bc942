"""The timers of [MS-MQQB] 3.1.2, stored as deadlines in one table."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from enum import Enum
from itertools import count
from typing import Any


class Timer(Enum):
    """The purpose of a deadline; the value is the section that says what to do when the deadline passes."""

    __hash__ = object.__hash__  # Enum's own hashes the name each time, and timers are started per message.

    SESSION_INITIALIZATION = "3.1.6.6"
    SESSION_CLEANUP = "3.1.6.2"
    SESSION_RETRY_CONNECT = "3.1.6.1"
    SESSION_ACK_WAIT = "3.1.6.3"
    SESSION_ACK_SEND = "3.1.6.4"
    PACKET = "what a session has begun to receive is to be whole: of our own, as no section ends it"
    PING_RESPONSE = "3.1.6.8"
    TRANSACTIONAL_ACK_WAIT = "3.1.6.5"
    ORDER_ACK_SEND = "3.1.6.9"
    MESSAGE_ID_HISTORY_CLEANUP = "3.1.6.7"
    RECEIVE_SYMMETRIC_KEY_CACHE_CLEANUP = "3.1.6.10"
    SEND_SYMMETRIC_KEY_CACHE_CLEANUP = "3.1.6.11"
    SEND_BASE_SYMMETRIC_KEY_CACHE_CLEANUP = "3.1.6.12"
    USER_CERT_CACHE_CLEANUP = "3.1.6.13"
    EXPIRATION = "3.1.7.1.2, and Time To Be Received Timer, [MS-MQDMPR] 3.1.7.2.7"
    LAZY_WRITES = "the store: what may wait for the next commit waits no longer"


class Timers:
    """Deadlines, each with a timer and an owner.

    Postponing a deadline only sets a dictionary entry, which is cheap enough to be done for every message. An owner is
    any hashable object that has its own timer, such as a session or a sequence.
    """

    def __init__(self) -> None:
        self._deadlines: dict[tuple[Timer, Any], int] = {}
        self._heap: list[tuple[int, int, tuple[Timer, Any]]] = []
        self._heaped: dict[tuple[Timer, Any], int] = {}
        self._tie = count()

    def start(self, timer: Timer, owner: Any, deadline_ms: int) -> None:
        """Start a timer, or restart it with another deadline."""
        key = (timer, owner)
        self._deadlines[key] = deadline_ms
        heaped = self._heaped.get(key)
        if heaped is None or deadline_ms < heaped:
            self._push(key, deadline_ms)

    def stop(self, timer: Timer, owner: Any) -> None:
        """Stop a timer if it is running."""
        self._deadlines.pop((timer, owner), None)

    def runs(self, timer: Timer, owner: Any) -> bool:
        """Whether the timer is running."""
        return (timer, owner) in self._deadlines

    def deadline_ms(self, timer: Timer, owner: Any) -> int | None:
        """Return the deadline of the timer; None if it is not running."""
        return self._deadlines.get((timer, owner))

    def expired(self, uptime_ms: int) -> Iterator[tuple[Timer, Any]]:
        """Yield the timers that are due, the earliest first, and stop each of them."""
        while (next_ms := self.next_ms) is not None and next_ms <= uptime_ms:
            key = heapq.heappop(self._heap)[2]
            del self._heaped[key]
            del self._deadlines[key]
            yield key

    @property
    def next_ms(self) -> int | None:
        """The earliest deadline; None if no timer is running.

        This also corrects heap entries of stopped or postponed timers.
        """
        while self._heap:
            at, _, key = self._heap[0]
            deadline = self._deadlines.get(key)
            if self._heaped.get(key) == at and deadline == at:
                return at
            heapq.heappop(self._heap)
            if self._heaped.get(key) == at:
                del self._heaped[key]
                if deadline is not None:
                    self._push(key, deadline)
        return None

    def _push(self, key: tuple[Timer, Any], deadline_ms: int) -> None:
        self._heaped[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, next(self._tie), key))

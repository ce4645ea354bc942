"""Logs who changed what, with a line for each operation that changes something.

    {"event": "operated", "operation": "purge", "queue": "orders", "messages": 17,
     "pid": 4242, "uid": 1000, "gid": 1000, "user": "ann", ...}

The line about an operator's order is written before the batch with the order is committed, so nothing happens without a
named author. If the process dies in between, the line reports something that did not happen.

Clients send and receive thousands of times a second. So the first operation of each kind and queue on a connection gets
its line at once, and later ones are counted. The counts are logged once a minute, and when the connection ends. A node
that is killed loses the counts since the last line.

Reading is not logged. Requests that are refused because the client may only look are logged in the same way, as
`not-allowed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from mqproto.simulator.node.clients.credentials import Credentials

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


EVENT: Final = "operated"
REFUSED: Final = "not-allowed"
TELL_S: Final = 60.0
KINDS: Final = 64
"""The maximum number of pairs of operation and queue that are counted for a connection at a time. Beyond it, the oldest
count is logged.
"""
NAME_CHARACTERS: Final = 200
"""The maximum number of characters of a queue's name in a log line."""


class _OperationCount:
    """The operations of one kind on one queue since the last log line."""

    def __init__(self) -> None:
        self.requests = 0
        self.messages = 0


class ClientActivity:
    """The actions of one connection.

    Args:
        who: the client; None if unknown.
        is_counting: called when the first count is waiting to be logged. `tell` must then be called within `TELL_S`.
    """

    def __init__(
        self,
        log: FilteringBoundLogger,
        who: Credentials | None,
        is_counting: Callable[[ClientActivity], None],
    ) -> None:
        self.who = who
        self._log = log
        self._who = {"uid": "not known"} if who is None else who.facts()
        self._is_counting = is_counting
        self._counts: dict[tuple[str, str, str], _OperationCount] = {}
        self._waits = False
        """Whether a call of `tell` is already expected."""

    def did(self, operation: str, queue: str = "", **facts: Any) -> None:
        """Log an operator's order."""
        named = {"queue": _short(queue)} if queue else {}
        self._log.info(EVENT, operation=operation, **named, **facts, **self._who)

    def moved(self, operation: str, queue: str, messages: int) -> None:
        """Count messages that were sent or taken."""
        self._counted(EVENT, operation, queue, messages)

    def was_refused(self, operation: str) -> None:
        """Count a request that was not allowed."""
        self._counted(REFUSED, operation, "", 0)

    def _counted(self, event: str, operation: str, queue: str, messages: int) -> None:
        key = event, operation, _short(queue)
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= KINDS:
                oldest = next(iter(self._counts))
                self._tell(oldest, self._counts.pop(oldest))
            self._counts[key] = count = _OperationCount()
            first = _OperationCount()
            first.requests, first.messages = 1, messages
            self._tell(key, first)
            return
        count.requests += 1
        count.messages += messages
        if not self._waits:
            self._waits = True
            self._is_counting(self)

    def tell(self) -> None:
        """Log the counts."""
        self._waits = False
        for key, count in self._counts.items():
            self._tell(key, count)
            self._counts[key] = _OperationCount()

    def _tell(self, key: tuple[str, str, str], count: _OperationCount) -> None:
        if not count.requests:
            return
        event, operation, queue = key
        facts: dict[str, Any] = {"operation": operation}
        if event == EVENT:
            facts |= {"queue": queue, "messages": count.messages}
        if count.requests > 1:
            facts["requests"] = count.requests
        write = self._log.warning if event == REFUSED else self._log.info
        write(event, **facts, **self._who)


def _short(queue: str) -> str:
    return queue if len(queue) <= NAME_CHARACTERS else queue[: NAME_CHARACTERS - 3] + "..."

"""The reports that a gateway owes to URLs, from the rows of its node's messages.

A row whose message has a callback is owed from the record that accepted it. When the message has ended, the report is
due; once the URL has answered, or the report is given up, the row is owed no longer. What a process has tried is not
on disk: the next one tries at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import trio

from mqproto.simulator.base.storeerrors import DamageError
from mqproto.simulator.edges.gateway.message import KeptFacts
from mqproto.simulator.edges.history.documents import Record
from mqproto.simulator.edges.history.outbox import Hook, OutboxWork
from mqproto.simulator.edges.trail import trail_of
from mqproto.simulator.edges.trigger.telling import name_of
from mqproto.simulator.node.posting import Posting
from mqproto.turn.effects import PostedChange, PostedRow


class OwedCallbacks:
    """Reports for `Teller`, which keeps numbers alone in memory."""

    def __init__(self, posting: Posting, look: Callable[[str, str], Awaitable[Record]]) -> None:
        self._posting, self._look = posting, look
        self._due: list[tuple[float, int, int]] = []
        """When each report is due, the MessageID, and the number of attempts."""
        self._tried: dict[str, tuple[int, int]] = {}
        """The MessageID and the attempts of each report that is being sent, by the hook's name."""
        self.news = trio.Event()
        for row in posting.owed():
            if row.message_class:
                self._put(0.0, row.message_id, 0)
        posting.on_end = self._ended

    def _put(self, due_s: float, message_id: int, attempts: int) -> None:
        heapq.heappush(self._due, (due_s, message_id, attempts))
        self.news.set()

    def _ended(self, end: PostedChange) -> None:
        if self._owed(end.message_id) is not None:
            self._put(0.0, end.message_id, 0)

    def _owed(self, message_id: int) -> PostedRow | None:
        """Return the row if somebody has yet to be told about its message."""
        with suppress(DamageError):
            row = self._posting.numbered(message_id)
            if row is not None and row.owed and KeptFacts.of(row.about).callback:
                return row
        return None

    async def due(self, limit: int) -> OutboxWork:
        """Return the reports to send now."""
        self.news = trio.Event()
        found = list[Hook]()
        now_s = trio.current_time()
        while self._due and len(found) < limit and self._due[0][0] <= now_s:
            _, message_id, attempts = heapq.heappop(self._due)
            row = self._owed(message_id)
            name = name_of(self._posting.named(message_id))
            if row is not None and name not in self._tried:
                about = KeptFacts.of(row.about)
                message = self._posting.named(message_id)
                trail = await trail_of(row.queue, row.key, message, self._look, self._posting.end_of)
                body = msgspec.json.encode(msgspec.structs.replace(trail, id=about.given))
                self._tried[name] = message_id, attempts
                found.append(Hook(name, "", about.callback, body, attempts))
        return OutboxWork(found, max(0.0, self._due[0][0] - now_s) if self._due else None)

    async def attempted(self, name: str, *, has_heard: bool, again_s: float | None = None) -> None:
        """Record an attempt to send a report, as `DocumentHistory.attempted` does."""
        message_id, attempts = self._tried.pop(name)
        if again_s is not None:
            self._put(trio.current_time() + again_s, message_id, attempts + 1)
        elif (row := self._owed(message_id)) is not None:
            self._posting.settled(row)

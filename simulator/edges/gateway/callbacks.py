"""The reports that a gateway owes to URLs, from the rows of its node's messages.

A row whose message has a callback is owed from the record that accepted it. When the message has ended, the report is
due; once the URL has answered, or the report is given up, the row is owed no longer. What a process has tried is not
on disk: the next one tries at once.

A message that an operator has sent again has a row of its own for its end, which is owed, too. The history of the
triggers says which message it was before, so the URL of the POST is told about each life. That may be written a little
after the life has ended.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec
import trio

from mqproto.simulator.base.storeerrors import DamageError
from mqproto.simulator.edges.gateway.message import KeptFacts
from mqproto.simulator.edges.history.documents import Record
from mqproto.simulator.edges.history.outbox import Hook, OutboxWork
from mqproto.simulator.edges.trail import BEFORE, LIVES_LIMIT, trail_of
from mqproto.simulator.edges.trigger.telling import name_of
from mqproto.simulator.node.posting import Posting
from mqproto.turn.effects import PostedRow

AGAIN_S: Final = 1.0
"""The number of seconds until the history is asked again which message one was before."""
LOOKS: Final = 60
"""How often it is asked before nobody is told."""


class OwedCallbacks:
    """Reports for `Teller`, which keeps numbers alone in memory."""

    def __init__(self, posting: Posting, look: Callable[[str, str], Awaitable[Record]]) -> None:
        self._posting, self._look = posting, look
        self._due: list[tuple[float, int, int]] = []
        """When each report is due, the MessageID, and the number of attempts; below 0 for the looks that are left."""
        self._tried: dict[str, tuple[int, int]] = {}
        """The MessageID and the attempts of each report that is being sent, by the hook's name."""
        self.news = trio.Event()
        for row in posting.owed():
            if row.message_class:
                self._ended(row.message_id)
        posting.on_end = self._ended

    def _put(self, due_s: float, message_id: int, attempts: int) -> None:
        heapq.heappush(self._due, (due_s, message_id, attempts))
        self.news.set()

    def _ended(self, message_id: int) -> None:
        if (row := self._owed(message_id)) is not None:
            self._put(0.0, message_id, 0 if row.queue else -LOOKS)

    def _owed(self, message_id: int) -> PostedRow | None:
        """Return the row if somebody has yet to be told about its message."""
        with suppress(DamageError):
            row = self._posting.numbered(message_id)
            if row is not None and row.owed and (not row.queue or KeptFacts.of(row.about).callback):
                return row
        return None

    async def due(self, limit: int) -> OutboxWork:
        """Return the reports to send now."""
        self.news = trio.Event()
        found = list[Hook]()
        now_s = trio.current_time()
        while self._due and len(found) < limit and self._due[0][0] <= now_s:
            _, message_id, attempts = heapq.heappop(self._due)
            if (row := self._owed(message_id)) is None:
                continue
            message = row.key if not row.queue and row.key else self._posting.named(message_id)
            first, posted = message, row
            if not row.queue:
                first = await self._first(message)
                posted = self._posting.end_of(first) or row
            about = KeptFacts.of(posted.about)
            name = name_of(message)
            if not posted.queue and attempts < 0:
                self._put(now_s + AGAIN_S, message_id, attempts + 1)
            elif not about.callback:
                self._posting.settled(row)
            elif name not in self._tried:
                trail = await trail_of(posted, first, self._look, self._posting.end_of, of=message)
                body = msgspec.json.encode(msgspec.structs.replace(trail, id=about.given))
                self._tried[name] = message_id, max(0, attempts)
                found.append(Hook(name, "", about.callback, body, max(0, attempts)))
        return OutboxWork(found, max(0.0, self._due[0][0] - now_s) if self._due else None)

    async def _first(self, message: str) -> str:
        """Return the identifier that a message had before it was ever sent again, as far as that is known."""
        for _ in range(LIVES_LIMIT):
            before = await self._look(BEFORE, message)
            if not before.outcome:
                break
            message = before.outcome.decode()
        return message

    async def attempted(self, name: str, *, has_heard: bool, again_s: float | None = None) -> None:
        """Record an attempt to send a report, as `DocumentHistory.attempted` does."""
        message_id, attempts = self._tried.pop(name)
        if again_s is not None:
            self._put(trio.current_time() + again_s, message_id, attempts + 1)
        elif (row := self._owed(message_id)) is not None:
            self._posting.settled(row)

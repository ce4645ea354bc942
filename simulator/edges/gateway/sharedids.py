"""Ids that gateways of several nodes share: a begin in a document history before the node's own record, a finish after.

    begin ──► the node's record, with a row that is owed ──► 200 ──► finish ──► the row is owed no longer

No turn of the node waits for the database. What a killed process had begun is settled by the rows when it starts: the
node has the message, and the database is told about it, or it has none, and the id is free again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from mqproto.edge.exactlyonce import Attempt, Entry
from mqproto.simulator.edges.gateway.message import GatewayQueue, KeptFacts
from mqproto.simulator.edges.gateway.refusals import Code, Refusal
from mqproto.simulator.edges.history.forgetting import GATEWAY
from mqproto.simulator.edges.history.history import DocumentHistory, HistoryError
from mqproto.simulator.edges.history.lives import LIFE_DIGITS, HistorySeen
from mqproto.simulator.edges.trail import OUTCOMES, Outcome
from mqproto.simulator.node.posting import KeyReusedError, Posted, Posting
from mqproto.turn.effects import PostedRow

ELSEWHERE_S: Final = 0.05
"""The number of seconds between two looks at a message that is under way at another gateway."""
AGAIN_S: Final = 1.0
"""The number of seconds until a failed write to the history is tried again."""


class SharedIds:
    """The ids of one node's gateway, which others share.

    Args:
        owner: the unique name of this gateway in the history, which stays the same across restarts.
        nursery: runs what the history has yet to be told.
    """

    def __init__(
        self,
        history: DocumentHistory,
        posting: Posting,
        owner: str,
        log: FilteringBoundLogger,
        nursery: trio.Nursery,
    ) -> None:
        self._history, self._posting, self._owner = history, posting, owner
        self._log, self._nursery = log, nursery

    async def recover(self, queues: Iterable[GatewayQueue]) -> None:
        """Settle what an earlier process has begun.

        Raises:
            HistoryError: the history is not available.
        """
        for row in self._posting.owed():
            if row.queue and row.key:
                await self._finish(row)
        for queue in queues:
            scope = GATEWAY + queue.name
            for key in await self._history.started_by(scope, self._owner):
                if (kept := self._posting.look(queue.name, key)) is None:
                    await self._history.finish(scope, key, Attempt.FAILED_FOR_NOW)
                else:
                    await self._finish(kept)

    async def post(
        self, queue: str, key: str, fingerprint: bytes, submit: Callable[[], Awaitable[Posted]]
    ) -> Posted:
        """Return when the message is on disk at this node, or was at another.

        Args:
            submit: hands the message to the node, with a row that is owed.

        Raises:
            Refusal: the message is under way at another gateway, or the history is not available.
            KeyReusedError: the id belongs to a message with other content.
        """
        scope = GATEWAY + queue
        try:
            record = await self._history.begin(scope, key, self._owner)
            if record.entry is Entry.STARTED and record.owner != self._owner:
                # Its producer may have had his answer from another gateway, which is about to tell the history.
                await trio.sleep(ELSEWHERE_S)
                record = await self._history.begin(scope, key, self._owner)
        except HistoryError as error:
            raise Refusal(Code.HISTORY_UNAVAILABLE, str(error)) from None
        if record.entry is Entry.COMPLETED:
            outcome = OUTCOMES.decode(record.outcome)
            if outcome.fingerprint != fingerprint.hex():
                raise KeyReusedError(
                    f"the id {key} belongs to a message with other content: give each message its own"
                )
            return Posted(outcome.id, is_repeated=True)
        if record.entry is Entry.STARTED and record.owner != self._owner:
            raise Refusal(
                Code.IN_PROGRESS, f"a message with the id {key} is under way at another gateway: ask again"
            )
        try:
            posted = await submit()
        except KeyReusedError:
            raise
        except Exception:
            with suppress(HistoryError):
                await self._history.finish(scope, key, Attempt.FAILED_FOR_NOW)
            raise
        if (row := self._posting.look(queue, key)) is not None and row.owed:
            self._nursery.start_soon(self._finish_in_time, row)
        return posted

    async def _finish_in_time(self, row: PostedRow) -> None:
        """Tell the history of a message, however long that takes."""
        while True:
            try:
                return await self._finish(row)
            except HistoryError as error:
                self._log.warning("not-finished", key=row.key, reason=str(error))
            await trio.sleep(AGAIN_S)

    async def _finish(self, row: PostedRow) -> None:
        about = KeptFacts.of(row.about)
        message = self._posting.named(row.message_id)
        outcome = msgspec.json.encode(Outcome(message, row.fingerprint.hex(), about.admin_queue))
        scope = GATEWAY + row.queue
        await self._history.finish(scope, row.key, Attempt.SUCCEEDED, outcome, patient=True)
        seen = self._history.seen
        self._posting.saw(int(seen.life[:LIFE_DIGITS], 16), int(seen.now_s))
        if not about.callback:
            self._posting.settled(row)


def last_seen(posting: Posting) -> HistorySeen:
    """Return what the store of a node has last seen of the shared history."""
    life, now_s = posting.shared
    return HistorySeen(f"{life:0{LIFE_DIGITS}x}" if life else "", now_s)

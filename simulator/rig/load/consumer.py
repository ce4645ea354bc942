"""An application that receives in transactions, and knows which messages it has received, whatever breaks in the
meantime.

A client learns the outcome of a commit when its node is back. If that takes too long, the commit is in doubt. The queue
then shows the outcome, because messages arrive in order. If the next message is the first of the batch in doubt, the
commit did not happen. If it is another message, or none is left, the commit did happen. Messages with known identifiers
are not dropped, so a message that was delivered twice is recorded twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import trio

from mqproto.simulator.client import Client, InDoubt, NodeUnreachable, ReceivedMessage, RolledBack
from mqproto.simulator.rig.proof import Committed, digest_of

BATCH: Final = 64
PATIENCE_S: Final = 0.5
"""The time, in seconds, that one receive waits for a first message."""
PATIENCE_IN_DOUBT_S: Final = 5.0
"""The time, in seconds, that a receive waits after a commit in doubt. Silence must mean an empty queue, even on a slow
disk.
"""
RECONNECT_S: Final = 0.02
PAUSES: Final = 0.05
LONGEST_PAUSE_S: Final = 1.5
ROLL_BACKS: Final = 0.1
"""For a consumer with moods: the probability of a pause before a receive and the longest pause in seconds (both above),
and the probability of a rollback.
"""


class _ChangedMindError(Exception):
    """The consumer rolls back, so that its messages return to the queue."""


class Consumer:
    """Receives from one queue until it is cancelled.

    Args:
        connect: opens a connection to the node that hosts the queue.
        queue: the name of the queue.
        moods: the random generator that decides when the consumer pauses, so that messages pile up, and when it rolls
            back; None if it does neither.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Client]],
        queue: str,
        moods: random.Random | None = None,
    ) -> None:
        self.received: list[Committed] = []
        """The messages that are known to be committed, in order."""
        self.in_doubt_count = 0
        self.committed_in_doubt_count = 0
        self._connect = connect
        self._queue = queue
        self._moods = moods
        self.rolled_back_count = 0
        self._in_doubt: list[Committed] = []

    @property
    def is_in_doubt(self) -> bool:
        """Whether the outcome of the last commit is still unknown."""
        return bool(self._in_doubt)

    async def run(self) -> None:
        """Receive until this task is cancelled. Connect again whenever the node is gone."""
        while True:
            try:
                async with self._connect() as client:
                    while True:
                        if self._moods and self._moods.random() < PAUSES:
                            await trio.sleep(self._moods.uniform(0, LONGEST_PAUSE_S))
                        await self._receive(client)
            except NodeUnreachable:
                await trio.sleep(RECONNECT_S)

    async def _receive(self, client: Client) -> None:
        """Receive in one transaction.

        Raises:
            NodeUnreachable: the node is gone. If this happened during the commit, the batch is in doubt from now on.
        """
        batch: list[Committed] = []
        timeout_s = PATIENCE_IN_DOUBT_S if self._in_doubt else PATIENCE_S
        try:
            async with client.transaction(self._queue, limit=BATCH, timeout_s=timeout_s) as messages:
                now_s = trio.current_time()
                batch = [_record(message, now_s) for message in messages]
                self._resolve(batch)
                if batch and self._moods and self._moods.random() < ROLL_BACKS:
                    raise _ChangedMindError
        except _ChangedMindError:
            self.rolled_back_count += 1
            return
        except InDoubt:
            self._in_doubt = batch
            self.in_doubt_count += 1
            return
        except RolledBack:
            return  # The same messages come again.
        self.received += batch

    def _resolve(self, batch: list[Committed]) -> None:
        """Decide from the queue's first message whether the commit in doubt happened."""
        if not self._in_doubt:
            return
        if not batch or batch[0].message_id != self._in_doubt[0].message_id:
            self.received += self._in_doubt
            self.committed_in_doubt_count += 1
        self._in_doubt = []


def _record(message: ReceivedMessage, now_s: float) -> Committed:
    return Committed(message.id, digest_of(message.label, message.body), now_s)

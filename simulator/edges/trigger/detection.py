"""Carries out the three steps of mqproto/edge/exactlyonce.py for the messages of one queue.

The order of the steps prevents a message from being processed twice unnoticed. A message is STARTED on disk before its
consumer is called, and its outcome is in the history before the message leaves its queue. If a program dies in between,
the message is not processed again unless a resolver or an operator says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

import trio

from mqproto.edge.exactlyonce import Attempt, Entry, Verdict, judge
from mqproto.simulator.edges.history.history import DocumentHistory, FencedError, HistoryError, Record
from mqproto.simulator.edges.history.lives import is_forgotten
from mqproto.simulator.edges.trigger.callee import Call
from mqproto.simulator.edges.trigger.resolver import Resolver

REMEMBERED_LIMIT: Final = 10_000


def scope_of(queue: str) -> str:
    """Return the scope that the document history uses for triggers' documents about a queue."""
    return f"trigger/{queue}"


class Found(NamedTuple):
    """What a trigger knows about a message.

    verdict: None if the resolver has to be asked.
    attempt: the number of this attempt: the delivery count or, if that is unknown, the higher of the counts in the
        history and in our memory.
    reason: why the message is not new, in one line.
    doubt: why a message with the verdict NEW may have been processed nevertheless, for example because a call had no
        answer; otherwise empty.
    """

    verdict: Verdict | None
    attempt: int
    reason: str = ""
    doubt: str = ""


class Detection:
    """Decides which messages of a queue are new.

    Args:
        queue: the name of the queue in the history.
        owner: the name of this trigger, which outlives its process.
        history: the document history; None if none is used.
        resolver: the document resolver; None if there is none.
        enabled: whether duplicates are detected. If not, each delivery counts as that of a new message, and a message
            may be processed more than once.
    """

    def __init__(
        self,
        queue: str,
        owner: str,
        history: DocumentHistory | None = None,
        resolver: Resolver | None = None,
        *,
        enabled: bool = True,
    ) -> None:
        assert enabled or (history is None and resolver is None), (
            "nobody is asked if nothing is to be detected"
        )
        self.resolver = resolver
        self.queue = queue
        self.epoch = 0
        """The epoch of the leader for which this writes; 0 for none."""
        self._scope = scope_of(queue)
        self._owner = owner
        self._history = history
        self._enabled = enabled
        self._deliveries: dict[str, int] = {}
        self._in_hand: dict[str, trio.Event] = {}
        self._unrecorded: dict[str, tuple[Attempt, bytes]] = {}
        self._catching_up = trio.Lock()

    def lead(self, epoch: int) -> None:
        """Use this epoch for all that is written from now on, and forget unwritten outcomes of earlier epochs."""
        if epoch != self.epoch:
            self._unrecorded.clear()
            self._deliveries.clear()
        self.epoch = epoch

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncIterator[None]:
        """Keep other tasks of this process from handling a message with this key during the block."""
        while key in self._in_hand:
            await self._in_hand[key].wait()
        self._in_hand[key] = trio.Event()
        try:
            yield
        finally:
            self._in_hand.pop(key).set()

    async def judge(self, call: Call, *, patient: bool = False) -> Found:
        """Take steps 1 and 2.

        If a history is used and does not have the message, the message is now STARTED there.

        Args:
            patient: whether this may wait to share a flush with other calls.

        Raises:
            HistoryError: the history is not available.
            FencedError: another trigger has taken over.
        """
        seen = self._deliveries.pop(call.message, 0) + 1
        self._deliveries[call.message] = seen
        if len(self._deliveries) > REMEMBERED_LIMIT:
            del self._deliveries[next(iter(self._deliveries))]
        record: Record | None = None
        if self._history is not None:
            await self.catch_up()
            begin = partial(
                self._history.begin, self._scope, call.key, self._owner, self.epoch, origin=call.origin
            )
            record = await begin(patient=patient)
            if record.entry is not Entry.ABSENT and is_forgotten(record.origin, call.origin):
                # Its producer uses an id anew, as he may, and this history has kept it for longer.
                await self._history.reopen(self._scope, call.key, record.origin)
                record = await begin(patient=patient)
            seen = max(seen, record.attempts + 1)
        attempt = call.delivery_count if call.delivery_count > 0 else seen
        if record is not None and (record.entry, record.attempts) == (Entry.ABSENT, 0):
            # It was handed out ahead of its turn, and came back without one. That was nobody's failure.
            attempt = 1
        if not self._enabled:
            return Found(Verdict.NEW, attempt)
        entry = None if record is None else record.entry
        verdict = judge(call.delivery_count, entry, has_resolver=self.resolver is not None)
        if verdict is Verdict.NEW:
            return Found(verdict, attempt, doubt="" if record is None else record.doubt)
        return Found(verdict, attempt, _why(call, record))

    @property
    def is_kept(self) -> bool:
        """Whether there is a history, which keeps the outcome of each message."""
        return self._history is not None

    async def record(self, key: str, attempt: Attempt, outcome: str = "", *, patient: bool = False) -> None:
        """Record in the history how the processing of a message ended.

        If the history cannot be written now, the outcome is written before any other call to the history. The message
        need not wait for that, because until then it is STARTED there.

        Args:
            outcome: after FAILED_FOR_GOOD, why the message failed; after FAILED_FOR_NOW, as in `Record`. Otherwise
                empty.
            patient: whether this may wait to share a flush with the beginning of the next message.

        Raises:
            FencedError: another trigger has taken over. For that trigger, the message is STARTED and in doubt.
        """
        if self._history is None:
            return
        kept = outcome.encode()
        try:
            await self._history.finish(self._scope, key, attempt, kept, self.epoch, patient=patient)
        except FencedError:
            raise
        except BaseException as error:
            self._unrecorded[key] = attempt, kept
            if not isinstance(error, HistoryError):
                raise

    async def catch_up(self) -> None:
        """Write the outcomes that could not be written to the history earlier.

        Raises:
            HistoryError: the history cannot be written.
            FencedError: another trigger has taken over.
        """
        if self._history is None or not self._unrecorded:
            return
        # One at a time: what was written, and then begun anew, must not be written once more.
        async with self._catching_up:
            while self._unrecorded:
                key, (attempt, outcome) = next(iter(self._unrecorded.items()))
                await self._history.finish(self._scope, key, attempt, outcome, self.epoch)
                del self._unrecorded[key]

    async def is_back(self) -> bool:
        """Return whether the history is available and has all our outcomes.

        Raises:
            FencedError: another trigger has taken over.
        """
        if self._history is None:
            return True
        try:
            await self.catch_up()
            await self._history.started_by(self._scope, self._owner)
        except HistoryError:
            return False
        return True

    def settled(self, message: str) -> None:
        """Record that the message with this identifier has left its queue."""
        self._deliveries.pop(message, None)


def _why(call: Call, record: Record | None) -> str:
    if record is None:
        count = call.delivery_count
        times = "nobody knows how often" if count < 0 else f"{count} times"
        return f"it was delivered {times}, and no document history is used"
    outcome = record.outcome.decode("utf-8", "replace")
    match record.entry:
        case Entry.STARTED:
            return f"{record.owner} has started and not finished it"
        case Entry.FAILED:
            return outcome or "it failed for good before"
    return "it was processed before"

"""The three steps of mqproto/edge/exactlyonce.py, carried out for the messages of one queue.

The order of things is the promise: a message is STARTED on disk before its consumer is called, and the history has what
came of it before it leaves its queue. Whatever dies in between, it is not processed a second time unless somebody who
was asked says so.
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
from mqproto.simulator.edges.trail import OWN_QUEUES
from mqproto.simulator.edges.trigger.callee import Call
from mqproto.simulator.edges.trigger.resolver import Resolver

REMEMBERED_LIMIT: Final = 10_000


def scope_of(queue: str) -> str:
    """Where the document history has what triggers do with a queue."""
    return f"trigger/{queue}"


class Found(NamedTuple):
    """The state of a message for its trigger.

    verdict: None if the resolver is to be asked.
    attempt: the number of this one: the delivery count, or if that is not known what the history and our memory say,
        whichever has seen more.
    reason: why it is not new, in one line.
    doubt: of a new one that may have been processed all the same, as a call had no answer: why nobody knows.
    """

    verdict: Verdict | None
    attempt: int
    reason: str = ""
    doubt: str = ""


class Detection:
    """Tells which messages of a queue are new.

    Args:
        queue: names it in the history.
        owner: who processes them, under a name that outlives this process.
        history: None if none is used.
        resolver: None if there is none.
        enabled: otherwise each message is new whenever it is delivered, and may be processed more than once.
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
        """Of the leader as which all is written; 0 for none."""
        self._scope = scope_of(queue)
        self._owner = owner
        self._history = history
        self._enabled = enabled
        self._deliveries: dict[str, int] = {}
        self._in_hand: dict[str, trio.Event] = {}
        self._unrecorded: dict[str, tuple[Attempt, bytes]] = {}
        self._catching_up = trio.Lock()

    def lead(self, epoch: int) -> None:
        """Write everything with this epoch from now on, and ignore what others have left open."""
        if epoch != self.epoch:
            self._unrecorded.clear()
            self._deliveries.clear()
        self.epoch = epoch

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncIterator[None]:
        """Within the block no other task of this process handles a message with this key."""
        while key in self._in_hand:
            await self._in_hand[key].wait()
        self._in_hand[key] = trio.Event()
        try:
            yield
        finally:
            self._in_hand.pop(key).set()

    async def is_gateways(self, queue: str) -> bool:
        """Whether a gateway with the same history has acknowledgments come to the queue of this format name.

        Raises:
            HistoryError: the history cannot be asked.
        """
        if self._history is None or not queue.startswith("PRIVATE="):
            return False
        return (await self._history.look(OWN_QUEUES, queue)).entry is Entry.STARTED

    async def judge(self, call: Call, *, patient: bool = False) -> Found:
        """Steps 1 and 2. If a history is used and has nothing of the message, it is STARTED there from now on.

        Args:
            patient: that may share the flush of others.

        Raises:
            HistoryError: the history cannot be asked.
            FencedError: another has taken over.
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
            return Found(verdict, attempt, doubt="" if record is None else record.outcome.decode())
        return Found(verdict, attempt, _why(call, record))

    @property
    def is_kept(self) -> bool:
        """Whether a history has what became of each message."""
        return self._history is not None

    async def record(self, key: str, attempt: Attempt, outcome: str = "", *, patient: bool = False) -> None:
        """The history is to know how the processing of a message ended.

        If it cannot be written now it is written before anything else is asked of it, and what became of the message
        need not wait for that: until then it is STARTED there.

        Args:
            outcome: why it failed for good; or for now, and nobody knows whether it was processed.
            patient: it may share the flush of the message that is begun next.

        Raises:
            FencedError: another has taken over: to that one it is STARTED, and in doubt.
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
        """Write what the history does not know yet.

        Raises:
            HistoryError: it cannot be written.
            FencedError: another has taken over.
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
        """Whether the history can be asked, and knows what we know.

        Raises:
            FencedError: another has taken over.
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
        """The message of this identifier has left its queue."""
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

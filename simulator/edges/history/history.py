"""The document history: the outcome of each message, under an identifier that all retries share.

A message is begun here before it is processed, and finished afterwards. Several callers may begin one document, in any
process or, if the database is a server, on any machine. Exactly one of them finds it absent and has to process it. A
later caller finds it started, completed or failed, and decides by the tables of mqproto/edge/exactlyonce.py.

    async with open_history("sqlite:///history.sqlite") as history:
        if (await history.begin("trigger/orders", key, "trigger-1")).entry is Entry.ABSENT:
            ...
            await history.finish("trigger/orders", key, Attempt.SUCCEEDED)

When a method returns, its change is on disk. After a HistoryError or a cancellation, the change may or may not have
happened; a repeated call gives the same answer. Simultaneous calls form one transaction with one flush.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from secrets import randbits
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.edge.exactlyonce import ENTRY_AFTER, Attempt, Entry
from mqproto.simulator.edges.history.documents import (
    Answer,
    Begin,
    Call,
    Documents,
    Finish,
    LookUp,
    Record,
    Reopen,
    StartedBy,
)
from mqproto.simulator.edges.history.errors import HistoryError
from mqproto.simulator.edges.history.forgetting import passed_s
from mqproto.simulator.edges.history.leaders import (
    BecomeLeader,
    FencedError,
    Leader,
    LeaderSays,
    WhoLeads,
)
from mqproto.simulator.edges.history.lives import HistorySeen
from mqproto.simulator.edges.history.outbox import Attempted, Due, Find, Hook, OutboxWork, Tell

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


__all__ = ["DocumentHistory", "FencedError", "HistoryError", "Hook", "Leader", "Record", "open_history"]

T = TypeVar("T")
KEY_LIMIT: Final = 512
NAME_LIMIT: Final = 160
"""The maximum length of a key, a scope or an owner, in characters.

PostgreSQL cannot index longer ones if each character takes four bytes.
"""
OUTCOME_LIMIT_BYTES: Final = 65_536
BATCH_LIMIT: Final = 500
"""The maximum number of calls in one transaction."""
COMPANY_S: Final = 0.005
"""The maximum time, in seconds, for which a patient call waits for others to share its flush."""
NO_CHARACTER: Final = re.compile("[\0\ud800-\udfff]")
"""The characters that PostgreSQL cannot store in a text: NUL and surrogates."""
TICKETS_LIMIT: Final = 10_000
TICKET_BITS: Final = 62


@asynccontextmanager
async def open_history(
    url: str,
    *,
    keep_s: float | None = None,
    clock: Callable[[], float] = time.time,
    passed_s: Callable[[], float] = passed_s,
    log: FilteringBoundLogger | None = None,
    seen: HistorySeen | None = None,
) -> AsyncIterator[DocumentHistory]:
    """Yield the document history in a database, and make its tables if they are missing.

    Args:
        url: `sqlite:///PATH`, or `postgresql+psycopg://USER@HOST/DATABASE`; see databases.py.
        keep_s: the minimum time for which all users of this history keep an entry after its last change; None for the
            history's own setting, which is 30 days at first. After that, a repeated document counts as new. A document
            that was started and never finished is kept until somebody finishes it, because only a person or a resolver
            can tell whether it was processed.
        clock: returns the time in seconds since 1970. It is used for display, and as the lowest epoch of a new leader.
        passed_s: returns the number of seconds that have passed. Entries age only by these seconds, and only while a
            program has the history open.
        log: gets `clock-wrong` if the clock is wrong; the history continues to work.
        seen: what a gateway's node has last seen of its history; None without a gateway.

    Raises:
        UsageError: `url` is not such a URL, or `keep_s` is not more than 0.
        HistoryError: the database is not available, or lacks ids of this gateway.
    """
    if keep_s is not None and not keep_s > 0:
        raise UsageError(f"entries kept for {keep_s:g} s: it takes more than 0")

    def warn(reason: str) -> None:
        if log is not None:
            log.warning("clock-wrong", reason=reason)

    documents = await trio.to_thread.run_sync(Documents, url, keep_s, clock, passed_s, warn, seen)
    history = DocumentHistory(documents)
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(history.serve)
        # What goes wrong in the caller's block leaves as itself, not in the nursery's group.
        try:
            yield history
        except BaseException as error:
            failure = error
        history.close()
    if failure is not None:
        raise failure


class DocumentHistory:
    """The outcomes of documents; `open_history` makes it. Several tasks may use it at once.

    A scope is the space in which keys are unique, such as `gateway/orders`; a key names a document in that scope. An
    owner is the program that processes the document, under a name that outlives its process.

    Every method may raise HistoryError, and UsageError for a value that is too long to be stored.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._waiting = deque[_PendingCall]()
        self._due_s = inf
        """The time, in seconds, at which the first patient call will have waited long enough for others."""
        self._work = trio.Event()
        self._pause = trio.CancelScope()
        """The scope in which the task waits for work. A patient call does not end this wait, but shortens it."""
        self._is_closed = False
        self._unanswered = _Tickets()
        """The tickets of calls that began a document but got no answer, keyed by scope, key and owner."""
        self._begun = _Tickets()
        """The tickets of documents that were begun here but are not finished, keyed by scope and key."""

    @property
    def keep_s(self) -> float:
        """The number of seconds for which an entry is kept after its last change."""
        return self._documents.keep_s

    @property
    def seen(self) -> HistorySeen:
        """Return the facts about the history that the store of a gateway's node is to keep.

        This works even after the history is closed.
        """
        return self._documents.seen

    async def begin(
        self,
        scope: str,
        key: str,
        owner: str,
        epoch: int = 0,
        *,
        origin: str = "",
        patient: bool = False,
    ) -> Record:
        """Return the record that the history had of a document.

        If the document was absent, `owner` has now started it.

        If several callers begin it at once, exactly one gets ABSENT.

        Args:
            epoch: the epoch of the leader that begins it; 0 for none.
            origin: the origin in the message's envelope.
            patient: whether this may wait a few milliseconds for other calls to share its flush.

        Raises:
            FencedError: another leader has taken over; nothing was begun.
        """
        _check(scope, key, owner=owner)
        ticket = self._unanswered.pop((scope, key, owner), 0) or 1 + randbits(TICKET_BITS)
        try:
            begin = Begin(scope, key, owner, ticket, epoch, origin)
            record = await self._asked(Record, begin, patient=patient)
        except BaseException:
            self._unanswered.keep((scope, key, owner), ticket)
            raise
        if record.entry is Entry.ABSENT:
            self._begun.keep((scope, key), ticket)
        return record

    async def finish(
        self,
        scope: str,
        key: str,
        attempt: Attempt,
        outcome: bytes = b"",
        epoch: int = 0,
        *,
        patient: bool = False,
    ) -> None:
        """Record that the processing of a document has ended: its entry is now the one in ENTRY_AFTER.

        After FAILED_FOR_NOW the document is absent or, with an outcome that says why, still in doubt. A completed
        document stays completed, with its first outcome. A permanent failure can be replaced only by a success.

        Args:
            outcome: the outcome for the next caller, at most 65,536 bytes.
            epoch: the epoch of the leader that ends the processing; 0 for none.
            patient: whether this may wait a few milliseconds for other calls to share its flush.

        Raises:
            FencedError: another leader has taken over; nothing was written.
        """
        _check(scope, key)
        if len(outcome) > OUTCOME_LIMIT_BYTES:
            raise UsageError(
                f"an outcome of {len(outcome):,} bytes: up to {OUTCOME_LIMIT_BYTES:,} can be kept"
            )
        entry = ENTRY_AFTER[attempt]
        ticket = self._begun.pop((scope, key), 0)
        try:
            await self._ask(Finish(scope, key, ticket, entry, outcome, epoch), patient=patient)
        except BaseException:
            self._begun.keep((scope, key), ticket)
            raise

    async def reopen(self, scope: str, key: str, origin: str = "") -> None:
        """Make a started or failed document absent, because an operator wants it to be processed.

        A completed document stays completed, unless its message has this origin.
        """
        _check(scope, key)
        await self._ask(Reopen(scope, key, origin))

    async def look(self, scope: str, key: str) -> Record:
        """Return the history's record of a document."""
        _check(scope, key)
        return await self._asked(Record, LookUp(scope, key))

    async def started_by(self, scope: str, owner: str) -> list[str]:
        """Return, in order, the keys of the documents that this owner has started and that are not finished."""
        _check(scope, owner=owner)
        return await self._asked(list, StartedBy(scope, owner))

    # Leaders

    async def lead(self, scope: str, name: str, ticket: int, instead: Leader | None = None) -> Leader:
        """Return the current leader.

        `name` becomes the leader if there was none. It also does if the leader was `instead` and has not shown that it
        is alive since `instead` was read.

        Args:
            ticket: a number, not 0, that identifies this process.
        """
        _check(scope, owner=name)
        return await self._asked(Leader, BecomeLeader(scope, name, ticket, instead))

    async def who_leads(self, scope: str) -> Leader:
        """Return the leader; its name is empty if there is none."""
        _check(scope)
        return await self._asked(Leader, WhoLeads(scope))

    async def beat(self, scope: str, epoch: int) -> None:
        """Show that the leader of this epoch is alive.

        Raises:
            FencedError: another leader has taken over.
        """
        await self._ask(LeaderSays(scope, epoch))

    async def note(self, scope: str, epoch: int, note: bytes) -> None:
        """Store a note of this epoch's leader for its successors.

        Raises:
            FencedError: another leader has taken over.
        """
        if len(note) > OUTCOME_LIMIT_BYTES:
            raise UsageError(f"a note of {len(note):,} bytes: up to {OUTCOME_LIMIT_BYTES:,} can be kept")
        await self._ask(LeaderSays(scope, epoch, note))

    async def resign(self, scope: str, epoch: int) -> None:
        """End the leadership of this epoch.

        Raises:
            FencedError: another leader has taken over.
        """
        await self._ask(LeaderSays(scope, epoch, resigns=True))

    # Hooks

    async def hook(self, identifier: str) -> Hook | None:
        """Return the report about the end of a message (outbox.py); None if there is none."""
        hook = await self._ask(Find(identifier))
        assert hook is None or isinstance(hook, Hook)
        return hook

    async def tell(self, hook: Hook, epoch: int = 0) -> None:
        """Queue the report about the end of a message, but only once.

        If the end is not yet known, prepare the report.

        Raises:
            FencedError: its scope has another leader; no report is queued.
        """
        await self._ask(Tell(hook, epoch))

    async def due(self, sender: str, limit: int) -> OutboxWork:
        """Return the reports that are due now."""
        return await self._asked(OutboxWork, Due(sender, limit))

    async def attempted(self, identifier: str, *, has_heard: bool, again_s: float | None = None) -> None:
        """Record an attempt to deliver a report.

        Args:
            has_heard: whether the report was delivered.
            again_s: the number of seconds until the next attempt; None if the report was delivered or given up.
        """
        await self._ask(Attempted(identifier, has_heard, again_s))

    async def _asked(self, kind: type[T], call: Call, *, patient: bool = False) -> T:
        """Return the answer to a call. It has the given type."""
        answer = await self._ask(call, patient=patient)
        assert isinstance(answer, kind)
        return answer

    async def _ask(self, call: Call, *, patient: bool = False) -> Answer:
        [answer] = await self._ask_all([call], patient=patient)
        return answer

    async def _ask_all(self, calls: Sequence[Call], *, patient: bool = False) -> list[Answer]:
        if self._is_closed:
            raise UsageError("the document history is closed")
        await trio.lowlevel.checkpoint_if_cancelled()
        asked = list(map(_PendingCall, calls))
        self._waiting += asked
        self._due_s = min(self._due_s, trio.current_time() + (COMPANY_S if patient else 0))
        if patient:
            self._pause.deadline = min(self._pause.deadline, self._due_s)
        else:
            self._work.set()
        try:
            for each in asked:
                await each.answered.wait()
        except trio.Cancelled:
            for each in filter(self._waiting.__contains__, asked):
                self._waiting.remove(each)
            raise
        return [each.outcome() for each in asked]

    # For open_history

    async def serve(self) -> None:
        """Answer calls until the history is closed and no call is waiting."""
        limiter = trio.CapacityLimiter(1)  # Other threads of this program are no reason to wait.
        with trio.CancelScope(shield=True):
            while self._waiting or not self._is_closed:
                if not self._is_closed and (not self._waiting or trio.current_time() < self._due_s):
                    self._work = trio.Event()
                    with trio.CancelScope(deadline=self._due_s if self._waiting else inf) as self._pause:
                        await self._work.wait()
                    continue
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_LIMIT))]
                self._due_s = trio.current_time() if self._waiting else inf
                calls = [asked.call for asked in batch]
                answers = self._documents.carry_out_at_once(calls)
                if answers is None:
                    answers = await trio.to_thread.run_sync(self._documents.carry_out, calls, limiter=limiter)
                for asked, answer in zip(batch, answers, strict=True):
                    asked.answer = answer
                    asked.answered.set()
                if self._waiting:
                    await trio.lowlevel.checkpoint()  # Else it waits anyway.
            await trio.to_thread.run_sync(self._documents.close, limiter=limiter)

    def close(self) -> None:
        """Declare that there will be no further calls."""
        self._is_closed = True
        self._work.set()


class _Tickets(dict[tuple[str, ...], int]):
    """The tickets of the latest calls, which distinguish these calls from those of other programs."""

    def keep(self, place: tuple[str, ...], ticket: int) -> None:
        self[place] = ticket
        if len(self) > TICKETS_LIMIT:
            del self[next(iter(self))]


class _PendingCall:
    """A call that has not been answered yet."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.answered = trio.Event()
        self.answer: Answer | MqprotoError = None

    def outcome(self) -> Answer:
        """Return the answer, or raise it if it is an error."""
        if isinstance(self.answer, MqprotoError):
            # The same error may go to many, and each gets one of its own.
            raise type(self.answer)(*self.answer.args) from self.answer
        return self.answer


def _check(scope: str, key: str | None = None, owner: str | None = None) -> None:
    """Check that both kinds of database can store these texts.

    Raises:
        UsageError: a text cannot be stored.
    """
    for what, value, limit in (
        ("a scope", scope, NAME_LIMIT),
        ("a key", key, KEY_LIMIT),
        ("an owner", owner, NAME_LIMIT),
    ):
        if value is None:
            continue
        if not 0 < len(value) <= limit:
            raise UsageError(f"{what} of {len(value):,} characters: 1 to {limit} can be kept")
        if NO_CHARACTER.search(value):
            raise UsageError(f"{what} {value!a}: it has a character that is none, and cannot be kept")

"""The document history: the outcome of each message, by an identifier that stays the same over all retries.

Before a message is processed it is begun here, and afterwards finished. Of all that begin one document, in this
process, in others, and on other machines if the database is a server, one finds it absent and is to process it. One
that comes later finds it started, completed or failed, and decides by the tables of mqproto/edge/exactlyonce.py.

    async with open_history("sqlite:///history.sqlite") as history:
        if (await history.begin("trigger/orders", key, "trigger-1")).entry is Entry.ABSENT:
            ...
            await history.finish("trigger/orders", key, Attempt.SUCCEEDED)

What a method has returned is on disk. A caller that gets a HistoryError, or is cancelled, does not know whether it
happened: asked again, the same gives the same answer. What all tasks ask at one time is one transaction with one flush.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from secrets import randbits
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.edge.exactlyonce import ENTRY_AFTER, Attempt, Entry
from mqproto.simulator.client.journal import HistorySeen
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
from mqproto.simulator.edges.history.outbox import Attempted, Due, Find, Hook, OutboxWork, Tell

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


__all__ = ["DocumentHistory", "FencedError", "HistoryError", "Hook", "Leader", "Record", "open_history"]

T = TypeVar("T")
KEY_LIMIT: Final = 512
NAME_LIMIT: Final = 160
"""Characters of a key; of a scope or owner. PostgreSQL indexes no more, if each takes four bytes."""
OUTCOME_LIMIT_BYTES: Final = 65_536
BATCH_LIMIT: Final = 500
"""How many calls make one transaction."""
COMPANY_S: Final = 0.005
"""How long who is patient waits at most."""
NO_CHARACTER: Final = re.compile("[\0\ud800-\udfff]")
"""What PostgreSQL keeps in no text: NUL, and halves of characters."""
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
    """The document history in a database, which gets its tables if it has none.

    Args:
        url: `sqlite:///PATH`, or `postgresql+psycopg://USER@HOST/DATABASE`; see databases.py.
        keep_s: how long an entry is kept after it has changed, at least, by all who use this history from now on; None
            for what it says itself, 30 days if it is new. A document that comes again later is new. What was started
            and never finished is kept until somebody finishes it: only a person, or a resolver, can tell whether it was
            processed.
        clock: the time, in seconds since 1970, which is only shown.
        passed_s: counts the seconds that pass: by them alone entries grow old, and only while somebody has the history.
        log: is told about a clock that is not right, `clock-wrong`, and of ids that somebody has said it lacks,
            `ids-unknown`; the history goes on.
        seen: what the journal of a gateway knows of its history; None if there is no journal, or it is new.

    Raises:
        UsageError: it is not such a URL.
        HistoryError: the database is not available, or lacks ids of this gateway.
    """
    if keep_s is not None and not keep_s > 0:
        raise UsageError(f"entries kept for {keep_s:g} s: it takes more than 0")

    def warn(reason: str) -> None:
        if log is not None:
            log.warning("clock-wrong", reason=reason)

    documents = await trio.to_thread.run_sync(Documents, url, keep_s, clock, passed_s, warn, seen)
    if documents.lacks and log is not None:
        log.warning("ids-unknown", reason=documents.lacks)
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

    A scope says for whom a document is new or not, such as `gateway/orders`; a key names it there; an owner is what
    processes it, under a name that outlives its process.

    Every method may raise HistoryError, and UsageError for what is too long to be kept.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._waiting = deque[_PendingCall]()
        self._due_s = inf
        """When somebody waits who has waited long enough for company."""
        self._work = trio.Event()
        self._pause = trio.CancelScope()
        """Until there is work. Whoever is patient wakes nobody, and makes it shorter."""
        self._is_closed = False
        self._unanswered = _Tickets()
        """Of those who began a document, by scope, key and owner, and did not hear whether they did."""
        self._begun = _Tickets()
        """By scope and key, of documents that were begun here, and are not finished."""

    @property
    def keep_s(self) -> float:
        """How long an entry is kept after it has changed."""
        return self._documents.keep_s

    @property
    def seen(self) -> HistorySeen:
        """What a gateway's journal is to know of it, also after it was closed."""
        return self._documents.seen

    @property
    def origin(self) -> str:
        """What is to be said about a message that was begun here just now (lives.py)."""
        return self._documents.origin

    @property
    def knows_earlier(self) -> bool:
        """Whether it may have ids that have no names of producers before them."""
        return self._documents.knows_earlier

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
        """What the history had of a document; if that was nothing, it is started by `owner` from now on.

        Of several that begin it at once, exactly one sees ABSENT.

        Args:
            epoch: of a leader, as which it is begun; 0 for none.
            origin: of the message, as its envelope has it.
            patient: it may wait a few milliseconds for others to share its flush.

        Raises:
            FencedError: another has taken over; nothing was begun.
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
        """A document's processing ended: the entry is now that of ENTRY_AFTER.

        After FAILED_FOR_NOW it is absent; with an outcome, which says why, it is in doubt all the same. What was
        completed stays completed, with its first outcome; a failure for good yields to a success, and to nothing else.

        Args:
            outcome: what the next caller is to be told, at most 65,536 bytes.
            epoch: of a leader, as which it ends; 0 for none.
            patient: it may wait a few milliseconds for others to share its flush.

        Raises:
            FencedError: another has taken over; nothing was written.
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
        """Make a started or failed document absent, because an operator wants it processed.

        What was completed stays so, unless its message was of this origin.
        """
        _check(scope, key)
        await self._ask(Reopen(scope, key, origin))

    async def look(self, scope: str, key: str) -> Record:
        """The history's record of a document."""
        _check(scope, key)
        return await self._asked(Record, LookUp(scope, key))

    async def started_by(self, scope: str, owner: str) -> list[str]:
        """Return the keys of documents that this owner has started and that are not finished, in order."""
        _check(scope, owner=owner)
        return await self._asked(list, StartedBy(scope, owner))

    # Leaders

    async def lead(self, scope: str, name: str, ticket: int, instead: Leader | None = None) -> Leader:
        """Return the leader: this one, if there was none, or if it was `instead` and has not moved since.

        Args:
            ticket: a number, not 0, of this process.
        """
        _check(scope, owner=name)
        return await self._asked(Leader, BecomeLeader(scope, name, ticket, instead))

    async def who_leads(self, scope: str) -> Leader:
        """Return the leader; its name is empty if there is none."""
        _check(scope)
        return await self._asked(Leader, WhoLeads(scope))

    async def beat(self, scope: str, epoch: int) -> None:
        """The leader of this epoch lives.

        Raises:
            FencedError: another has taken over.
        """
        await self._ask(LeaderSays(scope, epoch))

    async def note(self, scope: str, epoch: int, note: bytes) -> None:
        """Store a note of this epoch's leader for its successors.

        Raises:
            FencedError: another has taken over.
        """
        if len(note) > OUTCOME_LIMIT_BYTES:
            raise UsageError(f"a note of {len(note):,} bytes: up to {OUTCOME_LIMIT_BYTES:,} can be kept")
        await self._ask(LeaderSays(scope, epoch, note))

    async def resign(self, scope: str, epoch: int) -> None:
        """The leader of this epoch leads no more.

        Raises:
            FencedError: another has taken over.
        """
        await self._ask(LeaderSays(scope, epoch, resigns=True))

    # Hooks

    async def hook(self, identifier: str) -> Hook | None:
        """Return the report about an end (outbox.py); None if there is none."""
        hook = await self._ask(Find(identifier))
        assert hook is None or isinstance(hook, Hook)
        return hook

    async def tell(self, hook: Hook, epoch: int = 0) -> None:
        """Report an end once, or prepare the report if the end is not known yet.

        Raises:
            FencedError: its scope has another leader; nobody is told.
        """
        await self._ask(Tell(hook, epoch))

    async def due(self, sender: str, limit: int) -> OutboxWork:
        """Return the reports that are due now."""
        return await self._asked(OutboxWork, Due(sender, limit))

    async def attempted(self, identifier: str, *, has_heard: bool, again_s: float | None = None) -> None:
        """Note that a report was delivered, has to be repeated after this time, or is given up."""
        await self._ask(Attempted(identifier, has_heard, again_s))

    async def _asked(self, kind: type[T], call: Call, *, patient: bool = False) -> T:
        """The answer to a call, which has one of this kind."""
        answer = await self._ask(call, patient=patient)
        assert isinstance(answer, kind)
        return answer

    async def _ask(self, call: Call, *, patient: bool = False) -> Answer:
        if self._is_closed:
            raise UsageError("the document history is closed")
        await trio.lowlevel.checkpoint_if_cancelled()
        asked = _PendingCall(call)
        self._waiting.append(asked)
        self._due_s = min(self._due_s, trio.current_time() + (COMPANY_S if patient else 0))
        if patient:
            self._pause.deadline = min(self._pause.deadline, self._due_s)
        else:
            self._work.set()
        try:
            await asked.answered.wait()
        except trio.Cancelled:
            if asked in self._waiting:
                self._waiting.remove(asked)
            raise
        if isinstance(asked.answer, MqprotoError):
            # The same error may go to many, and each gets one of its own.
            raise type(asked.answer)(*asked.answer.args) from asked.answer
        return asked.answer

    # For open_history

    async def serve(self) -> None:
        """Answer calls until it is closed and nobody waits any more."""
        limiter = trio.CapacityLimiter(1)  # Other threads of this program are no reason to wait.
        with trio.CancelScope(shield=True):
            while self._waiting or not self._is_closed:
                if not self._is_closed and (not self._waiting or trio.current_time() < self._due_s):
                    self._work = trio.Event()
                    with trio.CancelScope(deadline=self._due_s) as self._pause:
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
        """Nobody asks any more."""
        self._is_closed = True
        self._work.set()


class _Tickets(dict[tuple[str, ...], int]):
    """The tickets of calls that may have to be told from those of others, of the last ones."""

    def keep(self, place: tuple[str, ...], ticket: int) -> None:
        self[place] = ticket
        if len(self) > TICKETS_LIMIT:
            del self[next(iter(self))]


class _PendingCall:
    """A call that waits for its answer."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.answered = trio.Event()
        self.answer: Answer | MqprotoError = None


def _check(scope: str, key: str | None = None, owner: str | None = None) -> None:
    """See that these texts can be kept by either database.

    Raises:
        UsageError: one of them cannot.
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

"""The producer's side of reliable messaging: accepted messages are on disk, none is accepted twice.

The rules are those of "Message Producer Rules", "OSB Rules" and "Eliminating Duplicates on OSB". A producer that gets
the answer 200 is done. After a business error it must not retry. After any other outcome it may retry with the same id,
and a duplicate is dropped just before it would enter the queue:

    begin in the history ──► submit to the node ──► 200 ──► finish in the history
    nothing known about it      on disk there                  its message id is known

A retry finds the state of the first request: either the message id, or that the message is under way. A submission
continues even if its producer disconnects. If the gateway dies, the node knows which messages it has accepted, because
it stores a ticket with each message. So a producer may be answered before the history is written. `front.py` speaks
HTTP.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import FormatNameError, MqprotoError, QuotaExceeded, UsageError
from mqproto.edge.exactlyonce import Attempt, Entry
from mqproto.messages.drafts import BODY_LIMIT_BYTES, Draft
from mqproto.simulator.client import InDoubt, MessageId, NodeUnreachable
from mqproto.simulator.client.envelope import Envelope
from mqproto.simulator.edges.forwarding import ENCODING
from mqproto.simulator.edges.gateway.fullness import FullQueues
from mqproto.simulator.edges.gateway.refusals import Code, Refusal
from mqproto.simulator.edges.history.history import DocumentHistory, HistoryError
from mqproto.simulator.edges.trail import OUTCOMES, Outcome, Trail, trail_of
from mqproto.simulator.edges.trigger.telling import About, armed
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.resolve import is_bare

PATIENCE_S: Final = 25.0
"""The number of seconds for which a producer may wait for a submission that is under way."""
ELSEWHERE_S: Final = 0.05
"""The number of seconds between two looks at a message that is under way at another gateway."""
TAKEN: Final = ("accepted", "duplicate-dropped")
"""The words in the log for messages that are answered with 200."""
FINISH_AGAIN_S: Final = 1.0
"""The number of seconds until a failed write to the history is tried again."""


class GatewayQueue(NamedTuple):
    """A queue to which messages are sent.

    name: a name such as `destination\\orders`, which is the same whichever name the producer used.
    """

    name: str
    transactional: bool


SCOPE: Final = "gateway/"


def scope_of(queue: str) -> str:
    """Return the scope of a queue's messages in the document history."""
    return SCOPE + queue


def queue_named(topology: Topology, node: str, name: str) -> GatewayQueue:
    """Return the queue that a producer means by a name.

    Raises:
        TopologyError, FormatNameError: there is no such queue, or applications cannot send to it.
    """
    whole = f"{topology.host_of(name).name}\\{name}" if is_bare(name) else name
    found = topology.resolve(whole, at=node)
    if found.queue is None or found.local_name != found.queue.name:
        raise UsageError(f"{name} is a queue of the system's: name one that messages are sent to")
    return GatewayQueue(f"{found.node.name}\\{found.queue.name}", found.queue.transactional)


def queues_of(topology: Topology) -> list[GatewayQueue]:
    """Return all queues to which messages can be sent."""
    return [
        GatewayQueue(f"{node.name}\\{queue.name}", queue.transactional)
        for node in topology.nodes.values()
        for queue in node.queues.values()
    ]


@dataclass(frozen=True, slots=True)
class PostedMessage:
    """A message as a producer handed it in.

    key: the producer's id, preceded by the producer's name if it has one (`tokens.Opened`); empty for none, in which
        case duplicates are not noticed.
    admin_queue: the producer's own administration queue, which gets the acknowledgments instead of the gateway; empty
        for none.
    headers: the forwarded headers in the message's envelope.
    earlier: the key that the message had in earlier versions, in which no producer's name preceded the id; empty if it
        is the same.
    callback: a URL that gets a report about the message's end; empty for none.
    holder: the name of the token that the request used, for the log; empty for none.
    """

    queue: GatewayQueue
    key: str
    content_type: str
    draft: Draft
    admin_queue: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    earlier: str = ""
    callback: str = ""
    holder: str = ""

    def fingerprint(self) -> str:
        """Return a digest of the content.

        The only forwarded header that it covers is Content-Encoding, because a retry has a new trace.
        """
        draft = self.draft
        encoding = self.headers.get(ENCODING, "")
        parts = [self.content_type.encode(), draft.label.encode("utf-8"), draft.body]
        envelope = Envelope(content_type=self.content_type, producer_key=self.key)
        plain = envelope.as_extension()
        whole = msgspec.structs.replace(envelope, headers=dict(self.headers), confirmed=not self.admin_queue)
        extension = plain if draft.extension == whole.as_extension() else draft.extension
        # Of others the fingerprint is what it was before there were these, so that an id of then is known again.
        if draft.body_type or draft.application_tag or extension != plain:
            parts += [str(draft.body_type).encode(), str(draft.application_tag).encode(), extension]
        if encoding:
            parts.append(f"{ENCODING}: {encoding}".encode())
        digest = hashlib.sha256()
        for part in parts:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()


class Accepted(NamedTuple):
    """A message is on disk at its first queue manager.

    id: the message's id; for a duplicate, the id of the first message.
    duplicate: whether the message was a duplicate.
    """

    id: str
    duplicate: bool


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """The node's record of a message, from which the history later learns how the message ended.

    given: the message's key in the form that its producer used, if somebody gets a report about its end.
    """

    queue: str
    key: str
    fingerprint: str
    admin_queue: str = ""
    callback: str = ""
    given: str = ""


class Submitter(Protocol):
    """Hands messages to the node."""

    async def submit(self, ticket: Ticket, draft: Draft) -> MessageId:
        """Wait until the node has the message on disk; return its id.

        The outcome stays known until `forget`, even if a program dies.

        Raises:
            UsageError, FormatNameError, NodeUnreachable: the node does not have the message. It must not be sent from
                now on, because another gateway may begin it again.
            InDoubt: the outcome will be known later, and is then passed to `Gateway.recover`.
        """

    def forget(self, ticket: Ticket) -> None:
        """Forget the outcome of a ticket, because the history now has it."""


class _Submission:
    """A message that is under way. A retry that arrives in the meantime waits for the same outcome."""

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.over = trio.Event()
        self.known = trio.Event()
        """Set when the history has the outcome, or when it is certain that `recover` will record it later."""
        self.outcome: Accepted | Refusal | None = None

    def end(self, outcome: Accepted | Refusal | None) -> None:
        """Pass the outcome to the requests that wait for it."""
        self.outcome = outcome
        self.over.set()


class Gateway:
    """Accepts messages.

    Args:
        owner: the unique name of this gateway in the history, which stays the same across restarts.
        nursery: runs submissions, which continue even if producers disconnect.
        limit: the maximum number of messages under way at the same time.
        fullness: knows, from confirmations, which queues are full.
        on_end: reports the end of a message to those who wait for it, as for confirmations; it may raise HistoryError.
    """

    def __init__(
        self,
        submitter: Submitter,
        history: DocumentHistory,
        owner: str,
        log: FilteringBoundLogger,
        nursery: trio.Nursery,
        *,
        limit: int = 1_000,
        patience_s: float = PATIENCE_S,
        fullness: FullQueues | None = None,
        on_end: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._submitter = submitter
        self._history = history
        self._owner = owner
        self._log = log
        self._nursery = nursery
        self._limit = limit
        self._patience_s = patience_s
        self._fullness = fullness or FullQueues()
        self._on_end = on_end
        self._counts: Counter[tuple[str, str]] = Counter()
        self._count = 0
        self._under_way: dict[tuple[str, str], _Submission] = {}
        self._in_doubt = set[tuple[str, str]]()
        """The messages that the node may have but the history lacks.

        The next connection reports the outcomes of those that are not under way.
        """

    async def accept(self, handed: PostedMessage, held: ExitStack) -> Accepted:
        """Return as soon as the message is on disk, because of this request or an earlier one.

        Args:
            held: closed when the message's memory can be freed, perhaps after this returns.

        Raises:
            Refusal: the message is not accepted, or it is not yet known whether it is.
        """
        place = scope_of(handed.queue.name), handed.key
        fingerprint = handed.fingerprint() if handed.key else ""
        first, outcome = False, None
        with held, trio.move_on_after(self._patience_s):
            while (submission := self._under_way.get(place)) and submission.fingerprint != fingerprint:
                # Another message has this id: if it is accepted, it keeps it.
                await submission.over.wait()
                if isinstance(submission.outcome, Accepted):
                    raise _reused(handed)
            if submission is None:
                first, submission = True, self._start(handed, fingerprint, held)
            await submission.over.wait()
            outcome = submission.outcome
        match outcome:
            case Accepted(identifier, duplicate):
                if duplicate or not first:
                    self._note("duplicate-dropped", handed, identifier)
                return Accepted(identifier, duplicate or not first)
            case Refusal():
                raise Refusal(outcome.code, str(outcome), outcome.retry_after_s)
        known = f"it is not known within {self._patience_s:g} s whether the message is accepted"
        if handed.key:
            raise Refusal(Code.IN_PROGRESS, f"{known}: ask again with the same id")
        raise Refusal(Code.IN_DOUBT, f"{known}: sent again, it may come twice, as it has no id")

    async def trail(self, queue: GatewayQueue, key: str, earlier: str = "") -> Trail:
        """Return the trail of a message.

        Args:
            earlier: as in `PostedMessage`.

        Raises:
            Refusal: no message with this id was accepted, or it cannot be determined now whether one was.
        """
        try:
            trail = await trail_of(self._history, queue.name, key)
            if trail is None and earlier and self._history.knows_earlier:
                trail = await trail_of(self._history, queue.name, earlier)
        except HistoryError as error:
            raise Refusal(Code.HISTORY_UNAVAILABLE, str(error)) from None
        if trail is None:
            raise Refusal(
                Code.UNKNOWN_MESSAGE,
                f"no message with the id {key} is known for {queue.name}: none was accepted, or its id is forgotten",
            )
        return trail

    def messages(self, queues: Iterable[str]) -> dict[tuple[str, str], int]:
        """Return how many messages were accepted, keyed by queue and by the word for the answer in the log.

        The result includes `queues`, and all other queues for which messages were accepted.
        """
        named = dict.fromkeys((*queues, *(queue for queue, _ in self._counts)))
        return {(queue, what): self._counts[queue, what] for queue in named for what in TAKEN}

    @property
    def under_way(self) -> int:
        """The number of messages that are under way."""
        return self._count

    @property
    def in_doubt(self) -> int:
        """Return the number of messages that are in doubt until the node answers."""
        return len(self._in_doubt - self._under_way.keys())

    async def recover(self, ended: Iterable[tuple[Ticket, MessageId | MqprotoError]]) -> None:
        """Record in the history the outcomes that were missed because the node went away or this gateway died.

        Args:
            ended: each ticket with its message id, or with the reason why the node does not have the message. The
                messages that the node accepted last are all included, even those already in the history.

        Raises:
            HistoryError: the history is not available.
        """
        doubtful = set[tuple[str, str]]()
        for ticket, end in ended:
            place = scope, key = scope_of(ticket.queue), ticket.key
            is_known = (await self._history.look(scope, key)).entry is Entry.COMPLETED
            if isinstance(end, InDoubt) and not is_known:
                doubtful.add(place)
                self._log.error("in-doubt", queue=ticket.queue, key=key, reason=str(end))
                continue
            if isinstance(end, MessageId) and not is_known:
                outcome = Outcome(str(end), ticket.fingerprint, ticket.admin_queue)
                await self._arm(ticket, outcome.id)
                await self._history.finish(scope, key, Attempt.SUCCEEDED, msgspec.json.encode(outcome))
                self._counts[ticket.queue, "accepted"] += 1
                self._log.info("accepted", message=outcome.id, queue=ticket.queue, key=key, recovered=True)
            if isinstance(end, MessageId):
                await self._tell_if_over(ticket, str(end))
            self._submitter.forget(ticket)
        # What the node does not have may be begun anew: the entry may be another gateway's by now.
        self._in_doubt = doubtful

    async def in_question(self, queues: Iterable[GatewayQueue]) -> list[Ticket]:
        """Return the tickets of messages that the node may have.

        They are from this life of the gateway and, for these queues, also from earlier ones.

        Raises:
            HistoryError: the history is not available.
        """
        places = self._in_doubt.copy()
        for queue in queues:
            scope = scope_of(queue.name)
            places |= {(scope, key) for key in await self._history.started_by(scope, self._owner)}
        return [Ticket(scope.removeprefix(SCOPE), key, "") for scope, key in sorted(places)]

    async def clear(self, queues: Iterable[GatewayQueue]) -> None:
        """Remove from the history the messages that an earlier life of this gateway never handed to the node.

        Raises:
            HistoryError: the history is not available.
        """
        for queue in queues:
            scope = scope_of(queue.name)
            for key in await self._history.started_by(scope, self._owner):
                if (scope, key) not in self._in_doubt:
                    await self._history.finish(scope, key, Attempt.FAILED_FOR_NOW)

    async def idle(self) -> None:
        """Wait until nothing is under way, and the history has all outcomes."""
        while self._under_way:
            await next(iter(self._under_way.values())).known.wait()

    def _start(self, handed: PostedMessage, fingerprint: str, held: ExitStack) -> _Submission:
        """Start a new submission, which continues even if no request is waiting for it any longer."""
        if self._count >= self._limit:
            raise Refusal(Code.OVERLOADED, f"{self._limit:,} messages are under way: try again later")
        submission = _Submission(fingerprint)
        if handed.key:
            self._under_way[scope_of(handed.queue.name), handed.key] = submission
        self._count += 1
        self._nursery.start_soon(self._carry_out, handed, submission, held.pop_all())
        return submission

    async def _carry_out(self, handed: PostedMessage, submission: _Submission, held: ExitStack) -> None:
        outcome: Accepted | Refusal | None = None
        try:
            with held:
                outcome = await self._outcome(handed, submission)
        except Refusal as refusal:
            outcome = refusal
        except Exception as error:
            self._log.error(
                "failed", reason=f"{type(error).__name__}: {error}", key=handed.key, exc_info=True
            )
            outcome = Refusal(Code.FAILED, "a bug in the gateway: its log has it")
        finally:
            self._count -= 1
            if handed.key:
                del self._under_way[scope_of(handed.queue.name), handed.key]
            submission.end(submission.outcome or outcome)
            submission.known.set()

    async def _outcome(self, handed: PostedMessage, submission: _Submission) -> Accepted:
        """Drop a duplicate, or submit the message. Producers are answered before the history is written.

        Raises:
            Refusal: the message is not accepted, or it is not known whether it is.
        """
        fingerprint = submission.fingerprint
        given = (handed.earlier or handed.key) if handed.callback else ""
        ticket = Ticket(
            handed.queue.name, handed.key, fingerprint, handed.admin_queue, handed.callback, given
        )
        if not handed.key:
            accepted = Accepted(str(await self._submit(handed, ticket)), duplicate=False)
            self._note("accepted", handed, accepted.id)
        else:
            place = scope, key = scope_of(handed.queue.name), handed.key
            first = await self._begin(handed, fingerprint)
            if first is not None:
                return Accepted(first, duplicate=True)
            self._in_doubt.add(place)
            try:
                identifier = await self._submit(handed, ticket)
            except Refusal as refusal:
                if refusal.code is not Code.IN_DOUBT:
                    self._submitter.forget(ticket)
                    self._in_doubt.discard(place)
                    # If the history cannot be told, the next of this id finds that it is not under way.
                    with suppress(HistoryError):
                        await self._history.finish(scope, key, Attempt.FAILED_FOR_NOW)
                raise
            accepted = Accepted(str(identifier), duplicate=False)
            self._note("accepted", handed, accepted.id)
            submission.end(accepted)
            await self._finish(ticket, accepted.id)
            self._in_doubt.discard(place)
            self._submitter.forget(ticket)
        return accepted

    async def _begin(self, handed: PostedMessage, fingerprint: str) -> str | None:
        """Begin a new message and return None; if it is a duplicate, return the id of the first message.

        Raises:
            Refusal: the message can be neither begun nor recognized as a duplicate.
        """
        place = scope, key = scope_of(handed.queue.name), handed.key
        # Looked at before the history is asked, as `recover` may end the doubt meanwhile.
        was_in_doubt = place in self._in_doubt
        try:
            if handed.earlier and self._history.knows_earlier:
                before = await self._history.look(scope, handed.earlier)
                if before.entry is Entry.STARTED:
                    raise Refusal(
                        Code.IN_PROGRESS, f"a message with the id {handed.earlier} is under way: ask again"
                    )
                # Nobody knows whose it is: another content is another producer's.
                if (
                    before.entry is Entry.COMPLETED
                    and OUTCOMES.decode(before.outcome).fingerprint == fingerprint
                ):
                    return OUTCOMES.decode(before.outcome).id
            record = await self._history.begin(scope, key, self._owner)
            if record.entry is Entry.STARTED and record.owner != self._owner:
                # Its producer may have had his answer from another gateway, which is about to tell the history.
                await trio.sleep(ELSEWHERE_S)
                record = await self._history.begin(scope, key, self._owner)
        except HistoryError as error:
            raise Refusal(Code.HISTORY_UNAVAILABLE, str(error)) from None
        match record.entry:
            case Entry.ABSENT:
                return None
            case Entry.COMPLETED:
                outcome = OUTCOMES.decode(record.outcome)
                if outcome.fingerprint != fingerprint:
                    raise _reused(handed)
                return outcome.id
            case Entry.STARTED if record.owner == self._owner and not was_in_doubt:
                # It is not under way, or we would not be here: it was begun and the answer was lost, or it was not
                # submitted and the history could not be told.
                return None
            case Entry.FAILED:
                raise Refusal(Code.INVALID, f"the message with the id {key} was refused for good")
        raise Refusal(
            Code.IN_PROGRESS, f"a message with the id {key} is under way at another gateway: ask again"
        )

    async def _submit(self, handed: PostedMessage, ticket: Ticket) -> MessageId:
        if wait_s := self._fullness.wait_s(handed.queue.name):
            raise Refusal(
                Code.QUEUE_FULL, f"{handed.queue.name} had no room for a message a while ago", wait_s
            )
        try:
            message = await self._submitter.submit(ticket, self._stamped(handed))
        except QuotaExceeded as error:
            raise Refusal(Code.QUEUE_FULL, str(error)) from None
        except (UsageError, FormatNameError) as error:
            raise Refusal(Code.INVALID, str(error)) from None
        except NodeUnreachable as error:
            raise Refusal(Code.NODE_UNAVAILABLE, str(error)) from None
        except InDoubt as error:
            raise Refusal(Code.IN_DOUBT, str(error)) from None
        self._fullness.accepted(str(message), handed.queue.name)
        return message

    def _stamped(self, handed: PostedMessage) -> Draft:
        """Return the draft with the origin added to its envelope, if there is room.

        If the message has no id, or its producer sent its own extension, the draft stays as it is.
        """
        draft = handed.draft
        envelope = Envelope.of(draft.extension)
        if not envelope.producer_key or envelope.as_extension() != draft.extension:
            return draft
        extension = msgspec.structs.replace(envelope, origin=self._history.origin).as_extension()
        has_room = len(draft.body) + len(extension) <= BODY_LIMIT_BYTES
        return replace(draft, extension=extension) if has_room else draft

    async def _finish(self, ticket: Ticket, message: str) -> None:
        """Record the outcome in the history, however long that takes. Until then, the message is under way."""
        outcome = msgspec.json.encode(Outcome(message, ticket.fingerprint, ticket.admin_queue))
        while True:
            try:
                await self._arm(ticket, message)
                await self._history.finish(
                    scope_of(ticket.queue), ticket.key, Attempt.SUCCEEDED, outcome, patient=True
                )
                return await self._tell_if_over(ticket, message)
            except HistoryError as error:
                self._log.warning("not-finished", message=message, key=ticket.key, reason=str(error))
            await trio.sleep(FINISH_AGAIN_S)

    async def _arm(self, ticket: Ticket, message: str) -> None:
        """Record in the history who is to get a report about the end of a message."""
        if ticket.callback:
            about = About(ticket.queue, ticket.key, ticket.given)
            await self._history.tell(armed(message, about, ticket.callback, self._owner))

    async def _tell_if_over(self, ticket: Ticket, message: str) -> None:
        """Report the end of a message, in case it has ended already.

        It may have ended before the history knew the message and the report's URL.
        """
        if ticket.callback and self._on_end is not None:
            await self._on_end(message)

    def _note(self, waypoint: str, handed: PostedMessage, identifier: str) -> None:
        facts = {"admin_queue": handed.admin_queue, "holder": handed.holder}
        said = {name: value for name, value in facts.items() if value}
        self._counts[handed.queue.name, waypoint] += 1
        self._log.info(waypoint, message=identifier, queue=handed.queue.name, key=handed.key, **said)


def _reused(handed: PostedMessage) -> Refusal:
    return Refusal(
        Code.KEY_REUSED,
        f"the id {handed.key} belongs to a message with other content: give each message its own",
    )

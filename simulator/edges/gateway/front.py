"""Handles the gateway's HTTP requests.

    POST /queues/NAME/messages      the body is the message's; 200 {"id": ..., "duplicate": false} once it is on disk
    GET /queues/NAME/messages/ID    the state of the message to which its producer gave this id
    GET /openapi.json               this description, for programs
    GET /health                     200 if messages can be accepted
    OPTIONS /queues/NAME/messages   the handshake of CloudEvents' webhooks, for origins that the operator has named

All answers except 200 are application/problem+json ([RFC 9457]), with `code` for programs and a Retry-After if a retry
is allowed. A request is checked in this order, up to the first error: token, queue, size, rate, headers, body.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote, unquote

import msgspec
import trio

from mqproto.base.durations import Durations
from mqproto.base.errors import FormatNameError, QuotaExceeded, UsageError
from mqproto.bodies import body_of_text
from mqproto.messages.drafts import BODY_LIMIT_BYTES, NAME_ROOM, Draft
from mqproto.simulator.base.http.framing import BodyTooLargeError
from mqproto.simulator.base.http.server import Answer, Fault, Request
from mqproto.simulator.base.traces.edges import NO_TRACES, EdgeTraces, Step
from mqproto.simulator.client.envelope import ENVELOPE_ROOM_BYTES, Envelope, FailureNote
from mqproto.simulator.edges.forwarding import Forwarding
from mqproto.simulator.edges.gateway.admission import Rate, Room
from mqproto.simulator.edges.gateway.message import GatewayQueue, KeptFacts, PostedMessage
from mqproto.simulator.edges.gateway.names import QueueNames
from mqproto.simulator.edges.gateway.refusals import MEANINGS, PROBLEM_JSON, Code, Refusal
from mqproto.simulator.edges.gateway.sharedids import SharedIds
from mqproto.simulator.edges.gateway.tokens import Opened, Opener, TokenRole
from mqproto.simulator.edges.headers import (
    BODY_TYPE,
    EXTENSION,
    HEADERS,
    PRIORITY,
    MessageOptions,
    options_in,
)
from mqproto.simulator.edges.history.documents import Record
from mqproto.simulator.edges.trail import trail_of
from mqproto.simulator.edges.trigger.telling import CALLBACK, Offer
from mqproto.simulator.node.node import RunningNode
from mqproto.simulator.node.posting import FULL_RECEIVE, IdInDoubtError, KeyReusedError, Posted
from mqproto.simulator.node.turns import LARGE_BYTES
from mqproto.simulator.topology.errors import nearest

T = TypeVar("T")

LIMIT_BYTES: Final = BODY_LIMIT_BYTES - ENVELOPE_ROOM_BYTES
"""The maximum size of a body, in bytes: what a message can hold besides its headers and envelope.

If headers are forwarded, the limit is lower.
"""
SMALL_BYTES: Final = 65_536
"""The maximum size, in bytes, of a body that needs no `Room`, if the request states its length.

Such a body therefore need not wait for large bodies that arrive slowly.
"""
ROOM_BYTES: Final = 64 * 2**20
"""The memory, in bytes, that all larger bodies share."""
ROOM_PATIENCE_S: Final = 10.0

KEY_HEADER: Final = "Idempotency-Key"
WEBHOOK_ORIGIN: Final = "WebHook-Request-Origin"
KEY_LENGTH: Final = 200
KEY_LENGTH_MOST: Final = 255
"""The largest value that may be chosen as the limit for the length of a producer's id.

An envelope has room for an id of this length, the producer's name and a separator.
"""
CONVERSIONS: Final = 2
"""The number of texts that may be converted at the same time; each conversion may take 100 MB."""

KNOWN: Final = frozenset(name.casefold() for name in (*HEADERS, CALLBACK))
NOTHING_SAID: Final = options_in(lambda _: "")

FAULTS: Final = {
    Fault.MALFORMED: (
        Code.MALFORMED,
        "this is not an HTTP/1.1 request, or its body is malformed: send a Content-Length, or chunks",
    ),
    Fault.HEAD_TOO_LARGE: (Code.HEAD_TOO_LARGE, "the headers are too large: leave some out"),
    Fault.TOO_SLOW: (Code.TOO_SLOW, "the request did not come to its end in time: send it again"),
    Fault.FULL: (Code.OVERLOADED, "there are too many connections: try again later"),
    Fault.FAILED: (Code.FAILED, "a bug in the gateway: its log has it"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPolicy:
    """What the gateway requires of producers, and what it allows them.

    key_header: the header that has the producers' ids.
    key_fields: the fields of a JSON body that together form the id instead; empty for none.
    key_length: the maximum length of an id.
    require_key: whether a message without an id is refused.
    tokens: the known tokens; None if none are required.
    rate: the limit for the rate of requests; None for no limit.
    forwarding: the headers that are forwarded to the consumer.
    callbacks: the destinations that may get reports about how messages ended.
    webhook_origins: the origins that are admitted by the handshake of CloudEvents' webhooks.
    https: whether HTTPS is served.
    certificates: whether only clients with a certificate are served.
    """

    key_header: str = KEY_HEADER
    key_fields: tuple[str, ...] = ()
    key_length: int = KEY_LENGTH
    require_key: bool = False
    tokens: Opener | None = None
    rate: Rate | None = None
    forwarding: Forwarding = field(default_factory=Forwarding)
    callbacks: Offer = field(default_factory=Offer)
    room: Room = field(default_factory=lambda: Room(ROOM_BYTES))
    https: bool = False
    certificates: bool = False
    webhook_origins: tuple[str, ...] = ()

    @property
    def key_place(self) -> str:
        """A description of where ids are in a request."""
        if not self.key_fields:
            return f"the header {self.key_header}"
        return f"the field{'s' * (len(self.key_fields) > 1)} {' and '.join(self.key_fields)}"

    def key_of(self, text: str) -> str:
        """Return the producer's id in a text. Quotation marks around it are removed.

        Raises:
            UsageError: the text cannot be an id.
        """
        if len(text) > 2 and text[0] == text[-1] == '"':
            text = text[1:-1]
        if len(text) > self.key_length:
            raise UsageError(f"the message's id has {len(text)} characters; at most {self.key_length} can be")
        return Envelope(producer_key=text).producer_key


class GatewayFront:
    """Answers requests; its `answer` is a `mqproto.simulator.base.http.server.Handler`.

    Args:
        node: takes the messages.
        openapi: the document that is served.
        look: returns what the history of the triggers has under a scope and a key.
        shared: the ids that gateways of other nodes share; None if they are the node's alone.
        traces: makes a span for each message if traces are requested.
    """

    def __init__(
        self,
        node: RunningNode,
        names: QueueNames,
        policy: ProducerPolicy,
        openapi: dict[str, Any],
        look: Callable[[str, str], Awaitable[Record]],
        shared: SharedIds | None = None,
        traces: EdgeTraces = NO_TRACES,
    ) -> None:
        self._node = node
        self._names = names
        self._confirmed = MessageOptions(admin_queue=node.posting.address, acknowledgments=FULL_RECEIVE)
        self._policy = policy
        self._openapi = msgspec.json.encode(openapi)
        self._log = node.log
        self._look = look
        self._shared = shared
        self._traces = traces
        self.refusals: Counter[Code] = Counter()
        self.answered = Durations()
        """A histogram of how long producers waited for the 200 response to a message."""
        self._conversions = trio.CapacityLimiter(CONVERSIONS)

    def at_fault(self, fault: Fault) -> Answer:
        """Count a fault that the server itself, rather than a handler, reports; return the answer for it."""
        self.refusals[FAULTS[fault][0]] += 1
        return faulty(fault)

    async def answer(self, request: Request) -> Answer:
        """Answer one request.

        Raises:
            BodyLost: the request's body was incomplete.
        """
        facts: dict[str, str] = {}
        try:
            match [unquote(part) for part in request.target.partition("?")[0].split("/")[1:]]:
                case ["queues", _, "messages"] if self._policy.webhook_origins and _asks_for_webhook(request):
                    return self._webhook(request)
                case ["queues", name, "messages"]:
                    _only("POST", request)
                    return await self._message(request, name, facts)
                case ["queues", name, "messages", key] if key:
                    _only("GET", request)
                    opened = self._opened(request, TokenRole.READ, facts)
                    queue = await self._opened_queue(name, opened)
                    with _refused_as(Code.INVALID):
                        key = self._policy.key_of(key)
                    return await self._trail(queue, opened.whole(key), key)
                case ["openapi.json"]:
                    _only("GET", request)
                    return Answer(200, [_JSON], self._openapi)
                case ["health"]:
                    _only("GET", request)
                    if trouble := self._node.trouble:
                        raise Refusal(
                            Code.NODE_UNAVAILABLE, f"node {self._node.name} takes nothing: {trouble}"
                        )
                    return _json(200, {"status": "ok"})
            raise Refusal(
                Code.NOT_FOUND,
                "POST to /queues/NAME/messages, GET /queues/NAME/messages/ID, or GET /openapi.json",
            )
        except Refusal as refusal:
            self.refusals[refusal.code] += 1
            self._log.info("refused", reason=refusal.code, text=_line(refusal), **facts)
            return refused(refusal)

    def _webhook(self, request: Request) -> Answer:
        """Answer a sender of events that asks whether it may send them to this gateway.

        The answer does not reveal which queues exist. CloudEvents, HTTP 1.1 Web Hooks, 4
        """
        origin = _one(request, WEBHOOK_ORIGIN).casefold()
        if origin not in self._policy.webhook_origins:
            raise Refusal(Code.FORBIDDEN, "events from this origin are not taken: ask for --webhook-origin")
        headers = [("Allow", "POST"), ("WebHook-Allowed-Origin", origin)]
        if request.header("WebHook-Request-Rate"):
            rate = self._policy.rate
            headers.append(("WebHook-Allowed-Rate", str(max(1, int(60 * rate.per_s))) if rate else "*"))
        return Answer(200, headers, b"")

    async def _message(self, request: Request, name: str, facts: dict[str, str]) -> Answer:
        opened = self._opened(request, TokenRole.SEND, facts)
        began_s = trio.current_time()
        queue = await self._opened_queue(name, opened)
        facts["queue"] = queue.name
        self._admit(request, queue)
        with _refused_as(Code.BAD_HEADER):
            given = (
                "" if self._policy.key_fields else self._policy.key_of(_one(request, self._policy.key_header))
            )
            key = facts["key"] = opened.whole(given)
            options = _options(request, queue)
            envelope = self._envelope(request, key, options)
            body_type = _one(request, BODY_TYPE)
            asked = _one(request, CALLBACK)
            if asked:
                self._policy.callbacks.check(asked)
        named: Literal["response_queue", "admin_queue"]
        for named in ("response_queue", "admin_queue"):
            if opened.queues is not None and options[named]:
                # Else whoever has a token could have others write to any queue.
                options[named] = (await self._opened_queue(options[named], opened)).name
        admin_queue = options["admin_queue"]
        most_bytes = BODY_LIMIT_BYTES - envelope.room_bytes()
        _check_length(request, most_bytes)
        with (
            self._traces.sending(queue.name, envelope.headers) as sending,
            _telling(sending),
            ExitStack() as held,
        ):
            body = await self._body(request, most_bytes, held)
            with _refused_as(Code.INVALID):
                if self._policy.key_fields:
                    found = await _unless_short(body, partial(_key_in, body, self._policy.key_fields))
                    given = self._policy.key_of(found)
                    key = facts["key"] = opened.whole(given)
                envelope = msgspec.structs.replace(envelope, producer_key=key)
                draft, envelope = await self._draft(body, body_type, options, envelope, sending)
            if self._policy.require_key and not key:
                raise Refusal(
                    Code.KEY_MISSING, f"give each message an id of its own in {self._policy.key_place}"
                )
            with _refused_as(Code.BAD_HEADER):
                callback = self._policy.callbacks.chosen(asked, key, admin_queue)
            about = KeptFacts(admin_queue, callback, given if callback else "")
            handed = PostedMessage(
                queue,
                key,
                envelope.content_type,
                draft,
                about,
                envelope.headers,
                opened.holder,
                own_extension=bool(options.get("extension")),
            )
            posted = await self._posted(handed)
            sending.accepted(posted.message_id, is_duplicate=posted.is_repeated)
        self.answered.add(trio.current_time() - began_s)
        return _json(200, {"id": posted.message_id, "duplicate": posted.is_repeated})

    async def _posted(self, handed: PostedMessage) -> Posted:
        """Hand a message to the node, and return when it is on disk there.

        Raises:
            Refusal: the message is not accepted, or it cannot be known whether it was.
        """
        posting, queue = self._node.posting, handed.queue.name
        if wait_s := posting.full_s(queue):
            raise Refusal(Code.QUEUE_FULL, f"{queue} had no room for a message a while ago", wait_s)
        is_shared = self._shared is not None and bool(handed.key)
        fingerprint = await _unless_short(handed.draft.body, handed.fingerprint) if handed.key else b""
        submit = partial(
            posting.post,
            queue,
            handed.draft,
            handed.key,
            fingerprint,
            handed.about.encoded(),
            owed=is_shared or bool(handed.about.callback),
            called=self._names.at_node(queue),
            admin_queue=handed.about.admin_queue,
            holder=handed.holder,
        )
        try:
            if self._shared is not None and is_shared:
                return await self._shared.post(queue, handed.key, fingerprint, submit)
            return await submit()
        except KeyReusedError as error:
            raise Refusal(Code.KEY_REUSED, str(error)) from None
        except IdInDoubtError as error:
            raise Refusal(Code.IN_DOUBT, str(error)) from None
        except QuotaExceeded as error:
            raise Refusal(Code.QUEUE_FULL, str(error)) from None
        except (UsageError, FormatNameError) as error:
            raise Refusal(Code.INVALID, str(error)) from None

    async def _trail(self, queue: GatewayQueue, key: str, given: str) -> Answer:
        """Answer what became of the message with this id, which its producer knows as `given`."""
        try:
            row = self._node.posting.look(queue.name, key)
        except IdInDoubtError as error:
            raise Refusal(Code.IN_DOUBT, str(error)) from None
        if row is None:
            raise Refusal(
                Code.UNKNOWN_MESSAGE,
                f"no message with the id {given} is known for {queue.name}: none was accepted, or its id is forgotten",
            )
        posting = self._node.posting
        trail = await trail_of(row, posting.named(row.message_id), self._look, posting.end_of)
        return Answer(200, [_JSON], msgspec.json.encode(msgspec.structs.replace(trail, id=given)))

    def _admit(self, request: Request, queue: GatewayQueue) -> None:
        """Refuse a message if it is too long for any queue, or exceeds the message rate of its own queue."""
        _check_length(request, LIMIT_BYTES)
        if self._policy.rate is not None and (wait_s := self._policy.rate.wait_s(queue.name)):
            raise Refusal(
                Code.TOO_MANY, f"{queue.name} takes {self._policy.rate.per_s:g} messages a second", wait_s
            )

    def _envelope(self, request: Request, key: str, options: MessageOptions) -> Envelope:
        """Return the envelope for the body. If the producer sent its own extension, no headers are forwarded."""
        forwarded = self._policy.forwarding.taken
        return Envelope(
            content_type=_one(request, "Content-Type"),
            producer_key=key,
            headers={} if options.get("extension") else forwarded(request.header_names, request.header),
        )

    async def _draft(
        self, body: bytes, body_type: str, options: MessageOptions, envelope: Envelope, sending: Step
    ) -> tuple[Draft, Envelope]:
        """Return the message as the node gets it, and its envelope, with the trace if there is room.

        Raises:
            UsageError: the body is not of its type, or an option is not valid.
        """
        if FailureNote.of(options.get("extension", b"")) is not None:
            # Else whoever may send to any queue could have an operator send it on to any other.
            raise UsageError(f"{EXTENSION}: a trigger alone says such a thing of a message that failed")
        if body_type:
            body, options["body_type"] = await self._typed(body, body_type)
        extension = options.get("extension", b"")
        if not extension:
            envelope = _continued(envelope, sending, BODY_LIMIT_BYTES - len(body))
            stamped = envelope
            if envelope.producer_key:
                stamped = msgspec.structs.replace(envelope, origin=self._node.posting.origin)
            extension = stamped.as_extension()
            if len(body) + len(extension) > BODY_LIMIT_BYTES:
                extension = envelope.as_extension()
        said: MessageOptions = {**options, "extension": extension, "journal_negative": True}
        if not options["admin_queue"]:  # Else the producer hears of it himself.
            said |= self._confirmed
        draft = Draft(body=body, **said)
        draft.check(names=False)
        return draft, envelope

    def _opened(self, request: Request, needed: TokenRole, facts: dict[str, str]) -> Opened:
        """Return the permissions of the request, without revealing to strangers which queues exist."""
        if self._policy.tokens is not None:
            scheme, _, token = _one(request, "Authorization").partition(" ")
            opened = self._policy.tokens.opened_by(token.strip()) if scheme.casefold() == "bearer" else None
            if opened is None:
                raise Refusal(
                    Code.UNAUTHORISED, "send a token that is known here: Authorization: Bearer TOKEN"
                )
            facts["holder"] = opened.holder
            if not opened.role.may(needed):
                raise Refusal(
                    Code.FORBIDDEN,
                    f"this needs a token with the role {needed} or {TokenRole.ALL}; yours has the role {opened.role}",
                )
            return opened
        if request.header("Origin"):
            # Any page in a browser on this machine could otherwise send messages, without being asked for a token.
            raise Refusal(Code.FORBIDDEN, "pages in browsers may not send messages: ask for tokens")
        return Opened()

    async def _opened_queue(self, name: str, opened: Opened) -> GatewayQueue:
        """Return the queue with this name if the request may reach it; refuse the request otherwise."""
        if len(name) > NAME_ROOM:
            raise Refusal(Code.UNKNOWN_QUEUE, f"no queue has a name of {len(name):,} characters")
        try:
            queue = await self._names.queue(name)
        except (UsageError, FormatNameError) as error:
            raise Refusal(Code.UNKNOWN_QUEUE, str(error)) from None
        if opened.queues is not None and queue.name not in opened.queues:
            raise Refusal(Code.FORBIDDEN, f"this token does not open {queue.name}")
        return queue

    async def _typed(self, text: bytes, kind: str) -> tuple[bytes, int]:
        """Return the body that a text stands for, and the body type. Converting a large text takes seconds.

        Raises:
            UsageError: there is no such kind, or the text is not a value of it.
        """
        return await trio.to_thread.run_sync(body_of_text, text, kind, limiter=self._conversions)

    async def _body(self, request: Request, most_bytes: int, held: ExitStack) -> bytes:
        """Return the whole body, once there is room for it. Closing `held` frees that room."""
        room = self._policy.room
        length = request.content_length
        wanted_bytes = most_bytes if length is None else length
        if wanted_bytes > SMALL_BYTES:
            if not await room.take(wanted_bytes, ROOM_PATIENCE_S):
                raise Refusal(Code.OVERLOADED, "too many large bodies come at once: try again later")
            held.callback(room.give_back, wanted_bytes)
        parts: list[bytes] = []
        size_bytes = 0
        try:
            while part := await request.part(most_bytes - size_bytes):
                size_bytes += len(part)
                parts.append(part)
        except BodyTooLargeError:
            raise _too_large("more", most_bytes) from None
        return b"".join(parts)


async def _unless_short(body: bytes, work: Callable[[], T]) -> T:
    """Do some work on a body. If that could take a millisecond, others go on meanwhile."""
    return work() if len(body) <= LARGE_BYTES else await trio.to_thread.run_sync(work)


def refused(refusal: Refusal) -> Answer:
    """Return a refusal as a problem.  [RFC 9457] 3.1

    The field `message` repeats `detail`, for older programs.
    """
    meaning, text = MEANINGS[refusal.code], _line(refusal)
    headers = [_PROBLEM]
    if refusal.retry_after_s is not None:
        headers.append(("Retry-After", str(max(1, math.ceil(refusal.retry_after_s)))))
    if refusal.code is Code.UNAUTHORISED:
        headers.append(("WWW-Authenticate", "Bearer"))
    if refusal.code is Code.METHOD_NOT_ALLOWED:
        headers.append(("Allow", str(refusal).partition(":")[0]))
    body = {
        "type": refusal.code.problem,
        "title": meaning.text,
        "status": meaning.status,
        "detail": text,
        "code": refusal.code,
        "message": text,
    }
    return Answer(meaning.status, headers, msgspec.json.encode(body))


def _line(refusal: Refusal) -> str:
    """Return a refusal's text on one line, with escapes for the characters that could upset a terminal."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(refusal))


def faulty(fault: Fault) -> Answer:
    """Return the answer, which is also a problem, for a fault that the server itself reports."""
    return refused(Refusal(*FAULTS[fault]))


_JSON: Final = ("Content-Type", "application/json")
_PROBLEM: Final = ("Content-Type", PROBLEM_JSON)


def _json(status: int, value: dict[str, Any]) -> Answer:
    return Answer(status, [_JSON], msgspec.json.encode(value))


class _refused_as:  # noqa: N801
    """Turns errors in the block into refusals with this code.

    It is a class because a context manager made from a generator would take ten times as long.
    """

    def __init__(self, code: Code) -> None:
        self._code = code

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UsageError):
            raise Refusal(self._code, str(error)) from None


def _only(method: str, request: Request) -> None:
    if request.method != method and (method, request.method) != ("GET", "HEAD"):
        allowed = "GET, HEAD" if method == "GET" else method
        raise Refusal(Code.METHOD_NOT_ALLOWED, f"{allowed}: this path takes nothing else")


def _check_length(request: Request, most_bytes: int) -> None:
    """Refuse a body whose Content-Length is above the limit."""
    length = request.content_length
    if length is not None and length > most_bytes:
        raise _too_large(f"{length:,} bytes", most_bytes)


def _too_large(what: str, most_bytes: int) -> Refusal:
    beside = "" if most_bytes == LIMIT_BYTES else " beside these headers"
    return Refusal(
        Code.BODY_TOO_LARGE, f"the body has {what}; a message carries at most {most_bytes:,} bytes{beside}"
    )


def _one(request: Request, name: str) -> str:
    """Return a header's value; empty if it was not sent."""
    values = request.header(name)
    if len(values) > 1:
        raise Refusal(Code.BAD_HEADER, f"{name} is there {len(values)} times: send it once")
    return values[0] if values else ""


def _key_in(body: bytes, names: Sequence[str]) -> str:
    """Return the id made from fields of a JSON object. The fields are texts or whole numbers.

    If the object has none of them, or the body is not a JSON object, return an empty text. If `names` has only one
    name, the value of this field is the id, unchanged. If it has several, the values are joined as `A:B`. All
    characters of the values except letters, digits and _.-~ are then escaped, so that different values give different
    ids.

    Raises:
        UsageError: the object has only some of the fields.
    """
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    values = [_text(fields.get(name)) for name in names]
    if len(values) == 1:
        return values[0]
    if any(values) and not all(values):
        lacking = [name for name, value in zip(names, values, strict=True) if not value]
        raise UsageError(
            f"an id is made of the fields {' and '.join(names)}: give it {' and '.join(lacking)}"
        )
    return ":".join(quote(value, safe="") for value in values) if all(values) else ""


def _text(value: msgspec.Raw | None) -> str:
    try:
        return "" if value is None else str(msgspec.json.decode(value, type=str | int))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def _asks_for_webhook(request: Request) -> bool:
    return request.method == "OPTIONS" and bool(request.header(WEBHOOK_ORIGIN))


@contextmanager
def _telling(sending: Step) -> Iterator[None]:
    """If the block refuses a message, report the reason to the tracing step."""
    try:
        yield
    except Refusal as refusal:
        sending.failed(refusal.code, _line(refusal))
        raise


def _continued(envelope: Envelope, sending: Step, room_bytes: int) -> Envelope:
    """Return the envelope, adding the trace for the next steps if the other headers leave room for it."""
    with suppress(UsageError):
        carried = msgspec.structs.replace(envelope, headers=dict(sending.carried(envelope.headers)))
        if carried.room_bytes() <= room_bytes:
            return carried
    return envelope


def _options(request: Request, queue: GatewayQueue) -> MessageOptions:
    """Return the options that the headers give, changed so that the message is kept on disk at every hop.

    Raises:
        UsageError: a header is not valid.
    """
    options = NOTHING_SAID
    said = [name for name in request.header_names if name.startswith("mq-")]
    for name in said:
        if name not in KNOWN:
            raise UsageError(f"there is no header {name[:80]}; {nearest(name, HEADERS)}")
    if said:
        if queue.transactional and _one(request, PRIORITY):
            raise UsageError(
                f"{queue.name} is transactional, and has its messages in order: leave {PRIORITY} out"
            )
        options = options_in(partial(_one, request))
    return {**options, "transactional": queue.transactional, "recoverable": not queue.transactional}

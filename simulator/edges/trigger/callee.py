"""The consumers of a trigger, HTTP endpoints or Python functions, and what their answers mean.

"Message Consumer Rules" in "Transactions in OSB. Reliable Messaging" has three answers: the message was received; the
message will never be accepted; or anything else. The last leaves the outcome open, so the message has to be delivered
again.

| the consumer's answer | is |
|---|---|
| 200 to 299, without `error_field` in it | success |
| 400 to 499, JSON with a service code or a problem | a business error |
| 200 to 299, with `error_field` in it | a business error |
| 408, 425, 429, 500 to 599; a redirection | a system error |
| 400 to 499 with neither a service code nor a problem | a system error |
| no connection, a broken one, no answer in time, an answer that cannot be read | a system error |
| a function returns | success |
| a function raises BusinessError | a business error |
| a function raises anything else, or takes too long | a system error |

After a system error the consumer is called again. If the message becomes a dead letter before a call succeeds, it is in
doubt if one of its calls had no answer, or only a proxy's answer (502, 504). Any other answer, even 500, means that the
consumer did not accept it.

A service code is the value of the field `code` of a JSON object, or of `error_field`: a text that is not empty, or a
number that is not 0. A proxy's 404 has no service code, so no message is given up because somebody has misspelt an
address.

A problem is a JSON object in an answer whose Content-Type is application/problem+json ([RFC 9457]). Frameworks make
their own problems if an address, a method or a token is wrong. Such problems say no more than the status, and nothing
about the message. So 401, 403, 404, 405 and 407 are system errors if the type of the problem is about:blank, or the
section of the RFC that defines the status.
"""

from __future__ import annotations

import inspect
import json
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, Protocol

import httpx
import trio

from mqproto.base.errors import UsageError
from mqproto.bodies import Body, read_body
from mqproto.edge.exactlyonce import Attempt
from mqproto.simulator.client import ReceivedMessage
from mqproto.simulator.client.talk import message_as_json, privacy
from mqproto.simulator.edges.forwarding import ENCODING
from mqproto.simulator.edges.headers import MessageOptions, headers_of
from mqproto.simulator.edges.httpclient import (
    ANSWER_LIMIT_BYTES,
    HttpClient,
    HttpError,
    NotConnectedError,
    Response,
    basic,
)
from mqproto.simulator.edges.trigger.access import Access
from mqproto.simulator.edges.trigger.signing import signed
from mqproto.simulator.node.tls.wire import explained

REASON_LIMIT: Final = 300
"""The number of characters of an answer's text that are kept."""
TOO_LONG: Final = f" with an answer of more than {ANSWER_LIMIT_BYTES:,} bytes, which is not read"
RETRY_AFTER_LIMIT_S: Final = 3_600.0
"""The maximum number of seconds that a consumer may ask us to wait."""
TEMPORARY: Final = frozenset({408, 425, 429})
"""The statuses of temporary errors among 400 to 499: Request Timeout, Too Early, Too Many Requests."""
NOT_THERE: Final = "it cannot be connected to"
BROKEN: Final = "the connection broke"
PROBLEM_JSON: Final = "application/problem+json"
UNAVAILABLE: Final = frozenset({429, 503})
"""The statuses Too Many Requests and Service Unavailable, which do not depend on the message."""
OF_PROXIES: Final = frozenset({502, 504})
"""The statuses Bad Gateway and Gateway Timeout: a proxy got no answer that it could pass on.  [RFC 9110] 15.6.3,
15.6.5"""
OF_REQUESTS: Final = frozenset({401, 403, 404, 405, 407})
"""The statuses that blame the request, not the message, unless a problem says more than the status."""
STATUS_ALONE: Final = re.compile(
    r"about:blank|https?://(tools\.ietf\.org/html|www\.rfc-editor\.org/rfc)/rfc(7231|7235|9110)\b.*"
)
"""The pattern of problem types that say no more than the status: those of RFC 9457 and ASP.NET."""
SPARE_THREADS: Final = 8
"""How many calls of a function may still be running after they took too long.

They are in addition to the calls that run in parallel. When both limits are reached, no call begins until one of the
running calls ends.
"""


class BusinessError(Exception):
    """Raise this in a consumer's function to refuse a message for good.

    Args:
        code: a word that the service has chosen and never changes.
        text: one line that describes the error.
    """

    def __init__(self, code: str, text: str = "") -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


@dataclass(frozen=True, slots=True)
class Call:
    r"""A call to a consumer or resolver, with the message that is passed to it.

    message: the message's identifier, `GUID\ordinal`.
    key: the message's name in the document history, which the consumer may use, too. It is the producer's id, or else
        the identifier.
    delivery_count: how many times the message has been delivered, including this time; -1 if unknown.
    content_type: the content type that the producer declared; empty if it declared none.
    forwarded: the headers that are forwarded with the message, keyed by their names in lower case; the sender may have
        written anything into them.
    correlation_id: 20 bytes; all of them are zero if there is none.
    body_type, application_tag, priority, acknowledgments: the same as in a `Draft`.
    extension: the message's extension; empty if it is only our envelope.
    response_queue, admin_queue: format names; empty for none.
    sender_id: the SID that the message claims for its sender; empty for none. Only a signature proves it.
    cipher: the cipher that protected the body on its way; empty if the body was not encrypted.
    signature, signed_by: the kind and hash of the verified signature, and the SHA-256 of the certificate that verified
        it; empty if there was none.
    epoch: a number that increases when another trigger takes over the queue, so that late calls from earlier triggers
        can be detected; 0 for none.
    packet: the whole packet, in the form that `mqproto.simulator.client.ReceivedMessage` reads.
    origin: the origin in the message's envelope.
    """

    message: str
    key: str
    delivery_count: int
    body: bytes
    label: str = ""
    content_type: str = ""
    forwarded: Mapping[str, str] = field(default_factory=dict)
    correlation_id: bytes = bytes(20)
    body_type: int = 0
    application_tag: int = 0
    priority: int = 3
    extension: bytes = b""
    response_queue: str = ""
    admin_queue: str = ""
    acknowledgments: int = 0
    sender_id: str = ""
    cipher: str = ""
    signature: str = ""
    signed_by: str = ""
    epoch: int = 0
    packet: bytes = field(default=b"", repr=False)
    origin: str = ""

    @property
    def content(self) -> Body:
        """Return the body. It is decoded again each time that this is called."""
        return read_body(self.body, self.body_type, self.extension)

    def headers(self) -> dict[str, str]:
        """Return the headers for HTTP, except the forwarded ones."""
        said = {
            "Idempotency-Key": self.key,
            "MQ-Message-Id": self.message,
            "MQ-Delivery-Count": str(self.delivery_count),
        }
        if self.epoch:
            said["MQ-Epoch"] = str(self.epoch)
        if self.content_type:
            said["Content-Type"] = self.content_type
        if self.signature:
            said["MQ-Signature"], said["MQ-Signed-By"] = self.signature, self.signed_by
        level, algorithm = privacy(self.cipher, encrypts=bool(self.cipher))
        options = MessageOptions(
            label=self.label,
            correlation_id=self.correlation_id,
            body_type=self.body_type,
            application_tag=self.application_tag,
            priority=self.priority,
            extension=self.extension,
            response_queue=self.response_queue,
            admin_queue=self.admin_queue,
            acknowledgments=self.acknowledgments,
            sender_id=self.sender_id,
            privacy_level=level,
            encryption_algorithm=algorithm,
        )
        return said | headers_of(options)

    def as_json(self) -> bytes:
        """Return the message in the JSON form of `mqproto receive --json`, with its decoded body."""
        said = message_as_json(ReceivedMessage(self.packet, self.delivery_count))
        if not self.admin_queue:
            # Else it may be a gateway's.
            said = {
                name: what for name, what in said.items() if name not in ("admin_queue", "acknowledgments")
            }
        return json.dumps(said).encode("ascii")


class Answer(NamedTuple):
    """How a call ended.

    attempt: SUCCEEDED; FAILED_FOR_GOOD after a business error; or FAILED_FOR_NOW after a system error.
    reason: one line; for a business error it begins with the service code.
    retry_after_s: the minimum number of seconds until the next attempt, as requested by the consumer.
    cause: for a system error, a word that is the same for all failures with this cause.
    is_unseen: True if the consumer has not seen the message, so that the message cannot be the cause.
    is_in_doubt: True if nobody knows whether the consumer has processed the message.
    """

    attempt: Attempt
    reason: str = ""
    retry_after_s: float = 0.0
    cause: str = ""
    is_unseen: bool = False
    is_in_doubt: bool = False


SUCCEEDED: Final = Answer(Attempt.SUCCEEDED)


class Callee(Protocol):
    """A consumer."""

    async def call(self, call: Call) -> Answer:
        """Let the consumer process a message. The caller limits the time."""
        ...


def system_error(
    reason: str,
    retry_after_s: float = 0.0,
    *,
    cause: str = "",
    is_unseen: bool = False,
    is_in_doubt: bool = False,
) -> Answer:
    """Return a system error, after which the consumer may have received the message.

    The cause is the reason by default.
    """
    reason = one_line(reason)
    return Answer(Attempt.FAILED_FOR_NOW, reason, retry_after_s, cause or reason, is_unseen, is_in_doubt)


def one_line(text: str) -> str:
    """Return any text as one line that is safe in a log and is cut if it is too long."""
    line = "".join(char if char.isprintable() else " " for char in text)
    line = " ".join(line.split())
    return line if len(line) <= REASON_LIMIT else f"{line[: REASON_LIMIT - 3]}..."


# HTTP


ALWAYS: Final = {
    "user-agent": ("User-Agent", "mqproto"),
    "accept": ("Accept", f"application/json, {PROBLEM_JSON}"),
    "accept-encoding": ("Accept-Encoding", "identity"),
    "connection": ("Connection", "keep-alive"),
}
"""The default headers, keyed by their names in lower case; a message or an operator may replace them."""


class HttpEndpoint:
    """An HTTP endpoint to which messages are posted; `endpoint` makes it."""

    def __init__(self, url: httpx.URL, client: HttpClient, access: Access, *, as_json: bool = False) -> None:
        self._url = url
        self._client = client
        self._access = access
        self._as_json = as_json

    async def post(self, call: Call) -> Response:
        """Post a call once; it is never repeated.

        Raises:
            HttpError: there is no connection, or no readable answer.
        """
        content = call.body
        headers = {
            **self._access.forwarding.given(call.forwarded),
            **self._access.headers,
            **call.headers(),
        }
        if self._as_json:
            # To read a large body may take seconds, in which other messages go on.
            content = await trio.to_thread.run_sync(call.as_json)
            headers["Content-Type"] = "application/json"
            headers.pop(ENCODING, None)
        headers |= signed(self._access.secrets, call.key, int(time.time()), content)
        return await posted(self._client, self._url, content, headers)


async def posted(client: HttpClient, url: httpx.URL, content: bytes, headers: Mapping[str, str]) -> Response:
    """Post to a URL, and return its answer.

    Redirections are not followed, cookies are not kept, and proxies named in the environment are not used.

    Raises:
        HttpError: there is no connection, or no readable answer.
    """
    said = ALWAYS | {name.lower(): (name, value) for name, value in (basic(url) | dict(headers)).items()}
    return await client.post(url, content, dict(said.values()))


@asynccontextmanager
async def endpoint(
    url: str, access: Access | None = None, *, as_json: bool = False
) -> AsyncIterator[HttpEndpoint]:
    """Yield the endpoint of a URL.

    Args:
        access: the TLS context, headers and secrets for the endpoint.
        as_json: whether to post `Call.as_json` instead of the body.

    Raises:
        UsageError: the text is not an HTTP URL.
    """
    parsed = url_of_http(url)
    access = access or Access()
    with closing(HttpClient(access.trusted)) as client:
        yield HttpEndpoint(parsed, client, access, as_json=as_json)


def url_of_http(url: str) -> httpx.URL:
    """Return a URL to which messages can be posted.

    Raises:
        UsageError: the text is not an HTTP URL.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise UsageError(f"{url!r} is not a URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(f"{url!r} is not a URL of HTTP: write http://HOST:PORT/PATH")
    return parsed


class HttpCallee:
    """A consumer that is called over HTTP.

    Args:
        error_field: the field of a JSON answer that contains a service code, whatever the status; empty for none.
    """

    def __init__(self, endpoint: HttpEndpoint, error_field: str = "") -> None:
        self._endpoint = endpoint
        self._error_field = error_field

    async def call(self, call: Call) -> Answer:
        """Post the message; return what the response means."""
        try:
            response = await self._endpoint.post(call)
        except HttpError as error:
            is_unseen = isinstance(error, NotConnectedError)
            cause = NOT_THERE if is_unseen else BROKEN
            return system_error(in_words(error), cause=cause, is_unseen=is_unseen, is_in_doubt=not is_unseen)
        return meaning(response, self._error_field)


def meaning(response: Response, error_field: str = "") -> Answer:
    """Return what a response means, according to the table of this module."""
    status = response.status
    if 200 <= status < 300:
        if not error_field:
            return SUCCEEDED
        if response.body is None:
            return system_error(f"HTTP {status}{TOO_LONG}", is_in_doubt=True)
        return _business_error(response, [error_field]) or SUCCEEDED
    if 400 <= status < 500 and status not in TEMPORARY:
        fields = [error_field, "code"] if error_field else ["code"]
        return (
            _business_error(response, fields)
            or _problem(response)
            or system_error(
                f"HTTP {status}{TOO_LONG if response.body is None else ' without a service code'}"
            )
        )
    after_s = retry_after_s(response.headers.get("Retry-After", ""))
    is_proxys = status in OF_PROXIES
    return system_error(f"HTTP {status}", after_s, is_unseen=status in UNAVAILABLE, is_in_doubt=is_proxys)


def _business_error(response: Response, fields: list[str]) -> Answer | None:
    answer = object_in(response) or {}
    for name in fields:
        code = answer.get(name)
        if code and isinstance(code, str | int) and not isinstance(code, bool):
            text = answer.get("message")
            reason = f"{code}: {text}" if isinstance(text, str) and text else str(code)
            return Answer(Attempt.FAILED_FOR_GOOD, one_line(reason))
    return None


def _problem(response: Response) -> Answer | None:
    """Return the business error that a problem describes; None if it describes none.

    Members of wrong types are ignored. The response's status counts, not the problem's.  [RFC 9457] 3.1
    """
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().casefold()
    problem = object_in(response)
    if kind != PROBLEM_JSON or problem is None:
        return None
    members = (problem.get(name) for name in ("type", "title", "detail"))
    named, title, detail = (one_line(each) if isinstance(each, str) else "" for each in members)
    if STATUS_ALONE.fullmatch(named or "about:blank"):
        if response.status in OF_REQUESTS:
            return None
        named = f"HTTP {response.status}"
    said = (named, title.rstrip("."), detail)
    return Answer(Attempt.FAILED_FOR_GOOD, one_line(": ".join(filter(None, said))))


def object_in(response: Response) -> dict[str, Any] | None:
    """Return the JSON object in a response; None if there is none."""
    try:
        answer = json.loads(response.body or b"")
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def retry_after_s(value: str) -> float:
    """Return the number of seconds that a Retry-After header asks to wait, given as a number or a date.

    The result is at most RETRY_AFTER_LIMIT_S. It is 0 if the header cannot be read. [RFC 9110] 10.2.3
    """
    try:
        if value.isascii() and value.isdigit():
            seconds = float(value[:10])
        else:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), RETRY_AFTER_LIMIT_S)


def in_words(error: HttpError) -> str:
    """Return, in words, what went wrong with a connection."""
    what = NOT_THERE if isinstance(error, NotConnectedError) else BROKEN
    return f"{what} ({_of_tls(error) or str(error) or type(error.__cause__ or error).__name__})"


def _of_tls(error: BaseException) -> str:
    """Return a description of the TLS error that caused an error; empty if there is none."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate: {cause.verify_message.rstrip('.')}"
    return f"TLS: {explained(cause)}" if cause is not None else ""


# Python


class PythonCallee:
    """A consumer that is a Python function with a Call as its argument.

    It is either a coroutine function for trio, or a function that runs in a thread. A thread cannot be ended from
    outside, so a function that takes too long continues, and its result is dropped.

    Args:
        parallel: the number of calls that may run at the same time.
    """

    def __init__(self, function: Callable[[Call], Any], parallel: int = 1) -> None:
        self._function = function
        self._limiter = trio.CapacityLimiter(parallel + SPARE_THREADS)

    async def call(self, call: Call) -> Answer:
        """Call the function; return what its result means."""
        try:
            await called(self._function, call, self._limiter)
        except BusinessError as error:
            reason = f"{error.code}: {error.text}" if error.text else str(error.code)
            return Answer(Attempt.FAILED_FOR_GOOD, one_line(reason))
        except Exception as error:  # Whatever it is, somebody may mend it.
            return system_error(f"{type(error).__name__}: {error}", cause=type(error).__name__)
        return SUCCEEDED


async def called(function: Callable[[Call], Any], call: Call, limiter: trio.CapacityLimiter) -> Any:
    """Call a function, which may be a coroutine function; return its result."""
    if inspect.iscoroutinefunction(function):
        return await function(call)
    return await trio.to_thread.run_sync(function, call, abandon_on_cancel=True, limiter=limiter)

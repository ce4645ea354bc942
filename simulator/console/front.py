"""The console's HTTP side: the page, its events, and its requests.

    GET  /, /*.css, /*.js, /*.svg     the page; for anybody who can reach it
    GET  /events                      server-sent events: `hello`, then `state` until the browser
                                      disconnects
    GET  /explain?node=NODE&of=QUEUE  why something is waiting, as `mqproto explain` shows it, and
                                      the first messages
    GET  /story?of=MESSAGE            what happened to a message, as `mqproto history` shows it, and
                                      a ladder
    GET  /failed                      what has failed, as `mqproto failed list` shows it
    POST /do                          an operation, as JSON: `deeds.py`

A request is refused if the role of its token does not allow it (guard.py). HTTP requests, which contain tokens, are
never logged.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.simulator.base.http.framing import BodyTooLargeError
from mqproto.simulator.base.http.server import Answer, Fault, Limits, Request, Stream
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.console.feed import CLIENTS, Feed, event
from mqproto.simulator.console.guard import SAFE, ConsoleGuard, Denied
from mqproto.simulator.console.watch import NodeWatch
from mqproto.simulator.edges.gateway.tokens import Opened, TokenRole

HERE: Final = files("mqproto.simulator.console") / "page"
KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
LIMITS: Final = Limits(connections=96, head_bytes=8_192, body_s=5.0, grace_s=0.5)
BUFFER_BYTES: Final = 32_768
"""The approximate size, in bytes, of the kernel's buffer for a browser that reads slowly. It is small, because the
browser needs only the newest state."""
BODY_LIMIT_BYTES: Final = 65_536
QUERY_LIMIT: Final = 4_000
NONCE: Final = "NONCE"
"""The placeholder in the page that is replaced with a new nonce in each answer."""

Question = Callable[[Mapping[str, str]], Awaitable[Any]]


class Backstage(NamedTuple):
    """The functions that answer requests.

    hello: returns the first event for a page.
    questions: the functions that answer GET requests, keyed by path.
    do: carries out an operation for a user, and returns the answer.
    """

    hello: Callable[[], bytes]
    questions: Mapping[str, Question]
    do: Callable[[bytes, Opened], Awaitable[Any]]


class Front:
    """Answers requests; `answer` is a request handler for the server."""

    def __init__(self, guard: ConsoleGuard, watch: NodeWatch, feed: Feed, backstage: Backstage) -> None:
        self._guard = guard
        self._watch = watch
        self._feed = feed
        self._backstage = backstage
        self._browsers = 0

    async def answer(self, request: Request) -> Answer | Stream:
        """Answer one request."""
        path, _, query = request.target.partition("?")
        try:
            self._guard.check_host(request)
            name = "/index.html" if path == "/" else path
            if name in page():
                _only(request, "GET", "HEAD")
                return _static(name)
            self._guard.check_origin(request)
            if path == "/do":
                _only(request, "POST")
                opened = self._guard.opened(request, TokenRole.ALL)
                if not any(
                    kind.partition(";")[0].strip() == "application/json"
                    for kind in request.header("Content-Type")
                ):
                    raise Denied(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json")
                return _json(await self._backstage.do(await _body(request), opened))
            _only(request, "GET")
            opened = self._guard.opened(request, TokenRole.READ)
            if path == "/events":
                return self._events(opened)
            if (question := self._backstage.questions.get(path)) is None:
                raise Denied(HTTPStatus.NOT_FOUND, "there is no such thing here")
            if len(query) > QUERY_LIMIT:
                raise UsageError("no name is that long")
            return _json(await question(dict(parse_qsl(query))))
        except Denied as denied:
            return _said(denied.status, denied.text)
        except (MqprotoError, StoreError) as error:
            status = HTTPStatus.BAD_REQUEST if isinstance(error, UsageError) else HTTPStatus.CONFLICT
            return _said(status, str(error))

    def _events(self, opened: Opened) -> Stream:
        if self._browsers >= CLIENTS:
            raise Denied(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{CLIENTS} pages look at this console already: close one of them",
            )
        return Stream(
            HTTPStatus.OK, [("Content-Type", "text/event-stream"), *SAFE], self._looking(opened), BUFFER_BYTES
        )

    async def _looking(self, opened: Opened) -> AsyncGenerator[bytes, None]:
        """Yield the events for one browser until it disconnects."""
        self._browsers += 1
        try:
            may_act = b"true" if opened.role is TokenRole.ALL else b"false"
            hello = self._backstage.hello()
            yield event("hello", b'{"may_act":%s,"console":%s}' % (may_act, hello))
            with self._watch.looking():
                number = 0
                while True:
                    number, newest = await self._feed.newer(number)
                    yield newest
        finally:
            self._browsers -= 1


def faulty(fault: Fault) -> Answer:
    """Return the answer for a fault that the server itself, rather than a handler, reports."""
    return _said(fault.status, fault.text)


@cache
def page() -> dict[str, bytes]:
    """Return the files of the page, keyed by path."""
    found = [*HERE.iterdir(), files("mqproto.captures.drawing") / "palette.css"]
    return {f"/{file.name}": file.read_bytes() for file in found if _kind(file.name)}


def _kind(name: str) -> str:
    return KINDS.get(name[name.rfind(".") :], "")


def _static(path: str) -> Answer:
    data, kind = page()[path], f"{_kind(path)}; charset=utf-8"
    headers = [("Content-Type", kind), *SAFE]
    if path == "/index.html":
        nonce = secrets.token_urlsafe(16)
        data = data.replace(NONCE.encode(), nonce.encode())
        headers.append(("Content-Security-Policy", policy(nonce)))
    return Answer(HTTPStatus.OK, headers, data)


def policy(nonce: str) -> str:
    """Return the page's content security policy, which allows only its own script and style."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _only(request: Request, *methods: str) -> None:
    if request.method not in methods:
        raise Denied(HTTPStatus.METHOD_NOT_ALLOWED, f"use {' or '.join(methods)}")


async def _body(request: Request) -> bytes:
    body = b""
    try:
        while part := await request.part(BODY_LIMIT_BYTES - len(body)):
            body += part
    except BodyTooLargeError:
        said = "that is more than any deed has to say"
        raise Denied(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said) from None
    return body


def _json(value: Any) -> Answer:
    return Answer(HTTPStatus.OK, [("Content-Type", "application/json"), *SAFE], msgspec.json.encode(value))


def _said(status: HTTPStatus, text: str) -> Answer:
    headers = [("Content-Type", "application/json"), *SAFE]
    if status is HTTPStatus.UNAUTHORIZED:
        headers.append(("WWW-Authenticate", "Bearer"))
    return Answer(status, headers, msgspec.json.encode({"error": text}))

"""HTTP/1.1 for untrusted clients: everything they send or occupy has a limit.

httptools handles the grammar, and trio the sockets. We tried existing servers, and each of them leaves something
unlimited. If a server has a setting for a limit, it was set to 10 s. "never" means not within 40 s. This was measured
on 2026-11-26, with Python 3.11, on loopback:

                                     here          hypercorn 0.18  granian 2.8.7  uvicorn 0.54, h11
                                                                                  or httptools
    a body of a byte a second        503 in 10 s   never           never          never
    a client that does not read      11 s          never           never          never
    a head of a byte a second        503 in 10 s   10 s            10 s           never
    3,000 heads that do not end      1,000, 503    3,000           2,049          3,000
    time until these are closed      8 s           11 s            20 s           never
    an honest client meanwhile       503 at once   200 at once     200 in 8 s     200 at once
    a header of 60 KB; of 20 MB      431; 431      200; 431        200; 431       200; 400 or 200
    29 requests like those below     29 refused    18              18             17 or 24
    HTTP/1.0                         200           200             200            200
    SIGTERM, a slow request          200           200             200            200
    and a client that does not read  ends in 11 s  never           ends in 10 s   ends in 10 s
    on trio                          yes           yes             no             no

So this module serves the connections:

    a whole head        must arrive within `head_s` and `head_bytes`, including the TLS handshake
                        before it; a connection may also be idle for `head_s`
    a whole body        must arrive within `body_s`. It is read only as its handler asks for it, so
                        the rest waits at the client. If a chunk is too large, only its size is read
    an answer           must be taken by the client within `answer_s`
    the places          when all are taken, the host with the most places loses one to a newcomer:
                        the place of the connection that has waited longest for its client. But
                        a connection that has waited longer than HURRY_S for a whole head loses
                        its place before all others. A /64 of IPv6 counts as one host. A
                        newcomer displaces no connection from its own host that has waited for
                        less than HURRY_S
    no place            if all connections are at work, the newcomer's head is still read, and paths
                        that cost nothing are answered
    a refused body      is answered at once, and the answer says that the connection closes. Further
                        data is read and dropped for a moment, because a reset could destroy the
                        answer before the client reads it

The end of a request is never a guess: two servers that guess differently can be made to see different requests. The
following are answered with 400, and the connection closes. Nothing after them is read as a request.  [RFC 9112]

    Content-Length and Transfer-Encoding both       6.1
    Transfer-Encoding in HTTP/1.0                   6.1; httptools takes it
    POST in HTTP/1.0 without Content-Length         RFC 1945, 8.3; httptools takes it
    a bare LF at the end of a line of the head,     2.2
    of chunks or of trailers
    a header that continues on the next line        5.2
    HTTP/2.0, 0.9 or any version but 1.0 and 1.1    2.3; httptools takes 2.0
    other codings, or two of them                   6.1; httptools takes them
    chunks and an offer to upgrade                  httptools takes them for the other protocol
    two lengths, or one that has a sign or          6.3; httptools takes many digits
    more than 20 digits
    two Hosts or none                               3.2; httptools takes this
    a target that is not ASCII                      3.2; httptools takes it
    white space before a colon or in the target     5.1, 3
    CR or NUL in a header                           RFC 9110, 5.5
    chunk sizes that are not hexadecimal, or        7.1
    have white space beside them
    methods that no RFC has                         httptools knows no others

One CRLF before a request is ignored (2.2), and a target may be a whole URL, as a client of a proxy writes it (3.2.2).
"""

from __future__ import annotations

import email.utils
import re
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from math import inf
from typing import Final, NamedTuple

import trio
from structlog.typing import FilteringBoundLogger

from mqproto.routing.peers import host_group
from mqproto.simulator.base.http.framing import CRLF, HeadTooLargeError, MalformedError, RequestHead, Requests
from mqproto.simulator.base.http.tcpstream import READ_BYTES, TcpStream

CHUNKED_READ_BYTES: Final = 4_096
"""How many bytes of a chunked body are read at once: for each chunk, what is left of them is copied."""
GO_ON: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
FIELD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t -~]*")
"""A line of an answer's head.  [RFC 9110] 5.1, 5.5"""
LINGER_S: Final = 2.0
"""How many seconds the server continues to read and drop data after an answer that refuses the data."""
DOORWAY: Final = 200
"""How many connections beyond the limit are answered at the same time. Others are closed unanswered."""
HURRY_S: Final = 1.0
"""A connection that has waited longer than this many seconds for a whole head is displaced first.

A newcomer never displaces a connection from its own host that has waited less than this for its client.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits for clients.

    connections: how many connections there may be at once, from all clients together.
    grace_s: how long unfinished requests may still take when the server stops.
    """

    connections: int = 1_000
    head_bytes: int = 16_384
    head_s: float = 15.0
    body_s: float = 60.0
    answer_s: float = 15.0
    grace_s: float = 30.0


class Fault(Enum):
    """An error for which the server itself sends the answer, and not a handler.

    It has a description and an HTTP status.
    """

    MALFORMED = "malformed", HTTPStatus.BAD_REQUEST
    HEAD_TOO_LARGE = "head too large", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    TOO_SLOW = "too slow", HTTPStatus.REQUEST_TIMEOUT
    FULL = "full", HTTPStatus.SERVICE_UNAVAILABLE
    FAILED = "failed", HTTPStatus.INTERNAL_SERVER_ERROR
    """The answer if this program has a bug."""

    def __init__(self, text: str, status: HTTPStatus) -> None:
        self.text = text
        self.status = status


class BodyLost(Exception):  # noqa: N818
    """The body was incomplete. A handler need not catch this: the server sends an answer if it can."""

    def __init__(self, fault: Fault | None) -> None:
        super().__init__(fault)
        self.fault = fault


class Answer(NamedTuple):
    """A status, headers in addition to the standard ones, and a body."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


class Stream(NamedTuple):
    """A status, headers, and a body whose parts become available over time.

    The connection closes after the stream. The stream ends after its last part, when the client goes away, or when the
    server stops.

    buffer_bytes: roughly how much the kernel may keep for a slow client. While the buffer is full, no part is
        requested.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    parts: AsyncGenerator[bytes, None]
    buffer_bytes: int


class Request:
    """The head of a request. The body is read on demand.

    target: the path and the query, as the client sent them.
    """

    def __init__(self, head: RequestHead, next_part: Callable[[float], Awaitable[bytes]]) -> None:
        self.method, self.target = head.method, head.target
        self.content_length = head.length
        """The length of the body in bytes; None for a chunked body."""
        self._headers = head.headers
        self._next_part = next_part

    def header(self, name: str) -> list[str]:
        """Return all values of a header, decoded as Latin-1; an empty list if it was not sent."""
        return self._headers.get(name.lower(), [])

    @property
    def header_names(self) -> list[str]:
        """The names of all headers, in lower case."""
        return list(self._headers)

    async def part(self, most_bytes: float = inf) -> bytes:
        """Return the next part of the body; empty at its end.

        Raises:
            BodyLost: the rest of the body does not arrive.
            BodyTooLargeError: the body is larger than its handler accepts. For a chunk, this is raised as soon as its
                size is known.
        """
        return await self._next_part(most_bytes)


Handler = Callable[[Request], Awaitable[Answer | Stream]]


class Server:
    """Serves HTTP requests with a handler.

    Args:
        explain: returns the answer for a fault.
        log: gets our own errors, but not those of clients.
        tls: if given, only HTTPS is served.
        paths: the paths that are answered even if all places are taken.
    """

    def __init__(
        self,
        handler: Handler,
        explain: Callable[[Fault], Answer],
        limits: Limits,
        log: FilteringBoundLogger,
        tls: ssl.SSLContext | None = None,
        paths: Collection[str] = (),
    ) -> None:
        self.handler = handler
        self.explain = explain
        self.limits = limits
        self.log = log
        self.tls = tls
        self.paths = paths
        self.stopping = False
        self.turned_away = 0
        self._conversations: set[_Conversation] = set()
        self._hosts: dict[str, _Host] = {}
        self._doorway: set[_Conversation] = set()
        """The connections without a place: some never had one, and others have given theirs up."""
        self._accepting = trio.CancelScope()

    @property
    def connections(self) -> int:
        """The number of connections, without those that are being turned away."""
        return len(self._conversations)

    def stop(self) -> None:
        """Take no more requests. `run` ends when the requests in progress have been answered."""
        self.stopping = True
        self._accepting.cancel()
        for conversation in self._conversations | self._doorway:
            conversation.idle.cancel()

    async def run(
        self,
        listeners: list[trio.SocketListener],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until `stop` is called."""
        async with trio.open_nursery() as nursery:
            with self._accepting:
                task_status.started()
                await trio.serve_listeners(self._welcome, listeners, handler_nursery=nursery)
            nursery.cancel_scope.deadline = trio.current_time() + self.limits.grace_s

    async def _welcome(self, stream: trio.SocketStream) -> None:
        conversation = _Conversation(self, stream)
        if self._has_place_for(conversation):
            self._conversations.add(conversation)
            self._hosts.setdefault(conversation.host, _Host()).put_last(conversation)
        elif not self._into_the_doorway(conversation):
            conversation.close()
            return
        try:
            await conversation.run()
        finally:
            self._leave(conversation)
            self._doorway.discard(conversation)
            conversation.close()

    def _has_place_for(self, newcomer: _Conversation) -> bool:
        """Return whether a place is free. If necessary, make another connection give up its own."""
        if len(self._conversations) < self.limits.connections:
            return True
        own = self._hosts.get(newcomer.host, _Host())
        larger = sorted(
            (host for host in self._hosts.values() if len(host) >= len(own)), key=len, reverse=True
        )
        # A connection from the newcomer's own host stays until it has had the time to send something.
        found = (host.longest_waiting(HURRY_S if host is own else 0) for host in larger)
        waiting = next(filter(None, found), None)
        if waiting is None:
            return False
        self._leave(waiting)
        if not self._into_the_doorway(waiting):
            waiting.close()
        waiting.patience.cancel()
        return True

    def _leave(self, conversation: _Conversation) -> None:
        """Remove a connection from its place, if it has one."""
        host = self._hosts.get(conversation.host)
        if host is not None:
            host.remove(conversation)
            if not len(host):
                del self._hosts[conversation.host]
        self._conversations.discard(conversation)

    def begins_to_wait(self, conversation: _Conversation) -> None:
        """Record that a connection begins to wait, for a head or for a body."""
        if conversation in self._conversations:
            self._hosts[conversation.host].put_last(conversation)

    def _into_the_doorway(self, conversation: _Conversation) -> bool:
        """Put a connection into the doorway, where it is told that there is no room.

        Return False if the doorway is full, too, so that the connection cannot be told.
        """
        self.turned_away += 1
        if len(self._doorway) >= DOORWAY:
            return False
        conversation.has_no_place = True
        self._doorway.add(conversation)
        return True


class _Host:
    """Those connections of one host that have places, in the order in which they began to wait."""

    def __init__(self) -> None:
        self._heads: dict[_Conversation, None] = {}
        self._others: dict[_Conversation, None] = {}

    def __len__(self) -> int:
        return len(self._heads) + len(self._others)

    def put_last(self, conversation: _Conversation) -> None:
        """Move a connection to the end, because it begins to wait."""
        self.remove(conversation)
        (self._heads if conversation.has_no_head else self._others)[conversation] = None

    def remove(self, conversation: _Conversation) -> None:
        """Remove a connection, if it is here."""
        self._heads.pop(conversation, None)
        self._others.pop(conversation, None)

    def longest_waiting(self, least_s: float) -> _Conversation | None:
        """Return the connection that has waited longest; None if none has waited for at least `least_s`.

        A connection without a head takes precedence once it has waited longer than HURRY_S.
        """
        now_s = trio.current_time()
        head, other = (
            next((each for each in some if now_s - each.waits_since_s >= least_s), None)
            for some in (self._heads, self._others)
        )
        if head is None or other is None:
            return head or other
        is_late = now_s - head.waits_since_s > HURRY_S
        return head if is_late or head.waits_since_s < other.waits_since_s else other


class _Parting(TcpStream):
    """A stream that closes our end first, and then continues to read for a moment.

    The code that accepted the connection closes the socket.
    """

    async def aclose(self) -> None:
        """Send the end of our data, and wait up to LINGER_S for the other side to close its end."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError), trio.move_on_after(LINGER_S):
            await self.send_eof()
            while await self.receive_some(READ_BYTES):
                pass


class _Conversation:
    """One connection: its requests and their answers, one after the other."""

    def __init__(self, server: Server, stream: trio.SocketStream) -> None:
        self.idle = trio.CancelScope()
        """The scope in which we wait for a request. It may be cancelled at any time."""
        self.patience = self.idle
        """The scope in which we have been waiting for the client since `waits_since_s`."""
        self.waits_since_s = inf
        self.has_no_head = True
        self.has_no_place = False
        try:
            self.host = host_group(stream.socket.getpeername()[0])
        except OSError:
            self.host = ""  # It is gone again.
        self._server = server
        self._limits = server.limits
        self._socket = _Parting(stream)
        self._stream: trio.abc.Stream = self._socket
        if server.tls is not None:
            # The handshake runs with the first read or write, within the time limit of that.
            self._stream = trio.SSLStream(self._socket, server.tls, server_side=True, https_compatible=True)
        self._requests = Requests(self._limits.head_bytes)
        self._body_began_s = 0.0
        self._is_chunked = self._is_waited_for = False
        """Whether the body is in chunks, and whether the client waits for our word before it sends it."""

    async def run(self) -> None:
        """Serve the connection until either side ends it. An error here does not end other connections."""
        try:
            while await self._exchange():
                pass
            await self._part_company()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except Exception as error:
            self._failed(error)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    @contextmanager
    def _waiting(self, scope: trio.CancelScope, since_s: float) -> Iterator[None]:
        """Yield a scope in which to wait for the client. It is cancelled if the connection loses its place."""
        self.patience, self.waits_since_s = scope, since_s
        try:
            with scope:
                yield
        finally:
            self.waits_since_s = inf

    def _failed(self, error: Exception) -> None:
        self._server.log.error("failed", reason=f"{type(error).__name__}: {error}", exc_info=True)

    async def _exchange(self) -> bool:
        """Handle one request. Return whether another one may follow on this connection."""
        try:
            head = await self._head()
        except MalformedError:
            return await self._answer(self._server.explain(Fault.MALFORMED))
        except HeadTooLargeError:
            return await self._answer(self._server.explain(Fault.HEAD_TOO_LARGE))
        if head is None:
            return False
        request = Request(head, self._part)
        if self.has_no_place and request.target.partition("?")[0] not in self._server.paths:
            return await self._answer(self._server.explain(Fault.FULL), head)
        self._body_began_s = trio.current_time()
        self._server.begins_to_wait(self)
        try:
            answer = await self._server.handler(request)
        except BodyLost as lost:
            if lost.fault is None:
                return False
            answer = self._server.explain(lost.fault)
        except Exception as error:
            self._failed(error)
            answer = self._server.explain(Fault.FAILED)
        self._skip()
        if isinstance(answer, Stream):
            await self._pour(answer, head)
            return False
        return await self._answer(answer, head)

    async def _head(self) -> RequestHead | None:
        """Return the head of the next request; None if there will be none.

        Raises:
            MalformedError, HeadTooLargeError: the head is not valid.
        """
        if self._server.stopping:
            return None
        now_s, self.has_no_head = trio.current_time(), True
        self._server.begins_to_wait(self)
        self.idle = trio.CancelScope(deadline=now_s + self._limits.head_s)
        with self._waiting(self.idle, now_s):
            if self._requests.has_come:
                await (
                    trio.lowlevel.checkpoint()
                )  # Other tasks have a turn first: many requests may have come together.
            while (head := self._requests.head()) is None:
                if self._requests.is_over:
                    return None
                # Never read more than a head may have.
                self._requests.receive(bytes(await self._stream.receive_some(self._requests.room_bytes)))
            self.has_no_head, self._is_chunked = False, head.length is None
            self._is_waited_for = head.expects and not self._requests.has_come
            return head
        if self._requests.has_come and not self._server.stopping:
            await self._answer(self._server.explain(self._impatience()))
        return None

    async def _part(self, most_bytes: float) -> bytes:
        try:
            # Data that came with the head is there already.
            if (come := self._requests.part(most_bytes)) is not None:
                return come
            scope = trio.CancelScope(deadline=self._body_began_s + self._limits.body_s)
            with self._waiting(scope, self._body_began_s):
                if self._is_waited_for:
                    self._is_waited_for = False
                    await self._stream.send_all(GO_ON)
                at_once_bytes = CHUNKED_READ_BYTES if self._is_chunked else READ_BYTES
                while (come := self._requests.part(most_bytes)) is None:
                    self._requests.receive(bytes(await self._stream.receive_some(at_once_bytes)))
                return come
        except MalformedError:
            raise BodyLost(Fault.MALFORMED) from None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise BodyLost(None) from None
        raise BodyLost(self._impatience())

    def _impatience(self) -> Fault:
        """Return the fault that tells a client why we no longer wait for it."""
        return Fault.FULL if self.has_no_place else Fault.TOO_SLOW

    def _skip(self) -> None:
        """Drop what has arrived of an unread body. If that completes the body, the connection can continue."""
        with suppress(MalformedError):
            while self._requests.part(inf):
                pass

    async def _answer(self, answer: Answer, head: RequestHead | None = None) -> bool:
        """Send an answer, or as much of it as the client takes. Return whether another request may follow."""
        may_go_on = head is not None and head.keeps_alive and self._requests.is_whole
        may_go_on = may_go_on and not (self._server.stopping or self.has_no_place)
        data = _begun(answer, b"Content-Length: %d\r\n" % len(answer.body), is_last=not may_go_on)
        if head is None or head.method != "HEAD":
            data += answer.body
        if self._stream is self._socket:
            data = data[self._socket.send_at_once(data) :]
        if data:
            await self._send(data)
        return may_go_on

    async def _send(self, data: bytes) -> None:
        now_s = trio.current_time()
        patience = trio.CancelScope(deadline=now_s + self._limits.answer_s)
        with self._waiting(patience, now_s):
            await self._stream.send_all(data)
        if patience.cancelled_caught:
            raise trio.BrokenResourceError("the client does not read")

    async def _pour(self, stream: Stream, head: RequestHead) -> None:
        """Send the parts of a stream as they become available. The client must take each part within `answer_s`."""
        self._socket.limit_buffer(stream.buffer_bytes)
        has_chunks = head.version != "1.0"  # There, the end of the connection is that of the body.
        data = _begun(stream, b"Transfer-Encoding: chunked\r\n" * has_chunks, is_last=True)
        self.idle = trio.CancelScope()
        with self.idle:
            async with trio.open_nursery() as nursery, aclosing(stream.parts) as parts:
                nursery.start_soon(self._until_gone, nursery.cancel_scope)
                try:
                    await self._send(data)
                    if head.method != "HEAD":
                        async for part in parts:
                            if part:  # An empty chunk would be the end.
                                await self._send(b"%x\r\n%b\r\n" % (len(part), part) if has_chunks else part)
                        await self._send(b"0\r\n\r\n" * has_chunks)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    pass
                except Exception as error:
                    self._failed(error)  # The answer has begun: only its early end can tell the client.
                nursery.cancel_scope.cancel()

    async def _until_gone(self, scope: trio.CancelScope) -> None:
        """Drop anything that the client sends during a stream. Cancel the scope when the client goes away."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while await self._stream.receive_some(READ_BYTES):
                pass
        scope.cancel()

    async def _part_company(self) -> None:
        """Close the connection in a way that lets the client read the last answer."""
        with trio.move_on_after(self._limits.answer_s):
            await self._stream.aclose()


@lru_cache(maxsize=1)
def _date(now_s: int) -> bytes:
    return email.utils.formatdate(now_s, usegmt=True).encode("ascii")


def _begun(answer: Answer | Stream, framing: bytes, *, is_last: bool) -> bytes:
    """Return the encoded head of an answer.

    Args:
        framing: the header that says where the body ends, with the end of its line.

    Raises:
        ValueError: a header of the answer cannot be one.
    """
    status = HTTPStatus(answer.status)
    fields = [f"{name}: {value}" for name, value in answer.headers]
    for field in fields:
        if not FIELD.fullmatch(field):
            raise ValueError(f"{field[:80]!r} is not a header")
    fields += ["Connection: close"] * is_last
    begun = b"HTTP/1.1 %d %b\r\nDate: %b\r\n%b" % (
        status,
        status.phrase.encode("ascii"),
        _date(int(time.time())),
        framing,
    )
    return begun + "".join(field + "\r\n" for field in fields).encode("ascii") + CRLF

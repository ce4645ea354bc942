"""HTTP/1.1 for untrusted clients: everything they send or occupy has a limit.

h11 handles the protocol, and trio the sockets. We tried existing servers, and each of them leaves something unlimited.
If a server has a setting for a limit, it was set to 10 s. "never" means not within 40 s. This was measured on
2026-11-26, with Python 3.11, on loopback:

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

h2 is to HTTP/2 what h11 is to HTTP/1.1: a protocol, not a server. So this module serves the connections:

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

    Content-Length and Transfer-Encoding both       6.1; h11 takes the chunks
    Transfer-Encoding in HTTP/1.0                   6.1; h11 takes it
    POST in HTTP/1.0 without Content-Length         RFC 1945, 8.3; h11 drops the body
    a bare LF at the end of a line of the head,     2.2; h11 takes it in heads and trailers
    of chunks or of trailers
    a header that continues on the next line        5.2; h11 makes one line of it
    HTTP/2.0, 0.9 or any version but 1.0 and 1.1    2.3; h11 takes any
    other codings, or two of them                   h11 refuses this
    lengths that differ, have a sign or             h11 refuses this
    more than 20 digits
    two Hosts or none                               h11 refuses this
    white space before a colon or in the target     h11 refuses this
    CR or NUL in a header                           h11 refuses this
    chunk sizes that are not hexadecimal            h11 refuses this

One CRLF before a request is ignored (2.2), and a target may be a whole URL, as a client of a proxy writes it (3.2.2).
"""

from __future__ import annotations

import email.utils
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

import h11
import trio
from structlog.typing import FilteringBoundLogger

from mqproto.routing.peers import host_group
from mqproto.simulator.base.http.framing import (
    BARE_LF,
    CRLF,
    check_framing,
    check_lines,
    in_origin_form,
    is_chunked,
)
from mqproto.simulator.base.http.tcpstream import READ_BYTES, TcpStream

CHUNKED_READ_BYTES: Final = 4_096
"""How many bytes of a chunked body are read at once.

The number is small because h11 examines all unused data again for each chunk.
"""
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


class BodyTooLargeError(Exception):
    """The body is larger than its handler accepts."""


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

    def __init__(self, head: h11.Request, next_part: Callable[[float], Awaitable[bytes]]) -> None:
        self.method = head.method.decode("ascii")
        self.target = head.target.decode("ascii")
        self._headers: dict[str, list[str]] = {}
        for name, value in head.headers:
            self._headers.setdefault(name.decode("ascii"), []).append(value.decode("latin-1"))
        self._next_part = next_part

    def header(self, name: str) -> list[str]:
        """Return all values of a header, decoded as Latin-1; an empty list if it was not sent."""
        return self._headers.get(name.lower(), [])

    @property
    def header_names(self) -> list[str]:
        """The names of all headers, in lower case."""
        return list(self._headers)

    @property
    def content_length(self) -> int | None:
        """The length of the body in bytes, which the server has checked; None for a chunked body."""
        for value in self.header("content-length"):
            return int(value)
        return None if self.header("transfer-encoding") else 0

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
        self._doorway.add(conversation)
        return True

    def is_in_the_doorway(self, conversation: _Conversation) -> bool:
        """Whether the connection has no place."""
        return conversation in self._doorway


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
        self._http = self._new_http()
        self._body_began_s = 0.0
        self._is_chunked = False
        self._last = b""
        """The last byte that h11 has taken, whether from the body itself or from a line around a chunk."""
        self._chunk_bytes = 0
        """How many bytes of the current chunk h11 has not taken yet."""
        self._is_closing = False
        """Whether to stop reading requests, because nobody knows where the next one would begin."""

    def _new_http(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head_bytes)

    async def run(self) -> None:
        """Serve the connection until either side ends it. An error here does not end other connections."""
        try:
            while await self._exchange():
                self._http.start_next_cycle()
            await self._part_company()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except Exception as error:
            self._failed(error)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    @property
    def _has_no_place(self) -> bool:
        return self._server.is_in_the_doorway(self)

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
        except h11.RemoteProtocolError as error:
            too_large = error.error_status_hint == 431
            await self._answer(self._server.explain(Fault.HEAD_TOO_LARGE if too_large else Fault.MALFORMED))
            return False
        if head is None:
            return False
        request = Request(head, self._part)
        if self._has_no_place and request.target.partition("?")[0] not in self._server.paths:
            await self._answer(self._server.explain(Fault.FULL), head)
            return False
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
        await self._answer(answer, head)
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _head(self) -> h11.Request | None:
        """Return the head of the next request; None if there will be none.

        Raises:
            h11.RemoteProtocolError: the head is not valid.
        """
        if self._server.stopping:
            return None
        size_bytes, may_skip = 0, True
        now_s, self.has_no_head = trio.current_time(), True
        self._server.begins_to_wait(self)
        self.idle = trio.CancelScope(deadline=now_s + self._limits.head_s)
        with self._waiting(self.idle, now_s):
            if self._http.trailing_data[0]:
                await (
                    trio.lowlevel.checkpoint()
                )  # Other tasks have a turn first: many requests may have come together.
            while True:
                event: h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED] = h11.NEED_DATA
                came, is_all = self._http.trailing_data
                if may_skip and len(came) >= len(CRLF):
                    may_skip = False
                    if came.startswith(CRLF):
                        came, size_bytes = came[len(CRLF) :], size_bytes - len(CRLF)
                        self._http = self._new_http()
                        if came:
                            self._http.receive_data(came)
                        if is_all:
                            self._http.receive_data(b"")
                if is_all or came not in (b"", CRLF[:1]):
                    check_lines(came)
                    event = self._http.next_event()
                if isinstance(event, h11.Request):
                    check_framing(event)
                    event = in_origin_form(event)
                    self._is_chunked, self._last, self.has_no_head = is_chunked(event), b"\n", False
                    return event
                if event is not h11.NEED_DATA:
                    return None  # Their end of the connection is closed.
                # Never read more than a head may have: h11 then refuses a larger one however it comes.
                data = await self._stream.receive_some(self._limits.head_bytes + 1 - size_bytes)
                size_bytes += len(data)
                self._http.receive_data(bytes(data))
        if size_bytes and not self._server.stopping:
            await self._answer(self._server.explain(self._impatience()))
        return None

    async def _part(self, most_bytes: float) -> bytes:
        try:
            is_waiting = self._http.they_are_waiting_for_100_continue
            # Data that came with the head is there already.
            if not is_waiting and (come := self._come(most_bytes)) is not None:
                return come
            scope = trio.CancelScope(deadline=self._body_began_s + self._limits.body_s)
            with self._waiting(scope, self._body_began_s):
                if is_waiting:
                    go_on = self._http.send(h11.InformationalResponse(status_code=100, headers=[]))
                    await self._stream.send_all(go_on)
                while (come := self._come(most_bytes)) is None:
                    at_once_bytes = CHUNKED_READ_BYTES if self._is_chunked else READ_BYTES
                    self._http.receive_data(bytes(await self._stream.receive_some(at_once_bytes)))
                return come
        except h11.RemoteProtocolError:
            raise BodyLost(Fault.MALFORMED) from None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise BodyLost(None) from None
        raise BodyLost(self._impatience())

    def _impatience(self) -> Fault:
        """Return the fault that tells a client why we no longer wait for it."""
        return Fault.FULL if self._has_no_place else Fault.TOO_SLOW

    def _come(self, most_bytes: float) -> bytes | None:
        """Return the part of the body that has arrived; empty at its end, None if nothing has arrived."""
        event = self._body_event()
        data = bytes(event.data) if isinstance(event, h11.Data) else b""
        if max(self._chunk_bytes, len(data)) > most_bytes:
            raise BodyTooLargeError
        self._chunk_bytes -= len(data)
        return None if event is h11.NEED_DATA else data

    def _body_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return h11's next event for the body.

        Raises:
            h11.RemoteProtocolError: a line around one of the chunks is not valid.
        """
        if not self._is_chunked:
            return self._http.next_event()
        before = self._http.trailing_data[0]
        event = self._http.next_event()
        after = self._http.trailing_data[0]
        taken = before[: len(before) - len(after)]
        # With the end, h11 takes the last chunk's line and the trailers. It takes nothing from an incomplete line.
        last, self._last = self._last, taken[-1:] or self._last
        if isinstance(event, h11.EndOfMessage):
            lines = last + taken
            self._chunk_bytes = 0
        else:
            around = taken[: len(taken) - len(event.data)] if isinstance(event, h11.Data) else taken
            if size := around.strip(CRLF):
                self._chunk_bytes = int(size.partition(b";")[0], 16)
            lines = self._last + after if event is h11.NEED_DATA else b""
        if BARE_LF.search(lines, 1):
            self._is_closing = True
            raise h11.RemoteProtocolError("a line ends in a bare LF")
        return event

    def _skip(self) -> None:
        """Drop what has arrived of an unread body. If that completes the body, the connection can continue."""
        with suppress(h11.RemoteProtocolError):
            while isinstance(self._body_event(), h11.Data):
                pass

    async def _answer(self, answer: Answer, head: h11.Request | None = None) -> None:
        """Send an answer, or as much of it as the client takes."""
        is_last = self._server.stopping or self._is_closing or self._has_no_place
        is_last = is_last or self._http.their_state is not h11.DONE
        data = self._begin(answer, [(b"Content-Length", b"%d" % len(answer.body))], is_last=is_last)
        if head is None or head.method != b"HEAD":
            data += self._http.send(h11.Data(data=answer.body)) or b""
        data += self._http.send(h11.EndOfMessage()) or b""
        if self._stream is self._socket:
            data = data[self._socket.send_at_once(data) :]
            if not data:
                return
        await self._send(data)

    def _begin(self, answer: Answer | Stream, headers: list[tuple[bytes, bytes]], *, is_last: bool) -> bytes:
        """Return the encoded head of an answer."""
        # Pass bytes: h11 checks the type of a str three times before encoding it.
        headers = [(b"Date", _date(int(time.time()))), *headers]
        headers += [(name.encode("ascii"), value.encode("ascii")) for name, value in answer.headers]
        if is_last:
            headers.append((b"Connection", b"close"))
        status = HTTPStatus(answer.status)
        return self._http.send(h11.Response(status_code=status, reason=status.phrase, headers=headers)) or b""

    async def _send(self, data: bytes) -> None:
        now_s = trio.current_time()
        patience = trio.CancelScope(deadline=now_s + self._limits.answer_s)
        with self._waiting(patience, now_s):
            await self._stream.send_all(data)
        if patience.cancelled_caught:
            raise trio.BrokenResourceError("the client does not read")

    async def _pour(self, stream: Stream, head: h11.Request) -> None:
        """Send the parts of a stream as they become available. The client must take each part within `answer_s`."""
        self._socket.limit_buffer(stream.buffer_bytes)
        data = self._begin(stream, [], is_last=True)
        self.idle = trio.CancelScope()
        with self.idle:
            async with trio.open_nursery() as nursery, aclosing(stream.parts) as parts:
                nursery.start_soon(self._until_gone, nursery.cancel_scope)
                try:
                    await self._send(data)
                    if head.method != b"HEAD":
                        async for part in parts:
                            await self._send(self._http.send(h11.Data(data=part)) or b"")
                    await self._send(self._http.send(h11.EndOfMessage()) or b"")
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

"""HTTP/1.1 to a small number of servers, over connections that stay open.

httptools has the grammar, trio the sockets. We used httpx and httpcore before. They have features that we do not want:
redirections, cookies, proxies, decompression, HTTP/2, and a pool for thousands of servers. With them, a POST on
loopback took about 1,400 function calls, eight cancel scopes and six turns of trio's loop. That was more than half of a
trigger's cost per delivery.

    nothing is repeated      because a request that was sent may have been carried out
    one at a time            on each connection; idle connections are used again for KEPT_S, unless the other end has
                             closed them or sent something unrequested
    an early answer          is read even if the server no longer accepts the rest of the body
    a late answer            counts if it has arrived when the time is up: a process or machine that was stopped for
                             longer still reads the data that is there, without waiting
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import httptools
import httpx
import trio

from mqproto.simulator.base.http.server import FIELD
from mqproto.simulator.base.http.tcpstream import READ_BYTES, TcpStream

ANSWER_LIMIT_BYTES: Final = 65_536
"""The number of bytes of an answer's body that are read."""
HEAD_LIMIT_BYTES: Final = 102_400
SENT_LIMIT_BYTES: Final = HEAD_LIMIT_BYTES + 16 * ANSWER_LIMIT_BYTES
"""The number of bytes that are read for one answer: an answer in chunks may have many lines around them."""
TOGETHER_BYTES: Final = 65_536
"""The maximum size, in bytes, of a body that is sent together with its head in one write."""
KEPT_S: Final = 5.0
KEPT: Final = 64
"""The number of idle connections to one server that are kept, for KEPT_S seconds each."""
CLOSED: Final = "the other end closed it without an answer"
CUT_OFF: Final = "the other end closed it before the end of its answer"
OK: Final = 200
PORTS: Final = {"http": 80, "https": 443}
ALPN: Final = ("http/1.1",)


class HttpError(Exception):
    """There is no answer. The text says why; it may be empty."""


class NotConnectedError(HttpError):
    """There was no connection, so the server has not seen the request."""


class BrokenError(HttpError):
    """The connection broke, so the server may have seen the request."""


class ResponseHeaders(Mapping[str, str]):
    """The headers of an answer, keyed by name, ignoring case.

    If a name occurs twice, its first header counts.
    """

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class Response(NamedTuple):
    """A complete answer.

    body: None if the body is longer than ANSWER_LIMIT_BYTES.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes | None


class HttpClient:
    """Posts requests. The caller must close it at the end.

    Args:
        trusted: the TLS context that checks certificates; None to trust the authorities that httpx trusts.
    """

    def __init__(self, trusted: ssl.SSLContext | None = None) -> None:
        self._trusted = trusted
        self._kept: dict[tuple[str, str, int], list[_HttpConnection]] = {}

    async def post(self, url: httpx.URL, content: bytes, headers: Mapping[str, str]) -> Response:
        """Post a request, and return its answer.

        Args:
            headers: all headers except Host, Content-Length and Connection, in ASCII.

        Raises:
            HttpError: there is no answer.
        """
        place = url.scheme, url.host, url.port or PORTS[url.scheme]
        kept = self._kept.setdefault(place, [])
        connection = self._waiting(kept) or await self._connected(place)
        is_good = False
        try:
            response = await connection.post(url, content, headers)
            is_good = connection.may_go_on()
        finally:
            if is_good and len(kept) < KEPT:
                connection.kept_until_s = trio.current_time() + KEPT_S
                kept.append(connection)
            else:
                connection.close()
        return response

    def close(self) -> None:
        """Close the idle connections."""
        for kept in self._kept.values():
            for connection in kept:
                connection.close()
        self._kept.clear()

    def _waiting(self, kept: list[_HttpConnection]) -> _HttpConnection | None:
        """Return the most recently used connection that can be used again, if any; close those that cannot."""
        now_s = trio.current_time()
        while kept and kept[0].kept_until_s < now_s:
            kept.pop(0).close()
        while kept:
            connection = kept.pop()
            if connection.is_quiet:
                return connection
            connection.close()
        return None

    async def _connected(self, place: tuple[str, str, int]) -> _HttpConnection:
        scheme, host, port = place
        try:
            socket = TcpStream(await trio.open_tcp_stream(host, port))
        except OSError as error:
            raise NotConnectedError(str(error)) from error
        if scheme == "http":
            return _HttpConnection(socket, socket)
        try:
            stream = trio.SSLStream(socket, self._context(), server_hostname=host, https_compatible=True)
            await stream.do_handshake()
        except (trio.BrokenResourceError, ssl.SSLError) as error:
            socket.close()
            raise NotConnectedError(str(error)) from error
        except BaseException:
            socket.close()
            raise
        return _HttpConnection(socket, stream)

    def _context(self) -> ssl.SSLContext:
        if self._trusted is None:
            self._trusted = httpx.create_ssl_context()
        self._trusted.set_alpn_protocols(ALPN)
        return self._trusted


class _Answering:
    """What has come of an answer. httptools calls the methods whose names begin with `on_`."""

    def __init__(self) -> None:
        self.is_whole = False
        """Whether nothing more has to be read for the answer."""
        self._status = 0
        self._fields: dict[str, str] = {}
        self._body = bytearray()
        self._come_bytes = 0
        self._has_more = self._keeps_alive = False
        """Whether something came behind the answer, or was not read of it; and whether the other end goes on."""
        self._parser = httptools.HttpResponseParser(self)

    def on_message_begin(self) -> None:
        self._has_more = self.is_whole
        if not self.is_whole:
            self._status, self._fields = 0, {}

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._status:  # Else it is a trailer, or of what comes behind the answer.
            text = value.strip(b" \t").decode("latin-1")
            self._fields.setdefault(name.decode("latin-1").lower(), text)

    def on_headers_complete(self) -> None:
        if not self.is_whole:
            self._status, self._keeps_alive = self._parser.get_status_code(), self._parser.should_keep_alive()

    def on_body(self, part: bytes) -> None:
        if not self.is_whole:
            self._body += part
            if len(self._body) > ANSWER_LIMIT_BYTES:
                self.is_whole = self._has_more = True

    def on_message_complete(self) -> None:
        self.is_whole = self._status >= OK  # Else it says only that the answer will follow.

    def take(self, data: bytes) -> None:
        """Take what has come; nothing if the other end has closed the connection.

        Raises:
            httptools.HttpParserError, httptools.HttpParserUpgrade: it is not an answer.
            BrokenError: the answer does not come, or is too long.
        """
        self._come_bytes += len(data)
        if not data:
            is_cut = not self._status or not self._fields.keys().isdisjoint(
                ("content-length", "transfer-encoding")
            )
            if is_cut:
                raise BrokenError(CLOSED if not self._come_bytes else CUT_OFF)
            self.is_whole = self._has_more = True
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self.is_whole:
                raise
            self._has_more = True
        if not self.is_whole and self._come_bytes > (SENT_LIMIT_BYTES if self._status else HEAD_LIMIT_BYTES):
            raise BrokenError("the answer is too long")

    def response(self) -> Response:
        """Return the answer, which has come whole."""
        is_short = len(self._body) <= ANSWER_LIMIT_BYTES
        return Response(self._status, ResponseHeaders(self._fields), bytes(self._body) if is_short else None)

    @property
    def may_go_on(self) -> bool:
        """Whether another request may follow on the connection."""
        return self.is_whole and self._keeps_alive and not self._has_more


class _HttpConnection:
    """One connection, which carries one request at a time.

    socket: the socket below TLS.
    stream: the stream above TLS; without TLS, the plain stream.
    """

    def __init__(self, socket: TcpStream, stream: trio.abc.Stream) -> None:
        self.kept_until_s = 0.0
        self._socket = socket
        self._stream = stream
        self._answering = _Answering()
        self._is_over = False

    @property
    def is_quiet(self) -> bool:
        """Whether the other end has neither closed the connection nor sent anything."""
        return self._socket.is_quiet

    def may_go_on(self) -> bool:
        """Return whether another request may follow.

        If data follows the answer, no request may follow, because the data would pass for the next answer.
        """
        return self._answering.may_go_on and not self._is_over

    async def post(self, url: httpx.URL, content: bytes, headers: Mapping[str, str]) -> Response:
        """Do the same as `HttpClient.post`."""
        self._answering = _Answering()
        try:
            try:
                await self._send(url, content, headers)
                return await self._answer()
            except trio.Cancelled:
                self._is_over = True
                self._socket.wait_no_more(HEAD_LIMIT_BYTES + ANSWER_LIMIT_BYTES)
                with trio.CancelScope(shield=True), suppress(trio.WouldBlock, trio.BrokenResourceError):
                    return await self._answer()
                raise
        except trio.BrokenResourceError as error:
            raise BrokenError(CLOSED) from error
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, ssl.SSLError) as error:
            raise BrokenError(str(error)) from error

    async def _send(self, url: httpx.URL, content: bytes, headers: Mapping[str, str]) -> None:
        fields = [f"{name}: {value}" for name, value in headers.items()]
        for field in fields:
            if not FIELD.fullmatch(field):
                raise ValueError(f"{field[:80]!r} is not a header")
        lines = [f"Host: {url.netloc.decode('ascii')}", *fields, f"Content-Length: {len(content)}", "", ""]
        head = b"POST %b HTTP/1.1\r\n%b" % (url.raw_path, "\r\n".join(lines).encode("ascii"))
        with suppress(trio.BrokenResourceError):  # It may have answered all the same.
            if len(content) <= TOGETHER_BYTES:
                await self._stream.send_all(head + content)
            else:
                await self._stream.send_all(head)
                await self._stream.send_all(content)

    async def _answer(self) -> Response:
        answering = self._answering
        while not answering.is_whole:
            data = bytes(await self._stream.receive_some(READ_BYTES))
            answering.take(data)
        return answering.response()

    def close(self) -> None:
        """Close the connection without TLS's closing message, which nobody needs."""
        self._socket.close()


def basic(url: httpx.URL) -> dict[str, str]:
    """Return the Authorization header for the user in a URL; empty if the URL names none."""
    if not url.userinfo:
        return {}
    return {"Authorization": f"Basic {b64encode(f'{url.username}:{url.password}'.encode()).decode()}"}

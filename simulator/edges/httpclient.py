"""HTTP/1.1 to a small number of servers, over connections that stay open.

h11 has the protocol, trio the sockets. We used httpx and httpcore before. They have features that we do not want:
redirections, cookies, proxies, decompression, HTTP/2, and a pool for thousands of servers. With them, a POST on
loopback took about 1,400 function calls, eight cancel scopes and six turns of trio's loop. That was more than half of a
trigger's cost per delivery. Here it takes about 350 function calls.

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

import h11
import httpx
import trio

from mqproto.simulator.base.http.tcpstream import READ_BYTES, TcpStream

ANSWER_LIMIT_BYTES: Final = 65_536
"""The number of bytes of an answer's body that are read."""
HEAD_LIMIT_BYTES: Final = 102_400
TOGETHER_BYTES: Final = 65_536
"""The maximum size, in bytes, of a body that is sent together with its head in one write."""
KEPT_S: Final = 5.0
KEPT: Final = 64
"""The number of idle connections to one server that are kept, for KEPT_S seconds each."""
CLOSED: Final = "the other end closed it without an answer"
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

    def __init__(self, fields: list[tuple[bytes, bytes]]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        wanted = name.lower().encode("latin-1", "replace")
        for found, value in self._fields:
            if found == wanted:
                return value.decode("latin-1")
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.decode("latin-1") for name, _ in self._fields))

    def __len__(self) -> int:
        return len({name for name, _ in self._fields})


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


class _HttpConnection:
    """One connection, which carries one request at a time.

    socket: the socket below TLS.
    stream: the stream above TLS; without TLS, the plain stream.
    """

    def __init__(self, socket: TcpStream, stream: trio.abc.Stream) -> None:
        self.kept_until_s = 0.0
        self._socket = socket
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT_BYTES)
        self._head: h11.Response | None = None
        self._body = bytearray()
        self._is_over = False

    @property
    def is_quiet(self) -> bool:
        """Whether the other end has neither closed the connection nor sent anything."""
        return self._socket.is_quiet

    def may_go_on(self) -> bool:
        """Return whether another request may follow.

        If data follows the answer, no request may follow, because the data would pass for the next answer.
        """
        are_done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if are_done and not self._is_over and self._http.trailing_data == (b"", False):
            self._http.start_next_cycle()
            return True
        return False

    async def post(self, url: httpx.URL, content: bytes, headers: Mapping[str, str]) -> Response:
        """Do the same as `HttpClient.post`."""
        self._head, self._body = None, bytearray()
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
        except (h11.ProtocolError, ssl.SSLError) as error:
            raise BrokenError(str(error)) from error

    async def _send(self, url: httpx.URL, content: bytes, headers: Mapping[str, str]) -> None:
        # As bytes: h11 looks at the type of a text three times before it encodes it.
        fields = [(b"Host", url.netloc)]
        fields += [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        fields.append((b"Content-Length", b"%d" % len(content)))
        head = self._http.send(h11.Request(method="POST", target=url.raw_path, headers=fields)) or b""
        parts = [
            head,
            self._http.send(h11.Data(data=content)) or b"",
            self._http.send(h11.EndOfMessage()) or b"",
        ]
        with suppress(trio.BrokenResourceError):  # It may have answered all the same.
            if len(content) <= TOGETHER_BYTES:
                await self._stream.send_all(b"".join(parts))
            else:
                for part in filter(None, parts):
                    await self._stream.send_all(part)

    async def _answer(self) -> Response:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                data = bytes(await self._stream.receive_some(READ_BYTES))
                if not data and self._head is None:
                    raise BrokenError(CLOSED)
                self._http.receive_data(data)
            elif isinstance(event, h11.Response):
                self._head = event
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > ANSWER_LIMIT_BYTES:
                    break
            elif isinstance(event, h11.EndOfMessage):
                break
        assert self._head is not None, "h11 has it before its body"
        whole = None if len(self._body) > ANSWER_LIMIT_BYTES else bytes(self._body)
        return Response(self._head.status_code, ResponseHeaders(list(self._head.headers)), whole)

    def close(self) -> None:
        """Close the connection without TLS's closing message, which nobody needs."""
        self._socket.close()


def basic(url: httpx.URL) -> dict[str, str]:
    """Return the Authorization header for the user in a URL; empty if the URL names none."""
    if not url.userinfo:
        return {}
    return {"Authorization": f"Basic {b64encode(f'{url.username}:{url.password}'.encode()).decode()}"}

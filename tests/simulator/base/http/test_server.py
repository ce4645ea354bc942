"""HTTP for strangers: requests that are too slow, too large, malformed or too many are cut off."""

from __future__ import annotations

import ssl
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from math import inf

import h11
import pytest
import trio
from hypothesis import given, strategies as st
from trio.testing import MockClock

from mqproto.simulator.base.http import server as server_module
from mqproto.simulator.base.http.framing import BodyTooLargeError, HeadTooLargeError, MalformedError, Requests
from mqproto.simulator.base.http.server import (
    DOORWAY,
    HURRY_S,
    LINGER_S,
    Answer,
    Fault,
    Handler,
    Limits,
    Request,
    Server,
    Stream,
)
from mqproto.simulator.base.log import node_log
from tests.simulator.running import Log

Open = Callable[..., Awaitable[trio.SocketStream]]


def explain(fault: Fault) -> Answer:
    return Answer(fault.status, [], fault.text.encode())


async def echo(request: Request) -> Answer:
    """Answer with the method, the target and the body of a request; refuse to be a proxy."""
    if request.method == "CONNECT":
        return Answer(405, [], b"")
    body = b""
    while part := await request.part():
        body += part
    return Answer(200, [("X-Echo", "yes")], f"{request.method} {request.target} ".encode() + body)


@asynccontextmanager
async def serving(
    handler: Handler = echo,
    log: Log | None = None,
    limits: Limits | None = None,
    tls: ssl.SSLContext | None = None,
    paths: Sequence[str] = (),
) -> AsyncIterator[tuple[Server, Open]]:
    """Run a server on a free port until the block ends; yield the server, and a function that connects to it."""
    server = Server(handler, explain, limits or Limits(), node_log(log or Log(), "test"), tls, paths)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=1_000)
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, listeners)
        yield server, partial(trio.open_tcp_stream, "127.0.0.1", port)
        server.stop()


async def rest_of(stream: trio.SocketStream) -> bytes:
    """Return everything that arrives until the other end closes."""
    data = b""
    with suppress(trio.BrokenResourceError):
        async for part in stream:
            data += part
    return data


async def answer_in(stream: trio.SocketStream) -> tuple[int, bytes]:
    """Return the status and body of the next answer."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    status, body = 0, b""
    while True:
        event = client.next_event()
        if event is h11.NEED_DATA:
            client.receive_data(await stream.receive_some(65_536))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return status, body


GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


def post(size_bytes: int, *headers: str) -> bytes:
    """Return the head of a request whose body has this size."""
    return "\r\n".join(
        ["POST /a HTTP/1.1", "Host: x", f"Content-Length: {size_bytes}", *headers, "", ""]
    ).encode()


async def test_a_connection_serves_one_request_after_the_other() -> None:
    async with serving() as (_, connect), await connect() as stream:
        await stream.send_all(post(3) + b"one")
        assert await answer_in(stream) == (200, b"POST /a one")
        for _ in range(2):
            await stream.send_all(GET)
            assert await answer_in(stream) == (200, b"GET /a ")


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30), chunked=st.booleans())
def test_a_request_is_the_same_however_its_bytes_come(sizes: list[int], chunked: bool) -> None:
    body = b"0123456789" * 5
    data = post(len(body)) + body
    if chunked:
        data = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        data += b"19\r\n" + body[:25] + b"\r\n19\r\n" + body[25:] + b"\r\n0\r\n\r\n"

    async def run() -> None:
        async with serving() as (_, connect), await connect() as stream:
            rest = data
            for size in sizes:
                await stream.send_all(rest[:size])
                rest = rest[size:]
            await stream.send_all(rest)
            assert await answer_in(stream) == (200, b"POST /a " + body)

    trio.run(run)


# Slow clients


async def test_a_head_that_comes_byte_by_byte_is_cut_off(idle_clock: MockClock) -> None:
    async with serving(limits=Limits(head_s=10)) as (server, connect), await connect() as stream:
        began_s = trio.current_time()
        for byte in GET[:11]:
            await stream.send_all(bytes([byte]))
            await trio.sleep(1)
        assert b"too slow" in await rest_of(stream)
        assert trio.current_time() - began_s <= 11 + LINGER_S
    assert server.connections == 0


async def test_a_connection_on_which_nothing_is_asked_is_closed(idle_clock: MockClock) -> None:
    async with serving(limits=Limits(head_s=10)) as (_, connect), await connect() as stream:
        began_s = trio.current_time()
        assert await rest_of(stream) == b""
        assert 9 < trio.current_time() - began_s < 11


async def test_a_body_that_comes_byte_by_byte_is_cut_off(idle_clock: MockClock) -> None:
    async with serving(limits=Limits(body_s=10)) as (server, connect), await connect() as stream:
        await stream.send_all(post(1_000))
        for _ in range(11):
            await stream.send_all(b"x")
            await trio.sleep(1)
        assert (await rest_of(stream)).endswith(b"too slow")
        await trio.sleep(LINGER_S + 1)
        assert server.connections == 0


async def test_who_does_not_read_the_answers_is_cut_off(idle_clock: MockClock) -> None:
    async def much(request: Request) -> Answer:
        return Answer(200, [], bytes(1_000_000))

    async with serving(much, limits=Limits(answer_s=10)) as (server, connect), await connect() as stream:
        await stream.send_all(50 * GET)
        await trio.sleep(5)
        assert server.connections == 1
        await trio.sleep(6 + LINGER_S)
        assert server.connections == 0


async def test_a_body_is_read_no_faster_than_it_is_asked_for(idle_clock: MockClock) -> None:
    """A body that nobody asks for takes up no memory on our side."""
    go_on = trio.Event()

    async def patient(request: Request) -> Answer:
        await go_on.wait()
        return await echo(request)

    async with serving(patient) as (_, connect), await connect() as stream:
        size_bytes = 30_000_000
        with trio.move_on_after(20) as patience:
            await stream.send_all(post(size_bytes) + bytes(size_bytes))
        assert patience.cancelled_caught
        go_on.set()


@pytest.mark.parametrize("size", [1_000, 1], ids=["at once", "byte by byte"])
@pytest.mark.parametrize(
    ("line", "target", "host"),
    [
        ("GET http://shop.example/a?b HTTP/1.1", "/a?b", "shop.example"),
        ("GET HTTPS://shop.example:8443?b HTTP/1.1", "/?b", "shop.example:8443"),
        ("GET http://[::1]:80 HTTP/1.0", "/", "[::1]:80"),
        ("OPTIONS http://shop.example HTTP/1.1", "*", "shop.example"),
        ("\r\nGET /a HTTP/1.1", "/a", "x"),
    ],
)
async def test_a_target_may_be_a_whole_url_and_one_crlf_may_come_before_a_request(
    line: str, target: str, host: str, size: int
) -> None:
    """[RFC 9112] 2.2, 3.2.2: the host is that of the URL, whatever the header says."""

    async def told(request: Request) -> Answer:
        return Answer(200, [], f"{request.target} {request.header('Host')}".encode())

    data = f"{line}\r\nHost: x\r\nConnection: keep-alive\r\n\r\n".encode()
    async with serving(told) as (_, connect), await connect() as stream:
        for _ in range(2 if "1.1" in line else 1):
            for at in range(0, len(data), size):
                await stream.send_all(data[at : at + size])
            assert await answer_in(stream) == (200, f"{target} {[host]}".encode())


async def test_what_comes_behind_a_body_may_be_a_crlf_and_the_next_request(idle_clock: MockClock) -> None:
    """[RFC 9112] 2.2; two CRLFs are an error."""
    async with serving() as (_, connect):
        async with await connect() as stream:
            await stream.send_all(post(3) + b"one\r\n" + GET + b"\r\n")
            await stream.send_eof()
            answers = (await rest_of(stream)).split(b"HTTP/1.1 200 ")[1:]
            bodies = [answer.partition(b"\r\n\r\n")[2] for answer in answers]
            assert bodies == [b"POST /a one", b"GET /a "]
        async with await connect() as stream:
            await stream.send_all(b"\r\n\r\n" + GET)
            assert (await rest_of(stream)).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("size", [1_000, 1], ids=["at once", "byte by byte"])
@pytest.mark.parametrize(
    ("body", "most_bytes", "is_too_large"),
    [
        (b"5\r\nabcde\r\n6;x=y\r\n", 10, True),
        (b"5\r\nabcde\r\n5\r\nabcde\r\n0\r\n\r\n", 10, False),
        (b"FFFFFFFFFFFFFFFF\r\n", 10, True),
        (b"B\r\n", 10, True),
        (b"A\r\nabcdefghij\r\n0\r\nX: y\r\n\r\n", 10, False),
    ],
)
async def test_a_chunk_that_is_too_large_is_known_by_its_size(
    body: bytes, most_bytes: int, is_too_large: bool, size: int
) -> None:
    async def careful(request: Request) -> Answer:
        come = 0
        try:
            while part := await request.part(most_bytes - come):
                come += len(part)
        except BodyTooLargeError:
            return Answer(413, [], b"")
        return Answer(200, [], b"")

    async with serving(careful) as (_, connect), await connect() as stream:
        data = asked(CHUNKED, body=body)
        for at in range(0, len(data), size):
            await stream.send_all(data[at : at + size])
        assert await answer_in(stream) == (413 if is_too_large else 200, b"")


# What is refused


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET a/b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /\xe4 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"NONE / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET ftp://x/b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET http:///b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET http://user@x/b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20_000, 431),
    ],
)
async def test_what_is_no_request_is_refused(data: bytes, status: int, idle_clock: MockClock) -> None:
    async with serving() as (_, connect), await connect() as stream:
        await stream.send_all(data)
        assert (await rest_of(stream)).startswith(f"HTTP/1.1 {status} ".encode())


CHUNKED = "Transfer-Encoding: chunked"
SMUGGLED = b"POST /smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


def asked(*headers: str, body: bytes = b"", version: str = "1.1", end: str = "\r\n") -> bytes:
    return (
        f"POST /a HTTP/{version}{end}Host: x{end}{''.join(each + end for each in headers)}{end}".encode()
        + body
    )


AMBIGUOUS = {
    "a length and chunks": asked("Content-Length: 5", CHUNKED, body=b"0\r\n\r\n"),
    "chunks and a length": asked(CHUNKED, "Content-Length: 5", body=b"0\r\n\r\n"),
    "chunks in HTTP/1.0": asked(CHUNKED, "Connection: keep-alive", version="1.0", body=b"0\r\n\r\n"),
    "no length in HTTP/1.0": asked(version="1.0", body=b"x"),
    "another coding": asked("Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
    "a coding that is none": asked("Transfer-Encoding: xchunked", "Content-Length: 0"),
    "a coding twice": asked(CHUNKED, CHUNKED, body=b"0\r\n\r\n"),
    "a coding in the next line": asked("Transfer-Encoding:\r\n chunked", body=b"0\r\n\r\n"),
    "a header in two lines": asked("X: a\r\n\tb", "Content-Length: 0"),
    "bare LF in all lines": asked("Content-Length: 0", end="\n"),
    "bare LF in one line": asked("X: a\nContent-Length: 0"),
    "bare LF at the end": b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\n",
    "bare LF at the beginning": b"\n" + asked("Content-Length: 0"),
    "bare CR": asked("X: a\rContent-Length: 0"),
    "NUL": asked("X: a\0", "Content-Length: 0"),
    "bare LF after the last chunk": asked(CHUNKED, body=b"1\r\nx\r\n0\r\n\n"),
    "bare LF in a trailer": asked(CHUNKED, body=b"0\r\nX: y\nZ: a\r\n\r\n"),
    "bare LF after a trailer": asked(CHUNKED, body=b"0\r\nX: y\r\n\n"),
    "bare LF after a chunk's size": asked(CHUNKED, body=b"0\n\n"),
    "bare LF after a chunk": asked(CHUNKED, body=b"1\r\nx\n0\r\n\r\n"),
    "bare LF in what a chunk's size has beside it": asked(CHUNKED, body=b"0;a\nb\r\n\r\n"),
    "a size with 0x": asked(CHUNKED, body=b"0x0\r\n\r\n"),
    "white space behind a size": asked(CHUNKED, body=b"0 \r\n\r\n"),
    "a chunk longer than its size": asked(CHUNKED, body=b"1\r\nxy\r\n0\r\n\r\n"),
    "two lengths": asked("Content-Length: 0", "Content-Length: 5"),
    "two lengths in one": asked("Content-Length: 0, 5"),
    "a length with a sign": asked("Content-Length: -0"),
    "white space before the colon": asked("Content-Length : 0"),
    "two hosts": asked("Host: y", "Content-Length: 0"),
    "white space in the target": asked("Content-Length: 0").replace(b"/a", b"/a b"),
    "HTTP/2.0": asked("Content-Length: 0", version="2.0"),
}


@pytest.mark.parametrize("size", [1_000, 1], ids=["at once", "byte by byte"])
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "not read"])
@pytest.mark.parametrize("what", AMBIGUOUS)
async def test_after_a_request_whose_end_is_a_guess_nothing_is_read(
    what: str, is_read: bool, size: int, idle_clock: MockClock
) -> None:
    """[RFC 9112] 2.2, 5.2, 6.1, 11.2"""
    targets: list[str] = []

    async def noting(request: Request) -> Answer:
        targets.append(request.target)
        return await echo(request) if is_read else Answer(404, [], b"")

    data = AMBIGUOUS[what] + SMUGGLED
    async with serving(noting) as (_, connect), await connect() as stream:
        with suppress(trio.BrokenResourceError):
            for at in range(0, len(data), size):
                await stream.send_all(data[at : at + size])
        answers = await rest_of(stream)
    assert answers.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 404 ") if not is_read else b"HTTP/1.1 400 ")
    assert answers.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answers.lower()
    assert "/smuggled" not in targets


@pytest.mark.parametrize(
    "data",
    [
        asked(CHUNKED, body=b"4\r\na\nb\n\r\n1;x=y\r\n\n\r\n0\r\nX: y\r\n\r\n"),
        asked("Content-Length: 5", body=b"a\nb\n\n"),
    ],
    ids=["chunks", "a length"],
)
@pytest.mark.parametrize("size", [1_000, 2, 1])
async def test_a_body_may_have_any_bytes_and_the_connection_goes_on(data: bytes, size: int) -> None:
    async with serving() as (_, connect), await connect() as stream:
        for _ in range(2):
            for at in range(0, len(data), size):
                await stream.send_all(data[at : at + size])
                await trio.testing.wait_all_tasks_blocked()
            assert await answer_in(stream) == (200, b"POST /a a\nb\n\n")


@given(data=st.binary(max_size=60))
def test_any_bytes_are_answered_or_closed(data: bytes) -> None:
    async def run() -> None:
        async with serving() as (server, connect), await connect() as stream:
            await stream.send_all(data)
            await stream.send_eof()
            answer = await rest_of(stream)
            is_request = (
                b" HTTP/1." in data
            )  # That is found at times: "! ! HTTP/1.0" has a method and a target.
            good = (b"HTTP/1.1 4", b"HTTP/1.1 200 ") if is_request else b"HTTP/1.1 4"
            assert answer == b"" or answer.startswith(good)
        assert server.connections == 0

    trio.run(run, clock=MockClock(autojump_threshold=0.01))


PARTS = b"GET|POST| |/a|HTTP/1.1|HTTP/1.0|\r\n|\r|\n|:|\t|,|;|0|Host: x|X: y|Content-Length: 5".split(b"|")
PARTS += b"Transfer-Encoding: chunked|5\r\nhello\r\n|\0|\x7f|\xe4".split(b"|")


def by_h11(data: bytes) -> tuple[bytes, bytes, dict[str, list[str]], list[bytes]] | None:
    """Return the method, target and headers of a request, and its body if that is whole; None if it is refused."""
    connection, body, headers = h11.Connection(h11.SERVER, 16_384), b"", defaultdict[str, list[str]](list)
    connection.receive_data(data.removeprefix(b"\r\n"))
    try:
        head = connection.next_event()
        assert isinstance(head, h11.Request), "it was complete"
        for name, value in head.headers:
            headers[name.decode()].append(value.decode("latin-1"))
        while isinstance(event := connection.next_event(), h11.Data):
            body += event.data
    except h11.RemoteProtocolError:
        return None
    return head.method, head.target, headers, [body] * (type(event) is h11.EndOfMessage)


@given(
    st.sampled_from([GET, post(5) + b"hello", asked(CHUNKED, body=b"5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n")]),
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 4), st.sampled_from(PARTS)), max_size=3),
)
def test_what_is_taken_for_a_request_is_one_for_h11_too(
    data: bytes, changes: list[tuple[int, int, bytes]]
) -> None:
    for place, count, part in changes:
        data = data[:place] + part + data[place + count :]
    requests, body = Requests(Limits().head_bytes), b""
    requests.receive(data)
    with suppress(MalformedError, HeadTooLargeError):
        if (head := requests.head()) is not None:
            while part := requests.part(inf) or b"":
                body += part
            whole = [body] * requests.is_whole
            assert by_h11(data) == (head.method.encode(), head.target.encode(), head.headers, whole)


async def test_whoever_is_refused_on_the_head_hears_why_although_the_body_comes() -> None:
    async def refusing(request: Request) -> Answer:
        assert request.content_length == 3_000_000
        return Answer(413, [], b"too large")

    async with serving(refusing) as (_, connect), await connect() as stream:
        await stream.send_all(post(3_000_000) + bytes(3_000_000))
        head, _, body = (await rest_of(stream)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in head.lower()
        assert body == b"too large"


async def test_who_asks_before_he_sends_a_body_is_told_to_go_on_only_if_it_is_wanted() -> None:
    async def choosy(request: Request) -> Answer:
        return await echo(request) if request.content_length == 3 else Answer(413, [], b"")

    async with serving(choosy) as (_, connect), await connect() as refused, await connect() as stream:
        await refused.send_all(post(4, "Expect: 100-continue"))
        assert (await rest_of(refused)).startswith(b"HTTP/1.1 413 ")
        await stream.send_all(post(3, "Expect: 100-continue"))
        assert (await stream.receive_some(1_000)).startswith(b"HTTP/1.1 100 ")
        await stream.send_all(b"one" + post(3, "Expect: 100-continue") + b"t")
        assert await answer_in(stream) == (200, b"POST /a one")
        await stream.send_all(b"wo")
        assert (await stream.receive_some(1_000)).startswith(b"HTTP/1.1 200 ")


async def test_a_small_body_that_nobody_read_does_not_end_the_connection() -> None:
    async def hasty(request: Request) -> Answer:
        return Answer(404, [], b"")

    async with serving(hasty) as (_, connect), await connect() as stream:
        for _ in range(2):
            await stream.send_all(post(3) + b"one")
            assert await answer_in(stream) == (404, b"")


async def test_a_bug_is_an_answer_and_a_line_in_the_log() -> None:
    async def broken(request: Request) -> Answer:
        raise KeyError("what was it")

    log = Log()
    async with serving(broken, log) as (_, connect), await connect() as stream:
        await stream.send_all(GET)
        assert await answer_in(stream) == (500, b"failed")
        await stream.send_all(GET)
        assert await answer_in(stream) == (500, b"failed")
    assert [line["reason"] for line in log.lines("failed")] == ["KeyError: 'what was it'"] * 2


async def test_an_answer_that_is_none_ends_its_connection_and_no_other() -> None:
    async def careless(request: Request) -> Answer:
        return Answer(200, [("A name", "a value")] if request.target == "/a" else [], b"")

    log = Log()
    async with serving(careless, log) as (_, connect):
        async with await connect() as stream:
            await stream.send_all(GET)
            assert await rest_of(stream) == b""
        async with await connect() as stream:
            await stream.send_all(GET.replace(b"/a", b"/b"))
            assert await answer_in(stream) == (200, b"")
    assert len(log.lines("failed")) == 1


@pytest.mark.parametrize(
    "head",
    [
        "HEAD /a HTTP/1.1",
        "CONNECT x:80 HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET http://x/a HTTP/1.1",
        "GET /a HTTP/1.0",
        "GET /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket",
        "GET /a HTTP/1.1\r\nConnection: close",
        "PROPFIND /a HTTP/1.1",
    ],
)
async def test_whatever_is_asked_is_answered(head: str, idle_clock: MockClock) -> None:
    log = Log()
    async with serving(log=log) as (_, connect), await connect() as stream:
        await stream.send_all(f"{head}\r\nHost: x\r\n\r\n".encode())
        status = b"405 Method Not Allowed" if head.startswith("CONNECT") else b"200 OK"
        assert (await rest_of(stream)).startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert not log.lines("failed")


# Many connections


HALF_HEAD = b"POST /a HTTP/1.1\r\nHost: x\r\n"
SLOW_BODY = HALF_HEAD + b"Content-Length: 10\r\n\r\n12345"


async def is_full(stream: trio.SocketStream) -> bool:
    """Return whether a connection was closed for lack of room; an idle connection is closed without an answer."""
    data = await rest_of(stream)
    return not data or data.endswith(b"full")


async def test_who_works_keeps_a_place_and_who_finds_none_is_told_so_unless_it_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "DOORWAY", 1)
    begun, go_on = trio.Event(), trio.Event()

    async def slow(request: Request) -> Answer:
        if request.target == "/live":
            return Answer(200, [], b"live")
        begun.set()
        await go_on.wait()
        return await echo(request)

    limits = Limits(connections=1)
    async with serving(slow, limits=limits, paths=["/live"]) as (server, connect):
        async with await connect() as first:
            await first.send_all(GET)
            await begun.wait()
            for target, answer in ((b"/a", (503, b"full")), (b"/live", (200, b"live"))):
                async with await connect() as stream:
                    await stream.send_all(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % target)
                    assert await answer_in(stream) == answer
            async with await connect(), await connect() as beyond:
                assert await rest_of(beyond) == b""
            go_on.set()
            assert (await answer_in(first))[0] == 200
        while server.connections:
            await trio.testing.wait_all_tasks_blocked()
        async with await connect() as fourth:
            await fourth.send_all(GET)
            assert (await answer_in(fourth))[0] == 200
    assert server.turned_away == 4


@pytest.mark.parametrize("begun", [b"", HALF_HEAD, SLOW_BODY])
async def test_of_all_places_the_host_that_has_the_most_gives_up_the_oldest_that_waits(
    begun: bytes, idle_clock: MockClock
) -> None:
    async with serving(limits=Limits(connections=8)) as (server, connect), AsyncExitStack() as held:

        async def opened(host: str, data: bytes) -> trio.SocketStream:
            stream = await held.enter_async_context(await connect(local_address=host))
            await stream.send_all(data)
            await trio.sleep(0.1)
            return stream

        many = [await opened("127.0.0.2", begun) for _ in range(6)]
        few = [await opened("127.0.0.3", SLOW_BODY) for _ in range(2)]
        for number in range(4):
            honest = await opened(f"127.0.0.{4 + number}", GET)
            assert (await answer_in(honest))[0] == 200
            assert await is_full(many[number])
        await few[0].send_all(b"67890")
        assert await answer_in(few[0]) == (200, b"POST /a 1234567890")
    assert server.turned_away == 4


async def test_a_head_that_does_not_end_goes_before_older_bodies_and_one_that_has_just_begun_after_them(
    idle_clock: MockClock,
) -> None:
    async with serving(limits=Limits(connections=3)) as (_, connect), AsyncExitStack() as held:
        streams = []
        for begun in (SLOW_BODY, SLOW_BODY, HALF_HEAD):
            streams.append(await held.enter_async_context(await connect(local_address="127.0.0.2")))
            await streams[-1].send_all(begun)
            await trio.sleep(0.1)
        for gone in (0, 2):
            async with await connect() as honest:
                await honest.send_all(GET)
                assert (await answer_in(honest))[0] == 200
                assert await is_full(streams[gone])
                await trio.sleep(2 * HURRY_S)
                streams.append(await held.enter_async_context(await connect(local_address="127.0.0.2")))
        await streams[1].send_all(b"67890")
        assert (await answer_in(streams[1]))[0] == 200


async def test_of_very_many_connections_each_is_served_told_or_closed(idle_clock: MockClock) -> None:
    beyond = DOORWAY + 100
    ends = dict.fromkeys(("served", "told", "closed"), 0)

    async def one(connect: Open) -> None:
        async with await connect() as stream:
            with suppress(trio.BrokenResourceError, h11.RemoteProtocolError):
                await stream.send_all(GET)
                status, _ = await answer_in(stream)
                ends["served" if status == 200 else "told"] += 1
                await rest_of(stream)
                return
            ends["closed"] += 1

    async with serving(limits=Limits(connections=20)) as (server, connect):
        async with trio.open_nursery() as nursery:
            for _ in range(20 + beyond):
                nursery.start_soon(one, connect)
        assert server.connections == 0
    assert sum(ends.values()) == 20 + beyond
    assert ends["served"] >= 20
    lost = ends["told"] + ends["closed"]
    assert (
        lost <= server.turned_away <= lost + ends["served"]
    )  # Of whom it was who had an answer and then no place.


# The end


async def test_what_is_under_way_at_the_end_is_answered() -> None:
    begun, go_on = trio.Event(), trio.Event()

    async def slow(request: Request) -> Answer:
        begun.set()
        await go_on.wait()
        return await echo(request)

    async with serving(slow) as (server, connect), await connect() as stream:
        await stream.send_all(GET)
        await begun.wait()
        server.stop()
        go_on.set()
        answer = await rest_of(stream)
        assert answer.endswith(b"GET /a ")
        assert b"connection: close" in answer.lower()


async def test_idle_and_stubborn_clients_do_not_keep_the_server_from_ending(idle_clock: MockClock) -> None:
    async def much(request: Request) -> Answer:
        return Answer(200, [], bytes(50_000_000))

    limits = Limits(grace_s=5, answer_s=1_000)
    async with (
        serving(much, limits=limits) as (server, connect),
        await connect(),
        await connect() as stubborn,
    ):
        await stubborn.send_all(GET)
        await trio.sleep(1)
        assert server.connections == 2
        server.stop()
        await trio.sleep(6)
        assert server.connections == 0


# Answers that go on


class Source:
    """The parts of an answer as they are added, the number of parts that were requested, and whether the answer has
    ended.
    """

    def __init__(self, *parts: bytes, goes_on: bool = True) -> None:
        self.asked = 0
        self.over = trio.Event()
        self._send, self._parts = trio.open_memory_channel[bytes](1_000)
        for part in parts:
            self.put(part)
        if not goes_on:
            self._send.close()

    def put(self, part: bytes) -> None:
        self._send.send_nowait(part)

    async def parts(self) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                self.asked += 1
                try:
                    part = await self._parts.receive()
                except trio.EndOfChannel:
                    return
                yield part
        finally:
            self.over.set()

    async def answer(self, request: Request) -> Stream:
        return Stream(200, [("X-Kind", "stream")], self.parts(), 4_096)


async def until_in(stream: trio.SocketStream, text: bytes) -> bytes:
    """Return everything that arrives, up to and including a text."""
    data = b""
    while text not in data:
        data += await stream.receive_some(65_536)
    return data


async def test_parts_come_as_they_are_made_and_the_connection_closes_with_them() -> None:
    source = Source(b"one")
    async with serving(source.answer) as (_, connect), await connect() as stream:
        await stream.send_all(GET + GET)
        head = await until_in(stream, b"3\r\none\r\n")
        assert (head[:15], b"transfer-encoding: chunked" in head.lower()) == (b"HTTP/1.1 200 OK", True)
        source.put(b"two")
        await until_in(stream, b"3\r\ntwo\r\n")
        source.put(b"")
    ended = Source(b"all", goes_on=False)
    async with serving(ended.answer) as (_, connect), await connect() as stream:
        await stream.send_all(GET + GET)
        assert (await rest_of(stream)).endswith(b"3\r\nall\r\n0\r\n\r\n")


async def test_a_client_that_goes_away_ends_what_is_made_for_it() -> None:
    source = Source(b"one")
    async with serving(source.answer) as (server, connect):
        async with await connect() as stream:
            await stream.send_all(GET)
            await until_in(stream, b"one")
        await source.over.wait()
        while server.connections:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_a_stream_ends_with_its_server() -> None:
    source = Source(b"one")
    async with serving(source.answer) as (server, connect), await connect() as stream:
        await stream.send_all(GET)
        await until_in(stream, b"one")
        server.stop()
        await source.over.wait()
        await rest_of(stream)


async def test_a_client_that_does_not_read_is_asked_nothing_more_for_and_given_up(
    idle_clock: MockClock,
) -> None:
    source = Source(*[bytes(2**20)] * 500)
    async with serving(source.answer) as (_, connect), await connect() as stream:
        await stream.send_all(GET)
        await source.over.wait()
    assert source.asked < 50, "what the kernels keep is little"


async def test_a_fault_in_what_is_made_ends_its_answer_and_is_in_the_log() -> None:
    async def broken(request: Request) -> Stream:
        async def parts() -> AsyncGenerator[bytes, None]:
            yield b"one"
            raise RuntimeError("a bug")

        return Stream(200, [], parts(), 4_096)

    log = Log()
    async with serving(broken, log) as (_, connect), await connect() as stream:
        await stream.send_all(GET)
        assert not (await rest_of(stream)).endswith(b"0\r\n\r\n")
    assert "a bug" in log.lines("failed")[0]["reason"]

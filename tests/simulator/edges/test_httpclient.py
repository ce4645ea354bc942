"""The client's connections are reused when possible, and each request is sent once."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from functools import partial

import httpx
import pytest
import trio
import trustme

from mqproto.simulator.base.http.tcpstream import TcpStream
from mqproto.simulator.edges.httpclient import (
    ANSWER_LIMIT_BYTES,
    BrokenError,
    HttpClient,
    NotConnectedError,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Served = Callable[[trio.SocketStream], Awaitable[None]]


@asynccontextmanager
async def serving(served: Served) -> AsyncIterator[httpx.URL]:
    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, served, 0, host="127.0.0.1"))
        yield httpx.URL(f"http://127.0.0.1:{listener.socket.getsockname()[1]}/")
        nursery.cancel_scope.cancel()


async def test_a_connection_is_used_again_until_the_server_closes_it_or_says_what_nobody_asked_for() -> None:
    seen: list[int] = []
    gone = trio.Event()

    async def served(stream: trio.SocketStream) -> None:
        seen.append(0)
        async with stream:
            while await stream.receive_some():
                seen[-1] += 1
                await stream.send_all(OK + (OK if seen == [2, 1] else b""))
                if seen == [2]:
                    break
        gone.set()

    async with serving(served) as url:
        with closing(HttpClient()) as client:
            for number in range(4):
                assert (await client.post(url, b"one", {})).body == b"ok"
                if number == 1:
                    await gone.wait()
    assert seen == [2, 1, 1]


async def test_what_was_sent_and_has_no_answer_is_not_sent_again() -> None:
    requests: list[bytes] = []

    async def served(stream: trio.SocketStream) -> None:
        async with stream:
            requests.append(bytes(await stream.receive_some()))

    async with serving(served) as url:
        with closing(HttpClient()) as client, pytest.raises(BrokenError, match="closed it without an answer"):
            await client.post(url, b"one", {"MQ-Label": "x"})
    [request] = requests
    assert request.endswith(b"MQ-Label: x\r\nContent-Length: 3\r\n\r\none")


async def test_a_body_that_nobody_takes_to_its_end_is_answered_all_the_same() -> None:
    async def served(stream: trio.SocketStream) -> None:
        await stream.receive_some(1_000)
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await stream.send_eof()
        while await stream.receive_some():
            pass

    async with serving(served) as url:
        with closing(HttpClient()) as client:
            assert (await client.post(url, bytes(2**22), {})).status == 413


async def test_where_nobody_listens_nobody_has_seen_it() -> None:
    with trio.socket.socket() as bound:
        await bound.bind(("127.0.0.1", 0))
        url = httpx.URL(f"http://127.0.0.1:{bound.getsockname()[1]}/")
        with closing(HttpClient()) as client, pytest.raises(NotConnectedError):
            await client.post(url, b"", {})


LATE = [
    OK,
    b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (ANSWER_LIMIT_BYTES, bytes(ANSWER_LIMIT_BYTES)),
    b"HTTP/1.1 200 OK\r\n\r\nto its end",
]


@pytest.mark.parametrize("secure", [False, True], ids=["HTTP", "HTTPS"])
@pytest.mark.parametrize(
    "answer", LATE, ids=["short", "chunks", "after 100", "longer than a read", "to the end"]
)
async def test_what_has_come_when_the_time_is_up_counts(answer: bytes, secure: bool) -> None:
    """This happens after a process was stopped: the deadline has passed, and the bytes that have arrived have not been
    read yet.
    """
    authority, trusted = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trusted)
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(shown)
    scope = trio.CancelScope()

    async def served(stream: trio.SocketStream) -> None:
        socket = TcpStream(
            stream
        )  # The client has no turn between what this one sends and the end of its time.
        spoken: trio.abc.Stream = trio.SSLStream(socket, shown, server_side=True) if secure else socket
        with closing(socket):
            await spoken.receive_some()
            await spoken.send_all(answer)
            if answer.endswith(b"end"):
                socket.close()
            scope.cancel()
            await trio.sleep_forever()

    async with serving(served) as url:
        with closing(HttpClient(trusted)) as client:
            with scope:
                given = await client.post(url.copy_with(scheme="https") if secure else url, b"one", {})
            assert given.status // 100 == 2
            assert not any(client._kept.values()), "a connection that waits for nothing serves no more"


@pytest.mark.parametrize(
    "come",
    [b"", OK[:-1], b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000 + OK],
    ids=["nothing", "not all", "more than is read"],
)
async def test_what_has_not_come_to_its_end_then_is_given_up(come: bytes) -> None:
    scope = trio.CancelScope()

    async def served(stream: trio.SocketStream) -> None:
        with closing(TcpStream(stream)) as socket:
            await socket.receive_some()
            socket.send_at_once(come)
            scope.cancel()
            await trio.sleep_forever()

    async with serving(served) as url:
        with closing(HttpClient()) as client, scope:
            await client.post(url, b"one", {})
        assert scope.cancelled_caught

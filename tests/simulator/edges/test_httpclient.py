"""Connections of the client are used again when they can be, and a request is sent once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from functools import partial

import httpx
import pytest
import trio

from mqproto.simulator.edges.httpclient import BrokenError, HttpClient, NotConnectedError

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

from __future__ import annotations

import pytest
import trio
import trio.testing

from tests.bench.figures import BenchError
from tests.bench.nats.connection import Connection, connected
from tests.bench.nats.protocol import Delivered

INBOX = b"_INBOX.test."


def ends() -> tuple[Connection, trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]]:
    """A connection, and the server's end of it."""
    ours, theirs = trio.testing.memory_stream_pair()
    return Connection(ours, INBOX), theirs  # type: ignore[return-value]


async def test_a_server_that_asks_whether_we_are_there_is_answered() -> None:
    connection, server = ends()
    await server.send_all(b"PING\r\nPING\r\nMSG orders 2 5\r\nhello\r\n")
    assert await connection.receive() == [Delivered(b"orders", b"", b"hello")]
    with trio.fail_after(5):
        assert await server.receive_some() == b"PONG\r\nPONG\r\n"


async def test_jetstream_is_asked_and_its_refusal_is_told() -> None:
    connection, server = ends()
    await server.send_all(b"MSG orders 2 1\r\nx\r\nMSG _INBOX.test.asked 1 2\r\n{}\r\n")
    await connection.ask("$JS.API.STREAM.CREATE.sender", {"name": "sender"})
    assert (
        await server.receive_some()
        == b'PUB $JS.API.STREAM.CREATE.sender _INBOX.test.asked 18\r\n{"name": "sender"}\r\n'
    )
    refused = b'{"error":{"description":"no room"}}'
    await server.send_all(b"MSG _INBOX.test.asked 1 %d\r\n%b\r\n" % (len(refused), refused))
    with pytest.raises(BenchError, match="no room"):
        await connection.ask("$JS.API.STREAM.CREATE.sender", {})


async def test_no_answer_is_an_error(autojump_clock: trio.testing.MockClock) -> None:
    connection, _ = ends()
    with pytest.raises(BenchError, match="has not answered"):
        await connection.ask("$JS.API.STREAM.CREATE.sender", {})


async def test_the_end_of_a_connection_is_an_error() -> None:
    connection, server = ends()
    await server.aclose()
    with pytest.raises(BenchError, match="ended the connection"):
        await connection.receive()


async def test_nobody_there_is_an_error(free_tcp_port: int) -> None:
    with pytest.raises(BenchError, match="no server of NATS answers"):
        async with connected(("127.0.0.1", free_tcp_port), "test"):
            pass

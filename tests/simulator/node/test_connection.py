"""A connection sends everything in order, however slowly the peer reads, and reports how it ended."""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from mqproto.simulator.base.sockets import RESET_ON_CLOSE
from mqproto.simulator.node import connection
from mqproto.simulator.node.connection import Connection, end_of, read_buffer


@asynccontextmanager
async def pair(kind: int = socket.AF_UNIX) -> AsyncIterator[tuple[Connection, socket.socket]]:
    """Yield a connection and the bare socket at its other end."""
    if kind == socket.AF_UNIX:
        ours, theirs = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            theirs = socket.create_connection(listener.getsockname())
            ours, _ = listener.accept()
    with theirs:
        async with trio.open_nursery() as nursery:
            connection = Connection(ours, nursery, read_buffer())
            yield connection, theirs
            connection.close()


async def all_of(stream: socket.socket) -> bytes:
    stream.setblocking(False)
    received = b""
    while True:
        await trio.lowlevel.wait_readable(stream)
        chunk = stream.recv(100_000)
        if not chunk:
            return received
        received += chunk


async def test_what_the_kernel_does_not_take_at_once_follows_in_order() -> None:
    chunks = [bytes([number]) * 100_000 for number in range(50)]
    async with pair() as (ours, theirs), trio.open_nursery() as nursery:
        for chunk in chunks:
            ours.send(chunk)
        assert ours.unsent_bytes > 0
        nursery.start_soon(ours.finish)
        assert await all_of(theirs) == b"".join(chunks)
        theirs.shutdown(socket.SHUT_WR)
    assert ours.unsent_bytes == 0


async def test_a_farewell_to_a_peer_that_does_not_read_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as (ours, _):
        ours.send(bytes(10_000_000))
        started_s = trio.current_time()
        await ours.finish()
        assert trio.current_time() - started_s == pytest.approx(connection.FAREWELL_S)
        assert ours.is_closed


async def test_sending_to_a_peer_that_is_gone_is_no_error_and_reading_says_so() -> None:
    async with pair(socket.AF_INET) as (ours, theirs):
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        theirs.close()
        await ours.readable()
        ours.send(b"one")
        ours.send(b"two")
        with pytest.raises(OSError, match=r".") as broken:
            ours.read()
        assert end_of(broken.value) in {"reset by the peer", "closed by the peer"}
        await ours.flushed()


async def test_closing_wakes_whoever_reads() -> None:
    async with pair() as (ours, _), trio.open_nursery() as nursery:

        async def read() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await ours.readable()

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        ours.close()
        ours.close()
        ours.send(b"dropped")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, "closed by the peer"),
        (OSError(errno.EPIPE, "Broken pipe"), "closed by the peer"),
        (OSError(errno.ECONNRESET, "Connection reset by peer"), "reset by the peer"),
        (OSError(errno.ETIMEDOUT, "Connection timed out"), "broken: Connection timed out"),
    ],
)
def test_how_a_connection_ended_is_said_in_words(error: OSError | None, words: str) -> None:
    assert end_of(error) == words


async def test_what_could_not_be_sent_before_it_was_closed_harms_nobody() -> None:
    """The task that sends the rest has not started to wait yet when the connection is closed."""
    async with pair() as (ours, _):
        ours.send(bytes(10_000_000))
        assert ours.unsent_bytes > 0
        ours.close()
        await ours.flushed()
        assert ours.unsent_bytes == 0
        with pytest.raises(trio.ClosedResourceError):
            await ours.readable()

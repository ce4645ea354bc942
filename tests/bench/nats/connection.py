"""A connection to a server of NATS: what a program does that publishes, subscribes and asks JetStream.

It writes what is ready as one piece and reads what has come as one piece, so that many messages share what a turn of
trio costs. To publish a message, hear of it, receive and acknowledge it takes 13 µs of processor time. With nats-py,
the client that NATS has for Python, it took some 360, four times as much as three servers need.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any, Final

import trio

from tests.bench.figures import BenchError
from tests.bench.nats.protocol import CONNECT, PONG, Delivered, Incoming, answer_of, published, subscribed

READ_BYTES: Final = 262_144
ANSWER_TIMEOUT_S: Final = 30.0


class Connection:
    """One, which a single task reads; `connected` makes it.

    inbox: the subject below which answers come to this connection.
    """

    def __init__(self, stream: trio.abc.Stream, inbox: bytes) -> None:
        self._stream = stream
        self._incoming = Incoming()
        self._turn = trio.Lock()
        self.inbox = inbox

    async def send(self, data: bytes) -> None:
        """Whole commands; several tasks may."""
        async with self._turn:
            await self._stream.send_all(data)

    async def receive(self) -> list[Delivered]:
        """What comes next; one message, or more that have come together.

        Raises:
            BenchError: the server complains or ends the connection.
        """
        while True:
            try:
                data = await self._stream.receive_some(READ_BYTES)
            except trio.BrokenResourceError:
                data = b""
            if not data:
                raise BenchError("a server of NATS has ended the connection")
            found = self._incoming.feed(bytes(data))
            if self._incoming.pings:
                await self.send(PONG * self._incoming.pings)
                self._incoming.pings = 0
            if found:
                return found

    async def ask(self, subject: str, question: dict[str, Any]) -> None:
        """Have JetStream do something, before anything else is received.

        Raises:
            BenchError: it refuses, or does not answer.
        """
        await self.send(published(subject.encode(), json.dumps(question).encode(), self.inbox + b"asked"))
        with trio.move_on_after(ANSWER_TIMEOUT_S):
            while True:
                for message in await self.receive():
                    if message.subject == self.inbox + b"asked":
                        answer_of(message.payload)
                        return
        raise BenchError(f"NATS has not answered {subject} within {ANSWER_TIMEOUT_S:g} s")


@asynccontextmanager
async def connected(address: tuple[str, int], name: str) -> AsyncIterator[Connection]:
    """A connection for the block, which is told of all that is sent to its inbox.

    Raises:
        BenchError: nobody answers there, or not as NATS does.
    """
    try:
        stream = await trio.open_tcp_stream(*address)
    except OSError as error:
        raise BenchError(f"no server of NATS answers at {address[0]}:{address[1]}: {error}") from None
    with closing(stream.socket):
        connection = Connection(stream, f"_INBOX.{name}.".encode())
        await connection.send(CONNECT + subscribed(connection.inbox + b">", 1))
        yield connection

"""A connection to a broker of RabbitMQ: what a program does that declares queues, publishes and consumes.

It writes what is ready as one piece and reads what has come as one piece, so that many messages share what a turn of
trio costs, as its counterpart for NATS does (nats/connection.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Final, TypeVar

import trio
from pamqp import base, commands
from pamqp.common import FieldTable

from tests.bench.figures import BenchError
from tests.bench.rabbitmq.protocol import Confirmed, Delivered, Event, Incoming, request

HELLO: Final = b"AMQP\0\0\x09\x01"
USER: Final = "\0guest\0guest"
"""Whom each broker knows, for those who come from its own machine."""
READ_BYTES: Final = 262_144
ANSWER_TIMEOUT_S: Final = 30.0
Answer = TypeVar("Answer", bound=base.Frame)


class Connection:
    """One with one channel, which a single task reads; `connected` makes it.

    frame_bytes: the most that a frame has.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._incoming = Incoming()
        self._waiting: deque[Event] = deque()
        """What has come that nobody has taken yet."""
        self._turn = trio.Lock()
        self.frame_bytes = 0

    async def send(self, data: bytes) -> None:
        """Whole frames; several tasks may."""
        async with self._turn:
            await self._stream.send_all(data)

    async def receive(self) -> list[Delivered | Confirmed]:
        """What comes next: messages or confirmations that have come together, one at least.

        Raises:
            BenchError: the broker complains or ends the connection.
        """
        while True:
            if not self._waiting:
                await self._read()
            events, self._waiting = self._waiting, deque()
            found = [event for event in events if isinstance(event, Delivered | Confirmed)]
            for event in events:
                if isinstance(event, base.Frame):
                    raise BenchError(f"RabbitMQ says {_words(event)}")
            if found:
                return found

    async def ask(self, question: base.Frame, answer: type[Answer]) -> Answer:
        """Send a method, and wait for what answers it; what else comes meanwhile waits.

        Raises:
            BenchError: the broker answers otherwise, or not at all.
        """
        await self.send(request(question))
        return await self.hear(answer)

    async def hear(self, answer: type[Answer]) -> Answer:
        """Wait for a method; as `ask`."""
        with trio.move_on_after(ANSWER_TIMEOUT_S):
            while True:
                for event in self._waiting:
                    if isinstance(event, base.Frame):
                        self._waiting.remove(event)
                        if not isinstance(event, answer):
                            raise BenchError(f"RabbitMQ says {_words(event)}")
                        return event
                await self._read()
        raise BenchError(f"RabbitMQ has not said {answer.name} within {ANSWER_TIMEOUT_S:g} s")

    async def _read(self) -> None:
        try:
            data = await self._stream.receive_some(READ_BYTES)
        except trio.BrokenResourceError:
            data = b""
        if not data:
            raise BenchError("a broker of RabbitMQ has ended the connection")
        self._waiting += self._incoming.feed(bytes(data))


def _words(event: base.Frame) -> str:
    """A method by its name, with the reason if it has one."""
    return f"{event.name} {getattr(event, 'reply_text', '')}".strip()


@asynccontextmanager
async def connected(address: tuple[str, int]) -> AsyncIterator[Connection]:
    """A connection with an open channel for the block.

    Raises:
        BenchError: nobody answers there, or not as RabbitMQ does.
    """
    try:
        stream = await trio.open_tcp_stream(*address)
    except OSError as error:
        raise BenchError(f"no broker of RabbitMQ answers at {address[0]}:{address[1]}: {error}") from None
    with closing(stream.socket):
        connection = Connection(stream)
        await connection.send(HELLO)
        await connection.hear(commands.Connection.Start)
        nothing: FieldTable = {}
        start = commands.Connection.StartOk(nothing, "PLAIN", USER, "en_US")
        await connection.send(request(start, channel=0))
        tune = await connection.hear(commands.Connection.Tune)
        connection.frame_bytes = tune.frame_max
        # Without heartbeats: who is measured is on this machine, and for as long as we look.
        await connection.send(
            request(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), channel=0)
            + request(commands.Connection.Open(), channel=0)
        )
        await connection.hear(commands.Connection.OpenOk)
        await connection.ask(commands.Channel.Open(), commands.Channel.OpenOk)
        yield connection

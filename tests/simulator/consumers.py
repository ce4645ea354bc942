"""HTTP consumers that fail on cue, on a socket of this process."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import h11
import trio


@dataclass(frozen=True, slots=True)
class Seen:
    """One request: its headers, by their names in lower case, and its body."""

    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.

    cut: the number of bytes of the body that are sent before the connection is closed; None for all.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


OK = Reply()
ERROR = Reply(500)
DROP = None
"""A cue to close the connection instead of answering."""


def business_error(code: str, text: str = "", status: int = 422) -> Reply:
    """Return an answer with a service code and its meaning."""
    return Reply(status, json.dumps({"code": code, "message": text}).encode())


Answering = Callable[[Seen], Awaitable[Reply | None]]


class HttpConsumer:
    """Receives requests, and answers them with the `cues` in turn, and with `otherwise` once these are used up."""

    def __init__(self, *cues: Reply | None, otherwise: Reply | None = OK) -> None:
        self.seen: list[Seen] = []
        self.url = ""
        self.under_way = 0
        self.most_under_way = 0
        self._cues = list(cues)
        self._otherwise = otherwise
        self.answering: Answering = self._by_cue

    @property
    def bodies(self) -> list[bytes]:
        """Return the bodies of all requests, in order."""
        return [seen.body for seen in self.seen]

    async def _by_cue(self, seen: Seen) -> Reply | None:
        return self._cues.pop(0) if self._cues else self._otherwise

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection."""
        try:
            async with stream:
                await self._serve(stream)
        except trio.BrokenResourceError:
            pass  # The client had no time for the answer.

    async def _serve(self, stream: trio.abc.Stream) -> None:
        connection = h11.Connection(h11.SERVER)
        headers: dict[str, str] = {}
        body = b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some(65_536)))
            elif isinstance(event, h11.Request):
                headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                seen = Seen(headers, body)
                self.seen.append(seen)
                self.under_way += 1
                self.most_under_way = max(self.most_under_way, self.under_way)
                try:
                    reply = await self.answering(seen)
                finally:
                    self.under_way -= 1
                if reply is None:
                    return
                await stream.send_all(_sent(connection, reply))
                if reply.cut is not None or connection.our_state is not h11.DONE:
                    return
                connection.start_next_cycle()
                headers, body = {}, b""
            else:
                return


def _sent(connection: h11.Connection, reply: Reply) -> bytes:
    headers = [("Content-Length", str(len(reply.body))), *reply.headers.items()]
    head = connection.send(h11.Response(status_code=reply.status, headers=headers)) or b""
    if reply.cut is not None:
        return head + reply.body[: reply.cut]
    data = connection.send(h11.Data(reply.body)) or b""
    return head + data + (connection.send(h11.EndOfMessage()) or b"")


@asynccontextmanager
async def listening(consumer: HttpConsumer, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpConsumer]:
    """Run the consumer on a free port of this machine, until the end of the block; over HTTPS if `tls` is given."""
    async with trio.open_nursery() as nursery:

        async def serve(stream: trio.SocketStream) -> None:
            await consumer.serve(
                trio.SSLStream(stream, tls, server_side=True, https_compatible=True) if tls else stream
            )

        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        consumer.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/orders"
        yield consumer
        nursery.cancel_scope.cancel()

"""The network between queue managers: TCP and UDP; each queue manager has its own address.  [MS-MQQB] 2.1"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import trio

Serve = Callable[[trio.abc.Stream, str], Awaitable[None]]
"""A function that is called with each incoming connection and the address that it comes from."""
Answer = Callable[[bytes, int], bytes | None]
"""A function that is called with each incoming Ping and the port that it comes from; it returns the answer, if any."""


class Network(Protocol):
    """The operations that a peer needs from its network; `wire.py` has an implementation without sockets."""

    async def resolve(self, host: str) -> list[str]:
        """Return the addresses of a host, in the order in which to try them."""

    async def connect(self, own: str, address: str) -> trio.abc.Stream:
        """Connect to this address from our own; raise OSError if this fails."""

    async def serve(self, own: str, serve: Serve, answer: Answer, started: trio.Event) -> None:
        """Listen for connections and Pings until cancelled."""

    async def ping(self, own: str, address: str, request: bytes) -> bytes | None:
        """Return the answer to a Ping; None if none arrives within a second.  [MS-MQQB] 3.1.2.9"""


class Sockets:
    """The real network."""

    def __init__(self, port: int = 1801, ping_port: int = 3527) -> None:
        self.port, self.ping_port = port, ping_port

    async def resolve(self, host: str) -> list[str]:
        try:
            found = await trio.socket.getaddrinfo(host, self.port, socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            return []
        return [str(address[0]) for *_, address in found]

    async def connect(self, own: str, address: str) -> trio.abc.Stream:
        return await trio.open_tcp_stream(address, self.port, local_address=own)

    async def serve(self, own: str, serve: Serve, answer: Answer, started: trio.Event) -> None:
        async def handle(stream: trio.SocketStream) -> None:
            with suppress(OSError):  # It may be gone already.
                address = str(stream.socket.getpeername()[0])
                await serve(stream, address)

        listeners = await trio.open_tcp_listeners(self.port, host=own)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, handle, listeners)
            with trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as pings:
                await pings.bind((own, self.ping_port))
                started.set()
                while True:
                    request, (host, port) = await pings.recvfrom(64)
                    response = answer(request, port)
                    if response:
                        await pings.sendto(response, (host, port))

    async def ping(self, own: str, address: str, request: bytes) -> bytes | None:
        with trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as pings, trio.move_on_after(1):
            await pings.bind((own, 0))
            await pings.sendto(request, (address, self.ping_port))
            return bytes((await pings.recvfrom(64))[0])
        return None

"""A network without sockets for peers that talk to each other: it records all packets, and it can fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import trio
import trio.testing

from .peer.codec import Codec
from .peer.network import Answer, Serve
from .peer.packets import Packet
from .peer.peer import Peer
from .peer.queues import Queue
from .peer.switches import Switches

A, B, C = (UUID(int=0x0A0A0A0A << 96 | n) for n in (1, 2, 3))
"""The GUIDs of three queue managers; each of them has one of the three addresses."""
AT_A, AT_B, AT_C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


@dataclass
class Tapped(trio.abc.Stream):
    """One end of a connection; each `send_all` call of a peer sends one packet."""

    inner: trio.abc.Stream
    wire: Wire
    own: str

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.wire.packets.append((self.own, bytes(data)))
        self.wire.times.append(trio.current_time())
        await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self.inner.receive_some(max_bytes))

    async def aclose(self) -> None:
        await self.inner.aclose()


@dataclass
class Wire:
    """The network, and the packets that crossed it, each with its sender and its bytes."""

    packets: list[tuple[str, bytes]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """When each packet was sent."""
    pings: list[tuple[str, bytes]] = field(default_factory=list)
    hosts: dict[str, tuple[trio.Nursery, Serve, Answer]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    ping_delay: dict[str, float] = field(default_factory=dict)

    async def resolve(self, host: str) -> list[str]:
        return self.names.get(host, [host])

    async def connect(self, own: str, address: str) -> trio.abc.Stream:
        if address not in self.hosts:
            raise OSError("nobody listens")
        nursery, serve, _ = self.hosts[address]
        near, far = trio.testing.memory_stream_pair()
        nursery.start_soon(serve, Tapped(far, self, address), own)
        return Tapped(near, self, own)

    async def serve(self, own: str, serve: Serve, answer: Answer, started: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            self.hosts[own] = nursery, serve, answer
            started.set()
            try:
                await trio.sleep_forever()
            finally:
                del self.hosts[own]

    async def ping(self, own: str, address: str, request: bytes) -> bytes | None:
        self.pings.append((own, request))
        await trio.sleep(self.ping_delay.get(address, 0))
        response = self.hosts[address][2](request, 40_000) if address in self.hosts else None
        if response:
            self.pings.append((address, response))
        else:
            await trio.sleep(1)
        return response

    def of(self, own: str, codec: Codec | None = None) -> list[Packet]:
        """Return, as records, the packets that one of the addresses sent."""
        return [(codec or Codec()).unpack(data) for address, data in self.packets if address == own]


@asynccontextmanager
async def running(*peers: Peer) -> AsyncIterator[None]:
    """Run peers until the block is over, and then kill them."""
    async with trio.open_nursery() as nursery:
        for peer in peers:
            started = trio.Event()
            nursery.start_soon(peer.run, started)
            await started.wait()
        yield
        nursery.cancel_scope.cancel()


ADDRESSES = {A: AT_A, B: AT_B, C: AT_C}


def pair(
    wire: Wire, ours: Switches | None = None, theirs: Switches | None = None, **both: Any
) -> tuple[Peer, Peer]:
    """Return two peers that know each other; B has a queue of each kind, and A has the queue `replies`."""
    a = Peer(A, AT_A, wire, [Queue("replies", 3)], dict(ADDRESSES), ours or Switches(), **both)
    queues = [Queue("orders", 10, transactional=True), Queue("notes", 11)]
    b = Peer(B, AT_B, wire, queues, dict(ADDRESSES), theirs or Switches(), **both)
    return a, b


def direct(queue: str, address: str = AT_B) -> str:
    return f"DIRECT=TCP:{address}\\private$\\{queue}"


def private(number: int, guid: UUID = B) -> str:
    return f"PRIVATE={guid}\\{number:08x}"

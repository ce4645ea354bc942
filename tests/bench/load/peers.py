"""Many small queue managers in this process, each with a session to one node.

A peer is the core with a disk in memory. It speaks the protocol with our own sessions over a connection of its own;
what that costs is not measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

import trio

from mqproto.manager.carry import carry_out
from mqproto.manager.queuemanager import QueueManager
from mqproto.messages.drafts import Draft
from mqproto.turn.effects import (
    CloseTransport,
    Delivery,
    Note,
    OpenTransport,
    ReadExpired,
    ReadPage,
    SendBytes,
    SendPing,
    Writes,
)
from mqproto.wire import Guid
from simulator.base.sockets import listen
from simulator.client import Client, connect
from simulator.faults.proof import Received, Sent
from simulator.faults.supervisor import Supervisor
from simulator.node.clock import Clock
from simulator.node.connection import read_buffer
from simulator.node.received import MessageId
from simulator.node.transport import Transports
from simulator.node.turns import Turns
from simulator.storage.disk import Disk
from simulator.topology import Topology
from simulator.topology.directory import Directory
from simulator.topology.file import parse
from tests.bench.figures import BenchError
from tests.bench.load.bodies import UNALTERED, Alike
from tests.bench.load.row import QUEUE, SETTINGS, comes_true, patience_s
from tests.bench.load.traffic import check_delivery, share_of, taken

NODE: Final = "node"
SLICE: Final = 100
"""Messages that a peer's application sends at once."""


def star(peers: int, window: int) -> Topology:
    """A node with one queue, and peers that are linked to it alone, on free ports."""
    lines = [f"{SETTINGS}window_size = {window}", f"[node.{NODE}.queue.{QUEUE}]\ntransactional = true"]
    for number in range(peers):
        lines.append(f'[node.peer-{number}]\n[[link]]\nbetween = ["peer-{number}", "{NODE}"]')
    return parse("\n".join(lines), "bench.toml").with_free_ports()


class Peer:
    """One queue manager in this process."""

    def __init__(self, topology: Topology, name: str, clock: Clock, buffer: memoryview) -> None:
        self._node = node = topology.nodes[name]
        self.guid = node.guid
        self._directory = directory = Directory(topology, node)
        self._clock = clock
        self._disk = Disk()
        self._turns = Turns()
        self._core = QueueManager(
            node.guid, directory.queues, directory.routes, node.settings, self._disk.load(), clock.now()
        )
        self._transports = Transports(self._core, self._turns, clock, node.host, node.settings, buffer)

    async def submit(self, count: int, body: bytes) -> list[MessageId]:
        """Send `count` messages to the node's queue; return when all are in this peer's store."""
        destination = self._directory.destination(f"{NODE}\\{QUEUE}")
        draft = Draft(body=body, label="bench", transactional=True)
        sent: list[MessageId] = []
        while len(sent) < count:
            await self._turns.room()
            part = [(destination, draft)] * min(SLICE, count - len(sent))
            ordinals = self._core.enqueue(part, self._clock.now(), together=False)
            sent += (MessageId(self._node.guid, ordinal) for ordinal in ordinals)
            await self._turns.fed(messages=len(part), size_bytes=len(part) * len(body))
        return sent

    @property
    def waiting(self) -> int:
        """Messages for which no OrderAck has come."""
        return sum(queue.waiting for queue in self._core.status().outgoing)

    async def run(self) -> None:
        """Be a queue manager until it is cancelled."""
        with closing(listen(*self._node.address)) as listener:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._transports.run, listener)
                while True:
                    self._turns.begin()
                    reads = self._turn()
                    self._turns.end()
                    if reads:
                        await trio.lowlevel.checkpoint()
                    else:
                        with trio.move_on_at(self._clock.at(self._deadline_ms)):
                            await self._turns.work()
                    self._core.tick(self._clock.now())

    def _turn(self) -> bool:
        """Take one batch and carry it out; whether something was read."""
        now = self._clock.now()
        batch = self._core.take(now)
        self._deadline_ms = batch.deadline_ms
        carry_out(self._core, batch, now, self)
        return bool(batch.reads)

    # The hands of carry_out

    def commit(self, writes: Writes) -> int:
        """Put it into the disk in memory."""
        self._disk.commit(writes)
        return self._disk.size_bytes

    def note(self, notes: Sequence[Note]) -> None:
        """Nobody reads them."""

    def read(self, page: ReadPage | ReadExpired) -> list[tuple[int, bytes, bool]]:
        """Ask the disk."""
        return self._disk.read(page)

    def ping(self, ping: SendPing) -> None:
        """Ping is off."""

    def connect(self, connect: OpenTransport) -> None:
        """Call the node."""
        self._transports.open(connect)

    def send(self, send: SendBytes) -> None:
        """Send to the node."""
        self._transports.send(send)

    def close(self, close: CloseTransport) -> None:
        """End a connection."""
        self._transports.close(close)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """No application receives here."""


class Star:
    """A node in a process of its own, and peers in this one; `star_of` makes it."""

    def __init__(self, supervisor: Supervisor, client: Client, peers: Sequence[Peer]) -> None:
        self._supervisor = supervisor
        self._client = client
        self._peers = peers

    async def flood(self, count: int, body: bytes) -> float | None:
        """Each peer sends its share; microseconds of CPU that the node takes for a message, None if that is unknown.

        Raises:
            BenchError: a message was lost, came twice, out of the order of its peer or altered, or it took too long.
        """
        node, sent = self._supervisor.running[NODE], {peer: list[Sent]() for peer in self._peers}
        received: list[Received] = []
        alike = Alike(body)

        async def send(peer: Peer, share: int) -> None:
            sent[peer] = [Sent(each, UNALTERED, 0.0) for each in await peer.submit(share, body)]

        before_s = node.cpu_s()
        with trio.move_on_after(patience_s(count)):
            async with trio.open_nursery() as nursery:
                for place, peer in enumerate(self._peers):
                    nursery.start_soon(send, peer, share_of(count, len(self._peers), place))
                while len(received) < count:
                    received += await taken(self._client, QUEUE, alike, timeout_s=1)
        settled = await comes_true(self._is_settled, patience_s(count))
        after_s = node.cpu_s()
        by_source: dict[Guid, list[Received]] = {peer.guid: [] for peer in self._peers}
        for message in received:
            assert isinstance(message.message_id, MessageId)
            by_source[message.message_id.manager].append(message)
        for peer in self._peers:
            check_delivery(sent[peer], by_source[peer.guid])
        if sum(map(len, sent.values())) != count:
            raise BenchError(f"of {count:,} messages {sum(map(len, sent.values())):,} were sent")
        if not settled:
            raise BenchError("all messages came, but their senders were not told of it")
        return None if before_s is None or after_s is None else 1e6 * (after_s - before_s) / count

    async def _is_settled(self) -> bool:
        return not any(peer.waiting for peer in self._peers)


@asynccontextmanager
async def star_of(peers: int, window: int = 64) -> AsyncIterator[Star]:
    """A node and its peers, in a folder of its own among the temporary files, for the block.

    Raises:
        NodeError: the node does not start.
    """
    topology = star(peers, window)
    with tempfile.TemporaryDirectory(prefix="mqproto-bench-") as folder:
        supervisor = Supervisor(topology, Path(folder))
        try:
            await supervisor.start(NODE)
            async with connect(topology, NODE, Path(folder)) as client, _running(topology) as running:
                yield Star(supervisor, client, running)
        finally:
            with trio.CancelScope(shield=True):
                await supervisor.stop_all()


@asynccontextmanager
async def _running(topology: Topology) -> AsyncIterator[Sequence[Peer]]:
    """All peers of a star, for the block."""
    clock, buffer = Clock(), read_buffer()
    peers = [Peer(topology, name, clock, buffer) for name in topology.nodes if name != NODE]
    async with trio.open_nursery() as nursery:
        for peer in peers:
            nursery.start_soon(peer.run)
        yield peers
        nursery.cancel_scope.cancel()

"""Nodes in this process, links that record, peers that misbehave, and replays to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import trio

from mqproto.captures.net.conversation import Side
from mqproto.simulator.base.program.output import only_one
from mqproto.simulator.base.recorder import Recorder
from mqproto.simulator.client import Client, connect
from mqproto.simulator.node.received import ReceivedMessage
from mqproto.simulator.replay.command import replay
from mqproto.simulator.replay.options import ReplayOptions
from mqproto.simulator.replay.report import Report
from mqproto.simulator.rig.links import Links
from mqproto.simulator.topology import Topology, load
from mqproto.simulator.topology.views import seen_by
from mqproto.wire import (
    ConnectionParameters,
    EstablishConnection,
    Packet,
    PacketBuffer,
    UserMessage,
    decode_packet,
    encode_packet,
)
from tests.conversations import (
    DESTINATION,
    Said,
    a_final_ack,
    a_message,
    acknowledged,
    an_order_ack,
    exchange,
    handshake,
    write,
)
from tests.simulator.running import running

TIMEOUT_S = 10.0
LOOK_S = 0.02
"""The time, in seconds, between two checks of something that nobody reports.

Time has to pass, or an idle clock would stand still.
"""


@asynccontextmanager
async def nodes(
    topology: Topology,
    directory: Path,
    detours: dict[tuple[str, str], tuple[str, int]] | None = None,
    only: str = "",
) -> AsyncIterator[None]:
    """Run all nodes of a topology, or only one of them; each finds its neighbours through the detours."""
    async with AsyncExitStack() as stack:
        for name in topology.nodes:
            if name == only or not only:
                view = seen_by(topology, name, detours or {})
                await stack.enter_async_context(running(view, name, directory))
        yield


@asynccontextmanager
async def recorded(topology: Topology, directory: Path, capture: Path) -> AsyncIterator[None]:
    """Run all nodes of a topology, and record the links between them in a capture."""
    with capture.open("wb") as file:
        recorder = Recorder(file)
        links = Links(topology, recorder)
        async with trio.open_nursery() as nursery:
            detours = await nursery.start(links.run)
            async with nodes(topology, directory, detours):
                yield
            nursery.cancel_scope.cancel()
        recorder.close()


async def received(client: Client, queue: str, count: int) -> list[ReceivedMessage]:
    """Receive `count` messages from a queue."""
    found: list[ReceivedMessage] = []
    while len(found) < count:
        async with client.transaction(queue, limit=count - len(found), timeout_s=20) as messages:
            found += messages
    return found


async def until(holds: Callable[[], bool]) -> None:
    """Poll a condition until it holds; this is for conditions that nothing reports."""
    while not holds():  # noqa: ASYNC110
        await trio.sleep(LOOK_S)


async def settled(client: Client) -> None:
    """Wait until everything that a node has sent is acknowledged."""
    while True:
        if not any(queue.waiting or queue.unread for queue in (await client.queues()).outgoing):
            return
        await trio.sleep(LOOK_S)


def contents(messages: list[ReceivedMessage]) -> list[tuple[str, int, bytes]]:
    """Return the contents of the applications' messages."""
    return [(message.label, message.priority, bytes(message.body)) for message in messages]


async def played(capture: Path, to: tuple[str, int] | str = "", **options: Any) -> Report:
    """Replay a capture to the program that listens on an address."""
    where = to if isinstance(to, str) else f"{to[0]}:{to[1]}"
    arguments: dict[str, Any] = {"timeout_s": TIMEOUT_S, "to": where, **options}
    try:
        return await replay(ReplayOptions(capture=capture, **arguments))
    except BaseExceptionGroup as group:
        raise only_one(group) from None


@asynccontextmanager
async def consuming(
    topology: Topology, name: str, directory: Path, *queues: str
) -> AsyncIterator[list[ReceivedMessage]]:
    """Run an application that receives everything that arrives in some queues of a node."""
    found: list[ReceivedMessage] = []

    async def receive(queue: str) -> None:
        async with connect(topology, name, directory) as client:
            while True:
                async with client.transaction(queue, limit=50, timeout_s=60) as messages:
                    found.extend(messages)

    async with trio.open_nursery() as nursery:
        for queue in queues:
            nursery.start_soon(receive, queue)
        yield found
        nursery.cancel_scope.cancel()


Manners = Callable[[trio.SocketStream], Any]


@asynccontextmanager
async def listening(manners: Manners) -> AsyncIterator[tuple[str, int]]:
    """Run a server that treats each connection in the given manner; yield its address."""
    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, _forgiving(manners), 0, host="127.0.0.1"))
        yield listener.socket.getsockname()
        nursery.cancel_scope.cancel()


def _forgiving(manners: Manners) -> Manners:
    async def serve(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await manners(stream)

    return serve


# The pair


def a_pair() -> Topology:
    return load("pair").with_free_ports()


def texts(report: Report) -> list[str]:
    return [str(each) for each in report.differences]


@asynccontextmanager
async def a_destination(tmp_path: Path) -> AsyncIterator[tuple[Topology, tuple[str, int]]]:
    """Run only the destination of the pair, with a new store; yield the topology and its address."""
    topology, folder = a_pair(), tmp_path / "fresh"
    folder.mkdir()
    async with nodes(topology, folder, only="destination"):
        yield topology, topology.nodes["destination"].address


async def a_run_with(tmp_path: Path, talk: list[Said], **options: Any) -> Report:
    """Replay a capture without faults to the destination of the pair."""
    async with (
        a_destination(tmp_path) as (topology, address),
        consuming(topology, "destination", tmp_path / "fresh", "orders"),
    ):
        return await played(write(tmp_path / "c", talk), address, timeout_s=1.5, **options)


def to_orders(topology: Topology, *numbers: int, **changes: Any) -> list[UserMessage]:
    """Return messages from the pair's sender to the destination's queue `orders`."""
    sender, destination = topology.nodes["sender"], topology.nodes["destination"]
    names: dict[str, Any] = {
        "source": sender.guid,
        "destination_manager": destination.guid,
        "destination": destination.queue("orders").identifier,
    }
    return [a_message(number, **names | changes) for number in numbers]


def of_pair(topology: Topology) -> list[Said]:
    """Return the handshake of the pair."""
    return handshake(
        client=topology.nodes["sender"].guid,
        server=topology.nodes["destination"].guid,
    )


def a_talk(
    topology: Topology, order: Sequence[int], pause_s: float = 0.0, *, final_ack: bool = False
) -> list[Said]:
    """Return a conversation in which the pair's sender sends in this order, with a pause before the last message.

    All messages are acknowledged.
    """
    ends: dict[str, Any] = {"source": topology.nodes["destination"].guid, "to": topology.nodes["sender"].guid}
    messages = to_orders(topology, *order)
    answers = [an_order_ack(max(order), **ends)]
    if final_ack:
        answers += [a_final_ack(number, **ends) for number in order]
        for message in messages:
            assert message.transaction is not None
            message.transaction.final_ack = True
    talk = [*of_pair(topology), *exchange(messages, answers)[4:]]
    last = 4 + len(messages) - 1
    talk[last] = talk[last]._replace(after_s=pause_s)
    return talk


# Peers of other kinds


class Peer:
    """Accepts a session as the destination, and then does with each packet what a test wants."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.packets: list[Packet] = []

    async def __call__(self, stream: trio.SocketStream) -> None:
        buffer, self.packets = PacketBuffer(), []
        while data := await stream.receive_some(65_536):
            for raw in buffer.feed(bytes(data)):
                packet = decode_packet(raw)
                self.packets.append(packet)
                await self._take(packet, stream)

    async def _take(self, packet: Packet, stream: trio.SocketStream) -> None:
        if isinstance(packet, EstablishConnection):
            packet.server_guid = DESTINATION
            await stream.send_all(encode_packet(packet))
        elif not isinstance(packet, UserMessage):
            parameters = ConnectionParameters(
                recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=4
            )
            await stream.send_all(encode_packet(parameters))
        else:
            await self.answer(self, stream)

    @property
    def messages(self) -> list[UserMessage]:
        return [packet for packet in self.packets if isinstance(packet, UserMessage)]


def saved(count: int) -> bytes:
    """Return a SessionAck for `count` recoverable messages."""
    return encode_packet(acknowledged(Side.SERVER, count).packet)


async def acknowledge(peer: Peer, stream: trio.SocketStream) -> None:
    await stream.send_all(saved(len(peer.messages)))

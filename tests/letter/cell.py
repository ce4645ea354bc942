"""One cell of the matrix: our node, a letter peer with its switches, and messages of all kinds in both directions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

from .audit import audit
from .node import LETTER, OTHER, OURS, QUEUES, SETTINGS, Node
from .peer.network import Answer, Serve, Sockets
from .peer.packets import PA, PR, Security
from .peer.peer import Peer, Timers
from .peer.queues import Queue
from .peer.switches import Switches
from .wire import private, running

TIMERS: Final = Timers(0.2, 10, 20, 0.05, 0.3, (1, 1, 1, 2, 2, 2, 3, 3, 3, 4))
PATIENCE_S: Final = 15
"""The time in seconds without any progress after which a cell counts as stalled."""
FEW: Final = 500
"""The number of messages that wait at the peer before its applications pause."""
KINDS: Final = {"transactional": "orders", "recoverable": "notes", "express": "notes"}
Midst = Callable[[Peer], Awaitable[None]]
TO_OURS, TO_LETTER = "to-ours", "to-letter"
ONE_PLACE: Final = {"strangers_sequences": 1}
"""A setting of our node that leaves room for one stranger's sequence, so each stranger takes the room of the one before
it.
"""
BETWEEN: Final = 30
"""The maximum number of messages that another stranger sends."""


@dataclass
class Chopped(trio.abc.Stream):
    """A connection that breaks after a number of bytes, even in the middle of a packet."""

    inner: trio.abc.Stream
    left: int

    async def _spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            await self.inner.aclose()
            raise trio.BrokenResourceError("chopped")

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.inner.send_all(bytes(data)[: max(self.left, 0)])
        await self._spend(len(data))

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = bytes(await self.inner.receive_some(max_bytes))
        await self._spend(len(data))
        return data

    async def aclose(self) -> None:
        await self.inner.aclose()


class Knife(Sockets):
    """A network that cuts its first connections."""

    def __init__(self, cuts: int, seed: int) -> None:
        super().__init__()
        self.cuts, self.dice = cuts, random.Random(seed)

    async def connect(self, own: str, address: str) -> trio.abc.Stream:
        return self._hold(await super().connect(own, address))

    async def serve(self, own: str, serve: Serve, answer: Answer, started: trio.Event) -> None:
        async def held(stream: trio.abc.Stream, address: str) -> None:
            await serve(self._hold(stream), address)

        await super().serve(own, held, answer, started)

    def _hold(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        if not self.cuts:
            return stream
        self.cuts -= 1
        return Chopped(stream, self.dice.randrange(1_500, 12_000))


@dataclass
class Flow:
    """Messages of one kind, in one direction, under one name: those that were sent, and those that were received."""

    sent: list[bytes] = field(default_factory=list)
    came: list[bytes] = field(default_factory=list)

    def faults(self, kind: str) -> list[str]:
        lost, more = Counter(self.sent) - Counter(self.came), Counter(self.came) - Counter(self.sent)
        places = {body: place for place, body in enumerate(self.sent)}
        order = [places.get(body, 0) for body in self.came]
        reordered = kind == "transactional" and order != sorted(order)
        counts = (lost.total(), "lost"), (more.total(), "doubled"), (int(reordered), "stream reordered")
        return [f"{number} {what}" for number, what in counts if number]


def another(address: str, peer: Peer) -> Peer:
    """Return another stranger; the packets that it receives are examined together with those that the peer receives."""
    other = Peer(OTHER, address, Sockets(), addresses=peer.addresses, timers=TIMERS)
    other.heard = peer.heard
    return other


@dataclass
class Cell:
    """A node, a peer, the messages between them, and a record of everything that went wrong."""

    folder: Path
    address: str
    peer_address: str
    switches: Switches = field(default_factory=Switches)
    messages: int = 20
    """The number of messages of each kind that go to each name, in each direction."""
    longest: int = 4_000
    """The limit for the padding of a body, in bytes. A body consists of its name and the padding."""
    cuts: int = 6
    seed: int = 0
    settings: dict[str, object] = field(default_factory=dict)
    ways: tuple[str, ...] = (TO_OURS, TO_LETTER)
    security: Security | None = None
    """The name of the sender in the peer's messages; None if they have none."""
    midst: Midst | None = None
    """A function that disturbs the peer while messages cross; None if there is none."""
    flows: dict[tuple[str, str, str], Flow] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    sessions: int = 0
    seconds: float = 0
    other_address: str = ""
    """The address of another stranger; empty if the peer is not a stranger."""

    def __post_init__(self) -> None:
        declared = not self.other_address
        settings = {**SETTINGS, **self.settings, **({} if declared else ONE_PLACE)}
        self.node = Node(self.folder, self.address, self.peer_address, settings, declared=declared)
        queues = [Queue(name, number, name == "orders") for name, number in QUEUES.items()]
        self.acks = queues[list(QUEUES).index("acks")].messages
        network = Knife(self.cuts, self.seed)
        self.peer = Peer(
            LETTER, self.peer_address, network, queues, {OURS: self.address}, self.switches, TIMERS
        )
        self.others = [] if declared else [another(self.other_address, self.peer)]
        forms = self.node.names(OURS, "orders")
        self.flows = {(way, kind, form): Flow() for way in self.ways for kind in KINDS for form in forms}
        if self.others and TO_OURS in self.ways:
            self.flows[TO_OURS, "transactional", "other"] = Flow()

    async def run(self) -> None:
        begun = trio.current_time()
        self.node.write_topology()
        peers = running(self.peer, *self.others)
        async with self.node.running(), peers, trio.open_nursery() as applications:
            applications.start_soon(self._take)
            for other in self.others:
                applications.start_soon(self._follow, other)
            async with trio.open_nursery() as nursery:
                if self.midst:
                    nursery.start_soon(self.midst, self.peer)
                for kind in KINDS:
                    nursery.start_soon(self._node_sends, kind)
                    nursery.start_soon(self._peer_sends, kind)
            await self._settle("sent", self._all_came)
            await self._receive()
            applications.cancel_scope.cancel()
        self.seconds, self.sessions = trio.current_time() - begun, len(self.peer.closings)
        for (way, kind, form), flow in self.flows.items():
            self.faults += [f"{way} {kind} {form}: {fault}" for fault in flow.faults(kind)]
        if not (self.switches.guids_reversed or self.switches.message_size_long):
            self.faults += audit(OURS, self.peer.heard)

    # -- sending --------------------------------------------------------------------------------------------------

    def _body(self, number: int, *names: str) -> bytes:
        return "/".join((*names, str(number), "x" * (number * 977 % self.longest))).encode()

    async def _peer_sends(self, kind: str) -> None:
        """Send messages one by one, so that connections are cut between them.

        A transactional message goes to one name, and any other message to all names.
        """
        if TO_OURS not in self.ways:
            return
        names = self.node.names(OURS, KINDS[kind])
        acks = private(QUEUES["acks"], LETTER)
        first = next(iter(names))
        for number in range(self.messages):
            for form, name in names.items():
                body = self._body(number, TO_OURS, kind, form)
                self.flows[TO_OURS, kind, form].sent.append(body)
                if kind != "transactional":
                    recoverable, both = kind == "recoverable", list(names.values())
                    self.peer.send(
                        name, body, recoverable=recoverable, destinations=both, security=self.security
                    )
                elif form == first:
                    told: dict[str, Any] = {"admin": acks, "acknowledge": PA | PR, "journal": True}
                    self.peer.send(name, body, transactional=True, security=self.security, **told)
                else:
                    self.peer.send(name, body, transactional=True)
            for other in self.others if kind == "transactional" and number < BETWEEN else ():
                body = self._body(number, TO_OURS, kind, "other")
                self.flows[TO_OURS, kind, "other"].sent.append(body)
                other.send(names["direct"], body, transactional=True)
            await trio.sleep(0.01 if self.cuts else 0)
            while len(self.peer.waiting()) > FEW:
                await self.peer.changed.wait()

    async def _node_sends(self, kind: str) -> None:
        """Send our node's messages with commands."""
        if TO_LETTER not in self.ways:
            return
        names = self.node.names(LETTER, KINDS[kind])
        for form, name in names.items():
            flow = self.flows[TO_LETTER, kind, form]
            flow.sent = [self._body(number, TO_LETTER, kind) for number in range(self.messages)]
            if kind == "transactional":
                told = (
                    ("--final-ack", "--journal", "--admin-queue", r"ours\acks")
                    if form == next(iter(names))
                    else ()
                )
                await self.node.send(name, flow.sent, "--transactional", *told)
        if kind != "transactional":
            options = ("--recoverable",) if kind == "recoverable" else ()
            await self.node.send(",".join(names.values()), flow.sent, "--no-transactional", *options)

    # -- waiting --------------------------------------------------------------------------------------------------

    async def _follow(self, other: Peer) -> None:
        while True:
            await other.changed.wait()
            self.peer.wake()

    def _all_came(self) -> bool:
        """Return whether the peer has everything that was sent to it, and has nothing left to send."""
        expected = sum(len(flow.sent) for (way, _, _), flow in self.flows.items() if way == TO_LETTER)
        return self._came() >= expected and not self._waiting()

    def _came(self) -> int:
        return sum(len(flow.came) for (way, _, _), flow in self.flows.items() if way == TO_LETTER)

    def _waiting(self) -> int:
        return sum(len(peer.waiting()) for peer in (self.peer, *self.others))

    def _moved(self) -> tuple[int, ...]:
        return self._came(), len(self.acks), len(self.peer.journal), self._waiting()

    async def _settle(self, what: str, done: Callable[[], bool]) -> dict[str, int]:
        """Wait while anything moves at the peer, then until nothing waits at our node; return the sizes of our
        queues.
        """
        while not done():
            before = self._moved()
            with trio.move_on_after(PATIENCE_S):
                await self.peer.until(lambda: self._moved() != before or done())  # noqa: B023
            if self._moved() == before:
                break
        end = trio.current_time() + PATIENCE_S
        waiting, queues = await self.node.state()
        while waiting and trio.current_time() < end:
            await trio.sleep(0.5)
            waiting, queues = await self.node.state()
        for way, stuck in ((TO_OURS, self._waiting()), (TO_LETTER, waiting)):
            if stuck:
                self.faults.append(f"{way}: {stuck} wait for ever when all was {what}")
        return queues

    # -- receiving ------------------------------------------------------------------------------------------------

    async def _take(self) -> None:
        """Make the peer's application take messages as they arrive."""
        queues = [queue for queue in self.peer.queues if queue.name in KINDS.values()]
        while True:
            await self.peer.until(lambda: any(queue.messages for queue in queues))
            for queue in queues:
                while message := self.peer.receive(queue.name):
                    kind = message.body.decode().split("/")[1]
                    form = message.destination.partition("=")[0].lower()
                    self.flows[TO_LETTER, kind, form].came.append(message.body)

    async def _receive(self) -> None:
        """Receive everything at our node at the end; the requested acknowledgments have to be there as well."""
        for name in ("orders", "notes"):
            for body in await self.node.receive(name):
                _, kind, form, *_ = body.decode().split("/")
                self.flows[TO_OURS, kind, form].came.append(body)
        acks, journal = self.acks, self.peer.journal
        told = 2 * self.messages if TO_OURS in self.ways else 0
        ours = await self._settle("received", lambda: len(acks) >= told and len(journal) >= told // 2)
        for way, came in (
            (TO_OURS, {"administration acknowledgments": len(acks), "FinalAcks": 2 * len(journal)}),
            (
                TO_LETTER,
                {"administration acknowledgments": ours["acks"], "FinalAcks": 2 * ours["system$;journal"]},
            ),
        ):
            for what, count in came.items():
                if way in self.ways and count != 2 * self.messages:
                    self.faults.append(f"{way}: {count / 2 / self.messages:.0%} of {what}")

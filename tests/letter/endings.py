"""Messages that end in other ways: they are late, refused, rejected, sent nowhere, or forgotten by a peer that lost its
store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import trio

from .audit import audit
from .cell import ONE_PLACE, PATIENCE_S, TIMERS, another
from .node import LETTER, OURS, QUEUES, SETTINGS, Node
from .peer.network import Sockets
from .peer.packets import Class
from .peer.peer import Peer, bodies
from .peer.queues import Queue
from .peer.switches import Switches
from .wire import running

DEAD = ("--transactional", "--dead-letter")
NINE = {"expire_sent": "figures"}
NEVER = 1e9


@dataclass
class Endings:
    """A node and a peer that go through one story after another; `faults` lists the endings that are not as they should
    be.
    """

    folder: Path
    address: str
    peer_address: str
    switches: Switches = field(default_factory=Switches)
    faults: list[str] = field(default_factory=list)
    sessions: int = 0
    seconds: float = 0
    other_address: str = ""
    """The address of another stranger; empty if the peer is not a stranger."""
    settings: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        declared = not self.other_address
        settings = {**SETTINGS, **self.settings, **({} if declared else ONE_PLACE)}
        self.node = Node(self.folder, self.address, self.peer_address, settings, declared=declared)
        self.heard: list[bytes] = []
        """Everything that our node has sent to the peer, in all lives of the peer."""
        self.file: Path = self.folder / "letter.json"

    def peer(self, file: Path | None = None, window: int = 64) -> Peer:
        """Start a new life of the letter peer: with the store that its last life left, or with none."""
        queues = [
            Queue(name, number, name in ("orders", "few"))
            for name, number in QUEUES.items()
            if name != "nowhere"
        ]
        next(queue for queue in queues if queue.name == "few").quota = 3
        where = {OURS: self.address}
        peer = Peer(LETTER, self.peer_address, Sockets(), queues, where, self.switches, TIMERS, window, file)
        peer.heard = self.heard
        return peer

    async def run(self) -> None:
        begun = trio.current_time()
        self.node.write_topology()
        await self.to_ours()
        await self.to_letter()
        self.seconds = trio.current_time() - begun
        self.faults += audit(OURS, self.heard)

    async def to_ours(self) -> None:
        peer = self.peer(self.file)
        async with running(peer):
            await self.late_at_the_peer(peer)
            async with self.node.running():
                await self.wait("to-ours: late", peer, lambda: bodies(peer.dead_letters) == [b"late"])
                await self.ended_by_ours(peer)
                if self.other_address:
                    await self.comes_back(peer)

    async def to_letter(self) -> None:
        async with self.node.running():
            await self.late_at_ours()
            peer = self.peer(self.file)
            async with running(peer):
                await self.ended_by_the_peer(peer)
                self.sessions += len(peer.closings)
            await self.forgotten()

    async def wait(self, what: str, peer: Peer, done: Callable[[], bool]) -> None:
        with trio.move_on_after(PATIENCE_S):
            await peer.until(done)
        if not done():
            self.faults.append(
                f"{what}: {len(peer.waiting())} wait, dead letters {bodies(peer.dead_letters)}"
            )

    async def settled(self, what: str, dead: int, waits: int = 0) -> None:
        """Wait until `waits` messages wait at our node and `dead` messages are in its dead-letter queue."""
        end = trio.current_time() + PATIENCE_S
        while True:
            waiting, queues = await self.node.state()
            if (waiting, queues["system$;deadxact"]) == (waits, dead):
                return
            if trio.current_time() > end:
                break
            await trio.sleep(0.5)
        self.faults.append(f"{what}: {waiting} wait, {queues['system$;deadxact']} of {dead} dead letters")

    async def confirmed(self, left: int) -> None:
        """Wait until our node knows that all but `left` messages have arrived."""
        end = trio.current_time() + PATIENCE_S
        while trio.current_time() < end:
            waiting, _ = await self.node.state()
            if waiting == left:
                return
            await trio.sleep(0.2)
        self.faults.append(f"to-letter: {waiting} wait, and not {left}")

    def name(self, guid: UUID, queue: str) -> str:
        return next(iter(self.node.names(guid, queue).values()))

    # -- stories --------------------------------------------------------------------------------------------------

    async def late_at_the_peer(self, peer: Peer) -> None:
        """While our node is away, the first message of a sequence becomes too old; another message becomes too old to
        be received.
        """
        peer.send(
            self.name(OURS, "orders"), b"late", transactional=True, time_to_reach_queue=1, dead_letter=True
        )
        peer.send(self.name(OURS, "orders"), b"patient", transactional=True)
        peer.send(self.name(OURS, "notes"), b"brief", time_to_be_received=1)
        await trio.sleep(2.5)

    async def ended_by_ours(self, peer: Peer) -> None:
        """Messages that are rejected, or sent to a missing or express queue, become dead letters; the rest arrive."""
        options: dict[str, Any] = {"transactional": True, "dead_letter": True}
        peer.send(self.name(OURS, "orders"), b"last", **options)
        peer.send(self.name(OURS, "nobody"), b"nowhere", **options)
        peer.send(self.name(OURS, "notes"), b"wrong", **options)
        await self.wait("to-ours: refused", peer, lambda: len(peer.dead_letters) == 3 and not peer.waiting())
        await self.node.typed("receive", "orders", "--node", "ours", "--count", "1")
        await self.node.typed("receive", "orders", "--node", "ours", "--count", "1", "--reject", check=False)
        await self.wait("to-ours: rejected", peer, lambda: len(peer.dead_letters) == 4)
        if left := [*await self.node.receive("orders"), *await self.node.receive("notes")]:
            self.faults.append(f"to-ours: {left} came, and should not have")

    async def comes_back(self, peer: Peer) -> None:
        """Another stranger takes the peer's place; when the peer is back, later messages are accepted, but repeated
        ones are not.
        """
        orders, hears = self.name(OURS, "orders"), peer.take_order
        async with running(other := another(self.other_address, peer)):
            for behind in ([b"next"], []):
                lost: list[object] = []
                peer.take_order = lambda *order: lost.append(order)  # type: ignore[method-assign] # noqa: B023
                peer.send(orders, b"mine", transactional=True)
                await self.wait("to-ours: in its place", peer, lambda: bool(lost))  # noqa: B023
                other.send(orders, b"other", transactional=True)
                await self.wait("to-ours: another stranger", other, lambda: not other.waiting())
                for body in behind:
                    peer.send(orders, body, transactional=True)
                peer.take_order = hears  # type: ignore[method-assign]
                await self.wait("to-ours: comes back", peer, lambda: not peer.waiting())
        came = await self.node.receive("orders")
        mine = [body for body in came if body != b"other"]  # Of two senders either may be first.
        if mine != [b"mine", b"next", b"mine"] or len(came) != 5:
            self.faults.append(f"to-ours: comes back: {came}")

    async def late_at_ours(self) -> None:
        """Messages become too old while the peer is away."""
        await self.node.send(self.name(LETTER, "orders"), [b"late"], *DEAD, "--time-to-reach-queue", "1")
        await self.node.send(self.name(LETTER, "orders"), [b"patient"], "--transactional")
        await trio.sleep(2)

    async def ended_by_the_peer(self, peer: Peer) -> None:
        """The peer ends messages in the same ways.

        In addition, its queue is full after three messages, until these messages are received.
        """
        orders, few = (
            next(queue for queue in peer.queues if queue.name == name) for name in ("orders", "few")
        )
        await self.wait("to-letter: late", peer, lambda: bodies(orders.messages) == [b"patient"])
        await self.settled("to-letter: late", 1)
        await self.node.send(self.name(LETTER, "few"), [b"%d" % n for n in range(6)], *DEAD)
        await self.settled("to-letter: full queue", 4)
        while peer.receive("few"):
            pass
        await self.node.send(self.name(LETTER, "few"), [b"6", b"7"], *DEAD)
        await self.wait("to-letter: after a full queue", peer, lambda: bodies(few.messages) == [b"6", b"7"])
        await self.node.send(self.name(LETTER, "nowhere"), [b"nowhere"], *DEAD)
        await self.node.send(self.name(LETTER, "orders"), [b"unwanted"], *DEAD)
        await self.wait("to-letter: after all", peer, lambda: len(orders.messages) == 2)
        peer.receive("orders")
        peer.receive("orders", Class.NACK_RECEIVE_REJECTED)
        await self.settled("to-letter: rejected, nowhere", 6)

    async def forgotten(self) -> None:
        """A peer that has confirmed the beginning of a sequence loses its store, and then gets the rest of the
        sequence.
        """
        peer = self.peer(window=1)
        peer.room, peer.timers = (
            3,
            replace(TIMERS, order_ack=0),
        )  # Else a full peer hangs up before it confirms.
        async with running(peer):
            await self.node.send(
                self.name(LETTER, "orders"), [b"%d" % n for n in range(8)], "--transactional"
            )
            await self.confirmed(5)
        had = bodies(peer.queues[0].messages)
        peer = self.peer()
        async with running(peer):
            await self.settled("to-letter: forgotten", 6)
            if (came := had + bodies(peer.queues[0].messages)) != [b"%d" % n for n in range(8)]:
                self.faults.append(f"to-letter: forgotten: {came}")


@dataclass
class InDoubt(Endings):
    """Our node with `expire_sent = figures`: a message expires before the peer's late report about it arrives."""

    def __post_init__(self) -> None:
        self.settings = NINE
        super().__post_init__()

    async def run(self) -> None:
        begun = trio.current_time()
        self.node.write_topology()
        peer = self.peer(self.file)
        orders, notes = (
            next(queue for queue in peer.queues if queue.name == name) for name in ("orders", "notes")
        )
        peer.timers = replace(TIMERS, order_ack=NEVER)
        async with self.node.running(), running(peer):
            # There is a session by then, so that it crosses before its time is over.
            await self.node.send(self.name(LETTER, "notes"), [b"first"])
            await self.wait("to-letter: a session", peer, lambda: bodies(notes.messages) == [b"first"])
            await self.node.send(self.name(LETTER, "orders"), [b"late"], *DEAD, "--time-to-reach-queue", "2")
            await self.settled("to-letter: in doubt", 1)
            await self.node.send(self.name(LETTER, "orders"), [b"next"], "--transactional")
            await self.wait("to-letter: behind it", peer, lambda: len(orders.messages) == 2)
            places = [(it.number, it.previous) for one in orders.messages if (it := one.transaction)]
            if bodies(orders.messages) != [b"late", b"next"] or places != [(1, 0), (2, 0)]:
                self.faults.append(f"to-letter: {bodies(orders.messages)} came, with {places}")
            peer.receive("orders")
            await self.settled("to-letter: received after all", 0, waits=1)
            self.sessions += len(peer.closings)
        self.seconds = trio.current_time() - begun
        self.faults += audit(OURS, self.heard)

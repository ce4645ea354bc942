"""Queue managers, a virtual clock, and wires between them: whole conversations without sockets, disks or waiting.

A `Net` has nodes, each with a `mqproto.simulator.storage.disk.Disk`. It runs the one loop of mqproto/manager/carry.py,
and delivers what the nodes send. Tests cut wires, kill nodes, and let time pass. Whole runs with faults are in
`mqproto.simulator.world`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.manager.carry import carry_out
from mqproto.manager.queuemanager import QueueManager
from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import Draft
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.routing import NextHop, Peer, Routes
from mqproto.session import Remote
from mqproto.simulator.storage.disk import Disk
from mqproto.turn.effects import (
    COUNTERS_OF_LIFE,
    Batch,
    CloseTransport,
    Delivery,
    IncomingRow,
    NewLife,
    Note,
    OpenTransport,
    ReadExpired,
    ReadPage,
    ReadSequences,
    SendBytes,
    SendPing,
    Writes,
)
from mqproto.turn.guard import NO_KEYS, Guard
from mqproto.turn.waypoints import Follow, nobody
from mqproto.wire import Guid, UserMessage, decode_packet, guid_text

START = Moment(uptime_ms=1_000_000, utc_s=1_700_000_000)


def guid_of(name: str) -> Guid:
    """Return a GUID in which a person can read the name."""
    return Guid(name.encode().ljust(16, b".")[:16])


def remote(name: str) -> Remote:
    """Return the remote end of a session; the core believes it to be this queue manager."""
    return Remote(name, guid_of(name), is_proven=True)


Hears: TypeAlias = Callable[[int, bytes, Moment], int]
"""A function that takes what arrives on a session, as `QueueManager.receive` does."""


def deaf(session: int, data: bytes, now: Moment) -> int:
    """Ignore everything that arrives."""
    return 0


@dataclass
class Node:
    """One queue manager with its disk; `core` is None while it is down."""

    name: str
    queues: tuple[QueueDeclaration, ...]
    settings: Settings
    routes: Routes = field(default_factory=Routes)
    store: Disk = field(default_factory=Disk)
    guard: Guard = NO_KEYS
    follow: Follow = nobody
    counters_of_life: dict[str, int] = field(default_factory=dict)
    """The counters that are stored next to the store, and remain when the store is restored from a backup."""
    core: QueueManager | None = None
    received: list[UserMessage] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    cloned_from: str = ""
    """The name of the node whose identity this one has: machines that are copies of one image share an identity."""
    batch_count: int = 0
    """The number of non-empty batches that the node has taken since it started."""
    dies_at: int | None = None
    """The number of the batch at which the node is killed, once, between two instructions of the shell's loop."""
    dies_committed: bool = False
    """Whether the node is killed after the commit of the batch `dies_at`, but before anything is sent; if not, it is
    killed before that commit.
    """
    wires: dict[int, Wire] = field(default_factory=dict)
    hears: Hears | None = None
    """A function that takes arriving data in place of the core, until the node starts again."""

    @property
    def guid(self) -> Guid:
        return guid_of(self.cloned_from or self.name)

    @property
    def up(self) -> QueueManager:
        assert self.core is not None, f"{self.name} is down"
        return self.core

    def note_names(self) -> list[str]:
        return [note.name for note in self.notes]


@dataclass(eq=False)
class Wire:
    """A transport connection between two nodes, each of which has its own session for it."""

    ends: dict[str, int]
    traffic: list[tuple[str, bytes]] = field(default_factory=list)


class Net:
    """Nodes (keyed by name), the wires between them, and a clock that only the test moves."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.now = START
        self.blocked: set[frozenset[str]] = set()
        self.addresses: dict[str, str] = {}
        """The addresses of nodes that are called by their names; a node without one has its name as its address."""
        self.watch: Callable[[str, str, bytes], None] = lambda sender, receiver, chunk: None
        """A function that is called with each chunk before it arrives."""
        self.traffic: list[tuple[str, str, bytes]] = []
        """The chunks that crossed a wire, each with its sender and its receiver."""
        self._deadlines: dict[str, int | None] = {}
        self._clock_set_s = 0
        self._starts = 0

    def add(self, name: str, *queues: QueueDeclaration, settings: Settings | None = None) -> Node:
        """Add a node that hosts these queues; `start` starts it."""
        node = self.nodes[name] = Node(name, queues, settings or Settings())
        return node

    def route(self, at: str, to: str, *via: str) -> None:
        """Route messages from `at` to `to` through the first of the nodes `via` that can be reached."""
        node = self.nodes[at]
        hops = tuple(NextHop(guid_of(name), name) for name in via)
        managers = {**node.routes.managers, guid_of(to): hops}
        hosts = {**node.routes.hosts, **dict(zip(via, hops, strict=True))}
        node.routes = replace(node.routes, managers=managers, hosts=hosts)

    def start(self, *names: str, life: NewLife | None = None) -> None:
        """Start nodes from their disks; by default, start all of them.

        life: the new life that the nodes' stores begin; None if they begin no new life.
        """
        for name in names or self.nodes:
            node = self.nodes[name]
            node.batch_count, node.hears = 0, None
            state = node.store.load()
            self._starts += 1
            state.dice, state.life = self._starts, life
            node.core = QueueManager(
                node.guid,
                node.queues,
                self.routes_of(node),
                node.settings,
                state,
                self.now,
                node.guard,
                node.follow,
            )
            node.core.stored(node.store.size_bytes)

    def routes_of(self, node: Node) -> Routes:
        """Return the routes that a test has set; if it has not set any peers, all other nodes are peers."""
        return replace(node.routes, peers=node.routes.peers or self.peers_of(node.name))

    def peers_of(self, name: str) -> dict[Guid, Peer]:
        """Return all other nodes as peers, each at its own address and declared as a router to all others."""
        others = {node.guid: node.name for node in self.nodes.values() if node.name != name}
        everybody = frozenset(others)
        return {guid: Peer((address,), brings=everybody) for guid, address in others.items()}

    def kill(self, name: str) -> None:
        """Stop a node between two instructions: its uncommitted data is lost, and its peers see a reset."""
        node = self.nodes[name]
        node.core = None
        for wire in list(node.wires.values()):
            self._break(wire, "connection reset")

    def cut(self, one: str, other: str) -> None:
        """Reset all connections between two nodes; new ones may be made."""
        for wire in list(self.nodes[one].wires.values()):
            if other in wire.ends:
                self._break(wire, "connection reset")

    def _break(self, wire: Wire, reason: str) -> None:
        for name, session in wire.ends.items():
            node = self.nodes[name]
            node.wires.pop(session, None)
            if node.core is not None:
                node.core.lost(session, reason, self.now)

    def send(self, at: str, destination: Destination, body: bytes | str, **draft: object) -> int:
        """Make an application at a node send a message."""
        data = body.encode() if isinstance(body, str) else body
        message = (destination, Draft(body=data, **draft))  # type: ignore[arg-type]
        [ordinal] = self.nodes[at].up.enqueue([message], self.now)
        return ordinal

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass, stopping at each deadline that comes up."""
        end = self.now.uptime_ms + milliseconds
        while True:
            self.run()
            deadlines = [d for d in self._deadlines.values() if d is not None and d <= end]
            self._advance(max(self.now.uptime_ms, min(deadlines, default=end)))
            for node in self.nodes.values():
                if node.core is not None:
                    node.core.tick(self.now)
            if not deadlines:
                self.run()
                return

    def _advance(self, uptime_ms: int) -> None:
        elapsed = uptime_ms - START.uptime_ms
        self.now = Moment(uptime_ms, START.utc_s + elapsed // 1_000 + self._clock_set_s)

    def set_clock(self, ahead_s: int) -> None:
        """Set the wall clock ahead by `ahead_s`, or back if it is negative; the uptime clock is not affected."""
        self._clock_set_s += ahead_s
        self._advance(self.now.uptime_ms)

    def run(self, turns: int = 10_000) -> None:
        """Carry out batches until no node has anything to do at this instant."""
        self._deadlines.clear()
        for _ in range(turns):
            busy = False
            for node in self.nodes.values():
                if node.core is not None:
                    busy |= self._turn(node, node.core)
            if not busy:
                return
        raise AssertionError(f"still busy after {turns} turns")

    def turn(self, name: str) -> bool:
        """Let one node carry out one batch; return whether there was anything to do."""
        return self._turn(self.nodes[name], self.nodes[name].up)

    def turn_together(self) -> None:
        """Make every node take a batch before any of these batches is carried out."""
        taken = [(node, node.core.take(self.now)) for node in self.nodes.values() if node.core is not None]
        for node, batch in taken:
            self.carry_out(node, batch)

    def _turn(self, node: Node, core: QueueManager) -> bool:
        batch = core.take(self.now)
        self._deadlines[node.name] = batch.deadline_ms
        busy = bool(
            batch.writes
            or batch.reads
            or batch.pings
            or batch.connects
            or batch.sends
            or batch.closes
            or batch.deliveries
        )
        node.batch_count += busy
        if busy and node.batch_count == node.dies_at:
            node.dies_at = None
            if batch.writes is not None and node.dies_committed:
                node.store.commit(batch.writes)
            self.kill(node.name)
        else:
            self.carry_out(node, batch)
        return busy

    def carry_out(self, node: Node, batch: Batch) -> None:
        """Make one node carry out what it has decided."""
        carry_out(node.up, batch, self.now, _Hands(self, node))

    def ping(self, node: Node, ping: SendPing) -> None:
        """Deliver a Ping request and its response; nothing happens if the node cannot be reached or does not answer."""
        peer = self.nodes.get(ping.host)
        if peer is None or peer.core is None or frozenset((node.name, ping.host)) in self.blocked:
            return
        response = peer.core.pinged(ping.datagram)
        if response is not None:
            node.up.ping_answered(ping.session, response)

    def connect(self, node: Node, session: int, host: str) -> None:
        """Connect to a neighbour."""
        peer = self.nodes.get(host)
        if peer is None or peer.core is None or frozenset((node.name, host)) in self.blocked:
            node.up.lost(session, "connection refused", self.now)
            return
        wire = Wire({node.name: session, host: peer.core.accepted(node.name, self.now)})
        node.wires[session] = wire
        peer.wires[wire.ends[host]] = wire
        node.up.opened(session, self.now, self.addresses.get(host, ""))

    def transmit(self, node: Node, session: int, data: bytes) -> None:
        """Send bytes across a wire, if it still exists."""
        wire = node.wires.get(session)
        if wire is None:
            return
        (peer_name,) = set(wire.ends) - {node.name}
        self.traffic.append((node.name, peer_name, data))
        self.watch(node.name, peer_name, data)
        peer = self.nodes[peer_name]
        if peer.core is not None:
            hear = peer.hears or peer.core.receive
            hear(wire.ends[peer_name], data, self.now)

    def close(self, node: Node, session: int) -> None:
        """Close a node's end of a connection."""
        wire = node.wires.pop(session, None)
        if wire is not None:
            self._break(wire, "closed by peer")

    def deliver(self, node: Node, delivery: Delivery) -> None:
        """Give messages to an application."""
        for received in delivery.messages:
            message = decode_packet(received.packet)
            assert isinstance(message, UserMessage)
            node.received.append(message)

    def receive(self, at: str, queue: str, limit: int = 1_000_000) -> list[bytes]:
        """Take everything that is in a queue, without a transaction."""
        node = self.nodes[at]
        bodies: list[bytes] = []
        while True:
            node.received.clear()
            node.up.consume(1, queue, limit, transactional=False)
            self.run()
            if not node.received:
                node.up.abandon(1, queue, self.now)
                self.run()
                return bodies
            bodies += [message.properties.message_body for message in node.received]


class _Hands:
    """The shell's side of one node: its in-memory disk, and its wires."""

    def __init__(self, net: Net, node: Node) -> None:
        self._net = net
        self._node = node

    def commit(self, writes: Writes) -> int:
        known = self._node.counters_of_life
        known |= {name: value for name, value in writes.counters.items() if name in COUNTERS_OF_LIFE}
        self._node.store.commit(writes)
        return self._node.store.size_bytes

    def note(self, notes: Sequence[Note]) -> None:
        self._node.notes += notes

    def read(self, page: ReadPage | ReadExpired) -> list[tuple[int, bytes, bool]]:
        return self._node.store.read(page)

    def sequences(self, read: ReadSequences) -> list[IncomingRow]:
        return self._node.store.sequences(read)

    def ping(self, ping: SendPing) -> None:
        self._net.ping(self._node, ping)

    def connect(self, connect: OpenTransport) -> None:
        self._net.connect(self._node, connect.session, connect.host)

    def send(self, send: SendBytes) -> None:
        self._net.transmit(self._node, send.session, b"".join(send.chunks))

    def close(self, close: CloseTransport) -> None:
        self._net.close(self._node, close.session)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._net.deliver(self._node, delivery)


def queue(
    name: str, identifier: int = 16, *, transactional: bool = True, public: Guid | None = None
) -> QueueDeclaration:
    """Return a queue declaration."""
    return QueueDeclaration(name, identifier, transactional, public)


def at(manager: str, identifier: int = 16) -> Destination:
    """Return the private queue with this identifier at a queue manager."""
    name = f"PRIVATE={guid_text(guid_of(manager))}\\{identifier:08X}"
    return Destination(name, guid_of(manager), identifier)


def direct(host: str, name: str = "orders") -> Destination:
    """Return the private queue with this name on a host, addressed by a direct format name."""
    path = f"TCP:{host}\\private$\\{name}"
    return Destination(f"DIRECT={path}", None, path, host)


def chain(*names: str, queues: Iterable[QueueDeclaration] = (), settings: Settings | None = None) -> Net:
    """Return nodes in a row, each connected only to its neighbours; the last one hosts the queues, and all are
    started.
    """
    net = Net()
    for name in names:
        net.add(name, *(queues if name == names[-1] else ()), settings=settings)
    for here, name in enumerate(names):
        for there, other in enumerate(names):
            if here != there:
                net.route(name, other, names[here + (1 if there > here else -1)])
    net.start()
    return net

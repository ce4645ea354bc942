"""One queue manager in one process: sockets and a disk around the core.

`Transports` and `ClientService` feed the core the data from neighbours and clients. `RunningNode.pump` takes the core's
decisions in batches. mqproto/manager/carry.py carries them out by calling the node's methods.
"""

from __future__ import annotations

import os
import resource
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.base.moment import Moment
from mqproto.manager.carry import carry_out
from mqproto.manager.queuemanager import QueueManager
from mqproto.manager.status import NodeStatus
from mqproto.routing import MSMQ_PORT
from mqproto.simulator.base.http.server import Server
from mqproto.simulator.base.log import LogLines, Together, node_log
from mqproto.simulator.base.logfile import open_log
from mqproto.simulator.base.program.again import AGAIN, asked_to_end
from mqproto.simulator.base.program.collector import seldom_collected
from mqproto.simulator.base.program.extras import build, to_install
from mqproto.simulator.base.program.manager import keep_telling
from mqproto.simulator.base.repeats import Repeats
from mqproto.simulator.base.sockets import ADVICE, BACKLOG, listen
from mqproto.simulator.base.storeerrors import DiskFullError, StoreError
from mqproto.simulator.base.tap import Recording
from mqproto.simulator.base.traces.context import sampled_in
from mqproto.simulator.base.traces.starting import tracing
from mqproto.simulator.node.clients.readers import listening_for_readers, number_of
from mqproto.simulator.node.connection import read_buffer
from mqproto.simulator.node.control import QueueWish
from mqproto.simulator.node.indoubt import InDoubtList, list_in_doubt
from mqproto.simulator.node.pings import PingPort, ping_port
from mqproto.simulator.node.posting import TIDY_S, Posting
from mqproto.simulator.node.removals import Removals
from mqproto.simulator.node.room import TRY_S, Fullness, Room, free_bytes
from mqproto.simulator.node.service import ClientService
from mqproto.simulator.node.tls import Certificates, Handshakes, certificates_of
from mqproto.simulator.node.transport import Transports
from mqproto.simulator.node.turns import Alarm, Clock, TurnFeed
from mqproto.simulator.security.guarding import NO_LIBRARIES, NodeGuard, NodeKeys, guard_of
from mqproto.simulator.storage import Store
from mqproto.simulator.topology import Node, Topology, places
from mqproto.simulator.topology.directory import NodeDirectory, known_as
from mqproto.simulator.topology.file import written_address
from mqproto.turn.effects import (
    Batch,
    CloseTransport,
    Delivery,
    IncomingRow,
    Note,
    OpenTransport,
    ReadExpired,
    ReadPage,
    ReadSequences,
    SendBytes,
    SendPing,
    StoredState,
    Writes,
)
from mqproto.turn.guard import NO_KEYS
from mqproto.turn.waypoints import nobody
from mqproto.wire.guid import guid_text

if TYPE_CHECKING:
    from mqproto.simulator.base.traces.sdk.stays import Stays
    from mqproto.simulator.base.traces.sdk.tracer import Tracer

DESCRIPTORS: Final = 4_096
"""The number of files and sockets that a node's process may have open, if the system allows it."""


MAKE_ROOM: Final = (
    "the reserve is used up as well: nothing is done until there is room; nothing acknowledged is lost"
)


class NodeSockets(NamedTuple):
    """The sockets that a node serves.

    neighbours, clients: the listening sockets for neighbours and for clients.
    pings: the socket of the ping port, if the node answers Pings.
    for_tls: listens for neighbours that speak TLS, if the node has certificates.
    for_readers: listens for clients that may only look, if there are any.
    for_scrapes: listens for requests for metrics over HTTP, if wanted.
    unanswered: the reason if Pings are not answered although they should be; empty if nothing is wrong.
    """

    neighbours: socket.socket
    clients: socket.socket
    pings: socket.socket | None
    for_tls: socket.socket | None
    for_readers: socket.socket | None
    for_scrapes: socket.socket | None
    unanswered: str


class HttpFront(Protocol):
    """Serves others beside a node, in the same process."""

    async def __call__(self, running: RunningNode, *, task_status: trio.TaskStatus[str]) -> None: ...


class RunningNode:
    """One running queue manager. `run_node` makes it; `stop` ends it.

    Args:
        directory: what the node knows about itself and other queue managers.
        store: its store, which has just been opened.
        log: takes its notes.
        recording: records everything that it sends and receives, if wanted.
        certificates: its own certificate and those of its neighbours, if it has links with TLS.
        guard: has its keys, if the libraries are installed.
        tracer: takes spans, if wanted.
        together: joins the lines of a turn.
    """

    def __init__(
        self,
        directory: NodeDirectory,
        store: Store,
        log: FilteringBoundLogger,
        clock: Clock,
        recording: Recording | None = None,
        certificates: Certificates | None = None,
        guard: NodeGuard | None = None,
        tracer: Tracer | None = None,
        together: Together | None = None,
    ) -> None:
        node = directory.node
        self._directory, self._store, self._log = directory, store, log
        self._together = together or Together()
        self._clock, self._recording = clock, recording
        self._repeats = Repeats(directory.routes.is_declared)
        self._room = Room(node.settings.quota_bytes, partial(free_bytes, store.path.parent))
        self._fullness = Fullness(store)
        self._removals = Removals(store.path, node.name, node.guid)
        self._turns = TurnFeed()
        self._alarm = Alarm(self._turns.wake)
        self._stopping, self._tidies_s = False, 0.0
        self.stopping = trio.Event()
        """Set when the node is to stop. A front beside it answers what it has taken before the node does."""
        self.front_url = ""
        """The address of the front beside the node; empty if there is none."""
        state = store.load()
        self.core = self._restored(state, guard, is_traced=tracer is not None)
        self._logs_waypoints = node.settings.waypoints
        self._stays = None if tracer is None else self._followed(tracer)
        buffer = read_buffer()
        self._transports = Transports(
            self.core,
            self._turns,
            clock,
            node.host,
            node.settings,
            buffer,
            recording,
            Handshakes(certificates, self.note) if certificates is not None else None,
        )
        self._service = ClientService(
            self.core,
            directory,
            store,
            state,
            self._turns,
            clock,
            buffer,
            self._room,
            log,
            guard,
            self._transports.round_trip_s,
        )
        self.posting = Posting(self.core, directory, store, self._turns, clock, log)
        is_declared = directory.routes.is_declared
        self._pings = PingPort(
            self.core, self._turns, clock, node.host, directory.ping_ports, is_declared, recording
        )

    def _restored(self, state: StoredState, guard: NodeGuard | None, *, is_traced: bool) -> QueueManager:
        """Return the core in the state that the store holds. The directory learns of the queues and peers in this
        state.
        """
        directory, state.dice = self._directory, secrets.randbits(32)
        core = QueueManager(
            directory.node.guid,
            directory.queues,
            directory.routes,
            directory.node.settings,
            state,
            self._clock.now(),
            NO_KEYS if guard is None else guard,
            sampled_in if is_traced else nobody,
        )
        directory.has_queues(core.declared)
        directory.peer_hosts = core.peer_hosts
        core.stored(self._store.size_bytes)
        core.has_room(self._store.room_bytes)
        return core

    def make_missing(self, wish: QueueWish) -> None:
        """Make a queue, unless there is one of this name.

        Raises:
            UsageError: it cannot be made, or a queue of this name exists but is of the other kind.
        """
        self._service.operators.queues.make_missing(wish)

    @property
    def name(self) -> str:
        """The node's name."""
        return self._directory.node.name

    @property
    def log(self) -> FilteringBoundLogger:
        """Takes lines for the node's log."""
        return self._log

    @property
    def topology(self) -> Topology:
        """The topology with the node's current queues."""
        return self._directory.topology

    def status(self) -> NodeStatus:
        """Return the current status of queues and sessions."""
        return self._service.operators.status()

    @property
    def trouble(self) -> str:
        """Why the node refuses messages that have to be on disk; empty if it accepts them."""
        if self._stopping:
            return "it stops"
        if not self._store.is_usable:
            return "its store has failed"
        return "its disk is full" if self._store.room_bytes == 0 else ""

    def _followed(self, tracer: Tracer) -> Stays:
        """Return the object that makes spans of messages that belong to a trace. The library is imported only if it is
        needed.
        """
        from mqproto.simulator.base.traces.sdk.stays import Stays

        node, called = self._directory.node, partial(known_as, self._directory.topology)
        return Stays(tracer, node.name, node.guid, called)

    def stop(self) -> None:
        """Accept nothing more, carry out the decisions that were already made, and end.

        A front beside the node ends first.
        """
        self.stopping.set()
        if not self.front_url:
            self.halt()

    def halt(self) -> None:
        """End, even if there is a front."""
        self._stopping = True
        self._turns.wake()

    async def run(
        self, sockets: NodeSockets, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve on all these sockets until `stop`.

        Raises:
            ExceptionGroup: a group with a StoreError, if the disk fails. Nobody has been told anything about the batch
                that failed.
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(self._transports.run, sockets.neighbours, sockets.for_tls)
            await nursery.start(self._service.run, sockets.clients, sockets.for_readers)
            await nursery.start(self._pings.run, sockets.pings)
            scraped = None
            if sockets.for_scrapes is not None:
                scraped = self._scraped()
                listener = trio.SocketListener(trio.socket.from_stdlib_socket(sockets.for_scrapes))
                await nursery.start(scraped.run, [listener])
            task_status.started()
            async with trio.open_nursery() as beside:
                beside.start_soon(self._alarm.run)
                await self.pump()
                beside.cancel_scope.cancel()
            if scraped is not None:
                scraped.stop()
            self._transports.stop()
            self._service.stop()
            self._pings.stop()

    def _scraped(self) -> Server:
        """Return the HTTP server for metrics. The library is imported only if it is needed."""
        from prometheus_client import Metric

        from mqproto.simulator.base.http.monitoring import Monitored, served
        from mqproto.simulator.node.metrics.families import Facts, families

        node, version = self._directory.node, build()

        def collect() -> Iterator[Metric]:
            called = partial(known_as, self._directory.topology)
            return families(self.status(), Facts(node.name, guid_text(node.guid), version, called))

        return served(Monitored(collect, lambda: self.trouble), self._log)

    async def pump(self) -> None:
        """Until the node stops, let others feed the core, commit the core's writes, and send, in turn."""
        now = self._clock.now()
        while not self._stopping:
            self._turns.begin()
            batch = await self._turn(now)
            self._turns.end()
            if batch.reads:
                await trio.lowlevel.checkpoint()  # Let others feed; what was read goes into the next batch.
            else:
                self._service.nothing_more()
                self._alarm.set(self._clock.at(batch.deadline_ms))
                await self._turns.work()
            now = self._clock.now()
            self.core.tick(now)
        self.core.stop()
        await self._turn(now)
        for name, facts in self._repeats.rest():
            self._log.info(name, **facts)
        if self._stays is not None:
            self._stays.close()

    async def _turn(self, now: Moment) -> Batch:
        """Take one batch and carry it out. If neither the disk nor the reserve has room for it, wait for room.

        Raises:
            StoreError: the disk failed, or is still full when the node stops; nobody was told anything about the batch.
        """
        batch = self.core.take(now)
        waits = False
        while True:
            try:
                carry_out(self.core, batch, now, self)
                break
            except DiskFullError as error:
                if self._stopping or not self._store.is_usable:
                    raise
                if not waits:
                    self._log.error("disk-full-waits", reason=str(error), advice=MAKE_ROOM)
                waits = True
                await trio.sleep(TRY_S)
                self._store.make_room()
        if batch.writes is None:
            with suppress(DiskFullError):  # Without room to tidy, everything stays where it is.
                self._store.tidy()
        now_s = now.uptime_ms / 1_000
        if now_s >= self._tidies_s and self.posting.tidy():
            self._tidies_s = now_s + TIDY_S
        for line in (self._fullness.look(now_s), self._room.look(self._store.size_bytes, now_s)):
            if line is not None:
                self._log.warning(line[0], **line[1])
        self.core.has_room(self._fullness.room_bytes)
        if self._recording is not None:
            self._recording.flush()
        return batch

    # The hands of carry_out

    def commit(self, writes: Writes) -> int:
        """Commit to the store, after logging the failed messages that leave it."""
        if writes.departures:
            self._removals.keep(writes.departures)
        self._store.commit(writes)
        if writes.posted or writes.changes:
            self.posting.carried_out(writes.posted, writes.changes)
        return self._store.size_bytes

    def note(self, notes: Sequence[Note]) -> None:
        """Write notes to the log, and write notes about a trace to its spans."""
        if notes or self.posting.lines:
            with self._together:
                self.posting.note()
                self._note(notes)

    def _note(self, notes: Sequence[Note]) -> None:
        if not notes:
            return
        now_s = self._clock.now().uptime_ms / 1_000
        for note in notes:
            if note.trace is not None and self._stays is not None:
                self._stays.take(note)
                if not self._logs_waypoints:
                    continue
            for name, facts in self._repeats.lines(note.name, note.facts, now_s):
                self._log.info(name, **facts)
        if self._stays is not None:
            self._stays.settle()

    def read(self, page: ReadPage | ReadExpired) -> list[tuple[int, bytes, bool]]:
        """Read messages from the store."""
        return self._store.read(page)

    def sequences(self, read: ReadSequences) -> list[IncomingRow]:
        """Read incoming sequences from the store."""
        return self._store.sequences(read)

    def ping(self, ping: SendPing) -> None:
        """Send a datagram."""
        self._pings.ask(ping)

    def connect(self, connect: OpenTransport) -> None:
        """Connect to a neighbour."""
        self._transports.open(connect)

    def send(self, send: SendBytes) -> None:
        """Send bytes to a neighbour."""
        self._transports.send(send)

    def close(self, close: CloseTransport) -> None:
        """End a connection."""
        self._transports.close(close)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Answer clients, and hand them their messages."""
        self._service.deliver(deliveries)


async def run_node(
    topology: Topology,
    name: str,
    directory: Path | None = None,
    *,
    allow_remote: bool = False,
    remote_metrics: bool | None = None,
    queues: Sequence[QueueWish] = (),
    capture: Path | None = None,
    front: HttpFront | None = None,
    log: LogLines | None = None,
    task_status: trio.TaskStatus[RunningNode] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run one node until `RunningNode.stop`.

    `task_status` gets the node once neighbours and clients can connect.

    Args:
        topology: all nodes.
        name: the node to run.
        directory: the folder of its store, `NAME.sqlite`; by default `places.default_directory`.
        allow_remote: whether to listen on an address beyond loopback, if the topology has one.
        remote_metrics: whether to do the same for metrics; by default the same as `allow_remote`.
        queues: queues to make if they do not exist.
        capture: the pcapng file for what the node sends and receives; if it exists, the node appends to it.
        front: serves others beside the node, until `RunningNode.stopping` is set; it starts with a text to print.
        log: takes the log; by default, it goes to standard error.

    Raises:
        StoreError: the disk fails, or another process has the store. The text is one line, as for all of these errors.
        UsageError: the node cannot run: an unknown name, a taken port, an unusable certificate or key, or a capture
            that is something else or cannot be written.
    """
    node = topology.node_named(name)
    directory = directory or places.default_directory(topology)
    certificates, guard = _prepared(topology, node, directory)
    view, clock = NodeDirectory(topology, node), Clock()
    together = Together()
    lines = node_log(log or sys.stderr, node.name, together)
    async with AsyncExitStack() as held:
        places.make(directory)
        path = places.store_path(directory, node.name)
        places.keep_private(directory, node.name)
        store = held.enter_context(Store(path, node.guid, again=places.again(topology, directory)))
        # SQLite makes its files according to the umask, and later ones like the first.
        places.keep_private(directory, node.name)
        scrapes_remote = allow_remote if remote_metrics is None else remote_metrics
        sockets = _listening(held, view, directory, allow_remote, scrapes_remote)
        recording = None
        if capture is not None:
            recording = held.enter_context(closing(Recording(capture, node.name, lines)))
        tracer = await held.enter_async_context(tracing(node.traces, node.name, lines))
        doubt = None
        if (life := store.life) is not None and life.is_restored:
            doubt = list_in_doubt(store, life)
        if guard is None and NodeKeys(topology, node, directory).are_there:
            lines.warning("keys-not-read", reason="keys are there", advice=NO_LIBRARIES)
        running = RunningNode(view, store, lines, clock, recording, certificates, guard, tracer, together)
        for wish in queues:
            running.make_missing(wish)
        _tell_of_store(lines, store, doubt)
        _tell_started(lines, view, path, sockets, capture)
        try:
            with _plain_errors():
                async with trio.open_nursery() as nursery:
                    await nursery.start(running.run, sockets)
                    if front is not None:
                        running.front_url = await nursery.start(_beside, running, front)
                    task_status.started(running)
        except StoreError as error:
            lines.error("failed", reason=str(error))
            raise
        lines.info("stopped")


async def _beside(
    running: RunningNode, front: HttpFront, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run a front. When it has ended, the node ends."""
    try:
        await front(running, task_status=task_status)
    finally:
        running.halt()


def _prepared(
    topology: Topology, node: Node, directory: Path
) -> tuple[Certificates | None, NodeGuard | None]:
    """Return the certificates and keys of a node.

    Raises:
        UsageError: a certificate or key is unusable, or the directory is not for stores.
    """
    if places.is_for_readers(directory, node.name):
        raise UsageError(
            f"{directory} is for those who may only look: leave --directory out, or name the stores'"
        )
    return certificates_of(topology, node), guard_of(topology, node, directory)


def check_node(
    topology: Topology,
    name: str,
    directory: Path,
    files: Iterable[Path | None],
    *,
    allow_remote: bool,
    remote_metrics: bool,
) -> None:
    """Check that a node can start with these arguments of `run_node`.

    Args:
        files: files that it will write, apart from its store.

    Raises:
        UsageError: it cannot.
    """
    node = topology.node_named(name)
    _prepared(topology, node, directory)
    for file in filter(None, files):
        if not file.absolute().parent.is_dir():
            raise UsageError(
                f"{file} cannot be opened, for its folder is not there: make it, or name another file"
            )
    if node.readers:
        number_of(node.readers)
    with ExitStack() as held:
        _over_network(held, node, allow_remote, remote_metrics, is_trial=True)


def _listening(
    held: AsyncExitStack, view: NodeDirectory, directory: Path, allow_remote: bool, scrapes_remote: bool
) -> NodeSockets:
    """Open the sockets of a node; `held` closes them.

    Args:
        allow_remote: whether the node may listen beyond loopback for neighbours and for Pings.
        scrapes_remote: whether the node may listen beyond loopback for scrapes.

    Raises:
        UsageError: an address is taken, or listening there is not allowed.
    """
    node, topology = view.node, view.topology
    neighbours, for_tls, pings, for_scrapes, unanswered = _over_network(
        held, node, allow_remote, scrapes_remote
    )
    for_readers = None
    clients = held.enter_context(places.listening(places.socket_path(directory, node.name), BACKLOG))
    if node.readers:
        file = directory / f"{node.name}.toml" if [*topology.nodes] == [topology.name] else None
        readers = listening_for_readers(node.readers, _readers_folder(node), node.name, file)
        for_readers = held.enter_context(readers)
    return NodeSockets(neighbours, clients, pings, for_tls, for_readers, for_scrapes, unanswered)


def _over_network(
    held: ExitStack | AsyncExitStack,
    node: Node,
    allow_remote: bool,
    scrapes_remote: bool,
    *,
    is_trial: bool = False,
) -> tuple[socket.socket, socket.socket | None, socket.socket | None, socket.socket | None, str]:
    """Open the sockets for other machines: see `_listening`. In a trial, they only could be opened."""

    def opened(address: tuple[str, int], remote: bool, advice: str = ADVICE) -> socket.socket:
        found = listen(*address, allow_remote=remote, advice=advice, is_trial=is_trial)
        return held.enter_context(closing(found))

    neighbours = opened(node.address, allow_remote)
    for_tls = None if node.tls is None else opened(node.tls.address, allow_remote)
    pings, unanswered = ping_port(node, allow_remote=allow_remote, is_trial=is_trial)
    if pings is not None:
        held.enter_context(closing(pings))
    for_scrapes = None
    if node.metrics is not None:
        _check_metrics()
        for_scrapes = opened(node.metrics, scrapes_remote, "name another with --metrics")
    return neighbours, for_tls, pings, for_scrapes, unanswered


def _readers_folder(node: Node) -> Path:
    return node.readers_folder or places.readers_folder(node.readers)


def _tell_of_store(lines: FilteringBoundLogger, store: Store, doubt: InDoubtList | None) -> None:
    """Log what was found when the store was opened."""
    for notice in store.notices:
        lines.warning("store", notice=notice)
    if store.unfinished:
        lines.info("unfinished-record", what=store.unfinished)
    if doubt is not None:
        lines.warning(
            "in-doubt",
            messages=doubt.messages,
            transactional=doubt.transactional,
            file=str(doubt.file),
            advice="each of these may have been delivered before; none is held back",
        )


def _tell_started(
    lines: FilteringBoundLogger, view: NodeDirectory, store: Path, sockets: NodeSockets, capture: Path | None
) -> None:
    """Log the node's addresses, and whatever may keep others from reaching it or let them see too much."""
    node = view.node
    lines.info(
        "started",
        address=f"{node.host}:{node.port}",
        tls="off" if node.tls is None else "{}:{}".format(*node.tls.address),
        answer_pings="off" if sockets.pings is None else "{}:{}".format(*node.ping_address),
        require_pings="on" if node.settings.require_pings else "off",
        manager=guid_text(node.guid),
        store=str(store),
        capture="off" if capture is None else str(capture),
        readers=f"{node.readers}: {_readers_folder(node)}" if node.readers else "off",
        metrics="off" if node.metrics is None else written_address(*node.metrics),
    )
    if sockets.unanswered:
        lines.warning(
            "pings-unanswered",
            reason=sockets.unanswered,
            advice="who asks first does not call: free the port, or choose one with ping = 'host:port'",
        )
    if len(view.topology.nodes) == 1 and node.port != MSMQ_PORT:
        lines.warning(
            "not-1801",
            port=node.port,
            advice="a direct name has no port, so others cannot reach this node by one: they call port 1801",
        )
    if mode := places.who_may_enter(store.parent):
        lines.warning(
            "folder-open",
            folder=str(store.parent),
            mode=mode,
            advice=f"others can see what is there, though not read the stores: chmod 700 {store.parent}",
        )


def serve(
    run: Callable[..., Awaitable[None]], name: str, log: Path | None = None, *, supervised: bool = False
) -> None:
    """Run one node until SIGTERM or SIGINT, for `mqproto node`.

    Print a line that begins with `ready` once neighbours and clients can connect.

    Args:
        run: `run_node` with all its arguments except the log; `run_node` also lists the errors.
        name: the node's name.
        log: the file for the log, which rotates.
        supervised: whether to end when standard input ends, so that the node does not outlive its parent, and to print
            a line that begins with `opening` before the store is opened, for tests that kill nodes at any moment.
    """
    # Each neighbour and each client takes one descriptor.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))

    async def main() -> None:
        with open_log(log) as lines, asked_to_end() as signals:
            async with trio.open_nursery() as nursery:
                if supervised:
                    print(f"opening {name}", flush=True)
                node: RunningNode = await nursery.start(partial(run, log=lines))
                print(f"ready {node.front_url or name}", flush=True)
                async with trio.open_nursery() as waiting:
                    waiting.start_soon(keep_telling)
                    waiting.start_soon(_until_signal, signals, waiting.cancel_scope)
                    if supervised:
                        waiting.start_soon(_until_input_ends, waiting.cancel_scope)
                AGAIN.tell_stopping()
                node.stop()

    # Everything that a node makes belongs to its owner alone, from the first moment.
    os.umask(0o077)
    with seldom_collected(), _plain_errors():
        trio.run(main)


async def _until_signal(signals: AsyncIterator[int], waiting: trio.CancelScope) -> None:
    async for _ in signals:
        waiting.cancel()
        return


async def _until_input_ends(waiting: trio.CancelScope) -> None:
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stream:
        async for _ in stream:
            pass
    waiting.cancel()


def _check_metrics() -> None:
    """Raise UsageError if the library for metrics is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ModuleNotFoundError as missing:
        raise UsageError(f"metrics: {to_install(missing, ())}") from None


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Raise an MqprotoError without trio's groups around it, if nothing else went wrong."""
    try:
        yield
    except BaseExceptionGroup as group:
        ours, others = group.split(MqprotoError)
        if ours is None or others is not None:
            raise
        error: BaseException = ours
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None

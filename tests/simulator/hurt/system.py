"""A sender, an intermediate and a destination with real stores; only the harness moves the wires and the clock.

The cores, the stores and the loop between them are those of real nodes. Sockets and waiting are left out, so a trial
lasts a fraction of a second. All three nodes live in one process, which the harness forks, and kills as it would kill a
node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.manager.carry import carry_out
from mqproto.manager.queuemanager import QueueManager
from mqproto.messages.drafts import Draft
from mqproto.queues.localqueue import QueueDeclaration, SystemQueue
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.node.indoubt import list_in_doubt
from mqproto.simulator.storage import LogLimits, Store
from mqproto.simulator.storage.care import adopt_moved, repair, set_aside_copied
from mqproto.simulator.storage.files import SYSTEM_FILES
from mqproto.simulator.topology import load, places
from mqproto.turn.effects import (
    POSITION_BITS,
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
    Writes,
)
from mqproto.wire import UserMessage, decode_packet
from tests.pair import Net, Node, at, guid_of
from tests.simulator.hurt.ledger import Ledger, Trace, body_of, digest, flow_of
from tests.simulator.hurt.named import label_of
from tests.simulator.hurt.operator import Repaired

SENDER, INTERMEDIATE, DESTINATION = NAMES = ("sender", "intermediate", "destination")
QUEUES: Final = {
    DESTINATION: (
        QueueDeclaration("orders", 16, transactional=True),
        QueueDeclaration("notes", 17, journal=True),
    )
}
NOWHERE: Final = 99
"""The identifier of a missing queue."""
PLACES: Final = {
    "orders": (DESTINATION, "orders"),
    "notes": (DESTINATION, "notes"),
    "notes;journal": (DESTINATION, "notes;journal"),
    "journal": (SENDER, SystemQueue.JOURNAL.value),
    "deadxact": (SENDER, SystemQueue.DEADXACT.value),
    "deadletter": (DESTINATION, SystemQueue.DEADLETTER.value),
}
"""The places where messages end, each given by its node and its queue."""
CONSUMER: Final = 1
CALM_MS: Final = 3_000
QUIET: Final = 4
"""After this many periods of CALM_MS without a chunk on any wire, nothing more will arrive."""
CALMS: Final = 30


class Shape(NamedTuple):
    """The properties of a trial's nodes."""

    seed: int
    limits: LogLimits
    window_size: int

    def settings(self) -> Settings:
        """Return settings with short timers, as in three-node."""
        settings = load("three-node").nodes[SENDER].settings
        return replace(settings, window_size=self.window_size)


class System(Net):
    """Three nodes on real stores in one folder.

    Args:
        hours: the hours since the beginning of the trial.
    """

    def __init__(self, folder: Path, ledger: Ledger, shape: Shape, hours: int = 0) -> None:
        super().__init__()
        self.folder = folder
        self.ledger = ledger
        self.stores: dict[str, Store] = {}
        self.errors: dict[str, str] = {}
        """The reason why a node is down, for each node that ended by itself."""
        self.elsewhere: dict[str, Path] = {}
        self.strike: Callable[[], None] = lambda: None
        """Called before each commit and each send: it may kill the process there."""
        self._shape = shape
        self._sending: dict[str, list[str]] = {name: [] for name in NAMES}
        self._taking: dict[str, list[tuple[str, str, str]]] = {name: [] for name in NAMES}
        self._given: list[Delivery] = []
        self._repair_count = 0
        self._queues: dict[str, dict[int, str]] = {name: {} for name in NAMES}
        self._messages: dict[str, dict[int, tuple[str, int]]] = {name: {} for name in NAMES}
        self.set_clock(3_600 * hours)
        for name in NAMES:
            self.add(name, *QUEUES.get(name, ()), settings=shape.settings())
        self.route_over_the_intermediate()
        self.route(DESTINATION, SENDER, INTERMEDIATE)
        for name in (SENDER, DESTINATION):
            self.route(INTERMEDIATE, name, name)
            self.route(name, INTERMEDIATE, INTERMEDIATE)

    def route_over_the_intermediate(self) -> None:
        """Route messages from the sender to the destination over the intermediate, from the sender's next start on."""
        self.route(SENDER, DESTINATION, INTERMEDIATE)

    def route_directly(self) -> None:
        """Route messages from the sender directly to the destination."""
        self.route(SENDER, DESTINATION, DESTINATION)

    # Lives

    def path(self, name: str) -> Path:
        """Return the path of a node's store."""
        return places.store_path(self.elsewhere.get(name, self.folder), name)

    def open(self, name: str) -> str | None:
        """Start a node as simulator/node/node.py does; return the reason why it does not start, or None if it does."""
        node = self.nodes[name]
        try:
            store = Store(self.path(name), node.guid, self._shape.limits)
        except StoreError as error:
            self.ledger.write("said", name, what=str(error))
            return str(error)
        try:
            if (life := store.life) is not None and life.is_restored:
                for line in list_in_doubt(store, life).file.read_text().splitlines():
                    self.ledger.write("said", name, what=line)
            state = store.load()
            for notice in store.notices:
                self.ledger.write("said", name, what=notice)
            core = QueueManager(node.guid, node.queues, self.routes_of(node), node.settings, state, self.now)
            core.stored(store.size_bytes)
        except StoreError as error:
            self.ledger.write("said", name, what=str(error))
            store.close()
            return str(error)
        self.errors.pop(name, None)
        self.stores[name], node.core = store, core
        return None

    def kill(self, name: str) -> None:
        """Kill a node, which frees its files."""
        super().kill(name)
        self._sending[name].clear()
        self._taking[name].clear()
        with suppress(StoreError):
            self.stores.pop(name).close()

    def stop(self, *names: str) -> None:
        """Stop nodes in an orderly way; by default, all of them."""
        for name in names or NAMES:
            node = self.nodes[name]
            if node.core is not None:
                node.core.stop()
                self.turn(name)
            if node.core is not None:
                self.kill(name)

    def spawn(self, *names: str) -> None:
        """Do nothing: nodes start when they are opened."""

    def adopt(self, name: str, how: str) -> Repaired:
        """Do what `mqproto store adopt` does."""
        try:
            if how == "moved":
                adopt_moved(SYSTEM_FILES, self.path(name), None)
            else:
                set_aside_copied(SYSTEM_FILES, self.path(name), None, "now")
        except StoreError as error:
            return Repaired([str(error)], is_done=False)
        return Repaired([f"adopted as {how}"], is_done=True)

    def repair(self, name: str) -> Repaired:
        """Do what `mqproto store repair` does; return what it prints, and whether it succeeds."""
        self._repair_count += 1
        try:
            found = repair(SYSTEM_FILES, self.path(name), f"{self._repair_count}")
        except StoreError as error:
            return Repaired([str(error)], is_done=False)
        return Repaired(found.findings, is_done=True)

    def is_up(self, name: str) -> bool:
        """Whether a node runs."""
        return self.nodes[name].core is not None

    def carry_out(self, node: Node, batch: Batch) -> None:
        """Let one node do what it has decided; a node whose disk fails ends with an error line."""
        try:
            carry_out(node.up, batch, self.now, _Hands(self, node, self.stores[node.name]))
            if batch.writes is None and node.core is not None:
                self.stores[node.name].tidy()
        except StoreError as error:
            self.errors[node.name] = str(error)
            self.ledger.write("said", node.name, what=str(error))
            self.kill(node.name)
            return
        for label in self._sending[node.name]:
            self.ledger.write("sent", node.name, label)
        for place, label, what in self._taking[node.name]:
            self.ledger.write("taken", place, label, what)
        self._sending[node.name].clear()
        self._taking[node.name].clear()

    def deliver(self, node: Node, delivery: Delivery) -> None:
        """Give messages to an application."""
        self._given.append(delivery)

    def trace(self, name: str, record: int, writes: Writes) -> None:
        """Record which messages a commit brings and removes."""
        if self.ledger.phase:
            return
        queues, messages = self._queues[name], self._messages[name]
        queues |= {row.queue: f"{row.kind} {row.name}" for row in writes.queues}

        def write(key: int) -> None:
            label, message_id = messages[key]
            queue = key >> POSITION_BITS
            trace = Trace(record, record, queue, queues.get(queue, ""), message_id)
            self.ledger.write("record", name, label, json.dumps(trace))

        for row in writes.messages:
            if (label := label_of(row.packet)) is not None:
                messages[row.key] = label, row.message_id
                write(row.key)
        for first, last in writes.removals:
            for key in [key for key in messages if first <= key <= last]:
                write(key)
                del messages[key]

    # Applications

    def produce(self, labels: list[str]) -> None:
        """Let an application at the sender send a whole batch of messages at once."""
        core = self.nodes[SENDER].core
        if core is None:
            return
        messages = []
        for label in labels:
            flow = flow_of(label)
            queue = {"orders": 16, "notes": 17, "deadletter": 16}.get(flow.end, NOWHERE)
            draft = Draft(
                body=body_of(self._shape.seed, label),
                label=label,
                transactional=flow.transactional,
                recoverable=True,
                journal_negative=True,
                journal_positive="journal" in flow.copies,
                final_ack=flow.transactional,
            )
            messages.append((at(DESTINATION, queue), draft))
            self.ledger.write("sending", SENDER, label)
        self._sending[SENDER] += labels
        try:
            core.enqueue(messages, self.now)
        except UsageError:  # It has no room.
            self._sending[SENDER].clear()
            return
        self.run()

    def consume(self, place: str, limit: int) -> int:
        """Let an application take messages in one transaction; return their number."""
        name, queue = PLACES[place]
        core = self.nodes[name].core
        if core is None:
            return 0
        self._given.clear()
        core.consume(CONSUMER, queue, limit, transactional=True)
        self.run()
        if self.nodes[name].core is None:
            return 0
        if not self._given:
            core.abandon(CONSUMER, queue, self.now)
            self.run()
            return 0
        [delivery] = self._given
        for received in delivery.messages:
            message = decode_packet(received.packet)
            assert isinstance(message, UserMessage)
            label = (message.properties.label or "").rstrip("\0")
            what = digest(message.properties.message_body)
            self.ledger.write("taking", place, label, what)
            self._taking[name].append((place, label, what))
        core.settle(CONSUMER, queue, self.now, commit=True)
        self.run()
        return len(delivery.messages)

    def consume_all(self) -> None:
        """Let applications take all available messages at all places, except from a node that ends meanwhile."""
        for place in PLACES:
            while self.consume(place, 50):
                pass

    def calm(self) -> None:
        """Let time pass until no bytes have crossed a wire for a while."""
        quiet = 0
        for _ in range(CALMS):
            self.traffic.clear()
            self.pass_ms(CALM_MS)
            quiet = 0 if self.traffic else quiet + 1
            if quiet == QUIET or not any(map(self.is_up, NAMES)):
                return


class _Hands:
    """Carries out what one node has decided."""

    def __init__(self, system: System, node: Node, store: Store) -> None:
        self._system = system
        self._node = node
        self._store = store

    def commit(self, writes: Writes) -> int:
        self._system.strike()
        self._system.trace(self._node.name, self._store.record_count + 1, writes)
        self._store.commit(writes)
        self._system.strike()
        return self._store.size_bytes

    def note(self, notes: Sequence[Note]) -> None:
        self._node.notes += notes

    def read(self, page: ReadPage | ReadExpired) -> list[tuple[int, bytes, bool]]:
        return self._store.read(page)

    def sequences(self, read: ReadSequences) -> list[IncomingRow]:
        return self._store.sequences(read)

    def ping(self, ping: SendPing) -> None:
        self._system.ping(self._node, ping)

    def connect(self, connect: OpenTransport) -> None:
        self._system.connect(self._node, connect.session, connect.host)

    def send(self, send: SendBytes) -> None:
        self._system.strike()
        self._system.transmit(self._node, send.session, b"".join(send.chunks))

    def close(self, close: CloseTransport) -> None:
        self._system.close(self._node, close.session)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._system.deliver(self._node, delivery)


__all__ = ["DESTINATION", "INTERMEDIATE", "NAMES", "PLACES", "SENDER", "Shape", "System", "guid_of"]

"""Clients, a node and everything between them fail at any moment, and each operation is carried out once.

The parts are real: the node's service, its core and its memory of invokers; the clients' invokers and journals. The
wires, the clock and the node's disk are simulated, and the failures come from a seed.
"""

from __future__ import annotations

import io
import random
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import pytest
from hypothesis import event, given, settings, strategies as st

from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.edge.operations import Invoker
from mqproto.manager.queuemanager import QueueManager
from mqproto.messages.drafts import Draft
from mqproto.simulator.base.log import node_log
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.client.journal import Journal, opened
from mqproto.simulator.node import control
from mqproto.simulator.node.clients.deeds import ClientActivity
from mqproto.simulator.node.clients.performers import KEPT_S, LASTING_KEPT_S, LOOK_S, Performers
from mqproto.simulator.node.connection import Connection
from mqproto.simulator.node.control import FrameBuffer, Operation
from mqproto.simulator.node.room import Room
from mqproto.simulator.node.service import ClientConnection, ClientService
from mqproto.simulator.node.turns import Clock, TurnFeed
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.disk import Disk
from mqproto.simulator.topology import load
from mqproto.simulator.topology.directory import NodeDirectory
from mqproto.wire import UserMessage, decode_packet
from tests.memory import memory_folder

ORDERS: Final = r".\private$\orders"
NOTES: Final = r".\private$\notes"
DIRECTORY: Final = NodeDirectory(topology := load("pair"), topology.node_named("destination"))
TRANSACTIONAL, EXPRESS, REFUSED = "transactional", "express", "refused"
STEPS: Final = 2_000


class Ticking(Clock):
    """A clock that advances by a millisecond each time it is read."""

    def __init__(self) -> None:
        self.uptime_ms = 0
        self.date_s = 1_700_000_000

    def now(self) -> Moment:
        self.uptime_ms += 1
        return Moment(self.uptime_ms, self.date_s + self.uptime_ms // 1_000)


class Counted(Performers):
    """Counts how often a duplicate arrives."""

    def invoke(self, invoker: bytes, identifier: int, now: Moment) -> bytes | None:
        outcome = super().invoke(invoker, identifier, now)
        if outcome is not None:
            event("a duplicate had the first outcome")
        return outcome


class Silence(io.StringIO):
    """A log that nobody reads."""

    def write(self, text: str) -> int:
        return len(text)


class Line:
    """A connection, as both ends see it: sent data arrives in order, or the line breaks and the data never arrives."""

    unsent_bytes = 0

    def __init__(self, node: Node, introduction: control.InvokerIntroduction) -> None:
        self.to_node = deque[bytes]()
        self.to_client = deque[bytes]()
        self.broken = False
        deeds = ClientActivity(node_log(Silence(), "node"), None, lambda _: None)
        self.end = ClientConnection(node.service, cast("Connection", self), deeds)
        self.hello = node.service.introduce(self.end, introduction)

    def send(self, data: bytes) -> None:
        """Send from the node's end."""
        if not self.broken:
            self.to_client.append(data)


class Node:
    """A node that dies and starts again on its disk."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.disk = Disk()
        self.clock = Ticking()
        self.lines: list[Line] = []
        self.gone = Counter[bytes]()
        """Express messages of all lives that have ended, and messages in stores that were moved away."""
        self.start()

    def start(self) -> None:
        state = self.disk.load()
        node = DIRECTORY.node
        core = QueueManager(
            node.guid, DIRECTORY.queues, DIRECTORY.routes, node.settings, state, self.clock.now()
        )
        self.service = ClientService(
            core,
            DIRECTORY,
            cast("Store", self.disk),
            state,
            TurnFeed(),
            self.clock,
            memoryview(bytearray()),
            Room(0, lambda: 0),
            node_log(Silence(), "node"),
        )
        self.service.performers = Counted(core, state, self.clock.now())
        self.service.life = self.dice.getrandbits(31) + 1

    def hear(self, line: Line) -> None:
        """Hear one request, unless another connection of the same invoker has replaced this one."""
        if line.to_node:
            for request in FrameBuffer().feed(line.to_node.popleft()):
                if not line.end._is_over:
                    line.end._take(request)

    def turn(self, *, dies: bool = False) -> None:
        """Carry out a batch, or die in the middle of it: before it is on disk, or before anybody hears of it."""
        batch = self.service.core.take(self.clock.now())
        if batch.writes is not None:
            self.disk.begin(batch.writes)
            if dies:
                event("the node died within a commit")
                self.disk.crash(kept=self.dice.random() < 0.5)
            else:
                self.disk.flush()
        if dies:
            self.die()
        else:
            self.service.deliver(batch.deliveries)

    def die(self) -> None:
        """Die, and start again: requests on their way to the node are lost, but its answers may still arrive."""
        self.gone += Counter(self.in_memory())
        for line in self.lines:
            line.to_node.clear()
            line.broken = True
        self.lines.clear()
        self.start()

    def begin_again(self) -> None:
        """Die, and begin with an empty store, because the old one is moved away."""
        self.gone += Counter(self.on_disk())
        self.disk = Disk()
        self.die()

    def on_disk(self) -> Iterator[bytes]:
        for row in self.disk.messages.values():
            yield _body(row.packet)

    def in_memory(self) -> Iterator[bytes]:
        for message in self.service.core.peek("notes", 10**6):
            yield _body(message.packet)

    def sent(self) -> Counter[bytes]:
        """Return how often each message was made, in this life and in earlier ones."""
        return Counter(self.on_disk()) + self.gone + Counter(self.in_memory())


def _body(packet: bytes) -> bytes:
    record = decode_packet(packet)
    assert isinstance(record, UserMessage)
    return record.properties.message_body


@dataclass
class Asked:
    """An operation without an outcome."""

    kind: str
    name: bytes
    data: bytes
    life: int | None = None


class Application:
    """Invokes operations as simulator/client/exchange.py does; an application with a journal outlives its process."""

    def __init__(self, name: str, node: Node, dice: random.Random, journal: Path | None) -> None:
        self.name = name
        self.node = node
        self.dice = dice
        self.path = journal
        self.held = ExitStack()
        self.kinds = [TRANSACTIONAL, REFUSED] if journal else [TRANSACTIONAL, EXPRESS, REFUSED]
        self.kind, self.run_length, self.fails = TRANSACTIONAL, 0, False
        self.count = 0
        self.names = dict[bytes, Asked]()
        """Everything that the application ever requested, keyed by body."""
        self.told = dict[bytes, bool]()
        """Whether each request was accepted or refused, keyed by body, as far as the application knows."""
        self.doubted = set[bytes]()
        """The requests for which nobody can know whether they were accepted."""
        self.start()

    def start(self) -> None:
        self.line: Line | None = None
        self.journal: Journal | None = None
        self.asked = dict[int, Asked]()
        if self.path is None:
            self.identity, self.birth = self.dice.randbytes(16), b""
            self.invoker = Invoker(control.PROFILE)
            return
        self.journal = self.held.enter_context(opened(self.path))
        self.identity, self.birth = self.journal.invoker, self.journal.birth
        self.invoker = Invoker(control.PROFILE, *self.journal.state())
        for pending in self.invoker.pending:
            wish = control.parameters(control.ControlFrame(pending.operation, 0, pending.parameter))
            self.asked[pending.identifier] = self.names[wish.drafts[0].body]
            self.asked[pending.identifier].life = 0

    def die(self) -> None:
        """Die: unflushed data of the journal is lost; without a journal, another application takes over."""
        if self.journal is not None:
            self.journal._ended.clear()
            self.journal._forgotten.clear()
        self.held.close()
        self.start()

    def connect(self) -> None:
        """Connect, and request again everything that has no answer, except operations that a dead node had only in
        memory.
        """
        if self.line is not None:
            return
        introduction = control.InvokerIntroduction(
            self.identity, self.journal is not None, self.invoker.following, self.birth
        )
        self.line = line = Line(self.node, introduction)
        self.node.lines.append(line)
        # What the node says of itself is on its disk before anybody hears it.
        self.node.turn()
        self.introduced(line.hello)
        assert not self.invoker.learn(line.hello.profile)
        for identifier, asked in list(self.asked.items()):
            if asked.kind == EXPRESS and asked.life not in (None, line.hello.life):
                event("an express message was in doubt")
                self.end(identifier)
            else:
                self.send(identifier)

    def introduced(self, hello: control.Hello) -> None:
        """Learn whether the node still knows us. If it has forgotten us, our requests are in doubt."""
        asked = {
            identifier: asked
            for identifier, asked in self.asked.items()
            if asked.life is not None and not hello.remembered
        }
        self.birth = hello.birth
        if self.journal is not None:
            doubt = control.failure(control.InDoubt("forgotten"))
            self.journal.belongs_to(hello.guid, hello.node, hello.birth, dict.fromkeys(asked, doubt))
        for identifier, each in asked.items():
            event("an operation of a forgotten client was in doubt")
            self.doubted.add(each.name)
            self.end(identifier)

    def hang_up(self) -> None:
        """Hang up: answers on their way to us are lost. Requests on their way to the node may still arrive."""
        if self.line is not None:
            self.line.broken = True
            self.line = None

    def begin(self) -> None:
        """Make a new request, with or without a connection; it is usually of the same kind as the last one."""
        if not self.invoker.may_begin:
            return
        if not self.run_length:
            self.kind, self.run_length = self.dice.choice(self.kinds), self.dice.choice([3, 40, 300])
            self.fails = self.dice.random() < 0.1
        self.run_length -= 1
        name = f"{self.name} {self.count}".encode()
        self.count += 1
        queue = ORDERS if self.kind == TRANSACTIONAL else NOTES
        draft = Draft(body=name, transactional=self.kind != EXPRESS)
        asked = Asked(self.kind, name, control.encode(control.Send(queue, [draft])))
        pending = self.invoker.begin(Operation.SEND, asked.data)
        if self.journal is not None:
            if self.fails:
                self.journal._db.execute("PRAGMA query_only = 1").close()
            try:
                self.journal.begin([(pending.identifier, Operation.SEND, asked.data, b"")])
            except StoreError:
                event("a journal could not be written")
                self.invoker.take_back(pending.identifier)
                return
            finally:
                if self.fails:
                    self.journal._db.execute("PRAGMA query_only = 0").close()
        self.names[name] = self.asked[pending.identifier] = asked
        self.send(pending.identifier)

    def send(self, identifier: int) -> None:
        if self.line is not None:
            asked = self.asked[identifier]
            asked.life = asked.life or self.line.hello.life
            frame = control.framed(Operation.SEND, identifier, asked.data, identifier)
            if not self.line.broken:
                self.line.to_node.append(frame)

    def hear(self) -> None:
        """Hear one answer, or the end of the connection."""
        if self.line is None:
            return
        if not self.line.to_client:
            if self.line.broken:
                self.line = None
            return
        [answer] = FrameBuffer().feed(self.line.to_client.popleft())
        if answer.request in self.asked:
            asked = self.asked[answer.request]
            try:
                control.result(Operation.SEND, answer)
            except UsageError:
                self.told[asked.name] = False
            else:
                self.told[asked.name] = True
            self.end(answer.request)
            if self.journal is not None:
                self.journal.end(answer.request, answer)

    def end(self, identifier: int) -> None:
        del self.asked[identifier]
        self.invoker.end(identifier)


class World:
    """A node and its clients."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.dice = dice = random.Random(seed)
        self.node = Node(dice)
        journals = dice.choice([[True], [False], [True, False, True]])
        self.applications = [
            Application(str(number), self.node, dice, folder / f"{number}.journal" if has_one else None)
            for number, has_one in enumerate(journals)
        ]
        kinds = ["hang up", "node dies", "application dies", "date jumps", "time passes", "store is moved"]
        self.faults = dice.sample(kinds, dice.randint(1, 4))
        self.fault_rate = dice.choice([0.003, 0.02, 0.1])

    def step(self) -> None:
        dice, node = self.dice, self.node
        application = dice.choice(self.applications)
        if dice.random() < 0.001:
            self.calm()
        if dice.random() < self.fault_rate:
            match dice.choice(self.faults):
                case "hang up":
                    application.hang_up()
                case "node dies":
                    node.turn(dies=True)
                case "date jumps":
                    node.clock.date_s = dice.choice([0, 1_700_000_000, 4 * 10**9])
                case "time passes":
                    if application.line is not None:
                        application.line.end.end()
                        node.service._leave(application.line.end)
                    application.hang_up()
                    node.clock.uptime_ms += 1_000 * dice.choice([LOOK_S, 2 * KEPT_S, 2 * LASTING_KEPT_S])
                case "store is moved":
                    node.begin_again()
                case _:
                    application.die()
            return
        burst = dice.choice([1, 1, 1, 10, 90])
        match dice.randrange(8):
            case 0 | 1:
                for _ in range(burst):
                    application.begin()
            case 2 | 3 if node.lines:
                # What lies on a connection that its client has given up comes very late.
                line = dice.choice(node.lines) if dice.random() < 0.01 else application.line
                for _ in range(burst):
                    node.hear(line or node.lines[0])
            case 4:
                node.turn()
            case 5 | 6:
                for _ in range(burst):
                    application.hear()
            case _:
                application.connect()

    def calm(self) -> None:
        """Let everything finish, without further failures."""
        while any(application.asked or not application.line for application in self.applications):
            for application in self.applications:
                application.connect()
            for line in self.node.lines:
                self.node.hear(line)
            self.node.turn()
            for application in self.applications:
                application.hear()

    def check(self) -> None:
        """Check that operations were carried out at most once; exactly once if so reported, never if refused."""
        sent = self.node.sent()
        for application in self.applications:
            for name, asked in application.names.items():
                assert sent[name] <= 1, f"{asked.kind} message {name!r} was sent {sent[name]} times"
                if name in application.told:
                    told = application.told[name]
                    assert told is (asked.kind != REFUSED)
                    assert sent[name] == told, (
                        f"{asked.kind} message {name!r}: told {told}, sent {sent[name]}"
                    )
                else:
                    is_open = asked in application.asked.values() or name in application.doubted
                    assert application.path is None or is_open, f"{name!r} is forgotten"


@pytest.mark.long
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=settings().max_examples // 5)
def test_whatever_breaks_or_dies_each_operation_is_carried_out_once_if_its_invoker_was_told_so(
    seed: int,
) -> None:
    """Duplicate Operation Detection Support: executed once and once only, and eventually the same outcome."""
    with memory_folder() as folder:
        world = World(seed, Path(folder))
        for _ in range(STEPS):
            world.step()
        world.check()
        world.calm()
        world.check()
        rounds = max(application.count for application in world.applications) // 256
        event(f"identifiers went round {rounds} times")
        for application in world.applications:
            application.held.close()

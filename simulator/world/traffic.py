"""What applications do: the kinds of messages that they send, and how they receive.

A kind of traffic is a row of `KINDS`: how its messages are sent, and what is promised for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from mqproto.applications import Destination
from mqproto.effects import Delivery
from mqproto.localqueues import QueueDeclaration
from mqproto.wire import MessageClass, guid_text
from simulator.world.scenario import Burst, Consumer, guid_of

if TYPE_CHECKING:
    from simulator.world.machine import Machine

ORDERS: Final = QueueDeclaration("orders", 16, transactional=True)
NOTES: Final = QueueDeclaration("notes", 17, transactional=False)
QUEUES: Final = (ORDERS, NOTES)
NOWHERE: Final = 99
"""The identifier of a queue that no node has."""


class Promise(Enum):
    """What is promised for a message."""

    ONCE_IN_ORDER = auto()
    """It is delivered exactly once, after all that were sent before it."""
    ONCE = auto()
    """It is delivered exactly once, while its identifier is remembered."""
    NOTHING = auto()
    """It may be lost in a crash, and then may come twice."""
    REFUSED = auto()
    """It cannot be delivered, and its sender is told why."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of messages.

    queue: the identifier of the destination queue.
    draft: how the message is sent, beside its body.
    direct: whether it goes by a direct format name, to a neighbour only.
    refusals: the classes with which it may be refused.
    """

    promise: Promise
    queue: int
    draft: Mapping[str, Any] = field(default_factory=dict)
    direct: bool = False
    refusals: frozenset[int] = frozenset()

    @property
    def transactional(self) -> bool:
        return bool(self.draft.get("transactional"))


KINDS: Final[Mapping[str, Kind]] = {
    "transactional": Kind(Promise.ONCE_IN_ORDER, ORDERS.identifier, {"transactional": True}),
    "final": Kind(Promise.ONCE_IN_ORDER, ORDERS.identifier, {"transactional": True, "final_ack": True}),
    "direct": Kind(Promise.ONCE_IN_ORDER, ORDERS.identifier, {"transactional": True}, direct=True),
    "recoverable": Kind(Promise.ONCE, NOTES.identifier, {"recoverable": True}),
    "express": Kind(Promise.NOTHING, NOTES.identifier),
    "misaddressed": Kind(
        Promise.REFUSED,
        NOWHERE,
        {"transactional": True},
        refusals=frozenset({MessageClass.NACK_BAD_DST_Q}),
    ),
    "misdirected": Kind(
        Promise.REFUSED,
        NOTES.identifier,
        {"transactional": True},
        refusals=frozenset({MessageClass.NACK_NOT_TRANSACTIONAL_Q}),
    ),
}


def destination(target: str, kind: Kind) -> Destination:
    """How an application names the queue that messages of a kind go to."""
    manager = guid_of(target)
    if kind.direct:
        name = next(queue.name for queue in QUEUES if queue.identifier == kind.queue)
        path = rf"TCP:{target}\private$\{name}"
        return Destination(f"DIRECT={path}", None, path, target)
    name = rf"PRIVATE={guid_text(manager)}\{kind.queue:X}"
    return Destination(name, manager, kind.queue)


@dataclass(slots=True, eq=False)
class Message:
    """One message of an application, and what has become of it."""

    burst: Burst
    kind: Kind
    identity: bytes
    body: bytes
    order: int = 0
    """Which message of its stream it is, counted when it was accepted."""
    accepted_ms: int = -1
    arrived_ms: int = -1
    """When it was first on its destination's disk, or in its memory if it is express."""
    arrivals: int = 0
    """How often it was put into its destination's queue."""
    receipts: int = 0
    """How often an application received it for good."""
    refusals: list[int] = field(default_factory=list)
    """The classes of the negative acknowledgments that were sent for it."""
    told: list[int] = field(default_factory=list)
    """The classes of those that its sender has noted."""

    def __str__(self) -> str:
        burst = self.burst
        return f"{burst.kind} message {self.body.split(b' ', 1)[0].decode()} from {burst.source} to {burst.target}"


def body_of(burst: Burst, number: int, index: int) -> bytes:
    """What message `index` of burst `number` says: which it is, then as many bytes as it should have."""
    return f"{number}.{index} ".encode().ljust(burst.size_bytes, b".")


class Application:
    """A consumer at work."""

    def __init__(self, number: int, consumer: Consumer, machine: Machine) -> None:
        self.number = number
        self.consumer = consumer
        self.is_calm = False
        """In the calm it neither rests nor gives anything back."""
        self._machine = machine
        self._turn = 0
        self._asking = False

    def ask(self) -> None:
        """Ask for messages; they come when there are some."""
        core, consumer = self._machine.core, self.consumer
        if core is not None and not self._asking:
            self._asking = True
            core.consume(self.number, consumer.queue, consumer.limit, transactional=consumer.transactional)

    def restarted(self) -> None:
        """The node is up again; it knows nothing of what it gave us."""
        self._asking = False
        self.ask()

    def given(self, delivery: Delivery) -> None:
        """Messages came: work on them, and settle after that."""
        machine, consumer = self._machine, self.consumer
        messages = [machine.ledger.handed_out(machine, received.packet) for received in delivery.messages]
        self._turn += 1
        if not consumer.transactional:
            self._rest()
        elif consumer.hold_ms and not self.is_calm:
            machine.later(consumer.hold_ms, self._settle, messages)
        else:
            machine.hear(machine.life, self._settle, messages)

    def _settle(self, messages: list[Message]) -> None:
        machine, consumer = self._machine, self.consumer
        core = machine.core
        assert core is not None
        if not self.is_calm and consumer.leaves_every and self._turn % consumer.leaves_every == 0:
            core.abandon(self.number, consumer.queue)
            machine.ledger.tally["consumer left"] += 1
        else:
            every = 0 if self.is_calm else consumer.rolls_back_every
            commit = not every or self._turn % every != 0
            core.settle(self.number, consumer.queue, machine.moment(), commit=commit)
            if commit:
                machine.receipts += messages
            else:
                machine.ledger.tally["rolled back"] += 1
        self._rest()

    def _rest(self) -> None:
        self._asking = False
        machine = self._machine
        if self.consumer.pause_ms and not self.is_calm:
            machine.later(self.consumer.pause_ms, self.ask)
        else:
            machine.hear(machine.life, self.ask)

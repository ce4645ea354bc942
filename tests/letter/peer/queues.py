"""The state of a queue manager: messages on their way, queues, and sequences in both directions. [MS-MQQB] 3.1.1.3"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from .packets import NO_SEQUENCE, Transaction, TxSequenceId, UserMessage


@dataclass(eq=False)
class Outgoing:
    """A message on its way: OutgoingMessagePosition.  [MS-MQQB] 3.1.1.3.1.2"""

    message: UserMessage
    transmitted: bool = False
    on_way: bool = False
    """Whether the message was sent and need not be resent; if false, it is sent when there is room."""


@dataclass(eq=False)
class Flight:
    """One transmission of a message on one session; neither of its numbers wraps here.  [MS-MQQB] 3.1.1.3.1.2"""

    entry: Outgoing
    number: int
    recoverable_number: int
    acknowledged: bool = False
    """ReceivedSessionAck: whether the message was acknowledged, and so takes up no room in the window."""


@dataclass(eq=False)
class Sequence:
    """One stream of transactional messages to a destination.  [MS-MQQB] 3.1.1.3.1.1, 3.1.1.5"""

    identifier: TxSequenceId
    next_number: int = 1
    last_number: int = 0
    """The number that the next message names as its predecessor."""
    interval_index: int = 0
    resend_at: float = inf
    batch_end: int = 0
    """The last number of a resent batch, while more messages are to follow that batch; otherwise 0."""


@dataclass(eq=False)
class OutgoingQueue:
    """Messages to one format name, in the order in which they leave."""

    name: str
    sequence: Sequence
    entries: list[Outgoing] = field(default_factory=list)
    hopeless: bool = False
    """Whether no address of the queue's destination is known.  [MS-MQQB] 3.1.5.2.1"""

    def add(self, entry: Outgoing) -> None:
        """Add a message after those with the same or a higher priority; transactional messages have priority
        0. [MS-MQMQ] 2.2.19.1
        """
        at = len(self.entries)
        while at and self.entries[at - 1].message.priority < entry.message.priority:
            at -= 1
        self.entries.insert(at, entry)

    def drop(self, entry: Outgoing) -> None:
        """Remove a message that nobody has accepted.  [MS-MQQB] 3.1.7.1.3

        The message after it then names the removed message's predecessor as its own.
        """
        self.entries.remove(entry)
        gone = entry.message.transaction
        if gone is None or gone.sequence != self.sequence.identifier:
            return
        if self.sequence.last_number == gone.number:
            self.sequence.last_number = gone.previous
        for later in self.transactional():
            there = later.message.transaction
            if there and there.sequence == gone.sequence and there.previous == gone.number:
                there.previous = gone.previous

    def transactional(self) -> Iterator[Outgoing]:
        return (entry for entry in self.entries if entry.message.transaction)

    def before(self, entry: Outgoing) -> int:
        """Return the TxSequenceNumber of the nearest earlier transactional message that is still in the queue; 0 if
        there is none.
        """
        number = 0
        for other in self.transactional():
            if other is entry:
                break
            assert other.message.transaction
            number = other.message.transaction.number
        return number


@dataclass(eq=False)
class Incoming:
    """The messages that have arrived from one source, for one queue, under one name.  [MS-MQQB] 3.1.5.8.6"""

    identifier: TxSequenceId = NO_SEQUENCE
    number: int = 0
    order_ack_at: float = inf
    order_ack_sent: float = -inf
    message: UserMessage | None = None
    """The last message that arrived; the OrderAck goes where that message came from."""

    def comes_next(self, it: Transaction) -> bool:
        if it.sequence == self.identifier:
            return it.previous <= self.number < it.number
        return it.sequence > self.identifier and it.previous == 0

    def advance(self, it: Transaction) -> None:
        self.identifier, self.number = it.sequence, it.number


@dataclass(eq=False)
class Queue:
    """A queue of this queue manager; `quota` is a number of messages."""

    name: str
    number: int
    transactional: bool = False
    quota: int = 1_000_000
    messages: list[UserMessage] = field(default_factory=list)

"""The decisions of a queue manager: one `Batch` of effects for all events since the last.

manager/carry.py carries a batch out, in the one order in which nothing is acknowledged, forwarded or handed out before
it is on disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final, NamedTuple

from mqproto.base.foreign import TEXT_LIMIT, shown
from mqproto.wire.guid import Guid

POSITION_BITS: Final = 40


def message_key(queue: int, position: int) -> int:
    """The store's key of a message: queue in the high bits, position in the low 40, so a queue is one range."""
    return queue << POSITION_BITS | position


class QueueKind(StrEnum):
    """The purpose of a stored queue; with its name it identifies the queue."""

    LOCAL = "local"
    """Applications receive from it. Name: the queue's own."""
    OUTGOING = "outgoing"
    """Express and recoverable messages on their way, our own and forwarded. Name: the destination."""
    SEQUENCE = "sequence"
    """Our own transactional messages to one destination queue, kept until their OrderAck. Name: the format name."""
    FINAL = "final"
    """AwaitingFinalACKTable: messages that had their OrderAck, no FinalAck yet. Position: the MessageID."""
    HELD = "held"
    """Messages of one incoming sequence that came early, behind a gap. Name: source queue manager, number of
    the local queue, and the sender's name for it."""
    ORDER = "order"
    """order_queue$: FinalAcks that came and were not acted upon yet."""
    BLOCKED = "blocked"
    """Not a queue, and empty. While it is on hold, nobody who connects from the network in its name gets an answer."""
    DECLARED = "declared"
    """Not a queue, and empty. While it is on hold, its name has what an operator has made of a local queue;
    queues/declarations.py writes it."""
    MET = "met"
    """Not a queue, and empty. While it is on hold, its name has all that is known about a peer that was met."""


class QueueRow(NamedTuple):
    """A queue that exists from now on. `queue` is its number in the store, 1 to 2**22.

    A local or an outgoing queue has one row for each priority of its messages.
    """

    queue: int
    kind: QueueKind
    name: str
    priority: int = 0
    on_hold: bool = False
    """Whether an operator has paused it."""


class MessageRow(NamedTuple):
    """A message to keep: the packet as it will be sent or handed out, without a SessionHeader."""

    key: int
    packet: bytes
    message_id: int
    final_ack: bool
    """Whether it is kept for a FinalAck after its OrderAck."""
    expires_s: int | None = None
    """The second, UTC, after which to look at it, because its time may be over."""


class HurtPacket(bytes):
    """The packet of a damaged message, as the store has it. The quarantine has the whole row, and the message
    stays until it is removed.

    message_id: from its row; 0 if that has none.
    """

    message_id = 0


class OutgoingRow(NamedTuple):
    """One outgoing sequence; `queue` is the number of its SEQUENCE queue.  [MS-MQQB] 3.1.1.3.1"""

    queue: int
    manager: Guid
    """The destination's queue manager; the null GUID if only a direct format name leads there."""
    time_stamp: int
    ordinal: int
    base: int
    """Message k of the sequence is at position base + k of the queue."""
    next_number: int
    last_ack: int
    saved_through: int
    """The highest position that the next hop has acknowledged; messages after it are sent anew after a restart."""
    sent_ceiling: int
    """No message after this position has ever been sent."""
    renumbered_through: int = 0
    """The packets up to this position contain other numbers than those they are sent with."""


class IncomingRow(NamedTuple):
    """One incoming sequence: the last message accepted from `source`; `queue` is the number of its HELD queue.
    [MS-MQDMPR] 3.1.1.5

    If a stranger's sequence gave up its place, `queue` is negative and `reply_host` is where it came from.
    """

    source: Guid
    queue: int
    time_stamp: int
    ordinal: int
    number: int
    reject_count: int
    last_access_s: int
    reply_host: str
    """The host that acknowledgments go to by a direct format name; empty if they go by the source's GUID."""


class IdentifierRow(NamedTuple):
    """One entry of the MessageIDHistoryTable.  [MS-MQQB] 3.1.1.3"""

    source: Guid
    ordinal: int
    time_stamp_s: int


LIFE: Final = "life"
MESSAGE_ID_CEILING: Final = "message_id_ceiling"
SEQUENCE_ORDINAL_CEILING: Final = "sequence_ordinal_ceiling"
COUNTERS_OF_LIFE: Final = (LIFE, MESSAGE_ID_CEILING, SEQUENCE_ORDINAL_CEILING)
"""Counters that the store keeps outside itself as well: the life that it is in, and the first MessageID, and
the first Ordinal of a TxSequenceID, that were not given yet."""

SEQUENCE_ORDINAL_FIRST: Final = "sequence_ordinal_first"
"""The first Ordinal of this life."""

SENT_EXPIRES: Final = "sent_expires"
"""1 if sent messages expired when the queue manager last ran (`expire_sent`), and all of them were looked through."""

QUEUE_IDENTIFIER: Final = "queue_identifier"
"""The first identifier that was not yet given to a queue that operators make."""

INVOKER_ITSELF: Final = 256
"""The `identifier` of a row that is about an invoker, and not about one of its operations."""


class OutcomeRow(NamedTuple):
    """The outcome of a numbered operation of a client.  "Duplicate Operation Detection Support"

    invoker: who invoked it.
    identifier: 0 to 255, or INVOKER_ITSELF.
    outcome: opaque to the queue manager and its store.
    lasting: whether the invoker survives its process, and may ask after a long time.
    performed_s: when it was performed, on a clock of the shell's own, which need not be UTC.
    """

    invoker: bytes
    identifier: int
    outcome: bytes
    lasting: bool
    performed_s: int


class FinalAckKept(NamedTuple):
    """Messages with keys first..last and `final_ack` move to queue `final_queue`, each to the position that
    is its message_id. The others are removed by an ordinary removal that follows."""

    first: int
    last: int
    final_queue: int


class Departure(NamedTuple):
    """Messages on disk that leave a local queue together, and why.

    message_class: what an application or an operator did with them, or that their time was over; NORMAL for a
        message that was sent back.
    again: the MessageID of the message that was sent in place of the one that left; 0 if none was.
    """

    queue: str
    message_class: int
    packets: list[bytes]
    again: int = 0


@dataclass(slots=True)
class Writes:
    """One transaction. The store applies the fields in the order in which they stand here.

    No key is used again while its last message may still be in the log or in the tables. A row for a state
    that exists already replaces it.
    """

    queues: list[QueueRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    finals: list[FinalAckKept] = field(default_factory=list)
    moves: list[tuple[int, int, int | None]] = field(default_factory=list)
    """A message's old key, its new one, and its `expires_s` from now on."""
    removals: list[tuple[int, int]] = field(default_factory=list)
    """Keys from first to last, both included; keys without a message are not an error."""
    lasting: list[int] = field(default_factory=list)
    """Keys of messages that have no `expires_s` any more; keys without a message are not an error."""
    outgoing: dict[int, OutgoingRow] = field(default_factory=dict)
    incoming: dict[tuple[Guid, int], IncomingRow | None] = field(default_factory=dict)
    """By source and queue; None for one that is no longer kept."""
    forgotten_identifiers: list[tuple[Guid, int, int]] = field(default_factory=list)
    """By source, the ordinals to forget, from first to last, both included; any of them may be unknown."""
    identifiers: list[IdentifierRow] = field(default_factory=list)
    """An identifier that is known already gets the new time."""
    counters: dict[str, int] = field(default_factory=dict)
    """Named numbers, such as the ceiling of the MessageIDs given out."""
    outcomes: dict[tuple[bytes, int], OutcomeRow | None] = field(default_factory=dict)
    """By invoker and identifier: the outcome of a numbered operation; None forgets it."""
    forgotten_invokers: list[bytes] = field(default_factory=list)
    """Invokers all of whose outcomes are forgotten."""
    departures: list[Departure] = field(default_factory=list)
    """Messages that leave local queues with this, for a shell that records some of them; no store keeps them."""

    def await_final_acks(self, queue: int, first: int, last: int, final_queue: int) -> None:
        """Have those messages of a queue between two positions that ask for a FinalAck wait for it."""
        self.finals.append(FinalAckKept(message_key(queue, first), message_key(queue, last), final_queue))

    def remove(self, queue: int, first: int, last: int) -> None:
        """Remove the messages of a queue from one position to another, both included."""
        low, high = message_key(queue, first), message_key(queue, last)
        if self.removals and self.removals[-1][1] + 1 == low:
            low = self.removals.pop()[0]
        self.removals.append((low, high))

    def remove_each(self, queue: int, positions: Iterable[int]) -> None:
        """Remove single messages of a queue, whose positions nearly always follow each other."""
        first = last = 0
        for position in positions:
            if position != last + 1 or not first:
                if first:
                    self.remove(queue, first, last)
                first = position
            last = position
        if first:
            self.remove(queue, first, last)

    def forget_identifiers(self, source: Guid, ordinals: Iterable[int]) -> None:
        """Forget the identifiers of a source's messages."""
        ranges = self.forgotten_identifiers
        for ordinal in sorted(ordinals):
            if ranges and ranges[-1][0] == source and ranges[-1][2] + 1 == ordinal:
                ranges[-1] = (source, ranges[-1][1], ordinal)
            else:
                ranges.append((source, ordinal, ordinal))

    def __bool__(self) -> bool:
        # The fields that most transactions have come first.
        return bool(
            self.messages
            or self.removals
            or self.incoming
            or self.outgoing
            or self.queues
            or self.finals
            or self.moves
            or self.lasting
            or self.forgotten_identifiers
            or self.identifiers
            or self.counters
            or self.outcomes
            or self.forgotten_invokers
        )


class StoredQueue(NamedTuple):
    """A store's data about one queue when it is opened. `first` and `last` are 0 if the queue is empty.

    last_used: no message gets this position or one before it. Messages that left may still be in the log or the tables.
    """

    queue: int
    kind: QueueKind
    name: str
    priority: int
    on_hold: bool
    message_count: int
    size_bytes: int
    first: int
    last: int
    last_used: int
    final_ack_count: int


class NewLife(NamedTuple):
    """The store begins a life: it is empty, or may be from an earlier moment than what peers have heard from this node.

    The life has begun when the counters of COUNTERS_OF_LIFE, which the queue manager writes with its first transaction,
    are on disk; until then each start reports it again.

    number: how many lives there were, this one included.
    first_message_id: the ordinal at which MessageIDs begin, far from those that an earlier life can have given.
    first_sequence_ordinal: the first Ordinal that no TxSequenceID of an earlier life can have; 0 if not known.
    is_restored: whether the store has contents, all of which may have been delivered already, or changed since.
    """

    number: int
    first_message_id: int
    first_sequence_ordinal: int = 0
    is_restored: bool = False


@dataclass(slots=True)
class StoredState:
    """All that a queue manager must know about its store when it starts. Messages stay on disk, except those
    that it keeps in memory as long as they wait."""

    queues: list[StoredQueue] = field(default_factory=list)
    resident: list[tuple[int, bytes]] = field(default_factory=list)
    """Key and packet of each message in a HELD or ORDER queue."""
    hurt: list[tuple[int, HurtPacket]] = field(default_factory=list)
    """Key and packet of each such message that is damaged."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of keys, first and last included, that are missing between the first and the last of a SEQUENCE queue."""
    outgoing: list[OutgoingRow] = field(default_factory=list)
    incoming: list[IncomingRow] = field(default_factory=list)
    identifiers: list[IdentifierRow] = field(default_factory=list)
    """The oldest first."""
    counters: dict[str, int] = field(default_factory=dict)
    outcomes: list[OutcomeRow] = field(default_factory=list)
    dice: int = 0
    """A number from the shell, another one each time the store is opened."""
    life: NewLife | None = field(default=None, compare=False)
    """None if the store's last life goes on. This is about the store, and not about its contents."""


class ReadBy(Enum):
    """The part that asked for a page, and gets it."""

    WINDOW = auto()
    """The queue, which hands on its messages in order."""
    RESEND = auto()
    """A sequence that sends messages again."""
    OUTCOME = auto()
    """A FinalAck or an OrderAck, for the one message that it decides."""
    EXPIRY = auto()
    """The search for messages whose time is over and that have no `expires_s`."""
    PURGE = auto()


class ReadPage(NamedTuple):
    """Asks for the messages of a queue after a position, in order: as many as fit both limits, but at least one.

    The answer is `QueueManager.loaded(page, rows)` with rows of (position, packet, final_ack). It is a prefix of what
    the store has there: no message is left out as too large while a later one is in, because the queue goes on behind
    the last row. No rows mean that there is nothing. A damaged packet is a `HurtPacket`.
    """

    queue: int
    after: int
    limit_messages: int
    limit_bytes: int
    reader: ReadBy


class ReadExpired(NamedTuple):
    """Asks for the messages with the lowest `expires_s`, in that order: as many as fit both limits, but at least one.

    The answer is `QueueManager.loaded(page, rows)` with rows of (key, packet, final_ack).
    """

    limit_messages: int
    limit_bytes: int


class ReadSequences(NamedTuple):
    """Asks for the incoming sequences of a source whose `queue` is from first to last, 1,024 at most.

    The answer is `QueueManager.found(read, rows)`. They gave up their places: mqproto/transfer/places.py.
    """

    source: Guid
    first: int
    last: int


class Waiting(NamedTuple):
    """A message of a queue, in memory because its turn comes soon."""

    position: int
    packet: bytes
    final_ack: bool
    stored: bool
    """Whether the store has it too; an express message is stored only if memory ran short."""
    expires_s: int | None = None
    """Its `MessageRow.expires_s`; None means that its time is never over, without a look at the packet."""


class OpenTransport(NamedTuple):
    """Connect; then call `QueueManager.opened` or, if it fails, `QueueManager.lost`.

    tls: the queue manager whose pinned certificate the other end has to show; None for a plain connection.
    avoid: the host's address that is tried last, because no queue manager was found there the last time.
    """

    session: int
    host: str
    port: int
    tls: Guid | None = None
    avoid: str = ""


class SendPing(NamedTuple):
    """Send this datagram to a UDP port, from a port that is not our ping port.  [MS-MQQB] 2.1.2

    Any answer from there goes to `QueueManager.ping_answered`; if the datagram cannot be sent, call
    `QueueManager.lost`. After a second, no answer is awaited any more.
    """

    session: int
    host: str
    port: int
    datagram: bytes


class SendBytes(NamedTuple):
    """Bytes to write to a session's transport, in order."""

    session: int
    chunks: list[bytes]


class CloseTransport(NamedTuple):
    """Close the transport; the session is gone already. There is nothing to answer.  [MS-MQQB] 3.1.5.9"""

    session: int
    section: str
    reason: str


UNKNOWN_COUNT: Final = -1
"""The delivery count of a message that may have been handed out before a crash."""


class Received(NamedTuple):
    """One message handed to an application; `key` is its name while it is in the queue.

    delivery_count: how often it was handed out, this time included; UNKNOWN_COUNT if the store had it when it
        was opened.
    """

    key: int
    packet: bytes
    delivery_count: int = 1


class Delivery(NamedTuple):
    """Messages for a consumer that asked with `QueueManager.consume`."""

    consumer: int
    queue: str
    messages: list[Received]


class Trace(NamedTuple):
    """The trace of a message, as its sender says: the two headers of [Trace Context] 3.2 and 3.3."""

    parent: str
    state: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Something an operator may want to know, as a line of the log.

    `name` is a word to search for, such as `session-closed`; `facts` are its values. A peer may have written part of a
    fact: each is one line of 600 characters at most, and holds nothing that a terminal would obey.
    """

    name: str
    facts: dict[str, str | int]
    trace: Trace | None = None
    """The message's trace, if this is a step of a message that is followed."""

    def __post_init__(self) -> None:
        facts = {
            fact: shown(value, TEXT_LIMIT) if isinstance(value, str) else value
            for fact, value in self.facts.items()
        }
        object.__setattr__(self, "facts", facts)


@dataclass(slots=True)
class Batch:
    """Everything decided since the last `take`; see the module for the order to carry it out."""

    writes: Writes | None = None
    reads: list[ReadPage | ReadExpired | ReadSequences] = field(default_factory=list)
    pings: list[SendPing] = field(default_factory=list)
    connects: list[OpenTransport] = field(default_factory=list)
    sends: list[SendBytes] = field(default_factory=list)
    closes: list[CloseTransport] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    deadline_ms: int | None = None
    """Call `QueueManager.tick` when the uptime clock shows this."""

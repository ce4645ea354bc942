"""The decisions of a queue manager: one `Batch` of effects for all events since the previous batch.

manager/carry.py carries out a batch in an order that ensures that no message is acknowledged, forwarded or handed out
before it is on disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final, NamedTuple

from mqproto.base.foreign import TEXT_LIMIT, shown
from mqproto.wire.guid import Guid

POSITION_BITS: Final = 40
LAST_POSITION: Final = (1 << POSITION_BITS) - 1
"""The greatest position in a queue, and the mask of the bits of a key that have the position."""


def message_key(queue: int, position: int) -> int:
    """The store's key of a message: queue in the high bits, position in the low 40. So a queue is one range of keys."""
    return queue << POSITION_BITS | position


class QueueKind(StrEnum):
    """The purpose of a stored queue. Kind and name together identify the queue."""

    LOCAL = "local"
    """Applications receive from it. Name: the queue's own name."""
    OUTGOING = "outgoing"
    """Express and recoverable messages on their way, both our own and forwarded ones. Name: the destination."""
    SEQUENCE = "sequence"
    """Our own transactional messages to one destination queue, kept until their OrderAck. Name: the format name."""
    FINAL = "final"
    """AwaitingFinalACKTable: messages that have their OrderAck and await a FinalAck. Position: the MessageID."""
    HELD = "held"
    """Messages of one incoming sequence that came early, behind a gap. Name: source queue manager, number of
    the local queue, and the sender's name for it."""
    ORDER = "order"
    """order_queue$: FinalAcks that came and have not been acted on yet."""
    BLOCKED = "blocked"
    """Not a queue, and empty. While it is on hold, connections from the network in its name get no answer."""
    DECLARED = "declared"
    """Not a queue, and empty. While it is on hold, its name contains an operator's changes to a local queue;
    queues/declarations.py writes it.
    """
    MET = "met"
    """Not a queue, and empty. While it is on hold, its name contains the data about a peer that was met."""


class QueueRow(NamedTuple):
    """A queue that exists from now on. `queue` is its number in the store, from 1 to 2**22.

    A local or an outgoing queue has one row for each priority of its messages.
    """

    queue: int
    kind: QueueKind
    name: str
    priority: int = 0
    on_hold: bool = False
    """Whether an operator has paused the queue."""


class MessageRow(NamedTuple):
    """A message of a queue: the packet as it will be sent or handed out, without a SessionHeader.

    It is made once, when the message joins. The store has it, and so does the queue when the message's turn is near.

    message_id: the MessageID, by which the store finds it; 0 if it was read back for its turn.
    final_ack: whether the message is kept for a FinalAck after its OrderAck.
    expires_s: the second, UTC, after which to check whether its time is over; None if it never expires, so its packet
        need not be read.
    stored: whether the store has it; an express message is stored only if memory ran short.
    """

    key: int
    packet: bytes
    message_id: int
    final_ack: bool
    expires_s: int | None = None
    stored: bool = True

    @property
    def position(self) -> int:
        """Its position in its queue."""
        return self.key & LAST_POSITION

    @property
    def queue(self) -> int:
        """The number of its queue in the store."""
        return self.key >> POSITION_BITS


class HurtPacket(bytes):
    """The packet of a damaged message, as stored. The quarantine has the whole row, and the message stays until it is
    removed.

    message_id: the MessageID in its row; 0 if the row has none.
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
    """The highest position that the next hop has acknowledged; later messages are sent again after a restart."""
    sent_ceiling: int
    """No message after this position has ever been sent."""
    renumbered_through: int = 0
    """Up to this position, the stored packets have other numbers than the ones they are sent with."""


class IncomingRow(NamedTuple):
    """One incoming sequence: the last message accepted from `source`; `queue` is the number of its HELD queue.
    [MS-MQDMPR] 3.1.1.5

    If a stranger's sequence gave up its place, `queue` is negative and `reply_host` is the stranger's host.
    """

    source: Guid
    queue: int
    time_stamp: int
    ordinal: int
    number: int
    reject_count: int
    last_access_s: int
    reply_host: str
    """The host for acknowledgments by a direct format name; empty if they go by the source's GUID."""


class IdentifierRow(NamedTuple):
    """One entry of the MessageIDHistoryTable.  [MS-MQQB] 3.1.1.3"""

    source: Guid
    ordinal: int
    time_stamp_s: int


LIFE: Final = "life"
MESSAGE_ID_CEILING: Final = "message_id_ceiling"
SEQUENCE_ORDINAL_CEILING: Final = "sequence_ordinal_ceiling"
COUNTERS_OF_LIFE: Final = (LIFE, MESSAGE_ID_CEILING, SEQUENCE_ORDINAL_CEILING)
"""The names of counters that the store also keeps outside its files: its present life, the first MessageID that was not
given yet, and the first Ordinal of a TxSequenceID that was not given yet.
"""

SEQUENCE_ORDINAL_FIRST: Final = "sequence_ordinal_first"
"""The name of the counter that has the first Ordinal of this life."""

SENT_EXPIRES: Final = "sent_expires"
"""The name of a counter: 1 if sent messages expired when the queue manager last ran (`expire_sent`), and all were
examined.
"""

QUEUE_IDENTIFIER: Final = "queue_identifier"
"""The name of the counter with the first identifier not yet given to a queue that an operator made."""

INVOKER_ITSELF: Final = 256
"""The `identifier` of a row that is about an invoker, and not about one of its operations."""


class OutcomeRow(NamedTuple):
    """The outcome of a numbered operation of a client.  "Duplicate Operation Detection Support"

    invoker: the invoker of the operation.
    identifier: 0 to 255, or INVOKER_ITSELF.
    outcome: opaque to the queue manager and its store.
    lasting: whether the invoker survives its process, and may ask after a long time.
    performed_s: when it was performed, on the shell's clock, which need not be UTC.
    """

    invoker: bytes
    identifier: int
    outcome: bytes
    lasting: bool
    performed_s: int


class FinalAckKept(NamedTuple):
    """Moves the messages with keys from `first` to `last` that have `final_ack` to the queue `final_queue`; the
    position of each is its message_id. The others are removed by an ordinary removal that follows.
    """

    first: int
    last: int
    final_queue: int


class Departure(NamedTuple):
    """Messages on disk that leave a local queue together, and why.

    message_class: the reason: an application's or an operator's action, or that their time was over; NORMAL for
        a message that was sent back.
    again: the MessageID of the message that was sent instead of the departed one; 0 if none was.
    """

    queue: str
    message_class: int
    packets: list[bytes]
    again: int = 0


@dataclass(slots=True)
class Writes:
    """One transaction. The store applies the fields in the order in which they are listed here.

    No key is used again while the last message with it may still be in the log or in the tables. A new row replaces an
    existing row for the same thing.
    """

    queues: list[QueueRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    finals: list[FinalAckKept] = field(default_factory=list)
    moves: list[tuple[int, int, int | None]] = field(default_factory=list)
    """For each message that moves, its old key, its new key, and its new `expires_s`."""
    removals: list[tuple[int, int]] = field(default_factory=list)
    """First and last key of ranges to remove, both included; keys without a message are not an error."""
    lasting: list[int] = field(default_factory=list)
    """Keys of messages that no longer have an `expires_s`; keys without a message are not an error."""
    outgoing: dict[int, OutgoingRow] = field(default_factory=dict)
    incoming: dict[tuple[Guid, int], IncomingRow | None] = field(default_factory=dict)
    """By source and queue; None for a sequence that is no longer kept."""
    forgotten_identifiers: list[tuple[Guid, int, int]] = field(default_factory=list)
    """By source, the ordinals to forget, from first to last, both included; any of them may be unknown."""
    identifiers: list[IdentifierRow] = field(default_factory=list)
    """Identifiers to add; if one is already known, it gets the new time."""
    counters: dict[str, int] = field(default_factory=dict)
    """Named numbers, such as the ceiling of the MessageIDs given out."""
    outcomes: dict[tuple[bytes, int], OutcomeRow | None] = field(default_factory=dict)
    """By invoker and identifier: the outcome of a numbered operation; None forgets it."""
    forgotten_invokers: list[bytes] = field(default_factory=list)
    """Invokers all of whose outcomes are forgotten."""
    departures: list[Departure] = field(default_factory=list)
    """Messages that leave local queues in this transaction, for shells that record some of them. No store keeps them.
    """

    def await_final_acks(self, queue: int, first: int, last: int, final_queue: int) -> None:
        """Make those messages of a queue between two positions that ask for a FinalAck wait for it."""
        self.finals.append(FinalAckKept(message_key(queue, first), message_key(queue, last), final_queue))

    def remove(self, queue: int, first: int, last: int) -> None:
        """Remove the messages of a queue from one position to another, both included."""
        self._remove(message_key(queue, first), message_key(queue, last))

    def _remove(self, low: int, high: int) -> None:
        if self.removals and self.removals[-1][1] + 1 == low:
            low = self.removals.pop()[0]
        self.removals.append((low, high))

    def remove_each(self, keys: Iterable[int]) -> None:
        """Remove single messages by their keys, which are nearly always consecutive."""
        first = last = 0
        for key in keys:
            if key != last + 1 or not first:
                if first:
                    self._remove(first, last)
                first = key
            last = key
        if first:
            self._remove(first, last)

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
    """A store's data about one queue when the store is opened. `first` and `last` are 0 if the queue is empty.

    last_used: new messages get positions after this. Messages that left may still be in the log or the tables.
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
    """The store begins a new life: it is empty, or may be older than messages that peers have received from this node.

    The life has begun when the counters of COUNTERS_OF_LIFE, which the queue manager writes with its first transaction,
    are on disk; until then each start reports it again.

    number: the number of lives, including this one.
    first_message_id: the ordinal at which MessageIDs begin, far from those that an earlier life may have given.
    first_sequence_ordinal: the first Ordinal that no TxSequenceID of an earlier life can have; 0 if that is not known.
    is_restored: whether the store has contents, which may all have been delivered already, or changed since.
    """

    number: int
    first_message_id: int
    first_sequence_ordinal: int = 0
    is_restored: bool = False


@dataclass(slots=True)
class StoredState:
    """Everything that a queue manager must know about its store when it starts. Messages stay on disk, except in queues
    whose messages stay in memory as long as they wait.
    """

    queues: list[StoredQueue] = field(default_factory=list)
    resident: list[tuple[int, bytes]] = field(default_factory=list)
    """Key and packet of each message in a HELD or ORDER queue."""
    hurt: list[tuple[int, HurtPacket]] = field(default_factory=list)
    """Key and packet of each damaged message in these queues."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of keys, first and last included, that are missing between the first and the last of a SEQUENCE queue."""
    outgoing: list[OutgoingRow] = field(default_factory=list)
    incoming: list[IncomingRow] = field(default_factory=list)
    identifiers: list[IdentifierRow] = field(default_factory=list)
    """The entries of the MessageIDHistoryTable, the oldest first."""
    counters: dict[str, int] = field(default_factory=dict)
    outcomes: list[OutcomeRow] = field(default_factory=list)
    dice: int = 0
    """A number from the shell, different each time the store is opened."""
    life: NewLife | None = field(default=None, compare=False)
    """None if the store's last life continues. It describes the store rather than its contents."""


class ReadBy(Enum):
    """The part that asked for a page, and gets it."""

    WINDOW = auto()
    """The queue, which sends or hands out its messages in order."""
    RESEND = auto()
    """A sequence, to send messages again."""
    OUTCOME = auto()
    """A FinalAck or an OrderAck, to get the one message that it decides."""
    EXPIRY = auto()
    """The search for messages whose time is over and that have no `expires_s`."""
    PURGE = auto()


class ReadPage(NamedTuple):
    """Asks for the messages of a queue after a position, in order: as many as fit both limits, but at least one.

    The answer is `QueueManager.loaded(page, rows)` with rows of (position, packet, final_ack). A message is never left
    out because of its size while a later one is included, because the queue continues after the last row. If there are
    no rows, the queue has no message after the position. A damaged packet is a `HurtPacket`.
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
    """Asks for the incoming sequences of a source whose `queue` is from first to last, at most 1,024 of them.

    The answer is `QueueManager.found(read, rows)`. These sequences gave up their places (see
    mqproto/transfer/places.py).
    """

    source: Guid
    first: int
    last: int


class OpenTransport(NamedTuple):
    """Connect; then call `QueueManager.opened` or, if it fails, `QueueManager.lost`.

    tls: the queue manager whose pinned certificate the other end has to show; None for a plain connection.
    avoid: the host's address to try last, because no queue manager was found there last time.
    """

    session: int
    host: str
    port: int
    tls: Guid | None = None
    avoid: str = ""


class SendPing(NamedTuple):
    """Send this datagram to a UDP port, from a port that is not our ping port.  [MS-MQQB] 2.1.2

    Any answer from there goes to `QueueManager.ping_answered`; if the datagram cannot be sent, call
    `QueueManager.lost`. After a second, an answer is no longer awaited.
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
    """Close the transport; its session has already ended. No answer is expected.  [MS-MQQB] 3.1.5.9"""

    session: int
    section: str
    reason: str


UNKNOWN_COUNT: Final = -1
"""The delivery count of a message that may have been handed out before a crash."""


class Received(NamedTuple):
    """One message handed to an application; `key` is its name while it is in the queue.

    delivery_count: how often it was handed out, including this time; UNKNOWN_COUNT if it was in the store when the
    store was opened.
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
    """The trace of a message, as given by its sender: the two headers of [Trace Context] 3.2 and 3.3."""

    parent: str
    state: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Information for an operator, as a line of the log.

    `name` is a word to search for, such as `session-closed`; `facts` are its values. A peer may have written part of a
    fact, so each fact is one line of at most 600 characters, without terminal controls.
    """

    name: str
    facts: dict[str, str | int]
    trace: Trace | None = None
    """The message's trace, if the note is a step of a traced message."""

    def __post_init__(self) -> None:
        facts = {
            fact: shown(value, TEXT_LIMIT) if isinstance(value, str) else value
            for fact, value in self.facts.items()
        }
        object.__setattr__(self, "facts", facts)


@dataclass(slots=True)
class Batch:
    """All decisions since the last `take`; the module describes the order in which to carry them out."""

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

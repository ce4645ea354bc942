"""The decisions of a queue manager: one `Batch` of effects for all events since the previous batch.

manager/carry.py carries out a batch in an order which ensures that no message is acknowledged, forwarded or handed out
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
"""The highest position in a queue. It is also the mask for those bits of a key that hold the position."""


def message_key(queue: int, position: int) -> int:
    """Return the store's key of a message: the queue in the high bits, and the position in the low 40.

    So the keys of a queue form one range.
    """
    return queue << POSITION_BITS | position


class QueueKind(StrEnum):
    """What a stored queue is for. The kind and the name together identify the queue."""

    LOCAL = "local"
    """Applications receive from it. Its name is the queue's own name."""
    OUTGOING = "outgoing"
    """Express and recoverable messages on their way, our own and others'. It is named by destination."""
    SEQUENCE = "sequence"
    """Our own transactional messages to one destination queue, kept until their OrderAck.

    Its name is the format name of the destination queue.
    """
    FINAL = "final"
    """AwaitingFinalACKTable: messages that have their OrderAck and await a FinalAck.

    The position of a message is its MessageID.
    """
    HELD = "held"
    """Messages of one incoming sequence that arrived early, while earlier messages were missing.

    The queue's name consists of the source queue manager, the number that the local queue has, and the sender's name
    for the local queue.
    """
    ORDER = "order"
    """order_queue$: FinalAcks that have arrived and have not been acted on yet."""
    BLOCKED = "blocked"
    """Not really a queue, and always empty. It is named after a network.

    While the queue is on hold, connections and pings from that network get no answer.
    """
    DECLARED = "declared"
    """Not really a queue, and always empty.

    While it is on hold, its name contains an operator's changes to a local queue. queues/declarations.py writes the
    name.
    """
    MET = "met"
    """Not really a queue, and always empty.

    While it is on hold, its name contains the data about a peer that this queue manager has met.
    """


NO_QUEUES: Final = frozenset({QueueKind.BLOCKED, QueueKind.DECLARED, QueueKind.MET})
"""The kinds of stored queues that are not really queues."""


class QueueRow(NamedTuple):
    """A queue that exists from now on. `queue` is its number in the store, from 1 to 2**22.

    A local or outgoing queue has one row for each priority of its messages.
    """

    queue: int
    kind: QueueKind
    name: str
    priority: int = 0
    on_hold: bool = False
    """Whether an operator has paused the queue."""


UNKNOWN_COUNT: Final = -1
"""The delivery count of a message that may have been handed out before a crash."""


class MessageRow(NamedTuple):
    """A message in a queue: the packet as it will be sent or handed out, without a SessionHeader.

    This row is made once, when the message joins the queue. The store keeps the row; the queue also keeps it when the
    message's turn is near. Finally, the packet goes to the neighbour or to the application. `key` identifies the
    message while it is in the queue.

    message_id: the MessageID, by which the store finds it; 0 if the row was read back from the store.
    final_ack: whether the message is kept for a FinalAck after its OrderAck.
    expires_s: the second, UTC, after which to check whether it has expired; None if it never expires, so its packet
        need not be read.
    stored: whether the store has it; an express message is stored only if memory ran short.
    delivery_count: how many times it was handed out, including the delivery that is under way or comes next;
        UNKNOWN_COUNT if it was in the store when the store was opened.
    """

    key: int
    packet: bytes
    message_id: int
    final_ack: bool
    expires_s: int | None = None
    stored: bool = True
    delivery_count: int = 1

    @property
    def position(self) -> int:
        """Its position in its queue."""
        return self.key & LAST_POSITION

    @property
    def queue(self) -> int:
        """The number that its queue has in the store."""
        return self.key >> POSITION_BITS


class HurtPacket(bytes):
    """The packet of a damaged message, as stored.

    The whole row has been copied into the quarantine. The message stays in the store until the queue manager removes
    it.

    message_id: the MessageID in its row; 0 if the row has none.
    """

    message_id = 0


class OutgoingRow(NamedTuple):
    """One outgoing sequence; `queue` is the number of its SEQUENCE queue.  [MS-MQQB] 3.1.1.3.1"""

    queue: int
    manager: Guid
    """The destination's queue manager; the null GUID if it is known only by a direct format name."""
    time_stamp: int
    ordinal: int
    base: int
    """Message k of the sequence is at position base + k of the queue."""
    next_number: int
    last_ack: int
    saved_through: int
    """The highest position that the next hop has acknowledged. Later messages are resent after a restart."""
    sent_ceiling: int
    """No message after this position has ever been sent."""
    renumbered_through: int = 0
    """Up to this position, packets are sent with other numbers than they have in the store."""


class IncomingRow(NamedTuple):
    """One incoming sequence: the last accepted message from `source`.  [MS-MQDMPR] 3.1.1.5

    `queue` is the number that its HELD queue has. A stranger's sequence without a place in memory (transfer/places.py)
    has a negative `queue` instead, and the stranger's host in `reply_host`.
    """

    source: Guid
    queue: int
    time_stamp: int
    ordinal: int
    number: int
    reject_count: int
    last_access_s: int
    reply_host: str
    """The host to which acknowledgments go by a direct format name; empty if they go by the source's GUID."""


class IdentifierRow(NamedTuple):
    """One entry of the MessageIDHistoryTable.  [MS-MQQB] 3.1.1.3"""

    source: Guid
    ordinal: int
    time_stamp_s: int


LIFE: Final = "life"
MESSAGE_ID_CEILING: Final = "message_id_ceiling"
SEQUENCE_ORDINAL_CEILING: Final = "sequence_ordinal_ceiling"
COUNTERS_OF_LIFE: Final = (LIFE, MESSAGE_ID_CEILING, SEQUENCE_ORDINAL_CEILING)
"""The names of the counters that the store also keeps outside its files.

They are the number of the store's present life (see `NewLife`), the first MessageID not given yet, and the first
Ordinal of a TxSequenceID not given yet.
"""

SEQUENCE_ORDINAL_FIRST: Final = "sequence_ordinal_first"
"""The name of the counter for the first Ordinal that the store may give in its present life (see `NewLife`)."""

SENT_EXPIRES: Final = "sent_expires"
"""The name of a counter that says whether sent messages could expire in the last run (`expire_sent`).

It is 1 if they could, and if all sent messages had been examined for this.
"""

QUEUE_IDENTIFIER: Final = "queue_identifier"
"""The name of the counter for the first identifier not yet given to a queue that an operator made."""

POSTED_UNKNOWN: Final = "posted_unknown"
"""The name of a counter that says whether messages may have been posted of which the store knows nothing.

It is 1 if that is so, and no operator has accepted it.
"""
POSTED_LACKS_S: Final = "posted_lacks_s"
"""The name of the counter for the date, in UTC, on which an operator has accepted it last."""

INVOKER_ITSELF: Final = 256
"""The `identifier` of a row that is about an invoker itself, and not about one of its operations."""


class OutcomeRow(NamedTuple):
    """The outcome of a client's numbered operation.  "Duplicate Operation Detection Support"

    invoker: the invoker of the operation.
    identifier: the number that the operation has, 0 to 255, or INVOKER_ITSELF.
    outcome: opaque to the queue manager and its store.
    lasting: whether the invoker survives its process, and so may request the outcome much later.
    performed_s: when the operation was performed, on the shell's clock, which need not be UTC.
    """

    invoker: bytes
    identifier: int
    outcome: bytes
    lasting: bool
    performed_s: int


class PostedRow(NamedTuple):
    """A message that came over HTTP, from a producer that may hand it in again.  "OSB Rules"

    message_id: the MessageID, by which the row is named; this queue manager sent the message.
    queue: the name of the queue that it was posted to.
    key: the id that its producer gave it; empty for none.
    fingerprint: a digest of its content, which a repetition has as well.
    about: opaque to the queue manager and its store.
    changed_s: when the row last changed, on the shell's clock, which need not be UTC.
    message_class: the class of the acknowledgment that ended it; NORMAL if none has come.
    ended_s: when that acknowledgment was written, in UTC.
    owed: whether somebody has yet to be told about it: a URL of its end, or a database that queue managers share.
    """

    message_id: int
    queue: str
    key: str
    fingerprint: bytes
    about: bytes
    changed_s: int
    message_class: int = 0
    ended_s: int = 0
    owed: bool = False


class PostedChange(NamedTuple):
    """A change of a posted message's row: its end, or that nobody has to be told about it any more. No row is made for
    it.

    It is applied to the row as that is on disk: whoever settles a message may not know that it has ended meanwhile.

    message_class: NORMAL if it is not an end; `changed_s` and `ended_s` mean nothing then.
    is_settled: whether the row is owed no longer.
    """

    message_id: int
    changed_s: int
    message_class: int
    ended_s: int
    is_settled: bool = False


class FinalAckKept(NamedTuple):
    """Moves messages that have `final_ack`, with keys from `first` to `last`, to the queue `final_queue`.

    Each message's position there is its message_id. The messages without `final_ack` stay; an ordinary removal follows,
    and removes them.
    """

    first: int
    last: int
    final_queue: int


class Departure(NamedTuple):
    """Messages on disk that leave a local queue together, and why.

    message_class: the reason: an application's or an operator's action, or the expiry of the messages; NORMAL for a
        message that was sent back.
    again: the MessageID of the message that was sent in place of the departed one; 0 if none was.
    """

    queue: str
    message_class: int
    packets: list[bytes]
    again: int = 0


@dataclass(slots=True)
class Writes:
    """One transaction. The store applies the fields in the order in which they are listed here.

    No key is used again while the last message that had it may still be in the log or in the tables. A new row replaces
    an existing row for the same thing.
    """

    queues: list[QueueRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    finals: list[FinalAckKept] = field(default_factory=list)
    moves: list[tuple[int, int, int | None]] = field(default_factory=list)
    """For each message that moves, its old key, its new key, and its new `expires_s`."""
    removals: list[tuple[int, int]] = field(default_factory=list)
    """The first and last key of each range to remove, both inclusive.

    Keys without a message are not an error.
    """
    lasting: list[int] = field(default_factory=list)
    """The keys of messages that no longer have an `expires_s`. Keys without a message are not an error."""
    outgoing: dict[int, OutgoingRow] = field(default_factory=dict)
    incoming: dict[tuple[Guid, int], IncomingRow | None] = field(default_factory=dict)
    """The changed rows, by source and queue; None for a sequence that is no longer kept."""
    forgotten_identifiers: list[tuple[Guid, int, int]] = field(default_factory=list)
    """Ranges of ordinals to forget, each with its source; the first and the last ordinal are included.

    Any of the ordinals may be unknown.
    """
    identifiers: list[IdentifierRow] = field(default_factory=list)
    """Identifiers to add. If one of them is already known, it gets the new time."""
    counters: dict[str, int] = field(default_factory=dict)
    """Named numbers, such as the ceiling of the MessageIDs given out."""
    outcomes: dict[tuple[bytes, int], OutcomeRow | None] = field(default_factory=dict)
    """The outcomes of numbered operations, by invoker and identifier; None if one is to be forgotten."""
    forgotten_invokers: list[bytes] = field(default_factory=list)
    """The invokers whose outcomes are all to be forgotten."""
    posted: list[PostedRow] = field(default_factory=list)
    changes: list[PostedChange] = field(default_factory=list)
    departures: list[Departure] = field(default_factory=list)
    """The messages that leave local queues in this transaction.

    They are for shells that record some of them; stores ignore this field.
    """

    def await_final_acks(self, queue: int, first: int, last: int, final_queue: int) -> None:
        """Make messages of a queue wait for a FinalAck, if they ask for one.

        first, last: the positions of the first message and of the last, both inclusive.
        """
        self.finals.append(FinalAckKept(message_key(queue, first), message_key(queue, last), final_queue))

    def remove(self, queue: int, first: int, last: int) -> None:
        """Remove the messages of a queue from one position to another, both inclusive."""
        self._remove(message_key(queue, first), message_key(queue, last))

    def _remove(self, low: int, high: int) -> None:
        if self.removals and self.removals[-1][1] + 1 == low:
            low = self.removals.pop()[0]
        self.removals.append((low, high))

    def remove_each(self, keys: Iterable[int]) -> None:
        """Remove individual messages by their keys. These are nearly always consecutive."""
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
            or self.posted
            or self.changes
        )


class StoredQueue(NamedTuple):
    """What a store knows about one queue when it is opened. `first` and `last` are 0 for an empty queue.

    last_used: new messages get positions after this one. Messages that have left may still be in the log or the tables.
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
    """A new life that the store begins.

    The store is empty, or its contents may be older than messages that peers have received from this node. The life has
    begun when the counters of COUNTERS_OF_LIFE are on disk; the queue manager writes them with its first transaction.
    Until then, each start reports the new life again.

    number: the number of lives, including this one.
    first_message_id: the ordinal at which MessageIDs begin, far from those that an earlier life may have given.
    first_sequence_ordinal: the first Ordinal that no TxSequenceID of an earlier life can have; 0 if that is not known.
    is_restored: whether the store has contents. These may all have been delivered already, or changed since.
    """

    number: int
    first_message_id: int
    first_sequence_ordinal: int = 0
    is_restored: bool = False


@dataclass(slots=True)
class StoredState:
    """Everything that a queue manager must know about its store when it starts.

    Messages stay on disk, except in those queues whose messages stay in memory as long as they wait.
    """

    queues: list[StoredQueue] = field(default_factory=list)
    resident: list[tuple[int, bytes]] = field(default_factory=list)
    """The key and the packet of each message in a HELD or ORDER queue."""
    hurt: list[tuple[int, HurtPacket]] = field(default_factory=list)
    """The key and the packet of each damaged message in a HELD or ORDER queue."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of keys, first and last inclusive, that are missing between the ends of a SEQUENCE queue."""
    outgoing: list[OutgoingRow] = field(default_factory=list)
    incoming: list[IncomingRow] = field(default_factory=list)
    identifiers: list[IdentifierRow] = field(default_factory=list)
    """The entries of the MessageIDHistoryTable, the oldest first."""
    counters: dict[str, int] = field(default_factory=dict)
    outcomes: list[OutcomeRow] = field(default_factory=list)
    dice: int = 0
    """A number from the shell, different each time the store is opened."""
    life: NewLife | None = field(default=None, compare=False)
    """The new life that the store begins; None if its last life continues.

    Comparisons ignore this field, because it is not part of the store's contents.
    """


class ReadBy(Enum):
    """The part of the queue manager that asked for a page, and gets it."""

    WINDOW = auto()
    """The queue itself: it sends or hands out its messages in order."""
    RESEND = auto()
    """A sequence: it sends messages again."""
    OUTCOME = auto()
    """The handling of a FinalAck or an OrderAck, which needs only the one message that is concerned."""
    EXPIRY = auto()
    """The search for expired messages that have no `expires_s`."""
    PURGE = auto()


class ReadPage(NamedTuple):
    """Asks for the messages of a queue after a position, in order.

    The answer is `QueueManager.loaded(page, rows)`, with rows of (position, packet, final_ack). It has as many messages
    as fit both limits, but at least one. A message is never left out because of its size while a later one is included,
    because the queue continues after the last row. If there are no rows, the queue has no message after the position. A
    damaged packet is a `HurtPacket`.
    """

    queue: int
    after: int
    limit_messages: int
    limit_bytes: int
    reader: ReadBy


class ReadExpired(NamedTuple):
    """Asks for the messages with the lowest `expires_s`, in that order.

    The answer has as many messages as fit both limits, but at least one. It is `QueueManager.loaded(page, rows)`, with
    rows of (key, packet, final_ack).
    """

    limit_messages: int
    limit_bytes: int


class ReadSequences(NamedTuple):
    """Asks for up to 1,024 incoming sequences of a source: those whose `queue` is from `first` to `last`.

    The answer is `QueueManager.found(read, rows)`. These sequences gave up their places (see
    mqproto/transfer/places.py).
    """

    source: Guid
    first: int
    last: int


class OpenTransport(NamedTuple):
    """Connect, and then call `QueueManager.opened`, or `QueueManager.lost` if connecting fails.

    tls: the queue manager whose pinned certificate the other end must show; None for a plain connection.
    avoid: the address of the host that is to be tried after all others, because the previous attempt found no queue
        manager there; empty for none.
    """

    session: int
    host: str
    port: int
    tls: Guid | None = None
    avoid: str = ""


class SendPing(NamedTuple):
    """Send this datagram to a UDP port, from a port that is not our ping port.  [MS-MQQB] 2.1.2

    Any answer from there goes to `QueueManager.ping_answered`. If the datagram cannot be sent, call
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


class Delivery(NamedTuple):
    """Messages for a consumer that asked for some with `QueueManager.consume`."""

    consumer: int
    queue: str
    messages: list[MessageRow]


class Trace(NamedTuple):
    """The trace of a message, as its sender gave it: the two headers of [Trace Context] 3.2 and 3.3."""

    parent: str
    state: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Information for an operator, which becomes a line of the log.

    `name` is a word to search for, such as `session-closed`, and `facts` are the values that belong to it. A peer may
    have written part of a fact, so each fact is one line of at most 600 characters, without terminal controls.
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
    """All decisions since the last `take`. The module's docstring says in which order to carry them out."""

    writes: Writes | None = None
    reads: list[ReadPage | ReadExpired | ReadSequences] = field(default_factory=list)
    pings: list[SendPing] = field(default_factory=list)
    connects: list[OpenTransport] = field(default_factory=list)
    sends: list[SendBytes] = field(default_factory=list)
    closes: list[CloseTransport] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    deadline_ms: int | None = None
    """The time on the uptime clock at which to call `QueueManager.tick`."""

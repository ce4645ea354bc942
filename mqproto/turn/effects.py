"""What a queue manager decided: one `Batch` of effects for all that was fed to it since the last.

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
    """The store's key of a message: queue in the high bits, position in the low 40, so that a queue is one range."""
    return queue << POSITION_BITS | position


class QueueKind(StrEnum):
    """What a stored queue is for; with its name it identifies the queue."""

    LOCAL = "local"
    """Applications receive from it. Name: the queue's own."""
    OUTGOING = "outgoing"
    """Express and recoverable messages on their way, our own and forwarded. Name: where to."""
    SEQUENCE = "sequence"
    """Our own transactional messages to one destination queue, kept until their OrderAck. Name: the format name."""
    FINAL = "final"
    """AwaitingFinalACKTable: had their OrderAck, wait for their FinalAck. Position: the MessageID."""
    HELD = "held"
    """What came early, behind a gap, of one incoming sequence. Name: source queue manager, number of the local queue,
    and how the sender names it."""
    ORDER = "order"
    """order_queue$: FinalAcks that came and were not acted upon yet."""
    BLOCKED = "blocked"
    """No queue, and empty. Nobody who connects from the network that is its name gets an answer while it is on hold."""
    DECLARED = "declared"
    """No queue, and empty. What an operator has made of a local queue, while it is on hold; queues/declarations.py
    writes its name."""
    MET = "met"
    """No queue, and empty. One that was met, with all that is known of it as its name, while it is on hold."""


class QueueRow(NamedTuple):
    """A queue that exists from now on. `queue` is its number in the store, 1 to 2**22.

    A local or an outgoing queue is one of these for each priority that its messages have.
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
    """After this second, UTC, it is to be looked at: its time may be over."""


class HurtPacket(bytes):
    """The packet of a message that is not what was written, as the store has it. Its quarantine has the whole row, and
    the message stays until it is removed.

    message_id: as its row says; 0 if that says none.
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
    """Message k of the sequence stands at position base + k of the queue."""
    next_number: int
    last_ack: int
    saved_through: int
    """The highest position that the next hop has acknowledged; messages after it are sent anew after a restart."""
    sent_ceiling: int
    """No message after this position has ever been sent."""
    renumbered_through: int = 0
    """The packets up to this position do not have the numbers that they are sent with."""


class IncomingRow(NamedTuple):
    """One incoming sequence: the last message accepted from `source`; `queue` is the number of its HELD queue.
    [MS-MQDMPR] 3.1.1.5

    Of a stranger's that gave up its place `queue` is negative and `reply_host` is where it came from.
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
"""The store keeps these outside itself as well: which life it is in; the MessageID, and the Ordinal of a TxSequenceID,
from which on none was given."""

SEQUENCE_ORDINAL_FIRST: Final = "sequence_ordinal_first"
"""The Ordinal from which on those of this life are."""

SENT_EXPIRES: Final = "sent_expires"
"""1 if what was sent expired when the queue manager ran last (`expire_sent`), and all of it was looked through."""

QUEUE_IDENTIFIER: Final = "queue_identifier"
"""The identifier from which on no queue that operators make was given one."""

INVOKER_ITSELF: Final = 256
"""The `identifier` of a row that is about an invoker, and not about one of its operations."""


class OutcomeRow(NamedTuple):
    """What came of a numbered operation of a client.  "Duplicate Operation Detection Support"

    invoker: who invoked it.
    identifier: 0 to 255, or INVOKER_ITSELF.
    outcome: opaque to the queue manager and its store.
    lasting: whether the invoker survives its process, and may ask after a long time.
    performed_s: on a clock of the shell's own, which need not be UTC.
    """

    invoker: bytes
    identifier: int
    outcome: bytes
    lasting: bool
    performed_s: int


class FinalAckKept(NamedTuple):
    """Of the messages with keys first..last, those with `final_ack` move to queue `final_queue`, each to the position
    that is its message_id. The removal of the others follows as an ordinary removal."""

    first: int
    last: int
    final_queue: int


class Departure(NamedTuple):
    """Messages on disk that leave a local queue together, and why.

    message_class: what an application or an operator did with them, or that their time was over; NORMAL for one that
        was sent back.
    again: the MessageID of the one message that was sent in the place of the one that left; 0 if none was.
    """

    queue: str
    message_class: int
    packets: list[bytes]
    again: int = 0


@dataclass(slots=True)
class Writes:
    """One transaction. The store applies the fields in the order in which they stand here.

    No key is used twice while what had it may still be in the log or in the tables. A row for a state that exists
    already replaces it.
    """

    queues: list[QueueRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    finals: list[FinalAckKept] = field(default_factory=list)
    moves: list[tuple[int, int, int | None]] = field(default_factory=list)
    """A message's old key, its new one, and its `expires_s` from now on."""
    removals: list[tuple[int, int]] = field(default_factory=list)
    """Keys from first to last, both included; keys without a message are no error."""
    lasting: list[int] = field(default_factory=list)
    """Keys of messages that have no `expires_s` any more; keys without a message are no error."""
    outgoing: dict[int, OutgoingRow] = field(default_factory=dict)
    incoming: dict[tuple[Guid, int], IncomingRow | None] = field(default_factory=dict)
    """By source and queue; None for one that is no longer kept."""
    forgotten_identifiers: list[tuple[Guid, int, int]] = field(default_factory=list)
    """By source, ordinals from first to last, both included, that are forgotten; any of them may be unknown."""
    identifiers: list[IdentifierRow] = field(default_factory=list)
    """An identifier that is known already gets the new time."""
    counters: dict[str, int] = field(default_factory=dict)
    """Named numbers, such as the ceiling of the MessageIDs given out."""
    outcomes: dict[tuple[bytes, int], OutcomeRow | None] = field(default_factory=dict)
    """By invoker and identifier: the outcome of a numbered operation, None for one that is forgotten."""
    forgotten_invokers: list[bytes] = field(default_factory=list)
    """All of whose outcomes are forgotten."""
    departures: list[Departure] = field(default_factory=list)
    """Messages that leave local queues by this, for a shell that writes some of that down; no store keeps them."""

    def await_final_acks(self, queue: int, first: int, last: int, final_queue: int) -> None:
        """The messages of a queue from one position to another that ask for a FinalAck go on to wait for it."""
        self.finals.append(FinalAckKept(message_key(queue, first), message_key(queue, last), final_queue))

    def remove(self, queue: int, first: int, last: int) -> None:
        """Remove the messages of a queue from one position to another, both included."""
        low, high = message_key(queue, first), message_key(queue, last)
        if self.removals and self.removals[-1][1] + 1 == low:
            low = self.removals.pop()[0]
        self.removals.append((low, high))

    def remove_each(self, queue: int, positions: Iterable[int]) -> None:
        """The same of single messages, which nearly always follow each other."""
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
        """Forget messages of a source that came."""
        ranges = self.forgotten_identifiers
        for ordinal in sorted(ordinals):
            if ranges and ranges[-1][0] == source and ranges[-1][2] + 1 == ordinal:
                ranges[-1] = (source, ranges[-1][1], ordinal)
            else:
                ranges.append((source, ordinal, ordinal))

    def __bool__(self) -> bool:
        # What most transactions have comes first.
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
    """What a store knows of one queue when it is opened. `first` and `last` are 0 where the queue is empty.

    last_used: no message gets this position or one before it. What has left may still be in the log or in the tables.
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
    """The store begins a life: it is empty, or may be of an earlier moment than what peers have heard of this node.

    It has begun when the counters of COUNTERS_OF_LIFE are on disk that the queue manager writes with its first
    transaction; until then each start is told again.

    number: how many lives there were, this one included.
    first_message_id: the ordinal at which MessageIDs begin, far from those that an earlier life can have given.
    first_sequence_ordinal: from which Ordinal on no TxSequenceID of an earlier life can be; 0 if that is not known.
    is_restored: whether the store has something, all of which may have been delivered already, or changed since.
    """

    number: int
    first_message_id: int
    first_sequence_ordinal: int = 0
    is_restored: bool = False


@dataclass(slots=True)
class StoredState:
    """All that a queue manager must know of its store when it starts. Messages stay on disk, but for those that it
    keeps in memory as long as they wait."""

    queues: list[StoredQueue] = field(default_factory=list)
    resident: list[tuple[int, bytes]] = field(default_factory=list)
    """Key and packet of each message in a HELD or ORDER queue."""
    hurt: list[tuple[int, HurtPacket]] = field(default_factory=list)
    """The same of those that are not what was written."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of keys, first and last included, that are missing between the first and the last of a SEQUENCE queue."""
    outgoing: list[OutgoingRow] = field(default_factory=list)
    incoming: list[IncomingRow] = field(default_factory=list)
    identifiers: list[IdentifierRow] = field(default_factory=list)
    """The oldest first."""
    counters: dict[str, int] = field(default_factory=dict)
    outcomes: list[OutcomeRow] = field(default_factory=list)
    dice: int = 0
    """A number of the shell's, another one each time the store is opened."""
    life: NewLife | None = field(default=None, compare=False)
    """None if the one that the store has goes on. It is about the store, and not what is in it."""


class ReadBy(Enum):
    """Who asked for a page, and will be given it."""

    WINDOW = auto()
    """The queue, which hands on its messages in order."""
    RESEND = auto()
    """A sequence that sends messages again."""
    OUTCOME = auto()
    """A FinalAck or an OrderAck, for the one message that it decides."""
    EXPIRY = auto()
    """Who looks for messages whose time is over and that have no `expires_s`."""
    PURGE = auto()


class ReadPage(NamedTuple):
    """Asks for a queue's messages after a position, in order of position, as many as fit both limits but at least one.

    The answer is `QueueManager.loaded(page, rows)` with rows of (position, packet, final_ack). It is a prefix of what
    the store has there: no message is left out for being too large while one behind it is in, for the queue goes on
    behind the last. None at all says that there is nothing. A packet that is not what was written is `HurtPacket`.
    """

    queue: int
    after: int
    limit_messages: int
    limit_bytes: int
    reader: ReadBy


class ReadExpired(NamedTuple):
    """Asks for the messages with the lowest `expires_s`, in that order, as many as fit both limits but at least one.

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
    """Whether the store has it too; an express message is stored only where memory ran short."""
    expires_s: int | None = None
    """Its `MessageRow.expires_s`; None tells that its time is never over, without a look at the packet."""


class OpenTransport(NamedTuple):
    """Connect; then call `QueueManager.opened` or, if it fails, `QueueManager.lost`.

    tls: the queue manager whose pinned certificate the other end has to show; None for a plain connection.
    avoid: the address of the host that is tried last, as a queue manager was not found there the last time.
    """

    session: int
    host: str
    port: int
    tls: Guid | None = None
    avoid: str = ""


class SendPing(NamedTuple):
    """Send this datagram to a UDP port, from a port that is not our ping port.  [MS-MQQB] 2.1.2

    Whatever comes back from there goes to `QueueManager.ping_answered`; if it cannot be sent, call
    `QueueManager.lost`. When a second has passed, nothing is waited for any more.
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

    delivery_count: how often it was handed out, this time included; UNKNOWN_COUNT if it was in the store when that was
        opened.
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
    """To what a message belongs, as its sender says: the two headers of [Trace Context] 3.2 and 3.3."""

    parent: str
    state: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Something an operator may want to know, as a line of the log.

    `name` is a word to search for, such as `session-closed`; `facts` are its values. A peer may have written some of a
    fact: each is one line of 600 characters at most, and holds nothing that a terminal would obey.
    """

    name: str
    facts: dict[str, str | int]
    trace: Trace | None = None
    """That of the message, if it is a step of one that is followed."""

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

"""The kinds of messages that applications send, and the promises for each kind.

A kind is a row of `KINDS`. To add a kind, add a row; simulator/world/draw.py decides how often it is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final

from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import (
    ACKNOWLEDGE_ARRIVAL,
    ACKNOWLEDGE_RECEIPT,
    REPORT_NO_ARRIVAL,
    REPORT_NO_RECEIPT,
)
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.simulator.world.scenarios.scenario import Burst, guid_of
from mqproto.turn.guard import STRONG
from mqproto.wire import MessageClass, guid_text
from mqproto.wire.guid import Guid

ORDERS: Final = QueueDeclaration("orders", 16, transactional=True)
NOTES: Final = QueueDeclaration("notes", 17, transactional=False)
REPLIES: Final = QueueDeclaration("replies", 18, transactional=False)
"""A source's administration queue, from which it learns the outcomes of its messages."""
CHOSEN: Final[Mapping[bool, QueueDeclaration]] = {
    True: QueueDeclaration("failed-orders", 19, transactional=True),
    False: QueueDeclaration("failed-notes", 20),
}
"""The queues that a source chooses for dead letters, keyed by whether the messages are transactional."""
QUEUES: Final = (ORDERS, NOTES)
"""The queues that every target of a burst has."""
VISITING: Final = b"from a stranger"
"""A text in the body of each message from a stranger that is allowed to send."""
SECRET: Final = b"for nobody else "
"""A text in the body of each message that has to be encrypted."""
SIGNER: Final = "application"
"""The name under which each node signs."""
SHA_256: Final = 0x800C
"""The hash algorithm for signatures. SHA-512 is too long for keys of 512 bits.  [MS-MQMQ] 2.2.19.3"""
NOWHERE: Final = 99
"""The identifier of a queue that no node has."""

LATE: Final = frozenset({MessageClass.NACK_REACH_QUEUE_TIMEOUT, MessageClass.NACK_RECEIVE_TIMEOUT})
"""The message classes with which a message may end when it has expired."""
WISHES: Final = frozenset({"final_ack", "journal_positive", "journal_negative"})
"""The fields of a draft that ask for a FinalAck."""


class Promise(Enum):
    """What is promised for a message."""

    ONCE_IN_ORDER = auto()
    """It is delivered exactly once, after all messages that were sent before it, or it ends for a known reason."""
    ONCE = auto()
    """It is delivered exactly once, as long as its identifier is remembered, or it ends for a known reason."""
    NOTHING = auto()
    """It may be lost in a crash, and after a crash it may arrive twice."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of message.

    queue: the identifier of the destination queue.
    draft: the fields with which the message is sent, apart from its body.
    direct: whether it is sent to a direct format name; if so, only to a neighbour.
    unmet: whether its source knows its destination only by that name.
    endings: the classes with which it may, by its nature, end without being received.
    undeliverable: whether it always ends without being received.
    acknowledged: whether acknowledgments are sent to the source's administration queue.
    """

    promise: Promise
    queue: int
    draft: Mapping[str, Any] = field(default_factory=dict)
    direct: bool = False
    unmet: bool = False
    endings: frozenset[int] = frozenset()
    undeliverable: bool = False
    acknowledged: bool = False

    @property
    def transactional(self) -> bool:
        return bool(self.draft.get("transactional"))

    @property
    def dead_lettered(self) -> bool:
        """Whether a message is put into a dead-letter queue if it ends without being received."""
        return bool(self.draft.get("journal_negative"))

    @property
    def asks_final_ack(self) -> bool:
        """Whether a message's source waits to learn its final outcome."""
        return self.transactional and bool(WISHES & self.draft.keys())

    def draft_at(self, source: Guid) -> Mapping[str, Any]:
        """Return the fields of the draft for a message from this source."""
        if not self.acknowledged:
            return self.draft
        return {**self.draft, "admin_queue": rf"PRIVATE={guid_text(source)}\{REPLIES.identifier:X}"}


def _transactional(**draft: Any) -> dict[str, Any]:
    return {"transactional": True, **draft}


_KNOWN: Final[Mapping[str, Kind]] = {
    "transactional": Kind(Promise.ONCE_IN_ORDER, ORDERS.identifier, _transactional()),
    "final ack": Kind(Promise.ONCE_IN_ORDER, ORDERS.identifier, _transactional(final_ack=True)),
    "direct": Kind(Promise.ONCE_IN_ORDER, ORDERS.identifier, _transactional(), direct=True),
    "journaled": Kind(
        Promise.ONCE_IN_ORDER,
        ORDERS.identifier,
        _transactional(journal_positive=True, journal_negative=True),
    ),
    "to reach": Kind(
        Promise.ONCE_IN_ORDER,
        ORDERS.identifier,
        _transactional(time_to_reach_queue_s=2, journal_negative=True),
        endings=LATE,
    ),
    "to receive": Kind(
        Promise.ONCE_IN_ORDER,
        ORDERS.identifier,
        _transactional(time_to_be_received_s=4, journal_negative=True),
        endings=LATE,
    ),
    "to reach, journaled": Kind(
        Promise.ONCE_IN_ORDER,
        ORDERS.identifier,
        _transactional(time_to_reach_queue_s=2, journal_negative=True, journal_positive=True),
        endings=LATE,
    ),
    "to reach, no letter": Kind(
        Promise.ONCE_IN_ORDER, ORDERS.identifier, _transactional(time_to_reach_queue_s=1), endings=LATE
    ),
    "nowhere": Kind(
        Promise.ONCE_IN_ORDER,
        NOWHERE,
        _transactional(journal_negative=True),
        endings=frozenset({MessageClass.NACK_BAD_DST_Q}),
        undeliverable=True,
    ),
    "wrong queue": Kind(
        Promise.ONCE_IN_ORDER,
        NOTES.identifier,
        _transactional(),
        endings=frozenset({MessageClass.NACK_NOT_TRANSACTIONAL_Q}),
        undeliverable=True,
    ),
    "recoverable": Kind(Promise.ONCE, NOTES.identifier, {"recoverable": True}),
    "acknowledged": Kind(
        Promise.ONCE,
        NOTES.identifier,
        {
            "recoverable": True,
            "acknowledgments": ACKNOWLEDGE_ARRIVAL | ACKNOWLEDGE_RECEIPT | REPORT_NO_ARRIVAL,
        },
        acknowledged=True,
    ),
    "recoverable to reach": Kind(
        Promise.ONCE,
        NOTES.identifier,
        {"recoverable": True, "time_to_reach_queue_s": 2, "journal_negative": True},
        endings=LATE,
    ),
    "express": Kind(Promise.NOTHING, NOTES.identifier),
    "express to reach": Kind(Promise.NOTHING, NOTES.identifier, {"time_to_reach_queue_s": 2}, endings=LATE),
    "express to receive": Kind(Promise.NOTHING, NOTES.identifier, {"time_to_be_received_s": 3}, endings=LATE),
    "express to receive, heard of": Kind(
        Promise.NOTHING,
        NOTES.identifier,
        {"time_to_be_received_s": 3, "acknowledgments": REPORT_NO_RECEIPT},
        endings=LATE,
        acknowledged=True,
    ),
}

UNMET: Final = " to a stranger"
"""The suffix of the kinds of messages whose destination is known only by its address."""
KINDS: Final[Mapping[str, Kind]] = {
    **_KNOWN,
    **{
        name + UNMET: replace(kind, direct=True, unmet=True)
        for name, kind in _KNOWN.items()
        if not kind.direct and any(queue.identifier == kind.queue for queue in QUEUES)
    },
}


def to_a_stranger(kind: str) -> str:
    """Return the kind that is most similar to `kind`, with a destination known only by its address."""
    return kind + UNMET if kind + UNMET in KINDS else "transactional" + UNMET


def by_its_guid(kind: str) -> str:
    """Return the kind that is most similar to `kind`, with a destination that cannot be called.

    That destination can call other nodes.
    """
    return kind if kind + UNMET in KINDS else "transactional"


def destination(target: str, kind: Kind) -> Destination:
    """Return the destination queue for a kind, under the name that an application uses."""
    manager = guid_of(target)
    if kind.direct:
        name = next(queue.name for queue in QUEUES if queue.identifier == kind.queue)
        path = rf"TCP:{target}\private$\{name}"
        return Destination(f"DIRECT={path}", None if kind.unmet else manager, path, target)
    name = rf"PRIVATE={guid_text(manager)}\{kind.queue:08X}"
    return Destination(name, manager, kind.queue)


@dataclass(slots=True, eq=False)
class Stream:
    """The messages from one source to one queue under one name.

    waiting: the messages that can be handed out from that queue, from any source and under any name.
    unsent: the non-transactional messages that have yet to leave their source, and certainly will.
    """

    waiting: dict[Message, None]
    unsent: dict[Message, None] = field(default_factory=dict)
    accepted: int = 0
    arrived: int = -1
    """The `order` of the stream's last message that was put into its queue."""


@dataclass(slots=True, eq=False)
class Message:
    """One message of an application, and its outcome."""

    burst: Burst
    kind: Kind
    stream: Stream
    identity: bytes
    body: bytes
    order: int = 0
    """The message's number in its stream, assigned when the message was accepted."""
    accepted_ms: int = -1
    accepted_s: int = 0
    """The message's SentTime: its source's date when the message was accepted."""
    place: tuple[tuple[int, int], int] | None = None
    """The TxSequenceID and the number of a transactional message for another node; None for other messages."""
    position: int = 0
    """The message's position in its destination's queue. Later messages have higher positions."""
    arrivals: int = 0
    """The number of times that it was put into its destination's queue."""
    was_forgotten: bool = False
    """Whether it arrived again when its destination may have forgotten it, so that there are several copies."""
    passed_again: bool = False
    """Whether a node on the message's route accepted it twice, because the node died in between.

    If so, each copy ends separately.
    """
    is_out: bool = False
    """Whether a consumer has it and has not settled it."""
    life: int | None = None
    """The life of the destination node in which it was put into its queue."""
    given_back: int = 0
    """The number of times that consumers gave it back."""
    delivery_count: int = 0
    """The number of times that it was handed out, according to its queue manager."""
    receipts: int = 0
    """The number of times that an application received it for good."""
    gone: int = 0
    """The number of times that it left its destination's queue in any other way."""
    size_bytes: int = 0
    """The size of its packet, in bytes, if it is transactional and is sent to another node."""
    deleted: bool = False
    """Whether it left an outgoing queue that an operator had purged."""
    refusals: list[int] = field(default_factory=list)
    """The classes of the negative acknowledgments that its destination sent for it."""
    lost_copies: list[int] = field(default_factory=list)
    """The classes with which queue managers on its way reported that a copy of it ended there.

    Another copy may still arrive.
    """
    letters: list[tuple[str, int]] = field(default_factory=list)
    """Each node that put it into a dead-letter queue, with the class."""
    in_doubt: bool = False
    """Whether it was put into a dead-letter queue although it might have arrived."""
    was_not_encrypted: bool = False
    """Whether its source let go of it because it could no longer be encrypted."""
    let_go: bool = False
    """Whether its source let go of it, without a dead letter, before it had arrived or been refused."""
    sent_again: bool = False
    """Whether an operator has sent its dead letter again, as another message."""
    journaled: int = 0
    """The number of times that it was put into its source's journal."""
    told: list[int] = field(default_factory=list)
    """The classes of the refusals that its source has noted."""
    replies: list[int] = field(default_factory=list)
    """The classes of the acknowledgments that arrived in its source's administration queue."""
    replies_set_aside: int = 0
    """The number of its acknowledgments that are in a dead-letter queue because a neighbour refused them."""
    was_hurt: bool = False
    """Whether its only copy was damaged. If so, it is lost, whatever nodes have reported about it before."""
    is_unsure: bool = False
    """Whether a store was restored to an earlier state after the message was accepted.

    If so, the message may be lost, or may arrive again.
    """

    def __str__(self) -> str:
        burst = self.burst
        return f"{burst.kind} message {self.body.split(b' ', 1)[0].decode()} from {burst.source} to {burst.target}"


def body_of(burst: Burst, number: int, index: int) -> bytes:
    """Return the body of message `index` of burst `number`.

    It consists of the message's name, a secret if it is to be encrypted, and padding up to its size.
    """
    sizes_bytes = burst.sizes_bytes or (burst.size_bytes,)
    named = f"{number}.{index} ".encode() + SECRET * burst.encrypted
    return named.ljust(sizes_bytes[index % len(sizes_bytes)], b".")


def wishes_of(burst: Burst) -> dict[str, Any]:
    """Return the fields of a draft that concern the encryption, the signature and the dead-letter queue of a burst's
    messages.
    """
    wishes: dict[str, Any] = {}
    if burst.encrypted:
        wishes["privacy_level"] = STRONG
    if burst.signed:
        wishes |= {"signer": SIGNER, "hash_algorithm": SHA_256}
    if burst.chooses:
        wishes["dead_letter_queue"] = CHOSEN[KINDS[burst.kind].transactional].name
    return wishes

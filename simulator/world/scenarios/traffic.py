"""What applications send: the kinds of messages, and what is promised for each.

A kind is a row of `KINDS`. To have one more, add a row; simulator/world/draw.py says how often it is drawn.
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
"""Where a source hears of what became of its messages: its administration queue."""
CHOSEN: Final[Mapping[bool, QueueDeclaration]] = {
    True: QueueDeclaration("failed-orders", 19, transactional=True),
    False: QueueDeclaration("failed-notes", 20),
}
"""The queues that a source chooses for dead letters, by whether they are of transactional messages."""
QUEUES: Final = (ORDERS, NOTES)
"""The queues of each target of a burst."""
VISITING: Final = b"from a stranger"
"""The body of what strangers send who may."""
SECRET: Final = b"for nobody else "
"""In the body of each message that is to be encrypted."""
SIGNER: Final = "application"
"""The name under which each node signs."""
SHA_256: Final = 0x800C
"""What is signed, as SHA-512 is too long for keys of 512 bits.  [MS-MQMQ] 2.2.19.3"""
NOWHERE: Final = 99
"""The identifier of a queue that no node has."""

LATE: Final = frozenset({MessageClass.NACK_REACH_QUEUE_TIMEOUT, MessageClass.NACK_RECEIVE_TIMEOUT})
"""How a message whose time is over may end."""
WISHES: Final = frozenset({"final_ack", "journal_positive", "journal_negative"})
"""What a draft may have that asks for a FinalAck."""


class Promise(Enum):
    """What is promised for a message."""

    ONCE_IN_ORDER = auto()
    """It is delivered exactly once, after all that were sent before it; or it ends for a reason that is given."""
    ONCE = auto()
    """It is delivered exactly once, while its identifier is remembered; or it ends for a reason that is given."""
    NOTHING = auto()
    """It may be lost in a crash, and then may come twice."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of messages.

    queue: the identifier of the destination queue.
    draft: how the message is sent, beside its body.
    direct: whether it goes by a direct format name, to a neighbour only.
    unmet: whether that name is all that its source is told of its destination.
    endings: the classes with which it may end unreceived by its nature.
    undeliverable: whether it can end in no other way.
    acknowledged: whether the source's administration queue hears of it.
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
        """Whether it is kept in a dead-letter queue if it ends unreceived."""
        return bool(self.draft.get("journal_negative"))

    @property
    def asks_final_ack(self) -> bool:
        """Whether its source waits for the word of what became of it in the end."""
        return self.transactional and bool(WISHES & self.draft.keys())

    def draft_at(self, source: Guid) -> Mapping[str, Any]:
        """The draft's fields for a message of this source."""
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
"""So ends the name of a kind that goes to one of whom only an address is known."""
KINDS: Final[Mapping[str, Kind]] = {
    **_KNOWN,
    **{
        name + UNMET: replace(kind, direct=True, unmet=True)
        for name, kind in _KNOWN.items()
        if not kind.direct and any(queue.identifier == kind.queue for queue in QUEUES)
    },
}


def to_a_stranger(kind: str) -> str:
    """The kind that is most like one, for a destination of which its source knows an address and nothing else."""
    return kind + UNMET if kind + UNMET in KINDS else "transactional" + UNMET


def by_its_guid(kind: str) -> str:
    """The kind that is most like one, for a destination that can call, and not be called."""
    return kind if kind + UNMET in KINDS else "transactional"


def destination(target: str, kind: Kind) -> Destination:
    """How an application names the queue that messages of a kind go to."""
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

    waiting: those that can be handed out from that queue, from any source, under any name.
    unsent: those that have not left their source and do so in any case, if they have no transaction.
    """

    waiting: dict[Message, None]
    unsent: dict[Message, None] = field(default_factory=dict)
    accepted: int = 0
    arrived: int = -1
    """The order of the last one that was put into its queue."""


@dataclass(slots=True, eq=False)
class Message:
    """One message of an application, and what has become of it."""

    burst: Burst
    kind: Kind
    stream: Stream
    identity: bytes
    body: bytes
    order: int = 0
    """Which message of its stream it is, counted when it was accepted."""
    accepted_ms: int = -1
    accepted_s: int = 0
    """SentTime: the date at its source when it was accepted."""
    place: tuple[tuple[int, int], int] | None = None
    """TxSequenceID and number, if it is transactional and goes elsewhere."""
    position: int = 0
    """Its place in its destination's queue: what joined later has a higher one."""
    arrivals: int = 0
    """How often it was put into its destination's queue."""
    was_forgotten: bool = False
    """Whether it came again when its destination need not have remembered it: then there are several of it."""
    passed_again: bool = False
    """Whether a node on its way had it twice, as it had died in between: then each copy ends by itself."""
    is_out: bool = False
    """Whether a consumer has it and has not settled."""
    life: int | None = None
    """In which of its node's lives it was put into its destination's queue."""
    given_back: int = 0
    """How often consumers gave it back."""
    delivery_count: int = 0
    """How often it was handed out, as its queue manager counts."""
    receipts: int = 0
    """How often an application received it for good."""
    gone: int = 0
    """How often it left its destination's queue for another reason."""
    size_bytes: int = 0
    """Of its packet, if it is transactional and goes elsewhere."""
    deleted: bool = False
    """Whether it left its way where an operator had deleted what was to be sent."""
    refusals: list[int] = field(default_factory=list)
    """The classes of the negative acknowledgments that its destination has sent for it."""
    lost_copies: list[int] = field(default_factory=list)
    """The classes with which queue managers on its way have said that it ended there; another copy may arrive."""
    letters: list[tuple[str, int]] = field(default_factory=list)
    """Where it was put into a dead-letter queue, and with which class."""
    in_doubt: bool = False
    """Whether it was put into a dead-letter queue when it might have arrived."""
    was_not_encrypted: bool = False
    """Whether its source let go of it as it could not encrypt it any more."""
    let_go: bool = False
    """Whether its source let go of it without a letter when it had neither arrived nor been refused."""
    sent_again: bool = False
    """Whether an operator has sent its dead letter once more, as another message."""
    journaled: int = 0
    """How often it was put into its source's journal."""
    told: list[int] = field(default_factory=list)
    """The classes of the refusals that its source has noted."""
    replies: list[int] = field(default_factory=list)
    """The classes of the acknowledgments that came to its source's administration queue."""
    replies_set_aside: int = 0
    """How many of them lie in a queue for dead letters, as a neighbour refused them."""
    was_hurt: bool = False
    """Whether the only copy of it was not what had been written: then it is gone, but for what was said before."""
    is_unsure: bool = False
    """Whether a store of an earlier moment was put back after it was accepted: it may be gone, or come again."""

    def __str__(self) -> str:
        burst = self.burst
        return f"{burst.kind} message {self.body.split(b' ', 1)[0].decode()} from {burst.source} to {burst.target}"


def body_of(burst: Burst, number: int, index: int) -> bytes:
    """What message `index` of burst `number` says: which it is, what is secret, and as many bytes as it should have."""
    sizes_bytes = burst.sizes_bytes or (burst.size_bytes,)
    named = f"{number}.{index} ".encode() + SECRET * burst.encrypted
    return named.ljust(sizes_bytes[index % len(sizes_bytes)], b".")


def wishes_of(burst: Burst) -> dict[str, Any]:
    """The fields of a draft that say how its messages are encrypted and signed, and where they lie if they fail."""
    wishes: dict[str, Any] = {}
    if burst.encrypted:
        wishes["privacy_level"] = STRONG
    if burst.signed:
        wishes |= {"signer": SIGNER, "hash_algorithm": SHA_256}
    if burst.chooses:
        wishes["dead_letter_queue"] = CHOSEN[KINDS[burst.kind].transactional].name
    return wishes

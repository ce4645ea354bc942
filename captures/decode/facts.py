"""The fields of a packet that the rules need, from a decoded packet or from a row of a table.

Each stage has a record of its own: a caller that has packets as columns makes what that stage needs and no more.
`captures/decode/analyst.py` makes them from sights, `captures/pipeline` from rows; the rules are the same.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, TypeAlias

from mqproto.captures.decode.sight import Kind
from mqproto.captures.net.tcp import Endpoint
from mqproto.wire import Guid, QueueName, SessionHeader, TxSequenceId

NodeKey: TypeAlias = bytes | str
"""A queue manager's GUID where a handshake told it, else its address."""
Hop: TypeAlias = tuple[NodeKey, NodeKey]
MessageKey: TypeAlias = tuple[Guid, int]
"""SourceQueueManager and MessageID: what a message is known by.  [MS-MQMQ] 2.2.18.1.3"""


NOT_KNOWN: Final = -1
"""A number that the capture lacks."""
NOT_SAID: Final = -2
"""The same for a message that may have none: it is cut before it says whether it is transactional."""


class SessionFacts(NamedTuple):
    """The fields of any packet except a Ping that the rules of a session need.

    number: the packet's, counted from 1 over the capture.
    time_ns: since 1970, UTC.
    recoverable: of a UserMessage; None of other packets.
    header: its SessionHeader, if it has one.
    client, server: of an EstablishConnection.
    refused: CS of an EstablishConnection or a ConnectionParameters.
    timeouts_ms: RecoverableAckTimeout and AckTimeout of a ConnectionParameters.
    window: WindowSize of a ConnectionParameters.
    position, size_bytes: where it is in what its sender sent, missing bytes counted; how long it is.
    ahead: whether its sender may have had bytes of the other end that the capture has not shown before it.
    opened: whether its sender opened the connection; None where the capture does not have the SYN.
    cut_bytes, snapped_bytes: as of mqproto.captures.packets.SeenPacket. Of a packet that is cut nothing behind its body
        is known, and so no SessionHeader; of an EstablishConnection a GUID that lacks is None.
    """

    number: int
    time_ns: int
    connection: int
    interface: int
    source: Endpoint
    destination: Endpoint
    kind: Kind
    missing_bytes: int
    skipped_bytes: int
    recoverable: bool | None = None
    header: SessionHeader | None = None
    client: Guid | None = None
    server: Guid | None = None
    refused: bool = False
    timeouts_ms: tuple[int, int] | None = None
    window: int = 0
    position: int = 0
    size_bytes: int = 0
    ahead: bool = False
    cut_bytes: int = 0
    snapped_bytes: int = 0
    opened: bool | None = None


class Fate(Protocol):
    """What happened to a message on its connection; later packets may be known already.

    acknowledged_by, saved_by: the packets with which the other end said that it has received the message, and that
        it has saved it; None while there is none.
    numbered: whether its number on the connection was known when it crossed; else an answer may not have been known
        for one.
    """

    @property
    def acknowledged_by(self) -> int | None: ...
    @property
    def saved_by(self) -> int | None: ...
    @property
    def numbered(self) -> bool: ...


class Crossing(NamedTuple):
    """One message on one hop.

    number: the packet's.
    interface: where it was seen; one packet that was caught twice is not a resend.
    recoverable: whether its receiver saves it; so it does transactional ones.
    previous_number: of a transactional message, PreviousTxSequenceNumber, or NOT_KNOWN; None of others; or NOT_SAID. A
        sender that resends changes it where the message before has expired.  [MS-MQQB] 3.1.7.1.3
    digest: of all bytes that an intermediate may not change; None where the capture has not all of them.
    encrypted: whether its body is. A sender that resends may encrypt it anew, with another key.
    sent_s: its SentTime.
    expires_s: SentTime + TimeToReachQueue, seconds since 1970, after which it must not be sent; None if it has all the
        time in the world, as a transactional message has once it has been sent.
    towards: QueueManagerAddress. size_bytes: of the packet, its SessionHeader included.
    frame: that ended it, as its file has them in their order.
    """

    key: MessageKey
    hop: Hop
    number: int
    interface: int
    connection: int
    time_ns: int
    hop_count: int
    recoverable: bool
    previous_number: int | None
    digest: int | None
    encrypted: bool
    sent_s: int
    expires_s: int | None
    fate: Fate
    towards: Guid
    size_bytes: int
    frame: int


class NumberedMessage(NamedTuple):
    """A transactional message on one hop.

    towards: QueueManagerAddress, and the queue there: as it lies in the packet or by its format name, always alike.
    lost: the last packet of its sender on that connection, up to this one, before which the capture lacks what may have
        been messages; None if there is none.
    sent_s: its SentTime.
    """

    key: MessageKey
    hop: Hop
    number: int
    time_ns: int
    lost: int | None
    towards: tuple[Guid, QueueName]
    identifier: TxSequenceId
    sequence_number: int
    previous_number: int
    interface: int
    connection: int
    sent_s: int


class InOrder(NamedTuple):
    """Transactional messages of one sequence that followed one another, on each hop that they crossed.

    Between them came nothing else of the sequence. The number of each is one more than that of the one before it on its
    hop, and is told to be.

    source, identifier: of the sequence. towards: as of a NumberedMessage.
    hops: each hop with the first and the last number that crossed it. interfaces: where they were seen on it.
    last: of each hop, the packet and the connection of the last of them.
    first_ns: when the first of them was seen. sent_s: its SentTime.
    is_ahead: whether the SentTime of one of them is beyond the time at which it was seen.
    numbers, packets, message_ids: of each message, in the order of the capture: its number, the packet's, and its
        MessageID.
    """

    source: Guid
    identifier: TxSequenceId
    towards: tuple[Guid, QueueName]
    hops: list[tuple[Hop, int, int]]
    interfaces: list[int]
    last: list[tuple[int, int]]
    first_ns: int
    sent_s: int
    is_ahead: bool
    numbers: list[int]
    packets: list[int]
    message_ids: list[int]


class Acknowledgment(NamedTuple):
    """An OrderAck or a FinalAck on one hop.  [MS-MQQB] 2.2.4.1, 2.2.5.1

    key: of the message that carries it.
    towards: its QueueManagerAddress.
    positive: whether its class is MQMSG_CLASS_ACK_RECEIVE.
    ahead: as of SessionFacts: what its sender had by then may come behind it.
    """

    key: MessageKey
    hop: Hop
    number: int
    towards: Guid
    identifier: TxSequenceId
    sequence_number: int
    positive: bool
    time_ns: int
    interface: int
    connection: int
    ahead: bool

"""The fields of a packet that the rules need, from a decoded packet or from a row of a table.

Each stage has a separate record: a caller that has packets as columns builds only the fields that a stage needs.
`captures/decode/analyst.py` makes them from sights, `captures/pipeline` from rows; the rules are the same.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, TypeAlias

from mqproto.captures.decode.sight import Kind
from mqproto.captures.net.tcp import Endpoint
from mqproto.wire import Guid, QueueName, SessionHeader, TxSequenceId

NodeKey: TypeAlias = bytes | str
"""A queue manager's GUID if a handshake revealed it, otherwise its address."""
Hop: TypeAlias = tuple[NodeKey, NodeKey]
MessageKey: TypeAlias = tuple[Guid, int]
"""SourceQueueManager and MessageID, which together identify a message.  [MS-MQMQ] 2.2.18.1.3"""


NOT_KNOWN: Final = -1
"""Stands for a number that the capture lacks."""
NOT_SAID: Final = -2
"""Like NOT_KNOWN, for a message that may have no such number: it is cut before it shows whether it is transactional."""


class SessionFacts(NamedTuple):
    """The fields of any packet except a Ping that the rules of a session need.

    number: its number, counted from 1 over the capture.
    time_ns: since 1970, UTC.
    recoverable: whether a UserMessage is recoverable; None for other packets.
    header: its SessionHeader, if it has one.
    client, server: the GUIDs in an EstablishConnection.
    refused: CS of an EstablishConnection or a ConnectionParameters.
    timeouts_ms: RecoverableAckTimeout and AckTimeout of a ConnectionParameters.
    window: WindowSize of a ConnectionParameters.
    position, size_bytes: its offset in its sender's stream, missing bytes included; its length.
    ahead: whether its sender may have received bytes from the other end that the capture shows only later, if at all.
    opened: whether its sender opened the connection; None if the capture lacks the SYN.
    cut_bytes, snapped_bytes: as in mqproto.captures.packets.SeenPacket. If a packet is cut, nothing after its body is
        known, including any SessionHeader; a missing GUID of an EstablishConnection is None.
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

    acknowledged_by, saved_by: the packets in which the other end reported the message received, and saved; None
        until it did.
    numbered: whether its number on the connection was known when it crossed; otherwise an acknowledgment of it may
        have gone unrecognized.
    """

    @property
    def acknowledged_by(self) -> int | None: ...
    @property
    def saved_by(self) -> int | None: ...
    @property
    def numbered(self) -> bool: ...


class Crossing(NamedTuple):
    """One message on one hop.

    number: its packet's number.
    interface: the interface that saw it; a packet that two interfaces captured is not a resend.
    recoverable: whether its receiver saves it, as it also saves transactional messages.
    previous_number: PreviousTxSequenceNumber of a transactional message, or NOT_KNOWN; None for other messages; or
        NOT_SAID. A resending sender changes it if the previous message has expired.  [MS-MQQB] 3.1.7.1.3
    digest: covers all bytes that an intermediate may not change; None if the capture lacks some of them.
    encrypted: whether its body is encrypted. A sender that resends may encrypt it again, with another key.
    sent_s: its SentTime.
    expires_s: SentTime + TimeToReachQueue, seconds since 1970, after which it must not be sent; None if it never
        expires, as is the case for a transactional message once it has been sent.
    towards: QueueManagerAddress. size_bytes: the size of the packet, its SessionHeader included.
    frame: the number of the frame that ended the packet, in the order of the file. file: that frame's file, if each
        file has its own numbers.
    from_client: whether the end that called has sent it.
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
    from_client: bool
    file: str = ""


class NumberedMessage(NamedTuple):
    """A transactional message on one hop.

    towards: QueueManagerAddress and the queue there: always its bytes in the packet, or always its format name.
    lost: the last packet of its sender on that connection, up to this one, that follows missing bytes which may have
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

    No other message of the sequence came between them. On each hop, each number is one more than the number before it,
    and PreviousTxSequenceNumber agrees.

    source, identifier: which sequence it is. towards: as in a NumberedMessage.
    hops: each hop with the first and the last number that crossed it. interfaces: where they were seen on it.
    last: for each hop, the packet and the connection of its last message.
    first_ns: when the first message was seen. sent_s: its SentTime.
    is_ahead: whether a message's SentTime is later than the time at which it was seen.
    numbers, packets, message_ids: for each message, in the order of the capture: its number, its packet's number, and
        its MessageID.
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

    key: identifies the message that carries it.
    towards: that message's QueueManagerAddress.
    positive: whether its class is MQMSG_CLASS_ACK_RECEIVE.
    ahead: as in SessionFacts: messages that its sender had received by then may come later in the capture.
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

"""The fields of a packet that the rules need, taken from a decoded packet or from a row of a table.

Each stage has its own record, so that a caller that has packets as columns builds only the fields that a stage needs.
`captures/decode/analyst.py` makes these records from sights, `captures/pipeline` from rows; the rules are the same.
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
"""Stands for a number when the capture does not even show whether the message has that number.

The capture cuts off the message before the bytes that show whether it is transactional.
"""


class SessionFacts(NamedTuple):
    """The fields of a packet that the rules of a session need, for any packet except a Ping.

    number: the packet's number in the capture, counted from 1.
    time_ns: the time of the packet, in nanoseconds since 1970, UTC.
    recoverable: whether a UserMessage is recoverable; None for other packets.
    header: the packet's SessionHeader, if it has one.
    client, server: the GUIDs in an EstablishConnection.
    refused: the CS flag of an EstablishConnection or a ConnectionParameters.
    timeouts_ms: RecoverableAckTimeout and AckTimeout of a ConnectionParameters.
    window: WindowSize of a ConnectionParameters.
    position: the offset of the packet in its sender's stream, counting missing bytes.
    size_bytes: the length of the packet.
    ahead: whether the packet's sender may have received bytes from the other end that the capture shows only later, if
        at all.
    opened: whether the packet's sender opened the connection; None if the capture lacks the SYN.
    cut_bytes, snapped_bytes: as in mqproto.captures.packets.SeenPacket. If a packet is cut, nothing after its body is
        known, including any SessionHeader. A GUID that is missing from an EstablishConnection is None.
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
    """What happened to a message on its connection, including what later packets have revealed.

    acknowledged_by: the packet with which the other end reported that it had received the message; None until then.
    saved_by: the packet with which the other end reported that it had saved the message; None until then.
    numbered: whether the message's number on the connection was known when the message crossed. If not, an
        acknowledgment of it may have gone unrecognized.
    """

    @property
    def acknowledged_by(self) -> int | None: ...
    @property
    def saved_by(self) -> int | None: ...
    @property
    def numbered(self) -> bool: ...


class Crossing(NamedTuple):
    """One message on one hop.

    number: the number of the message's packet.
    interface: the interface that saw the packet; a packet that two interfaces captured is not a resend.
    recoverable: whether the receiver saves the message, as it does with recoverable and transactional ones.
    previous_number: PreviousTxSequenceNumber of a transactional message, or NOT_KNOWN; None for other messages;
        NOT_SAID if the capture does not show whether the message is transactional. A sender that resends the message
        changes this number if the previous message has expired.  [MS-MQQB] 3.1.7.1.3
    digest: covers all bytes that an intermediate may not change; None if the capture lacks some of them.
    encrypted: whether the body is encrypted. A sender that resends the message may encrypt it again, with another key.
    sent_s: the message's SentTime.
    expires_s: SentTime + TimeToReachQueue, in seconds since 1970, after which the message must not be sent. None if it
        never expires; a transactional message never does once it has been sent.
    towards: QueueManagerAddress.
    size_bytes: the size of the packet, including its SessionHeader.
    frame: the number of the frame that ended the packet, in the order of the file.
    file: the file of that frame, if each file numbers its frames separately.
    from_client: whether the end that opened the connection sent the message.
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

    towards: QueueManagerAddress and the queue there. Either all records give the queue as its bytes in the packet, or
        all give it as its format name.
    lost: the latest packet, this one included, that the sender sent on this connection right after a gap that may hide
        messages; None if there is none.
    sent_s: the message's SentTime.
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
    """Consecutive transactional messages of one sequence, on each hop that they crossed.

    No other message of the sequence came between them. On each hop, each number is one more than the number before it,
    and PreviousTxSequenceNumber agrees.

    source, identifier: identify the sequence.
    towards: as in a NumberedMessage.
    hops: each hop with the first and the last number that crossed it.
    interfaces: for each hop, the interface that saw the messages on it.
    last: for each hop, the packet and the connection of the last message.
    first_ns: when the first message was seen.
    sent_s: the SentTime of the first message.
    is_ahead: whether the SentTime of any message is later than the time at which it was seen.
    numbers, packets, message_ids: for each message, in the order of the capture: its number in the sequence, the number
        of its packet, and its MessageID.
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

    key: identifies the message that carries the acknowledgment.
    towards: the QueueManagerAddress of that message.
    previous_number: for a FinalAck, the number received before that one, which may have passed others over.
    positive: whether the class of that message is MQMSG_CLASS_ACK_RECEIVE.
    ahead: as in SessionFacts: the sender may already have received messages that come later in the capture.
    """

    key: MessageKey
    hop: Hop
    number: int
    towards: Guid
    identifier: TxSequenceId
    sequence_number: int
    previous_number: int
    positive: bool
    time_ns: int
    interface: int
    connection: int
    ahead: bool

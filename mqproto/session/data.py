"""The data of one session.  3.1.1.3.1, 3.1.3.2"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, NamedTuple, TypeAlias

from mqproto.base.configuration import Settings
from mqproto.base.foreign import TEXT_LIMIT, shown
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.turn.effects import CloseTransport, MessageRow
from mqproto.wire import Packet, encode_packet
from mqproto.wire.guid import Guid

TIMERS: Final = (
    Timer.SESSION_INITIALIZATION,
    Timer.SESSION_CLEANUP,
    Timer.SESSION_ACK_WAIT,
    Timer.SESSION_ACK_SEND,
    Timer.PACKET,
)
"""The timers of a session."""


class SessionState(Enum):
    """SessionState. WAITING_RECONNECT is left out: it belongs to a neighbour that has no session."""

    CONNECTING = "the transport is being opened"
    WAITING_EC_MSG = "WAITING_EC_MSG"
    WAITING_ECR_MSG = "WAITING_ECR_MSG"
    WAITING_CP_MSG = "WAITING_CP_MSG"
    WAITING_CPR_MSG = "WAITING_CPR_MSG"
    OPEN = "OPEN"
    CLOSED = "CLOSED"


class ConnectionStatus(StrEnum):
    """How far an attempt to open a session has progressed, or how it failed.

    This is a Status of ConnectionHistory, [MS-MQDMPR] 3.1.1.3. Only failures that we can distinguish are listed. Each
    attempt also has a reason in words.
    """

    IN_PROCESS = "InProcess"
    ESTABLISH_PACKET_RECEIVED = "EstablishPacketReceived"
    ESTABLISHED = "Established"
    UNKNOWN_FAILURE = "UnknownFailure"
    PING_FAILURE = "PingFailure"
    SOCKET_CONNECT_FAILURE = "SocketConnectFailure"
    CONNECTION_REFUSED = "ConnectionRefused"
    CERTIFICATE_VALIDATION_FAILURE = "CertificateValidationFailure"
    """A message failed, and not the session: it could not be encrypted for its destination.

    [MS-MQQB] 3.1.7.1.5.1
    """


class Remote(NamedTuple):
    """The other end of a session: its host, RemoteQMGuid, and whether the GUID is believed.

    A peer whose GUID is a mere claim is a stranger.

    is_proven: whether the GUID is believed.
    is_met: whether the peer comes from the address where the queue manager with this GUID was met.
    called: the address that we called, which is RemoteQMAddress even if the host is a name; empty if the peer called.
    """

    address: str
    manager: Guid
    is_proven: bool
    is_met: bool = False
    called: str = ""


@dataclass(slots=True, eq=False)
class InFlight:
    """An OutgoingMessagePosition that was sent on a session.  3.1.1.3.1.2

    origin: the queue that sent it. The session does nothing with it but hand it back.
    message: the message as the queue has it, with the numbers with which it is sent.
    order: the message's number on the session. It does not wrap.
    sealed: the packet as it is sent, if that differs from `packet`.
    """

    origin: Hashable
    message: MessageRow
    recoverable: bool
    resent: bool = False
    order: int = 0
    done: bool = False
    sealed: bytes = b""

    @property
    def packet(self) -> bytes:
        """The packet of the message, unencrypted."""
        return self.message.packet

    @property
    def position(self) -> int:
        """The position of the message in its queue."""
        return self.message.position


@dataclass(slots=True, eq=False)
class SessionData:
    """The ADM elements of one session, named as in the specification, and the session's outbox.

    Counts are 16 bits wide and wrap every 65,536 messages; compare two of them only with `ahead`.
    """

    key: int
    local_qm: Guid
    remote_qm: Guid | None
    """RemoteQMGuid; None until the neighbour has identified itself."""
    remote_address: str
    direct: bool
    """Whether we opened the session for a direct format name, without knowing the GUID at the other end."""
    initiator: bool
    """Whether we opened the session."""
    settings: Settings
    timers: Timers
    state: SessionState
    admit: Admit
    """Called when the peer has presented a GUID that we did not expect."""
    certified: Guid | None = None
    """The queue manager to which the peer's certificate is pinned; None for a plain connection."""
    proven: bool = False
    """Whether the peer is believed to be the queue manager whose GUID it presents (`Routes.proves`).

    If not, it is a stranger.
    """
    met: bool = False
    """Whether the peer is a stranger at the address where the queue manager with its GUID was met."""
    address: str = ""
    """The address to which we connected, if `remote_address` is a name."""
    status: ConnectionStatus = ConnectionStatus.IN_PROCESS
    accepting: bool = True
    """Whether a connection request may be granted; False beyond `maximum_sessions`."""

    message_sent_count: int = 0
    recoverable_message_sent_count: int = 0
    message_received_count: int = 0
    recoverable_message_received_count: int = 0
    last_acked_recoverable_msg_seq_number: int = 0
    unacked_received_msg_count: int = 0
    unacked_received_bytes: int = 0
    """The bytes received since our last acknowledgment. The neighbour's own acknowledgments are included."""
    ack_due_ms: int | None = None
    """When to acknowledge received messages; None if none waits to be acknowledged."""
    received_window_size: int = 1
    session_active: bool = False
    received_ack: bool = False
    ack_wait_timeout_ms: int = 0
    recoverable_ack_send_timeout_ms: int = 0xFFFFFFFF

    unacknowledged: deque[InFlight] = field(default_factory=deque)
    """Sent messages that no AckSequenceNumber covers yet."""
    unsaved: deque[InFlight] = field(default_factory=deque)
    """Sent recoverable messages not yet flagged as saved, in order of sequence number, without gaps."""
    in_flight_bytes: int = 0
    timed_number: int = 0
    timed_ms: int | None = None
    """When message `timed_number` was sent; None if no message is being timed."""
    acknowledged_ms: float | None = None
    """How long the neighbour has recently taken to acknowledge a message; None if it never did."""
    completed: list[InFlight] = field(default_factory=list)
    """Messages completed since the queue manager last looked.

    The neighbour has received the express ones, and saved the recoverable ones.
    """

    outbox: list[bytes] = field(default_factory=list)
    last_message_index: int = -1
    """The outbox index of the last UserMessage if that may take a SessionHeader; otherwise -1."""
    closed: CloseTransport | None = None

    def send(self, packet: Packet) -> None:
        """Append an internal packet to the outbox."""
        self.outbox.append(encode_packet(packet))

    def received_is_answered(self) -> None:
        """Record that the next packet will acknowledge all received messages."""
        self.unacked_received_msg_count = self.unacked_received_bytes = 0
        if self.ack_due_ms is not None:
            self.ack_due_ms = None
            self.timers.stop(Timer.SESSION_ACK_SEND, self.key)

    def close(self, section: str, reason: str) -> None:
        """Close the session. The packets in the outbox are still sent.  3.1.5.9"""
        if self.state is SessionState.CLOSED:
            return
        if self.status in (ConnectionStatus.IN_PROCESS, ConnectionStatus.ESTABLISH_PACKET_RECEIVED):
            self.status = (
                ConnectionStatus.SOCKET_CONNECT_FAILURE
                if self.state is SessionState.CONNECTING
                else ConnectionStatus.UNKNOWN_FAILURE
            )
        self.state = SessionState.CLOSED
        self.closed = CloseTransport(self.key, section, shown(reason, TEXT_LIMIT))
        for timer in TIMERS:
            self.timers.stop(timer, self.key)

    @property
    def ack_wait_duration_ms(self) -> int:
        """The duration of the Session Ack Wait Timer: twice AckWaitTimeout for direct format names.

        [MS-MQQB] 3.1.2.4, note <46>
        """
        return self.ack_wait_timeout_ms * (2 if self.direct else 1)


Admit: TypeAlias = Callable[[SessionData, Guid, Moment], str | None]
"""Decides whether the peer with this GUID is `proven`. Returns the reason for refusing a session, or None."""


def admit_all(data: SessionData, manager: Guid, now: Moment) -> str | None:
    """Grant every session, but believe no GUID; this is for tools that only listen to a session."""
    return None


def ahead(number: int, reference: int) -> int:
    """Return how far one 16-bit count is ahead of another, from 0 to 65,535."""
    return (number - reference) & 0xFFFF

"""A session as its queue manager sees it: it turns bytes into UserMessages, and back.  3.1.5, 3.1.6"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any, Final, NamedTuple, TypeAlias

from mqproto.base.configuration import Settings
from mqproto.base.errors import WireFormatError
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.session.acknowledgment import (
    acknowledge,
    count_received,
    count_sent,
    is_due,
    say_paused,
    take_session_ack,
    take_session_header,
)
from mqproto.session.data import (
    Admit,
    ConnectionStatus,
    InFlight,
    Remote,
    SessionData,
    SessionState,
    admit_all,
)
from mqproto.session.handshake import (
    accept_parameters,
    adopt_parameters,
    answer_connection,
    confirm_connection,
    request_connection,
)
from mqproto.turn.effects import CloseTransport
from mqproto.wire import (
    ConnectionParameters,
    EstablishConnection,
    SessionAck,
    UnwelcomeError,
    UserMessage,
    Welcome,
    decode_packet,
)
from mqproto.wire.buffer import HEAD_SIZE, DroppingBuffer
from mqproto.wire.glance import is_recoverable, session_header_of
from mqproto.wire.guid import Guid
from mqproto.wire.patch import beginning
from mqproto.wire.shapes import Run, Shapes

__all__ = ["ConnectionStatus", "Data", "InFlight", "Remote", "Session", "SessionState"]

Data: TypeAlias = bytes | bytearray | memoryview
"""The types that are accepted for bytes."""


class Rule(NamedTuple):
    """The function that handles an expected packet, and the section that describes it."""

    section: str
    act: Callable[[SessionData, Any, Moment], None]


RECEIVE: Final = {
    (SessionState.WAITING_EC_MSG, EstablishConnection): Rule("3.1.5.3.1", answer_connection),
    (SessionState.WAITING_ECR_MSG, EstablishConnection): Rule("3.1.5.3.2", confirm_connection),
    (SessionState.WAITING_CP_MSG, ConnectionParameters): Rule("3.1.5.4.1", accept_parameters),
    (SessionState.WAITING_CPR_MSG, ConnectionParameters): Rule("3.1.5.4.2", adopt_parameters),
    (SessionState.OPEN, SessionAck): Rule("3.1.5.5", take_session_ack),
}
"""What to do with each internal packet, by the state that expects it. OPEN also expects UserMessages.

Any other pair of state and packet closes the session.
"""

UNWELCOME: Final = {
    EstablishConnection: "3.1.5.3",
    ConnectionParameters: "3.1.5.4",
    SessionAck: "3.1.5.5",
    UserMessage: "3.1.5.8",
}
WELCOME: Final = {
    state: Welcome.of(
        *(kind for welcoming, kind in RECEIVE if welcoming is state),
        *((UserMessage,) if state is SessionState.OPEN else ()),
    )
    for state in SessionState
}
"""The packets that each state expects. The PacketBuffer uses this to judge a packet's first 16 bytes.

Before a session is open, each state expects one packet of one fixed size, and the next state expects another. So a peer
sends exactly 604 bytes, an EstablishConnection and a ConnectionParameters, or is refused at the head of a packet. At
most 572 bytes are kept. Bytes that arrive after the session was closed are ignored.
"""
WELCOME_WHEN_OPEN: Final = WELCOME[SessionState.OPEN]
STRANGERS_IN_FLIGHT_BYTES: Final = 2**20
"""The maximum number of unacknowledged bytes on a session that a stranger has opened."""
PACKET_MS: Final = 60_000
PACKET_BYTES_PER_S: Final = 8 * 1024
"""The rate that determines how long any peer may take to send a packet that it has begun.

The time allowed is a fixed time plus the packet's size at this rate. More time would be useless, because the packet's
sender waits for our acknowledgment only for 20 to 120 s (3.1.2.4).
"""
UNSAVED_LIMIT: Final = 0x7FFF
"""The maximum number of sent messages that are not saved yet: half of the 16-bit circle.

Beyond that, an old acknowledgment could not be told from a new one.
"""


class Session:
    """One transport connection to a neighbour, from its first byte to its last.

    Args:
        admit: decides whether the peer is believed, and whether it gets a session. By default, nobody is believed.
        certified: the queue manager to which the peer's certificate is pinned.
    """

    def __init__(
        self,
        key: int,
        *,
        initiator: bool,
        local_qm: Guid,
        remote_qm: Guid | None,
        remote_address: str,
        direct: bool,
        settings: Settings,
        timers: Timers,
        admit: Admit = admit_all,
        certified: Guid | None = None,
    ) -> None:
        self.data = SessionData(
            key,
            local_qm,
            remote_qm,
            remote_address,
            direct,
            initiator,
            settings,
            timers,
            SessionState.CONNECTING if initiator else SessionState.WAITING_EC_MSG,
            admit,
            certified,
            ack_wait_timeout_ms=settings.ack_wait_timeout_ms,
        )
        self.key = key
        """The number by which the shell knows the transport."""
        self._buffer = DroppingBuffer()
        self._shapes = Shapes()
        self._order = 0
        self.begun_bytes = 0
        """The number of bytes of an incomplete packet."""
        self.has_refused = False
        """Whether the session ended because we could not take a UserMessage from the neighbour."""

    @property
    def remote_address(self) -> str:
        """The neighbour's host."""
        return self.data.remote_address

    @property
    def remote_qm(self) -> Guid | None:
        """RemoteQMGuid, once it is known."""
        return self.data.remote_qm

    @property
    def remote(self) -> Remote:
        """Return the identity of the other end, once it is known."""
        data = self.data
        assert data.remote_qm is not None
        return Remote(data.remote_address, data.remote_qm, data.proven, data.met, data.address)

    @property
    def address(self) -> str:
        """The neighbour's address if its host is a name and was reached; otherwise its host."""
        return self.data.address or self.data.remote_address

    @property
    def is_accepted(self) -> bool:
        """Whether the peer opened the session."""
        return not self.data.initiator

    @property
    def is_anonymous(self) -> bool:
        """Whether the peer has connected to us but the session is not open yet."""
        return self.is_accepted and self.data.state in (
            SessionState.WAITING_EC_MSG,
            SessionState.WAITING_CP_MSG,
        )

    @property
    def is_proven(self) -> bool:
        """Whether the peer is believed to be the queue manager whose GUID it presents."""
        return self.data.proven

    @property
    def is_met(self) -> bool:
        """Whether the peer is a stranger at the address where the queue manager with its GUID was met."""
        return self.data.met

    @property
    def window(self) -> int:
        """The number of messages that may be unacknowledged at a time: the smaller of the two ends' windows."""
        return min(self.data.settings.window_size, self.data.received_window_size)

    @property
    def unacknowledged_count(self) -> int:
        """The number of sent messages that no AckSequenceNumber has acknowledged yet."""
        return len(self.data.unacknowledged)

    @property
    def acknowledged_ms(self) -> float | None:
        """How long the neighbour has recently taken to acknowledge a message; None if it never did."""
        return self.data.acknowledged_ms

    @property
    def is_open(self) -> bool:
        """Whether UserMessages may be sent and received."""
        return self.data.state is SessionState.OPEN

    @property
    def closed(self) -> CloseTransport | None:
        """Why the session closed itself; None if it did not."""
        return self.data.closed

    @property
    def room(self) -> int:
        """How many more messages may be sent, given the window in messages and our own limit in bytes.

        3.1.7.1 compares only with our WindowSize, so a neighbour with a smaller window could never slow us down.
        """
        data = self.data
        waits = data.unacknowledged or data.unsaved
        if data.state is not SessionState.OPEN or (waits and self.room_bytes <= 0):
            return 0
        return max(0, min(self.window - len(data.unacknowledged), UNSAVED_LIMIT - len(data.unsaved)))

    @property
    def room_bytes(self) -> int:
        """How many more bytes may be sent. A larger message may leave if no other is on its way."""
        data = self.data
        limit_bytes = data.settings.in_flight_bytes
        if not (data.initiator or data.proven):
            limit_bytes = min(limit_bytes, STRANGERS_IN_FLIGHT_BYTES)
        return limit_bytes - data.in_flight_bytes

    def opened(self, now: Moment, address: str = "") -> None:
        """Record that the transport that we asked for is open, to this address of the host."""
        self.data.address = address
        request_connection(self.data, now)

    @property
    def kept_bytes(self) -> int:
        """How many bytes of an incomplete packet are in memory."""
        return self._buffer.kept_bytes

    @property
    def is_hollow(self) -> bool:
        """Whether the body of an arriving message is being dropped."""
        return self._buffer.is_hollow

    def drop_body(self, may_drop: Callable[[bytes], bool]) -> None:
        """Drop the body of an arriving message if that is allowed; zeros replace it.

        may_drop: decides whether it is allowed, given the message without its body, its extension and later headers.
        """
        found = beginning(self._buffer.pending) if self.is_open else None
        if found is not None and may_drop(found[0]):
            self._buffer.drop(found[1], found[2])

    def receive(self, chunk: Data, now: Moment) -> list[Run]:
        """Take bytes as they arrive. Return the UserMessages in them, in order, checked but not decoded.

        Any fault in the bytes closes the session; `closed` says why.  3.1.5.1
        """
        data = self.data
        data.received_ack = True
        begun_bytes, came_bytes = self.begun_bytes, len(chunk)
        runs: list[Run] = []
        try:
            if data.state is not SessionState.OPEN:
                self._shake_hands(chunk, now)
                chunk = b""  # Bytes behind the handshake wait in the buffer.
            if data.state is SessionState.OPEN:
                self._take(chunk, runs, now)
        except UnwelcomeError as unwelcome:
            kind, state = unwelcome.kind, data.state.name
            data.close(UNWELCOME[kind], f"{kind.__name__} is not welcome in state {state}")
        except WireFormatError as error:
            answers = data.state is SessionState.WAITING_ECR_MSG
            data.close("3.1.5.1.3", f"it speaks no MSMQ: {error}" if answers else str(error))
        self.begun_bytes = self._buffer.pending_bytes
        if begun_bytes or self.begun_bytes:
            self._time_packet(begun_bytes, came_bytes, now)
        return runs

    def _time_packet(self, begun_bytes: int, came_bytes: int, now: Moment) -> None:
        """Start, continue or stop the timer of an incomplete packet, which runs from the packet's first byte.

        begun_bytes: how many bytes of the incomplete packet were there before the latest bytes came.
        """
        left_bytes = self.begun_bytes
        if not left_bytes or self.data.closed is not None:
            self.data.timers.stop(Timer.PACKET, self.key)
        elif left_bytes < begun_bytes + came_bytes or begun_bytes < HEAD_SIZE:  # Another, or its size is new.
            time_ms = PACKET_MS + 1_000 * self._packet_bytes // PACKET_BYTES_PER_S
            self.data.timers.start(Timer.PACKET, self.key, now.uptime_ms + time_ms)

    @property
    def _packet_bytes(self) -> int:
        """The size of the incomplete packet, as far as it is known so far."""
        return self.begun_bytes + self._buffer.missing_bytes

    def _shake_hands(self, chunk: Data, now: Moment) -> None:
        """Take one packet after another until the session is open. Each packet decides what may follow it."""
        data = self.data
        while data.state not in (SessionState.OPEN, SessionState.CLOSED):
            packets = self._buffer.feed(chunk, WELCOME[data.state])
            if not packets:
                break
            packet = decode_packet(packets[0])
            RECEIVE[data.state, type(packet)].act(data, packet, now)
            chunk = b""

    def _take(self, chunk: Data, runs: list[Run], now: Moment) -> None:
        """Take UserMessages, and session acknowledgments between them, while the session is open."""
        data = self.data
        data.unacked_received_bytes += len(chunk)
        every = self._shapes.runs(self._buffer.feed(chunk, WELCOME_WHEN_OPEN))
        try:
            for found in every:
                if isinstance(found, bytes):
                    packet = decode_packet(found)
                    RECEIVE[SessionState.OPEN, type(packet)].act(data, packet, now)
                else:
                    first = found.packets[0]
                    count_received(data, len(found.packets), recoverable=is_recoverable(first))
                    runs.append(found)
                    if not found.shape.may_have_others and (header := session_header_of(first)) is not None:
                        take_session_header(data, header, now)  # 3.1.5.8.4
                if data.state is SessionState.CLOSED:
                    return
        except WireFormatError as error:
            if getgeneratorstate(every) != GEN_CLOSED:  # It was not a UserMessage.
                raise
            self.refuse("3.1.5.1.3", str(error))
        if self._buffer.fault is not None:
            raise self._buffer.fault

    def send(self, entries: Sequence[InFlight], now: Moment, *, bare: bool = False) -> None:
        """Send these messages, at least one.  3.1.7.1.6

        The caller has checked that there is `room`.

        bare: whether they are OrderAcks or FinalAcks, which take no SessionHeader: all bits of their BaseHeader.Flags
            are 0.  2.2.4, 2.2.5
        """
        for entry in entries:
            self._order += 1
            entry.order = self._order
        count_sent(self.data, entries, now)
        self.data.outbox += [entry.sealed or entry.message.packet for entry in entries]
        self.data.last_message_index = -1 if bare else len(self.data.outbox) - 1

    def pause(self) -> None:
        """Tell the neighbour that a queue towards it is on hold.  3.1.7.13"""
        say_paused(self.data)

    def acknowledge(self, now: Moment | None = None) -> None:
        """Acknowledge everything received. The outbox leaves only after the commit.

        now: if given, the acknowledgment may wait a little for more messages.
        """
        if self.data.state is SessionState.OPEN and (now is None or is_due(self.data, now)):
            acknowledge(self.data)

    def take_outbox(self) -> list[bytes]:
        """Return what to write to the transport, in order."""
        chunks, self.data.outbox = self.data.outbox, []
        self.data.last_message_index = -1
        return chunks

    def take_completed(self) -> list[InFlight]:
        """Return the messages that the neighbour has completely acknowledged since the last call."""
        completed, self.data.completed = self.data.completed, []
        return completed

    def lost(self) -> list[InFlight]:
        """Return the unacknowledged messages, in the order in which they were sent."""
        pending = {
            entry.order: entry for entry in (*self.data.unsaved, *self.data.unacknowledged) if not entry.done
        }
        return [pending[order] for order in sorted(pending)]

    def unacknowledged(self) -> list[InFlight]:
        """Return the sent messages whose receipt the neighbour has not acknowledged."""
        return [entry for entry in self.data.unacknowledged if not entry.done]

    def give_up(self, entries: Iterable[InFlight]) -> None:
        """Stop awaiting answers for these messages. The neighbour may have them, so they still count."""
        for entry in entries:
            entry.done = True
            self.data.in_flight_bytes -= len(entry.packet)

    def close(self, section: str, reason: str) -> None:
        """Close the session for a reason of our own."""
        self.data.close(section, reason)

    def refuse(self, section: str, reason: str) -> None:
        """Close the session because a UserMessage from the neighbour cannot be taken.

        This means that our own messages are not the cause.
        """
        self.has_refused |= self.data.closed is None
        self.data.close(section, reason)

    def expired(self, timer: Timer, now: Moment) -> None:
        """Handle the expiry of a session timer."""
        data = self.data
        if timer is Timer.SESSION_INITIALIZATION:  # 3.1.6.6
            data.close("3.1.6.6", f"no answer during the handshake, in state {data.state.name}")
        elif timer is Timer.SESSION_CLEANUP:  # 3.1.6.2
            if not data.session_active and not data.unacknowledged:
                data.close("3.1.6.2", "no messages for the whole session cleanup interval")
                return
            data.session_active = False
            data.timers.start(timer, self.key, now.uptime_ms + data.settings.session_cleanup_timeout_ms)
        elif timer is Timer.SESSION_ACK_WAIT:  # 3.1.6.3
            if not data.unacknowledged and not data.unsaved:
                data.received_ack = False
            elif not data.received_ack:
                data.close(
                    "3.1.6.3",
                    f"{len(self.lost())} messages wait for a session acknowledgment and nothing came for "
                    f"{data.ack_wait_duration_ms / 1_000:g} s",
                )
            else:
                data.received_ack = False
                data.timers.start(timer, self.key, now.uptime_ms + data.ack_wait_duration_ms)
        elif timer is Timer.PACKET:
            came, size = self.begun_bytes, self._packet_bytes
            data.close(
                "3.1.5.1", f"a packet has begun and comes too slowly: {came:,} bytes of {size:,} are here"
            )
        else:  # 3.1.6.4: this turn acknowledges.
            assert timer is Timer.SESSION_ACK_SEND

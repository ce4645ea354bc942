"""One protocol session: how it opens, counts and acknowledges.  [MS-MQQB] 3.1.1.3.1, 3.1.5.2 to 3.1.5.5"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING
from uuid import UUID

from .packets import (
    NULL,
    ConnectionParameters,
    EstablishConnection,
    Packet,
    SessionAck,
    SessionHeader,
    UserMessage,
)
from .queues import Flight, Outgoing

if TYPE_CHECKING:
    from .peer import Peer

HALF_SECOND = 0.5
FLAGS = 32
"""The number of bits in RecoverableMsgAckFlags."""


class State(Enum):
    """SessionState.  [MS-MQQB] 3.1.1.3.1"""

    WAITING_EC_MSG = auto()
    WAITING_ECR_MSG = auto()
    WAITING_CP_MSG = auto()
    WAITING_CPR_MSG = auto()
    OPEN = auto()
    CLOSED = auto()


@dataclass(eq=False)
class Session:
    """Both directions of one connection; counts do not wrap here, but are cut to 16 bits when they are packed."""

    peer: Peer
    address: str
    """The address of the other side: RemoteQMAddress."""
    write: Callable[[bytes], None]
    hang_up: Callable[[], None]
    host: str = ""
    """The name by which we called the other side; empty if it called us."""
    wanted: UUID = NULL
    """The queue manager that we called, null for a direct name."""
    state: State = State.WAITING_EC_MSG
    remote: UUID = NULL
    window: int = 0
    """ReceivedWindowSize."""
    sent: int = 0
    recoverable_sent: int = 0
    received: int = 0
    recoverable_received: int = 0
    flights: list[Flight] = field(default_factory=list)
    """Messages that were sent on this session and are not completely acknowledged yet."""
    to_acknowledge: int = 0
    """UnackedReceivedMsgCount."""
    persisted: list[int] = field(default_factory=list)
    """The number that this session gave to each recoverable message that is on disk.

    Messages that RecoverableMsgAckFlags have already reported are left out.
    """
    ack_started: float = inf
    ack_due: float = inf
    flags_due: float = inf
    last_told: int = 0
    """The previous AckSequenceNumber."""
    heard: float = 0.0
    sent_at: float = 0.0
    give_up: float = inf
    """The time at which the Session Initialization Timer or the Session Ack Wait Timer expires."""
    recoverable_ack_timeout: float = HALF_SECOND

    @property
    def closed(self) -> bool:
        return self.state is State.CLOSED

    # -- opening --------------------------------------------------------------------------------------------------

    def call(self, pinged: bool) -> None:
        """[MS-MQQB] 3.1.5.2.3"""
        stamp = int(self.peer.now() * 1000)
        self.send(EstablishConnection(self.peer.guid, self.wanted, stamp, pinged))
        self.state = State.WAITING_ECR_MSG

    def receive(self, packet: Packet) -> None:
        """Take a packet that is expected in the current state; any other packet closes the session."""
        self.heard = self.peer.now()
        match packet, self.state:
            case EstablishConnection(), State.WAITING_EC_MSG:
                self._answer(packet)
            case EstablishConnection(), State.WAITING_ECR_MSG:
                self._confirm(packet)
            case ConnectionParameters(), State.WAITING_CP_MSG:
                self._accept(packet)
            case ConnectionParameters(), State.WAITING_CPR_MSG:
                self.window = packet.window_size
                self._open()
            case SessionAck(), State.OPEN:
                self.take_header(packet.header)
            case UserMessage(), State.OPEN:
                self.peer.arrivals.take(self, packet)
            case _:
                self.close(f"{type(packet).__name__} in {self.state.name}")

    def _answer(self, packet: EstablishConnection) -> None:
        """[MS-MQQB] 3.1.5.3.1"""
        self.remote = packet.client
        welcome = packet.server == self.peer.guid
        if packet.server == NULL and not self.peer.switches.refuse_null_server:
            welcome = True
        answer = EstablishConnection(packet.client, self.peer.guid, packet.time_stamp, packet.pinged)
        answer.refused, answer.response = not welcome, True
        self.send(answer)
        self.state = State.WAITING_CP_MSG
        if not welcome:
            self.close("the connection names another queue manager")

    def _confirm(self, packet: EstablishConnection) -> None:
        """[MS-MQQB] 3.1.5.3.2"""
        if packet.refused or packet.client != self.peer.guid or self.wanted not in (NULL, packet.server):
            self.close("the connection was refused, or another queue manager answered")
            return
        self.remote = packet.server
        round_trip = (int(self.peer.now() * 1000) - packet.time_stamp) & 0xFFFFFFFF
        timeout = min(max(8 * round_trip, 500), 120_000)
        self.recoverable_ack_timeout = timeout / 1000
        ack_wait = int(self.peer.timers.ack_wait * 1000)
        self.send(ConnectionParameters(timeout, ack_wait, self._announced()))
        self.state = State.WAITING_CPR_MSG

    def _accept(self, packet: ConnectionParameters) -> None:
        """[MS-MQQB] 3.1.5.4.1"""
        self.window = packet.window_size
        self.recoverable_ack_timeout = packet.recoverable_ack_timeout / 1000
        self.send(ConnectionParameters(packet.recoverable_ack_timeout, packet.ack_timeout, self._announced()))
        self._open()

    def _announced(self) -> int:
        return 0 if self.peer.switches.window_zero else self.peer.window

    def _open(self) -> None:
        self.state, self.give_up = State.OPEN, inf
        self.peer.opened(self)

    def close(self, reason: str) -> None:
        """Close the session without sending anything, by closing the transport.  [MS-MQQB] 3.1.5.9"""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self.peer.closed(self, reason)
        self.hang_up()

    def time_out(self, now: float) -> float:
        """Close a session that does not open or acknowledge in time; return when to check next.  [MS-MQQB] 3.1.6.3,
        3.1.6.6
        """
        if self.state is State.OPEN:
            self.give_up = max(self.heard, self.sent_at) + self.peer.timers.ack_wait if self.flights else inf
        if self.give_up <= now:
            self.close("nothing came in time")
            return inf
        return min(self.give_up, self.next_ack() if self.state is State.OPEN else inf)

    def send(self, packet: Packet) -> None:
        self.write(self.peer.codec.pack(packet))

    # -- what we send, and what acknowledges it -------------------------------------------------------------------

    def room(self) -> int:
        """Return how many messages may leave now.  [MS-MQQB] 3.1.7.1"""
        own = self.peer.window
        return (own if self.peer.switches.own_window else min(own, self.window)) - sum(
            not flight.acknowledged for flight in self.flights
        )

    def send_message(self, entry: Outgoing, last: bool) -> None:
        """Count a message, and send it; the last one of a turn carries an acknowledgment.  [MS-MQQB] 3.1.7.1.3,
        3.1.7.11
        """
        message = entry.message
        self.sent += 1
        self.recoverable_sent += message.recoverable
        self.sent_at = self.peer.now()
        self.flights.append(Flight(entry, self.sent, self.recoverable_sent if message.recoverable else 0))
        message.session = self._header() if last and self._rides() else None
        self.send(message)
        message.session = None
        entry.on_way = entry.transmitted = True

    def _rides(self) -> bool:
        if not self.to_acknowledge:
            return False
        if self.peer.switches.session_header_late:
            return self.peer.now() >= self.ack_started + 0.75 * self.recoverable_ack_timeout
        return self.ack_due <= self.peer.now()

    def take_header(self, header: SessionHeader) -> None:
        """Delete the acknowledged messages, then compare the counts.  [MS-MQQB] 3.1.5.5"""
        through = unwrapped(header.ack_sequence_number, self.sent)
        says = header.recoverable_ack_number or header.recoverable_ack_flags
        base = unwrapped(header.recoverable_ack_number, self.recoverable_sent) if says else 0
        told = {base + k for k in range(FLAGS) if header.recoverable_ack_flags >> k & 1}
        for flight in list(self.flights):
            number = flight.recoverable_number
            flight.acknowledged = flight.acknowledged or flight.number <= through
            if flight.acknowledged if not number else number <= base or number in told:
                self.flights.remove(flight)
                self.peer.departures.taken(flight.entry)
        if (header.user_message_number, header.recoverable_number) != (
            self.received & 0xFFFF,
            self.recoverable_received & 0xFFFF,
        ):
            self.close(
                f"{header} where {self.received} messages came, {self.recoverable_received} recoverable"
            )

    # -- what comes, and how we acknowledge it --------------------------------------------------------------------

    def count(self, message: UserMessage) -> None:
        """Count a message that has arrived; it will be on disk before anybody is told of it.  [MS-MQQB] 3.1.5.8.2,
        3.1.5.8.7
        """
        self.received += 1
        self.to_acknowledge += 1
        now, late = self.peer.now(), self.peer.switches.acks_at_33rd
        if self.to_acknowledge == 1:
            self.ack_started, self.ack_due = now, now + (self.recoverable_ack_timeout if late else 0)
        if self.to_acknowledge > FLAGS:
            self.ack_due = now
        if message.recoverable:
            self.recoverable_received += 1
            self.persisted.append(self.recoverable_received)
            if self.flags_due == inf:
                self.flags_due = now + (HALF_SECOND if self.peer.switches.flags_late else 0)

    def acknowledge(self, now: float) -> None:
        """Send each SessionAck that is due.  [MS-MQQB] 3.1.6.4, 3.1.5.8.7"""
        while (self.to_acknowledge and self.ack_due <= now) or (
            self.persisted and max(self.flags_due, self._held()) <= now
        ):
            before = self.last_told
            header = self._header()
            self.send(SessionAck(header))
            if self.peer.switches.stale_acks:
                counts = header.user_message_number, header.recoverable_number
                self.send(SessionAck(SessionHeader(before, 0, 0, *counts, header.window_size)))

    def _held(self) -> float:
        """Return the time until which RecoverableMsgAckFlags are held back.

        Messages that have arrived are first acknowledged by AckSequenceNumber.
        """
        return self.ack_due if self.to_acknowledge else -inf

    def next_ack(self) -> float:
        due = self.ack_due if self.to_acknowledge else inf
        return min(due, max(self.flags_due, self._held()) if self.persisted else inf)

    def _header(self, window: int | None = None) -> SessionHeader:
        """Return a header that acknowledges the receipt of all messages.  [MS-MQMQ] 2.2.20.4

        The header also reports as many recoverable messages on disk as its flags have bits.
        """
        now, switches = self.peer.now(), self.peer.switches
        lowest = self.persisted[0] if self.persisted and self.flags_due <= now else 0
        told = [n for n in self.persisted if lowest and n - lowest < FLAGS]
        if switches.flags_sparse:
            told = told[::2]
        flags = sum(1 << n - lowest for n in told)
        if switches.flags_absent:
            told = self.persisted
            lowest, flags = max(told, default=0), 0
        self.persisted = [n for n in self.persisted if n not in told]
        self.flags_due = self.flags_due if self.persisted else inf
        self.to_acknowledge, self.ack_due, self.last_told = 0, inf, self.received
        if self.persisted and told:
            self.flags_due = now + HALF_SECOND if switches.flags_sparse else now
        counts = self.sent, self.recoverable_sent
        return SessionHeader(
            self.received, lowest, flags, *counts, self.peer.window if window is None else window
        )

    def pause(self) -> None:
        """Ask the other side to send at most one message.  [MS-MQQB] 3.1.7.13"""
        if self.peer.switches.pause_acknowledges:
            header = self._header(window=1)
        else:
            header = SessionHeader(self.last_told, 0, 0, self.sent, self.recoverable_sent, 1)
        self.send(SessionAck(header))


def unwrapped(field: int, count: int) -> int:
    """Return the largest number up to `count` whose low 16 bits are those of `field`."""
    return count - ((count - field) & 0xFFFF)

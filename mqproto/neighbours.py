"""The neighbours of a queue manager: for each a session when there is something to send, and what to send on it.

[MS-MQQB] 3.1.5.2, 3.1.5.9, 3.1.6.1, 3.1.7.1
"""

from __future__ import annotations

from typing import Final

from mqproto.configuration import Settings
from mqproto.effects import CloseTransport, Note, OpenTransport, ReadPage, SendBytes
from mqproto.endings import Ending, Place
from mqproto.moment import Moment
from mqproto.pending import PendingWrites
from mqproto.ping import Pings, answer_ping
from mqproto.routing import NextHop
from mqproto.session import InFlight, Session
from mqproto.timers import Timer, Timers
from mqproto.transfer.outgoing import OutgoingQueue, OutgoingSequence
from mqproto.wire import MessageClass, UserHeader
from mqproto.wire.glance import is_traced, user_flags
from mqproto.wire.guid import Guid, guid_text

TURN: Final = 32
"""How many messages one queue sends before the next queue to the same neighbour has its turn."""

JOURNALED: Final = UserHeader.journal_positive.mask | UserHeader.has_transaction.mask
"""Of UserHeader.Flags: one with the first and without the second is journaled when a neighbour has it.  3.1.5.5.4"""


class Neighbour:
    """A next hop, the queues whose way leads over it, and the session that serves them."""

    def __init__(self, hop: NextHop) -> None:
        self.hop = hop
        self.queues: list[OutgoingQueue] = []
        self.session: Session | None = None
        self.connected = False
        """Whether the session has been seen open."""
        self.last_failure = ""

    @property
    def has_messages(self) -> bool:
        """Whether the OutgoingMessageTable has an entry: to be sent, or sent and not yet acknowledged.  3.1.1.3.1"""
        return any(queue.count and not queue.on_hold for queue in self.queues)

    @property
    def sending(self) -> list[OutgoingQueue]:
        """The queues with something to send; of those to one destination, that with the highest priority."""
        first: dict[str, OutgoingQueue] = {}
        for queue in self.queues:
            if queue.has_next:
                first.setdefault(queue.name, queue)
        return list(first.values())

    @property
    def sequences(self) -> list[OutgoingSequence]:
        """The queues that are sequences of our own."""
        return [queue for queue in self.queues if isinstance(queue, OutgoingSequence)]


class Neighbours:
    """All sessions, and the neighbours that they serve."""

    def __init__(
        self,
        identity: Guid,
        settings: Settings,
        timers: Timers,
        writes: PendingWrites,
        notes: list[Note],
        endings: list[Ending],
    ) -> None:
        self.sessions: dict[int, Session] = {}
        self._identity = identity
        self._settings = settings
        self._timers = timers
        self._writes = writes
        self._notes = notes
        self._endings = endings
        self._by_hop: dict[NextHop, Neighbour] = {}
        self._by_queue: dict[int, Neighbour] = {}
        self._by_session: dict[int, Neighbour] = {}
        self._awake: dict[Neighbour, None] = {}
        self._touched: dict[Session, None] = {}
        self._next_key = 1
        self._connects: list[OpenTransport] = []
        self._traced: list[tuple[bytes, str]] = []
        self.pings = Pings(identity, timers)

    # Queues and their way

    def attach(self, queue: OutgoingQueue, hop: NextHop) -> None:
        """A queue's way leads over this next hop."""
        neighbour = self._by_hop.get(hop)
        if neighbour is None:
            neighbour = self._by_hop[hop] = Neighbour(hop)
        neighbour.queues.append(queue)
        neighbour.queues.sort(key=lambda queue: -queue.priority)
        self._by_queue[queue.queue] = neighbour
        if queue.count:
            self._awake[neighbour] = None

    def wake(self, queue: OutgoingQueue) -> None:
        """A queue has something to send, or to read."""
        neighbour = self._by_queue.get(queue.queue)
        if neighbour is not None:
            self._awake[neighbour] = None

    def of_queue(self, queue: OutgoingQueue) -> Neighbour | None:
        """The neighbour that a queue's way leads over, or None where there is no way."""
        return self._by_queue.get(queue.queue)

    # Transports come and go

    def accepted(self, host: str, now: Moment) -> Session:
        """A neighbour has opened a transport to us.  3.1.5.10"""
        session = self._new_session(initiator=False, remote_qm=None, host=host, direct=False)
        session.data.accepting = len(self.sessions) <= self._settings.maximum_sessions
        deadline_ms = now.uptime_ms + self._settings.session_initialization_timeout_ms
        self._timers.start(Timer.SESSION_INITIALIZATION, session.key, deadline_ms)
        return session

    def opened(self, key: int, now: Moment) -> None:
        """A transport that we asked for is open.  3.1.5.2.3"""
        session = self.sessions.get(key)
        if session is not None:
            session.opened(now)
            self._touched[session] = None

    def pinged(self, datagram: bytes) -> bytes | None:
        """Somebody asks whether a session would be accepted: what to answer.  3.1.7.7"""
        accepting = len(self.sessions) < self._settings.maximum_sessions
        return answer_ping(datagram, self._identity, accepting=accepting)

    def ping_answered(self, key: int, datagram: bytes) -> bool:
        """A datagram came from where we sent a Ping; whether that decided anything.  3.1.7.8"""
        session = self.sessions.get(key)
        if session is None:
            return False
        connect = self.pings.answered(session, datagram)
        if connect is not None:
            self._connects.append(connect)
        self._touched[session] = None
        return connect is not None or session.closed is not None

    def lost(self, key: int, reason: str, now: Moment) -> None:
        """A transport broke or could not be opened.  3.1.7.3"""
        session = self.sessions.get(key)
        if session is not None:
            session.close("3.1.7.3", reason)
            session.take_outbox()
            self._forget(session, now)

    def touched(self, session: Session) -> None:
        """Something happened to a session: it is looked at in this turn."""
        self._touched[session] = None

    def _new_session(self, *, initiator: bool, remote_qm: Guid | None, host: str, direct: bool) -> Session:
        key = self._next_key
        self._next_key += 1
        session = self.sessions[key] = Session(
            key,
            initiator=initiator,
            local_qm=self._identity,
            remote_qm=remote_qm,
            remote_address=host,
            direct=direct,
            settings=self._settings,
            timers=self._timers,
        )
        return session

    def _forget(self, session: Session, now: Moment) -> None:
        """A session is over: what nobody answered for is next again, on another one.  3.1.5.9"""
        assert session.closed is not None
        del self.sessions[session.key]
        self._touched.pop(session, None)
        self.pings.forget(session.key)
        self._note_close(session)
        self._complete(session)
        lost: dict[OutgoingQueue, list[InFlight]] = {}
        for entry in session.lost():
            assert isinstance(entry.origin, OutgoingQueue)
            lost.setdefault(entry.origin, []).append(entry)
        for queue, entries in lost.items():
            queue.returned(entries)
        neighbour = self._by_session.pop(session.key, None)
        if neighbour is None:
            return
        neighbour.session = None
        neighbour.connected = False
        neighbour.last_failure = session.closed.reason
        for sequence in neighbour.sequences:
            sequence.disconnected()
        if neighbour.has_messages:
            self._timers.start(
                Timer.SESSION_RETRY_CONNECT, neighbour, now.uptime_ms + self._settings.try_connect_interval_ms
            )

    def _note_close(self, session: Session) -> None:
        closed = session.closed
        assert closed is not None
        facts: dict[str, str | int] = {"session": session.key, "peer": session.data.remote_address}
        if session.remote_qm is not None:
            facts["manager"] = guid_text(session.remote_qm)
        facts |= {"section": closed.section, "reason": closed.reason}
        self._notes.append(Note("session-closed", facts))

    # One turn

    def turn(self, now: Moment) -> tuple[list[ReadPage], list[SendBytes], list[CloseTransport]]:
        """Settle what was acknowledged, send what may be sent, acknowledge what was received."""
        for session in list(self._touched):
            self._settle(session, now)
        reads: list[ReadPage] = []
        while self._awake:
            awake, self._awake = self._awake, {}
            for neighbour in awake:
                reads += self._dispatch(neighbour, now)
        sends: list[SendBytes] = []
        closes: list[CloseTransport] = []
        touched, self._touched = self._touched, {}
        for session in touched:
            session.acknowledge()
            chunks = session.take_outbox()
            if chunks:
                sends.append(SendBytes(session.key, chunks))
            if session.closed is not None:
                closes.append(session.closed)
                self._forget(session, now)
        return reads, sends, closes

    def take_traced(self) -> list[tuple[bytes, str]]:
        """The traced messages that were sent, and the hosts that they were sent to."""
        traced, self._traced = self._traced, []
        return traced

    def take_connects(self) -> list[OpenTransport]:
        """The transports to open now."""
        connects, self._connects = self._connects, []
        return connects

    def _complete(self, session: Session) -> None:
        """The messages that the neighbour has answered for leave their queues."""
        for entry in session.take_completed():
            assert isinstance(entry.origin, OutgoingQueue)
            entry.origin.acknowledged(entry, self._writes)
            if user_flags(entry.packet) & JOURNALED == UserHeader.journal_positive.mask:
                self._endings.append(Ending(entry.packet, MessageClass.ACK_REACH_QUEUE, Place.ELSEWHERE))

    def _settle(self, session: Session, now: Moment) -> None:
        self._complete(session)
        neighbour = self._by_session.get(session.key)
        if neighbour is None and session.is_open and session.remote_qm is not None:
            neighbour = self._adopt(session)
        if neighbour is not None:
            if session.is_open and not neighbour.connected:
                neighbour.connected = True
                self._notes.append(Note("session-open", {"session": session.key, "peer": str(neighbour.hop)}))
                for sequence in neighbour.sequences:
                    sequence.connected(now)
            self._awake[neighbour] = None

    def _adopt(self, session: Session) -> Neighbour | None:
        """A session that the neighbour opened serves ours as well, if we have none of our own."""
        for neighbour in self._by_hop.values():
            if neighbour.session is None and neighbour.hop.manager == session.remote_qm:
                neighbour.session = session
                self._by_session[session.key] = neighbour
                self._timers.stop(Timer.SESSION_RETRY_CONNECT, neighbour)
                return neighbour
        return None

    def _dispatch(self, neighbour: Neighbour, now: Moment) -> list[ReadPage]:
        """Send what the window allows, queue by queue in turns, or see that there will be a session."""
        session = neighbour.session
        if session is None:
            if neighbour.has_messages and not self._timers.runs(Timer.SESSION_RETRY_CONNECT, neighbour):
                self._connect(neighbour, now)
            return []
        if not session.is_open:
            return []
        while session.has_room and (sending := neighbour.sending):
            for queue in sending:
                for _ in range(TURN):
                    if not (queue.has_next and session.has_room):
                        break
                    self._send_next(queue, session, now)
        self._touched[session] = None
        return [page for queue in neighbour.queues for page in queue.pages()]

    def _send_next(self, queue: OutgoingQueue, session: Session, now: Moment) -> None:
        """Send the next message of a queue, unless its time is over.  3.1.7.1"""
        message = queue.take(now, self._writes)
        if isinstance(message, InFlight):
            session.send(message, now)
            if is_traced(message.packet):
                self._traced.append((message.packet, session.data.remote_address))
        else:
            self._endings.append(
                Ending(message.packet, MessageClass.NACK_REACH_QUEUE_TIMEOUT, Place.ON_THE_WAY)
            )

    def _connect(self, neighbour: Neighbour, now: Moment) -> None:
        """Open a session to a neighbour, or use one that it has opened.  3.1.5.2"""
        for session in self.sessions.values():
            if (
                session.is_open
                and neighbour.hop.manager == session.remote_qm
                and session.key not in self._by_session
            ):
                self._adopt(session)
                self._touched[session] = None
                self._awake[neighbour] = None
                return
        hop = neighbour.hop
        direct = hop.manager is None
        session = self._new_session(initiator=True, remote_qm=hop.manager, host=hop.host, direct=direct)
        neighbour.session = session
        self._by_session[session.key] = neighbour
        connect = OpenTransport(session.key, hop.host, hop.port)
        if self._settings.ping:
            self.pings.ask(connect, hop.ping_address, now)  # 3.1.5.2.2
        else:
            self._connects.append(connect)

    # Timers

    def retry(self, neighbour: Neighbour) -> None:
        """The Session Retry Connect Timer is due.  3.1.6.1"""
        self._awake[neighbour] = None

    def expired(self, timer: Timer, key: int, now: Moment) -> None:
        """A session's timer is due."""
        session = self.sessions.get(key)
        if session is not None:
            if timer is Timer.PING_RESPONSE:
                self.pings.expired(session)
            else:
                session.expired(timer, now)
            self._touched[session] = None

    def hold(self, queue: OutgoingQueue) -> None:
        """A queue is paused: the neighbour is told of a window of one.  3.1.7.13"""
        neighbour = self._by_queue.get(queue.queue)
        if neighbour is not None and neighbour.session is not None and neighbour.session.is_open:
            neighbour.session.pause()
            self._touched[neighbour.session] = None

    def close_all(self, reason: str, now: Moment) -> None:
        """The queue manager stops.  3.1.4.2"""
        for session in list(self.sessions.values()):
            session.close("3.1.4.2", reason)
            self._touched[session] = None

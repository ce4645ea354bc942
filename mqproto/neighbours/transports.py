"""The transports to other hosts, and the session on each of them.

[MS-MQQB] 3.1.5.2, 3.1.5.10, 3.1.7.6, 3.1.7.7, 3.1.7.8
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.neighbours.door import Door, Refuses
from mqproto.neighbours.hosts import BLOCKED, Hosts
from mqproto.neighbours.met import Acquaintance, Met
from mqproto.neighbours.ping import Pings, answer_ping
from mqproto.routing import NextHop, Routes
from mqproto.session import Data, Session
from mqproto.turn.desk import Desk
from mqproto.turn.effects import Batch, OpenTransport, SendBytes
from mqproto.wire.guid import Guid
from mqproto.wire.shapes import Run


class SessionTransports:
    """All transports, by number. This class opens and accepts them, and takes the bytes that they receive."""

    def __init__(self, desk: Desk, routes: Routes, met: Met) -> None:
        self._desk = desk
        self.sessions: dict[int, Session] = {}
        self.touched: dict[Session, None] = {}
        """The sessions to which something has happened in this turn."""
        self.door = Door(desk, routes, met, self.sessions)
        self.hosts = Hosts()
        self.pings = Pings(desk)
        self.stopped = False
        """Whether the queue manager is stopping, so that no more sessions are opened."""
        self._next_key = 1
        self.connects: list[OpenTransport] = []
        """The transports to open in this turn."""
        self.new_session = self._new_session
        self.receive = Session.receive
        self.acknowledge = Session.acknowledge
        """Three functions that tests may replace: one opens sessions, one receives bytes, and one acknowledges. See
        manager/parts.py.
        """

    def connected(self, *, proven: bool = True) -> set[Guid]:
        """Return the queue managers that have an open session with us: known ones if `proven`, else strangers."""
        return {
            session.remote_qm
            for session in self.sessions.values()
            if session.is_open and session.remote_qm is not None and session.is_proven == proven
        }

    def accepted(self, host: str, now: Moment, certified: Guid | None = None) -> Session:
        """Record that a peer has opened a transport to us.  3.1.5.10"""
        session = self.new_session(
            initiator=False, remote_qm=None, host=host, direct=False, certified=certified
        )
        self.hosts.of(session, now)
        self.touched |= dict.fromkeys(self.door.enter(session))
        if session.closed is not None:
            return session
        session.data.accepting = len(self.sessions) <= self._desk.settings.maximum_sessions
        deadline_ms = now.uptime_ms + self._desk.settings.session_initialization_timeout_ms
        self._desk.timers.start(Timer.SESSION_INITIALIZATION, session.key, deadline_ms)
        return session

    def opened(self, key: int, now: Moment, address: str = "") -> None:
        """Record that a transport that we asked for is open.  3.1.5.2.3"""
        session = self.sessions.get(key)
        if session is not None:
            session.opened(now, address)
            self.touched[session] = None

    def pinged(self, datagram: bytes) -> bytes | None:
        """Return the answer to a datagram that may be a Ping, or None if it gets no answer.  2.1.2, 3.1.7.7"""
        if not self._desk.settings.answer_pings:
            return None
        accepting = len(self.sessions) < self._desk.settings.maximum_sessions
        return answer_ping(datagram, self._desk.identity, accepting=accepting)

    def ping_answered(self, key: int, datagram: bytes) -> bool:
        """Take a datagram from an address that we pinged. Return whether it decided anything.  3.1.7.8

        It decides something if the transport can now be opened, or if the session has ended.
        """
        session = self.sessions.get(key)
        if session is None:
            return False
        connect = self.pings.answered(session, datagram)
        if connect is not None:
            self.connects.append(connect)
        self.touched[session] = None
        return connect is not None or session.closed is not None

    def hear(self, session: Session, data: Data, now: Moment, refuses: Refuses) -> list[Run]:
        """Take bytes, and return the complete messages.

        Only a part of a stranger's incomplete packet may be kept.
        """
        if session.is_proven:
            return self.receive(session, data, now)
        runs, ended = self.door.hear(session, partial(self.receive, session, data, now), refuses)
        self.touched |= dict.fromkeys(ended)
        return runs

    def touch(self, session: Session) -> None:
        """Mark a session, because something has happened to it that must be handled in this turn."""
        self.touched[session] = None

    def flush(self, session: Session, batch: Batch, now: Moment) -> None:
        """Acknowledge what arrived, and add the session's outgoing bytes to the batch.

        If the session has ended, its end is added, too.
        """
        self.acknowledge(session, now)
        if chunks := session.take_outbox():
            batch.sends.append(SendBytes(session.key, chunks))
            self.hosts.of(session, now).sent_bytes += sum(map(len, chunks))
        if session.closed is not None:
            batch.closes.append(session.closed)

    def forget(self, session: Session, now: Moment) -> None:
        """Forget a session that has ended."""
        del self.sessions[session.key]
        self.touched.pop(session, None)
        self.hosts.ended(session, now)
        self.pings.forget(session.key)

    def _new_session(
        self,
        *,
        initiator: bool,
        remote_qm: Guid | None,
        host: str,
        direct: bool,
        certified: Guid | None = None,
    ) -> Session:
        key = self._next_key
        self._next_key += 1
        session = self.sessions[key] = Session(
            key,
            initiator=initiator,
            local_qm=self._desk.identity,
            remote_qm=remote_qm,
            remote_address=host,
            direct=direct,
            settings=self._desk.settings,
            timers=self._desk.timers,
            admit=self.door.admit,
            certified=certified,
        )
        return session

    def connect(self, hop: NextHop, now: Moment, avoid: str = "") -> Session:
        """Begin to open a session.  3.1.5.2.2, 3.1.5.2.3

        avoid: the address, among those of the hop's host, to try last.
        """
        manager = hop.manager
        session = self.new_session(initiator=True, remote_qm=manager, host=hop.host, direct=manager is None)
        connect = OpenTransport(session.key, hop.host, hop.port, manager if hop.tls else None, avoid)
        if self._desk.settings.require_pings:
            self.pings.ask(connect, hop.ping_address, now)  # 3.1.5.2.2
        else:
            self.connects.append(connect)
        return session

    def expired(self, timer: Timer, key: int, now: Moment) -> None:
        """Handle the expiry of a session's timer."""
        session = self.sessions.get(key)
        if session is not None:
            if timer is Timer.PING_RESPONSE:
                self.pings.expired(session)
            else:
                session.expired(timer, now)
            self.touched[session] = None

    def moved(self, manager: Guid, found: Acquaintance | None) -> None:
        """End a queue manager's sessions with addresses other than those where it was met.

        If `found` is None, the queue manager no longer counts as met.
        """
        for session in self.sessions.values():
            if session.remote_qm != manager or not session.is_met:
                continue
            if found is None:
                session.data.met = False
            elif not found.is_at(session.address):
                session.close("3.1.5.10", "its queue manager is met elsewhere now")
                self.touched[session] = None

    def close_all(self, reason: str) -> None:
        """Close all sessions because the queue manager stops.  3.1.4.2"""
        self.stopped = True
        for session in list(self.sessions.values()):
            self.acknowledge(session)
            session.close("3.1.4.2", reason)
            self.touched[session] = None

    def turn_out(self, is_blocked: Callable[[str], bool]) -> int:
        """End the sessions from hosts that are now blocked. Return how many sessions were ended."""
        found = [one for one in self.sessions.values() if one.is_accepted and is_blocked(one.remote_address)]
        for session in found:
            session.close("3.1.5.10", BLOCKED)
            self.touched[session] = None
        return len(found)

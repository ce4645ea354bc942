"""Opens a session with each neighbour when there are messages for it, and sends them on the session.

[MS-MQQB] 3.1.5.2, 3.1.5.9, 3.1.6.1, 3.1.7.1

A way may have several next hops. They are tried in order of preference. When a session is not available or is lost, the
next hop in that order is tried at once. After the last one, the Session Retry Connect Timer runs before the first is
tried again. While a later next hop is in use, the earlier ones are tried each time that the timer is due. Once one of
them has a session, and all messages sent over the later one are answered, the queues switch to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Final

from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.neighbours.connections import Neighbour, note_of_end
from mqproto.neighbours.leaving import Leaving
from mqproto.neighbours.met import Acquaintance, Met
from mqproto.neighbours.refusals import Refusals
from mqproto.neighbours.transports import SessionTransports
from mqproto.routing import NextHop
from mqproto.session import InFlight, Session
from mqproto.transfer.outgoing import ORDER_SUFFIX, OutgoingQueue, queue_of
from mqproto.turn.desk import Desk
from mqproto.turn.effects import Batch, Note, ReadPage
from mqproto.turn.pending import PendingWrites
from mqproto.wire.guid import Guid

ORIGIN: Final = attrgetter("origin")
POSITION: Final = attrgetter("position")


class Neighbours:
    """The neighbours, and the session that each of them uses."""

    def __init__(self, desk: Desk, transports: SessionTransports, met: Met) -> None:
        self.met = met
        self._desk = desk
        self._transports = transports
        self._by_hops: dict[tuple[NextHop, ...], Neighbour] = {}
        self._by_manager: dict[Guid | None, list[Neighbour]] = {}
        """The neighbours, by the queue managers of their next hops."""
        self._reached: dict[str, Guid] = {}
        """For each host in direct format names, the queue manager that answered our last call."""
        self._asking: dict[int, Guid] = {}
        """The queue manager that each session looks for, which may no longer be where it was met."""
        self._by_queue: dict[int, Neighbour] = {}
        self._by_session: dict[int, Neighbour] = {}
        self._awake: dict[Neighbour, None] = {}
        self._refusals = Refusals(desk)
        self.leaving = Leaving(desk, transports.hosts, self._refusals)

    # Queues and their way

    def attach(self, queue: OutgoingQueue, hops: tuple[NextHop, ...]) -> None:
        """Route a queue over a list of next hops: it uses the first of them that can be reached."""
        neighbour = self._over(hops)
        neighbour.add(queue)
        self._by_queue[queue.queue] = neighbour
        if queue.count:
            self.wake(queue)

    def detach(self, queue: OutgoingQueue) -> None:
        """Detach an empty queue from its next hops, because it gets another destination."""
        neighbour = self._by_queue.pop(queue.queue, None)
        if neighbour is None:
            return
        neighbour.remove(queue)
        self._drop_unused(neighbour)

    def _drop_unused(self, neighbour: Neighbour) -> None:
        """Drop a neighbour that was met, rather than declared, if no queue uses it any longer."""
        if neighbour.is_unused and neighbour.session is None and neighbour.hop.learnt:
            self._by_hops.pop(neighbour.hops, None)
            self._by_manager.pop(neighbour.hop.manager, None)
            self._awake.pop(neighbour, None)
            self._desk.timers.stop(Timer.SESSION_RETRY_CONNECT, neighbour)

    def _over(self, hops: tuple[NextHop, ...]) -> Neighbour:
        neighbour = self._by_hops.get(hops)
        if neighbour is None:
            neighbour = self._by_hops[hops] = Neighbour(hops)
            for manager in dict.fromkeys(hop.manager for hop in hops):
                self._by_manager.setdefault(manager, []).append(neighbour)
        return neighbour

    def moved(self, manager: Guid) -> None:
        """Record that a queue manager that was met has moved, may now be called, or was forgotten."""
        hops = self.met.hop_to(manager)
        for neighbour in self._by_manager.get(manager, ()):
            if neighbour.hop.learnt and neighbour.hops != hops:
                self._by_hops.pop(neighbour.hops, None)
                neighbour.hops = hops or (replace(neighbour.hop, host=""),)
                self._by_hops[neighbour.hops] = neighbour
            self._awake[neighbour] = None
        self._transports.moved(manager, self.met.get(manager))

    def reached(self, host: str) -> Guid | None:
        """Return the queue manager that answered our last call to a host in direct format names; None if none did."""
        return self._reached.get(host.lower())

    def await_answers(self, hops: tuple[NextHop, ...], until_s: int) -> None:
        """Record that messages sent over these next hops may be answered until `until_s`; until then, the neighbour is
        called.
        """
        neighbour = self._over(hops)
        neighbour.awaited_s = max(neighbour.awaited_s, until_s)
        self._awake[neighbour] = None

    def wake(self, queue: OutgoingQueue) -> None:
        """Record that a queue has messages to send or to read."""
        neighbour = self._by_queue.get(queue.queue)
        if neighbour is not None:
            neighbour.wake(queue)
            self._awake[neighbour] = None

    def of_queue(self, queue: OutgoingQueue) -> Neighbour | None:
        """Return the neighbour that a queue uses; None if there is none."""
        return self._by_queue.get(queue.queue)

    @property
    def has_suspects(self) -> bool:
        """Return whether any neighbour gets messages one at a time, out of order, to find one that it refuses."""
        trials = (neighbour.trial for neighbour in self._by_hops.values())
        return any(trial is not None and trial.one_at_a_time for trial in trials)

    def retry_at_ms(self, neighbour: Neighbour) -> int | None:
        """Return when the first next hop is tried again, on the uptime clock; None if no retry is planned."""
        return self._desk.timers.deadline_ms(Timer.SESSION_RETRY_CONNECT, neighbour)

    def in_flight(self) -> dict[OutgoingQueue, list[InFlight]]:
        """Return the messages that were sent but not acknowledged, by queue."""
        entries = [entry for session in self._transports.sessions.values() for entry in session.lost()]
        for neighbour in self._by_hops.values():
            trial = neighbour.trial
            for suspect in (*trial.suspects, *trial.untried) if trial is not None else ():
                if suspect.entry.position in queue_of(suspect.entry).withheld:
                    entries.append(suspect.entry)
        return _by_queue(entries)

    def give_up(self, now: Moment) -> Iterator[InFlight]:
        """Yield the messages that were sent and have expired, and whose queues decide to end them without an answer."""
        for session in self._transports.sessions.values():
            for queue, entries in groupby(session.lost(), ORIGIN):
                assert isinstance(queue, OutgoingQueue)
                over = queue.give_up(entries, now, self._desk.writes)
                if over:
                    session.give_up(over)
                    self.wake(queue)
                    yield from over

    # Sessions end

    def lost(self, key: int, reason: str, now: Moment) -> None:
        """Handle a transport that broke or could not be opened.  3.1.7.3"""
        session = self._transports.sessions.get(key)
        if session is not None:
            session.close("3.1.7.3", reason)
            self._forget(session, now)

    def _forget(self, session: Session, now: Moment) -> None:
        """Handle the end of a session: its unanswered messages go first on the next session.  3.1.5.9"""
        assert session.closed is not None
        self._transports.forget(session, now)
        self._desk.notes.append(note_of_end(session))
        if (asked := self._asking.pop(session.key, None)) is not None:
            self.met.unanswered(asked, session.closed.reason)
        neighbour = self._by_session.pop(session.key, None)
        self.leaving.complete(session, neighbour)
        lost = session.lost()
        if neighbour is not None and session is neighbour.session:
            lost = self._refusals.ended(neighbour, session)
            if not self.may_call(neighbour.hop):
                lost = _without_order_acks(lost, self._desk.writes)
        self._return(lost)
        if neighbour is None:
            return
        neighbour.history.end(session, session.closed.reason)
        if session is neighbour.better:
            neighbour.better = None
            self._call_better(neighbour, neighbour.better_index + 1, now)
            return
        neighbour.session = None
        if not neighbour.connected:
            neighbour.avoid = session.data.address
        neighbour.connected = False
        neighbour.last_failure = session.closed.reason
        if not neighbour.wants_session(now):
            neighbour.failing_since_s = None
        elif neighbour.failing_since_s is None:
            neighbour.failing_since_s = now.utc_s
        for sequence in neighbour.sequences:
            sequence.resends.disconnected()
        self._go_on(neighbour, now)
        self._drop_unused(neighbour)

    def _return(self, entries: list[InFlight]) -> None:
        """Return messages to their queues, to be sent next."""
        for queue, returned in _by_queue(entries).items():
            queue.returned(sorted(returned, key=POSITION))
            self.wake(queue)

    def _go_on(self, neighbour: Neighbour, now: Moment) -> None:
        """If there is no session, try the following next hop at once.  3.1.5.9, 3.1.6.1

        After the last next hop, wait for a while, and then try the first one again.
        """
        self._desk.timers.stop(Timer.SESSION_RETRY_CONNECT, neighbour)
        if neighbour.better is not None:
            self._serve(neighbour, neighbour.better, neighbour.better_index, now)
        elif not neighbour.wants_session(now) or not self.may_call(neighbour.hop):
            neighbour.index = 0
        elif neighbour.index + 1 < len(neighbour.hops):
            neighbour.index += 1
            self._awake[neighbour] = None
        else:
            neighbour.index = 0
            self._start_retry_timer(neighbour, now)

    def _start_retry_timer(self, neighbour: Neighbour, now: Moment) -> None:
        deadline_ms = now.uptime_ms + self._desk.settings.try_connect_interval_ms
        self._desk.timers.start(Timer.SESSION_RETRY_CONNECT, neighbour, deadline_ms)

    # One turn

    def turn(self, batch: Batch, now: Moment) -> None:
        """Remove acknowledged messages, send what the windows allow, and acknowledge received messages."""
        for one in self.met.take_doubts() if self.met.doubts else ():
            self._ask(one, now)
        while self._transports.touched or self._awake:  # A session that closes may leave its work to another.
            for session in list(self._transports.touched):
                self._settle(session, now)
            while self._awake:
                awake, self._awake = self._awake, {}
                for neighbour in awake:
                    batch.reads += self._dispatch(neighbour, now)
            touched, self._transports.touched = self._transports.touched, {}
            for session in touched:
                self._transports.flush(session, batch, now)
                if session.closed is not None:
                    self._forget(session, now)

    def _settle(self, session: Session, now: Moment) -> None:
        neighbour = self._by_session.get(session.key)
        self.leaving.complete(session, neighbour)
        if session.is_open and session.key in self._asking:
            self.met.answered(self._asking.pop(session.key))
            session.close("3.1.5.9", "the queue manager that was met there is there")
            return
        if neighbour is None and session.is_open and (session.is_proven or session.is_met):
            neighbour = self._adopt(session, now)
        if neighbour is not None:
            if session is neighbour.session and session.is_open and not neighbour.connected:
                self._connected(neighbour, session, now)
            self._awake[neighbour] = None

    def _adopt(self, session: Session, now: Moment) -> Neighbour | None:
        """Use a session that a neighbour opened, if we have none or a worse one.

        A session with a later next hop is used only if the neighbour wants a session.
        """
        for neighbour in self._by_manager.get(session.remote_qm, ()):
            index = neighbour.place_of(session.remote_qm, learnt=not session.is_proven)
            if index is not None and (not index or neighbour.wants_session(now)):
                self._use(neighbour, session, index, session.data.remote_address, now)
                return neighbour
        return None

    def _use(self, neighbour: Neighbour, session: Session, index: int, address: str, now: Moment) -> None:
        """Let a neighbour's queues use a session with a next hop, whether it is open or still being opened."""
        self._desk.timers.stop(Timer.SESSION_RETRY_CONNECT, neighbour)
        self._by_session[session.key] = neighbour
        neighbour.history.begin(session, address, now)
        if neighbour.session is None:
            self._serve(neighbour, session, index, now)
        else:
            neighbour.better, neighbour.better_index = session, index
            self._awake[neighbour] = None

    def _serve(self, neighbour: Neighbour, session: Session, index: int, now: Moment) -> None:
        """Let a neighbour's queues use this session from now on, even if it is not open yet."""
        neighbour.session, neighbour.index, neighbour.better = session, index, None
        neighbour.connected = False
        if session.is_open:
            self._connected(neighbour, session, now)
        self._awake[neighbour] = None

    def _connected(self, neighbour: Neighbour, session: Session, now: Moment) -> None:
        neighbour.connected = True
        neighbour.avoid = ""
        neighbour.failing_since_s = None
        if neighbour.hop.manager is None and session.remote_qm is not None:
            self._reached[neighbour.hop.host.lower()] = session.remote_qm
        self._desk.notes.append(Note("session-open", {"session": session.key, "peer": str(neighbour.hop)}))
        self._desk.notes += [one.resend_note for one in neighbour.sequences if one.resends.connected(now)]
        if neighbour.index:
            self._start_retry_timer(neighbour, now)

    def _change_over(self, neighbour: Neighbour, better: Session, now: Moment) -> None:
        """Switch to a preferred next hop that answers again. The other session stays until it is idle."""
        assert neighbour.session is not None
        del self._by_session[neighbour.session.key]
        neighbour.history.end(neighbour.session, "a next hop that is preferred answers again")
        self._serve(neighbour, better, neighbour.better_index, now)

    def _dispatch(self, neighbour: Neighbour, now: Moment) -> list[ReadPage]:
        """Send what the window allows, taking the queues in turn, or make sure that there will be a session."""
        better = neighbour.better
        if better is not None and better.is_open:
            assert neighbour.session is not None
            if neighbour.session.lost():
                return []  # Otherwise messages on their way over the later next hop would be overtaken.
            self._change_over(neighbour, better, now)
        session = neighbour.session
        if session is None:
            waits = self._desk.timers.runs(Timer.SESSION_RETRY_CONNECT, neighbour)
            if not waits and neighbour.wants_session(now):
                self._call(neighbour, neighbour.index, now)
            return []
        if not session.is_open:
            return []
        self.leaving.send(neighbour, session, now)
        self._transports.touch(session)
        return neighbour.pages()

    def _call(self, neighbour: Neighbour, index: int, now: Moment) -> None:
        """Open a session with a next hop, or use an existing one.  3.1.5.2

        If the next hop was met and we may not call it, wait until it calls us.
        """
        if self._transports.stopped:
            return
        hop = neighbour.hops[index]
        session = self._free_session(hop)
        if session is None and self.may_call(hop):
            session = self._transports.connect(hop, now, neighbour.avoid)
        if session is not None:
            self._use(neighbour, session, index, str(hop), now)

    def _free_session(self, hop: NextHop) -> Session | None:
        """Return a session with a next hop, provided that no queue uses the session; None if there is none.

        The session is open, or we had begun to open it.
        """
        for session in self._transports.sessions.values():
            is_theirs = session.is_met if hop.learnt else session.is_proven
            is_called = not session.is_accepted and session.remote_address == hop.host
            is_free = not (session.closed or session.key in self._by_session or session.key in self._asking)
            if is_free and session.remote_qm == hop.manager and (is_theirs if session.is_open else is_called):
                return session
        return None

    def may_call(self, hop: NextHop) -> bool:
        """Return whether we may call a next hop.

        If it was met only because it called us, we wait until it calls again, unless an operator allows calls to its
        host.
        """
        return not hop.learnt or self.met.may_call(hop.manager)

    def may_have_session(self, neighbour: Neighbour) -> bool:
        """Return whether there is a session with a neighbour, or we may call it."""
        hop = neighbour.hop
        return neighbour.session is not None or self.may_call(hop) or self._free_session(hop) is not None

    def _ask(self, one: Acquaintance, now: Moment) -> None:
        """Check whether a queue manager is still where it was met, because its GUID has turned up elsewhere."""
        if not self._transports.stopped and one.manager is not None:
            session = self._transports.connect(NextHop(one.manager, one.host, learnt=True), now)
            self._asking[session.key] = one.manager

    def _call_better(self, neighbour: Neighbour, index: int, now: Moment) -> None:
        """While a later next hop is in use, try an earlier one, or wait if all have been tried.  3.1.2.3"""
        if index < neighbour.index:
            self._call(neighbour, index, now)
        else:
            self._start_retry_timer(neighbour, now)

    # Timers

    def retry(self, neighbour: Neighbour, now: Moment) -> None:
        """Start again with the first next hop, because the Session Retry Connect Timer is due.  3.1.6.1"""
        if neighbour.session is None:
            self._awake[neighbour] = None
        else:
            self._call_better(neighbour, 0, now)

    def hold(self, queue: OutgoingQueue) -> None:
        """Announce a window of one to a neighbour, because a queue is paused.  3.1.7.13"""
        neighbour = self._by_queue.get(queue.queue)
        if neighbour is not None and neighbour.session is not None and neighbour.session.is_open:
            neighbour.session.pause()
            self._transports.touch(neighbour.session)


def _by_queue(entries: Iterable[InFlight]) -> dict[OutgoingQueue, list[InFlight]]:
    found: dict[OutgoingQueue, list[InFlight]] = {}
    for entry in entries:
        found.setdefault(queue_of(entry), []).append(entry)
    return found


def _without_order_acks(entries: list[InFlight], writes: PendingWrites) -> list[InFlight]:
    """Return the entries to keep for a neighbour that may not return.

    OrderAcks are dropped, because a message that is sent again asks for another.
    """
    kept = []
    for entry in entries:
        queue = queue_of(entry)
        if entry.recoverable or not queue.name.endswith(ORDER_SUFFIX):
            kept.append(entry)
        else:
            queue.acknowledged([entry], writes)
    return kept

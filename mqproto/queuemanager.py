"""One queue manager: events in, one batch of effects out.

It decides; it never waits. The shell feeds it all that has happened, takes one batch, commits its writes, then sends:

    core.accepted(host, now)               a neighbour has connected
    core.opened(session, now)              a transport that we asked for is open
    core.lost(session, reason, now)        a transport broke, or could not be opened
    core.receive(session, data, now)       bytes arrived
    core.tick(now)                         a deadline passed
    core.loaded(page, rows, now)           a page of a queue was read
    core.enqueue(destination, draft, now)  an application sends
    core.consume / settle / abandon        an application receives, commits or rolls back, goes away
    core.take(now) -> Batch                everything decided since the last take

The parts: `neighbours` has the sessions and what to send on them, `arrivals` decides what becomes of a message that
came, `transfer` has the sequences, `localqueues` what applications receive.
"""

from __future__ import annotations

from collections.abc import Iterable

from mqproto.applications import Destination, Draft, Sending
from mqproto.arrivals import Arrivals
from mqproto.configuration import Settings
from mqproto.effects import Batch, Delivery, Note, ReadPage, Received, StoredState
from mqproto.identifiers import MessageIdHistory
from mqproto.localqueues import Consumer, QueueDeclaration
from mqproto.moment import Moment
from mqproto.neighbours import Neighbour, Neighbours
from mqproto.outbound import Outbound
from mqproto.pending import PendingWrites
from mqproto.routing import Routes
from mqproto.status import NodeStatus, describe
from mqproto.timers import Timer, Timers
from mqproto.transfer.incoming import IncomingSequence
from mqproto.transfer.outgoing import OutgoingSequence
from mqproto.wire.guid import Guid


class QueueManager:
    """The core of one node.

    Args:
        identity: QueueManager.Identifier, unique in the world.
        queues: what it hosts. A queue that the store knows and this list does not keeps its messages, unreachable.
        routes: who comes next on the way to others.
        settings: timers and limits.
        state: what the store knew when it was opened.
        now: when that was.
    """

    def __init__(
        self,
        identity: Guid,
        queues: Iterable[QueueDeclaration],
        routes: Routes,
        settings: Settings,
        state: StoredState,
        now: Moment,
    ) -> None:
        self.identity = identity
        self._timers = Timers()
        self._writes = PendingWrites(self._timers)
        self._notes: list[Note] = []
        self._neighbours = Neighbours(identity, settings, self._timers, self._writes, self._notes)
        self._outbound = Outbound(
            identity, routes, settings, self._timers, self._writes, self._neighbours, state, now
        )
        self._history = MessageIdHistory(settings, self._timers, state.identifiers, now)
        self._arrivals = Arrivals(
            identity,
            queues,
            settings,
            self._timers,
            self._writes,
            self._notes,
            self._outbound,
            self._history,
            state,
            now,
        )
        self._sending = Sending(identity, self._outbound, self._arrivals, self._writes)

    # Transports

    def accepted(self, host: str, now: Moment) -> int:
        """A neighbour at `host` has connected to us; the number given back names the session from now on."""
        return self._neighbours.accepted(host, now).key

    def opened(self, session: int, now: Moment) -> None:
        """The transport of an OpenTransport is there."""
        self._neighbours.opened(session, now)

    def lost(self, session: int, reason: str, now: Moment) -> None:
        """The transport broke, the peer closed it, or it could not be opened. An unknown session is no error."""
        self._neighbours.lost(session, reason, now)

    def receive(self, session: int, data: bytes | bytearray | memoryview, now: Moment) -> None:
        """Bytes arrived. Those of a session that is closed already are dropped."""
        found = self._neighbours.sessions.get(session)
        if found is None or found.closed is not None:
            return
        for message, packet in found.receive(data, now):
            self._arrivals.arrived(message, packet, found.data.remote_address, now)
        self._neighbours.touched(found)

    # Time and the store

    def tick(self, now: Moment) -> None:
        """Do what is due."""
        for timer, owner in self._timers.expired(now.uptime_ms):
            if isinstance(owner, int):
                self._neighbours.expired(timer, owner, now)
            elif isinstance(owner, Neighbour):
                self._neighbours.retry(owner)
            elif isinstance(owner, OutgoingSequence):
                self._notes.append(Note("resend", {"queue": owner.name, "waiting": owner.count}))
                owner.ack_wait_expired(now)
                self._neighbours.wake(owner)
            elif isinstance(owner, IncomingSequence):
                self._arrivals.order_ack_due(owner, now)
            elif timer is Timer.MESSAGE_ID_HISTORY_CLEANUP:
                self._history.clean_up(now, self._writes)
            else:
                assert timer is Timer.LAZY_WRITES
                self._writes.force()

    def loaded(self, page: ReadPage, rows: list[tuple[int, bytes, bool]]) -> None:
        """The answer to a ReadPage: rows of (position, packet, final_ack) in order of position."""
        queue = self._outbound.queue(page.queue)
        if queue is not None:
            queue.loaded(page, rows)
            self._neighbours.wake(queue)
        else:
            self._arrivals.loaded(page, rows)

    # Applications

    def enqueue(self, destination: Destination, draft: Draft, now: Moment) -> int:
        """An application sends a message; it is accepted once the next batch's writes are committed.

        Returns:
            The message's ordinal, unique among all that this queue manager sends.

        Raises:
            UsageError: the message cannot be sent like this; nothing has changed.
        """
        return self._sending.enqueue(destination, draft, now)

    def consume(self, consumer: int, queue: str, limit: int, *, transactional: bool) -> None:
        """An application asks for up to `limit` messages; a Delivery comes as soon as there is one.

        A transactional consumer must `settle` before it asks again; the others have taken what they are given.

        Raises:
            UsageError: there is no such queue, the limit is below 1, or the consumer has not settled.
        """
        self._arrivals.local(queue).ask(Consumer(consumer, limit, transactional))
        self._arrivals.asked(queue)

    def settle(self, consumer: int, queue: str, now: Moment, *, commit: bool) -> None:
        """A transactional consumer commits what it was given, or rolls it back.

        Raises:
            UsageError: it was given nothing.
        """
        self._arrivals.settle(consumer, queue, now, commit=commit)

    def abandon(self, consumer: int, queue: str) -> None:
        """A consumer is gone; what it did not settle goes back to where it was."""
        self._arrivals.local(queue).abandon(consumer)
        self._arrivals.asked(queue)

    def peek(self, queue: str, limit: int) -> list[Received]:
        """The first messages of a queue, which stay there; at most as many as are in memory.

        Raises:
            UsageError: there is no such queue.
        """
        window = self._arrivals.local(queue).window
        return [
            Received(message.position, message.packet)
            for message, _ in zip(window, range(limit), strict=False)
        ]

    def stop(self, now: Moment) -> None:
        """Close all sessions and write what could have waited; one more batch is to be carried out.  3.1.4.2"""
        self._neighbours.close_all("the queue manager stops", now)
        self._writes.force()

    # What was decided

    def take(self, now: Moment) -> Batch:
        """Everything decided since the last call."""
        deliveries = [
            Delivery(
                consumer, queue.name, [Received(message.position, message.packet) for message in messages]
            )
            for queue, consumer, messages in self._arrivals.hand_out(now)
        ]
        reads, sends, closes = self._neighbours.turn(now)
        batch = Batch(
            writes=self._writes.take(now),
            reads=[*self._arrivals.pages(), *reads],
            connects=self._neighbours.take_connects(),
            sends=sends,
            closes=closes,
            deliveries=deliveries,
            notes=self._notes.copy(),
            deadline_ms=self._timers.next_ms,
        )
        self._notes.clear()
        return batch

    def status(self) -> NodeStatus:
        """What waits where, for people."""
        return describe(self._neighbours, self._outbound, self._arrivals, self._history)

"""A way to other queue managers.

It consists of its next hops, the queues that use it, and the outcome of each attempt to open a session.  [MS-MQQB]
3.1.1.3.1, [MS-MQDMPR] 3.1.1.3
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final

from mqproto.base.moment import Moment
from mqproto.neighbours.trial import Trial
from mqproto.routing import NextHop
from mqproto.session import ConnectionStatus, Session
from mqproto.transfer.outgoing import ORDER_SUFFIX, OutgoingQueue
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.effects import Note, ReadPage
from mqproto.wire.guid import Guid, guid_text

HISTORY: Final = 16
"""The maximum number of attempts that are remembered after they ended."""
PRIORITY: Final = attrgetter("priority")


@dataclass(frozen=True, slots=True)
class ConnectionAttempt:
    """One attempt to open a session, which is an entry of ConnectionHistory.

    time_s: the time at which it began, in seconds of UTC.
    address: the `host:port` that we called, or the host of a neighbour that called us.
    status: the last step that the attempt reached.
    reason: the reason why it failed or, if the session was established, why the session ended; empty while it lasts.
        The specification has an HRESULT instead of words.
    """

    time_s: int
    address: str
    status: ConnectionStatus
    reason: str


class ConnectionHistory:
    """The present attempts, and the last few that have ended.

    The specification adds an entry for each step of an attempt. Here an attempt is one entry, with the last step that
    it reached.
    """

    def __init__(self) -> None:
        self._ended: deque[ConnectionAttempt] = deque(maxlen=HISTORY)
        self._lasting: dict[Session, tuple[int, str]] = {}

    def begin(self, session: Session, address: str, now: Moment) -> None:
        """Record that a session is being opened, or that a session opened by a neighbour is used.  3.1.5.2.3"""
        self._lasting[session] = now.utc_s, address

    def end(self, session: Session, reason: str) -> None:
        """Record that an attempt has failed, or that its session has ended or is no longer used."""
        self._ended.append(ConnectionAttempt(*self._lasting.pop(session), session.data.status, reason))

    def could_not_encrypt(self, address: str, reason: str, now: Moment) -> None:
        """Record that a message on this route has ended because it could not be encrypted for its destination.
        3.1.7.1.5.1
        """
        status = ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE
        self._ended.append(ConnectionAttempt(now.utc_s, address, status, reason))

    def attempts(self) -> list[ConnectionAttempt]:
        """Return all attempts, the oldest first."""
        lasting = [
            ConnectionAttempt(time_s, address, session.data.status, "")
            for session, (time_s, address) in self._lasting.items()
        ]
        return sorted([*self._ended, *lasting], key=lambda attempt: attempt.time_s)


class Neighbour:
    """Next hops in order of preference, the queues that use them, and the session that the queues use.

    hops: NextHopCollection.
    """

    def __init__(self, hops: tuple[NextHop, ...]) -> None:
        self.hops = hops
        self.index = 0
        """NextHopIndexer: the index of the next hop that the present session is with, or that will be tried next."""
        self._queues: dict[str, list[OutgoingQueue]] = {}
        """The queues, by destination; those of one destination are sorted by priority, the highest first."""
        self._turns: OrderedDict[str, None] = OrderedDict()
        """The destinations that may have something to send, in the order in which they take turns."""
        self._stirred: dict[OutgoingQueue, None] = {}
        """The queues that may have messages to read from the store."""
        self.session: Session | None = None
        self.connected = False
        """Whether we have noticed that the session is open."""
        self.better: Session | None = None
        """A session, open or being opened, with an earlier next hop than the one whose session is in use."""
        self.better_index = 0
        self.history = ConnectionHistory()
        self.trial: Trial | None = None
        """The search for messages that the neighbour may be refusing; None until a session ends while messages are
        unanswered.
        """
        self.awaited_s = 0
        """The time, UTC, until which answers to sent messages may arrive; a session is wanted until then."""
        self.avoid = ""
        """The address of the next hop's host at which the last session could not be opened."""
        self.last_failure = ""
        self.failing_since_s: int | None = None
        """The time, UTC, since which messages have waited without a session."""

    @property
    def hop(self) -> NextHop:
        """The next hop at NextHopIndexer."""
        return self.hops[self.index]

    def place_of(self, manager: Guid | None, *, learnt: bool = False) -> int | None:
        """Return the index of the next hop that leads to a queue manager, if a session with it is welcome; otherwise
        None.

        If there is a session already, only sessions with earlier next hops are welcome.

        learnt: whether the queue manager is undeclared and was met. If so, the next hop must be one that was learned
            when it was met.
        """
        if self.better is not None:
            return None
        welcome = self.hops if self.session is None else self.hops[: self.index]
        wanted = manager, learnt
        return next((i for i, hop in enumerate(welcome) if (hop.manager, hop.learnt) == wanted), None)

    def add(self, queue: OutgoingQueue) -> None:
        """Add a queue that uses these next hops."""
        queues = self._queues.setdefault(queue.name, [])
        queues.append(queue)
        queues.sort(key=PRIORITY, reverse=True)

    def remove(self, queue: OutgoingQueue) -> None:
        """Remove an empty queue, because its next hops are changing."""
        self._stirred.pop(queue, None)
        queues = self._queues[queue.name]
        queues.remove(queue)
        if not queues:
            del self._queues[queue.name]
            self._turns.pop(queue.name, None)

    @property
    def is_unused(self) -> bool:
        """Whether no queue uses these next hops."""
        return not self._queues

    def wake(self, queue: OutgoingQueue) -> None:
        """Give a queue's destination a turn to send or read, after those that are already waiting.

        Acknowledgments come first, because they make room in a neighbour that is full and takes nothing else.
        """
        self._stirred[queue] = None
        if queue.name not in self._turns:
            self._turns[queue.name] = None
            if queue.name.endswith(ORDER_SUFFIX):
                self._turns.move_to_end(queue.name, last=False)

    def next_queue(self) -> OutgoingQueue | None:
        """Return the queue that sends now; None if there is none.

        It is the queue with the highest priority for the destination whose turn it is. A destination loses its turn
        while that queue still has to be read from the store. However many queues there are, only those that were woken
        are examined.
        """
        while self._turns:
            name = next(iter(self._turns))
            queue = next((queue for queue in self._queues[name] if queue.is_waiting), None)
            if queue is not None:
                self._stirred[queue] = None
                if queue.has_next:
                    self._turns.move_to_end(name)
                    return queue
            del self._turns[name]  # Until it is woken: what is read wakes it.
        return None

    def pages(self) -> list[ReadPage]:
        """Return the pages to read now for the queues that were woken."""
        stirred, self._stirred = self._stirred, {}
        return [page for queue in stirred for page in queue.pages()]

    @property
    def has_messages(self) -> bool:
        """Whether the OutgoingMessageTable has a message that is unsent, or not yet acknowledged.  3.1.1.3.1

        Queues that are on hold do not count.
        """
        return any(queue.count and not queue.on_hold for queue in self._all())

    def wants_session(self, now: Moment) -> bool:
        """Return whether a session is wanted, for messages or for answers to messages that were sent."""
        return self.awaited_s > now.utc_s or self.has_messages

    @property
    def sequences(self) -> list[OutgoingSequence]:
        """The queues that are our own sequences."""
        return [queue for queue in self._all() if isinstance(queue, OutgoingSequence)]

    @property
    def count(self) -> int:
        """The number of messages that can be sent sooner or later.

        Their queues are neither paused nor waiting for another queue.
        """
        return sum(queue.count for queue in self._all() if queue.may_send)

    @property
    def is_waiting(self) -> bool:
        """Whether a message can be sent now, or as soon as it has been read from the store."""
        return any(queue.is_waiting for queue in self._all())

    def _all(self) -> Iterator[OutgoingQueue]:
        return chain.from_iterable(self._queues.values())


def note_of_end(session: Session) -> Note:
    """Return the log line for the end of a session."""
    closed = session.closed
    assert closed is not None
    facts: dict[str, str | int] = {"session": session.key, "peer": session.data.remote_address}
    if session.remote_qm is not None:
        facts["manager"] = guid_text(session.remote_qm)
    return Note("session-closed", {**facts, "section": closed.section, "reason": closed.reason})

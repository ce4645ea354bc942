"""A way to others: its next hops, the queues that take it, and what came of each try to have a session.

[MS-MQQB] 3.1.1.3.1, [MS-MQDMPR] 3.1.1.3
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from mqproto.moment import Moment
from mqproto.routing import NextHop
from mqproto.session import ConnectionStatus, Session
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.wire.guid import Guid

HISTORY: Final = 16
"""How many tries are remembered after their end."""


@dataclass(frozen=True, slots=True)
class ConnectionAttempt:
    """One try to have a session: an entry of ConnectionHistory.

    time_s: when it began, in seconds of UTC.
    address: whom we called, as `host:port`, or the host of a neighbour that called us.
    status: how far it came.
    reason: why it failed or, of one that was established, why it ended; empty while it lasts. It is in words what the
        specification has as an HRESULT.
    """

    time_s: int
    address: str
    status: ConnectionStatus
    reason: str


class ConnectionHistory:
    """The tries that last, and the last few that ended.

    The specification adds an entry for each step of a try; here a try is one entry, as far as it came.
    """

    def __init__(self) -> None:
        self._ended: deque[ConnectionAttempt] = deque(maxlen=HISTORY)
        self._lasting: dict[Session, tuple[int, str]] = {}

    def begin(self, session: Session, address: str, now: Moment) -> None:
        """A session is asked for, or one that a neighbour opened is taken.  3.1.5.2.3"""
        self._lasting[session] = now.utc_s, address

    def end(self, session: Session, reason: str) -> None:
        """It is over, or no longer ours to use."""
        self._ended.append(ConnectionAttempt(*self._lasting.pop(session), session.data.status, reason))

    def attempts(self) -> list[ConnectionAttempt]:
        """The oldest first."""
        lasting = [
            ConnectionAttempt(time_s, address, session.data.status, "")
            for session, (time_s, address) in self._lasting.items()
        ]
        return sorted([*self._ended, *lasting], key=lambda attempt: attempt.time_s)


class Neighbour:
    """Next hops in order of preference, the queues whose way leads over them, and the session that serves the queues.

    hops: NextHopCollection.
    """

    def __init__(self, hops: tuple[NextHop, ...]) -> None:
        self.hops = hops
        self.index = 0
        """NextHopIndexer: whom the session is with, or who is tried next."""
        self.queues: list[OutgoingQueue] = []
        self.served = ""
        """The name of the queue that had the last turn on this session."""
        self.session: Session | None = None
        self.connected = False
        """Whether the session has been seen open."""
        self.better: Session | None = None
        """A session with an earlier next hop, open or being opened, while the session with a later one serves."""
        self.better_index = 0
        self.history = ConnectionHistory()
        self.last_failure = ""
        self.failing_since_s: int | None = None
        """Since when there is no session though there are messages, UTC."""

    @property
    def hop(self) -> NextHop:
        """The next hop at NextHopIndexer."""
        return self.hops[self.index]

    def place_of(self, manager: Guid | None) -> int | None:
        """The index of a next hop if a session with it is welcome: any if there is none, an earlier one if there is."""
        if self.better is not None:
            return None
        welcome = len(self.hops) if self.session is None else self.index
        return next((index for index in range(welcome) if self.hops[index].manager == manager), None)

    @property
    def has_messages(self) -> bool:
        """Whether the OutgoingMessageTable has an entry: to be sent, or sent and not yet acknowledged.  3.1.1.3.1"""
        return any(queue.count and not queue.on_hold for queue in self.queues)

    @property
    def sending(self) -> list[OutgoingQueue]:
        """The queues with something to send: of those to one destination that with the highest priority, and none while
        that is still to be read from the store.

        They begin behind the destination that had the last turn, so that none waits for as long as others send.
        """
        first: dict[str, OutgoingQueue | None] = {}
        for queue in self.queues:
            if first.get(queue.name) is None:
                first[queue.name] = queue if queue.is_waiting else None
        begin = list(first).index(self.served) + 1 if self.served in first else 0
        turns = [*first.values()][begin:] + [*first.values()][:begin]
        return [queue for queue in turns if queue is not None and queue.has_next]

    @property
    def sequences(self) -> list[OutgoingSequence]:
        """The queues that are sequences of our own."""
        return [queue for queue in self.queues if isinstance(queue, OutgoingSequence)]

"""Records the actions of each host for operators, even after the host has disconnected.

[MS-MQQB] has no such records. `host_group` tells which addresses belong to one host. Each queue manager that has
identified itself is counted separately, because several may share an address. Actions that precede
a session are attributed to the host.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Final, NamedTuple

from mqproto.base.moment import Moment
from mqproto.routing.peers import host_group
from mqproto.session import ConnectionStatus, Session
from mqproto.wire.guid import NULL_GUID, Guid

GONE: Final = 256
"""The maximum number of peers without a session that are remembered. The one that left longest ago is forgotten
first.
"""
GONE_MS: Final = 24 * 3_600_000
"""How long, in milliseconds, peers without a session are remembered."""
MANAGERS_OF_HOST: Final = 16
"""The maximum number of strangers on one host that are counted separately. All others there are counted as one."""
OTHERS: Final = NULL_GUID
"""The GUID that stands for the strangers that are not counted separately. No peer that presents it gets a session."""
SLOT_MS: Final = 10_000
SLOTS: Final = 6
"""The number of slots, of SLOT_MS each, into which the last minute is divided for counting; the current slot is
extra.
"""

NO_FAULT: Final = frozenset({"3.1.4.2", "3.1.5.8.8", "3.1.6.2", "3.1.6.3", "3.1.7.3"})
"""The sections of the specification that describe ends of a session for which the peer is not to blame.

The reasons are that the queue manager stops or has no room, that there was nothing to send, that no acknowledgment
arrived, or that the transport broke.
"""
BLOCKED: Final = "blocked by an operator"


class Who(NamedTuple):
    """The host or queue manager that a tally is about.

    manager: the queue manager whose GUID was presented in a session that opened; None for the rest of the host.
    is_proven: whether the GUID is proven, and not only claimed.
    """

    host: str
    manager: Guid | None = None
    is_proven: bool = False


@dataclass(slots=True)
class Figures:
    """Counts of what a host or queue manager did.

    opened: for a host, the number of connections that it opened; for a queue manager, the number of those that became
        its sessions.
    messages, size_bytes: the number of messages and of bytes that it sent; the bytes include handshakes and
        acknowledgments.
    sent, sent_bytes: the number of messages and of bytes that were sent to it.
    refused: the number of its messages that were refused.
    ended: the number of its connections that were refused, plus that of its sessions that ended through its own fault.
    """

    opened: int = 0
    messages: int = 0
    size_bytes: int = 0
    sent: int = 0
    sent_bytes: int = 0
    refused: int = 0
    ended: int = 0

    def add(self, other: Figures) -> None:
        """Add the counts of `other` to these."""
        self.opened += other.opened
        self.messages += other.messages
        self.size_bytes += other.size_bytes
        self.sent += other.sent
        self.sent_bytes += other.sent_bytes
        self.refused += other.refused
        self.ended += other.ended


class HostTally:
    """The actions of a host or queue manager since its first connection.

    first_s, last_s: the times, UTC, at which it was first and last connected, to within a slot.
    last_ms: the time of `last_s` on the uptime clock.
    sessions: the keys of its present sessions.
    moved_on: the number of connections of a host that became a session of a queue manager, which has a tally of its
        own.
    reason: the reason why its last refused message or connection was refused.
    """

    def __init__(self, who: Who, now: Moment) -> None:
        self.who = who
        self.first_s = self.last_s = now.utc_s
        self.last_ms = now.uptime_ms
        self.sessions: set[int] = set()
        self.moved_on = 0
        self.reason = ""
        self._before = Figures()
        """The total of the counts from before the oldest slot."""
        self._slots: OrderedDict[int, Figures] = OrderedDict()
        """The slots by number, the oldest first."""

    def at(self, now: Moment) -> Figures:
        """Return the figures for the current time."""
        number = now.uptime_ms // SLOT_MS
        figures = self._slots.get(number)
        if figures is None:
            figures = self._slots[number] = Figures()
            self.last_s, self.last_ms = now.utc_s, now.uptime_ms
            while len(self._slots) > SLOTS + 1:
                self._before.add(self._slots.popitem(last=False)[1])
        return figures

    def refuse(self, reason: str, now: Moment) -> None:
        """Count a connection that was refused, or ended because of the peer."""
        self.at(now).ended += 1
        self.reason = reason

    @property
    def total(self) -> Figures:
        """The sum of all counts."""
        total = Figures()
        for figures in (self._before, *self._slots.values()):
            total.add(figures)
        return total

    def last_minute(self, now: Moment) -> Figures:
        """Return the figures for the last minute and for up to SLOT_MS before it."""
        minute = Figures()
        first = now.uptime_ms // SLOT_MS - SLOTS
        for number, figures in self._slots.items():
            if number >= first:
                minute.add(figures)
        return minute


class Hosts:
    """The tallies of all peers that are connected, and of those that were connected recently.

    At most GONE of the latter are kept, and they are dropped after GONE_MS.
    """

    def __init__(self) -> None:
        self._tallies: dict[Who, HostTally] = {}
        self._gone: OrderedDict[Who, None] = OrderedDict()
        """The subjects of tallies that have no session; the one that left longest ago comes first."""
        self._by_session: dict[int, HostTally] = {}
        self._strangers: Counter[str] = Counter()
        """For each host, the number of its strangers that are counted separately."""

    def of(self, session: Session, now: Moment) -> Figures:
        """Return the figures for a session at the current time."""
        tally = self._by_session.get(session.key)
        if tally is None or (tally.who.manager is None and _has_opened(session)):
            tally = self._place(session, tally, now)
        return tally.at(now)

    def received(
        self,
        session: Session,
        messages: int,
        size_bytes: int,
        now: Moment,
        refused: int = 0,
        reason: str = "",
    ) -> None:
        """Count bytes that arrived on a session, the messages in them, and the number of refused ones."""
        figures = self.of(session, now)
        figures.messages += messages
        figures.size_bytes += size_bytes
        if refused:
            figures.refused += refused
            self._by_session[session.key].reason = reason

    def ended(self, session: Session, now: Moment) -> None:
        """Record the end of a session."""
        tally = self._by_session.pop(session.key, None)
        if tally is None:
            return  # No host was reached.
        assert session.closed is not None
        if session.closed.section not in NO_FAULT:
            tally.refuse(session.closed.reason, now)
        self._leave(tally, session.key)

    def turned_away(self, host: str, reason: str, now: Moment) -> None:
        """Count a connection from a host that was closed immediately."""
        tally = self._tally(Who(host_group(host)), now)
        tally.at(now).opened += 1
        tally.refuse(reason, now)
        self._leave(tally)

    def tallies(self, now: Moment) -> list[HostTally]:
        """Return the tallies of peers that are connected, or were within GONE_MS.

        They are in the order in which the peers first connected.
        """
        while self._gone and now.uptime_ms - self._tallies[next(iter(self._gone))].last_ms >= GONE_MS:
            self._forget_one()
        return list(self._tallies.values())

    def _place(self, session: Session, before: HostTally | None, now: Moment) -> HostTally:
        """Return the tally for a session that is beginning, or has just opened.

        A session that has opened has a known queue manager.
        """
        host = host_group(session.remote_address)
        who = Who(host)
        if _has_opened(session):
            who = Who(host, session.remote_qm, session.is_proven)
            if not who.is_proven and who not in self._tallies and self._strangers[host] >= MANAGERS_OF_HOST:
                who = Who(host, OTHERS)
        tally = self._by_session[session.key] = self._tally(who, now)
        tally.sessions.add(session.key)
        tally.at(now).opened += session.is_accepted
        if before is not None:
            before.moved_on += session.is_accepted
            self._leave(before, session.key)
        return tally

    def _tally(self, who: Who, now: Moment) -> HostTally:
        """Return the tally of a host or queue manager that is now connected; it is created if necessary."""
        self._gone.pop(who, None)
        tally = self._tallies.get(who)
        if tally is None:
            tally = self._tallies[who] = HostTally(who, now)
            if who.manager not in (None, OTHERS) and not who.is_proven:
                self._strangers[who.host] += 1
        return tally

    def _leave(self, tally: HostTally, key: int = 0) -> None:
        tally.sessions.discard(key)
        if not tally.sessions:
            self._gone[tally.who] = None
            self._gone.move_to_end(tally.who)
            if len(self._gone) > GONE:
                self._forget_one()

    def _forget_one(self) -> None:
        who, _ = self._gone.popitem(last=False)
        del self._tallies[who]
        if who.manager not in (None, OTHERS) and not who.is_proven:
            self._strangers[who.host] -= 1
            self._strangers += Counter()  # This drops hosts that have none.


def _has_opened(session: Session) -> bool:
    """Whether a session is open, or was open until a message that it brought ended it."""
    return session.data.status is ConnectionStatus.ESTABLISHED

"""Who has connected, and what it did: what an operator is shown of each host, also after it has gone.

[MS-MQQB] has nothing of it. A host is what `host_group` makes of an address. Of one host each queue manager that has
said who it is stands apart, as several may share an address; what comes before a session is open is the host's alone.
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
"""How many that have no session are remembered; the one that was here longest ago goes first."""
GONE_MS: Final = 24 * 3_600_000
"""And for how long."""
MANAGERS_OF_HOST: Final = 16
"""How many strangers of one host stand apart; all others of it are one."""
OTHERS: Final = NULL_GUID
"""Stands for them: nobody gets a session who presents it."""
SLOT_MS: Final = 10_000
SLOTS: Final = 6
"""The last minute is counted in so many slots of this length, and in the one that lasts."""

NO_FAULT: Final = frozenset({"3.1.4.2", "3.1.5.8.8", "3.1.6.2", "3.1.6.3", "3.1.7.3"})
"""Sections by which a session ends for another reason than what the peer sent, or did not send: the queue manager stops
or has no room, nothing was to be sent, no acknowledgment came, the transport broke."""
BLOCKED: Final = "blocked by an operator"


class Who(NamedTuple):
    """Whom a tally is about.

    manager: the queue manager whose GUID was presented in a session that opened; None for all else of the host.
    is_proven: whether that is more than a claim.
    """

    host: str
    manager: Guid | None = None
    is_proven: bool = False


@dataclass(slots=True)
class Figures:
    """What was counted.

    opened: of a host, the connections that it opened; of a queue manager, those of them that became its sessions.
    messages, size_bytes: what it sent; the latter with handshakes and acknowledgments.
    sent, sent_bytes: what was sent to it.
    refused: of its messages, those that were not let in.
    ended: connections that were refused, and sessions that ended for what it sent or did not send.
    """

    opened: int = 0
    messages: int = 0
    size_bytes: int = 0
    sent: int = 0
    sent_bytes: int = 0
    refused: int = 0
    ended: int = 0

    def add(self, other: Figures) -> None:
        """Count what another has."""
        self.opened += other.opened
        self.messages += other.messages
        self.size_bytes += other.size_bytes
        self.sent += other.sent
        self.sent_bytes += other.sent_bytes
        self.refused += other.refused
        self.ended += other.ended


class Tally:
    """What one of them did since it was here first.

    first_s, last_s: when it was here first, and last to within a slot; UTC. `last_ms` is on the uptime clock.
    sessions: the keys of those that last.
    moved_on: how many connections of a host became a session of a queue manager, which has a tally of its own.
    reason: why something of it was refused last.
    """

    def __init__(self, who: Who, now: Moment) -> None:
        self.who = who
        self.first_s = self.last_s = now.utc_s
        self.last_ms = now.uptime_ms
        self.sessions: set[int] = set()
        self.moved_on = 0
        self.reason = ""
        self._before = Figures()
        """All that is older than the slots."""
        self._slots: OrderedDict[int, Figures] = OrderedDict()
        """By number, the oldest first."""

    def at(self, now: Moment) -> Figures:
        """Where to count what happens now."""
        number = now.uptime_ms // SLOT_MS
        figures = self._slots.get(number)
        if figures is None:
            figures = self._slots[number] = Figures()
            self.last_s, self.last_ms = now.utc_s, now.uptime_ms
            while len(self._slots) > SLOTS + 1:
                self._before.add(self._slots.popitem(last=False)[1])
        return figures

    def refuse(self, reason: str, now: Moment) -> None:
        """A connection of it was refused, or ended for what it did."""
        self.at(now).ended += 1
        self.reason = reason

    @property
    def total(self) -> Figures:
        """All that was counted."""
        total = Figures()
        for figures in (self._before, *self._slots.values()):
            total.add(figures)
        return total

    def last_minute(self, now: Moment) -> Figures:
        """What it did in the last minute, and in up to SLOT_MS before it."""
        minute = Figures()
        first = now.uptime_ms // SLOT_MS - SLOTS
        for number, figures in self._slots.items():
            if number >= first:
                minute.add(figures)
        return minute


class Hosts:
    """The tallies of all who are here, and of those who were."""

    def __init__(self) -> None:
        self._tallies: dict[Who, Tally] = {}
        self._gone: OrderedDict[Who, None] = OrderedDict()
        """Those without a session, the one that was here longest ago first."""
        self._by_session: dict[int, Tally] = {}
        self._strangers: Counter[str] = Counter()
        """By host, how many of its strangers stand apart."""

    def of(self, session: Session, now: Moment) -> Figures:
        """Where to count what happens on a session now."""
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
        """Bytes came on a session, and messages among them, of which some were refused."""
        figures = self.of(session, now)
        figures.messages += messages
        figures.size_bytes += size_bytes
        if refused:
            figures.refused += refused
            self._by_session[session.key].reason = reason

    def ended(self, session: Session, now: Moment) -> None:
        """A session is over."""
        tally = self._by_session.pop(session.key, None)
        if tally is None:
            return  # Nobody was reached.
        assert session.closed is not None
        if session.closed.section not in NO_FAULT:
            tally.refuse(session.closed.reason, now)
        self._leave(tally, session.key)

    def turned_away(self, host: str, reason: str, now: Moment) -> None:
        """A connection came from a host, and was closed at once."""
        tally = self._tally(Who(host_group(host)), now)
        tally.at(now).opened += 1
        tally.refuse(reason, now)
        self._leave(tally)

    def tallies(self, now: Moment) -> list[Tally]:
        """Those who are here, and those who were within GONE_MS: whoever came first is the first."""
        while self._gone and now.uptime_ms - self._tallies[next(iter(self._gone))].last_ms >= GONE_MS:
            self._forget_one()
        return list(self._tallies.values())

    def _place(self, session: Session, before: Tally | None, now: Moment) -> Tally:
        """A session begins, or has opened, and its queue manager is known from now on."""
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

    def _tally(self, who: Who, now: Moment) -> Tally:
        """That of one who is here now."""
        self._gone.pop(who, None)
        tally = self._tallies.get(who)
        if tally is None:
            tally = self._tallies[who] = Tally(who, now)
            if who.manager not in (None, OTHERS) and not who.is_proven:
                self._strangers[who.host] += 1
        return tally

    def _leave(self, tally: Tally, key: int = 0) -> None:
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
            self._strangers += Counter()  # Without those that have none.


def _has_opened(session: Session) -> bool:
    """Whether it is open, or was: what it brought last may have ended it."""
    return session.data.status is ConnectionStatus.ESTABLISHED

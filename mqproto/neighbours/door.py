"""Decides who may connect, either as a known queue manager or as a stranger.

[MS-MQQB] 3.1.5.3.1 grants a session to anybody who asks. Here the resources of strangers are limited, both for each
host and for all together, and never taken from a known queue manager.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from mqproto.base.moment import Moment
from mqproto.neighbours.met import Met
from mqproto.routing import Routes
from mqproto.routing.peers import host_group
from mqproto.session import Remote, Session
from mqproto.session.data import SessionData
from mqproto.turn.desk import Desk
from mqproto.turn.effects import Note
from mqproto.wire.guid import Guid, guid_text
from mqproto.wire.shapes import Run

HALF_OPEN_OF_HOST: Final = 32
HALF_OPEN: Final = 256
"""The maximum numbers of connections whose peers have not identified themselves: from one host, and from all hosts. One
more connection ends the oldest one from the same host, or from the host that has the most.
"""
SESSIONS_OF_STRANGER_HOST: Final = 16
SESSIONS_OF_STRANGERS: Final = 256
"""The maximum numbers of strangers' sessions: from one host, and from all hosts. One more session is refused."""
SESSIONS_OF_PEER: Final = 8
"""The maximum number of open sessions that one known queue manager may have begun. One more is refused."""
LOOKED_AT_BYTES: Final = 16 * 1024
"""A number of bytes. Once this much of a stranger's packet has arrived, we check whether the packet will be refused; if
so, its body is not kept.
"""
SEEN: Final = 1_024
"""The maximum number of reported claims that are remembered."""
SEEN_MS: Final = 3_600_000
"""How long, in milliseconds, a reported claim is remembered after it was last seen."""

Refuses: TypeAlias = Callable[[bytes, Remote], bool]
"""Returns whether a stranger's message will be refused, no matter what its body is."""


def unfinished(sessions: Iterable[Session]) -> Counter[Session]:
    """Return how many bytes of strangers' unfinished packets are kept, by session.

    A peer without proof counts as a stranger.
    """
    kept = {one: one.kept_bytes for one in sessions if not one.is_proven and one.closed is None}
    return Counter({one: size for one, size in kept.items() if size})


class Door:
    """Judges each connection by what is currently known about its peer."""

    def __init__(self, desk: Desk, routes: Routes, met: Met, sessions: Mapping[int, Session]) -> None:
        self._desk = desk
        self._routes = routes
        self._met = met
        self._sessions = sessions
        self._claims: OrderedDict[tuple[Guid, str], int] = OrderedDict()
        """The last time, on the uptime clock, at which a GUID was claimed by a host."""

    def enter(self, session: Session) -> Iterator[Session]:
        """Yield the connections to close because of a new one, which may itself be among them."""
        crowded = self._crowded(session)
        if crowded is not None:
            crowded.close(
                "3.1.5.10", "too many connections have not said who they are: it is the oldest of its host"
            )
            yield crowded
        if session.data.certified is None and not self._routes.hears(session.remote_address):
            session.close("3.1.5.10", "nobody is heard from there")
            yield session

    def _crowded(self, new: Session) -> Session | None:
        """Return another connection that has to make room for a new one; None if there is room.

        It is one whose peer has not identified itself.
        """
        waiting: dict[str, list[Session]] = {}
        count = 0
        for session in self._sessions.values():
            if session.is_anonymous and session.data.certified is None and session is not new:
                waiting.setdefault(host_group(session.remote_address), []).append(session)
                count += 1
        own = waiting.get(host_group(new.remote_address), [])
        if len(own) >= HALF_OPEN_OF_HOST:
            return own[0]
        return max(waiting.values(), key=len)[0] if count >= HALF_OPEN else None

    def hear(
        self, session: Session, receive: Callable[[], list[Run]], refuses: Refuses
    ) -> tuple[list[Run], list[Session]]:
        """Receive a stranger's bytes.

        Return the complete runs, and the sessions that end to make room for the rest.
        """
        before_bytes, was_hollow = session.kept_bytes, session.is_hollow
        runs = receive()
        if was_hollow and runs and not refuses(runs[0].packets[0], session.remote):
            session.refuse(
                "3.1.5.8", "a queue was opened for a message whose beginning was dropped: let it come again"
            )
            return [], []
        if session.kept_bytes <= before_bytes:
            return runs, []
        if before_bytes < LOOKED_AT_BYTES <= session.kept_bytes:
            session.drop_body(lambda message: refuses(message, session.remote))
        return runs, list(self._make_room())

    def _make_room(self) -> Iterator[Session]:
        """End sessions with unfinished packets of strangers until the limit is met; yield these sessions.

        The first to end is the one with the largest packet, from the host with the most bytes.
        """
        kept = unfinished(self._sessions.values())
        limit_bytes = self._desk.settings.strangers_unfinished_bytes
        while (total_bytes := kept.total()) > limit_bytes:
            of_hosts = Counter[str]()
            for session, size in kept.items():
                of_hosts[host_group(session.remote_address)] += size
            [(host, of_host)] = of_hosts.most_common(1)
            most = max((one for one in kept if host_group(one.remote_address) == host), key=kept.__getitem__)
            most.close(
                "3.1.5.10",
                f"unfinished packets of strangers have {total_bytes:,} bytes, and may have {limit_bytes:,} "
                f"(strangers_unfinished_bytes): {host} has the most, {of_host:,}",
            )
            del kept[most]
            yield most

    def turns_away(self, host: str, reason: str) -> bool:
        """Return whether to turn away a connection from a host for the given reason.

        Return False if a known peer may be there.
        """
        if self._routes.is_declared(host):
            return False
        self._desk.notes.append(Note("connection-refused", {"peer": host, "reason": reason}))
        return True

    def admit(self, data: SessionData, manager: Guid, now: Moment) -> str | None:
        """Decide whether to believe the GUID that a peer presents.

        Return the reason why the peer gets no session; None if it gets one.
        """
        host = data.remote_address
        if data.certified is not None and data.certified != manager:
            return f"it presents queue manager {guid_text(manager)}, and a certificate of {guid_text(data.certified)}"
        expected = data.initiator and data.remote_qm == manager and self._routes.declares(manager)
        data.proven = expected or self._routes.proves(manager, host, data.certified)
        if data.initiator:
            data.met = not data.proven and self._met.seen(
                manager, host, data.address or host, now, called=data.direct
            )
            return None
        if data.proven:
            return self._limit_peer(data, manager)
        return self._admit_stranger(data, manager, host_group(host), now)

    def _limit_peer(self, data: SessionData, manager: Guid) -> str | None:
        """Return the reason for refusing a known queue manager one more session; None if it may have it.

        Sessions that only claim its GUID are not counted.
        """
        others = [
            session
            for session in self._sessions.values()
            if session.remote_qm == manager
            and session.is_proven
            and session.is_accepted
            and session.key != data.key
        ]
        if len(others) >= SESSIONS_OF_PEER:
            return f"{len(others)} sessions of queue manager {guid_text(manager)} are open"
        return None

    def _admit_stranger(self, data: SessionData, manager: Guid, group: str, now: Moment) -> str | None:
        if self._routes.declares(manager):
            self._tell_claim(manager, data.remote_address, group, now)
        elif (refusal := self._met.refusal(manager, data.remote_address, now)) is not None:
            return refusal
        if not data.accepting:
            return f"{data.settings.maximum_sessions} sessions are open, which is maximum_sessions"
        strangers = [
            session
            for session in self._sessions.values()
            if session.is_accepted
            and not session.is_anonymous
            and not session.is_proven
            and session.key != data.key
        ]
        of_host = sum(host_group(session.remote_address) == group for session in strangers)
        if of_host >= SESSIONS_OF_STRANGER_HOST or len(strangers) >= SESSIONS_OF_STRANGERS:
            return f"{len(strangers)} sessions of strangers are open, {of_host} of them from {group}"
        host = data.remote_address
        data.met = self._met.seen(manager, host, host, now, called=False)
        return None

    def _tell_claim(self, manager: Guid, host: str, group: str, now: Moment) -> None:
        """Report that a peer somewhere else presents the GUID of a known queue manager.

        A claim that is repeated is reported only once. It is forgotten SEEN_MS after it was last seen.
        """
        seen_ms = self._claims.get((manager, group))
        if seen_ms is None or now.uptime_ms - seen_ms >= SEEN_MS:
            facts: dict[str, str | int] = {"manager": guid_text(manager), "peer": host}
            self._desk.notes.append(Note("guid-claimed", facts))
        self._claims[manager, group] = now.uptime_ms
        self._claims.move_to_end((manager, group))
        if len(self._claims) > SEEN:
            self._claims.popitem(last=False)

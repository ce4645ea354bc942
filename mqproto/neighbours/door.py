"""Who is let in, and as whom: known queue managers at their addresses, and strangers, who get what is left.

[MS-MQQB] 3.1.5.3.1 grants a session to whoever asks. What a stranger can claim here has a bound for each host and one
for all of them, and never takes the place of a queue manager that is known.
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
from mqproto.wire.alike.shapes import Run
from mqproto.wire.guid import Guid, guid_text

HALF_OPEN_OF_HOST: Final = 32
HALF_OPEN: Final = 256
"""Connections that have not said who they are, of one host and of all: one more ends the oldest of its host, or of that
with the most."""
SESSIONS_OF_STRANGER_HOST: Final = 16
SESSIONS_OF_STRANGERS: Final = 256
"""Strangers' sessions, of one host and of all: one more is refused."""
SESSIONS_OF_PEER: Final = 8
"""Sessions that one known queue manager may have opened: one more is refused."""
LOOKED_AT_BYTES: Final = 16 * 1024
"""When so much of a stranger's packet has come, it is asked whether it will be refused: its body is not kept then."""
SEEN: Final = 1_024
"""How many claims are remembered that were told."""
SEEN_MS: Final = 3_600_000
"""For how long after they were last seen."""

Refuses: TypeAlias = Callable[[bytes, Remote], bool]
"""Whether a stranger's message will be refused, whatever its body is."""


def unfinished(sessions: Iterable[Session]) -> Counter[Session]:
    """What is kept of the packets that strangers have begun: whoever has not proven who it is, is one."""
    kept = {one: one.kept_bytes for one in sessions if not one.is_proven and one.closed is None}
    return Counter({one: size for one, size in kept.items() if size})


class Door:
    """Judges each connection by what is known of it so far."""

    def __init__(self, desk: Desk, routes: Routes, met: Met, sessions: Mapping[int, Session]) -> None:
        self._settings = desk.settings
        self._notes = desk.notes
        self._routes = routes
        self._met = met
        self._sessions = sessions
        self._claims: OrderedDict[tuple[Guid, str], int] = OrderedDict()
        """When a GUID was claimed at a host last, on the uptime clock."""

    def enter(self, session: Session) -> Iterator[Session]:
        """A connection was accepted: close what has to end for it, and it if nobody is heard from there; those."""
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
        """Another that has not said who it is, and has to make room."""
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
        """A stranger sends: what is whole now, and the sessions that end so that what is not has room."""
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
        """End what strangers have begun, until it is within its bound: of the host with the most, the largest first."""
        kept, limit_bytes = unfinished(self._sessions.values()), self._settings.strangers_unfinished_bytes
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
        """Whether one that connects from a host gets nothing for this reason: not if a known one may be there."""
        if self._routes.is_declared(host):
            return False
        self._notes.append(Note("connection-refused", {"peer": host, "reason": reason}))
        return True

    def admit(self, data: SessionData, manager: Guid, now: Moment) -> str | None:
        """Somebody presents a GUID: see whether it is to be believed. Why there is no session, if there is none."""
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
        """One more session of a queue manager that is known; those who only present its GUID are not counted."""
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
        """Somebody elsewhere presents the GUID of a queue manager that is known: that is shown once."""
        seen_ms = self._claims.get((manager, group))
        if seen_ms is None or now.uptime_ms - seen_ms >= SEEN_MS:
            facts: dict[str, str | int] = {"manager": guid_text(manager), "peer": host}
            self._notes.append(Note("guid-claimed", facts))
        self._claims[manager, group] = now.uptime_ms
        self._claims.move_to_end((manager, group))
        if len(self._claims) > SEEN:
            self._claims.popitem(last=False)

"""Asks over UDP, before a transport is opened, whether the acceptor is there and would accept us.

[MS-MQQB] 3.1.5.2.2. Nothing in a Ping says whether it is a request or a response, so the port decides. A Ping that
arrives at the ping port of a queue manager is a request. Requests leave from another port, to which only responses
come. A shell that mixed up the two ports would answer responses.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mqproto.base.errors import WireFormatError
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.session import ConnectionStatus, Session
from mqproto.turn.desk import Desk
from mqproto.turn.effects import OpenTransport, SendPing
from mqproto.wire.guid import NULL_GUID, Guid, guid_text
from mqproto.wire.layouts.ping import Ping, ping_packet

PING_RESPONSE_MS: Final = 1_000
"""The fixed duration of the Ping Response Timer.  [MS-MQQB] 3.1.2.9"""


class _Asked(NamedTuple):
    """A request that waits for its response, with the transport to open if the response is good."""

    cookie: int
    request: SendPing
    connect: OpenTransport

    @property
    def where(self) -> str:
        return f"{self.request.host}:{self.request.port}"


class Pings:
    """The requests that wait for their responses, each for a session whose transport is not open yet.

    If [MS-MQQB] 3.1.7.8 is taken literally, a response must carry the cookie of the very last request. A node that
    pings two neighbours at once would then accept only the second one's response. Here each request keeps its own
    cookie.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._cookie = 0
        self._waiting: dict[int, _Asked] = {}
        self.requests: list[SendPing] = []
        """The requests to send in this turn."""

    def ask(self, connect: OpenTransport, address: tuple[str, int], now: Moment) -> None:
        """Send a request; the transport is opened only after a good response.  [MS-MQQB] 3.1.7.6

        The request's RC bit is clear, which means a server-class system, as in our EstablishConnection packets.
        """
        self._cookie = (self._cookie + 1) % 2**32
        datagram = ping_packet.encode(Ping(cookie=self._cookie, qm_guid=self._desk.identity))
        request = SendPing(connect.session, *address, datagram)
        self._waiting[connect.session] = _Asked(self._cookie, request, connect)
        self.requests.append(request)
        self._desk.timers.start(Timer.PING_RESPONSE, connect.session, now.uptime_ms + PING_RESPONSE_MS)

    def answered(self, session: Session, datagram: bytes) -> OpenTransport | None:
        """Return the transport to open if this is a good response for which the session waits; otherwise None.

        A response that refuses us, or that comes with our own GUID, closes the session. Any other datagram is ignored.
        [MS-MQQB] 3.1.7.8, 3.1.7.9
        """
        asked = self._waiting.get(session.key)
        response = _ping_in(datagram)
        if asked is None or response is None or response.cookie != asked.cookie:
            return None
        self.forget(session.key)
        if response.qm_guid == self._desk.identity:
            _fail(
                session,
                "3.1.7.9",
                f"{asked.where} answers a ping with our own GUID {guid_text(self._desk.identity)}: "
                "it is this node by another address, or a copy of it, which needs a new identity",
            )
        elif response.refused:
            _fail(session, "3.1.7.9", f"{asked.where} answers a ping that it would refuse a session")
        else:
            return asked.connect
        return None

    def expired(self, session: Session) -> None:
        """Count a missing response as a refusal.  [MS-MQQB] 3.1.6.8"""
        where = self._waiting[session.key].where
        _fail(
            session,
            "3.1.6.8",
            f"no answer to a ping from {where} within {PING_RESPONSE_MS} ms; it may be down, or answer no pings: then "
            "set require_pings = false",
        )

    def forget(self, session: int) -> None:
        """Forget the request of a session, if there is one."""
        self._waiting.pop(session, None)
        self._desk.timers.stop(Timer.PING_RESPONSE, session)


def answer_ping(datagram: bytes, identity: Guid, *, accepting: bool) -> bytes | None:
    """Return the response to a datagram that came to our ping port; None if it is not a Ping.

    [MS-MQQB] 3.1.7.7. The response is only as long as the request, so a forged sender address cannot amplify a flood.

    Args:
        accepting: whether we would accept a session from anybody now. A neighbour that has our GUID, or none, is
            refused in any case.
    """
    request = _ping_in(datagram)
    if request is None:
        return None
    response = Ping(cookie=request.cookie, qm_guid=identity)
    response.client = request.client
    response.refused = not accepting or request.qm_guid in (identity, NULL_GUID)
    return ping_packet.encode(response)


def _fail(session: Session, section: str, reason: str) -> None:
    session.data.status = ConnectionStatus.PING_FAILURE
    session.close(section, reason)


def _ping_in(datagram: bytes) -> Ping | None:
    try:
        return ping_packet.decode(datagram)
    except WireFormatError:
        return None

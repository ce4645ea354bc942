"""Links, which may be stalled, shut or silent, and the connections on them.

A connection carries bytes in order, like TCP: either all of them, or those that arrive before it breaks. Bytes that are
on their way when it breaks are lost. One end may be dead without the other end's knowledge; bytes from the other end
then go nowhere.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from mqproto.captures.net.conversation import Side
from mqproto.manager.queuemanager import QueueManager
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.world.network.events import EventQueue
from mqproto.simulator.world.network.glimpse import Glimpse
from mqproto.simulator.world.network.sniffer import Sniffer, Talk
from mqproto.simulator.world.scenarios.scenario import Cable
from mqproto.turn.effects import SendPing

CONNECT_TIMEOUT_MS: Final = 20_000
"""The time, in milliseconds, after which an operating system gives up a connection attempt that is not answered."""
STRANGER: Final = "stranger"
"""The name of every caller that is not a node."""
LOST_DATAGRAMS: Final = 10
"""On average, one Ping out of this many is lost: either the request or the answer."""


class Host(Protocol):
    """A node or a stranger at one end of a connection."""

    @property
    def name(self) -> str:
        """The name of the host on its links."""

    @property
    def has_power(self) -> bool:
        """Whether the host's operating system answers, even if its queue manager is down."""

    @property
    def is_node(self) -> bool:
        """Whether the host is really a node of the world, whatever name it uses."""

    def packets_arrive(self, end: End, data: bytes, glimpses: list[Glimpse]) -> None:
        """Handle bytes that arrive at one of the host's connections.

        `glimpses` are the packets that these bytes complete.
        """

    def end_lost(self, end: End, reason: str) -> None:
        """Handle a connection that broke or was closed by the peer."""


class Caller(Host, Protocol):
    """A node that can connect to other nodes, and to which they can connect."""

    ends: dict[int, End]

    @property
    def life(self) -> int:
        """A number that identifies the node's current life."""

    @property
    def core(self) -> QueueManager | None:
        """The node's queue manager; None while it is down."""

    def hear(self, life: int, act: Callable[..., None], *arguments: Any) -> None:
        """Run `act` if the node is still in this life."""

    def accepted(self, end: End) -> None:
        """Handle a connection that another host has opened."""

    def opened(self, end: End) -> None:
        """Handle the opening of a connection that this node has requested."""

    def lost_session(self, session: int, reason: str) -> None:
        """Handle a session whose transport broke or could not be opened."""

    def pinged(self, session: int, response: bytes) -> None:
        """Handle a datagram that answers the node's Ping."""


class End:
    """One end of a connection, with its host and the counts of its traffic."""

    __slots__ = (
        "acked",
        "arrives_ms",
        "expected",
        "host",
        "in_vain",
        "line",
        "open",
        "peer",
        "recoverable_arrived",
        "saved_through",
        "sent",
        "session",
        "side",
        "talk",
        "used_ms",
        "window",
    )

    def __init__(self, host: Host, line: Wire, side: Side, talk: Talk | None) -> None:
        self.host = host
        self.line = line
        self.side = side
        self.talk = talk
        """The connection as the sniffer sees it; None if there is no sniffer."""
        self.session = 0
        self.open = True
        self.peer: End = self
        self.arrives_ms = 0
        """The time at which the last data that was sent to this end will arrive. Later data cannot overtake it."""
        # An onlooker's counts; the invariants compare them with what the packets say.
        self.sent = 0
        """The number of UserMessages that have left this end."""
        self.acked = 0
        """The number of these UserMessages that have been acknowledged by headers that arrived here."""
        self.window = 1 << 16
        """The window that the peer announced last."""
        self.expected: deque[tuple[int, bytes]] = deque()
        """The recoverable messages that have arrived here and are not yet acknowledged as saved, in order.

        Each entry is a message's number and its identity.
        """
        self.used_ms = -1
        """The time of the last departure or arrival of a UserMessage at this end."""
        self.recoverable_arrived = 0
        self.saved_through = 0
        self.in_vain: set[bytes] = set()
        """The messages that the end's host sent after the connection broke, before it noticed."""


class Wire:
    """A link in use."""

    def __init__(self, link: Cable, seed: int, events: EventQueue, sniffer: Sniffer | None = None) -> None:
        self.link = link
        self.connections: dict[End, None] = {}
        """The connections that are not broken; each is represented by one of its ends."""
        self.first_number = 0
        """The first value of each counter of a session."""
        self.is_cut = False
        """Whether the link is broken for good."""
        self.refused_until_ms = 0
        self.silent_until_ms = 0
        self.stalled_until_ms: dict[str, int] = {link.one: 0, link.other: 0}
        """The time until which packets wait, keyed by the name of the sending node."""
        self._events = events
        self._dice: random.Random = chance(seed, "link", link.name)
        self._sniffer = sniffer

    def delay_ms(self) -> int:
        """Draw the time that one transfer takes."""
        jitter_ms = self.link.jitter_ms
        return self.link.latency_ms + (self._dice.randrange(jitter_ms + 1) if jitter_ms else 0)

    def connect(self, machine: Caller, session: int, peer: Caller) -> None:
        """Open a connection from a node. Later, both ends are told about it, or the caller is told that it failed."""
        now_ms, life = self._events.now_ms, machine.life
        talk = self._sniffer.calls(machine.name, peer.name) if self._sniffer is not None else None
        if now_ms < self.silent_until_ms:
            self._events.at(
                now_ms + CONNECT_TIMEOUT_MS, machine.hear, life, machine.lost_session, session, "timed out"
            )
            return
        arrives_ms = max(now_ms + self.delay_ms(), self.stalled_until_ms[machine.name])
        self._events.at(arrives_ms, self._arrive_at, machine, life, session, peer, talk)

    def _arrive_at(self, machine: Caller, life: int, session: int, peer: Caller, talk: Talk | None) -> None:
        now_ms = self._events.now_ms
        back_ms = max(now_ms + self.delay_ms(), self.stalled_until_ms[peer.name])
        if not peer.has_power:
            self._events.at(
                now_ms + CONNECT_TIMEOUT_MS, machine.hear, life, machine.lost_session, session, "timed out"
            )
            return
        if self.is_cut or now_ms < self.refused_until_ms or peer.core is None or machine.life != life:
            if talk is not None:
                talk.refused()
            self._events.at(back_ms, machine.hear, life, machine.lost_session, session, "connection refused")
            return
        near, far = self.joined(machine, peer, talk)
        near.session = session
        near.arrives_ms = back_ms
        self.connections[near] = None
        machine.ends[session] = near
        peer.hear(peer.life, peer.accepted, far)
        if talk is not None:
            talk.accepted()
            self._events.at(back_ms, self._established, near, talk)
        self._events.at(back_ms, machine.hear, life, machine.opened, near)

    def joined(self, client: Host, server: Host, talk: Talk | None) -> tuple[End, End]:
        """Make a connection. Return its two ends, the client's first."""
        near, far = End(client, self, Side.CLIENT, talk), End(server, self, Side.SERVER, talk)
        near.peer, far.peer = far, near
        for end in (near, far):
            end.sent = end.acked = end.recoverable_arrived = end.saved_through = self.first_number
        return near, far

    def _established(self, near: End, talk: Talk) -> None:
        if near.open:
            talk.established()

    def ping(self, machine: Caller, request: SendPing, peer: Caller) -> None:
        """Send a datagram to the peer, and the peer's answer back, unless one of the two is lost."""
        now_ms = self._events.now_ms
        lost = (
            self._dice.randrange(LOST_DATAGRAMS) == 0
            or self.is_cut
            or now_ms < max(self.stalled_until_ms.values())
        )
        sniffer = self._sniffer
        source = sniffer.pings(machine.name, peer.name, request.datagram) if sniffer is not None else None
        if not lost and peer.core is not None:
            response = peer.core.pinged(request.datagram)
            if response is not None:
                there_ms = now_ms + self.delay_ms()
                back_ms = there_ms + self.delay_ms()
                if sniffer is not None:
                    self._events.at(there_ms, sniffer.answers_ping, peer.name, source, response)
                self._events.at(
                    back_ms, machine.hear, machine.life, machine.pinged, request.session, response
                )

    def send(self, end: End, glimpses: list[Glimpse]) -> None:
        """Send bytes from one end. They arrive in one or two pieces, unless the connection breaks first."""
        events, peer = self._events, end.peer
        arrives_ms = max(
            events.now_ms + self.delay_ms(), peer.arrives_ms, self.stalled_until_ms[end.host.name]
        )
        data = b"".join([glimpse.packet for glimpse in glimpses])
        if end.talk is not None:
            end.talk.leaves(end.side, data)
        if not peer.open:
            if peer.host.has_power:
                if end.talk is not None:
                    events.at(arrives_ms, end.talk.reset, peer.side)
                events.at(arrives_ms + self.delay_ms(), end.host.end_lost, end, "connection reset")
            return
        if self.link.cut_per_mille and self._dice.randrange(1_000) < self.link.cut_per_mille:
            cut = self._dice.randrange(len(data))
            whole = size = 0
            while (size := size + len(glimpses[whole].packet)) <= cut:
                whole += 1
            events.at(arrives_ms, self.deliver, peer, data[:cut], glimpses[:whole])
            data, glimpses = data[cut:], glimpses[whole:]
            arrives_ms += self.delay_ms()
        peer.arrives_ms = arrives_ms
        events.at(arrives_ms, self.deliver, peer, data, glimpses)

    def deliver(self, end: End, data: bytes, glimpses: list[Glimpse]) -> None:
        """Deliver bytes to one end. `glimpses` are the packets that these bytes complete."""
        if end.talk is not None and end.host.has_power:
            end.talk.arrives(end.side, len(data), wanted=end.open)
        end.host.packets_arrive(end, data, glimpses)

    def close(self, end: End) -> None:
        """Close one end in an orderly way. The other end is told after all data sent earlier has arrived."""
        self.forget(end)
        if end.talk is not None:
            end.talk.finished(end.side)
        peer = end.peer
        if peer.open:
            arrives_ms = max(
                self._events.now_ms + self.delay_ms(),
                peer.arrives_ms,
                self.stalled_until_ms[end.host.name],
            )
            self._events.at(arrives_ms, self._closed, peer)

    def _closed(self, end: End) -> None:
        """Deliver a FIN to one end of the connection, which then closes as well."""
        if end.talk is not None and end.host.has_power:
            end.talk.finish_arrives(end.side, wanted=end.open)
            # The answer takes the nominal latency: dice are only for what decides something.
            answered_ms = self._events.now_ms + self.link.latency_ms
            self._events.at(answered_ms, self._answered, end.peer, end.talk)
        end.host.end_lost(end, "closed by peer")

    def _answered(self, end: End, talk: Talk) -> None:
        if end.host.has_power:
            talk.finish_arrives(end.side, wanted=False)

    def kill(self, end: End) -> None:
        """Kill one end; its operating system resets the connection.

        The other end may learn of this before the last bytes arrive.
        """
        self.forget(end)
        if end.talk is not None:
            end.talk.reset(end.side)
        peer = end.peer
        if peer.open:
            arrives_ms = max(self._events.now_ms + self.delay_ms(), self.stalled_until_ms[end.host.name])
            self._events.at(arrives_ms, peer.host.end_lost, peer, "connection reset")

    def forget(self, end: End) -> None:
        """Drop one end without notice. When both ends are gone, the connection is gone, too."""
        end.open = False
        if not end.peer.open:
            self.connections.pop(end, None)
            self.connections.pop(end.peer, None)

    def reset_all(self) -> int:
        """Break every connection, and tell both ends immediately. Return the number of connections."""
        broken = list(self.connections)
        for end in broken:
            if end.talk is not None:
                sides = [one.side for one in (end, end.peer) if one.open]
                end.talk.reset(*sides, comment="the link was cut")
            for one in (end, end.peer):
                if one.open:
                    one.host.end_lost(one, "connection reset")
        return len(broken)

    def mend(self) -> None:
        """Make the link work from now on."""
        self.refused_until_ms = self.silent_until_ms = 0
        self.stalled_until_ms = dict.fromkeys(self.stalled_until_ms, 0)

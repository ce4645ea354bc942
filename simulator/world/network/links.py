"""What nodes connect over: links that may be stalled, shut or silent, and the connections on them.

A connection carries bytes in order, like TCP: all of them, or all up to the moment when it breaks. What is on its way
when it breaks is lost. An end may be dead without the other's knowing: then what the other sends goes nowhere.
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
from mqproto.simulator.world.scenarios.scenario import Link
from mqproto.turn.effects import SendPing

CONNECT_TIMEOUT_MS: Final = 20_000
"""After this time an operating system gives up a connection that nobody answers."""
STRANGER: Final = "stranger"
"""What all are called who call nodes and are none."""
LOST_DATAGRAMS: Final = 10
"""One in this number is lost on its way there or back."""


class Host(Protocol):
    """What has an end of a connection: a node, or a stranger."""

    @property
    def name(self) -> str:
        """As links name it."""

    @property
    def has_power(self) -> bool:
        """Whether its system answers, be its queue manager up or down."""

    @property
    def is_node(self) -> bool:
        """Whether it is a node of the world, under whatever name it comes."""

    def packets_arrive(self, end: End, data: bytes, glimpses: list[Glimpse]) -> None:
        """Bytes arrive at one of its connections; `glimpses` are the packets that end with them."""

    def end_lost(self, end: End, reason: str) -> None:
        """A connection breaks or was closed by the peer."""


class Caller(Host, Protocol):
    """A node: it can connect, and be connected to."""

    ends: dict[int, End]

    @property
    def life(self) -> int:
        """Which of its lives it has."""

    @property
    def core(self) -> QueueManager | None:
        """None while it is down."""

    def hear(self, life: int, act: Callable[..., None], *arguments: Any) -> None:
        """Something happens in one of its lives."""

    def accepted(self, end: End) -> None:
        """Somebody has connected to it."""

    def opened(self, end: End) -> None:
        """A connection that it asked for is there."""

    def lost_session(self, session: int, reason: str) -> None:
        """A transport broke, or could not be opened."""

    def pinged(self, session: int, response: bytes) -> None:
        """A datagram came from where it has sent a Ping."""


class End:
    """One end of a connection: whose it is, and what has gone through it."""

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

    def __init__(self, host: Host, line: Line, side: Side, talk: Talk | None) -> None:
        self.host = host
        self.line = line
        self.side = side
        self.talk = talk
        """What a sniffer sees of the connection; None if there is no sniffer."""
        self.session = 0
        self.open = True
        self.peer: End = self
        self.arrives_ms = 0
        """When what was sent to this end last arrives; nothing overtakes it."""
        # What an onlooker counts; the invariants compare it with what the packets say.
        self.sent = 0
        """UserMessages that left here."""
        self.acked = 0
        """How many of them the headers that arrived here acknowledge."""
        self.window = 1 << 16
        """What the peer last said its window is."""
        self.expected: deque[tuple[int, bytes]] = deque()
        """Recoverable messages that arrived here and are not acknowledged as saved: number and identity."""
        self.used_ms = -1
        """When a UserMessage last left or arrived here."""
        self.recoverable_arrived = 0
        self.saved_through = 0
        self.in_vain: set[bytes] = set()
        """The messages that its host sent when the connection was broken, and its host had not heard of it."""


class Line:
    """A link at work."""

    def __init__(self, link: Link, seed: int, events: EventQueue, sniffer: Sniffer | None = None) -> None:
        self.link = link
        self.connections: dict[End, None] = {}
        """One end of each connection that is not broken yet."""
        self.first_number = 0
        """What the counters of a session begin with."""
        self.is_cut = False
        """Whether it is gone for good."""
        self.refused_until_ms = 0
        self.silent_until_ms = 0
        self.stalled_until_ms: dict[str, int] = {link.one: 0, link.other: 0}
        """By the name of the node whose packets wait."""
        self._events = events
        self._dice: random.Random = chance(seed, "link", link.name)
        self._sniffer = sniffer

    def delay_ms(self) -> int:
        """How long something takes this time."""
        jitter_ms = self.link.jitter_ms
        return self.link.latency_ms + (self._dice.randrange(jitter_ms + 1) if jitter_ms else 0)

    def connect(self, machine: Caller, session: int, peer: Caller) -> None:
        """A node opens a connection; both ends hear of it in time, or the one that wanted it that it failed."""
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
        """The two ends of a connection, that of the client first."""
        near, far = End(client, self, Side.CLIENT, talk), End(server, self, Side.SERVER, talk)
        near.peer, far.peer = far, near
        for end in (near, far):
            end.sent = end.acked = end.recoverable_arrived = end.saved_through = self.first_number
        return near, far

    def _established(self, near: End, talk: Talk) -> None:
        if near.open:
            talk.established()

    def ping(self, machine: Caller, request: SendPing, peer: Caller) -> None:
        """A datagram goes there and another comes back, unless one of them is lost."""
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
        """Bytes leave one end; they arrive at the other in one piece or two, unless the connection breaks before."""
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
        """Bytes arrive at one end; `glimpses` are the packets that end with them."""
        if end.talk is not None and end.host.has_power:
            end.talk.arrives(end.side, len(data), wanted=end.open)
        end.host.packets_arrive(end, data, glimpses)

    def close(self, end: End) -> None:
        """One end closes in order: the other hears of it when all that was sent before has arrived."""
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
        """The end of the stream arrives at one end, which closes as well if it has not."""
        if end.talk is not None and end.host.has_power:
            end.talk.finish_arrives(end.side, wanted=end.open)
            # The answer takes as long as the link is said to take: the dice are for what decides something.
            answered_ms = self._events.now_ms + self.link.latency_ms
            self._events.at(answered_ms, self._answered, end.peer, end.talk)
        end.host.end_lost(end, "closed by peer")

    def _answered(self, end: End, talk: Talk) -> None:
        if end.host.has_power:
            talk.finish_arrives(end.side, wanted=False)

    def kill(self, end: End) -> None:
        """One end is gone, and its system says so: the other hears of it, perhaps before the last bytes sent."""
        self.forget(end)
        if end.talk is not None:
            end.talk.reset(end.side)
        peer = end.peer
        if peer.open:
            arrives_ms = max(self._events.now_ms + self.delay_ms(), self.stalled_until_ms[end.host.name])
            self._events.at(arrives_ms, peer.host.end_lost, peer, "connection reset")

    def forget(self, end: End) -> None:
        """One end is gone without a word. Once both are, so is the connection."""
        end.open = False
        if not end.peer.open:
            self.connections.pop(end, None)
            self.connections.pop(end.peer, None)

    def reset_all(self) -> int:
        """Every connection breaks, and both ends know it at once; how many there were."""
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
        """The link works from now on."""
        self.refused_until_ms = self.silent_until_ms = 0
        self.stalled_until_ms = dict.fromkeys(self.stalled_until_ms, 0)

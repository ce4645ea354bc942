"""A node as seen by its own parts, by the network and by the faults.

This extends the oracle's view of a node with the ways to reach the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mqproto.manager.queuemanager import QueueManager
from mqproto.simulator.storage import Store
from mqproto.simulator.world.network.glimpse import Glimpse
from mqproto.simulator.world.network.links import End
from mqproto.simulator.world.network.trace import WorldTrace
from mqproto.simulator.world.oracle.ledger import Ledger
from mqproto.simulator.world.oracle.watched import REFUSED, WatchedNode
from mqproto.simulator.world.oracle.watching import Oracle


@dataclass(eq=False, kw_only=True)
class LinkedNode(WatchedNode):
    """A node on its network. An event reaches only the life of the node that it was meant for."""

    oracle: Oracle
    trace: WorldTrace
    others: Mapping[str, LinkedNode]
    """All nodes of the world, by name."""
    is_uncalled: bool
    """Whether no other node can connect to it."""
    takes: Callable[[Callable[..., None], tuple[Any, ...]], None] | None = None
    """A function that runs a call, either immediately or after a flush; None while the node is down."""
    store: Store | None = None
    """The store of the node's current life; None while the node is down."""
    turns: int = 0
    """The number of turns that the node has taken."""
    has_power: bool = True
    """Whether the node's operating system still answers after its core has ended."""
    misread: Callable[[QueueManager], None] | None = None
    """A function that makes each new queue manager of the node read the specification differently."""
    refuses: set[bytes] = field(default_factory=set)
    """The bodies of the messages on whose arrival the node closes the session."""
    spare_until: Callable[[int], None] | None = None
    """A function that makes the node acknowledge sparsely until a given time, at least.

    It is None if the node has not acknowledged sparsely in this life.
    """

    @property
    def ledger(self) -> Ledger:
        """The record that the oracle keeps of the world."""
        return self.oracle.ledger

    def jump_clock(self, seconds: int) -> None:
        """Change the node's date but not its uptime."""
        super().jump_clock(seconds)
        self.ledger.latest_utc_offset_s = max(self.ledger.latest_utc_offset_s, self.utc_offset_s)

    def hear(self, life: int, act: Callable[..., None], *arguments: Any) -> None:
        """Run `act` if the node is still in this life.

        It runs immediately, or after the flush that is under way.
        """
        if life == self.life and self.takes is not None:
            self.takes(act, arguments)

    def do(self, act: Callable[..., None], *arguments: Any) -> bool:
        """Run `act` in this life. Return whether the node is up."""
        self.hear(self.life, act, *arguments)
        return self.core is not None

    def later(self, delay_ms: int, act: Callable[..., None], *arguments: Any) -> None:
        """After this delay, run `act` if the node is still in the same life."""
        self.events.at(self.now_ms + delay_ms, self.hear, self.life, act, *arguments)

    def end_life(self, *, told: bool) -> None:
        """End the node's life and all its connections.

        `told` says whether its operating system continues, and tells the peers.
        """
        self.core = self.takes = self.store = None
        self.life += 1
        self.has_power = told
        for end in list(self.ends.values()):
            if end.open:
                if told:
                    end.line.kill(end)
                else:
                    end.line.forget(end)
        for kept in (self.ends, self.strange, self.suspected, self.refused_sessions):
            kept.clear()
        self.tries_anew = False
        self.spare_until = None

    def packets_arrive(self, end: End, data: bytes, glimpses: list[Glimpse]) -> None:
        """Handle bytes that arrive at one of the node's connections.

        `glimpses` are the packets that these bytes complete.
        """
        if end.open:
            self.do(self._receive, end, data, glimpses)

    def _receive(self, end: End, data: bytes, glimpses: list[Glimpse]) -> None:
        if end.open and self.core is not None:
            if self.refuses and (refused := self.ledger.those_with(self.refuses, glimpses)):
                transports = self.core.inspect().transports
                session = transports.sessions[end.session]
                if session.closed is None:
                    self.ledger.refuses(end, refused)
                    session.refuse("3.1.5.8", REFUSED)
                    transports.touch(session)
                return
            self.ledger.arrives(self, end, glimpses)
            self.core.receive(end.session, data, self.moment())

    def accepted(self, end: End) -> None:
        """Handle a connection that another host has opened."""
        end.session = self.running.accepted(end.peer.host.name, self.moment())
        if not end.peer.host.is_node:
            self.strange.add(end.session)
        self.ends[end.session] = end

    def opened(self, end: End) -> None:
        """Handle the opening of a connection that this node has requested."""
        if end.open and self.core is not None:
            self.core.opened(end.session, self.moment())

    def end_lost(self, end: End, reason: str) -> None:
        """Handle a connection that broke or was closed by the peer."""
        if end.open:
            end.line.forget(end)
            self.do(self.lost_session, end.session, reason)

    def lost_session(self, session: int, reason: str) -> None:
        """Tell the core that a transport broke, or could not be opened."""
        self.trace.add(self.now_ms, self.name, "lost", session, reason)
        self.ends.pop(session, None)
        self.tries_anew |= bool(self.suspected) and session not in self.refused_sessions
        self.running.lost(session, reason, self.moment())

    def pinged(self, session: int, response: bytes) -> None:
        """Handle a datagram that answers the node's Ping."""
        self.running.ping_answered(session, response)

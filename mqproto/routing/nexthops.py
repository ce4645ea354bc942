"""The routes to other queue managers that a queue manager knows.  [MS-MQQB] 3.1.5.2.1, 3.1.7.4, 3.1.7.5"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mqproto.routing.peers import ANYWHERE, Peer, comes_from
from mqproto.wire.guid import Guid

MSMQ_PORT: Final = 1801
PING_PORT: Final = 3527
"""The UDP port to which Pings are sent.  2.1.2"""


@dataclass(frozen=True, slots=True)
class NextHop:
    """A neighbour that we call, and its address.  3.1.1.3.1.3

    manager: its queue manager's GUID; None if we know the neighbour only from a direct format name.
    ping: the address and UDP port at which it answers Pings, if these are not `host` and port 3527.
    tls: whether it is called with TLS, and must show the certificate that is pinned to `manager`.
    learnt: whether it is undeclared. If so, it was met at this address, and is called only if that is allowed.
    """

    manager: Guid | None
    host: str
    port: int = MSMQ_PORT
    ping: tuple[str, int] | None = None
    tls: bool = False
    learnt: bool = False

    @property
    def ping_address(self) -> tuple[str, int]:
        """The address and UDP port to ping."""
        return self.ping or (self.host, PING_PORT)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Routes:
    """The next hops to other queue managers, as Get Next Hops would return them for each one.  3.1.7.5

    managers: the next hops to each queue manager that can be reached, in order of preference; a `Router` finds them.
    hosts: the known neighbours, by their addresses or computer names in direct format names.
    own_hosts: the addresses and names, in lower case, that mean this queue manager itself.
    publics: the queue manager that hosts each public queue.
    peers: the declarations of known queue managers; all others are strangers.
    called: the hosts that may be called because a stranger asks for an answer there: addresses, networks, or `any`.
    heard: the hosts from which strangers get an answer at all, in the same form.
    """

    managers: Mapping[Guid, tuple[NextHop, ...]] = field(default_factory=dict)
    hosts: Mapping[str, NextHop] = field(default_factory=dict)
    own_hosts: frozenset[str] = frozenset()
    publics: Mapping[Guid, Guid] = field(default_factory=dict)
    peers: Mapping[Guid, Peer] = field(default_factory=dict)
    called: tuple[str, ...] = ()
    heard: tuple[str, ...] = (ANYWHERE,)

    def to_manager(self, manager: Guid) -> tuple[NextHop, ...]:
        """Return the next hops on the way to a queue manager, in order of preference; empty if none."""
        return self.managers.get(manager, ())

    def declares(self, manager: Guid) -> bool:
        """Return whether an operator has declared a queue manager, or a way to it."""
        return manager in self.peers or bool(self.to_manager(manager))

    def to_host(self, host: str) -> NextHop:
        """Return the neighbour that a direct format name leads to.  3.1.7.4

        If the host is not declared, the neighbour is at port 1801 of the host's address.
        """
        return self.hosts.get(host.lower()) or NextHop(None, host)

    def proves(self, manager: Guid, host: str, certified: Guid | None) -> bool:
        """Return whether a session from `host` is believed to belong to the GUID that it presents.

        certified: the queue manager to which the session's certificate is pinned; None for a plain connection.
        """
        if certified is not None:
            return certified == manager
        peer = self.peers.get(manager)
        return peer is not None and not peer.certified and comes_from(host, peer.origins)

    def brings(self, neighbour: Guid, source: Guid, *, target: Guid, own: Guid) -> bool:
        """Return whether a neighbour may bring a message.

        It may if it is the message's source, or a declared router on the source's way to us. A message that was here
        before may also come back: when ways change, a router returns messages that we gave to it. We gave a router only
        messages for queue managers to which it leads, so it must lead to `target`.

        target: the queue manager that the message is for.
        own: this queue manager.
        """
        if neighbour == source:
            return True
        peer = self.peers.get(neighbour)
        if peer is None:
            return False
        return source in peer.brings or (target in peer.brings and (source in self.peers or source == own))

    def hears(self, host: str) -> bool:
        """Whether connections from a host are answered, because strangers or a declared peer may call from there."""
        return comes_from(host, self.heard) or self.is_declared(host)

    def is_declared(self, host: str) -> bool:
        """Whether a known queue manager may be at a host and connect without TLS."""
        return any(comes_from(host, peer.origins) for peer in self.peers.values() if not peer.certified)

    def may_call(self, host: str) -> bool:
        """Whether a host may be called because a stranger asks for an answer there."""
        return comes_from(host, self.called)

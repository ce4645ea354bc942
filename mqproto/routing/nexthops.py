"""What a queue manager is told of the ways to others.  [MS-MQQB] 3.1.5.2.1, 3.1.7.4, 3.1.7.5"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mqproto.wire.guid import Guid

MSMQ_PORT: Final = 1801
PING_PORT: Final = 3527
"""The UDP port to which Pings go.  2.1.2"""


@dataclass(frozen=True, slots=True)
class NextHop:
    """A neighbour: whom we call, and where.  3.1.1.3.1.3

    manager: its queue manager's GUID; None when only a direct format name told us of it.
    ping: the address and UDP port at which it answers Pings, if not port 3527 of `host`.
    tls: whether it is called over TLS; then `manager` says whose certificate it has to show.
    """

    manager: Guid | None
    host: str
    port: int = MSMQ_PORT
    ping: tuple[str, int] | None = None
    tls: bool = False

    @property
    def ping_address(self) -> tuple[str, int]:
        """Where it is pinged."""
        return self.ping or (self.host, PING_PORT)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Routes:
    """Who comes next to whom: what Get Next Hops would answer, for every queue manager at once.  3.1.7.5

    managers: the next hops to each queue manager that can be reached, the preferred first; a `Router` finds them.
    hosts: the neighbour behind an address or a computer name of direct format names, where it is known.
    own_hosts: the addresses and names, in lower case, that mean this queue manager itself.
    publics: the queue manager that hosts each public queue.
    """

    managers: Mapping[Guid, tuple[NextHop, ...]] = field(default_factory=dict)
    hosts: Mapping[str, NextHop] = field(default_factory=dict)
    own_hosts: frozenset[str] = frozenset()
    publics: Mapping[Guid, Guid] = field(default_factory=dict)

    def to_manager(self, manager: Guid) -> tuple[NextHop, ...]:
        """The next hops on the way to a queue manager, the preferred first; empty if there is no way."""
        return self.managers.get(manager, ())

    def to_host(self, host: str) -> NextHop:
        """The neighbour that a direct format name calls: port 1801 of its address unless we know better.  3.1.7.4"""
        return self.hosts.get(host.lower()) or NextHop(None, host)

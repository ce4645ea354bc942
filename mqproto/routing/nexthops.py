"""Who comes next on the way to a queue manager.  [MS-MQQB] 3.1.5.2.1, 3.1.7.4, 3.1.7.5"""

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
    """

    manager: Guid | None
    host: str
    port: int = MSMQ_PORT
    ping: tuple[str, int] | None = None

    @property
    def ping_address(self) -> tuple[str, int]:
        """Where it is pinged."""
        return self.ping or (self.host, PING_PORT)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Routes:
    """Static routes: what a directory would know and what [MS-MQBR] would compute from it.

    managers: the next hop to each queue manager that can be reached.
    hosts: the neighbour behind an address or a computer name of direct format names, where it is known.
    own_hosts: the addresses and names, in lower case, that mean this queue manager itself.
    publics: the queue manager that hosts each public queue.
    """

    managers: Mapping[Guid, NextHop] = field(default_factory=dict)
    hosts: Mapping[str, NextHop] = field(default_factory=dict)
    own_hosts: frozenset[str] = frozenset()
    publics: Mapping[Guid, Guid] = field(default_factory=dict)

    def to_manager(self, manager: Guid) -> NextHop | None:
        """The next hop on the way to a queue manager, or None if there is no way."""
        return self.managers.get(manager)

    def to_host(self, host: str) -> NextHop:
        """The neighbour that a direct format name calls: TCP port 1801 of its address unless we know better."""
        return self.hosts.get(host.lower()) or NextHop(None, host)

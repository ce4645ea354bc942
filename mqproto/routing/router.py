"""Next hops by sites, routing servers and link costs.  [MS-MQBR] 3.1.5.1 to 3.1.5.3"""

from __future__ import annotations

from mqproto.routing.costs import routing_table
from mqproto.routing.enterprise import Enterprise, Member


class Router:
    """The next hops from the viewpoint of one queue manager of an enterprise.

    Following next hops always ends, at the destination if sites and links connect the two: each site gate hands a
    message to a site that is nearer to the destination's site, and no other queue manager hands a message back.

    Args:
        enterprise: the records of the directory; if they change, make a new router.
        local: the identifier of the queue manager that asks.
    """

    def __init__(self, enterprise: Enterprise, local: str) -> None:
        self._enterprise = enterprise
        self._source = enterprise.machine(local)
        self._gated = enterprise.gated_sites_of(self._source) if self._source is not None else ()
        self._table = routing_table(self._gated, enterprise.links) if self._gated else {}

    def next_hops(self, destination: str) -> tuple[str, ...]:
        """GetNextHops: the queue managers that a message may be handed to, the preferred first.  [MS-MQBR] 3.1.5.1

        The answer is empty if either queue manager is unknown, no way leads there, or the message has arrived.
        """
        source, target = self._source, self._enterprise.machine(destination)
        if source is None or target is None or source is target:
            return ()
        if source.routing_server:
            return self._from_routing_server(source, target)
        if source.out_routing_servers:
            return source.out_routing_servers
        if source.shares_site_with(target):
            return _entrance(target)
        return self._enterprise.routing_servers_of(source)

    def _from_routing_server(self, source: Member, target: Member) -> tuple[str, ...]:
        """GetNextHopsForRouter, and the part that GetNextHopsForSiteGate shares with it.  [MS-MQBR] 3.1.5.2, 3.1.5.3"""
        if source.identifier in target.in_routing_servers:
            return (target.identifier,)
        if source.shares_site_with(target):
            return _entrance(target)
        if self._gated:
            return self._from_site_gate(target)
        return self._enterprise.site_gates_of(source)

    def _from_site_gate(self, target: Member) -> tuple[str, ...]:
        """GetNextHopsForSiteGate, for a destination in other sites: the gates of the next site.  [MS-MQBR] 3.1.5.3

        The specification takes whichever of a destination's sites the table happens to list last; we take the nearest.
        A destination that is itself a gate of the next site is preferred to the others.
        """
        ways = [self._table[site] for site in target.sites if site in self._table]
        least = min((way.cost for way in ways), default=0)
        next_sites = (site for way in ways if way.cost == least for site in way.next_sites)
        gates = dict.fromkeys(gate for site in next_sites for gate in self._enterprise.site_gates_for(site))
        return tuple(sorted(gates, key=lambda gate: gate != target.identifier))


def _entrance(target: Member) -> tuple[str, ...]:
    """The entrance for messages from within a queue manager's site: its in-routing servers, or itself."""
    return target.in_routing_servers or (target.identifier,)

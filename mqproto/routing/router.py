"""Finds next hops from sites, routing servers and link costs.  [MS-MQBR] 3.1.5.1 to 3.1.5.3

`routing_table` has the cheapest ways from a site gate to all other sites.  [MS-MQBR] 3.1.1.2, 3.1.3.1
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from mqproto.routing.enterprise import Enterprise, Member, RoutingLink


class SitePath(NamedTuple):
    """The cheapest way to a destination site. The site's identifier is the key in the table.

    cost: the sum of the costs of its links.
    next_sites: NextHopSiteID. The specification selects one of several cheapest ways. This field has the first site of
        each of them, in the order of the links, in case one of these sites cannot be reached.
    """

    cost: int
    next_sites: tuple[str, ...]


def routing_table(roots: Collection[str], links: Iterable[RoutingLink]) -> dict[str, SitePath]:
    """Return the cheapest way from the nearest root to every other site that the links reach.

    This is Dijkstra's algorithm.

    Args:
        roots: the sites where the ways begin. A gate of two sites is in both of them, at no cost.
        links: the links, each usable in both directions; every cost is above 0.
    """
    edges: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for link in links:
        edges[link.site1].append((link.site2, link.actual_cost))
        edges[link.site2].append((link.site1, link.actual_cost))

    costs = dict.fromkeys(roots, 0)
    # No link is free, so a site's set is complete before the site is visited, and may be handed on.
    first_sites: defaultdict[str, set[str]] = defaultdict(set)
    visited: set[str] = set()
    queue = [(0, root) for root in costs]
    while queue:
        cost, site = heappop(queue)
        if site in visited:
            continue
        visited.add(site)
        for other, step in edges[site]:
            total = cost + step
            if other not in costs or total < costs[other]:
                costs[other] = total
                first_sites[other].clear()
                heappush(queue, (total, other))
            if total == costs[other]:
                first_sites[other] |= first_sites[site] or {other}

    around = dict.fromkeys(other for root in roots for other, _ in edges[root])
    return {
        site: SitePath(cost, tuple(first for first in around if first in first_sites[site]))
        for site, cost in costs.items()
        if cost
    }


class Router:
    """The next hops as seen from one queue manager of an enterprise.

    A chain of next hops always ends, and it ends at the destination if sites and links lead there. Each site gate hands
    a message to a site that is nearer to the destination's site, and no other queue manager hands a message back.

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
        """Return the queue managers to which a message may be handed, in order of preference.

        This is GetNextHops.  [MS-MQBR] 3.1.5.1

        The answer is empty if either queue manager is unknown, if no way leads there, or if the message has arrived.
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
        """Return the next hops from a routing server: GetNextHopsForRouter.  [MS-MQBR] 3.1.5.2, 3.1.5.3

        This includes the part that GetNextHopsForSiteGate has in common with it.
        """
        if source.identifier in target.in_routing_servers:
            return (target.identifier,)
        if source.shares_site_with(target):
            return _entrance(target)
        if self._gated:
            return self._from_site_gate(target)
        return self._enterprise.site_gates_of(source)

    def _from_site_gate(self, target: Member) -> tuple[str, ...]:
        """Return the gates of the next site on the way to a destination in another site.  [MS-MQBR] 3.1.5.3

        This is GetNextHopsForSiteGate. If the destination has several sites, the specification takes whichever one the
        table happens to list last; we take the nearest. A destination that is itself a gate of the next site comes
        before the others.
        """
        ways = [self._table[site] for site in target.sites if site in self._table]
        least = min((way.cost for way in ways), default=0)
        next_sites = (site for way in ways if way.cost == least for site in way.next_sites)
        gates = dict.fromkeys(gate for site in next_sites for gate in self._enterprise.site_gates_for(site))
        return tuple(sorted(gates, key=lambda gate: gate != target.identifier))


def _entrance(target: Member) -> tuple[str, ...]:
    """Return where messages from a queue manager's own site reach it: its in-routing servers, or itself."""
    return target.in_routing_servers or (target.identifier,)

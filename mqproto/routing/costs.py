"""The cheapest ways from a site to all others: the RoutingTable of a site gate.  [MS-MQBR] 3.1.1.2, 3.1.3.1"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from mqproto.routing.enterprise import RoutingLink


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

"""Next hops in a topology without sites.

A message follows a route, goes directly to a neighbour, or takes the path with the fewest links. The whole table is
known before the first message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mqproto.simulator.topology.errors import TopologyError, nearest


def next_hops(
    neighbours: Mapping[str, Sequence[str]], routes: Mapping[str, Mapping[str, str]]
) -> dict[tuple[str, str], str]:
    """Return the next hop for each pair (from, to) that links connect.

    If several paths are equally short, the one whose first link is declared first is used.

    Args:
        neighbours: the neighbours of each node, in the order of the links.
        routes: the next hops of each node with routes, by destination; all names are those of nodes.

    Raises:
        TopologyError: the next hop of a route is not a neighbour, or routes lead in a circle.
    """
    hops = {}
    for to in neighbours:
        distances = _distances(to, neighbours)
        for frm in distances:
            if frm != to:
                # If a link leads to `to`, the nearest neighbour is `to` itself.
                hops[frm, to] = min(neighbours[frm], key=distances.__getitem__)
    for frm, table in routes.items():
        for to, hop in table.items():
            if hop not in neighbours[frm]:
                raise TopologyError(
                    f"route.{frm}.{to}: {hop!r} is not a neighbour of {frm!r}; {nearest(hop, neighbours[frm])}"
                )
            hops[frm, to] = hop
    for frm, to in hops:
        _refuse_circle(frm, to, hops)
    return hops


def _distances(to: str, neighbours: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the number of links from each connected node to `to`."""
    distances = {to: 0}
    edge = [to]
    while edge:
        reached = []
        for node in edge:
            for other in neighbours[node]:
                if other not in distances:
                    distances[other] = distances[node] + 1
                    reached.append(other)
        edge = reached
    return distances


def _refuse_circle(frm: str, to: str, hops: Mapping[tuple[str, str], str]) -> None:
    way = [frm]
    while way[-1] != to:
        hop = hops.get((way[-1], to))
        if hop is None:
            raise TopologyError(f"route.{way[0]}.{to}: no link leads on from {way[-1]!r}; add one")
        way.append(hop)
        if hop in way[:-1]:
            raise TopologyError(f"route to {to!r} goes round in a circle: {', '.join(way)}; change a route")

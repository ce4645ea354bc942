"""Next hops in a topology with sites: the algorithm of [MS-MQBR], run for every pair of nodes.

A site has gates, a routing link has a cost, and a node may be a routing server. Nodes of the same site may connect to
each other, and gates may connect to the gates of neighbouring sites. Links between nodes need not be declared, except
for a proxy or a fault.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from mqproto.base.errors import UsageError
from mqproto.routing import Enterprise, Member, Router, RoutingLink, Site
from mqproto.simulator.topology.errors import TopologyError
from mqproto.simulator.topology.nodes import Node


def refuse_without_sites(nodes: Collection[Node], links: Collection[RoutingLink]) -> None:
    """Refuse a topology that uses sites without declaring any."""
    for node in nodes:
        if node.sites or node.routing_server or node.out_routing_servers or node.in_routing_servers:
            raise TopologyError(
                f"node.{node.name}: there is no site to be in or to route for; add [site.NAME]"
            )
    if links:
        raise TopologyError("routing_link: there is no site to join; add [site.NAME]")


def site_hops(
    nodes: Collection[Node],
    sites: Collection[Site],
    links: Collection[RoutingLink],
    routes: Mapping[str, Collection[str]],
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the possible next hops for each pair (from, to), the preferred first.  [MS-MQBR] 3.1.5.1

    Raises:
        TopologyError: the sites contradict each other or are not all connected; or there are routes as well.
    """
    for site in sites:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", site.identifier):
            raise TopologyError(
                f"site {site.identifier!r}: a site's name has up to 63 letters, digits, - and _"
            )
    for name, table in routes.items():
        for other in table:
            raise TopologyError(
                f"route.{name}.{other}: the sites of {name!r} and {other!r} say who comes next; "
                "leave out the route, or all sites"
            )
    try:
        enterprise = Enterprise(map(_machine, nodes), sites, links)
    except UsageError as error:
        raise TopologyError(str(error)) from None

    hops = {}
    for frm in nodes:
        router = Router(enterprise, frm.name)
        for to in nodes:
            if frm is not to:
                hops[frm.name, to.name] = found = router.next_hops(to.name)
                if not found:
                    raise TopologyError(
                        f"no routing links lead from site {frm.sites[0]} to site {to.sites[0]}; add [[routing_link]]"
                    )
    return hops


def _machine(node: Node) -> Member:
    return Member(
        identifier=node.name,
        sites=node.sites,
        routing_server=node.routing_server,
        out_routing_servers=node.out_routing_servers,
        in_routing_servers=node.in_routing_servers,
    )

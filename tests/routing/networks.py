"""Enterprises for routing tests.

Their links are written as text such as `a-b:3`, which also names the sites. Hypothesis strategies generate arbitrary
enterprises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from hypothesis import strategies as st

from mqproto.routing import Enterprise, Member, Router, RoutingLink, Site


def routing_links(text: str) -> list[RoutingLink]:
    """Return routing links from words such as `a-b:3`."""
    found = []
    for word in text.split():
        pair, _, cost = word.partition(":")
        site1, _, site2 = pair.partition("-")
        found.append(RoutingLink(site1, site2, int(cost)))
    return found


def gated(text: str, *machines: Member) -> Enterprise:
    """Return an enterprise of sites with links such as `a-b:3`.

    Each site such as `a` has one gate `A` and one client `a1`; further machines may be added.
    """
    found = routing_links(text)
    names = sorted({site for link in found for site in (link.site1, link.site2)})
    gates = [Member(identifier=name.upper(), sites=(name,), routing_server=True) for name in names]
    clients = [Member(identifier=f"{name}1", sites=(name,)) for name in names]
    sites = [Site(name, (name.upper(),)) for name in names]
    return Enterprise([*clients, *gates, *machines], sites, found)


def way(enterprise: Enterprise, source: str, destination: str) -> str:
    """Return the nodes that a message visits if each preferred next hop can be reached: `a1 A B b1`."""
    met = [source]
    while met[-1] != destination:
        met.append(Router(enterprise, met[-1]).next_hops(destination)[0])
        assert len(met) <= len(enterprise.machines), met
    return " ".join(met)


def all_ways(enterprise: Enterprise, source: str, destination: str) -> Iterator[list[str]]:
    """Yield every route along next hops; each ends at a node that has no next hop, or that was visited before."""
    met = [source]

    def follow() -> Iterator[list[str]]:
        hops = Router(enterprise, met[-1]).next_hops(destination)
        if not hops:
            yield met.copy()
        for hop in hops:
            met.append(hop)
            if hop in met[:-1]:
                yield met.copy()
            else:
                yield from follow()
            met.pop()

    return follow()


def simple_ways(
    site: str, links: Iterable[RoutingLink], met: tuple[str, ...] = ()
) -> Iterator[tuple[int, list[str]]]:
    """Try all routes from a site; yield each one that visits no site twice, with its cost."""
    met = (*met, site)
    yield 0, [site]
    for link in links:
        for here, there in ((link.site1, link.site2), (link.site2, link.site1)):
            if here == site and there not in met:
                for cost, rest in simple_ways(there, links, met):
                    yield cost + link.actual_cost, [site, *rest]


@st.composite
def site_links(draw: st.DrawFn, names: str) -> list[RoutingLink]:
    """Draw links between sites, in any order, expensive and cheap, with many ties."""
    pairs = list(combinations(names, 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    costs = st.sampled_from([1, 1, 2, 3, 999_999])
    return [
        RoutingLink(two, one, draw(costs)) if draw(st.booleans()) else RoutingLink(one, two, draw(costs))
        for one, two in chosen
    ]


@st.composite
def enterprises(draw: st.DrawFn, *, plain: bool = False) -> Enterprise:
    """Draw an enterprise of up to five sites, each with one or two gates and some more machines.

    plain: whether each machine is in only one site, and none has in-routing or out-routing servers.
    """
    names = "abcde"[: draw(st.integers(1, 5))]
    kinds = st.sampled_from([("gate",), ("gate", "client"), ("gate", "gate", "server", "client", "client")])
    roles = [(name, role) for name in names for role in draw(kinds)]
    identifiers = [f"{name}{number}-{role}" for number, (name, role) in enumerate(roles)]
    servers = [identifier for identifier in identifiers if not identifier.endswith("client")]
    some_servers = st.lists(st.sampled_from(servers), max_size=0 if plain else 2, unique=True)
    more_sites = st.lists(st.sampled_from(names), max_size=0 if plain else 2)

    machines = []
    gates: dict[str, list[str]] = {name: [] for name in names}
    for identifier, (name, role) in zip(identifiers, roles, strict=True):
        sites = tuple(dict.fromkeys([name, *draw(more_sites)]))
        if role == "gate":
            for site in sites if draw(st.booleans()) else [name]:
                gates[site].append(identifier)
        machines.append(
            Member(
                identifier=identifier,
                sites=sites,
                routing_server=role != "client",
                out_routing_servers=tuple(draw(some_servers)),
                in_routing_servers=tuple(server for server in draw(some_servers) if server != identifier),
            )
        )
    sites_of = [Site(name, tuple(draw(st.permutations(gates[name])))) for name in names]
    return Enterprise(draw(st.permutations(machines)), sites_of, draw(site_links(names)))

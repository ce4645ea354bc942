"""The cheapest routes between sites: the table of a site gate."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.routing import RoutingLink
from mqproto.routing.costs import SitePath, routing_table
from tests.routing.networks import routing_links, simple_ways, site_links

SITES = "abcdef"


@pytest.mark.spec("[MS-MQBR] 3.1.3.1")
@given(links=site_links(SITES[:5]), roots=st.sets(st.sampled_from(SITES[:5]), min_size=1, max_size=2))
def test_the_table_is_what_trying_all_ways_finds(links: list[RoutingLink], roots: set[str]) -> None:
    found: dict[str, list[tuple[int, str]]] = {}
    for root in roots:
        for cost, sites in simple_ways(root, links):
            if roots.isdisjoint(sites[1:]) and len(sites) > 1:
                found.setdefault(sites[-1], []).append((cost, sites[1]))
    table = routing_table(sorted(roots), links)
    assert table.keys() == found.keys()
    for site, ways in found.items():
        least = min(cost for cost, _ in ways)
        assert table[site].cost == least
        assert set(table[site].next_sites) == {first for cost, first in ways if cost == least}
        assert len(table[site].next_sites) == len(set(table[site].next_sites))


@given(links=site_links(SITES[:5]))
def test_no_way_leads_where_no_link_does(links: list[RoutingLink]) -> None:
    """A closed link is not in the list, so sites that are only reached by it have no row."""
    linked = {site for link in links for site in (link.site1, link.site2)}
    table = routing_table(["a"], links)
    assert "a" not in table
    assert table.keys() <= linked
    around = {site for link in links if "a" in (link.site1, link.site2) for site in (link.site1, link.site2)}
    assert all(set(way.next_sites) <= around - {"a"} and way.next_sites for way in table.values())


@pytest.mark.spec("[MS-MQBR] 3.1.1.2")
def test_of_equally_cheap_ways_that_with_the_first_link_is_preferred() -> None:
    r"""
      b
    1/ \1
    a   d      two ways from a to d for 2
    1\ /1
      c
    """
    square = routing_links("a-c:1 c-d:1 a-b:1 b-d:1")
    assert routing_table("a", square)["d"] == SitePath(2, ("c", "b"))
    assert routing_table("a", square[::-1])["d"] == SitePath(2, ("b", "c"))


def test_a_gate_of_two_sites_begins_in_both() -> None:
    """a --1-- b --1-- c --5-- d: for a gate of both a and d, the cost to c is 2."""
    assert routing_table("ad", routing_links("a-b:1 b-c:1 c-d:5")) == {
        "b": SitePath(1, ("b",)),
        "c": SitePath(2, ("b",)),
    }

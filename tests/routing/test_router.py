"""Next hops according to sites, routing servers and link costs: small enterprises on paper, and properties of any
enterprise.

In the drawings, a capital letter is the site gate of the site with that letter, and a1 is a client in site a.
"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.routing import Enterprise, Member, Router, RoutingLink, Site
from mqproto.routing.router import SitePath, routing_table
from tests.routing.networks import all_ways, enterprises, gated, routing_links, simple_ways, site_links, way

SITES = "abcdef"

# On paper


@pytest.mark.spec("[MS-MQBR] 3.1.3.1")
@pytest.mark.parametrize(
    ("costs", "met"),
    [("a-b:3 b-c:1 b-d:1 c-d:1", "a1 A B C c1"), ("a-b:3 b-c:3 b-d:1 c-d:1", "a1 A B D C c1")],
)
def test_the_example_of_the_specification_goes_as_it_says(costs: str, met: str) -> None:
    r"""
                C
              /   \
    A ------ B --- D      c straight from b where b-c costs 1, over d where it costs 3
    """
    assert way(gated(costs), "a1", "c1") == met


@pytest.mark.spec("[MS-MQBR] 3.1.5.1")
def test_within_a_site_everyone_is_called_directly() -> None:
    """
    one site:  a1   a2   A
    """
    enterprise = gated("a-b:1", Member(identifier="a2", sites=("a",)))
    assert Router(enterprise, "a1").next_hops("a2") == ("a2",)
    assert Router(enterprise, "A").next_hops("a2") == ("a2",)
    assert Router(enterprise, "a1").next_hops("A") == ("A",)


@pytest.mark.spec("[MS-MQBR] 3.1.5.1")
def test_all_that_a_client_with_out_routing_servers_sends_goes_through_them() -> None:
    """
    one site:  a2 --> r, s --> a1
    """
    r, s = (Member(identifier=name, sites=("a",), routing_server=True) for name in "rs")
    a1 = Member(identifier="a1", sites=("a",))
    a2 = Member(identifier="a2", sites=("a",), out_routing_servers=("s", "r"))
    enterprise = Enterprise([r, s, a1, a2], [Site("a")])
    assert Router(enterprise, "a2").next_hops("a1") == ("s", "r")
    assert way(enterprise, "a2", "a1") == "a2 s a1"
    assert way(enterprise, "a1", "a2") == "a1 a2"


@pytest.mark.spec("[MS-MQBR] 3.1.5.2")
@pytest.mark.spec("[MS-MQBR] 3.1.5.3")
def test_all_that_is_sent_to_a_client_with_in_routing_servers_comes_through_them() -> None:
    """
    a1, A, t --> r, s --> a2        b1 --> B --> A --> r, s --> a2
    """
    r, s, t = (Member(identifier=name, sites=("a",), routing_server=True) for name in "rst")
    a2 = Member(identifier="a2", sites=("a",), in_routing_servers=("r", "s"))
    enterprise = gated("a-b:1", r, s, t, a2)
    for source in ("a1", "A", "t"):
        assert Router(enterprise, source).next_hops("a2") == ("r", "s")
    for server in ("r", "s"):
        assert Router(enterprise, server).next_hops("a2") == ("a2",)
    assert way(enterprise, "b1", "a2") == "b1 B A r a2"


@pytest.mark.spec("[MS-MQBR] 3.1.5.3")
def test_a_gate_that_is_an_in_routing_server_hands_on_itself() -> None:
    """
    B --> A --> a2
    """
    a2 = Member(identifier="a2", sites=("a",), in_routing_servers=("A",))
    assert way(gated("a-b:1", a2), "b1", "a2") == "b1 B A a2"


@pytest.mark.spec("[MS-MQBR] 3.1.5.1")
@pytest.mark.spec("[MS-MQBR] 3.1.5.2")
@pytest.mark.spec("[MS-MQBR] 3.1.5.5")
@pytest.mark.spec("[MS-MQBR] 3.1.5.6")
def test_out_of_its_site_a_client_goes_to_a_routing_server_and_that_to_a_gate() -> None:
    """
    site a:  a1 --> r or A      r --> A --> B --> b1
    """
    r = Member(identifier="r", sites=("a",), routing_server=True)
    behind = gated("a-b:1", r)
    assert Router(behind, "a1").next_hops("b1") == ("A", "r")
    assert Router(behind, "r").next_hops("b1") == ("A",)
    first = Enterprise([r, *behind.machines.values()][:-1], behind.sites.values(), behind.links)
    assert way(first, "a1", "b1") == "a1 r A B b1"


@pytest.mark.spec("[MS-MQBR] 3.1.5.7")
def test_of_several_gates_the_first_is_preferred_and_the_others_follow() -> None:
    """
    A --> B, x or y (gates of b, in this order)
    """
    b = [Member(identifier=name, sites=("b",), routing_server=True) for name in "xBy"]
    plain = gated("a-b:1")
    others = [machine for machine in plain.machines.values() if machine.identifier != "B"]
    enterprise = Enterprise([*others, *b], [plain.sites["a"], Site("b", ("B", "x", "y"))], plain.links)
    assert Router(enterprise, "A").next_hops("b1") == ("B", "x", "y")
    assert Router(enterprise, "A").next_hops("x") == ("x", "B", "y")
    assert Router(enterprise, "x").next_hops("b1") == ("b1",)


@pytest.mark.spec("[MS-MQBR] 3.1.5.3")
def test_where_two_ways_cost_the_same_both_are_given() -> None:
    r"""
          B
        /   \
      A       D     each link costs 2
        \   /
          C
    """
    enterprise = gated("a-b:2 a-c:2 b-d:2 c-d:2")
    assert Router(enterprise, "A").next_hops("d1") == ("B", "C")
    assert Router(enterprise, "B").next_hops("d1") == ("D",)


@pytest.mark.spec("[MS-MQBR] 3.1.5.3")
def test_who_is_in_several_sites_is_reached_through_the_nearest() -> None:
    """B --1-- A --3-- C, and m is in both b and c: A goes through B, in whatever order the sites are given."""
    for sites in (("b", "c"), ("c", "b")):
        enterprise = gated("a-b:1 a-c:3", Member(identifier="m", sites=sites))
        assert way(enterprise, "a1", "m") == "a1 A B m"
        assert way(enterprise, "c1", "m") == "c1 m"


@pytest.mark.spec("[MS-MQBR] 3.1.5.8")
def test_a_member_of_two_sites_routes_for_the_one_whose_gate_it_is() -> None:
    """a --1-- b --1-- c: g, a gate of a, is in b as well; it sends messages for c through B, which is b's only gate."""
    plain = gated("a-b:1 b-c:1")
    g = Member(identifier="g", sites=("a", "b"), routing_server=True)
    sites = [Site("a", ("g",)), plain.sites["b"], plain.sites["c"]]
    enterprise = Enterprise([*plain.machines.values(), g], sites, plain.links)
    assert way(enterprise, "g", "c1") == "g B C c1"
    assert way(enterprise, "g", "b1") == "g b1"


@pytest.mark.spec("[MS-MQBR] 3.1.5.1")
def test_there_is_no_next_hop_to_oneself_to_a_stranger_or_where_no_link_leads() -> None:
    """
    A --- B     C --- D
    """
    enterprise = gated("a-b:1 c-d:1")
    assert Router(enterprise, "a1").next_hops("a1") == ()
    assert Router(enterprise, "a1").next_hops("nobody") == ()
    assert Router(enterprise, "nobody").next_hops("a1") == ()
    assert Router(enterprise, "a1").next_hops("c1") == ("A",)
    assert Router(enterprise, "A").next_hops("c1") == ()


# In any enterprise


@pytest.mark.spec("[MS-MQBR] 3.1.5")
@given(enterprise=enterprises(), data=st.data())
def test_next_hops_never_lead_round_and_end_at_the_destination_or_where_no_link_leads(
    enterprise: Enterprise, data: st.DataObject
) -> None:
    source, destination = (data.draw(st.sampled_from(sorted(enterprise.machines))) for _ in range(2))
    for met in all_ways(enterprise, source, destination):
        assert len(met) == len(set(met)), f"it comes round: {met}"
        if met[-1] != destination:
            last = enterprise.machines[met[-1]]
            assert enterprise.gated_sites_of(last), f"only a gate may know no way: {met}"
            assert not last.shares_site_with(enterprise.machines[destination])


@pytest.mark.spec("[MS-MQBR] 3.1.5")
@given(enterprise=enterprises(plain=True), data=st.data())
def test_a_message_arrives_where_links_lead_and_its_sites_cost_the_least(
    enterprise: Enterprise, data: st.DataObject
) -> None:
    source, destination = (data.draw(st.sampled_from(sorted(enterprise.machines))) for _ in range(2))
    here, there = (enterprise.machines[name].sites[0] for name in (source, destination))
    costs = {}
    for cost, sites in simple_ways(here, enterprise.links):
        if sites[-1] == there:
            costs[tuple(sites)] = cost
    for met in all_ways(enterprise, source, destination):
        assert (met[-1] == destination) is bool(costs)
        if costs:
            sites = list(dict.fromkeys(enterprise.machines[name].sites[0] for name in met))
            assert costs[tuple(sites)] == min(costs.values())


@given(enterprise=enterprises(), data=st.data())
def test_next_hops_are_others_each_once_and_the_same_whenever_one_asks(
    enterprise: Enterprise, data: st.DataObject
) -> None:
    source, destination = (data.draw(st.sampled_from(sorted(enterprise.machines))) for _ in range(2))
    hops = Router(enterprise, source).next_hops(destination)
    assert source not in hops
    assert len(hops) == len(set(hops))
    assert hops == Router(enterprise, source).next_hops(destination)


# The table of a site gate


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

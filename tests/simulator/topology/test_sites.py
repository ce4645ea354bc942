"""Topologies whose sites determine the next hops."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from mqproto.routing import NextHop
from mqproto.simulator.topology import Link, Topology, TopologyError, load, parse
from mqproto.simulator.topology.directory import NodeDirectory
from tests.simulator.running import DESTINATION, processes

SITES = load("sites")

SMALL = """
[site.north]
gates = ["a"]
[site.south]
gates = ["b"]
[[routing_link]]
between = ["north", "south"]
[node.a]
site = "north"
routing_server = true
[node.b]
site = "south"
routing_server = true
[node.c]
site = "north"
"""


def way(topology: Topology, *way: str) -> list[tuple[str, ...]]:
    """Return, for each node on a way, its next hops towards the last node."""
    return [topology.next_hops(here, way[-1]) for here in way[:-1]]


@pytest.mark.spec("[MS-MQQB] 3.1.7.5")
@pytest.mark.spec("[MS-MQBR] 3.1.5.1")
def test_the_shipped_sites_have_two_gates_in_the_north_and_go_the_cheaper_way() -> None:
    gates = ("north-1", "north-2")
    assert way(SITES, "sender", "north-1", "middle", "destination") == [gates, ("middle",), ("destination",)]
    assert way(SITES, "destination", "middle", "north-2", "sender") == [("middle",), gates, ("sender",)]
    cheap = replace(
        SITES, routing_links=(*SITES.routing_links[:2], replace(SITES.routing_links[2], actual_cost=1))
    )
    assert way(cheap, "north-1", "destination") == [("destination",)]


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.1")
def test_a_directory_has_all_next_hops_in_order_with_their_own_addresses() -> None:
    directory = NodeDirectory(SITES, SITES.nodes["sender"])
    hops = directory.routes.to_manager(SITES.nodes["destination"].guid)
    north = [SITES.nodes[name] for name in ("north-1", "north-2")]
    assert hops == tuple(NextHop(node.guid, *node.address) for node in north)


def test_nodes_of_sites_call_each_other_without_a_link_and_through_its_proxy_where_there_is_one() -> None:
    assert SITES.dial_address("sender", "north-2") == SITES.nodes["north-2"].address
    proxied = replace(SITES, links=(Link("sender", "north-1", ("127.0.0.99", 1801)),))
    assert proxied.dial_address("sender", "north-1") == ("127.0.0.99", 1801)
    assert proxied.dial_address("north-1", "sender") == SITES.nodes["sender"].address


def test_out_routing_and_in_routing_servers_are_read_and_asked() -> None:
    servers = (
        SMALL
        + """
    [node.d]
    site = ["north"]
    out_routing_servers = ["a"]
    in_routing_servers = ["a"]
    """
    )
    topology = parse(servers, "t.toml")
    assert topology.next_hops("d", "c") == topology.next_hops("c", "d") == ("a",)
    assert topology.next_hops("a", "d") == ("d",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{SMALL}[node.d]", "d is in no site; give it one of north, south"),
        (f"{SMALL}[node.d]\nsite = 'nroth'", "d: no site is called 'nroth'; there is north, south"),
        (f"{SMALL}[node.d]\nsite = 1", "node.d.site: expected str | array, got int"),
        (
            f"{SMALL}[site.west]\ngates = ['a']",
            "site west: its gate a is in another site; name one that is in it",
        ),
        (f"{SMALL}[site.west]\ngates = ['d']", "site west: its gate 'd' is nobody; there is a, b, c"),
        (f"{SMALL}[site.west]", "site west has no gate; name one of its routing servers as one"),
        (f"{SMALL}[site.'x\ty']", "site 'x\\ty': a site's name has up to 63 letters, digits, - and _"),
        (f"{SMALL}[site.west]\ngate = 'a'", "site.west: unknown key 'gate'; did you mean 'gates'?"),
        (
            f"{SMALL}[[routing_link]]\nbetween = ['north', 'west']",
            "routing link: no site is called 'west'; there is north, south",
        ),
        (
            f"{SMALL}[[routing_link]]\nbetween = ['north', 'south']\ncost = 2",
            "routing link between north and south: they are linked already; leave it out",
        ),
        (
            SMALL.replace("[node.a]", "cost = 0\n[node.a]"),
            "routing link between north and south: cost 0 is not within 1 to 999999",
        ),
        (
            SMALL.replace("[node.a]", "cost = 'x'\n[node.a]"),
            "routing_link 1.cost: expected int, got str",
        ),
        (
            f"{SMALL}[site.west]\ngates = ['d']\n[node.d]\nsite = 'west'\nrouting_server = true",
            "no routing links lead from site north to site west; add [[routing_link]]",
        ),
        (
            f"{SMALL}[node.d]\nsite = 'north'\nin_routing_servers = ['c']",
            "d: its in-routing server c is not a routing server; make it one",
        ),
        (
            f"{SMALL}[[link]]\nbetween = ['c', 'b']\n[route.c]\nb = 'b'",
            "route.c.b: the sites of 'c' and 'b' say who comes next; leave out the route, or all sites",
        ),
        (
            "[node.a]\nrouting_server = true",
            "node.a: there is no site to be in or to route for; add [site.NAME]",
        ),
        (
            "[node.a]\nsite = 'north'",
            "node.a: there is no site to be in or to route for; add [site.NAME]",
        ),
        (
            "[node.a]\n[[routing_link]]\nbetween = ['x', 'y']",
            "routing_link: there is no site to join; add [site.NAME]",
        ),
    ],
)
def test_sites_that_make_no_sense_are_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(TopologyError) as refused:
        parse(text, "mine.toml")
    assert str(refused.value) == f"mine.toml: {said}"


async def test_what_is_sent_arrives_over_the_other_gate_when_the_preferred_one_is_killed(
    tmp_path: Path,
) -> None:
    topology = SITES.with_free_ports()
    first, second = ("{}:{}".format(*topology.nodes[name].address) for name in ("north-1", "north-2"))
    async with (
        processes(topology, tmp_path) as nodes,
        nodes["sender"].client() as sender,
        nodes["destination"].client() as destination,
    ):

        async def arrives(body: bytes) -> None:
            await sender.send(DESTINATION, body, transactional=True)
            async with destination.transaction("orders") as messages:
                assert [message.body for message in messages] == [body]

        async def goes_over(next_hop: str) -> None:
            while {queue.next_hop for queue in (await sender.queues()).outgoing} != {next_hop}:
                await trio.lowlevel.checkpoint()

        await arrives(b"over the first")
        await goes_over(first)
        await nodes["north-1"].end(signal.SIGKILL)
        await arrives(b"over the second")
        await goes_over(second)
        [queue] = (await sender.queues()).outgoing
        assert queue.next_hops == [first, second]
        assert {attempt.address for attempt in queue.history} == {first, second}
        await nodes["north-1"].start()
        await goes_over(first)
        await arrives(b"over the first again")

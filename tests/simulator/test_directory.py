"""What a topology means to one node: whom it calls for what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from mqproto.errors import FormatNameError, UsageError
from mqproto.routing import NextHop
from mqproto.wire import guid_text
from simulator.directory import Directory
from simulator.topology import Link, Topology, TopologyError, load

THREE = load("three-node")
SENDER, INTERMEDIATE, DESTINATION = THREE.nodes.values()


def hop(topology: Topology, name: str) -> NextHop:
    node = topology.nodes[name]
    return NextHop(node.guid, node.host, node.port, node.ping)


def hosts(topology: Topology, name: str) -> Mapping[str, NextHop]:
    return Directory(topology, topology.nodes[name]).routes.hosts


def test_what_is_routed_goes_to_the_next_hop_and_a_direct_name_straight() -> None:
    directory = Directory(THREE, SENDER)
    assert directory.routes.to_manager(DESTINATION.guid) == (hop(THREE, "intermediate"),)
    assert directory.routes.to_host(DESTINATION.host) == hop(THREE, "destination")
    assert directory.routes.to_host("Destination") == hop(THREE, "destination")

    routed = directory.destination(r"destination\private$\orders")
    assert (routed.manager, routed.host) == (DESTINATION.guid, None)
    assert routed.queue == DESTINATION.queue("orders").identifier
    direct = directory.destination(rf"DIRECT=TCP:{DESTINATION.host}\private$\orders")
    assert (direct.manager, direct.host) == (DESTINATION.guid, DESTINATION.host)
    assert direct.name == f"DIRECT={direct.queue!s}"


@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
def test_a_public_name_leads_to_the_queue_manager_that_hosts_the_queue() -> None:
    fan_in = load("fan-in")
    there = fan_in.nodes["destination"]
    found = Directory(fan_in, fan_in.nodes["sender-1"]).destination(r"destination\orders")
    assert found.name.startswith("PUBLIC=")
    assert (found.manager, found.queue) == (there.guid, there.queue("orders").public)


def test_a_proxy_is_called_in_place_of_the_neighbour_behind_it() -> None:
    proxy = ("127.0.0.9", 2000)
    links = (Link("sender", "intermediate", proxy), Link("intermediate", "destination"))
    topology = replace(THREE, links=links)
    there = NextHop(INTERMEDIATE.guid, *proxy, ping=(INTERMEDIATE.host, 3527))
    assert Directory(topology, SENDER).routes.to_manager(DESTINATION.guid) == (there,)
    assert Directory(topology, SENDER).routes.to_host("intermediate") == there
    assert Directory(topology, INTERMEDIATE).routes.to_manager(SENDER.guid) == (hop(topology, "sender"),)


def test_an_address_stands_for_a_node_only_if_it_is_that_nodes_alone() -> None:
    assert SENDER.host == "127.0.0.1"
    assert hosts(THREE, "intermediate")["127.0.0.1"] == hop(THREE, "sender")
    assert "127.0.0.1" not in hosts(THREE.with_free_ports(), "intermediate")
    # A proxy that leads here comes from 127.0.0.1, whoever is behind it.
    behind = Link("destination", "intermediate", ("127.0.0.9", 2000))
    proxied = replace(THREE, links=(Link("sender", "intermediate"), behind))
    assert "127.0.0.1" not in hosts(proxied, "intermediate")
    assert hosts(proxied, "intermediate")["sender"] == hop(proxied, "sender")


def test_a_direct_name_whose_address_says_nothing_is_called_by_its_nodes_name() -> None:
    behind = Link("destination", "intermediate", ("127.0.0.9", 2000))
    proxied = replace(THREE, links=(Link("sender", "intermediate"), behind))
    found = Directory(proxied, INTERMEDIATE).destination(r"DIRECT=TCP:127.0.0.1\private$\replies")
    assert found.host == "sender"


def test_a_node_without_a_way_has_no_route_to_it() -> None:
    apart = replace(THREE, links=(Link("sender", "intermediate"),))
    assert Directory(apart, SENDER).routes.to_manager(DESTINATION.guid) == ()


def test_more_names_than_are_remembered_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.directory.KNOWN_LIMIT", 1)
    directory = Directory(THREE, SENDER)
    for name in 2 * [r"destination\private$\orders", r"destination\private$\notes"]:
        assert directory.destination(name).queue == DESTINATION.queue(name.rpartition("\\")[2]).identifier


def test_several_names_are_several_destinations_each_once() -> None:
    orders, notes = rf"PRIVATE={guid_text(DESTINATION.guid)}\10", r"DIRECT=OS:destination\private$\notes"
    directory = Directory(THREE, SENDER)
    for text in (
        rf"{orders},{notes}",
        rf"FORMATNAME:{orders} , {notes.lower()}, {notes}",
        rf"destination\orders,{notes},{orders}",
    ):
        found = directory.destinations(text)
        assert [destination.name.casefold() for destination in found] == [
            directory.destination(name).name.casefold() for name in (orders, notes)
        ]
    with pytest.raises(TopologyError, match="nowhere"):
        directory.destinations(rf"{orders},nowhere\q")
    with pytest.raises(FormatNameError):
        directory.destinations(f"{orders},")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (r"destination\private$\orders;journal", TopologyError),
        (r"destination\system$;DEADXACT", UsageError),
        (rf"MACHINE={'0' * 8}-0000-0000-0000-{'0' * 12};DEADXACT", UsageError),
    ],
)
def test_nobody_sends_to_journals_and_dead_letters(name: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Directory(THREE, SENDER).destination(name)


def test_a_queue_is_known_by_its_bare_name_at_its_own_node() -> None:
    directory = Directory(THREE, DESTINATION)
    assert directory.local_queue("ORDERS") == "orders"
    assert directory.local_queue(r".\private$\Orders") == "orders"
    with pytest.raises(UsageError, match="receive from it there"):
        Directory(THREE, SENDER).local_queue(r"destination\private$\orders")
    with pytest.raises(UsageError, match="system queues"):
        directory.local_queue(r".\system$;DEADLETTER")

"""The peers whose identity a node accepts as proven, as a topology declares them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqproto.simulator.topology import Topology, TopologyError, load, parse
from mqproto.simulator.topology.directory import NodeDirectory

ROW = """
[node.a]
[node.b]
[node.c]
[node.c.queue.inbox]
strangers = true
[node.c.queue.orders]
[[link]]
between = ["a", "b"]
proxy = "127.0.0.101:1801"
[[link]]
between = ["b", "c"]
"""


def directory(topology: Topology, name: str) -> NodeDirectory:
    return NodeDirectory(topology, topology.nodes[name])


def test_a_node_comes_from_its_own_host_and_from_the_proxy_that_it_dials() -> None:
    row = parse(ROW, "row.toml")
    guids = {name: node.guid for name, node in row.nodes.items()}
    routes = directory(row, "b").routes
    assert routes.peers[guids["a"]].origins == ("127.0.0.1", "127.0.0.1")
    assert routes.peers[guids["c"]].origins == ("127.0.0.3",)
    assert routes.proves(guids["c"], "127.0.0.3", None)
    assert not routes.proves(guids["c"], "127.0.0.1", None)
    assert not directory(row, "a").routes.proves(guids["b"], "127.0.0.1", None)


def test_where_a_neighbour_speaks_tls_alone_its_address_says_nothing() -> None:
    row = parse(ROW, "row.toml")
    routes = directory(row, "b").routes
    c = row.nodes["c"].guid
    with_tls = replace(routes, peers={**routes.peers, c: replace(routes.peers[c], certified=True)})
    assert [routes.is_declared(host) for host in ("127.0.0.1", "127.0.0.3", "127.0.0.9")] == [
        True,
        True,
        False,
    ]
    assert [with_tls.is_declared(host) for host in ("127.0.0.1", "127.0.0.3")] == [True, False]


def test_a_neighbour_brings_the_messages_of_those_behind_it() -> None:
    row = parse(ROW, "row.toml")
    a, b, c = (row.nodes[name].guid for name in "abc")
    of_a, of_b = directory(row, "a").routes, directory(row, "b").routes
    assert (of_a.peers[b].brings, of_a.peers[c].brings) == (frozenset({c}), frozenset())
    assert (of_b.peers[a].brings, of_b.peers[c].brings) == (frozenset(), frozenset())
    assert of_a.brings(b, c, target=a, own=a)
    assert not of_b.brings(a, c, target=b, own=b)


def test_a_neighbour_hands_back_only_what_is_for_those_to_whom_it_leads() -> None:
    row = parse(ROW, "row.toml")
    a, b, c = (row.nodes[name].guid for name in "abc")
    of_a, of_b = directory(row, "a").routes, directory(row, "b").routes
    assert of_a.brings(b, a, target=c, own=a)
    assert not of_a.brings(b, a, target=a, own=a)
    assert not of_a.brings(b, a, target=b, own=a)
    for source, target in ((b, a), (b, c), (a, c), (a, a)):
        assert not of_b.brings(c, source, target=target, own=b)


def test_with_sites_each_routing_server_brings_what_others_send() -> None:
    sites = load("sites")
    peers = directory(sites, "destination").routes.peers
    brings = {name: len(peers[node.guid].brings) for name, node in sites.nodes.items() if node.guid in peers}
    assert brings == {"sender": 0, "north-1": 3, "north-2": 3, "middle": 3}


def test_an_operator_says_from_where_a_node_comes_and_what_strangers_may_do() -> None:
    text = ROW.replace("[node.a]", '[node.a]\nfrom = ["10.0.0.0/8", "2001:db8::/32"]') + (
        '[strangers]\nhear = ["192.0.2.0/24"]\ncall = ["192.0.2.7"]\n'
    )
    row = parse(text, "row.toml")
    b, c = directory(row, "b"), directory(row, "c")
    a = row.nodes["a"].guid
    assert [
        b.routes.proves(a, host, None) for host in ("10.1.2.3", "2001:db8::1", "::ffff:10.0.0.1", "11.0.0.1")
    ] == [
        True,
        True,
        True,
        False,
    ]
    assert (b.routes.heard, b.routes.called) == (("192.0.2.0/24",), ("192.0.2.7",))
    assert [b.routes.hears(host) for host in ("192.0.2.9", "127.0.0.3", "192.0.3.1")] == [True, True, False]
    assert {queue.name: queue.strangers for queue in c.queues} == {"inbox": True, "orders": False}


@pytest.mark.parametrize(
    ("table", "where"),
    [
        ('[node.d]\nfrom = ["10.0.0.1/8"]', "node d: from: '10.0.0.1/8'"),
        ('[node.d]\nfrom = ["here"]', "node d: from: 'here'"),
        ('[strangers]\nhear = ["here"]', "strangers: hear: 'here'"),
        ('[strangers]\ncall = ["10.0.0.300"]', "strangers: call: '10.0.0.300'"),
        ('[strangers]\nspeak = ["any"]', "strangers: unknown key 'speak'"),
        ('[node.d]\norigins = ["any"]', "node.d: unknown key 'origins'"),
    ],
)
def test_what_is_no_address_is_one_line_that_says_where_it_stands(table: str, where: str) -> None:
    with pytest.raises(TopologyError) as refused:
        parse(f"{ROW}{table}\n", "row.toml")
    assert str(refused.value).startswith(f"row.toml: {where}")
    assert "\n" not in str(refused.value)

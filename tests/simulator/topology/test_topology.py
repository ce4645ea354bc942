r"""A topology reports at once what is wrong with it, and knows every way and every queue."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from mqproto.formatname import DirectName, MachineName, PrivateName, PublicName, SystemQueue
from mqproto.simulator.topology import (
    DeclaredQueue,
    Fault,
    Link,
    Node,
    Tls,
    Topology,
    TopologyError,
    file,
    load,
    parse,
    shipped,
)
from mqproto.simulator.topology.errors import nearest
from mqproto.simulator.topology.places import Place
from mqproto.simulator.topology.ports import reserved_address
from mqproto.simulator.topology.resolve import is_elsewhere
from mqproto.wire.guid import Guid, guid_from_text, guid_text

THREE = load("three-node")
GUID_TEXT = "557358D1-5055-9591-9549-97B6E611EA26"

SMALL = """
[node.a]
[node.a.queue.orders]
transactional = true
[node.b]
[node.b.queue.orders]
[[link]]
between = ["a", "b"]
"""


def guid(number: int) -> Guid:
    return Guid(number.to_bytes(16, "little"))


def network(
    count: int, pairs: list[tuple[int, int]], routes: dict[str, dict[str, str]] | None = None
) -> Topology:
    """Return a topology with nodes n0, n1, ... and links between them."""
    nodes = [Node(name=f"n{i}", guid=guid(i + 1), host=f"127.0.0.{i + 1}") for i in range(count)]
    links = tuple(Link(f"n{a}", f"n{b}") for a, b in pairs)
    return Topology(name="t", nodes={node.name: node for node in nodes}, links=links, routes=routes or {})


@st.composite
def connected_networks(draw: st.DrawFn) -> Topology:
    """Draw up to nine nodes that can all reach one another: a tree and some more links, in any order."""
    count = draw(st.integers(1, 9))
    tree = {(draw(st.integers(0, i - 1)), i) for i in range(1, count)}
    more = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=6))
    pairs = tree | {(a, b) for a, b in more if a < b}
    return network(count, draw(st.permutations(sorted(pairs))))


@given(connected_networks())
def test_next_hops_lead_from_each_node_to_each_by_links_and_directly_to_neighbours(
    topology: Topology,
) -> None:
    linked = {
        pair for link in topology.links for pair in [(link.first, link.second), (link.second, link.first)]
    }
    for frm in topology.nodes:
        for to in topology.nodes:
            way = [frm]
            while way[-1] != to:
                way.append(topology.next_hop(way[-1], to))
                assert (way[-2], way[-1]) in linked
                assert len(way) <= len(topology.nodes)
            if (frm, to) in linked:
                assert way == [frm, to]


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_topology_connects_all_its_nodes_and_routes_to_all_its_queues(name: str) -> None:
    topology = load(name)
    assert topology.name == name
    assert topology.description
    for node in topology.nodes.values():
        assert topology.node_by_guid(node.guid) is node
        for other in topology.nodes.values():
            if other is not node:
                topology.dial_address(node.name, topology.next_hop(node.name, other.name))
        for queue in node.queues.values():
            found = topology.resolve(rf"{node.name}\private$\{queue.name}")
            assert (found.node, found.queue) == (node, queue)
            assert topology.resolve(str(found.format_name)) == found


def test_the_three_nodes_stand_in_a_row_at_the_standard_port() -> None:
    assert [node.address for node in THREE.nodes.values()] == [(f"127.0.0.{n}", 1801) for n in (1, 2, 3)]
    assert THREE.next_hop("sender", "destination") == "intermediate"
    assert THREE.next_hop("destination", "sender") == "intermediate"
    assert THREE.nodes["sender"].settings.try_connect_interval_ms == 200


def test_a_file_read_twice_gives_the_same_guids() -> None:
    assert load("three-node") == THREE
    assert guid_text(THREE.nodes["sender"].guid) == guid_text(load("three-node").nodes["sender"].guid)
    assert THREE.nodes["sender"].guid != load("pair").nodes["sender"].guid


def test_routes_may_differ_each_way() -> None:
    topology = load("two-routes")
    assert topology.next_hop("sender", "destination") == "north"
    assert topology.next_hop("destination", "sender") == "south"


def test_the_proxy_of_a_link_is_dialled_from_its_first_node_only() -> None:
    demo = load("demo")
    assert demo.dial_address("sender", "intermediate") == ("127.0.0.101", 1801)
    assert demo.dial_address("intermediate", "sender") == ("127.0.0.1", 1801)
    assert THREE.dial_address("sender", "intermediate") == ("127.0.0.2", 1801)


@pytest.mark.parametrize(
    ("text", "node", "queue", "name"),
    [
        (r"destination\private$\orders", "destination", "orders", PrivateName),
        (r"DESTINATION\Orders", "destination", "orders", PrivateName),
        (r".\private$\replies", "sender", "replies", PrivateName),
        (r"DIRECT=OS:destination\private$\notes", "destination", "notes", DirectName),
        (r"DIRECT=TCP:127.0.0.3\private$\notes", "destination", "notes", DirectName),
        (r"DIRECT=OS:.\replies", "sender", "replies", DirectName),
        (r"DIRECT=OS:LocalHost\private$\replies", "sender", "replies", DirectName),
        (r"localhost\private$\replies", "sender", "replies", PrivateName),
        (r".\system$;deadxact", "sender", None, MachineName),
        (r"destination\Journal$", "destination", None, MachineName),
        (r"destination\DeadXact", "destination", None, MachineName),
    ],
)
def test_what_a_person_types_is_found(text: str, node: str, queue: str | None, name: type) -> None:
    found = THREE.resolve(text, at="sender")
    assert found.node.name == node
    assert (found.queue.name if found.queue else None) == queue
    assert isinstance(found.format_name, name)
    assert getattr(found.format_name, "address", "").casefold() not in (".", "localhost")
    assert not is_elsewhere(THREE, text)
    assert THREE.resolve(str(found.format_name)) == found


def test_a_queue_is_numbered_from_sixteen_past_numbers_that_are_taken() -> None:
    topology = parse(
        "[node.a.queue.p]\nid = 17\n[node.a.queue.q]\n[node.a.queue.r]\n"
        f'[node.a.queue.s]\npublic = "{GUID_TEXT}"\n[node.a.queue.t]\npublic = true',
        "t.toml",
    )
    assert [queue.identifier for queue in topology.nodes["a"].queues.values()] == [17, 16, 18, 19, 20]
    assert topology.resolve(r"a\r").format_name == PrivateName(topology.nodes["a"].guid, 18)
    public = PublicName(guid_from_text(GUID_TEXT))
    assert topology.resolve(r"a\s").format_name == public
    assert topology.resolve(str(public)).queue == topology.nodes["a"].queues["s"]
    assert isinstance(topology.resolve(r"a\t").format_name, PublicName)
    machine = MachineName(topology.nodes["a"].guid, SystemQueue.DEADLETTER)
    assert topology.resolve(str(machine)).format_name == machine


@pytest.mark.spec("[MS-MQMQ] 2.1.1")
@pytest.mark.parametrize(
    ("text", "local_name"),
    [
        (r"a\q", "q"),
        (r"a\private$\q;JOURNAL", "q;journal"),
        (r"a\q\Journal$", "q;journal"),
        (r"DIRECT=OS:a\PRIVATE$\q;JOURNAL", "q;journal"),
        (r"a\system$;deadxact", "system$;deadxact"),
        (r"a\XactDeadLetter$", "system$;deadxact"),
        (r"a\deadletter", "system$;deadletter"),
        (r"a\journal", "journal"),  # A queue that is declared so comes first.
        (r"a\system$;journal", "system$;journal"),
    ],
)
def test_journals_and_system_queues_have_a_name_at_their_node(text: str, local_name: str) -> None:
    topology = parse("[node.a.queue.q]\njournal = true\n[node.a.queue.journal]", "t.toml")
    found = topology.resolve(text)
    assert found.local_name == local_name
    assert topology.resolve(str(found.format_name)).local_name == local_name


@pytest.mark.parametrize("name", ["orders", "ORDERS", "orders;journal"])
def test_a_bare_name_is_a_queue_of_the_one_node_that_has_it(name: str) -> None:
    assert THREE.host_of(name).name == "destination"


def test_a_name_that_several_nodes_have_is_listed_once() -> None:
    assert nearest("junk", ["orders", "notes", "orders"]) == "there is orders, notes"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("order", "no node has a queue 'order'; did you mean 'orders'?"),
        (
            "deadxact",
            r"each of sender, intermediate, destination has a queue deadxact: write 'sender\deadxact'",
        ),
        (
            "system$;deadxact",
            r"each of sender, intermediate, destination has a queue system$;deadxact: write",
        ),
        ("", "no node has a queue ''"),
    ],
)
def test_a_bare_name_of_no_queue_or_several_is_refused(name: str, said: str) -> None:
    with pytest.raises(TopologyError) as refused:
        THREE.host_of(name)
    assert str(refused.value).startswith(said)


def test_a_queue_may_have_a_quota_and_a_journal_with_its_own() -> None:
    text = "[node.a.queue.q]\nquota_kb = 8\njournal = true\njournal_quota_kb = 4\n[node.a.queue.r]"
    first, second = parse(text, "t.toml").nodes["a"].queues.values()
    assert (first.quota_kb, first.journal, first.journal_quota_kb) == (8, True, 4)
    assert (second.quota_kb, second.journal, second.journal_quota_kb) == (None, False, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"destination\order", "destination has no queue 'order'; did you mean 'orders'?"),
        (r"intermediate\orders", "intermediate has no queue 'orders'; there is none"),
        (r"destinaton\orders", "three-node has no node 'destinaton'; did you mean 'destination'?"),
        (
            r"host\orders",
            "three-node has no node 'host'; there is sender, intermediate, destination; of another system write "
            r"DIRECT=OS:host\orders",
        ),
        (
            r".\replies",
            ". is the node that is spoken to, and any of sender, intermediate, destination may be; "
            "write the node's name",
        ),
        (
            r"destination\orders;journal",
            r"destination\orders has no journal; give it journal = true in the topology",
        ),
        (r"destination\orders;later", "orders;later: the simulator has no subqueues; name the queue"),
        (r"sender\system$;dead", "no system$;dead exists; there is JOURNAL, DEADLETTER, DEADXACT"),
        (
            r"DIRECT=TCP:10.0.0.1\q",
            r"DIRECT=TCP:10.0.0.1\q: no node has this address; write DIRECT=OS: and a node's name",
        ),
        (
            r"DIRECT=HTTP://h/MSMQ\q",
            r"DIRECT=HTTP://h/MSMQ\q: mqproto speaks TCP, and neither HTTP nor SPX; write DIRECT=TCP: and an address, "
            "or DIRECT=OS: and a name",
        ),
        (f"PUBLIC={GUID_TEXT}", f"no queue has the GUID {GUID_TEXT}; set it as public of a queue"),
        (
            "MULTICAST=239.1.1.1:8001",
            "MULTICAST=239.1.1.1:8001: mqproto sends to no such queues; name each queue, by DIRECT=TCP: or DIRECT=OS:",
        ),
        (
            str(PrivateName(THREE.nodes["sender"].guid, 5)),
            "sender has no queue with number 5; there is 10 replies",
        ),
    ],
)
def test_a_name_of_nothing_is_answered_with_what_there_is(text: str, said: str) -> None:
    with pytest.raises(TopologyError) as refused:
        THREE.resolve(text)
    assert str(refused.value) == said


def test_an_unknown_manager_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        TopologyError, match=rf"no node has the GUID {GUID_TEXT}; there is [-0-9A-F]{{36}} sender, "
    ):
        THREE.resolve(f"PRIVATE={GUID_TEXT}\\10")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node = [", "Invalid"),
        ("", "there are no nodes; begin with [node.sender]"),
        ("[nodes.a]", "unknown key 'nodes'; did you mean 'node'?"),
        ("[node.a]\nadress = 'x'", "node.a: unknown key 'adress'; did you mean 'address'?"),
        ("[node.a.queue.q]\nid = 'x'", "node.a.queue.q.id: expected int | null, got str"),
        ("[node.a.queue.q]\nid = 4", "node.a.queue.q.id: expected int >= 16"),
        (
            "[node.a.queue.q]\npublic = 'x'",
            "node.a.queue.q.public: 'x' is not a GUID; leave it out to have one made",
        ),
        ("[node.a.queue.q]\nid = 16\n[node.a.queue.r]\nid = 16", "q and r of a have one id; change one"),
        ("[node.a.queue.q]\n[node.a.queue.Q]", "q and Q of a have one name; change one"),
        ("[node.a.queue.q]\nquota_kb = 0", "node.a.queue.q.quota_kb: expected int >= 1"),
        (f"[node.a.queue.q]\nquota_kb = {2**32}", "node.a.queue.q.quota_kb: expected int <= 4294967295"),
        ("[node.a.queue.q]\nquota = 8", "node.a.queue.q: unknown key 'quota'; did you mean 'quota_kb'?"),
        (
            "[node.a.queue.q]\njournal_quota_kb = 8",
            "queue 'q': journal_quota_kb bounds no journal; add journal = true",
        ),
        ('[node.a.queue."q+r"]', "queue 'q+r': a queue name cannot contain '+'"),
        ('[node."a b"]', "node 'a b': a node's name has up to 63 letters, digits, - and _"),
        ("[node.a]\n[node.A]", "a and A have one name; change one"),
        ("[node.a]\nguid = '{0}'\n[node.b]\nguid = '{0}'", "a and b have one GUID; change one"),
        (
            "[node.a]\nguid = '00000000-0000-0000-0000-000000000000'",
            "a: the null GUID names no queue manager; leave guid out",
        ),
        ("[node.a]\n[node.b]\naddress = '127.0.0.1'", "a and b have one address; change one"),
        ("[node.a]\naddress = 'h:0'", "node.a: 'h:0' has no port from 1 to 65535; write host:port"),
        (
            "[node.a]\naddress = '::1'",
            "node.a: '::1' is not an address; write host:port, an IPv6 host in brackets",
        ),
        (
            "[node.a]\naddress = 'h:1'\n[node.b]\naddress = 'h:2'\n[node.b.settings]\nrequire_pings = true",
            "a and b answer pings at one address, which ping = 'host:port' sets; change one",
        ),
        ("[node.a]\nping = 'h:0'", "node.a.ping: 'h:0' has no port from 1 to 65535; write host:port"),
        (
            "[node.a.queue.q]\npublic='{0}'\n[node.b.queue.r]\npublic='{0}'",
            "q and r have one public GUID; change one",
        ),
        (
            "[node.a.queue.q]\nconnector = 'mainframe'",
            "node.a.queue.q.connector: 'mainframe' is not a GUID; write that of the foreign system",
        ),
        (
            "[node.a.queue.q]\nconnector = '00000000-0000-0000-0000-000000000000'",
            "queue 'q': connector: the null GUID names no foreign system",
        ),
        (
            "[node.a.queue.q]\nconnector = '{0}'\npublic = true",
            "queue 'q': a connector queue goes by the GUID of its foreign system; leave public out",
        ),
        (
            "[node.a.queue.q]\nconnector = '{0}'\n[node.a.queue.r]\nconnector = '{0}'",
            "q and r are both for the other messages of one foreign system; change one",
        ),
        (
            "[node.a.queue.q]\nconnector='{0}'\ntransactional=true\n[node.a.queue.r]\nconnector='{0}'\n"
            "transactional=true",
            "q and r are both for the transactional messages of one foreign system; change one",
        ),
        (
            "[node.a.queue.q]\nconnector = '{0}'\n[node.b.queue.r]\nconnector = '{0}'\ntransactional = true",
            "node.b.queue.r.connector: a is the connector server of this foreign system; declare the queue there",
        ),
        (
            "[node.a.queue.q]\nconnector = '{0}'\n[node.b.queue.r]\npublic = '{0}'",
            "node.a.queue.q.connector: {0} is the public GUID of r; a foreign system has its own",
        ),
        (
            "[node.a]\nguid = '{0}'\n[node.a.queue.q]\nconnector = '{0}'",
            "node.a.queue.q.connector: {0} is the GUID of a; a foreign system has its own",
        ),
        (f"{SMALL}proxy = '127.0.0.2:1801'", "b and the proxy of a have one address; change one"),
        (f"{SMALL}[[link]]\nbetween = ['b', 'a']", "link: 'b' and 'a' are linked already; leave it out"),
        (f"{SMALL}[[link]]\nbetween = ['a', 'a']", "link: 'a' needs no link with itself; leave it out"),
        (f"{SMALL}[[link]]\nbetween = ['a', 'c']", "link: no node is called 'c'; there is a, b"),
        ("[link]\nbetween = ['a', 'b']", "link: expected array, got object; write [[link]], once for each"),
        (f"{SMALL}[[link]]\nbetween = ['a']", "link 2.between: expected array of length 2, got 1"),
        (f"{SMALL}[route.c]\na = 'b'", "route: no node is called 'c'; there is a, b"),
        (f"{SMALL}[route.a]\nc = 'b'", "route.a: no node is called 'c'; there is a, b"),
        (f"{SMALL}[route.a]\na = 'b'", "route.a.a: a node needs no route to itself; leave it out"),
        (f"{SMALL}[route.a]\nb = 'c'", "route.a.b: 'c' is not a neighbour of 'a'; there is b"),
        (f"{SMALL}[node.c]\n[route.a]\nc = 'b'", "route.a.c: no link leads on from 'b'; add one"),
        (
            f"{SMALL}[settings]\nwindow_sise = 1",
            "settings: unknown setting 'window_sise'; did you mean 'window_size'?",
        ),
        (f"{SMALL}[settings]\nwindow_size = true", "settings.window_size: True is not a whole number"),
        (f"{SMALL}[settings]\nanswer_pings = 1", "settings.answer_pings: 1 is neither true nor false"),
        (f"{SMALL}[settings]\nexpire_sent = 9", "settings.expire_sent: 9 is not text; write it in quotes"),
        (
            f"{SMALL}[settings]\nexpire_sent = 'figure 9'",
            "settings: expire_sent = figure 9: must be keep or figures",
        ),
        (f"{SMALL}[settings]\nwindow_size = 1.5", "settings.window_size: 1.5 is not a whole number"),
        (f"{SMALL}[settings]\nmaximum_order_ack_delay_s = inf", "settings.maximum_order_ack_delay_s: inf"),
        (f"{SMALL}[node.a.settings]\nwindow_size = 0", "settings: window_size = 0: must be 1 to 32767"),
        (f"{SMALL}[[fault]]\nat_s = -1\naction = 'kill'\nnode = 'a'", "fault 1.at_s: expected float >= 0.0"),
        (f"{SMALL}[[fault]]\nat_s = 1\naction = 'kil'", "fault 1.action: invalid enum value 'kil'; did you"),
        (
            f"{SMALL}[[fault]]\nat_s = 1\naction = 'kill'\nnode = 'c'",
            "fault: no node is called 'c'; there is a, b",
        ),
        (
            f"{SMALL}[[fault]]\nat_s = 1\naction = 'kill'\nbetween = ['a', 'b']",
            "kill befalls a node, not a link; name the node",
        ),
        ("name = '../elsewhere'\n" + SMALL, "name '../elsewhere': a topology's name has up to 63 characters"),
        (
            f"{SMALL}[[fault]]\nat_s = 1\naction = 'cut'",
            "a fault befalls either a node or, with between, a link; name one of them",
        ),
        (
            f"{SMALL}[node.c]\n[[fault]]\nat_s = 1\naction = 'cut'\nbetween = ['a', 'c']",
            "fault: no link joins a and c; add the link",
        ),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_in_one_line_with_its_name(text: str, said: str) -> None:
    with pytest.raises(TopologyError) as refused:
        parse(text.replace("{0}", GUID_TEXT), "mine.toml")
    assert str(refused.value).startswith(f"mine.toml: {said.replace('{0}', GUID_TEXT)}")
    assert len(str(refused.value).splitlines()) == 1


tables = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "node",
                    "link",
                    "route",
                    "site",
                    "gates",
                    "routing_link",
                    "cost",
                    "routing_server",
                    "settings",
                    "fault",
                    "queue",
                    "a",
                    "b",
                    "between",
                    "address",
                    "guid",
                    "id",
                    "proxy",
                    "window_size",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
)


def as_toml(value: Any) -> str:
    """Return the value as inline TOML, with None as a word that TOML does not have."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, str):
        return '"' + "".join(c if c.isalnum() else f"\\U{ord(c):08x}" for c in value) + '"'
    return str(value).lower()


@given(
    st.dictionaries(
        st.sampled_from(["node", "link", "route", "site", "routing_link", "settings", "fault", "name"]),
        tables,
    )
)
@example({"node": {"a": {"address": "127.0.0.1:\u0663"}}})
@example({"node": {"a": False}})
def test_any_toml_is_a_topology_or_refused_in_one_line(table: dict[str, Any]) -> None:
    text = "\n".join(f"{key} = {as_toml(value)}" for key, value in table.items())
    try:
        said = f"it is {parse(text, 'mine.toml').name!r}"
    except TopologyError as error:
        said = str(error)
    assert len(said.splitlines()) == 1


def test_a_port_alone_is_no_address() -> None:
    with pytest.raises(TopologyError, match="'999' has no host; write host:port"):
        file.read_address("999", "--metrics")


def test_routes_that_lead_round_in_a_circle_are_refused() -> None:
    ring = [(0, 1), (1, 2), (0, 2), (2, 3)]
    with pytest.raises(
        TopologyError, match="route to 'n3' goes round in a circle: n1, n0, n1; change a route"
    ):
        network(4, ring, {"n0": {"n3": "n1"}, "n1": {"n3": "n0"}})


def test_where_no_link_leads_there_is_no_next_hop() -> None:
    apart = network(3, [(0, 1)])
    with pytest.raises(TopologyError, match="no way leads from 'n0' to 'n2'; add a link"):
        apart.next_hop("n0", "n2")
    with pytest.raises(TopologyError, match="no link joins 'n0' and 'n2'; dial the next hop"):
        apart.dial_address("n0", "n2")
    assert apart.node_by_guid(guid(9)) is None


@pytest.mark.parametrize(
    "settings", ["", "[node.a.settings]\nanswer_pings = false\n[node.b.settings]\nrequire_pings = true"]
)
def test_nodes_of_one_host_may_share_its_ping_port_while_nobody_asks_there_for_one_of_them(
    settings: str,
) -> None:
    """The first node to start answers on the usual port; if `require_pings` is set anywhere, each node has its own
    port.
    """
    topology = parse(f"[node.a]\naddress = 'h:1'\n[node.b]\naddress = 'h:2'\n{settings}", "mine.toml")
    assert {node.ping_address for node in topology.nodes.values()} == {("h", 3527)}


def test_a_free_port_is_one_of_udp_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system offers a TCP port whose UDP port is in use."""
    taken = reserved_address()
    with socket.socket(type=socket.SOCK_DGRAM) as somebody:
        somebody.bind(taken)
        create, offers = socket.create_server, iter([taken])
        monkeypatch.setattr(socket, "create_server", lambda address: create(next(offers, address)))
        assert reserved_address() != taken


def test_free_ports_are_all_different_and_servers_can_listen_at_them_but_nobody_gets_them_by_chance() -> None:
    demo = load("demo")
    free = demo.with_free_ports()
    proxies = [link.proxy for link in free.links if link.proxy]
    addresses = [*(node.address for node in free.nodes.values()), *proxies]
    assert len(set(addresses)) == len(addresses) == 5
    for address in addresses:
        socket.create_server(address).close()
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(address)
    assert {name: node.guid for name, node in free.nodes.items()} == {
        n: node.guid for n, node in demo.nodes.items()
    }
    with pytest.raises(TopologyError, match="sender, intermediate, destination share this address"):
        free.resolve(r"DIRECT=TCP:127.0.0.1\orders")
    assert free.resolve(r"DIRECT=OS:destination\orders").node.name == "destination"


# TLS

WITH_TLS = """
[node.a]
[node.a.tls]
certificate = "a.pem"
key = "keys/a.key"
address = "127.0.0.1:1811"
[node.b.tls]
certificate = "/etc/b.pem"
key = "/etc/b.key"
address = "127.0.0.2:1811"
[node.c]
[[link]]
between = ["a", "b"]
tls = true
[[link]]
between = ["b", "c"]
"""


def test_files_of_certificates_are_found_from_where_the_topology_lies(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(WITH_TLS, "utf-8")
    tls = {name: node.tls for name, node in load(file).nodes.items()}
    assert tls["a"] == Tls(
        certificate=tmp_path / "a.pem", key=tmp_path / "keys" / "a.key", host="127.0.0.1", port=1811
    )
    assert tls["b"] == Tls(
        certificate=Path("/etc/b.pem"), key=Path("/etc/b.key"), host="127.0.0.2", port=1811
    )
    assert tls["c"] is None


def test_a_link_with_tls_leads_to_the_listener_for_tls_and_others_do_not() -> None:
    topology = parse(WITH_TLS, "mine.toml")
    assert topology.dial_address("a", "b") == ("127.0.0.2", 1811)
    assert topology.dial_address("b", "a") == ("127.0.0.1", 1811)
    assert topology.dial_address("c", "b") == ("127.0.0.2", 1801)
    assert [node.name for node in topology.tls_neighbours("b")] == ["a"]
    assert [topology.has_tls(*pair) for pair in (("a", "b"), ("b", "a"), ("b", "c"), ("a", "c"))] == [
        True,
        True,
        False,
        False,
    ]
    assert ("127.0.0.2", 1811) in topology.nodes["b"].addresses


def test_a_proxy_stands_before_the_listener_for_tls_as_before_any_other() -> None:
    topology = parse(f'{WITH_TLS}proxy = "127.0.0.9:1899"\n', "mine.toml")
    proxied = parse(WITH_TLS.replace("tls = true", 'tls = true\nproxy = "127.0.0.9:1899"'), "mine.toml")
    assert topology.dial_address("a", "b") == proxied.listening_address("a", "b") == ("127.0.0.2", 1811)
    assert proxied.dial_address("a", "b") == ("127.0.0.9", 1899)
    assert proxied.dial_address("b", "a") == ("127.0.0.1", 1811)


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ("127.0.0.1:1811", "127.0.0.1:1801", "node.a.tls.address: at port 1801 MSMQ is spoken without TLS"),
        ("127.0.0.1:1811", "127.0.0.1", "node.a.tls.address: at port 1801 MSMQ is spoken without TLS"),
        ("127.0.0.1:1811", "127.0.0.2:1811", "a and b have one address; change one"),
        (
            '[node.a]\n[node.a.tls]\ncertificate = "a.pem"',
            '[node.a]\naddress = "127.0.0.1:1811"\n[node.a.tls]\ncertificate = "a.pem"',
            "node.a.tls.address: at port 1811 MSMQ is spoken without TLS; choose another port",
        ),
        ("tls = true", "", r"node.a.tls: no link of 'a' has TLS; add tls = true to one"),
        ("tls = true", "tls = 1", "link 1.tls: expected bool, got int"),
        (
            'between = ["b", "c"]',
            'between = ["b", "c"]\ntls = true',
            r"link: 'c' has a link with TLS and no certificate; add \[node.c.tls\]",
        ),
        ('key = "keys/a.key"', "", "node.a.tls: .*missing required field key"),
        ('key = "keys/a.key"', 'kez = "a.key"', "node.a.tls: unknown key 'kez'; did you mean 'key'?"),
        ("127.0.0.1:1811", "127.0.0.1:x", "node.a.tls.address: '127.0.0.1:x' has no port"),
    ],
)
def test_what_tls_cannot_be_is_refused_by_name(wrong: str, right: str, said: str) -> None:
    with pytest.raises(TopologyError, match=f"mine.toml: {said}"):
        parse(WITH_TLS.replace(wrong, right, 1), "mine.toml")


def test_spans_go_to_the_url_of_a_collector() -> None:
    text = '[node.a]\ntraces = "http://127.0.0.1:4318/"\n'
    assert parse(text, "mine.toml").nodes["a"].traces == "http://127.0.0.1:4318"
    with pytest.raises(TopologyError, match=r"a\.traces is '127\.0\.0\.1': write the URL of a collector"):
        parse(text.replace("http://127.0.0.1:4318/", "127.0.0.1"), "mine.toml")
    place = Place(load("pair"), Path("x")).with_traces("http://127.0.0.1:4318", "sender")
    assert [node.traces for node in place.topology.nodes.values()] == ["http://127.0.0.1:4318", ""]


def test_each_node_answers_for_metrics_at_a_port_of_its_own() -> None:
    at = load("pair").with_metrics("127.0.0.1", 9_180)
    free = [node.metrics for node in at.with_free_ports().nodes.values()]
    assert len({*free, ("127.0.0.1", 9_180), ("127.0.0.1", 9_181)}) == 4
    text = '[node.a]\nmetrics = "127.0.0.1"\n[node.b]\nmetrics = "127.0.0.1:9180"\n'
    with pytest.raises(TopologyError, match="metrics of a and the metrics of b have one address"):
        parse(text, "mine.toml")
    with pytest.raises(TopologyError, match="2 nodes take as many ports from there"):
        load("pair").with_metrics("127.0.0.1", 65_535)


def test_free_ports_are_others_for_tls() -> None:
    free = parse(WITH_TLS, "mine.toml").with_free_ports()
    addresses = [address for node in free.nodes.values() for address in node.addresses]
    assert len(set(addresses)) == len(addresses) == 5
    assert free.dial_address("a", "b") == addresses[3]


def test_waypoints_are_a_setting_of_each_node() -> None:
    pair = load("pair")
    asked = pair.with_waypoints()
    assert {node.settings.waypoints for node in pair.nodes.values()} == {False}
    assert {node.settings.waypoints for node in asked.nodes.values()} == {True}


def test_faults_come_as_they_stand() -> None:
    first, second, *_ = load("demo").faults
    assert first == Fault(at_s=2, action=first.action, between=("sender", "intermediate"), for_s=1)
    assert (second.action, second.node) == ("kill", "intermediate")


def test_a_file_of_ones_own_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SMALL + "[settings]\nwindow_size = 8\n[node.b.settings]\nwindow_size = 16\n", "utf-8")
    mine = load(path)
    assert mine == load(str(path))
    assert (mine.name, mine.nodes["a"].settings.window_size, mine.nodes["b"].settings.window_size) == (
        "mine",
        8,
        16,
    )
    path.write_text('[node.a]\naddress = "[::1]:1802"', "utf-8")
    assert load(path).nodes["a"].address == ("::1", 1802)
    path.write_bytes(b"\xff")
    with pytest.raises(TopologyError, match="not UTF-8"):
        load(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("three-nod", "no topology is called 'three-nod'; did you mean 'three-node'?"),
        ("zzz/zzz", "no topology is called 'zzz/zzz'; there is demo, edges"),
        (
            "zzz",
            "no topology is called 'zzz'; there is demo, edges, fan-in, pair, sites, three-node, two-routes",
        ),
        (
            "none/such.toml",
            "none/such.toml: No such file or directory; or name a shipped one: demo, edges, fan-in",
        ),
    ],
)
def test_an_unknown_topology_is_answered_with_those_there_are(name: str, said: str) -> None:
    with pytest.raises(TopologyError) as refused:
        load(name)
    assert str(refused.value).startswith(said)


def test_a_queue_made_by_hand_keeps_the_reserved_numbers_free() -> None:
    with pytest.raises(TopologyError, match="id 4 is not within 16 to 4294967295"):
        DeclaredQueue(name="q", identifier=4)


FIRST_READINGS = """
import threading, typing
from mqproto.simulator.topology import parse

TEXT = "[node.a.queue.orders]\\nid = 70\\nquota_kb = 3\\njournal = true\\njournal_quota_kb = 3\\n"

hashed = typing._AnnotatedAlias.__hash__

def another_comes_first(self):
    if threading.current_thread() is first:
        others.append(threading.Thread(target=parse, args=(TEXT, "others")))
        others[-1].start()
        others[-1].join(0.05)
    return hashed(self)

others = []
typing._AnnotatedAlias.__hash__ = another_comes_first
first = threading.Thread(target=parse, args=(TEXT, "first"))
first.start()
first.join()
for other in others:
    other.join()
print(len(others) > 0)
"""


def test_threads_may_read_their_first_topologies_at_once() -> None:
    """msgspec then examines the types of fields, in Python code, during which other threads may run."""
    done = subprocess.run([sys.executable, "-c", FIRST_READINGS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
